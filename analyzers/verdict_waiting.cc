#include "analyzers/judge.h"

#include <algorithm>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "analyzers/candidates.h"
#include "analyzers/coordinates.h"
#include "analyzers/deadlock.h"
#include "analyzers/gone_ranks.h"
#include "analyzers/gpu_health.h"
#include "analyzers/local_waits.h"
#include "analyzers/names.h"
#include "analyzers/other_threads.h"
#include "analyzers/place.h"
#include "analyzers/recorded_times.h"
#include "analyzers/verdict_words.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {

// Of ranks that others wait for, those that get on while each of these waits ends again and again hold up nobody:
// another part of the job does not move. All of them, if that is so for all.
std::vector<std::size_t> Judge::that_hold_up() const {
  std::vector<bool> awaited(states_.size(), false);  // by a rank that does not get on
  for (const PendingOperation& operation : facts_.operations)
    if (std::none_of(operation.members.begin(), operation.members.end(),
                     [&](std::size_t i) { return states_[i].moves(); }))
      for (const std::size_t i : operation.elsewhere) awaited[i] = true;
  std::vector<std::size_t> found;
  std::copy_if(tally_.needed.begin(), tally_.needed.end(), std::back_inserter(found),
               [&](std::size_t i) { return awaited[i] || !states_[i].moves(); });
  return found.empty() ? tally_.needed : found;
}

Verdict Judge::of_mixed() const {
  const std::vector<std::size_t> needed = that_hold_up();
  if (auto open = of_steps_under_way(needed)) return *open;
  if (auto moving = of_moving_with_unseen()) return *moving;
  if (auto open = of_unknown_holders(needed)) return *open;
  if (auto open = of_polling_majority(needed)) return *open;
  std::vector<Suspect> suspects = suspects_of_ended(needed_of_ended());
  const std::vector<Suspect> alive = suspects_among(needed);
  suspects.insert(suspects.end(), alive.begin(), alive.end());
  Verdict verdict = culprits(std::move(suspects), describe_waiting(job_, states_));
  verdict.reference = tally_.inferred ? kInferredFromStacks : all_certain(facts_.operations) ? kFromGroups : kAllRanks;
  if (const Doubt doubt = doubt_of_sinks(needed); doubt != Doubt::kNone) verdict.doubt = doubt;
  return with_doubt_of_driver_calls(std::move(verdict));
}

std::optional<Verdict> Judge::of_steps_under_way(const std::vector<std::size_t>& needed) const {
  // It is normal that some ranks arrive early at a collective, as long as at least as many are running their own
  // code.
  const bool all_running = std::all_of(needed.begin(), needed.end(), [&](std::size_t i) {
    const RankState& s = states_[i];
    const bool at_work =
        s.doing.activity == known::Activity::kUserCode || s.doing.activity == known::Activity::kDataLoading;
    return at_work && !s.known_from_child && runs(s);
  });
  // Rank 0 evaluates or saves now and then, for longer than steps take.
  const bool may_be_a_duty =
      needed.size() == 1 && job_.ranks[states_[needed.front()].rank].rank == 0 && states_[needed.front()].travels;
  const bool silent = !may_be_a_duty && std::any_of(tally_.waiting.begin(), tally_.waiting.end(), [&](std::size_t i) {
    return is_silent(job_.ranks[states_[i].rank]);
  });
  const bool all_loop = have_sampled_long() && std::all_of(needed.begin(), needed.end(), [&](std::size_t i) {
                          return states_[i].in_one_function && !states_[i].counts && !states_[i].left_wait;
                        });
  if (all_running && needed.size() * 2 >= tally_.compared && !all_loop && !silent) {
    Verdict open = undecided(fmt::format("{} ranks are running their own code, and {}: {}",
                                         needed.size() * 2 > tally_.compared ? "most" : "half of the",
                                         describe_waiting(job_, states_), too_few_samples()));
    if (may_sample_longer() && !have_sampled_long()) open.doubt = Doubt::kWorks;
    return open;
  }
  // The stages of a pipeline take turns: a stage that is at work as a whole is not late just because others wait for
  // it.
  if (const std::string stages = whole_stages(job_, ranks_of(needed)); all_running && !silent && !stages.empty())
    return undecided(fmt::format("{} are running their own code, and {}, as the stages of a pipeline do: {}", stages,
                                 describe_waiting(job_, states_), too_few_samples()));
  return std::nullopt;
}

std::optional<Verdict> Judge::of_unknown_holders(const std::vector<std::size_t>& needed) const {
  const bool others_may_hold = !tally_.unknown.empty() || !tally_.failed.empty() || !tally_.unrelated.empty() ||
                               tally_.elsewhere.size() > needed.size() ||
                               std::any_of(facts_.operations.begin(), facts_.operations.end(),
                                           [](const PendingOperation& operation) { return !operation.unseen.empty(); });
  if (!others_may_hold || !std::all_of(needed.begin(), needed.end(),
                                       [&](std::size_t i) { return waits_for_unknown_holder(job_, states_[i]); }))
    return std::nullopt;
  const RankState& s = states_[needed.front()];
  return undecided(fmt::format("{}, for which {}: who holds that lock is not known, and not all is known of the others",
                               suspect(s, reason_for(s), 0).summary, describe_waiting(job_, states_)));
}

std::optional<Verdict> Judge::of_polling_majority(const std::vector<std::size_t>& needed) const {
  if (needed.size() < 2 || needed.size() * 2 <= tally_.compared) return std::nullopt;
  const RankState& first = states_[needed.front()];
  const std::string place = place_key(job_, first);
  if (!std::all_of(needed.begin(), needed.end(), [&](std::size_t i) {
        const RankState& s = states_[i];
        return s.doing.activity == known::Activity::kUserCode && awaits_something(s) && place_key(job_, s) == place;
      }))
    return std::nullopt;
  Verdict open = undecided(
      fmt::format("{} {}, while {} look again and again for something at one place ({}): whether for what {} to do is "
                  "not known",
                  name_ranks(job_, ranks_of(tally_.waiting)), tally_.waiting.size() == 1 ? "waits" : "wait",
                  name_ranks(job_, ranks_of(needed)), describe_place(job_, deciding_thread(job_, first)),
                  tally_.waiting.size() == 1 ? "that one is" : "those are"));
  for (std::size_t i = 0; i < tally_.waiting.size() && i < kMaxCandidates; ++i)
    open.candidates.push_back({states_[tally_.waiting[i]].rank, Reason::kCollectiveMismatch,
                               "what the others look for: the line at which they sleep",
                               describe_suspect(job_, states_[tally_.waiting[i]], Reason::kCollectiveMismatch)});
  open.doubt = doubt_of_sinks(needed);
  return open;
}

std::vector<Suspect> Judge::suspects_among(const std::vector<std::size_t>& needed) const {
  const bool some_are_clear = std::any_of(
      needed.begin(), needed.end(), [&](std::size_t i) { return !states_[i].serves && !awaits_something(states_[i]); });
  std::vector<Suspect> suspects;
  for (const std::size_t i : needed) {
    const RankState& s = states_[i];
    if (s.serves || (some_are_clear && awaits_something(s))) continue;
    Reason reason = reason_for(s);
    // It moves, and the ranks that wait for it are further on in the same code.
    if (s.doing.activity == known::Activity::kUserCode && s.moves() && is_behind_all(s)) reason = Reason::kBehind;
    suspects.push_back(suspect(s, reason, confidence_of_sink(job_, s, tally_)));
    if (const auto divergence = s.counts ? divergence_from_those_it_passed(s) : std::nullopt)
      suspects.back().summary += fmt::format(", at {0} {1}, past the {0} {2} in which they wait", divergence->counter,
                                             divergence->count_a, divergence->count_b);
  }
  return suspects;
}

Doubt Judge::doubt_of_sinks(const std::vector<std::size_t>& needed) const {
  // GPUs are asked after the samples. Who moved in these may have been about to come to where others wait on theirs.
  const bool seen_later = std::all_of(tally_.waiting.begin(), tally_.waiting.end(),
                                      [&](std::size_t i) { return states_[i].known_from_gpu; });
  if (may_sample_longer() && !have_sampled_long() && std::any_of(needed.begin(), needed.end(), [&](std::size_t i) {
        return may_compute(states_[i]) || may_work(states_[i]) || (seen_later && states_[i].moves());
      }))
    return Doubt::kWorks;
  if (have_sampled_too_briefly()) return Doubt::kWakes;
  if (may_sample_longer() && span_ms() < kLongerThanWaitsMs &&
      std::any_of(needed.begin(), needed.end(),
                  [&](std::size_t i) { return may_come_back(states_[i]) || sleeps(states_[i]); }))
    return Doubt::kWakes;
  return Doubt::kNone;
}

bool Judge::awaits_something(const RankState& s) const {
  if (s.serves) return false;
  if (waits_for_unknown_holder(job_, s)) return true;
  return s.doing.operation.kind == known::OperationKind::kEventLoop ||
         (s.doing.activity == known::Activity::kUserCode && !s.counts && !s.dead_child &&
          polls_asleep(job_, deciding_thread(job_, s)));
}

std::optional<Verdict> Judge::of_moving_with_unseen() const {
  if (tally_.unknown.empty() && tally_.failed.empty()) return std::nullopt;
  const std::vector<std::size_t>& needed = tally_.needed;
  const bool does_its_duty = needed.size() == 1 && tally_.elsewhere.size() == 1 &&
                             job_.ranks[states_[needed.front()].rank].rank == 0 && states_[needed.front()].travels;
  if (!std::all_of(needed.begin(), needed.end(),
                   [&](std::size_t i) { return (states_[i].counts || does_its_duty) && !has_own_reason(states_[i]); }))
    return std::nullopt;
  const RankState& s = states_[needed.front()];
  const std::string unseen = tally_.unknown.empty() ? "what all others do is not known" : describe_unknown();
  return with_doubt_of_driver_calls(
      undecided(fmt::format("{}; {}, for which they wait, {} ({}); but {}", describe_waiting(job_, states_),
                            name_ranks(job_, ranks_of(needed)), needed.size() == 1 ? "moves" : "move",
                            describe_suspect(job_, s, reason_for(s)), unseen)));
}

std::string Judge::describe_unknown() const {
  std::vector<std::size_t> in_driver, others;
  for (const std::size_t i : tally_.unknown) (states_[i].in_driver() ? in_driver : others).push_back(states_[i].rank);
  std::string text;
  if (!others.empty())
    text = fmt::format("the frames of {} do not show what {}", name_ranks(job_, others),
                       others.size() == 1 ? "it does" : "they do");
  if (!in_driver.empty())
    text += fmt::format("{}{} in a call of the GPU's driver, whose lock another process may hold",
                        text.empty() ? "" : ", and ",
                        name_ranks(job_, in_driver) + (in_driver.size() == 1 ? " is" : " are"));
  return text;
}

Verdict Judge::with_doubt_of_driver_calls(Verdict verdict) const {
  const bool in_driver =
      std::any_of(tally_.unknown.begin(), tally_.unknown.end(), [&](std::size_t i) { return states_[i].in_driver(); });
  if (in_driver && may_sample_longer() && !have_sampled_long()) verdict.doubt = Doubt::kWorks;
  return verdict;
}

std::optional<Verdict> Judge::of_idle_servers() const {
  if (auto idle = of_no_work()) return idle;
  const std::vector<std::size_t>& servers = tally_.waiting.empty() ? tally_.elsewhere : tally_.needed;
  if (servers.empty() || !std::all_of(servers.begin(), servers.end(), [&](std::size_t i) {
        return states_[i].serves || hands_on_requests(states_[i]) || accepts_requests(states_[i]);
      }))
    return std::nullopt;
  const RankState& first = states_[servers.front()];
  std::string text =
      fmt::format("nothing is stuck: {} {} for requests ({})", name_ranks(job_, ranks_of(servers)),
                  servers.size() == 1 ? "waits" : "wait", describe_suspect(job_, first, reason_for(first)));
  if (!tally_.waiting.empty())
    text += fmt::format(", and {} for the work that {} out", describe_waiting(job_, states_),
                        servers.size() == 1 ? "it hands" : "they hand");
  return make(VerdictStatus::kHealthy, std::move(text));
}

// It takes from a queue what its thread that serves puts there, and all that wait expect it from this rank: they are in
// a broadcast, a scatter or a receive from it. (Ranks that train may have a server as well, of their metrics for
// instance; but these meet in collectives among all.)
bool Judge::hands_on_requests(const RankState& s) const {
  const auto& number = job_.ranks[s.rank].rank;
  const auto wait = local_wait_of(job_, s, Reason::kPythonLock);
  if (!s.has_server || !number || !wait || wait->kind != LocalWaitKind::kQueue || reason_for(s) != Reason::kPythonLock)
    return false;
  return !tally_.waiting.empty() && std::all_of(tally_.waiting.begin(), tally_.waiting.end(), [&](std::size_t i) {
    const RankState& w = states_[i];
    return w.root == number || (w.peer == number && w.doing.operation.receives && !w.doing.operation.sends);
  });
}

// It waits for a connection, and all that wait are in a broadcast or a scatter, as far as is known from this rank: for
// the work that somebody will connect to ask for.
bool Judge::accepts_requests(const RankState& s) const {
  const auto& syscall = deciding_thread(job_, s).syscall;
  if (!syscall || !syscall->name.starts_with("accept") || s.doing.activity != known::Activity::kNetworkIo ||
      !job_.ranks[s.rank].rank)
    return false;
  return !tally_.waiting.empty() && std::all_of(tally_.waiting.begin(), tally_.waiting.end(), [&](std::size_t i) {
    const RankState& w = states_[i];
    const known::Collective collective = w.doing.operation.collective;
    return (collective == known::Collective::kBroadcast || collective == known::Collective::kScatter) &&
           (!w.root || w.root == job_.ranks[s.rank].rank);
  });
}

// No process has a request or a task: some wait for the next one, and the others, if any, for what those will hand on.
// Not so if one waits for another's answer: then there is work.
std::optional<Verdict> Judge::of_no_work() const {
  std::vector<std::size_t> idle;
  for (const std::size_t i : tally_.waiting) {
    const known::OperationKind kind = states_[i].doing.operation.kind;
    if (kind == known::OperationKind::kWork) idle.push_back(i);
    if (kind == known::OperationKind::kRemoteCall) return std::nullopt;
  }
  const bool others_serve =
      std::all_of(tally_.elsewhere.begin(), tally_.elsewhere.end(), [&](std::size_t i) { return states_[i].serves; });
  if (idle.empty() || !others_serve || !tally_.unknown.empty() || !tally_.failed.empty() || !tally_.ended.empty())
    return std::nullopt;
  std::string text = fmt::format("nothing is stuck: {} {} for {}", name_ranks(job_, ranks_of(idle)),
                                 idle.size() == 1 ? "waits" : "wait", states_[idle.front()].doing.operation.name);
  if (idle.size() < tally_.waiting.size()) text += ", and the others for what comes of it";
  return make(VerdictStatus::kHealthy, std::move(text));
}

bool Judge::may_come_back(const RankState& s) const {
  return s.progress == Progress::kRuns && !s.busy && !s.known_from_gpu && !has_own_reason(s) && !s.dead_child;
}

bool Judge::may_work(const RankState& s) const {
  const bool at_work = s.doing.activity == known::Activity::kUserCode ||
                       s.doing.activity == known::Activity::kDataLoading ||
                       s.doing.activity == known::Activity::kCompiling;
  // So may a program that it has started.
  const bool by_child = s.doing.activity == known::Activity::kSubprocess;
  // What goes on from one function to another may be done soon, whatever it is at.
  return (s.travels || (((at_work && !s.known_from_child) || by_child) && s.busy)) && !has_own_reason(s);
}

bool Judge::sleeps(const RankState& s) const {
  // Another thread, for which it waits, may fill its queue now and then, and sleep in between.
  if (const auto other = awaited_other_thread(job_, s))
    return run_state_of(job_, job_.ranks[s.rank].threads[*other]) == RunState::kSleeping;
  return s.doing.activity == known::Activity::kUserCode && !s.dead_child &&
         run_state_of(job_, deciding_thread(job_, s)) == RunState::kSleeping;
}

bool Judge::may_compute(const RankState& s) const {
  return s.known_from_gpu && s.doing.activity == known::Activity::kGpuWait && s.gpu.activity == GpuActivity::kKernel &&
         s.gpu_computes != false;
}

bool Judge::is_behind_all(const RankState& s) const {
  return std::all_of(tally_.waiting.begin(), tally_.waiting.end(),
                     [&](std::size_t i) { return divergence_of(s, states_[i]).a_is_behind(); });
}

Verdict Judge::of_waiting() const {
  const std::string waiting = describe_waiting(job_, states_);
  if (!tally_.unknown.empty())
    return with_doubt_of_driver_calls(undecided(fmt::format("{}; {}", waiting, describe_unknown())));
  if (!tally_.failed.empty())
    return undecided(fmt::format("{}; what is missing is the rank that could not be read", waiting));
  const auto ended = needed_of_ended();
  const MissingRanks& missing = facts_.missing;
  if (auto absent = of_absent(needed_of(missing), ended)) return *absent;
  if (tally_.compared == 1)
    if (auto lost = of_lost_party(states_[tally_.waiting.front()])) return *lost;
  if (tally_.compared == 1) return undecided(fmt::format("{}; there is no other rank to compare with", waiting));

  const auto deadlock = explain_deadlock(facts_);
  if (!deadlock)  // they need no rank that was captured, and yet nothing else differs
    if (auto absent = of_absent(missing, tally_.ended)) return *absent;
  if (!deadlock && !several_samples_ && gloo_is_moving())
    return undecided(
        fmt::format("{} at the same place, and their gloo threads are at work: {}", waiting, too_few_samples()));
  if (!deadlock && known_from_gpus()) {
    const std::string differences = describe_gpu_differences(job_);
    return make(
        VerdictStatus::kSymmetric,
        fmt::format("all ranks do the same: {} at the same place, and each GPU runs {}, waiting for the others; the "
                    "cause lies below these frames: {}",
                    waiting, name_collectives(states_[tally_.waiting.front()].gpu),
                    differences.empty()
                        ? "the network (NICs, switches), NVLink, or a call that differs in size or group"
                        : differences));
  }
  if (!deadlock)
    if (auto computing = of_computing_gpus()) return *computing;
  if (!deadlock && dumps_lack(FrameKind::kPython))
    return undecided(
        fmt::format("{} at the same place; their Python frames, which may differ, are not in the dumps", waiting));
  if (!deadlock && in_barrier_of_processes())
    return undecided(
        fmt::format("{} at the same place, and that opens when all for whom it was made are there: one is not among "
                    "these processes; it has ended or was not looked at, or nobody else comes there",
                    waiting));
  if (!deadlock) {
    Verdict symmetric = make(VerdictStatus::kSymmetric,
                             fmt::format("all ranks do the same: {} at the same place; the cause lies below these "
                                         "frames (network, GPU) or in a rank's other threads",
                                         waiting));
    if (tally_.waits_for_gpu_only && may_sample_longer()) symmetric.doubt = Doubt::kGpuWaits;
    return symmetric;
  }
  if (deadlock->suspects.empty()) {
    Verdict verdict =
        undecided(fmt::format("{} at {}; {}", waiting, deadlock->at_one_place ? "the same place" : "different places",
                              deadlock->explanation));
    if (deadlock->may_be_a_step && may_sample_longer() && !have_sampled_long()) verdict.doubt = Doubt::kGpuWaits;
    for (const std::size_t i : deadlock->candidates)
      verdict.candidates.push_back({states_[i].rank, deadlock->reason_of_candidates, deadlock->would_decide,
                                    describe_suspect(job_, states_[i], deadlock->reason_of_candidates)});
    return verdict;
  }
  std::vector<Suspect> suspects;
  for (const Blame& blame : deadlock->suspects)
    suspects.push_back(suspect(states_[blame.state], blame.reason, bounded(blame.confidence)));
  Verdict verdict = culprits(std::move(suspects), deadlock->sides_are_equal ? "" : deadlock->explanation);
  verdict.reference = deadlock->reference;
  if (deadlock->may_be_a_step && may_sample_longer() && !have_sampled_long())
    verdict.doubt = lacks_gpus_of(deadlock->suspects) ? Doubt::kWorks : Doubt::kGpuWaits;
  if (deadlock->sides_are_equal)
    verdict.summary = make(VerdictStatus::kCulprit,
                           deadlock->explanation + ": both cannot be right, and the stacks do not show which is")
                          .summary;
  return verdict;
}

bool Judge::lacks_gpus_of(const std::vector<Blame>& suspects) const {
  return std::any_of(job_.ranks.begin(), job_.ranks.end(), gpus_were_examined) &&
         std::any_of(suspects.begin(), suspects.end(),
                     [&](const Blame& blame) { return !gpus_were_examined(job_.ranks[states_[blame.state].rank]); });
}

MissingRanks Judge::needed_of(MissingRanks missing) const {
  if (!all_certain(facts_.operations)) return missing;
  std::set<int> needed;
  for (const PendingOperation& operation : facts_.operations)
    needed.insert(operation.unseen.begin(), operation.unseen.end());
  for (std::vector<int>* numbers : {&missing.certain, &missing.alive, &missing.elsewhere})
    std::erase_if(*numbers, [&](int number) { return !needed.contains(number); });
  return missing;
}

std::optional<Verdict> Judge::of_absent(const MissingRanks& missing, const std::vector<std::size_t>& ended) const {
  const std::string waiting = describe_waiting(job_, states_);
  if (!missing.certain.empty()) {
    // The ranks have met before, and only the cores of some are available: a missing core does not mean that its rank
    // is missing.
    const bool have_met = std::all_of(tally_.waiting.begin(), tally_.waiting.end(), [&](std::size_t i) {
      const Doing& doing = states_[i].doing;
      return doing.activity != known::Activity::kStoreWait && doing.operation.kind != known::OperationKind::kSetUp &&
             job_.ranks[states_[i].rank].source == Source::kCore;
    });
    if (have_met)
      return undecided(fmt::format("{}; the cores of ranks {} are not among these, and are needed to find the cause",
                                   waiting, format_numbers(missing.certain)));
    return of_missing(missing.certain);
  }
  if (!ended.empty()) return of_ended(ended);
  if (!missing.alive.empty())
    return undecided(fmt::format(
        "{}; ranks {} run on this machine and were not looked at: add their processes to --pids, or use --job", waiting,
        format_numbers(missing.alive)));
  if (auto silent = of_silent_nodes(missing)) return silent;
  if (!missing.elsewhere.empty())
    return undecided(
        fmt::format("{}; ranks {} were not looked at: look at them too, on their machines, and merge the reports",
                    waiting, format_numbers(missing.elsewhere)));
  return std::nullopt;
}

bool Judge::in_barrier_of_processes() const {
  return std::all_of(tally_.waiting.begin(), tally_.waiting.end(), [&](std::size_t i) {
    const Doing& doing = states_[i].doing;
    const ThreadSnapshot& thread = job_.ranks[states_[i].rank].threads[doing.thread];
    return doing.activity == known::Activity::kCollective && doing.by_frame &&
           is_place(job_.frames[thread.frames[doing.frame]], known::Place::kProcessLock);
  });
}

bool Judge::known_from_gpus() const {
  return std::all_of(tally_.waiting.begin(), tally_.waiting.end(),
                     [&](std::size_t i) { return states_[i].gpu.in_collective(); });
}

}  // namespace rankstacks::analyzers
