// What the two threads of the tool that read a process say to each other: the reader, who finds that a thread has to be
// stopped, and the tracer, who alone can stop one (a tracee belongs to the thread that seized it).
//
//     reader                                  tracer
//     ask({4711}) ──> waits                   next() ──> stops 4711
//             <────────────────────────────── answer()
//     begin_release() ──────────────────────> next() ──> resumes all
//     await_release() waits <──────────────── answer()
//     finish()                                next() ──> std::nullopt
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/types.h"

namespace rankstacks::target {

class StopRequests {
 public:
  using Clock = std::chrono::steady_clock;

  // By the reader. Returns when these threads are stopped, as far as they can be; false: the time is over, and nothing
  // is stopped any more.
  bool ask(std::vector<Tid> tids) {
    request({std::move(tids), false});
    return await_answer();
  }
  // By the reader, who can do something else between the two. The second one returns when no thread is stopped any
  // more; false: the time is over.
  void begin_release() { request({{}, true}); }
  bool await_release() { return await_answer(); }
  void finish() {
    const std::lock_guard lock(mutex_);
    is_finished_ = true;
    changed_.notify_all();
  }

  struct Request {
    std::vector<Tid> tids;  // to stop now
    bool release = false;   // or none, and all are to be resumed
  };
  // By the tracer. std::nullopt: the reader has finished, or `end` has come, after which no request is granted.
  std::optional<Request> next(Clock::time_point end) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, end, [&] { return asked_ || is_finished_; });
    if (asked_ && !is_finished_ && Clock::now() < end) return asked_;
    is_over_ = true;
    changed_.notify_all();
    return std::nullopt;
  }
  void answer() {
    const std::lock_guard lock(mutex_);
    asked_.reset();
    changed_.notify_all();
  }

 private:
  void request(Request what) {
    const std::lock_guard lock(mutex_);
    asked_ = std::move(what);
    changed_.notify_all();
  }
  bool await_answer() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !asked_ || is_over_; });
    return !is_over_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Request> asked_;
  bool is_finished_ = false, is_over_ = false;
};

}  // namespace rankstacks::target
