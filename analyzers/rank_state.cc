#include "analyzers/rank_state.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analyzers/accept_waits.h"
#include "analyzers/children.h"
#include "analyzers/driver_calls.h"
#include "analyzers/flight_records.h"
#include "analyzers/gpu_waits.h"
#include "analyzers/launches.h"
#include "analyzers/lost_threads.h"
#include "analyzers/message_threads.h"
#include "analyzers/names.h"
#include "analyzers/native_waits.h"
#include "analyzers/own_threads.h"
#include "analyzers/partners.h"
#include "analyzers/peer_waits.h"
#include "analyzers/progress.h"
#include "analyzers/receiving_threads.h"
#include "analyzers/roles.h"
#include "analyzers/thread_waits.h"
#include "analyzers/training_threads.h"
#include "known/counter_names.h"
#include "known/places.h"
#include "known/process_titles.h"

namespace rankstacks::analyzers {
namespace {

const ThreadSnapshot* main_thread(const RankSnapshot& rank) {
  const auto main = thread_with(rank, rank.pid);
  return main ? &rank.threads[*main] : nullptr;
}

// Derived from its own threads alone.
std::vector<RankState> own_states(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                                  Activities& activities) {
  std::vector<RankState> states;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.kind != RankKind::kRank) continue;
    RankState state;
    state.rank = r;
    state.ended = is_dead(rank);
    state.readable = !state.ended && main_thread(rank) != nullptr;
    if (state.readable) {
      state.doing = activities.of_rank(r);
      if (auto awaited = of_awaited_thread(job, activities, r, state.doing)) state.doing = std::move(*awaited);
      else if (auto called = of_called_library(job, roles, activities, r, state.doing))
        state.doing = std::move(*called);
    }
    states.push_back(std::move(state));
  }
  return states;
}

// In a server's event loop. A plain accept() may as well wait for one certain connection. A core does not tell sockets:
// there it is the loop of a known server, right above its selector.
bool waits_for_requests(const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& thread) {
  if (rank.source != Source::kCore)
    return thread.syscall && thread.syscall->listens && !thread.syscall->name.starts_with("accept");
  bool selects = false;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind != FrameKind::kPython) continue;
    const std::string function = frame.function.value_or(""), file = frame.file.value_or("");
    // asyncio's loop, which is such a place too, may wait for an answer as well.
    if (selects) return function == "serve_forever" && known::is_place(known::Place::kServerLoop, function, file);
    selects = function == "select" && known::is_place(known::Place::kWait, function, file);
    if (!selects) return false;
  }
  return false;
}

// A thread that runs Python code is such a server: libraries have listeners of their own, which bring no requests.
bool has_server(const JobSnapshot& job, std::size_t rank, std::size_t apart_from) {
  const std::vector<ThreadSnapshot>& threads = job.ranks[rank].threads;
  for (std::size_t t = 0; t < threads.size(); ++t)
    if (t != apart_from && waits_for_requests(job, job.ranks[rank], threads[t]) &&
        std::any_of(threads[t].frames.begin(), threads[t].frames.end(),
                    [&](FrameId id) { return job.frames[id].kind == FrameKind::kPython; }))
      return true;
  return false;
}

// It reads what a child sends that is itself a server's front end between two requests.
bool waits_for_front_end(const JobSnapshot& job, const Families& families, const RankState& state) {
  const RankSnapshot& rank = job.ranks[state.rank];
  const ThreadSnapshot& thread = rank.threads[state.doing.thread];
  if (!thread.syscall) return false;
  bool any = false;
  for (const std::size_t c : families.children_of(state.rank)) {
    const RankSnapshot& child = job.ranks[c];
    const auto& ends = thread.syscall->others;
    if (std::none_of(ends.begin(), ends.end(), [&](const OtherEnd& end) { return end.pid == child.pid; })) continue;
    const ThreadSnapshot* main = main_thread(child);
    if (main == nullptr || !waits_for_requests(job, child, *main)) return false;
    any = true;
  }
  return any;
}

// If most processes have a rank number and a world size, those that have none do not belong to the job, unless they run
// the very command of the others while numbers are missing: then theirs could not be read. If none has, those that run
// another program than the others do not.
void find_unrelated(const JobSnapshot& job, std::vector<RankState>& states) {
  const auto numbered = [&](const RankState& s) { return job.ranks[s.rank].rank && job.ranks[s.rank].world_size; };
  const auto count = static_cast<std::size_t>(std::count_if(states.begin(), states.end(), numbered));
  if (count >= 2) {
    std::set<std::vector<std::string>> commands;
    int world = 0;
    for (const RankState& s : states) {
      if (!numbered(s)) continue;
      if (const RankSnapshot& rank = job.ranks[s.rank]; !rank.command.empty()) commands.insert(rank.command);
      world = std::max(world, *job.ranks[s.rank].world_size);
    }
    const bool some_are_missing = static_cast<std::size_t>(world) > count;
    for (RankState& s : states) {
      const RankSnapshot& rank = job.ranks[s.rank];
      s.unrelated = !numbered(s) && !rank.rank && s.readable && !directs_ranks(rank) &&
                    !(some_are_missing && commands.contains(rank.command));
    }
    return;
  }
  if (count != 0) return;
  std::map<std::string, std::size_t> programs;
  for (const RankState& s : states)
    if (s.readable) ++programs[job.ranks[s.rank].executable.value_or("")];
  for (RankState& s : states) {
    const std::size_t alike = s.readable ? programs[job.ranks[s.rank].executable.value_or("")] : 0;
    s.unrelated = s.readable && alike * 4 <= states.size() && states.size() > 2;
  }
  if (std::none_of(states.begin(), states.end(), [](const RankState& s) { return s.readable && !s.unrelated; }))
    for (RankState& s : states) s.unrelated = false;
}

void find_path(const JobSnapshot& job, RankState& state) {
  const RankSnapshot& rank = job.ranks[state.rank];
  const ThreadSnapshot* main = leading_thread(job, state);
  if (main == nullptr) return;
  const std::string executable = rank.executable.value_or("");
  const std::string_view program = base_name(executable);
  for (std::size_t i = main->frames.size(); i-- > 0;) {
    const Frame& frame = job.frames[main->frames[i]];
    const bool of_user = frame.kind == FrameKind::kPython
                             ? is_users_code(frame)
                             : frame.function && frame.line && base_name(frame.module) == program &&
                                   !is_interpreter(frame.module) && !is_thread_start(frame);
    if (!of_user) continue;
    CodePlace place{frame.function.value_or(""),     frame.file.value_or(""), frame.line.value_or(-1), {}, 0,
                    frame.kind == FrameKind::kPython};
    for (const FrameVariables& variables : main->variables)
      if (variables.frame == i) place.numbers = variables.numbers, place.loops = variables.loops;
    std::erase_if(place.numbers, [](const auto& number) { return !known::is_counter_name(number.first); });
    state.path.push_back(std::move(place));
  }
}

// The function of the program that calls MPI. It polls there in a loop: which of several calls the rank is found in is
// chance.
std::string polling_function(const JobSnapshot& job, const ThreadSnapshot& thread) {
  const std::vector<FrameId>& frames = thread.frames;
  const auto named = [](const Frame& frame) { return frame.function.value_or("") + '|' + frame.file.value_or(""); };
  for (const FrameId id : frames)
    if (is_users_code(job.frames[id])) return named(job.frames[id]);
  const auto call = std::find_if(frames.rbegin(), frames.rend(),
                                 [&](FrameId id) { return is_mpi_function(job.frames[id].function.value_or("")); });
  return call == frames.rend() || call == frames.rbegin() ? "" : named(job.frames[*std::prev(call)]);
}

// If a rank waits for the answer to a call in another rank: of a rank that waits, what it does for that call is what it
// is waited for, and not where its main thread is.
void refine_by_remote_calls(const JobSnapshot& job, Activities& activities, std::vector<RankState>& states) {
  const auto calls = [](const RankState& s) {
    return s.readable && s.doing.operation.kind == known::OperationKind::kRemoteCall;
  };
  if (std::none_of(states.begin(), states.end(), calls)) return;
  for (RankState& s : states) {
    const bool waits = known::waits_for_ranks(s.doing.activity) || s.doing.activity == known::Activity::kGpuWait;
    if (!s.readable || s.unrelated || calls(s) || !waits) continue;
    if (const auto main = thread_with(job.ranks[s.rank], job.ranks[s.rank].pid))
      if (auto served = activities.of_served_call(s.rank, *main)) {
        s.doing = std::move(*served);
        s.answers_call = true;
      }
  }
}

}  // namespace

std::vector<RankState> states_of(const JobSnapshot& job, const std::vector<std::vector<known::Role>>& roles,
                                 const std::vector<Cluster>& clusters, const Families& families) {
  Activities activities(job, roles, families);
  std::vector<RankState> states = own_states(job, roles, activities);
  find_unrelated(job, states);
  refine_by_training_threads(job, roles, activities, states);
  refine_by_shared_work(job, roles, activities, states);
  refine_by_message_threads(job, roles, activities, states);
  refine_by_remote_calls(job, activities, states);
  refine_driver_calls(job, states);
  for (RankState& s : states)
    s.gpu_wait_may_be_collective =
        s.readable && s.doing.activity == known::Activity::kGpuWait && has_nccl(roles[s.rank]);
  look_at_children(job, roles, families, states);
  find_peer_waits(job, states);
  refine_by_classes(job, clusters, activities, states);
  leave_other_stores(job, roles, states);
  refine_by_other_ends(job, roles, families, states);
  refine_by_accepts(job, states);
  refine_by_receiving_threads(job, roles, states);
  refine_by_lone_waits(job, roles, states);
  for (RankState& state : states) {
    if (!state.readable) continue;
    const ThreadSnapshot& deciding = job.ranks[state.rank].threads[state.doing.thread];
    state.serves = !waits_for_connection(state) && (waits_for_requests(job, job.ranks[state.rank], deciding) ||
                                                    waits_for_front_end(job, families, state));
    state.has_server = has_server(job, state.rank, state.doing.thread);
    find_progress(job, roles, state);
    refine_by_native_wait(job, roles[state.rank], state);
    find_partners(job, state);
    find_path(job, state);
  }
  find_lost_threads(job, roles, states);
  find_computing_gpus(job, states);
  refine_by_launches(job, states);
  refine_by_gpus(job, states);
  for (RankState& state : states) {
    const RankSnapshot& rank = job.ranks[state.rank];
    state.recorded_only = rank.source == Source::kDump && !state.ended && !state.gpu_only && rank.threads.empty() &&
                          has_present_record(rank);
    if (state.recorded_only) state.recorded = describe_recorded_wait(job, rank, roles[state.rank]);
    if (state.gpu_wait_may_be_collective) {
      state.recorded = describe_recorded_wait(job, job.ranks[state.rank], roles[state.rank]);
      state.timed_out = timed_out_work_of(job.ranks[state.rank]);
    }
  }
  return states;
}

bool directs_ranks(const RankSnapshot& rank) {
  const auto title = rank.command.empty() ? std::nullopt : known::title_of(rank.command.front());
  return title && title->part == known::TitlePart::kDirector;
}

std::optional<TimedOutWork> common_work(const std::vector<RankState>& states) {
  std::optional<TimedOutWork> common;
  for (const RankState& s : states) {
    if (s.unrelated || !s.readable || !s.waits()) continue;
    if (!s.timed_out || (common && !common->is_same(*s.timed_out))) return std::nullopt;
    common = s.timed_out;
  }
  return common;
}

Reason reason_for(const RankState& state) {
  if (state.dead_child || !state.lost_thread.empty()) return Reason::kWorkerDead;
  return state.readable ? reason_of(state.doing.activity) : Reason::kNone;
}

const ThreadSnapshot* leading_thread(const JobSnapshot& job, const RankState& state) {
  const RankSnapshot& rank = job.ranks[state.rank];
  return state.by_own_thread ? &rank.threads[state.doing.thread] : main_thread(rank);
}

std::string place_key(const JobSnapshot& job, const RankState& state) {
  if (state.named_by_gpu)  // the CPU may be further on
    return "on the GPU|" + state.doing.operation.key() + '|' + state.launched_otherwise;
  std::string key = state.doing.operation.key();
  if (state.doing.operation.kind == known::OperationKind::kPolledMessage)
    return key + '|' + polling_function(job, job.ranks[state.rank].threads[state.doing.thread]);
  if (!state.launched_otherwise.empty()) key += '|' + state.launched_otherwise;
  if (const ThreadSnapshot* leading = leading_thread(job, state)) {
    const ThreadSnapshot& thread = *leading;
    bool user_code = false;
    for (const FrameId id : thread.frames) {
      const Frame& frame = job.frames[id];
      if (!is_users_code(frame)) continue;
      key += fmt::format("|{}|{}|{}", frame.function.value_or(""), *frame.file, frame.line.value_or(-1));
      user_code = true;
    }
    const auto index = deciding_frame(job, thread);
    if (user_code || !index) return key;
    const Frame& frame = job.frames[thread.frames[*index]];
    key += fmt::format("|{}|{}|{}", frame.function.value_or(""), frame.file.value_or(""),
                       frame.kind == FrameKind::kPython ? frame.line.value_or(-1) : -1);
  }
  return key;
}

}  // namespace rankstacks::analyzers
