// What the dumps of other tools cannot tell: each shows one moment of one process, they were made one after the other,
// and they lack the other ends of calls, groups and, mostly, states.
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "analyzers/blocking_calls.h"
#include "analyzers/gloo_work.h"
#include "analyzers/judge.h"
#include "analyzers/names.h"
#include "analyzers/other_threads.h"
#include "analyzers/place.h"
#include "analyzers/verdict_words.h"
#include "base/text.h"
#include "known/gpu_drivers.h"
#include "known/process_titles.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

// Whether a thread may wait in this function of the C library; in others, as in pthread_cond_signal, it only passes.
bool may_wait_in(std::string_view call) {
  for (const std::string_view word : {"wait", "join", "sleep", "pause", "suspend"})
    if (contains(call, word)) return true;
  return is_one_of(call, kFileCalls) || is_one_of(call, kSocketCalls) || is_one_of(call, kMutexCalls) ||
         is_one_of(call, kPollCalls) ||
         is_one_of(call, {"pselect", "futex", "ioctl", "syscall", "semop", "semtimedop", "msgrcv", "io_getevents"});
}

// Whether one of the C library's functions that the thread is in, or its system call, may wait: getaddrinfo() by
// poll().
bool may_wait_in_library(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (thread.syscall) return may_wait_in(thread.syscall->name);
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kNative || !is_c_library(frame.module)) return false;
    if (frame.function && may_wait_in(public_libc_name(*frame.function))) return true;
  }
  return false;
}

// Whether the rank's thread runs, as far as a dump shows it; std::nullopt: it does not. A thread that sleeps in free()
// does so for a moment, until it has a page, or the allocator's lock.
std::optional<bool> runs_in_dump(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (thread.state == 'R' || thread.gil == Gil::kHolds) return true;
  if (may_wait_in_library(job, thread) || is_in_sleep(job, thread)) return false;
  const std::string call = blocking_call(job, thread);
  if (!call.empty()) return true;
  // System calls are made by the C library: a thread that is seen outside of it was about to go on, whatever py-spy
  // calls it ("idle": it had no processor when it was looked at).
  const Frame* innermost = thread.frames.empty() ? nullptr : &job.frames[thread.frames.front()];
  const bool is_native = innermost != nullptr && innermost->kind == FrameKind::kNative;
  if (is_native && !thread.syscall && !innermost->module.empty() && !is_c_library(innermost->module)) return true;
  if (thread.state) return false;
  if (!is_native || is_c_library(innermost->module)) return std::nullopt;
  return true;
}

// Whether the thread that is in an operation with other ranks is seen to run there: it has come, or leaves. (What waits
// for messages of MPI or for a GPU runs all the time.)
bool passes_in_dump(const JobSnapshot& job, const RankState& s) {
  const ThreadSnapshot* thread = leading_thread(job, s);
  if (thread == nullptr || !s.waits() || runs_in_dump(job, *thread) != true) return false;
  return std::none_of(thread->frames.begin(), thread->frames.end(), [&](FrameId id) {
    const Frame& frame = job.frames[id];
    return frame.function && (is_mpi_function(*frame.function) || known::waits_for_gpu_alone(*frame.function));
  });
}

// Whether a rank that nothing shows to wait is in the very call in which another one has gone further, by their Python
// frames: it has not come as far yet, or is on its way back.
bool some_are_on_their_way(const JobSnapshot& job, const std::vector<RankState>& states) {
  std::map<std::vector<FrameId>, bool> stacks;  // the outermost frame first; whether a rank there may be on its way
  for (const RankState& s : states) {
    const ThreadSnapshot* thread = leading_thread(job, s);
    if (thread == nullptr || !s.waits()) continue;
    std::vector<FrameId> frames;
    for (const FrameId id : thread->frames)
      if (job.frames[id].kind == FrameKind::kPython) frames.push_back(id);
    if (frames.empty()) continue;
    std::reverse(frames.begin(), frames.end());
    stacks[std::move(frames)] |= !may_wait_in_library(job, *thread);
  }
  // If a stack continues another one, so does the next one in this order.
  for (auto it = stacks.begin(); it != stacks.end(); ++it)
    if (const auto next = std::next(it); next != stacks.end() && it->second && it->first.size() < next->first.size() &&
                                         std::equal(it->first.begin(), it->first.end(), next->first.begin()))
      return true;
  return false;
}

// Processes that are ranks of a server by their titles. (One without them may run its model in the process that
// directs.)
bool has_workers(const JobSnapshot& job) {
  return std::any_of(job.ranks.begin(), job.ranks.end(), [](const RankSnapshot& rank) {
    const auto title = rank.command.empty() ? std::nullopt : known::title_of(rank.command.front());
    return title && title->part == known::TitlePart::kWorker;
  });
}

// Whether the thread waits for what another thread of its process, or a worker process, hands over: an item of a queue,
// a condition, an event. In a healthy job threads do so in each step, and a slow one's consumer does in each dump.
// std::nullopt: there is no Python frame to tell it from a wait for a lock.
std::optional<bool> awaits_handover(const JobSnapshot& job, const ThreadSnapshot& thread) {
  using known::Place;
  bool is_innermost = true;
  for (const FrameId id : thread.frames) {
    Frame frame = job.frames[id];
    if (frame.kind != FrameKind::kPython) continue;
    if (frame.file && !frame.file->starts_with('/')) frame.file = "/" + *frame.file;  // py-spy shortens names
    if (is_innermost && (is_place(frame, Place::kThreadingWait) || is_place(frame, Place::kQueueGet) ||
                         is_place(frame, Place::kQueuePut)))
      return true;
    if (is_place(frame, Place::kProcessQueueWait)) return true;
    is_innermost = false;
  }
  return is_innermost ? std::nullopt : std::optional(false);
}

// Whether the thread is in a function of a package, as far as a name that py-spy has shortened tells, and nothing shows
// what the function has called: a library's may wait for the other ranks.
bool may_be_in_library(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (thread.frames.empty()) return false;
  const Frame& innermost = job.frames[thread.frames.front()];
  return innermost.kind == FrameKind::kPython && innermost.file && !innermost.file->empty() &&
         innermost.file->front() != '/' && contains(*innermost.file, '/');
}

// The Python frames of a thread, the outermost one first.
std::vector<const Frame*> python_path(const JobSnapshot& job, const ThreadSnapshot& thread) {
  std::vector<const Frame*> path;
  for (auto id = thread.frames.rbegin(); id != thread.frames.rend(); ++id)
    if (job.frames[*id].kind == FrameKind::kPython) path.push_back(&job.frames[*id]);
  return path;
}

bool is_same_function(const Frame* a, const Frame* b) { return a->function == b->function && a->file == b->file; }

// Whether it is in the very function of the program in which another rank waits, and that one calls nothing that the
// dump shows: a pause between two steps is there, too.
bool is_between_steps(const JobSnapshot& job, const std::vector<RankState>& states, const ThreadSnapshot& thread) {
  const std::vector<const Frame*> own = python_path(job, thread);
  if (own.empty() || !is_users_code(*own.back())) return false;
  return std::any_of(states.begin(), states.end(), [&](const RankState& s) {
    const ThreadSnapshot* waits = s.waits() ? leading_thread(job, s) : nullptr;
    if (waits == nullptr) return false;
    const std::vector<const Frame*> path = python_path(job, *waits);
    return path.size() >= own.size() && std::equal(own.begin(), own.end(), path.begin(), is_same_function);
  });
}

// How a program's own code begins.
bool begins_program(const Frame& frame) {
  return frame.function == "<module>" || frame.function == "_run_module_as_main";
}

// The rank of whose thread a tool has lost the callers (pystack does, in one of some thousand stacks), so that it
// cannot be compared with others: none of its threads comes from the beginning of its program, as theirs do. What
// Python calls as a program ends has no callers either: hooks of the user's, functions of its own library and torch's.
std::optional<std::size_t> rank_without_callers(const JobSnapshot& job, const std::vector<RankState>& states) {
  const auto name_of = [](const Frame& frame) { return std::pair(frame.function, frame.file); };
  std::vector<const RankState*> cut;  // the others begin their programs
  std::set<std::pair<std::optional<std::string>, std::optional<std::string>>> called;  // by those
  for (const RankState& s : states) {
    const ThreadSnapshot* leading = leading_thread(job, s);
    if (leading == nullptr) continue;
    const auto& threads = job.ranks[s.rank].threads;
    const bool begins = std::any_of(threads.begin(), threads.end(), [&](const ThreadSnapshot& thread) {
      const auto path = python_path(job, thread);
      return !path.empty() && begins_program(*path.front());
    });
    if (!begins) cut.push_back(&s);
    else
      for (const Frame* frame : python_path(job, *leading)) called.insert(name_of(*frame));
  }
  for (const RankState* s : cut) {
    const auto path = python_path(job, *leading_thread(job, *s));
    if (job.ranks[s->rank].source != Source::kDump || path.empty() || !path.front()->file) continue;
    const std::string& file = *path.front()->file;
    const bool in_package = contains(file, "-packages/") && !contains(file, "-packages/torch/");
    if (is_users_code(*path.front()) ? called.contains(name_of(*path.front())) : in_package && !called.empty())
      return s->rank;
  }
  return std::nullopt;
}

// What the rank does within its process, and may have done a moment later, as long as nothing shows that it cannot.
bool is_within_process(Reason reason) {
  return reason == Reason::kUserCode || reason == Reason::kDataLoading || reason == Reason::kPythonLock;
}

}  // namespace

std::optional<Verdict> Judge::of_dumps_apart() const {
  std::vector<std::size_t> apart = tally_.unknown;
  std::set<std::string> places;
  for (const std::size_t i : tally_.elsewhere) {
    places.insert(place_key(job_, states_[i]));
    apart.push_back(i);
  }
  const bool from_dumps = std::any_of(
      apart.begin(), apart.end(), [&](std::size_t i) { return job_.ranks[states_[i].rank].source == Source::kDump; });
  if (!from_dumps || places.empty() || places.size() + tally_.unknown.size() < 2) return std::nullopt;
  std::sort(apart.begin(), apart.end());
  const std::string waiting = tally_.waiting.empty() ? "" : describe_waiting(job_, states_) + "; ";
  return undecided(
      fmt::format("{}{} are at different places, and the output of other tools does not show whether one of "
                  "them waits for another",
                  waiting, name_ranks(job_, ranks_of(apart))));
}

bool Judge::dumps_lack(FrameKind kind) const {
  return std::any_of(states_.begin(), states_.end(), [&](const RankState& s) {
    const RankSnapshot& rank = job_.ranks[s.rank];
    const ThreadSnapshot* thread = leading_thread(job_, s);
    if (rank.source != Source::kDump || thread == nullptr) return false;
    if (kind == FrameKind::kPython && !rank.python_version) return false;
    return std::none_of(thread->frames.begin(), thread->frames.end(),
                        [&](FrameId id) { return job_.frames[id].kind == kind; });
  });
}

std::string Judge::not_shown_by_dumps(const Verdict& verdict) const {
  const std::vector<Suspect>& suspects = verdict.suspects;
  const auto all = [&](auto holds) { return std::all_of(suspects.begin(), suspects.end(), holds); };
  const auto all_wait = [&](auto holds) {
    return std::all_of(tally_.waiting.begin(), tally_.waiting.end(),
                       [&](std::size_t i) { return holds(states_[i].doing.operation); });
  };
  if (verdict.status != VerdictStatus::kCulprit || suspects.empty() || are_all_recorded() ||
      !all([&](const Suspect& s) { return s.rank < job_.ranks.size() && job_.ranks[s.rank].source == Source::kDump; }))
    return "";
  const bool several = std::any_of(suspects.begin(), suspects.end(), [&](const Suspect& s) {
    const auto& threads = job_.ranks[s.rank].threads;
    return std::any_of(threads.begin(), threads.end(), [](const ThreadSnapshot& t) { return t.motion.has_value(); });
  });
  const std::string_view moment = several ? "these dumps do not show whether it moves"
                                          : "dumps of one moment do not show whether it moves; several of each rank do";
  const auto thread_of = [&](const Suspect& s) -> const ThreadSnapshot* {
    const auto state =
        std::find_if(states_.begin(), states_.end(), [&](const RankState& one) { return one.rank == s.rank; });
    return state == states_.end() ? nullptr : leading_thread(job_, *state);
  };
  const auto motion_of = [&](const Suspect& s) -> const Motion* {
    const ThreadSnapshot* thread = thread_of(s);
    return thread != nullptr && thread->motion ? &*thread->motion : nullptr;
  };
  // Several dumps found it at the same place, or at different ones.
  const bool stood = all([&](const Suspect& s) { return motion_of(s) != nullptr && !motion_of(s)->moved; });
  const bool moved = std::any_of(suspects.begin(), suspects.end(),
                                 [&](const Suspect& s) { return motion_of(s) != nullptr && motion_of(s)->moved; });
  const bool within_process = all([](const Suspect& s) { return is_within_process(s.reason); });
  const bool mismatch = all([](const Suspect& s) { return s.reason == Reason::kCollectiveMismatch; });
  if (!stood && (within_process || mismatch) && std::any_of(states_.begin(), states_.end(), [&](const RankState& s) {
        return s.readable && gloo_moves_data(job_.frames, job_.ranks[s.rank], facts_.roles[s.rank]);
      }))
    return std::string(moment);
  if (within_process || mismatch || all([](const Suspect& s) { return s.reason == Reason::kUnmatchedP2p; })) {
    if (const auto cut = rank_without_callers(job_, states_))
      return fmt::format("the stack of {} lacks its callers", name_ranks(job_, {*cut}));
  }
  if (within_process) {
    const bool some_in_own_code =
        std::any_of(suspects.begin(), suspects.end(), [](const Suspect& s) { return s.reason == Reason::kUserCode; });
    if (moved) return "several dumps show that it moves, and not whether it comes back to the same place";
    if ((suspects.size() > 1 && (some_in_own_code || !stood)) || tally_.inferred) return std::string(moment);
    if (std::any_of(suspects.begin(), suspects.end(), [&](const Suspect& s) {
          const ThreadSnapshot* thread = thread_of(s);
          if (thread == nullptr) return true;
          if (awaits_handover(job_, *thread).value_or(s.reason == Reason::kPythonLock)) return true;
          return s.reason == Reason::kUserCode &&
                 (runs_in_dump(job_, *thread) != false || may_be_in_library(job_, *thread) ||
                  (!stood && is_between_steps(job_, states_, *thread)));
        }))
      return std::string(moment);
    const bool is_rank_0 = suspects.size() == 1 && job_.ranks[suspects.front().rank].rank == 0;
    const bool may_hand_on =
        is_rank_0 && suspects.front().reason != Reason::kDataLoading && all_wait([](const Operation& operation) {
          return operation.collective == known::Collective::kBroadcast ||
                 operation.collective == known::Collective::kScatter ||
                 operation.collective == known::Collective::kUnknown;
        });
    if (may_hand_on || all([&](const Suspect& s) { return directs_ranks(job_.ranks[s.rank]) && has_workers(job_); }))
      return "it may wait for requests that it hands on, which dumps do not show";
  }
  if (mismatch &&
      (some_are_on_their_way(job_, states_) ||
       std::any_of(states_.begin(), states_.end(), [&](const RankState& s) { return passes_in_dump(job_, s); })))
    return std::string(moment);
  // Each step of a healthy pipeline has such waits, and a slow stage's neighbour is at one in each dump.
  const bool some_in_messages = std::any_of(tally_.waiting.begin(), tally_.waiting.end(), [&](std::size_t i) {
    return states_[i].doing.activity == known::Activity::kPointToPoint;
  });
  if ((mismatch && some_in_messages) ||
      (suspects.size() < tally_.compared && all([](const Suspect& s) { return s.reason == Reason::kUnmatchedP2p; })))
    return "dumps do not show for which ranks' messages they wait";
  if (all([](const Suspect& s) { return s.reason == Reason::kStoreWait; }) && all_wait([](const Operation& operation) {
        return operation.kind == known::OperationKind::kStore ||
               operation.kind == known::OperationKind::kStoreGreeting || operation.kind == known::OperationKind::kSetUp;
      }))
    return "all are in the set-up of their groups, and dumps do not show whether another rank has not come";
  return "";
}

Verdict Judge::with_doubt_of_dumps(Verdict verdict) const {
  const std::string doubt = not_shown_by_dumps(verdict);
  return doubt.empty() ? verdict : undecided(fmt::format("{}: {}", verdict.summary, doubt));
}

}  // namespace rankstacks::analyzers
