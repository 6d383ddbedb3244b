#include "analyzers/communicator_errors.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "analyzers/place.h"
#include "known/nccl_results.h"
#include "model/process_key.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

bool has_error(const NcclMember& member, int error) { return member.async_error == error && !member.aborted; }

bool some_have_error(const NcclCommunicator& communicator, int error) {
  return std::any_of(communicator.members.begin(), communicator.members.end(),
                     [&](const NcclMember& member) { return has_error(member, error); });
}

// The states of its members, if all of them wait in as many launches.
std::optional<Misfit> misfit_of(const NcclCommunicator& communicator,
                                const std::map<ProcessKey, std::size_t>& waiting) {
  if (!communicator.missing.empty() || communicator.members.size() != static_cast<std::size_t>(communicator.size))
    return std::nullopt;
  Misfit found;
  for (const NcclMember& member : communicator.members) {
    if (member.aborted || member.finalized || member.counts_move || !member.process ||
        member.launched != communicator.members.front().launched)
      return std::nullopt;
    const auto state = waiting.find(process_key(*member.process));
    if (state == waiting.end()) return std::nullopt;
    found.members.push_back(state->second);
    if (has_error(member, known::kNcclInvalidUsage)) found.have_met.push_back(state->second);
  }
  // One process may be several members, with a GPU each.
  for (Side* side : {&found.members, &found.have_met}) {
    std::sort(side->begin(), side->end());
    side->erase(std::unique(side->begin(), side->end()), side->end());
  }
  if (found.members.size() < 2) return std::nullopt;
  return found;
}

// Whether the rank may wait in a collective of NCCL.
bool may_wait_in_nccl(const RankState& s) {
  return s.gpu_wait_may_be_collective || s.gpu.in_collective() || s.doing.activity == known::Activity::kCollective;
}

std::string sides_of(const WaitingJob& waiting, const Side& members) {
  std::map<std::string, Side> places;
  for (const std::size_t i : members) places[place_key(waiting.job, waiting.states[i])].push_back(i);
  std::vector<Side> sides;
  for (auto& [place, side] : places) sides.push_back(std::move(side));
  std::sort(sides.begin(), sides.end());
  return waiting.with_sides(std::move(sides)).describe_sides();
}

// The captured processes of members.
class Named {
 public:
  explicit Named(const JobSnapshot& job) : job_(job) {
    for (std::size_t r = 0; r < job.ranks.size(); ++r) ranks_.emplace(process_key(job.ranks[r]), r);
  }

  // "ranks 0-1 and 6 others"; those that `is_meant` says.
  template <class F>
  std::string operator()(const std::vector<NcclMember>& members, F is_meant, std::size_t all = 0) const {
    std::vector<std::size_t> ranks;
    std::size_t meant = 0;
    for (const NcclMember& member : members) {
      if (!is_meant(member)) continue;
      ++meant;
      if (!member.process) continue;
      if (const auto found = ranks_.find(process_key(*member.process)); found != ranks_.end())
        ranks.push_back(found->second);
    }
    const std::size_t others = std::max(all, meant) - ranks.size();
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    std::string text = ranks.empty() ? "" : name_ranks(job_, ranks);
    if (others > 0)
      text += ranks.empty() ? fmt::format("{} that {} not looked at", others, others == 1 ? "was" : "were")
                            : fmt::format(" and {} {}", others, others == 1 ? "other" : "others");
    return text;
  }

 private:
  const JobSnapshot& job_;
  std::map<ProcessKey, std::size_t> ranks_;
};

}  // namespace

std::optional<Misfit> find_misfit(const JobSnapshot& job, const std::vector<RankState>& states) {
  if (!job.nccl) return std::nullopt;
  std::map<ProcessKey, std::size_t> waiting;
  for (std::size_t i = 0; i < states.size(); ++i)
    if (states[i].readable && !states[i].unrelated && may_wait_in_nccl(states[i]))
      waiting.emplace(process_key(job.ranks[states[i].rank]), i);
  std::optional<Misfit> found;
  for (const NcclCommunicator& communicator : job.nccl->communicators) {
    if (!some_have_error(communicator, known::kNcclInvalidUsage)) continue;
    auto misfit = misfit_of(communicator, waiting);
    if (!misfit || (found && found->members != misfit->members)) return std::nullopt;
    found = std::move(misfit);
  }
  return found;
}

Deadlock explain_misfit(const WaitingJob& waiting, const Misfit& misfit) {
  const std::string met = fmt::format(
      "{} {} been sent more than {} own call takes", name_side(waiting.job, waiting.states, misfit.have_met),
      misfit.have_met.size() == 1 ? "has" : "have", misfit.have_met.size() == 1 ? "its" : "their");
  const std::string by_nccl = fmt::format("by NCCL their calls do not fit each other, as {} ({})", met,
                                          known::nccl_result_name(known::kNcclInvalidUsage));
  if (misfit.members.size() == 2)
    return accuse_side(misfit.members, Reason::kCollectiveMismatch,
                       fmt::format("{}; {}", sides_of(waiting, misfit.members), by_nccl), true);
  Deadlock found = undecided(fmt::format(
      "by NCCL the calls of {} do not all fit each other, as {} ({}): whose call is "
      "the odd one is not known",
      name_side(waiting.job, waiting.states, misfit.members), met, known::nccl_result_name(known::kNcclInvalidUsage)));
  found.at_one_place = waiting.sides.size() == 1;
  found.candidates = misfit.have_met;
  found.would_decide =
      waiting.known_from_gpus() ? "dumps of PyTorch's Flight Recorder" : "--gpu, or dumps of PyTorch's Flight Recorder";
  return found;
}

bool is_lost_peer(const JobSnapshot& job, int number) {
  if (!job.nccl) return false;
  const auto of_all = [&](const NcclCommunicator& communicator) {
    return std::any_of(job.ranks.begin(), job.ranks.end(),
                       [&](const RankSnapshot& rank) { return rank.world_size == communicator.size; });
  };
  return std::any_of(job.nccl->communicators.begin(), job.nccl->communicators.end(), [&](const NcclCommunicator& one) {
    return of_all(one) && some_have_error(one, known::kNcclRemoteError) &&
           std::any_of(one.missing.begin(), one.missing.end(),
                       [&](const NcclMember& member) { return member.rank == number; });
  });
}

std::vector<std::string> describe_communicator_errors(const JobSnapshot& job) {
  std::vector<std::string> lines;
  if (!job.nccl) return lines;
  const Named name(job);
  for (const NcclCommunicator& communicator : job.nccl->communicators) {
    const std::string of =
        fmt::format("communicator of {}: ", name(
                                                communicator.members, [](const NcclMember&) { return true; },
                                                static_cast<std::size_t>(std::max(communicator.size, 0))));
    std::map<int, std::size_t> errors;
    std::size_t finalized = 0, aborted = 0;
    for (const NcclMember& member : communicator.members) {
      if (known::is_nccl_error(member.async_error)) ++errors[member.async_error];
      finalized += member.finalized;
      aborted += member.aborted;
    }
    for (const auto& [error, count] : errors) {
      const std::string_view word = known::nccl_result_name(error);
      lines.push_back(fmt::format(
          "{}{} at {}{}", of, word.empty() ? fmt::format("error {}", error) : std::string(word),
          name(communicator.members, [&e = error](const NcclMember& member) { return member.async_error == e; }),
          word.empty() ? "" : fmt::format(" ({})", known::nccl_result_meaning(error))));
    }
    if (aborted > 0)
      lines.push_back(fmt::format("{}aborted by {} (ncclCommAbort)", of,
                                  name(communicator.members, [](const NcclMember& member) { return member.aborted; })));
    // All of them do so at the end of a program.
    if (finalized > 0 && finalized < communicator.members.size())
      lines.push_back(
          fmt::format("{}finalized or destroyed by {}, not by the others", of,
                      name(communicator.members, [](const NcclMember& member) { return member.finalized; })));
  }
  return lines;
}

}  // namespace rankstacks::analyzers
