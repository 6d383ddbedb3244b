#include "analyzers/place.h"

#include <fmt/format.h>
#include <algorithm>

#include "analyzers/blocking_calls.h"
#include "analyzers/names.h"
#include "analyzers/other_ends.h"
#include "base/text.h"

namespace rankstacks::analyzers {

std::string blocking_call(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (const SyscallInfo* call = (thread.syscall ? &*thread.syscall : nullptr)) return call->name;
  std::string name;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kNative || !is_c_library(frame.module)) break;
    if (frame.function) name = public_libc_name(*frame.function);
  }
  return name;
}

std::size_t own_frames(const FrameTable& frames, const ThreadSnapshot& thread) {
  for (std::size_t i = 0; i < thread.frames.size(); ++i) {
    if (is_place(frames[thread.frames[i]], known::Place::kProcessStart)) return i + 1;
  }
  return thread.frames.size();
}

bool is_users_code(const Frame& frame) {
  return frame.kind == FrameKind::kPython && !known::is_library_file(frame.file.value_or("<unknown>"));
}

bool runs_users_code(const JobSnapshot& job, const ThreadSnapshot& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(),
                     [&](FrameId id) { return is_users_code(job.frames[id]); });
}

bool runs_pool_task(const JobSnapshot& job, const ThreadSnapshot& thread) {
  return std::any_of(thread.frames.begin(), thread.frames.end(),
                     [&](FrameId id) { return is_place(job.frames[id], known::Place::kPoolTask); });
}

std::optional<std::size_t> deciding_frame(const JobSnapshot& job, const ThreadSnapshot& thread) {
  std::optional<std::size_t> python, native, in_header;
  const std::size_t own = own_frames(job.frames, thread);
  for (std::size_t i = 0; i < own; ++i) {
    const Frame& frame = job.frames[thread.frames[i]];
    if (frame.kind == FrameKind::kPython) {
      if (is_users_code(frame)) return i;
      if (!python) python = i;
    } else if (frame.function && is_mpi_function(*frame.function)) {
      native.reset();  // frames inside of an MPI call are MPI's, and change while it spins
      in_header.reset();
    } else if (!native && frame.function && !is_opaque(frame.module) && !is_interpreter(frame.module) &&
               !is_thread_start(frame)) {
      // std::mutex::lock() and the like are compiled into the program that calls them.
      const bool of_library = frame.file && known::is_library_file(*frame.file);
      if (!of_library) native = i;
      else if (!in_header) in_header = i;
    }
  }
  return python ? python : native ? native : in_header;
}

bool waits_for_events(const JobSnapshot& job, const ThreadSnapshot& thread) {
  constexpr std::array<std::string_view, 13> kEventCalls = {
      "epoll_wait", "epoll_pwait", "epoll_pwait2", "pselect",         "pause",  "sigsuspend", "rt_sigsuspend",
      "sigwait",    "sigwaitinfo", "sigtimedwait", "rt_sigtimedwait", "accept", "accept4"};
  const std::string call = blocking_call(job, thread);
  return is_one_of(call, kSleepCalls) || is_one_of(call, kPollCalls) || is_one_of(call, kEventCalls);
}

bool is_process_lock(const Frame& frame) {
  return frame.kind == FrameKind::kNative && base_name(frame.module).starts_with("_multiprocessing.");
}

bool passes_locks(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (thread.gil == Gil::kHolds) return true;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind == FrameKind::kPython) return is_place(frame, known::Place::kUnlock);
    if (frame.function && public_libc_name(*frame.function) == "sem_post") return true;
    if (!is_opaque(frame.module) && !is_interpreter(frame.module) && !is_process_lock(frame)) return false;
  }
  return false;
}

bool writes_output(const ThreadSnapshot& thread) {
  const SyscallInfo* call = (thread.syscall ? &*thread.syscall : nullptr);
  if (call == nullptr || (call->name != "write" && call->name != "writev")) return false;
  if (!call->fd_target) return call->fd == 1 || call->fd == 2;  // a core: the target is not known, but it is output
  const std::string& target = *call->fd_target;
  return target.starts_with("pipe:") || target.starts_with("/dev/pts/") || target.starts_with("/dev/tty") ||
         target.starts_with("/dev/console");
}

bool is_in_sleep(const JobSnapshot& job, const ThreadSnapshot& thread) {
  const std::string call = blocking_call(job, thread);
  if (is_one_of(call, kSleepCalls)) return true;
  if (!is_one_of(call, {"select", "pselect6"})) return false;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    // Without symbols: a select of the user's own goes through selectors.py, or through a module.
    if (frame.kind == FrameKind::kPython) return is_users_code(frame);
    if (!is_opaque(frame.module) && !is_interpreter(frame.module)) return false;
    if (frame.function && is_one_of(*frame.function, {"pysleep", "time_sleep", "floatsleep"})) return true;
    if (frame.function && is_one_of(*frame.function, {"select_select", "select_select_impl"})) return false;
  }
  return false;
}

bool polls_asleep(const JobSnapshot& job, const ThreadSnapshot& thread) {
  constexpr double kRunsPerSecond = 1;
  constexpr std::int64_t kFewest = 3;
  return is_in_sleep(job, thread) && thread.motion && thread.motion->places == 1 && thread.motion->in_one_function &&
         thread.motion->runs >= kFewest &&
         static_cast<double>(thread.motion->runs) * 1000 >= kRunsPerSecond * thread.motion->span_ms;
}

bool branch_in_users_function(const JobSnapshot& job, const ThreadSnapshot& a, const ThreadSnapshot& b) {
  const auto python_frames = [&](const ThreadSnapshot& thread) {
    std::vector<const Frame*> frames;
    for (auto id = thread.frames.rbegin(); id != thread.frames.rend(); ++id)
      if (job.frames[*id].kind == FrameKind::kPython) frames.push_back(&job.frames[*id]);
    return frames;
  };
  const auto of_a = python_frames(a), of_b = python_frames(b);
  for (std::size_t i = 0; i < std::min(of_a.size(), of_b.size()); ++i) {
    const Frame &in_a = *of_a[i], &in_b = *of_b[i];
    if (in_a.function != in_b.function || in_a.file != in_b.file) return false;
    if (in_a.line != in_b.line) return is_users_code(in_a);
  }
  return false;
}

std::string describe_place(const JobSnapshot& job, const ThreadSnapshot& thread) {
  const auto index = deciding_frame(job, thread);
  if (!index) return "";
  const Frame& frame = job.frames[thread.frames[*index]];
  if (frame.kind == FrameKind::kNative) {
    const std::string line =
        frame.file && frame.line ? fmt::format(" at {}:{}", base_name(*frame.file), *frame.line) : "";
    return fmt::format("{}{} in {}", short_function(*frame.function), line, base_name(frame.module));
  }
  const std::string name = frame.qualname ? *frame.qualname : frame.function.value_or("?");
  return fmt::format("{} at {}:{}", name, base_name(frame.file.value_or("?")),
                     frame.line ? std::to_string(*frame.line) : "?");
}

RunState run_state_of(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (thread.state == 'T') return RunState::kStopped;
  if (thread.state == 't') return RunState::kTraced;
  if (thread.state == 'F') return RunState::kFrozen;
  if (thread.state == 'Z' || thread.state == 'X') return RunState::kDead;
  if (const SyscallInfo* call = (thread.syscall ? &*thread.syscall : nullptr)) {
    const bool tries_for_lock = !call->others.empty() && call->others.front().kind == EndKind::kDatabase;
    return is_one_of(call->name, kSleepCalls) && !tries_for_lock ? RunState::kSleeping : RunState::kInCall;
  }
  if (thread.state == 'R') return RunState::kRunning;
  if (is_one_of(blocking_call(job, thread), kSleepCalls)) return RunState::kSleeping;
  return thread.state == 'D' ? RunState::kUninterruptible : RunState::kUnknown;
}

std::string describe_block(const JobSnapshot& job, const ThreadSnapshot& thread) {
  switch (run_state_of(job, thread)) {
    case RunState::kUnknown: return "";
    case RunState::kStopped: return "stopped";
    case RunState::kTraced: return "stopped by a tracer";
    case RunState::kFrozen: return "frozen";
    case RunState::kDead: return "dead";
    case RunState::kSleeping: return "sleeping";
    case RunState::kRunning: return "running";
    case RunState::kUninterruptible: return "in uninterruptible sleep";
    case RunState::kInCall: break;
  }
  const SyscallInfo& call = *thread.syscall;
  const std::string others = describe_other_ends(job, call);
  if (call.fd && call.fd_target)
    return fmt::format("blocked in {}(fd {} -> {}){}", call.name, *call.fd, *call.fd_target, others);
  if (call.fd) return fmt::format("blocked in {}(fd {}){}", call.name, *call.fd, others);
  return "blocked in " + call.name + others;
}

}  // namespace rankstacks::analyzers
