#include "analyzers/judge.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "analyzers/activity.h"
#include "analyzers/blocking_calls.h"
#include "analyzers/candidates.h"
#include "analyzers/children.h"
#include "analyzers/gone_ranks.h"
#include "analyzers/names.h"
#include "analyzers/native_waits.h"
#include "analyzers/own_threads.h"
#include "analyzers/place.h"
#include "analyzers/recorded_times.h"
#include "analyzers/roles.h"
#include "analyzers/thread_waits.h"
#include "analyzers/verdict_words.h"
#include "base/text.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

// As place_key(). Loader workers that do not move are compared as well: they are what their ranks wait for.
std::string place_with_worker(const JobSnapshot& job, const RankState& s) {
  std::string key = place_key(job, s);
  const bool moves = s.progress == Progress::kRuns || s.progress == Progress::kMoves;
  if (s.known_from_child && !moves)
    key += '|' + describe_place(job, job.ranks[*s.known_from_child].threads[s.child_thread]);
  return key;
}

// Of a core: it waits for a child process, and no child's core is at hand, so that what differs may be there.
bool waits_for_unseen_child(const JobSnapshot& job, const RankState& s) {
  const RankSnapshot& rank = job.ranks[s.rank];
  if (rank.source != Source::kCore || std::any_of(job.ranks.begin(), job.ranks.end(), [](const RankSnapshot& process) {
        return process.kind == RankKind::kChild;
      }))
    return false;
  if (s.doing.activity == known::Activity::kSubprocess) return true;
  const ThreadSnapshot& thread = rank.threads[s.doing.thread];
  return s.doing.activity == known::Activity::kDataLoading &&
         std::any_of(thread.frames.begin(), thread.frames.end(),
                     [&](FrameId id) { return is_place(job.frames[id], known::Place::kProcessQueue); });
}

// A wait that may be for the next request or command, as long as nobody sends one: for events, a connection, what
// comes over a connection, or input from a terminal or a pipe.
bool may_wait_for_input(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (waits_for_events(job, thread)) return run_state_of(job, thread) != RunState::kSleeping;
  const std::string call = blocking_call(job, thread);
  if (call.starts_with("recv")) return true;
  const SyscallInfo* blocked = thread.syscall ? &*thread.syscall : nullptr;
  return blocked != nullptr && blocked->name.starts_with("read") && blocked->fd &&
         (!blocked->fd_target || !blocked->fd_target->starts_with('/') || blocked->fd_target->starts_with("/dev/"));
}

// What it waits for, and makes no progress in, is a file, a worker or a program of its own that is no server.
bool prepares_something(const JobSnapshot& job, const RankState& s) {
  if (s.progress != Progress::kStill || s.serves) return false;
  switch (s.doing.activity) {
    case known::Activity::kCheckpointIo:
    case known::Activity::kDataLoading: return true;
    case known::Activity::kFileIo: return !may_wait_for_input(job, deciding_thread(job, s));
    case known::Activity::kSubprocess: break;
    default: return false;
  }
  return !s.awaited_children.empty() &&
         std::none_of(s.awaited_children.begin(), s.awaited_children.end(), [&](std::size_t c) {
           const RankSnapshot& child = job.ranks[c];
           return child.threads.empty() ||
                  std::any_of(child.threads.begin(), child.threads.end(),
                              [&](const ThreadSnapshot& t) { return may_wait_for_input(job, t); });
         });
}

constexpr std::array<std::string_view, 8> kReceivingCalls = {"read",    "readv",    "recv",   "recvfrom",
                                                             "recvmsg", "recvmmsg", "accept", "accept4"};

// Of a core, which does not tell what a descriptor is: it receives over a connection, from whomever.
bool receives_in_core(const JobSnapshot& job, const RankState& s) {
  if (s.serves || s.has_server) return false;
  const bool over_connection =
      s.doing.activity == known::Activity::kNetworkIo || s.doing.activity == known::Activity::kSubprocess;
  return over_connection && is_one_of(blocking_call(job, deciding_thread(job, s)), kReceivingCalls);
}

// Of a core: it waits for a thread, a lock or a child of its own, and so do all of its threads: none may go on by
// itself, or by what comes over a connection.
bool waits_inwards_in_core(const JobSnapshot& job, const std::vector<known::Role>& roles, const RankState& s) {
  const RankSnapshot& rank = job.ranks[s.rank];
  const std::string call = blocking_call(job, deciding_thread(job, s));
  const bool inwards = s.doing.activity == known::Activity::kNativeLock ||
                       s.doing.activity == known::Activity::kPythonLock ||
                       (s.doing.activity == known::Activity::kSubprocess && is_one_of(call, kWaitCalls));
  if (!inwards || s.has_server) return false;
  // A thread that sleeps may be in the middle of a task, after which it wakes the one that waits.
  for (std::size_t t = 0; t < rank.threads.size(); ++t)
    if (t != s.doing.thread && !is_idle(job, rank.threads[t], roles[t]) && !waits_for_own_threads(job, rank.threads[t]))
      return false;
  return true;
}

// What ranks at one place may differ in. A wait for a thread of its own has several reasons, by what is known of that
// thread.
std::string kind_of_wait(const JobSnapshot& job, const RankState& s) {
  return waits_for_own_threads(job, deciding_thread(job, s)) ? "thread" : std::string(to_string(reason_for(s)));
}

// Every sample found it in a sleep at one place, from which it woke again and again, and no counter of it advances.
bool looks_again(const JobSnapshot& job, const ThreadSnapshot& thread) {
  constexpr double kRunsPerSecond = 1;
  constexpr std::int64_t kFewest = 3;
  const auto& motion = thread.motion;
  return motion && motion->places == 1 && !motion->moved && !motion->counted && motion->runs >= kFewest &&
         static_cast<double>(motion->runs) * 1000 >= kRunsPerSecond * motion->span_ms && is_in_sleep(job, thread);
}

}  // namespace

Verdict Judge::of_ended_not_waited_for() const {
  std::string text =
      fmt::format("{} of {} ranks have ended ({})", tally_.ended.size(), tally_.compared, pids_of(tally_.ended));
  for (const std::size_t i : tally_.elsewhere) {
    const RankState& s = states_[i];
    if (tally_.elsewhere.size() == 1)
      text += fmt::format("; rank {} {}", rank_label(job_.ranks[s.rank]), describe_suspect(job_, s, reason_for(s)));
  }
  return undecided(text + "; no rank is seen waiting for another: see the logs of those that have ended");
}

std::optional<Verdict> Judge::of_lost_party(const RankState& s) const {
  const MeetingOfChildren meeting = meeting_of_children(job_, facts_.roles, facts_.families, s.rank);
  if (meeting.waiting == 0 || meeting.ended.empty()) return std::nullopt;
  RankState lost = s;
  lost.dead_child = meeting.ended.front();
  constexpr double kLikely = 0.70;  // a worker that has done its part ends, too, before it is waited for
  return culprits({suspect(lost, Reason::kWorkerDead, bounded(kLikely))},
                  fmt::format("{} of its child processes {} in {}", meeting.waiting,
                              meeting.waiting == 1 ? "waits" : "wait", meeting.operation.name));
}

std::optional<Verdict> Judge::of_waiting_children() const {
  Activities activities(job_, facts_.roles, facts_.families);
  std::vector<std::size_t> waiting;
  std::string operation;
  std::vector<Suspect> others;
  for (const std::size_t i : tally_.elsewhere) {
    const RankState& s = states_[i];
    const auto child = awaited_child(job_, facts_.families, s);
    if (!child) return std::nullopt;
    const Doing doing = activities.of_rank(*child);
    if (known::waits_for_ranks(doing.activity)) {
      waiting.push_back(s.rank);
      operation = doing.operation.name;
      continue;
    }
    if (doing.activity == known::Activity::kUnknown) return std::nullopt;
    Suspect one = suspect(s, reason_for(s), bounded(0.70));
    one.summary += describe_child(job_, *child);
    others.push_back(std::move(one));
  }
  if (waiting.empty() || others.empty() || !tally_.failed.empty() || !tally_.unknown.empty()) return std::nullopt;
  return culprits(std::move(others),
                  fmt::format("the children of {} wait in {}", name_ranks(job_, waiting), operation));
}

Verdict Judge::of_single_rank() const {
  const RankState& s =
      *std::find_if(states_.begin(), states_.end(), [](const RankState& one) { return !one.unrelated; });
  if (auto lost = of_lost_party(s)) return *lost;
  if (s.unknown()) return undecided("one rank only, and its frames do not show what it does");
  std::size_t children = 0;
  for (const RankSnapshot& process : job_.ranks) children += process.kind == RankKind::kChild;
  Verdict verdict = undecided(fmt::format(
      "one rank only, nothing to compare with: it {}{}", describe_suspect(job_, s, reason_for(s)),
      children > 1 ? fmt::format("; if its {} child processes are the ranks, name them with --pids", children) : ""));
  if (s.progress == Progress::kRuns && may_sample_longer() && !have_sampled_long()) verdict.doubt = Doubt::kWorks;
  return verdict;
}

std::optional<Verdict> Judge::of_computing_gpus() const {
  for (const RankState& s : states_) {
    if (s.unrelated) continue;
    if (!s.readable || s.doing.activity != known::Activity::kGpuWait || s.gpu_computes != true) return std::nullopt;
  }
  return make(VerdictStatus::kHealthy,
              "nothing is seen to be stuck: every rank waits for its GPU, and by the power that they draw all GPUs "
              "compute; look again if that takes longer than a step should");
}

Verdict Judge::of_loop_at_one_place() const {
  const RankState& s = states_[tally_.elsewhere.front()];
  if (std::all_of(tally_.elsewhere.begin(), tally_.elsewhere.end(),
                  [&](std::size_t i) { return is_silent(job_.ranks[states_[i].rank]); }))
    return make(VerdictStatus::kSymmetric,
                fmt::format("all ranks do the same: each {}; by the Flight Recorder {}: a loop without an end, or one "
                            "long computation",
                            describe_suspect(job_, s, reason_for(s)), describe_silence(job_)));
  Verdict verdict = have_sampled_long()
                        ? make(VerdictStatus::kSymmetric,
                               fmt::format("all ranks do the same: each {}; for {:.0f} s none got on: a loop "
                                           "without an end, or one long computation",
                                           describe_suspect(job_, s, reason_for(s)), span_ms() / 1000))
                        : make(VerdictStatus::kHealthy,
                               "nothing is seen to be stuck: every rank runs, each at the same place in every sample");
  verdict.doubt = Doubt::kLoops;
  return verdict;
}

std::optional<Verdict> Judge::of_silence_at_one_place() const {
  if (!std::all_of(tally_.elsewhere.begin(), tally_.elsewhere.end(), [&](std::size_t i) {
        const RankState& s = states_[i];
        return !s.active() && !s.counts && !s.serves && is_silent(job_.ranks[s.rank]);
      }))
    return std::nullopt;
  const RankState& s = states_[tally_.elsewhere.front()];
  return make(VerdictStatus::kSymmetric, fmt::format("all ranks do the same: each {}; by the Flight Recorder {}",
                                                     describe_suspect(job_, s, reason_for(s)), describe_silence(job_)));
}

std::optional<Verdict> Judge::of_missing_at_one_place() const {
  const std::vector<int>& missing = facts_.missing.certain;
  if (missing.empty() || !several_samples_ || !tally_.failed.empty()) return std::nullopt;
  // Cores may be those of some ranks only, and a server waits for requests, whoever is there.
  const bool wait_for_someone = std::all_of(tally_.elsewhere.begin(), tally_.elsewhere.end(), [&](std::size_t i) {
    const RankState& s = states_[i];
    return job_.ranks[s.rank].source != Source::kCore && !s.serves && !s.counts &&
           (s.progress == Progress::kStill || awaits_something(s));
  });
  if (!wait_for_someone) return std::nullopt;
  const RankState& s = states_[tally_.elsewhere.front()];
  Verdict verdict = of_missing(
      missing, fmt::format("{}{} {}", tally_.elsewhere.size() == 1 ? "" : "each of ",
                           name_ranks(job_, ranks_of(tally_.elsewhere)), describe_suspect(job_, s, reason_for(s))));
  constexpr double kGuessed = 0.5;  // that it is they whom these wait for is in no frame
  for (Suspect& one_missing : verdict.suspects) one_missing.confidence = bounded(kGuessed);
  return verdict;
}

Verdict Judge::of_stillness_at_one_place() const {
  const RankState& s = states_[tally_.elsewhere.front()];
  if (dumps_lack(FrameKind::kNative))
    return undecided(fmt::format("each {}; the native frames, which may differ, are not in the dumps",
                                 describe_suspect(job_, s, reason_for(s))));
  if (waits_for_unseen_child(job_, s))
    return undecided(
        fmt::format("each {}; the cores of the processes that they wait for, which may differ, are not "
                    "among these",
                    describe_suspect(job_, s, reason_for(s))));
  if (s.doing.operation.kind == known::OperationKind::kEventLoop)
    return undecided(fmt::format("each {}; what their tasks await, which may differ, is on no stack",
                                 describe_suspect(job_, s, reason_for(s))));
  Verdict symmetric = make(VerdictStatus::kSymmetric,
                           fmt::format("all ranks do the same: each {}", describe_suspect(job_, s, reason_for(s))));
  if (s.doing.activity == known::Activity::kGpuWait && may_sample_longer()) {
    const bool may_be_long = s.gpu.activity == GpuActivity::kKernel && !have_sampled_long();
    symmetric.doubt = may_be_long ? Doubt::kWorks : Doubt::kGpuWaits;
  }
  // A server may answer after a second or two: long polls do so.
  const bool may_wake = sleeps(s) || s.doing.activity == known::Activity::kNetworkIo;
  if ((may_wake && may_sample_longer() && span_ms() < kLongerThanWaitsMs) || have_sampled_too_briefly())
    symmetric.doubt = Doubt::kWakes;
  return symmetric;
}

std::optional<Verdict> Judge::of_looking_ranks() const {
  if (!may_sample_longer()) return std::nullopt;
  std::map<std::string, std::vector<std::size_t>> at_place;
  for (const std::size_t i : tally_.elsewhere) {
    const RankState& s = states_[i];
    if (s.left_wait || s.travels) return std::nullopt;
    // It counts what it does; but a number of attempts, with a sleep after each, is no work.
    if (s.counts && (s.busy || !is_in_sleep(job_, deciding_thread(job_, s)))) return std::nullopt;
    if (s.progress == Progress::kRuns && !s.busy && looks_again(job_, deciding_thread(job_, s)))
      at_place[place_key(job_, s)].push_back(i);
  }
  const auto most = std::max_element(at_place.begin(), at_place.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (most == at_place.end()) return std::nullopt;
  const std::vector<std::size_t>& looking = most->second;
  std::vector<std::size_t> others;
  std::set_difference(tally_.elsewhere.begin(), tally_.elsewhere.end(), looking.begin(), looking.end(),
                      std::back_inserter(others));
  if (std::any_of(others.begin(), others.end(),
                  [&](std::size_t i) { return place_key(job_, states_[i]) == most->first; }))
    return std::nullopt;  // they do the same
  if (others.empty() || (at_place.size() > 1 && looking.size() <= others.size())) return std::nullopt;
  if (!have_sampled_long()) {
    Verdict open = make(VerdictStatus::kHealthy, "nothing is seen to be stuck: every rank runs");
    open.doubt = Doubt::kWorks;
    return open;
  }
  const RankState &first = states_[looking.front()], &other = states_[others.front()];
  std::string text =
      fmt::format("{} {} again and again for something ({}), and {} {}", name_ranks(job_, ranks_of(looking)),
                  looking.size() == 1 ? "looks" : "look", describe_place(job_, deciding_thread(job_, first)),
                  name_ranks(job_, {other.rank}), describe_suspect(job_, other, reason_for(other)));
  if (others.size() > 1)
    text += fmt::format(", {} elsewhere, too", name_ranks(job_, ranks_of({others.begin() + 1, others.end()})));
  Verdict verdict = undecided(fmt::format("{}: whether what {} for is to come from {} is not in their frames", text,
                                          looking.size() == 1 ? "the former looks" : "the former look",
                                          others.size() == 1 ? "that rank" : "one of those"));
  for (std::size_t i = 0; i < std::min(others.size(), kMaxCandidates); ++i) {
    const RankState& s = states_[others[i]];
    verdict.candidates.push_back(
        {s.rank, reason_for(s), "more samples (--samples 40)", describe_suspect(job_, s, reason_for(s))});
  }
  return verdict;
}

// Some wait for a kernel of their own that only polls, as one does whose flag another rank is to write.
std::optional<Verdict> Judge::of_polling_kernels() const {
  std::vector<std::size_t> polling, others;
  for (const std::size_t i : tally_.elsewhere) {
    const RankState& s = states_[i];
    const bool polls = s.doing.activity == known::Activity::kGpuWait && s.progress == Progress::kRuns &&
                       s.gpu.activity == GpuActivity::kKernel && polls_at_one_place(*s.gpu.kernel);
    (polls ? polling : others).push_back(i);
  }
  if (polling.empty() || others.empty()) return std::nullopt;
  const RankState& first = states_[polling.front()];
  return undecided(fmt::format(
      "{} {}, and the kernel is at one place, as one that polls: whether for what {} {} to write is not known",
      name_ranks(job_, ranks_of(polling)), describe_suspect(job_, first, reason_for(first)),
      name_ranks(job_, ranks_of(others)), others.size() == 1 ? "is" : "are"));
}

std::optional<Verdict> Judge::of_waits_inwards() const {
  if (!tally_.failed.empty() || !tally_.unrelated.empty() || !facts_.missing.certain.empty()) return std::nullopt;
  std::vector<std::size_t> receiving, inwards;
  for (const std::size_t i : tally_.elsewhere) {
    const RankState& s = states_[i];
    if (job_.ranks[s.rank].source != Source::kCore) return std::nullopt;
    if (receives_in_core(job_, s)) receiving.push_back(i);
    else if (waits_inwards_in_core(job_, facts_.roles[s.rank], s)) inwards.push_back(i);
    else return std::nullopt;
  }
  const bool few = inwards.size() < receiving.size() || tally_.compared == 2;
  if (inwards.empty() || receiving.empty() || !few) return std::nullopt;
  constexpr double kGuessed = 0.45;  // whom the others wait for is in no core
  std::vector<Suspect> suspects;
  for (const std::size_t i : inwards)
    suspects.push_back(suspect(states_[i], reason_for(states_[i]), bounded(kGuessed)));
  return culprits(std::move(suspects),
                  fmt::format("{} {} for what comes over a connection", name_ranks(job_, ranks_of(receiving)),
                              receiving.size() == 1 ? "waits" : "wait"));
}

std::optional<Verdict> Judge::of_preparing() const {
  std::vector<std::size_t> looking, preparing;
  for (const std::size_t i : tally_.elsewhere) {
    const RankState& s = states_[i];
    if (s.doing.activity == known::Activity::kUserCode && awaits_something(s)) looking.push_back(i);
    else if (prepares_something(job_, s)) preparing.push_back(i);
    else return std::nullopt;
  }
  if (!tally_.failed.empty() || preparing.empty() || preparing.size() > looking.size()) return std::nullopt;
  const RankState& first = states_[looking.front()];
  const std::string place = place_key(job_, first);
  if (std::any_of(looking.begin(), looking.end(), [&](std::size_t i) { return place_key(job_, states_[i]) != place; }))
    return std::nullopt;
  for (const std::size_t i : preparing) {
    const Divergence apart = divergence_of(states_[i], first);
    if (!apart.counter.empty() ||
        !branch_in_users_function(job_, deciding_thread(job_, states_[i]), deciding_thread(job_, first)))
      return std::nullopt;
  }
  constexpr double kGuessed = 0.45;  // what they look for is in no frame
  std::vector<Suspect> suspects;
  for (const std::size_t i : preparing)
    suspects.push_back(suspect(states_[i], reason_for(states_[i]), bounded(kGuessed)));
  Verdict verdict =
      culprits(std::move(suspects),
               fmt::format("{} {} again and again for something ({})", name_ranks(job_, ranks_of(looking)),
                           looking.size() == 1 ? "looks" : "look", describe_place(job_, deciding_thread(job_, first))));
  verdict.doubt = doubt_of_sinks(preparing);
  return verdict;
}

Verdict Judge::of_nobody_waits() const {
  std::vector<Suspect> definite;
  for (const std::size_t i : tally_.elsewhere) {
    const RankState& s = states_[i];
    if (has_own_reason(s) || waits_in_own_circle(job_.ranks[s.rank], s.doing.thread) ||
        !circle_behind_native_wait(job_, s).empty())
      definite.push_back(suspect(s, reason_for(s), bounded(0.70)));
  }
  if (!definite.empty() && definite.size() < tally_.compared) return culprits(std::move(definite), "");
  if (!tally_.ended.empty()) return of_ended_not_waited_for();
  if (tally_.compared == 1) {
    if (auto computing = of_computing_gpus()) return *computing;
    return of_single_rank();
  }
  if (!tally_.unknown.empty())
    return with_doubt_of_driver_calls(
        undecided(fmt::format("no rank is seen waiting for another, and {}", describe_unknown())));
  if (auto computing = of_computing_gpus()) return *computing;
  if (auto apart = of_waiting_children()) return *apart;
  if (auto preparing = of_preparing()) return *preparing;
  if (auto inwards = of_waits_inwards()) return *inwards;
  // active: they move or work, and do not just poll at one place
  std::size_t running = 0, active = 0, polling = 0;
  std::map<std::string, std::vector<std::size_t>> places;
  for (const std::size_t i : tally_.elsewhere) {
    const RankState& one = states_[i];
    active += one.progress == Progress::kUnknown ? deciding_thread(job_, one).state == 'R' : one.active();
    running +=
        one.progress == Progress::kUnknown ? deciding_thread(job_, one).state == 'R' : one.progress != Progress::kStill;
    polling += one.doing.activity == known::Activity::kGpuWait && one.progress == Progress::kRuns;
    places[place_with_worker(job_, states_[i])].push_back(i);
  }
  const bool all_run = running == tally_.elsewhere.size() && tally_.failed.empty();
  if (all_run && places.size() == 1 && loop_at_one_place() && may_sample_longer()) return of_loop_at_one_place();
  // Who looks for something every half second has done so once in three samples: more of them show it. So they do of a
  // job some of which was seen to run.
  const bool may_look = may_sample_longer() && span_ms() < kLongerThanWaitsMs &&
                        std::any_of(tally_.elsewhere.begin(), tally_.elsewhere.end(), [&](std::size_t i) {
                          return sleeps(states_[i]) || states_[i].progress == Progress::kRuns;
                        });
  const auto with_doubt = [&](Verdict verdict) {
    if (may_look && verdict.status == VerdictStatus::kUndecided) verdict.doubt = Doubt::kWakes;
    return verdict;
  };
  // At one line of Python, or in one function without lines, they may wait for different things.
  if (places.size() == 1 && running == polling) {
    std::map<std::string, std::vector<std::size_t>> waits;
    for (const std::size_t i : tally_.elsewhere) waits[kind_of_wait(job_, states_[i])].push_back(i);
    places = std::move(waits);
  }
  if (places.size() == 1)
    if (auto missing = of_missing_at_one_place()) return *missing;
  if (places.size() == 2)
    if (auto apart = of_two_places(places.begin()->second, places.rbegin()->second, all_run, active == 0))
      return with_doubt(*apart);
  if (all_run && places.size() == 1)
    if (auto silent = of_silence_at_one_place()) return *silent;
  if (all_run)
    if (auto polls = of_polling_kernels()) return *polls;
  if (all_run)
    if (auto looking = of_looking_ranks()) return *looking;
  const bool all_move =
      std::all_of(tally_.elsewhere.begin(), tally_.elsewhere.end(), [&](std::size_t i) { return states_[i].active(); });
  if (all_run)
    return make(VerdictStatus::kHealthy,
                !several_samples_ ? "nothing is stuck at this moment: every rank is running, none waits for another"
                : all_move        ? "nothing is stuck: every rank moves, none waits for another"
                                  : "nothing is seen to be stuck: every rank runs, none is seen waiting for another");
  if (places.size() == 1 && running == polling && tally_.failed.empty()) return of_stillness_at_one_place();
  return with_doubt(undecided(fmt::format(
      "no rank waits for another at this moment, and {}: {}",
      places.size() == 1 ? "all are at one place, where some of them ran" : "the ranks are at different places",
      too_few_samples())));
}

}  // namespace rankstacks::analyzers
