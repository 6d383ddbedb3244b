// What the two threads of the tool that read a process say to each other: the reader, who finds that a thread has to be
// stopped, and the tracer, who alone can stop one (a tracee belongs to the thread that seized it).
//
//     reader                                  tracer
//     ask({4711}) ──> waits                   next() ──> stops 4711
//             <────────────────────────────── answer()
//     copies memory                           notes what has become of 4711
//     await_report() <─────────────────────── report()
//     begin_release() ──────────────────────> next() ──> resumes all
//     await_release() waits <──────────────── answer()
//     finish()                                next() ──> std::nullopt
#pragma once

#include <sched.h>
#include <algorithm>
#include <atomic>
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
  // By the reader, after ask(): returns when what has become of the threads can be read; false: the time is over.
  bool await_report() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_reported_ || is_over_; });
    return !is_over_;
  }
  // By the reader, who can do something else between the two. The second one returns when no thread is stopped any
  // more; false: the time is over.
  void begin_release() { request({{}, true}); }
  bool await_release() { return await_answer(); }
  void finish() {
    const std::lock_guard lock(mutex_);
    is_finished_ = true;
    has_news_ = true;
    changed_.notify_all();
  }

  struct Request {
    std::vector<Tid> tids;  // to stop now
    bool release = false;   // or none, and all are to be resumed
  };
  // By the tracer. std::nullopt: the reader has finished, or `end` has come, after which no request is granted.
  // `holds`: threads are held, so that the next request, to release them, is not far.
  std::optional<Request> next(Clock::time_point end, bool holds = false) {
    // Waking a thread takes some 20 us. Other threads of the tool that want this processor meanwhile are given it.
    const auto until = std::min(end, Clock::now() + kLongestSpin);
    while (holds && !has_news_ && Clock::now() < until) sched_yield();
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
    has_news_ = false;
    changed_.notify_all();
  }
  // By the tracer, after the answer to ask().
  void report() {
    const std::lock_guard lock(mutex_);
    is_reported_ = true;
    changed_.notify_all();
  }

 private:
  // What two processors copy of a hundred threads takes less.
  static constexpr std::chrono::microseconds kLongestSpin{300};

  void request(Request what) {
    const std::lock_guard lock(mutex_);
    asked_ = std::move(what);
    has_news_ = true;
    is_reported_ = false;
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
  std::atomic<bool> has_news_{false};  // for the tracer
  bool is_reported_ = false, is_finished_ = false, is_over_ = false;
};

}  // namespace rankstacks::target
