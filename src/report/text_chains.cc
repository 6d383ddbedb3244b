#include "report/text_chains.h"

#include <algorithm>

#include <fmt/format.h>

#include "model/rank_set.h"
#include "report/sanitize.h"

namespace rankstacks::report {
namespace {

// The rank that depends on the suspect waits for a thread of its own (autograd's, in a backward pass), and that one for
// the others. The summary names the wait only.
bool begins_with_two_threads(const JobSnapshot& job, const analyzers::WaitGraph& waits,
                             const analyzers::WaitChain& chain) {
  if (chain.links.size() < 3) return false;
  const auto& first = waits.nodes()[chain.links[0].node];
  const auto& second = waits.nodes()[chain.links[1].node];
  return first.thread && second.thread && first.rank == second.rank &&
         job.ranks[*first.rank].kind != RankKind::kChild && chain.from == first.rank;
}

// The rank that depends on the suspect waits in an operation that its own frames do not name: its GPU or its watchdog
// does. The summary has the operation, and not where the rank waits for it. In a circle there are operations only.
bool names_hidden_operation(const analyzers::WaitGraph& waits, const analyzers::WaitChain& chain) {
  using analyzers::NodeKind, analyzers::WaitEvidence;
  for (std::size_t i = 0; i + 2 < chain.links.size(); ++i)
    if (waits.nodes()[chain.links[i + 1].node].kind == NodeKind::kOperation)
      return (chain.links[i].evidence == WaitEvidence::kKernel || chain.links[i].evidence == WaitEvidence::kMemory) &&
             waits.nodes()[chain.links[i + 2].node].kind == NodeKind::kThread;
  return false;
}

}  // namespace

std::string describe_link(const JobSnapshot& job, const analyzers::WaitNode& node,
                          std::optional<std::size_t> rank_before) {
  const bool runs = node.kind == analyzers::NodeKind::kThread || node.kind == analyzers::NodeKind::kProcess;
  if (!runs || !node.rank) return node.text;  // without a rank: a process that was not captured
  const RankSnapshot& rank = job.ranks[*node.rank];
  const std::string text = node.text.empty() ? "" : " " + node.text;
  if (!node.thread || rank.threads[*node.thread].tid == rank.pid)
    return fmt::format(
        "{}{}",
        rank.kind == RankKind::kChild ? fmt::format("its child, pid {}", rank.pid) : name_ranks(job, {*node.rank}),
        text);
  const ThreadSnapshot& thread = rank.threads[*node.thread];
  const std::string name =
      thread.name.empty() ? std::to_string(thread.tid) : fmt::format("{} ({})", thread.name, thread.tid);
  return fmt::format("{} {}{}",
                     rank_before == node.rank ? "its thread" : fmt::format("{}, thread", name_ranks(job, {*node.rank})),
                     name, text);
}

std::string describe_chain(const JobSnapshot& job, const analyzers::Analysis& analysis, bool even_if_short) {
  const analyzers::Verdict& verdict = analysis.verdict;
  if (verdict.chains.empty() || verdict.chains.front().suspect != 0) return "";
  const analyzers::WaitChain& chain = verdict.chains.front();
  if (chain.links.size() < 2) return "";  // the suspect alone, for which nobody waits any more
  const auto& nodes = analysis.waits.nodes();
  // A single lock with its owner, or a single child, is in the summary already.
  const auto steps = std::count_if(chain.links.begin(), chain.links.end(), [&](const analyzers::WaitChain::Link& link) {
    const analyzers::NodeKind kind = nodes[link.node].kind;
    return kind == analyzers::NodeKind::kLock || kind == analyzers::NodeKind::kProcess ||
           (kind == analyzers::NodeKind::kThread && job.ranks[*nodes[link.node].rank].kind == RankKind::kChild);
  });
  if (steps < 2 && !even_if_short && !begins_with_two_threads(job, analysis.waits, chain) &&
      !names_hidden_operation(analysis.waits, chain))
    return "";
  std::string text;
  std::optional<std::size_t> rank;
  for (const analyzers::WaitChain::Link& link : chain.links) {
    text += (text.empty() ? "chain: " : " <- ") + describe_link(job, nodes[link.node], rank);
    if (nodes[link.node].rank) rank = nodes[link.node].rank;
  }
  return sanitize(text);
}

std::string describe_candidates(const JobSnapshot& job, const analyzers::Verdict& verdict) {
  if (verdict.candidates.empty()) return "";
  const analyzers::Candidate& first = verdict.candidates.front();
  return sanitize(fmt::format("if it hangs, look at {} first: it {}; what would decide: {}",
                              name_ranks(job, {first.rank}), first.summary, first.would_decide));
}

}  // namespace rankstacks::report
