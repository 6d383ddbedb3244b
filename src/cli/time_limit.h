// The limit of `dump --within`: the tool ends when its time is over, whatever it waits for, and says what is known by
// then. The kernel lets go of what was stopped.
//
//     start of the process ── work ── deadline() ── the output ── the latest moment to end ── the limit
//                                                                  └ earlier on a machine where threads wait for
//                                                                    processors: the end of a process takes a few turns
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/deadline.h"

namespace rankstacks::cli {

class TimeLimit {
 public:
  using Clock = Deadline::Clock;

  // `subject` heads the message on stderr: "pid 4711". The limit counts from the start of the process, as far as that
  // shows (time_of_start).
  TimeLimit(Clock::duration limit, std::string subject);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  // For the work; the rest of the time is for the output and the end.
  Deadline deadline() const { return deadline_; }

  // What stdout gets, above the reason, if the time is over. Empty, as it is at first: nothing.
  void will_show(std::string heading);
  // What takes the time from now on: "its job was looked for".
  void begins(std::string step);
  // The caller writes the output itself from now on. If that is not taken, the tool ends in time, without a word on
  // stdout.
  void output_begins();

 private:
  void watch();
  [[noreturn]] void end() const;

  const Clock::duration limit_;
  const std::string subject_;
  const Clock::time_point end_;
  const Deadline deadline_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string heading_, step_;
  bool done_ = false, output_began_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace rankstacks::cli
