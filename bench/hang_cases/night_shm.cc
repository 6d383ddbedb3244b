// A process of a job in C++ without a library for communication: its processes meet at a barrier in shared memory.
// night_shm CASE RANK Held out: written without a look at the rules of the tool (docs/benchmark.md).
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace {

constexpr int kGoodSteps = 3;
int rank_here;

struct Shared {
  int state;  // 0: nobody prepares it, 1: somebody does, 2: it can be used
  pthread_barrier_t barrier;
};

std::string in_directory(const std::string& name) { return std::string(getenv("HANGS_DIRECTORY")) + "/" + name; }

void announce(const char* how) {
  const std::string path = in_directory("at." + std::to_string(rank_here));
  std::ofstream(path + ".new") << getpid() << " " << how << "\n";
  rename((path + ".new").c_str(), path.c_str());
}

Shared* open_shared() {
  const int file = open(in_directory("shared").c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) exit(1);
  auto* shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  int nobody = 0;
  if (__atomic_compare_exchange_n(&shared->state, &nobody, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attributes, static_cast<unsigned>(atoi(getenv("HANGS_RANKS"))));
    __atomic_store_n(&shared->state, 2, __ATOMIC_SEQ_CST);
  }
  while (__atomic_load_n(&shared->state, __ATOMIC_SEQ_CST) != 2) usleep(1000);
  return shared;
}

__attribute__((noinline)) void read_boundary() {
  announce("asleep");
  const int file = open(in_directory("shard-0003.bin").c_str(), O_RDONLY);
  char byte;
  if (read(file, &byte, 1) != 1) exit(1);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  rank_here = atoi(arguments[2]);
  Shared* shared = open_shared();
  for (int step = 0;; step++) {
    if (step == kGoodSteps) {
      if (rank_here == atoi(getenv("HANGS_ODD"))) read_boundary();
      announce("asleep");
    }
    pthread_barrier_wait(&shared->barrier);
  }
}
