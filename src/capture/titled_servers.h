// The servers among a machine's processes, known by the titles of their processes:
//
//     vllm serve                    the root: the first process above them without such a title
//       VLLM::EngineCore            a director
//         VLLM::Worker_TP0          rank 0
//         VLLM::Worker_TP1          rank 1
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "capture/rank_identity.h"
#include "known/process_titles.h"

namespace rankstacks::capture {

class ProcessTable;
struct ProcessFacts;

// Keeps references to both. Each server is looked at once, when one of its processes is first asked for.
class TitledServers {
 public:
  TitledServers(const ProcessTable& table, const ProcessFacts& facts) : table_(table), facts_(facts) {}

  // Of a worker; std::nullopt of any other process.
  std::optional<RankIdentity> identity(Pid pid);
  bool is_part(Pid pid);  // of a server: a worker or a director
  // The process that has started the server; `pid` is a part of it.
  Pid root_of(Pid pid);
  // The directors among a process and its descendants, ascending.
  std::vector<Pid> directors_below(Pid pid) { return parts_below(pid, known::TitlePart::kDirector); }
  // The same of Ray's actors and tasks.
  std::vector<Pid> actors_below(Pid pid) { return parts_below(pid, known::TitlePart::kActor); }

 private:
  const std::optional<known::Title>& title(Pid pid);
  std::vector<Pid> parts_below(Pid pid, known::TitlePart part);
  std::vector<Pid> with_descendants(Pid pid) const;  // ascending
  void number(Pid root, const std::string& family);

  const ProcessTable& table_;
  const ProcessFacts& facts_;
  std::map<Pid, std::optional<known::Title>> titles_;
  std::map<Pid, RankIdentity> identities_;  // of the workers of the servers that were looked at
};

}  // namespace rankstacks::capture
