// Which processes make up a job: the ranks, and the children that belong to them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "capture/rank_identity.h"
#include "model/snapshot.h"

namespace rankstacks {

// What is known of one process before anything is stopped. Filled by ProcessTable::scan() for a machine, or literally in a test.
struct ProcessEntry {
  Pid pid = 0, parent = 0;
  std::string name;            // comm
  char state = 0;
  int threads = 1;
  bool kernel_thread = false;
  std::uint64_t start_ticks = 0;   // after the machine's start; 0: unknown
};

class ProcessTable {
 public:
  explicit ProcessTable(std::vector<ProcessEntry> entries);
  static ProcessTable scan();

  const ProcessEntry* find(Pid pid) const;
  const std::vector<Pid>& children(Pid pid) const;   // ascending
  const std::map<Pid, ProcessEntry>& all() const { return entries_; }

 private:
  std::map<Pid, ProcessEntry> entries_;
  std::map<Pid, std::vector<Pid>> children_;
};

struct PlannedTarget {
  Pid pid = 0;
  RankKind kind = RankKind::kRank;
  std::optional<Pid> parent;       // of a child: its rank
  RankIdentity identity;           // of a rank
};

// The environment of a process, looked at as seldom as possible: it costs reads.
struct ProcessFacts {
  std::function<std::map<std::string, std::string>(Pid)> environment;
  std::function<bool(Pid)> is_wrapper;      // a shell or the like that does nothing but wait for its only child
  std::function<bool(Pid)> can_train = {};  // it has loaded a library by which ranks talk to each other; none: not known of any
  std::function<void(const std::vector<Pid>&)> read_ahead = {};   // these environments are about to be asked for, one after the other
};

// Explicit pids: each stands for itself, a launcher (torchrun, mpirun, a spawning parent) for its ranks, a wrapper for what it wraps; children
// are taken along. Order: ranks as given, each followed by its children. No pid twice. `self`, this tool, and what does nothing but wait for it (a
// `timeout` or a shell around it) are nobody's rank or child, unless they were named.
std::vector<PlannedTarget> plan_pids(const std::vector<Pid>& pids, const ProcessTable& table, const ProcessFacts& facts, Pid self);

// Ranks of the same job as those planned that are on this machine and not among them: of the same program, of a world of the same size at the same
// MASTER_PORT. Only looked for where the world has more ranks than were planned. By number.
std::vector<UnseenRank> find_unseen(const std::vector<PlannedTarget>& plan, const ProcessTable& table, const ProcessFacts& facts, const std::string& host, Pid self);

// Every process of the machine that has a rank. The tool's ancestors (an srun shell, `timeout`, a script) have the variables of one in their environment
// and are none, but those of several threads: a watchdog in a rank may have started the tool.
std::vector<PlannedTarget> plan_job(const ProcessTable& table, const ProcessFacts& facts, Pid self);

// Processes of other users whose environments the kernel does not show to this one, of which any could be a rank.
std::size_t count_hidden_environments();

}  // namespace rankstacks
