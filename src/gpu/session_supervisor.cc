#include "gpu/session_supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/file_descriptor.h"
#include "base/unattended.h"
#include "gpu/attach_point.h"
#include "gpu/sealed_program.h"
#include "gpu/session.h"
#include "gpu/session_helper.h"

namespace rankstacks::gpu {
namespace {

using Clock = std::chrono::steady_clock;

const char* word_for(Phase phase) {
  switch (phase) {
    case Phase::kNothing: return "before it began";
    case Phase::kTriggered: return "while it asked to be let in";
    case Phase::kInitialized: return "while it was let in";
    case Phase::kAttached: return "after it was let in";
    case Phase::kSuspended: return "while the GPU was paused";
    case Phase::kResumed: return "after it had read the GPU's state";
    case Phase::kReleased: return "at its end";
  }
  return "?";
}

struct Helper {
  std::vector<std::string> arguments;
  Pid process = 0;  // the broker
  Pid client = 0;   // its number in the target's pid namespace; 0: it has not begun
  FileDescriptor from;
  MessageReader reader{kMaxSessionMessage};
  Phase phase = Phase::kNothing;
  bool done = false, running = false;
  bool left = false;  // it took too long, and goes on alone
  std::string hung;   // the call that did not come back
  std::string ended;  // "by signal 9", "with status 3"; empty: in order
  std::optional<SessionAnswer> answer;
  std::optional<Error> error;
};

// Passes on nothing of the environment, and no path that is to be opened in the target's namespaces.
Result<void> start(Helper& helper, const SealedProgram& program, int trace) {
  int ends[2];
  const auto refuse = [](const char* what, int code) {
    return fail({.code = ErrorCode::kUnreadable,
                 .subject = "GPU session",
                 .what = what,
                 .where = {},
                 .os_errno = code,
                 .hint = {}});
  };
  if (pipe2(ends, O_CLOEXEC) != 0) return refuse("no pipe", errno);
  helper.from = FileDescriptor(ends[0]);
  const FileDescriptor into(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, into.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY,
                                   0);  // what a driver prints is no output of the tool
  if (trace >= 0) posix_spawn_file_actions_adddup2(&actions, trace, kTraceDescriptor);
  // If the tool's caller ignores SIGCHLD, the helper would inherit that and not learn how its own children end.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t reset;
  sigemptyset(&reset);
  sigaddset(&reset, SIGCHLD);
  posix_spawnattr_setsigdefault(&attributes, &reset);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> arguments;
  for (std::string& argument : helper.arguments) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  char* const no_environment[] = {nullptr};
  int failed =
      posix_spawn(&helper.process, program.path().c_str(), &actions, &attributes, arguments.data(), no_environment);
  // A security module may forbid to execute what is in memory alone, which nothing shows before.
  if (failed != 0 && program.is_sealed())
    failed = posix_spawn(&helper.process, SealedProgram::kOwnProgram, &actions, &attributes, arguments.data(),
                         no_environment);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return refuse("no helper process", failed);
  helper.running = true;
  return {};
}

void take(Helper& helper, const Message& message) {
  switch (message.kind) {
    case 'p':
      if (message.body.size() == 1 && message.body[0] <= static_cast<std::uint8_t>(Phase::kReleased))
        helper.phase = static_cast<Phase>(message.body[0]);
      break;
    case 'c':
      if (message.body.size() == sizeof helper.client)
        std::memcpy(&helper.client, message.body.data(), sizeof helper.client);
      break;
    case 'h': helper.hung.assign(message.body.begin(), message.body.end()); break;
    case 'a': helper.answer = unpack_answer(message.body); break;
    case 'e': helper.error = unpack_error(message.body); break;
    case 'd': helper.done = true; break;
    default: break;
  }
}

// How long a killed helper may take to end.
constexpr std::chrono::seconds kEndLimit{2};

// A helper that the kernel does not let end, although it was killed, is left behind.
void end(Helper& helper, Clock::time_point until = Clock::now() + kEndLimit) {
  helper.running = false;
  helper.from = FileDescriptor();
  int status = 0;
  while (true) {
    const pid_t got = waitpid(helper.process, &status, WNOHANG);
    if (got == helper.process) break;
    if ((got < 0 && errno != EINTR) || Clock::now() > until) {
      helper.ended = "late, or was waited for by another";
      return;
    }
    poll(nullptr, 0, 1);
  }
  if (WIFSIGNALED(status)) helper.ended = fmt::format("by signal {}", WTERMSIG(status));
  else if (WEXITSTATUS(status) != 0) helper.ended = fmt::format("with status {}", WEXITSTATUS(status));
}

// A session that takes too long must not be killed: what its process runs on the GPU may stay paused. It ends in order
// without the tool as well, and what it still sends is lost.
void leave(Helper& helper) {
  helper.running = false;
  helper.left = true;
  helper.from = FileDescriptor();
}

Clock::duration limit_of(const Helper& helper, const SessionLimits& limits) {
  return helper.phase >= Phase::kSuspended ? limits.in_all : limits.until_paused;
}

// Runs until all helpers have ended, or were left.
void run_all(std::vector<Helper>& helpers, const SealedProgram& program, const SessionLimits& limits, int trace) {
  const auto begun = Clock::now();
  const auto deadline_of = [&](const Helper& helper) { return begun + limit_of(helper, limits); };
  for (Helper& helper : helpers)
    if (auto started = start(helper, program, trace); !started) helper.error = started.error();
  std::vector<std::uint8_t> buffer(1u << 20);
  while (true) {
    std::vector<pollfd> waiting;
    std::vector<Helper*> of;
    for (Helper& helper : helpers)
      if (helper.running) {
        waiting.push_back({.fd = helper.from.get(), .events = POLLIN, .revents = 0});
        of.push_back(&helper);
      }
    if (waiting.empty()) return;
    const auto next = std::min_element(
        of.begin(), of.end(), [&](const Helper* a, const Helper* b) { return deadline_of(*a) < deadline_of(*b); });
    const auto time_left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_of(**next) - Clock::now()).count() + 1;
    const int ready = poll(waiting.data(), waiting.size(), static_cast<int>(std::clamp<long>(time_left, 0, 1 << 30)));
    if (ready < 0) {
      if (errno == EINTR) continue;
      for (Helper* helper : of) leave(*helper);
      return;
    }
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (Clock::now() >= deadline_of(*of[i])) {  // also if it never stops sending
        leave(*of[i]);
        continue;
      }
      if (waiting[i].revents == 0) continue;
      const ssize_t n = read(waiting[i].fd, buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        end(*of[i]);
        continue;
      }
      of[i]->reader.add(std::span(buffer).first(static_cast<std::size_t>(n)));
      while (const auto message = of[i]->reader.next()) take(*of[i], *message);
      if (of[i]->reader.is_broken()) {
        kill(-of[i]->process, SIGKILL);
        end(*of[i]);
      }
    }
  }
}

// Resets whatever the client had written into the process before it asked for anything.
void take_back_words(const target::ProcessId& process, Pid client, const Machine& machine) {
  const auto point = AttachPoint::find(process, machine);
  if (!point) return;
  const auto owner = point->read(Word::kApiClientPid);
  if (!owner || *owner != static_cast<std::uint32_t>(client)) return;
  (void)point->write(Word::kDebuggerCapabilities, 0);
  (void)point->write(Word::kApiClientPid, 0);
}

// RANKSTACKS_GPU_TRACE=FILE is opened here, where the path means what the user meant.
FileDescriptor open_trace() {
  const char* path = std::getenv("RANKSTACKS_GPU_TRACE");
  if (path == nullptr) return {};
  const FileDescriptor opened(::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600));
  // Its number must not be the one that the helper has it under: before glibc 2.29 a descriptor that is duplicated onto
  // itself is closed.
  return opened.is_open() ? FileDescriptor(fcntl(opened.get(), F_DUPFD_CLOEXEC, kTraceDescriptor + 1))
                          : FileDescriptor();
}

std::vector<std::string> command_of(const char* what, const SessionTarget& target, const Machine& machine,
                                    const FileDescriptor& trace) {
  std::vector<std::string> command{"rankstacks"};
  if (machine.is_played()) command.insert(command.end(), {kTestMachineOption, machine.directory});
  command.insert(command.end(), {kSessionHelperOption, what, std::to_string(target.process.pid),
                                 std::to_string(target.process.start_ticks), trace.is_open() ? "1" : "0"});
  return command;
}

// It ended before it had reported its end in order. The process may be held.
bool has_died(const Helper& helper) { return !helper.left && !helper.done && helper.process != 0; }

Problem result_of_freeing(const Helper& rescuer) {
  if (rescuer.done && !rescuer.error) return {"the process was freed from that session", std::nullopt};
  if (rescuer.left)
    return {"the process is still being freed from that session, by a helper that goes on alone",
            "look at the process again in a minute"};
  return {fmt::format("the process could not be freed from that session: {}",
                      rescuer.error
                          ? rescuer.error->message()
                          : "the helper " + (rescuer.ended.empty() ? "reported nothing" : "ended " + rescuer.ended)),
          "rankstacks attach --gpu on it once more, else cuda-gdb -p and detach"};
}

// What a call of hold_sessions shares with the helpers that it starts.
class Supervision {
 public:
  Supervision(const std::vector<SessionTarget>& targets, const Machine& machine, const SessionLimits& limits)
      : targets_(targets), machine_(machine), limits_(limits), outcomes_(targets.size()) {}

  std::vector<SessionOutcome> run() {
    std::vector<Helper> helpers = hold();
    for (std::size_t i = 0; i < targets_.size(); ++i) take_over(helpers[i], outcomes_[i]);
    free_processes(helpers);
    for (SessionOutcome& outcome : outcomes_)
      if (!outcome.answer && !outcome.error)
        outcome.error = Error{.code = ErrorCode::kGone,
                              .subject = "GPU session",
                              .what = "no state was read",
                              .where = {},
                              .os_errno = 0,
                              .hint = {}};
    return std::move(outcomes_);
  }

 private:
  const SealedProgram& program() const { return sealed_ ? *sealed_ : SealedProgram::own(); }

  // One helper for each target, after its end.
  std::vector<Helper> hold() {
    std::vector<Helper> helpers(targets_.size());
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      helpers[i].arguments = command_of("sample", targets_[i], machine_, trace_);
      if (targets_[i].core_path)
        helpers[i].arguments.insert(helpers[i].arguments.end(),
                                    {*targets_[i].core_path, std::to_string(targets_[i].core_limit)});
    }
    run_all(helpers, program(), limits_, trace_.get());
    return helpers;
  }

  Error too_slow(const Helper& helper) const {
    const auto limit = std::chrono::duration_cast<std::chrono::seconds>(limit_of(helper, limits_));
    return {.code = ErrorCode::kTimeout,
            .subject = "GPU session",
            .what = fmt::format("no state within {} s ({}); it goes on alone, and lets the process go at its end",
                                limit.count(), word_for(helper.phase)),
            .where = {},
            .os_errno = 0,
            .hint =
                "look again in a while, or wait longer by --gpu-limit; GPUs that other processes use as well "
                "take long to pause"};
  }

  // What the helper has sent, and how it ended.
  void take_over(Helper& helper, SessionOutcome& outcome) const {
    outcome.answer = std::move(helper.answer);
    outcome.error = std::move(helper.error);
    if (!helper.hung.empty())
      outcome.problems.push_back({fmt::format("GPU session: the driver did not come back from {}{}", helper.hung,
                                              helper.done ? "; the process was freed" : ""),
                                  std::nullopt});
    if (helper.left) outcome.error = too_slow(helper);
    else if (has_died(helper))
      outcome.problems.push_back({fmt::format("GPU session: its helper process ended {} {}",
                                              helper.ended.empty() ? "early" : helper.ended, word_for(helper.phase)),
                                  std::nullopt});
  }

  // Frees the processes whose helpers have died in the middle of a session.
  void free_processes(const std::vector<Helper>& helpers) {
    std::vector<Helper> rescuers;
    std::vector<std::size_t> rescued;
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const Helper& helper = helpers[i];
      if (!has_died(helper) || helper.phase == Phase::kReleased) continue;
      if (helper.phase == Phase::kNothing) {
        undo_writing(targets_[i], helper.client);
        continue;
      }
      Helper& rescuer = rescuers.emplace_back();
      rescuer.arguments = command_of("release", targets_[i], machine_, trace_);
      rescuer.arguments.insert(rescuer.arguments.end(),
                               {std::to_string(static_cast<int>(helper.phase)), std::to_string(helper.client)});
      rescued.push_back(i);
    }
    run_all(rescuers, program(), {kFreeingLimit, kFreeingLimit}, trace_.get());
    for (std::size_t r = 0; r < rescuers.size(); ++r)
      outcomes_[rescued[r]].problems.push_back(result_of_freeing(rescuers[r]));
  }

  // Done by a worker thread: the process's memory may never answer. If no client was started, nothing was written.
  void undo_writing(const SessionTarget& target, Pid client) const {
    if (client == 0) return;
    (void)unattended<bool>([process = target.process, client,
                            machine = machine_] { return take_back_words(process, client, machine), true; },
                           kMinTimeout);
  }

  const std::vector<SessionTarget>& targets_;
  const Machine& machine_;
  const SessionLimits& limits_;
  const FileDescriptor trace_ = open_trace();
  // Read by a worker thread: the tool's own file may be on a file system that no longer answers.
  const std::shared_ptr<const SealedProgram> sealed_ =
      unattended<std::shared_ptr<const SealedProgram>>([] { return std::make_shared<const SealedProgram>(); },
                                                       kMinTimeout)
          .value_or(nullptr);
  std::vector<SessionOutcome> outcomes_;
};

}  // namespace

std::vector<SessionOutcome> hold_sessions(const std::vector<SessionTarget>& targets, const Machine& machine,
                                          const SessionLimits& limits) {
  if (targets.empty()) return {};
  return Supervision(targets, machine, limits).run();
}

}  // namespace rankstacks::gpu
