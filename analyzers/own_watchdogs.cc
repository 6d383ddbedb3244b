#include "analyzers/own_watchdogs.h"

#include <algorithm>
#include <csignal>
#include <optional>
#include <set>
#include <string>

#include <fmt/format.h>

#include "analyzers/deaths.h"
#include "analyzers/handled.h"
#include "analyzers/names.h"
#include "analyzers/place.h"
#include "analyzers/thread_waits.h"
#include "known/watchdog_names.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

// The innermost frame that is none of the C library, the interpreter or the standard library: whose decision it was.
// std::nullopt if an installed library's code is nearer: then a check of that library has failed.
std::optional<std::size_t> frame_that_ends(const JobSnapshot& job, const RankSnapshot& rank,
                                           const ThreadSnapshot& thread) {
  const std::string executable = rank.executable.value_or("");
  bool aborts = false;
  for (std::size_t i = 0; i < thread.frames.size(); ++i) {
    const Frame& frame = job.frames[thread.frames[i]];
    const std::string function = frame.function.value_or("");
    if (frame.kind == FrameKind::kPython) return is_users_code(frame) ? std::optional(i) : std::nullopt;
    if (is_c_library(frame.module)) {
      aborts |= public_libc_name(function) == "abort" || public_libc_name(function) == "raise" ||
                public_libc_name(function) == "kill";
      continue;
    }
    if (is_interpreter(frame.module)) {
      if (function.find("atal") != std::string::npos) return std::nullopt;  // Py_FatalError, faulthandler's
      continue;
    }
    const bool of_library = is_cpp_library(frame.module) || known::is_library_file(frame.module) ||
                            (frame.module != executable && frame.module.starts_with("/usr/"));
    return aborts && !of_library ? std::optional(i) : std::nullopt;
  }
  return std::nullopt;
}

bool has_watchdog_name(const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& thread,
                       bool of_program_alone) {
  if (!of_program_alone && known::is_watchdog_name(thread.name)) return true;
  return std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) {
    const Frame& frame = job.frames[id];
    const bool says = frame.kind == FrameKind::kPython
                          ? is_users_code(frame)
                          : !is_c_library(frame.module) && (!of_program_alone || frame.module == rank.executable);
    return says && frame.function && known::is_watchdog_name(frame.qualname.value_or(*frame.function));
  });
}

// A thread of another rank, in the same function of the program's, sleeps for a time.
bool sleeps_elsewhere(const JobSnapshot& job, std::size_t own, const Frame& function) {
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (r == own || rank.kind != RankKind::kRank) continue;
    for (const ThreadSnapshot& thread : rank.threads) {
      if (thread.tid == rank.pid || run_state_of(job, thread) != RunState::kSleeping) continue;
      if (std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) {
            const Frame& frame = job.frames[id];
            return frame.kind == function.kind && frame.function == function.function && frame.file == function.file &&
                   frame.module == function.module;
          }))
        return true;
    }
  }
  return false;
}

// kill() of its own process, which the kernel has given to the main thread: that was elsewhere, and a watchdog is
// there.
std::optional<std::size_t> watchdog_that_kills(const JobSnapshot& job, const RankSnapshot& rank) {
  constexpr int kSentByUser = 0;  // SI_USER: kill(2)
  if (rank.signal->code != kSentByUser || !rank.signal->sender) return std::nullopt;
  for (std::size_t t = 0; t < rank.threads.size(); ++t)
    if (rank.threads[t].tid != rank.pid && has_watchdog_name(job, rank, rank.threads[t], true)) return t;
  return std::nullopt;
}

// The thread by which the rank has ended itself, if that is a watchdog of its own.
std::optional<std::size_t> watchdog_of(const JobSnapshot& job, const RankState& s) {
  const RankSnapshot& rank = job.ranks[s.rank];
  if (!s.readable || s.unrelated || !rank.signal || rank.signal->number != SIGABRT || is_sent_by_another(rank) ||
      rank.abort_message)
    return std::nullopt;
  const bool on_main = rank.signal->tid == rank.pid;
  const auto t = on_main ? watchdog_that_kills(job, rank) : thread_with(rank, rank.signal->tid);
  if (!t || *t == s.doing.thread) return std::nullopt;
  const ThreadSnapshot& thread = rank.threads[*t];
  if (thread.exception || handles_exception(thread) || thread.raises_cxx || thread.raises) return std::nullopt;
  if (on_main) return t;
  const auto ends = frame_that_ends(job, rank, thread);
  if (!ends) return std::nullopt;
  const bool is_watchdog =
      has_watchdog_name(job, rank, thread, false) || sleeps_elsewhere(job, s.rank, job.frames[thread.frames[*ends]]);
  return is_watchdog ? t : std::nullopt;
}

// Which may be a wait for another rank, although its frames and its system call do not show that.
bool may_wait(const RankState& s) {
  return s.waits() || s.doing.activity == known::Activity::kNetworkIo ||
         s.doing.activity == known::Activity::kNativeLock || s.doing.activity == known::Activity::kPythonLock;
}

}  // namespace

OwnWatchdogs find_own_watchdogs(const JobSnapshot& job, const std::vector<RankState>& states) {
  OwnWatchdogs found;
  std::set<std::size_t> reporters;
  std::set<std::string> places;
  bool all_known = true;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const auto thread = watchdog_of(job, states[i]);
    if (!thread || !may_wait(states[i])) continue;
    found.reporters.push_back({i, *thread});
    reporters.insert(i);
    places.insert(place_key(job, states[i]));
    all_known &= states[i].waits();
  }
  if (reporters.empty()) return {};
  // Those that have not ended by their own, by what they do.
  std::size_t with_them = 0;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const RankState& s = states[i];
    if (s.unrelated || reporters.contains(i)) continue;
    if (!s.readable) return {};
    const bool ends_itself = job.ranks[s.rank].signal && !is_sent_by_another(job.ranks[s.rank]);
    if (places.contains(place_key(job, s)) || (all_known && s.waits())) ++with_them;
    else if (ends_itself || !s.elsewhere() || s.serves || (!all_known && may_wait(s))) return {};
    else found.elsewhere.push_back(i);
  }
  const std::size_t waiting = with_them + reporters.size();
  if (found.elsewhere.empty() || with_them == 0 ||
      (!all_known && (places.size() > 1 || found.elsewhere.size() * 2 >= waiting)))
    return {};
  found.waits_are_known = all_known;
  return found;
}

std::string describe_own_watchdogs(const JobSnapshot& job, const std::vector<RankState>& states,
                                   const OwnWatchdogs& watchdogs) {
  if (watchdogs.reporters.empty()) return "";
  std::vector<std::size_t> ranks;
  for (const OwnWatchdog& one : watchdogs.reporters) ranks.push_back(states[one.state].rank);
  const OwnWatchdog& first = watchdogs.reporters.front();
  const ThreadSnapshot& thread = job.ranks[states[first.state].rank].threads[first.thread];
  return fmt::format("{} {} ended by {} own watchdog ({}), which only reports it", name_ranks(job, ranks),
                     ranks.size() == 1 ? "was" : "were", ranks.size() == 1 ? "its" : "their",
                     describe_place(job, thread));
}

}  // namespace rankstacks::analyzers
