#include "base/unattended.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/file_descriptor.h"
#include "base/sibling_process.h"
#include "base/workers.h"

namespace rankstacks {
inline namespace base {
namespace {

using Clock = std::chrono::steady_clock;

const pid_t kToolPid = getpid();
std::atomic<bool> something_given_up{false};

// The waits of a worker, as the kernel counts them.
class Wait {
 public:
  // How long the worker has been in its present wait, as far as it was seen. Zero if it runs, waits for a processor, or
  // the kernel does not tell.
  Clock::duration seen(pid_t worker, Clock::time_point now) {
    const std::optional<std::uint64_t> count = waits_of(worker);
    if (!count || count != count_) since_ = now;
    count_ = count;
    return now - since_;
  }

 private:
  // The number of waits it has begun; std::nullopt if it is in none.
  static std::optional<std::uint64_t> waits_of(pid_t worker) {
    std::array<char, 64> path{};
    std::snprintf(path.data(), path.size(), "/proc/%d/status", worker);
    const FileDescriptor file(open(path.data(), O_RDONLY | O_CLOEXEC));
    std::array<char, 4096> bytes{};
    const ssize_t size = file.is_open() ? read(file.get(), bytes.data(), bytes.size()) : 0;
    const std::string_view text(bytes.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
    constexpr std::string_view kState = "\nState:\t", kWaits = "\nvoluntary_ctxt_switches:\t";
    const auto state = text.find(kState), waits = text.find(kWaits);
    if (state == std::string_view::npos || waits == std::string_view::npos) return std::nullopt;
    if (text.substr(state + kState.size()).starts_with('R')) return std::nullopt;
    std::uint64_t count = 0;
    const auto number = text.substr(waits + kWaits.size());
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), count);
    return error == std::errc() ? std::optional(count) : std::nullopt;
  }

  std::optional<std::uint64_t> count_;
  Clock::time_point since_{};
};

// What the caller and its workers share. The last of them deletes it: a worker that was given up may outlive the others
// by hours.
struct Batch {
  enum class State : std::uint8_t { kWaiting, kUnderWay, kDone, kGivenUp };
  struct Piece {
    State state = State::kWaiting;
    Clock::time_point started{};
    pid_t worker = 0;
    Wait wait;
    std::string reads;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::function<void(std::size_t)> work;
  std::vector<Piece> pieces;
  std::size_t next = 0;
  std::size_t open = 0;     // pieces that are neither done nor given up
  std::size_t workers = 0;  // workers that work, without those that hold a given-up piece
};

struct Worker {
  std::shared_ptr<Batch> batch;
  std::optional<std::size_t> piece;
  bool given_up = false;  // its last piece was given up, and another worker has taken its place
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
    batch.pieces[i].worker = static_cast<pid_t>(syscall(SYS_gettid));
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

void* worker_thread(void* argument) {
  const std::unique_ptr<Worker> worker(static_cast<Worker*>(argument));
  this_worker = worker.get();
  in_sibling_process([&] { take_turns(*worker); });
  const std::lock_guard lock(worker->batch->mutex);
  if (!worker->given_up) --worker->batch->workers;
  worker->batch->changed.notify_all();
  return nullptr;
}

// Returns false if no thread can be started.
bool start_worker(const std::shared_ptr<Batch>& batch) {
  // The usual 8 MiB of a thread, plus the space that in_sibling_process() leaves free.
  constexpr std::size_t kStack = 9u << 20;
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
  const auto more = std::max<Duration>(deadline / kShare, kMinTimeout);
  return deadline > Duration::max() - more ? Duration::max() : deadline + more;
}

std::vector<Outcome> Unattended::run(std::size_t count) const {
  std::vector<Outcome> outcomes(count);
  if (count == 0) return outcomes;
  auto batch = std::make_shared<Batch>();
  batch->work = work;
  batch->pieces.resize(count);
  batch->open = count;
  const std::size_t width = std::min(count, number_of_processors());

  constexpr int kViews = 8;  // of a wait, until it is taken for silence
  constexpr Duration kLongestBetweenViews = std::chrono::seconds(1);
  std::unique_lock lock(batch->mutex);
  bool any_lost = false;
  while (batch->open > 0) {
    while (batch->workers < std::min(width, batch->open)) {
      if (start_worker(batch)) continue;
      if (batch->workers > 0) break;
      lock.unlock();  // no thread could be started because of a limit: this one does the work
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
      if (piece.state != Batch::State::kUnderWay) continue;
      const bool is_silent = silence != Duration::max() && piece.wait.seen(piece.worker, now) >= silence;
      if (!is_silent && (limit == Duration::max() || now - piece.started < limit)) {
        if (limit != Duration::max()) until = std::min(until, piece.started + limit);
        continue;
      }
      piece.state = Batch::State::kGivenUp;
      --batch->open;
      --batch->workers;
      outcomes[i].file = piece.reads;
      any_lost = something_given_up = true;
      if (given_up) given_up(i, outcomes[i]);
      until = now;  // its place is free
    }
    if (batch->open == 0 || until == now) continue;
    // For the pieces that start meanwhile.
    if (silence != Duration::max()) until = std::min(until, now + std::min(silence / kViews, kLongestBetweenViews));
    if (limit != Duration::max() && batch->next < count) until = std::min(until, now + limit);
    if (until == Clock::time_point::max()) batch->changed.wait(lock);
    else batch->changed.wait_until(lock, until);
  }
  batch->changed.wait(lock, [&] { return batch->workers == 0; });
  for (std::size_t i = 0; i < count; ++i) outcomes[i].came_back = batch->pieces[i].state == Batch::State::kDone;
  if (any_lost) return outcomes;
  // Frees here what the work owns, and not with the last worker.
  const auto done = std::exchange(batch->work, nullptr);
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

void note_given_up() { something_given_up = true; }

void end_at_once(int status) {
  // Only the usual numbers: a worker that still runs may open more files, and none of those is a pipe that anybody
  // reads.
  for (int descriptor = 0; descriptor < 1024; ++descriptor) close(descriptor);
  _exit(status);
}

pid_t tool_pid() { return kToolPid; }

}  // namespace base
}  // namespace rankstacks
