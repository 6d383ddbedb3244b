#include "cli/time_limit.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <climits>
#include <string_view>

#include "base/unattended.h"
#include "target/run_time.h"

namespace rankstacks::cli {
namespace {

using Duration = TimeLimit::Clock::duration;

constexpr int kStatusNothingRead = 2;

// When the process began, if it has run or waited for a processor ever since, which is true of a tool that loads its
// libraries. A program that replaced itself by the tool may have run for long before: so no more than a quarter of the
// limit is taken off.
TimeLimit::Clock::time_point time_of_start(Duration limit) {
  constexpr int kShare = 4;
  const auto so_far = target::run_time_of(getpid(), getpid());
  const auto taken = so_far ? std::chrono::duration_cast<Duration>(
                                  std::chrono::duration<double, std::milli>(so_far->cpu_ms + so_far->waited_ms))
                            : Duration::zero();
  return TimeLimit::Clock::now() - std::min(taken, limit / kShare);
}

TimeLimit::Clock::time_point end_of(Duration limit) {
  const auto start = time_of_start(limit);
  return limit > TimeLimit::Clock::time_point::max() - start ? TimeLimit::Clock::time_point::max() : start + limit;
}

// For the end itself, if every wake-up of a thread takes `late`: that of the thread which ends the process, those of
// the threads that have to end with it, that of the parent.
Duration needed_to_end(Duration limit, Duration late) {
  constexpr std::chrono::milliseconds kLeast{50};
  constexpr std::chrono::seconds kMax{2};
  constexpr int kShare = 20, kWakeUps = 4, kMaxShare = 3;
  const auto always = std::clamp<Duration>(limit / kShare, kLeast, kMax);
  return std::min<Duration>(always + kWakeUps * late, limit / kMaxShare);
}

Duration kept_for_output(Duration limit) {
  constexpr int kShare = 10;
  constexpr std::chrono::seconds kMax{5};
  return std::min<Duration>(limit / kShare, kMax);
}

// If it is taken at once: a pipe whose reader does not read would hold the tool. Of a pipe that can be written to, the
// kernel takes PIPE_BUF bytes.
void write_if_taken(int descriptor, std::string_view text) {
  pollfd ready{.fd = descriptor, .events = POLLOUT, .revents = 0};
  if (text.empty() || poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT)) return;
  text = text.substr(0, PIPE_BUF);
  (void)!write(descriptor, text.data(), text.size());
}

}  // namespace

TimeLimit::TimeLimit(Clock::duration limit, std::string subject)
    : limit_(limit),
      subject_(std::move(subject)),
      end_(end_of(limit)),
      deadline_(Deadline::at(end_ - kept_for_output(limit))),
      thread_([this] { watch(); }) {}

TimeLimit::~TimeLimit() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void TimeLimit::will_show(std::string heading) {
  const std::lock_guard lock(mutex_);
  heading_ = std::move(heading);
}

void TimeLimit::begins(std::string step) {
  const std::lock_guard lock(mutex_);
  step_ = std::move(step);
}

void TimeLimit::output_begins() {
  const std::lock_guard lock(mutex_);
  output_began_ = true;
}

// Wakes now and then before the end, to learn how late a wake-up is on this machine at this time.
void TimeLimit::watch() {
  constexpr int kWakeUps = 20;
  const Duration pause = limit_ / kWakeUps;
  Duration late{};
  std::unique_lock lock(mutex_);
  while (true) {
    const auto last = end_ - needed_to_end(limit_, late);
    const auto wake = std::min(Clock::now() + pause, last);
    if (changed_.wait_until(lock, wake, [this] { return done_; })) return;
    const auto now = Clock::now();
    if (now >= last) break;
    late = std::max(late, now - wake);
  }
  end();
}

void TimeLimit::end() const {
  const std::string limit = fmt::format("{:g} s", std::chrono::duration<double>(limit_).count());
  if (output_began_) {
    write_if_taken(STDERR_FILENO, fmt::format("rankstacks: {}: the output was not taken within {}\n", subject_, limit));
  } else {
    const std::string reason =
        fmt::format("nothing was read within {}{}", limit, step_.empty() ? std::string() : ": " + step_);
    if (!heading_.empty())
      write_if_taken(STDOUT_FILENO, fmt::format("{}\nrankstacks: {}\n", heading_.substr(0, PIPE_BUF / 2), reason));
    write_if_taken(STDERR_FILENO, fmt::format("rankstacks: {}: {}\n", subject_, reason));
  }
  end_at_once(kStatusNothingRead);
}

}  // namespace rankstacks::cli
