#include "analyzers/normalize.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "analyzers/names.h"
#include "base/text.h"

namespace rankstacks::analyzers {
namespace {

// Loops that wake up again and again on their own, run by threads of the role table.
constexpr std::array<std::string_view, 16> kPollLoops = {
    "gloo::transport::tcp::Loop::run",      // epoll_wait of 10 ms
    "ProcessGroupNCCL::Watchdog::runLoop",  // 100 ms
    "ProcessGroupNCCL::watchdogHandler",
    "ProcessGroupNCCL::workCleanupLoop",
    "HeartbeatMonitor::runLoop",
    "ProcessGroupNCCL::heartbeatMonitor",
    "ncclProxyProgress",  // spins with sched_yield
    "ncclProxyService",   // poll of 500 ms
    "persistentSocketThread",
    "uv_run",
    "uv.io_poll",
    "uv__io_poll",
    "blas_thread_server",  // spins, then waits
    "gomp_thread_start",
    "__kmp_launch_worker",
    "opal_progress",
};

// Loops whose handlers never block, so that it is chance where in a handler a thread is seen, unless it waits for a
// lock.
constexpr std::string_view kEventLoops[] = {"gloo::transport::tcp::Loop::run"};

bool is_poll_loop_function(std::string_view function) {
  return std::any_of(kPollLoops.begin(), kPollLoops.end(),
                     [&](std::string_view loop) { return contains(function, loop); });
}

bool is_event_loop_function(std::string_view function) {
  return std::any_of(std::begin(kEventLoops), std::end(kEventLoops),
                     [&](std::string_view loop) { return contains(function, loop); });
}

FrameClass class_of(const Frame& frame) {
  if (frame.kind == FrameKind::kPython) return FrameClass::kPython;
  if (is_thread_start(frame)) return FrameClass::kStart;
  if (is_interpreter(frame.module)) return FrameClass::kInterpreter;
  if (is_opaque(frame.module)) return FrameClass::kOpaque;
  return FrameClass::kNative;
}

std::string normal_form(const Frame& frame) {
  if (frame.kind == FrameKind::kPython)
    return fmt::format("P\n{}\n{}\n{}", frame.function.value_or(""), frame.file.value_or(""), frame.line.value_or(-1));
  if (frame.module.empty() && !frame.function) return "N\nanonymous";
  const std::string_view module = base_name(frame.module);
  if (frame.function)
    return fmt::format(
        "N\n{}\n{}", module,
        is_c_library(frame.module) ? public_libc_name(*frame.function) : without_suffixes(*frame.function));
  return fmt::format("N\n{}\n+{:x}", module, frame.offset.value_or(0));
}

// Rule 5: the outer end. A stripped libc has no names for its start-up frames: its outermost run counts as start,
// unless it is the whole stack.
std::size_t outer_end(const std::vector<FrameId>& ids, const NormalizedFrames& frames) {
  const auto frame_class = [&](std::size_t i) { return frames.frame_class(ids[i]); };
  std::size_t end = ids.size();
  while (end > 0 && (frame_class(end - 1) == FrameClass::kStart || frame_class(end - 1) == FrameClass::kOpaque)) --end;
  if (end > 0) return end;
  // An OpenMP pool thread is opaque frames all the way: keep all but the thread's start.
  end = ids.size();
  while (end > 0 && frame_class(end - 1) == FrameClass::kStart) --end;
  return end;
}

// Rules 2 and 3: the inner end.
std::size_t inner_end(const ThreadSnapshot& thread, const NormalizedFrames& frames, std::size_t end) {
  const std::vector<FrameId>& ids = thread.frames;
  const auto opaque = [&](std::size_t i) { return frames.frame_class(ids[i]) == FrameClass::kOpaque; };
  std::size_t begin = 0;
  while (begin < end && opaque(begin)) ++begin;
  if (begin > 0) --begin;  // the outermost frame represents the run
  for (std::size_t i = end; i-- > begin;)
    if (frames.is_mpi_call(ids[i])) {
      begin = i;
      break;
    }
  // Rule 3: the outermost of the loops that contain nothing but their wait.
  for (std::size_t i = begin; i < end && (opaque(i) || frames.is_poll_loop(ids[i])); ++i)
    if (frames.is_poll_loop(ids[i])) begin = i;
  for (std::size_t i = end; i-- > begin && !waits_for_lock(thread);)
    if (frames.is_event_loop(ids[i])) {
      begin = i;
      break;
    }
  return begin;
}

}  // namespace

bool waits_for_lock(const ThreadSnapshot& thread) { return thread.syscall && thread.syscall->name == "futex"; }

NormalizedFrames::NormalizedFrames(const FrameTable& frames) {
  std::unordered_map<std::string, NormId> seen;
  ids_.reserve(frames.size());
  classes_.reserve(frames.size());
  poll_loop_.reserve(frames.size());
  mpi_call_.reserve(frames.size());
  for (FrameId i = 0; i < frames.size(); ++i) {
    const Frame& frame = frames[i];
    ids_.push_back(seen.try_emplace(normal_form(frame), static_cast<NormId>(seen.size())).first->second);
    classes_.push_back(class_of(frame));
    const bool named = frame.kind == FrameKind::kNative && frame.function;
    poll_loop_.push_back(named && is_poll_loop_function(*frame.function));
    event_loop_.push_back(named && is_event_loop_function(*frame.function));
    mpi_call_.push_back(named && is_mpi_function(*frame.function));
  }
}

std::vector<StackItem> normalized_stack(const ThreadSnapshot& thread, const NormalizedFrames& frames) {
  const std::vector<FrameId>& ids = thread.frames;
  const std::size_t size = ids.size(), end = outer_end(ids, frames), begin = inner_end(thread, frames, end),
                    outer_hidden = size - end;
  const bool on_opaque = begin < end && frames.frame_class(ids[begin]) == FrameClass::kOpaque;

  std::vector<StackItem> items;
  items.reserve(end - begin);
  // Rule 4: one frame of the interpreter may count, directly outside of what it called.
  bool innermost_interpreter = on_opaque;
  for (std::size_t i = begin; i < end; ++i) {
    const FrameClass c = frames.frame_class(ids[i]);
    const bool leaf = i == begin && on_opaque;
    bool counts = true;
    if (c == FrameClass::kInterpreter) {
      counts = innermost_interpreter;
      innermost_interpreter = false;
    } else if (!leaf) {
      innermost_interpreter = false;
    }
    if (counts) items.push_back({frames.id(ids[i]), i, 0});
    else if (!items.empty()) ++items.back().hidden;
  }
  if (items.empty()) {
    for (std::size_t i = 0; i < size; ++i) items.push_back({frames.id(ids[i]), i, 0});
    return items;
  }
  items.back().hidden += static_cast<std::uint32_t>(outer_hidden);
  return items;
}

}  // namespace rankstacks::analyzers
