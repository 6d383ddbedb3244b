// Runs many commands at once and hands out what they print, line by line, until all have ended, the time is over, or
// the user does not want to wait any longer.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"

namespace rankstacks::nodes {

struct Call {
  std::vector<std::string> command;
  std::shared_ptr<const std::string> input;  // written to its standard input; empty: /dev/null
  Deadline::Clock::duration limit;           // from its start
  // Its standard input stays open behind the input until it ends: with the end of the input, some engines take no more
  // of what is printed.
  bool holds_input = false;
};

enum class CallEnd {
  kExited,       // `status`: its exit status, or 128 and the signal that has ended it
  kDone,         // the listener needed no more of it
  kTimeout,      // its limit, or the limit of all, was over
  kInterrupted,  // SIGINT, SIGTERM or SIGHUP
  kNotStarted,   // `status`: an errno
};

struct Outcome {
  CallEnd end = CallEnd::kNotStarted;
  int status = 0;
};

class CallListener {
 public:
  virtual ~CallListener() = default;
  virtual void started(std::size_t call) = 0;
  // A line without its end; of a longer one the first 8,192 bytes.
  virtual void line(std::size_t call, bool is_error, std::string_view text) = 0;
  // Whether nothing more is expected of it. It is ended then, after a second in which it may end by itself.
  virtual bool is_done(std::size_t call) const = 0;
  // Whether it has not come far enough to be waited for any longer: it is ended as if its limit were over.
  virtual bool is_given_up(std::size_t) const { return false; }
};

// While it lives, SIGINT, SIGTERM and SIGHUP do not end the tool, but end fan_out(); a second one ends the tool.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  bool have_come() const;
};

// Runs `at_once` of them at the same time, in their order. When it returns, all of them have ended and are reaped. A
// call that was still to be started at the end gets that outcome as well.
std::vector<Outcome> fan_out(const std::vector<Call>& calls, std::size_t at_once, const Deadline& deadline,
                             const Interrupts& interrupts, CallListener& listener);

}  // namespace rankstacks::nodes
