#include "base/unattended.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace rankstacks {
namespace {

using Clock = std::chrono::steady_clock;

const pid_t kToolPid = getpid();
std::atomic<bool> something_given_up{false};

// What the caller and its workers share. The last of them deletes it: a worker that was given up may be the last by hours.
struct Batch {
  enum class State : std::uint8_t { kWaiting, kUnderWay, kDone, kGivenUp };
  struct Piece {
    State state = State::kWaiting;
    Clock::time_point started{};
    std::string reads;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::function<void(std::size_t)> work;
  std::vector<Piece> pieces;
  std::size_t next = 0;
  std::size_t open = 0;      // pieces neither done nor given up
  std::size_t workers = 0;   // at work, those aside that hold what was given up
};

struct Worker {
  std::shared_ptr<Batch> batch;
  pid_t tool = getpid();
  std::optional<std::size_t> piece;
  bool ended_well = false;
  bool given_up = false;   // its last piece was, and another worker has its place
};
thread_local Worker* this_worker = nullptr;

void take_turns(Worker& worker) {
  Batch& batch = *worker.batch;
  std::unique_lock lock(batch.mutex);
  while (batch.next < batch.pieces.size()) {
    const std::size_t i = batch.next++;
    worker.piece = i;
    batch.pieces[i].state = Batch::State::kUnderWay;
    batch.pieces[i].started = Clock::now();
    lock.unlock();
    batch.work(i);
    lock.lock();
    worker.piece.reset();
    if (batch.pieces[i].state == Batch::State::kGivenUp) {
      worker.given_up = true;
      return;
    }
    batch.pieces[i].state = Batch::State::kDone;
    if (--batch.open == 0) batch.changed.notify_all();
  }
}

int worker_process(void* argument) noexcept {
  Worker& worker = *static_cast<Worker*>(argument);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == worker.tool) take_turns(worker);   // else the tool has ended already
  worker.ended_well = true;
  _exit(0);
}

// A process beside this one that shares all but the thread group, while this thread waits: the two use the same stack and the same thread-local
// variables, which belong to one at a time.
void work_in_process_of_its_own(Worker& worker) {
  // This thread's own frames go on below here until the other has ended: in what is left free between the two.
  constexpr std::uintptr_t kKeptForThisThread = 64u << 10;
  auto* top = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) - kKeptForThisThread) & ~std::uintptr_t{63});
  const pid_t process = clone(&worker_process, top, CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_FS | CLONE_SIGHAND, &worker);
  if (process < 0) {   // a limit of processes, or a system call filter: then by the thread itself
    take_turns(worker);
    return;
  }
  int status = 0;
  const bool known = waitpid(process, &status, __WALL) == process;
  if (worker.ended_well) return;
  // It ended the tool, or crashed: so does the tool.
  if (known && WIFSIGNALED(status)) {
    std::signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  _exit(known && WIFEXITED(status) ? WEXITSTATUS(status) : 2);
}

void* worker_thread(void* argument) {
  const std::unique_ptr<Worker> worker(static_cast<Worker*>(argument));
  this_worker = worker.get();
  work_in_process_of_its_own(*worker);
  const std::lock_guard lock(worker->batch->mutex);
  if (!worker->given_up) --worker->batch->workers;
  worker->batch->changed.notify_all();
  return nullptr;
}

// False: no thread is to be had.
bool start_worker(const std::shared_ptr<Batch>& batch) {
  constexpr std::size_t kStack = 9u << 20;   // the usual 8 MiB of a thread, and what work_in_process_of_its_own() leaves free
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStack);
  auto worker = std::make_unique<Worker>();
  worker->batch = batch;
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, &worker_thread, worker.get()) == 0;
  pthread_attr_destroy(&attributes);
  if (!started) return false;
  (void)worker.release();
  ++batch->workers;
  return true;
}

}  // namespace

Unattended::Duration Unattended::beyond(Duration deadline) {
  constexpr int kShare = 4;
  const auto more = std::max<Duration>(deadline / kShare, kLeastPatience);
  return deadline > Duration::max() - more ? Duration::max() : deadline + more;
}

std::vector<Outcome> Unattended::run(std::size_t count) const {
  std::vector<Outcome> outcomes(count);
  if (count == 0) return outcomes;
  auto batch = std::make_shared<Batch>();
  batch->work = work;
  batch->pieces.resize(count);
  batch->open = count;
  const std::size_t width = std::min<std::size_t>(count, std::max(1u, std::thread::hardware_concurrency()));

  std::unique_lock lock(batch->mutex);
  bool any_lost = false;
  while (batch->open > 0) {
    while (batch->workers < std::min(width, batch->open)) {
      if (start_worker(batch)) continue;
      if (batch->workers > 0) break;
      lock.unlock();   // no thread is to be had, by a limit: then it is done by this one
      Worker here;
      here.batch = batch;
      take_turns(here);
      lock.lock();
      break;
    }
    auto until = Clock::time_point::max();
    const auto now = Clock::now();
    for (std::size_t i = 0; i < batch->next; ++i) {
      Batch::Piece& piece = batch->pieces[i];
      if (piece.state != Batch::State::kUnderWay || limit == Duration::max()) continue;
      if (now - piece.started < limit) {
        until = std::min(until, piece.started + limit);
        continue;
      }
      piece.state = Batch::State::kGivenUp;
      --batch->open;
      --batch->workers;
      outcomes[i].file = piece.reads;
      any_lost = something_given_up = true;
      if (given_up) given_up(i, outcomes[i]);
      until = now;   // its place is free
    }
    if (batch->open == 0 || until == now) continue;
    if (limit != Duration::max() && batch->next < count) until = std::min(until, now + limit);   // whose turn comes meanwhile
    if (until == Clock::time_point::max()) batch->changed.wait(lock);
    else batch->changed.wait_until(lock, until);
  }
  batch->changed.wait(lock, [&] { return batch->workers == 0; });
  for (std::size_t i = 0; i < count; ++i) outcomes[i].came_back = batch->pieces[i].state == Batch::State::kDone;
  if (any_lost) return outcomes;
  const auto done = std::exchange(batch->work, nullptr);   // what it owns goes here, and not with the last worker
  lock.unlock();
  return outcomes;
}

void reading_now(const std::string& what) {
  if (this_worker == nullptr || !this_worker->piece) return;
  Batch& batch = *this_worker->batch;
  const std::lock_guard lock(batch.mutex);
  batch.pieces[*this_worker->piece].reads = what;
}

bool any_given_up() { return something_given_up; }

void end_at_once(int status) {
  // Not above the usual ones: a worker that still runs may open others, and none of those is anybody's pipe.
  for (int descriptor = 0; descriptor < 1024; ++descriptor) close(descriptor);
  _exit(status);
}

pid_t tool_pid() { return kToolPid; }

}  // namespace rankstacks
