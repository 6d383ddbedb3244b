#include "capture/titled_servers.h"

#include <algorithm>
#include <set>

#include "capture/job_processes.h"
#include "capture/titled_ranks.h"

namespace rankstacks::capture {
namespace {

// Process trees are less deep; the table is not read in one instant, so it may contain a cycle.
constexpr int kMaxDepth = 64;

bool is_of_server(const std::optional<known::Title>& title) {
  return title && (title->part == known::TitlePart::kWorker || title->part == known::TitlePart::kDirector);
}

}  // namespace

const std::optional<known::Title>& TitledServers::title(Pid pid) {
  const auto [known, is_new] = titles_.try_emplace(pid);
  if (is_new && facts_.title) known->second = known::title_of(facts_.title(pid));
  return known->second;
}

bool TitledServers::is_part(Pid pid) { return is_of_server(title(pid)); }

std::vector<Pid> TitledServers::with_descendants(Pid pid) const {
  std::vector<Pid> found = {pid};
  std::set<Pid> met = {pid};
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const Pid child : table_.children(found[i]))
      if (met.insert(child).second) found.push_back(child);
  return {met.begin(), met.end()};
}

Pid TitledServers::root_of(Pid pid) {
  const std::string family = title(pid) ? title(pid)->family : "";
  for (int depth = 0; depth < kMaxDepth; ++depth) {
    const ProcessEntry* entry = table_.find(pid);
    if (entry == nullptr || table_.find(entry->parent) == nullptr) return pid;
    pid = entry->parent;
    if (!is_part(pid) || title(pid)->family != family) return pid;
  }
  return pid;
}

std::vector<Pid> TitledServers::parts_below(Pid pid, known::TitlePart part) {
  std::vector<Pid> parts;
  if (!facts_.title) return parts;
  for (const Pid one : with_descendants(pid))
    if (title(one) && title(one)->part == part) parts.push_back(one);
  return parts;
}

void TitledServers::number(Pid root, const std::string& family) {
  const std::vector<Pid> below = with_descendants(root);
  std::vector<Pid> pids;
  std::vector<known::Title> titles;
  if (facts_.read_ahead) facts_.read_ahead(below);
  for (const Pid pid : below)
    if (title(pid) && title(pid)->family == family && title(pid)->part == known::TitlePart::kWorker) {
      pids.push_back(pid);
      titles.push_back(*title(pid));
    }
  const std::vector<RankIdentity> identities = ranks_of_titles(titles);
  for (std::size_t i = 0; i < pids.size(); ++i) identities_.emplace(pids[i], identities[i]);
}

std::optional<RankIdentity> TitledServers::identity(Pid pid) {
  const auto& own = title(pid);
  if (!own || own->part != known::TitlePart::kWorker) return std::nullopt;
  if (!identities_.contains(pid)) number(root_of(pid), own->family);
  const auto it = identities_.find(pid);
  return it == identities_.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace rankstacks::capture
