// One rank of an MPI job in C++:  night_mpi CASE.
// Held out: written without a look at the rules of the tool (docs/benchmark.md).
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kGoodSteps = 3, kResult = 2;
int rank_here, size_here;

std::string in_directory(const char* name) { return std::string(getenv("HANGS_DIRECTORY")) + "/" + name; }

void announce(const char* how) {
  const std::string path = in_directory(("at." + std::to_string(rank_here)).c_str());
  std::ofstream(path + ".new") << getpid() << " " << how << "\n";
  rename((path + ".new").c_str(), path.c_str());
}

bool is_odd() { return atoi(getenv("HANGS_ODD")) == rank_here; }

void sum_up() {
  double value = 1, sum = 0;
  MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

// --- a task that waits for what nobody signals
struct Cache {
  std::mutex mutex;
  std::condition_variable filled;
  bool ready = false;
};

double interpolate(Cache& cache) {
  std::unique_lock<std::mutex> lock(cache.mutex);
  cache.filled.wait(lock, [&] { return cache.ready; });
  return 1;
}

void wait_for_task() {
  Cache cache;
  auto task = std::async(std::launch::async, interpolate, std::ref(cache));
  announce("asleep");
  task.get();
}

void future() {
  sum_up();
  if (is_odd()) wait_for_task();
  announce("spins");
  sum_up();
}

// --- a handler of a fault that wants the lock which the faulting function has
std::mutex log_mutex;

void write_backtrace(int) {
  const std::lock_guard<std::mutex> lock(log_mutex);
  fprintf(stderr, "rank %d: fault\n", rank_here);
}

void log_field(const volatile double* field) {
  const std::lock_guard<std::mutex> lock(log_mutex);
  announce("asleep");
  fprintf(stderr, "%f\n", *field);
}

void fault() {
  signal(SIGSEGV, write_backtrace);
  sum_up();
  if (is_odd()) log_field(nullptr);
  announce("spins");
  sum_up();
}

// --- rank 0 collects one result of each worker; one of them had an empty part, and sent nothing
void collect() {
  double result = 0;
  if (rank_here == 0) {
    for (int worker = 1; worker < size_here; worker++) {
      if (worker == size_here - 1) announce("spins");
      MPI_Recv(&result, 1, MPI_DOUBLE, MPI_ANY_SOURCE, kResult, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  } else {
    announce("spins");
    if (rank_here != 2) MPI_Send(&result, 1, MPI_DOUBLE, 0, kResult, MPI_COMM_WORLD);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// --- a table in rank 0's memory; the odd rank has it to itself, and computes
__attribute__((noinline)) double rebalance(double load) {
  for (volatile bool even = false; !even;) load = load * 0.5 + 1;
  return load;
}

void window() {
  double* table = nullptr;
  MPI_Win shared;
  MPI_Win_allocate(8 * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &table, &shared);
  if (is_odd()) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, shared);
    double load = 0;
    MPI_Get(&load, 1, MPI_DOUBLE, 0, 0, 1, MPI_DOUBLE, shared);
    MPI_Win_flush(0, shared);
    MPI_Barrier(MPI_COMM_WORLD);
    announce("spins");
    load = rebalance(load);
    MPI_Win_unlock(0, shared);
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
    announce("spins");
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, shared);
    double one = 1;
    MPI_Accumulate(&one, 1, MPI_DOUBLE, 0, 0, 1, MPI_DOUBLE, MPI_SUM, shared);
    MPI_Win_unlock(0, shared);
  }
  MPI_Win_free(&shared);
}

// --- well: rank 0 writes each time step, for which the others wait
void write_step(long step, const std::vector<double>& field) {
  std::ofstream out(in_directory("step.vtk"));
  for (const double value : field) out << value + static_cast<double>(step) << "\n";
}

void output() {
  const std::vector<double> field(200000, 0.1);
  for (long step = 0;; step++) {
    sum_up();
    if (rank_here == 0) write_step(step, field);
    MPI_Barrier(MPI_COMM_WORLD);
    if (step == kGoodSteps) announce("moves");
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_here);
  MPI_Comm_size(MPI_COMM_WORLD, &size_here);
  const std::string name = arguments[1];
  if (name == "future") future();
  if (name == "fault") fault();
  if (name == "collect") collect();
  if (name == "window") window();
  if (name == "output") output();
  MPI_Finalize();
}
