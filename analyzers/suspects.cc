#include "analyzers/judge.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analyzers/coordinates.h"
#include "analyzers/thread_waits.h"
#include "analyzers/verdict_words.h"
#include "analyzers/watchdog_reporters.h"
#include "analyzers/whole_hosts.h"
#include "base/text.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {

namespace {

std::vector<Evidence> evidence_for(const JobSnapshot& job, const RankState& s) {
  std::vector<Evidence> evidence;
  if (s.known_from_child) {
    const ThreadSnapshot& worker = job.ranks[*s.known_from_child].threads[s.child_thread];
    evidence.push_back({*s.known_from_child, s.child_thread, deciding_frame(job, worker).value_or(0)});
  }
  const ThreadSnapshot& thread = deciding_thread(job, s);
  const std::size_t place = s.doing.activity == known::Activity::kDataLoading
                                ? deciding_frame(job, thread).value_or(s.doing.frame)
                                : s.doing.frame;
  evidence.push_back({s.rank, s.doing.thread, place});
  // The holder of a lock explains why other threads wait for it.
  const auto& threads = job.ranks[s.rank].threads;
  const bool on_lock =
      s.doing.activity == known::Activity::kNativeLock || s.doing.activity == known::Activity::kPythonLock;
  const auto wait = on_lock ? thread_wait_of(job.ranks[s.rank], s.doing.thread) : std::nullopt;
  if (wait && wait->thread != s.doing.thread && !threads[wait->thread].frames.empty())
    evidence.push_back({s.rank, wait->thread, deciding_frame(job, threads[wait->thread]).value_or(0)});
  return evidence;
}

}  // namespace

std::string Judge::numbers_seen_twice() const {
  std::set<int> seen, twice;
  for (const RankState& s : states_)
    if (const auto number = job_.ranks[s.rank].rank; number && !s.ended && !s.unrelated && !seen.insert(*number).second)
      twice.insert(*number);
  if (twice.empty()) return "";
  return fmt::format("rank{} {} {}", plural(twice.size()), format_numbers({twice.begin(), twice.end()}),
                     twice.size() == 1 ? "is" : "are");
}

Verdict Judge::make(VerdictStatus status, std::string summary) const {
  if (!tally_.unrelated.empty())
    summary +=
        fmt::format("; {} {} not of this job", pids_of(tally_.unrelated), tally_.unrelated.size() == 1 ? "is" : "are");
  if (!tally_.failed.empty() && tally_.failed.size() < tally_.compared) {
    const std::vector<std::size_t> recorded = ranks_of(tally_.recorded_only);
    std::vector<std::size_t> failed = tally_.failed;
    std::erase_if(failed,
                  [&](std::size_t r) { return std::find(recorded.begin(), recorded.end(), r) != recorded.end(); });
    if (!failed.empty()) summary += fmt::format("; {} could not be read", name_ranks(job_, failed));
    if (!recorded.empty())
      summary += fmt::format("; of {} only the dump of a Flight Recorder is at hand", name_ranks(job_, recorded));
  }
  if (!tally_.gpu_only.empty() && tally_.gpu_only.size() < tally_.compared)
    summary += fmt::format("; of {} only the GPU's state is at hand", name_ranks(job_, ranks_of(tally_.gpu_only)));
  if (!tally_.partial.empty())
    summary += fmt::format("; {} {} read only in part", name_ranks(job_, tally_.partial),
                           tally_.partial.size() == 1 ? "was" : "were");
  const std::string reported = describe_watchdog_reporters(job_, reporters_, common_work(states_).has_value());
  if (!reported.empty()) summary += "; " + reported;
  if (const std::string own = describe_own_watchdogs(job_, states_, own_watchdogs_); !own.empty())
    summary += "; " + own;
  Verdict verdict;
  verdict.status = status;
  verdict.summary = std::move(summary);
  return verdict;
}

std::vector<std::size_t> Judge::ranks_of(const std::vector<std::size_t>& states) const {
  std::vector<std::size_t> ranks;
  for (const std::size_t i : states) ranks.push_back(states_[i].rank);
  return ranks;
}

std::string Judge::sentence(const std::vector<Suspect>& suspects, const std::string& waiting) const {
  // Messages of several ranks are shown one by one: each of them has another peer.
  constexpr std::size_t kMaxTold = 4;
  std::size_t shown_alone = 1;
  if (suspects.front().reason == Reason::kUnmatchedP2p && suspects.size() <= kMaxTold)
    while (shown_alone < suspects.size() && suspects[shown_alone].reason == Reason::kUnmatchedP2p) ++shown_alone;
  std::vector<std::size_t> like_first, others;
  for (std::size_t i = 0; i < suspects.size(); ++i)
    if (i == 0 || i >= shown_alone)
      (suspects[i].reason == suspects.front().reason ? like_first : others).push_back(suspects[i].rank);
  std::string text = suspects.front().summary;
  for (std::size_t i = 1; i < shown_alone; ++i) text += (i + 1 == shown_alone ? " and " : ", ") + suspects[i].summary;
  if (!waiting.empty()) text += " while " + waiting;
  like_first.erase(like_first.begin());
  if (!like_first.empty()) {
    text += fmt::format("; {} likewise", name_ranks(job_, like_first));
    like_first.push_back(suspects.front().rank);
    std::string where = whole_stages(job_, like_first);
    if (where.empty()) where = WholeHosts(job_).describe(like_first);
    if (!where.empty()) text += fmt::format(" ({})", where);
  }
  std::map<Reason, std::vector<std::size_t>> by_reason;
  for (const Suspect& s : suspects)
    if (s.reason != suspects.front().reason) by_reason[s.reason].push_back(s.rank);
  for (const auto& [reason, ranks] : by_reason)
    text += fmt::format("; also {} ({})", name_ranks(job_, ranks), to_string(reason));
  return text;
}

Suspect Judge::suspect(const RankState& s, Reason reason, double confidence) const {
  Suspect one;
  one.rank = s.rank;
  one.summary = fmt::format("{} {}", name_with_coordinates(job_, s.rank), describe_suspect(job_, s, reason));
  one.advice = advice_for(job_, s, reason);
  one.confidence = confidence;
  if (!job_.ranks[s.rank].threads.empty()) one.evidence = evidence_for(job_, s);
  std::copy_if(reporters_.begin(), reporters_.end(), std::back_inserter(one.evidence),
               [&](const Evidence& m) { return m.rank == s.rank; });
  one.reason = reason;
  return one;
}

Verdict Judge::culprits(std::vector<Suspect> suspects, const std::string& waiting) const {
  std::stable_sort(suspects.begin(), suspects.end(),
                   [](const Suspect& a, const Suspect& b) { return a.confidence > b.confidence; });
  Verdict verdict = make(VerdictStatus::kCulprit, sentence(suspects, waiting));
  verdict.suspects = std::move(suspects);
  return verdict;
}

std::string Judge::pids_of(const std::vector<std::size_t>& ranks) const {
  constexpr std::size_t kMax = 8;
  std::string text = fmt::format("pid{}", plural(ranks.size()));
  for (std::size_t i = 0; i < ranks.size() && i < kMax; ++i)
    text += fmt::format("{}{}", i == 0 ? " " : ",", job_.ranks[ranks[i]].pid);
  return ranks.size() > kMax ? fmt::format("{} and {} more", text, ranks.size() - kMax) : text;
}

}  // namespace rankstacks::analyzers
