#include "nodes/fan_out.h"

#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <list>
#include <optional>
#include <utility>

#include "nodes/child.h"

namespace rankstacks::nodes {
namespace {

using Clock = Deadline::Clock;
using std::chrono::milliseconds;

constexpr std::size_t kMaxLine = 8192;
// How long a child may take to end by itself, and then until SIGKILL.
constexpr milliseconds kGrace{1000}, kLastGrace{8000};  // the latter: for child.cc's guard, which is faster
// The end of a child is looked for this often: it may leave its pipes to a process that stays.
constexpr milliseconds kTick{50};

volatile std::sig_atomic_t interrupted = 0;

void note_interrupt(int signal) {
  interrupted = signal;
  // The second one ends the tool as it always does.
  std::signal(signal, SIG_DFL);
}

constexpr int kInterrupts[] = {SIGINT, SIGTERM, SIGHUP};

class Lines {
 public:
  template <class F>
  void add(std::string_view bytes, F&& take) {
    for (const char c : bytes) {
      if (c == '\n') end(take);
      else if (line_.size() < kMaxLine) line_ += c;
    }
  }
  template <class F>
  void end(F&& take) {
    if (!line_.empty()) take(std::string_view(line_));
    line_.clear();
  }

 private:
  std::string line_;
};

class Running {
 public:
  Running(std::size_t number, Child child, const Call& call)
      : number_(number),
        child_(std::move(child)),
        input_(call.input),
        holds_input_(call.holds_input),
        until_(Deadline::after(call.limit)) {
    if (!input_) child_.in.close();
  }

  std::size_t number() const { return number_; }

  void add_to(std::vector<pollfd>& polled) const {
    for (const FileDescriptor* file : {&child_.out, &child_.err})
      if (file->is_open()) polled.push_back({file->get(), POLLIN, 0});
    if (has_input_left()) polled.push_back({child_.in.get(), POLLOUT, 0});
  }

  void move_bytes(CallListener& listener) {
    read_from(child_.out, out_, false, listener);
    read_from(child_.err, err_, true, listener);
    write_input();
  }

  // Its outcome once it has ended. `interrupted`, `over`: of all calls.
  std::optional<Outcome> proceed(CallListener& listener, bool was_interrupted, bool over) {
    if (const auto status = child_.ended()) {
      if (!exited_) exited_ = Clock::now();
      const bool closed = !child_.out.is_open() && !child_.err.is_open();
      if (!closed && Clock::now() < *exited_ + kGrace && !was_interrupted) return std::nullopt;
      const auto take = [&](bool is_error) {
        return [this, is_error, &listener](std::string_view text) { listener.line(number_, is_error, text); };
      };
      out_.end(take(false));
      err_.end(take(true));
      if (ending_) return Outcome{*ending_, *status};
      return Outcome{CallEnd::kExited, *status};
    }
    if (!ending_) {
      if (was_interrupted) end_by(CallEnd::kInterrupted, Clock::now());
      else if (over || until_.passed() || listener.is_given_up(number_)) end_by(CallEnd::kTimeout, Clock::now());
      else if (listener.is_done(number_)) end_by(CallEnd::kDone, Clock::now() + kGrace);
      return std::nullopt;
    }
    if (Clock::now() >= kill_at_) child_.send(SIGKILL);
    else if (Clock::now() >= term_at_ && !termed_) child_.send(SIGTERM), termed_ = true;
    return std::nullopt;
  }

 private:
  void end_by(CallEnd why, Clock::time_point at) {
    ending_ = why;
    term_at_ = at;
    kill_at_ = at + kLastGrace;
  }

  void read_from(FileDescriptor& file, Lines& lines, bool is_error, CallListener& listener) {
    // A child that prints without end does not keep the others from their turn.
    char bytes[65536];
    if (!file.is_open()) return;
    const ssize_t n = read(file.get(), bytes, sizeof bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      file.close();
      return;
    }
    lines.add({bytes, static_cast<std::size_t>(n)},
              [&](std::string_view text) { listener.line(number_, is_error, text); });
  }

  bool has_input_left() const { return child_.in.is_open() && written_ < input_->size(); }

  void write_input() {
    if (!has_input_left()) return;
    const ssize_t n = write(child_.in.get(), input_->data() + written_, input_->size() - written_);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) written_ += static_cast<std::size_t>(n);
    if (n < 0 || (written_ == input_->size() && !holds_input_)) child_.in.close();
  }

  std::size_t number_;
  Child child_;
  std::shared_ptr<const std::string> input_;
  bool holds_input_;
  std::size_t written_ = 0;
  Deadline until_;
  Lines out_, err_;
  std::optional<Clock::time_point> exited_;
  std::optional<CallEnd> ending_;
  Clock::time_point term_at_, kill_at_;
  bool termed_ = false;
};

}  // namespace

Interrupts::Interrupts() {
  interrupted = 0;
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  for (const int signal : kInterrupts) {
    struct sigaction before {};
    // nohup(1) ignores SIGHUP, and so do shells SIGINT for commands in the background.
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

Interrupts::~Interrupts() {
  for (const int signal : kInterrupts) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == note_interrupt) std::signal(signal, SIG_DFL);
  }
}

bool Interrupts::have_come() const { return interrupted != 0; }

std::vector<Outcome> fan_out(const std::vector<Call>& calls, std::size_t at_once, const Deadline& deadline,
                             const Interrupts& interrupts, CallListener& listener) {
  std::vector<Outcome> outcomes(calls.size());
  std::list<Running> running;
  std::size_t next = 0;
  const auto stopped = [&] { return interrupts.have_come() || deadline.passed(); };
  while (next < calls.size() || !running.empty()) {
    while (next < calls.size() && running.size() < std::max<std::size_t>(at_once, 1) && !stopped()) {
      const std::size_t number = next++;
      auto child = Child::start(calls[number].command, calls[number].input != nullptr);
      if (!child) {
        outcomes[number] = {CallEnd::kNotStarted, child.error().os_errno};
        continue;
      }
      listener.started(number);
      running.emplace_back(number, std::move(*child), calls[number]);
    }
    for (; next < calls.size() && stopped(); ++next)
      outcomes[next].end = interrupts.have_come() ? CallEnd::kInterrupted : CallEnd::kTimeout;
    std::vector<pollfd> polled;
    for (const Running& one : running) one.add_to(polled);
    poll(polled.data(), polled.size(), static_cast<int>(kTick.count()));
    for (auto it = running.begin(); it != running.end();) {
      it->move_bytes(listener);
      const auto outcome = it->proceed(listener, interrupts.have_come(), deadline.passed());
      if (outcome) outcomes[it->number()] = *outcome;
      it = outcome ? running.erase(it) : std::next(it);
    }
  }
  return outcomes;
}

}  // namespace rankstacks::nodes
