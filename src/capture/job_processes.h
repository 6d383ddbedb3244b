// Determines which processes make up a job: the ranks, and the children that belong to them.
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

namespace rankstacks::capture {

// What is known about one process before any process is stopped. Filled in by ProcessTable::scan() for a machine, or
// literally in a test.
struct ProcessEntry {
  Pid pid = 0, parent = 0;
  std::string name;  // comm
  char state = 0;
  int threads = 1;
  bool kernel_thread = false;
  std::uint64_t start_ticks = 0;  // after the machine's start; 0: unknown
};

class ProcessTable {
 public:
  explicit ProcessTable(std::vector<ProcessEntry> entries);
  static ProcessTable scan();

  const ProcessEntry* find(Pid pid) const;
  const std::vector<Pid>& children(Pid pid) const;  // ascending
  const std::map<Pid, ProcessEntry>& all() const { return entries_; }

 private:
  std::map<Pid, ProcessEntry> entries_;
  std::map<Pid, std::vector<Pid>> children_;
};

struct PlannedTarget {
  Pid pid = 0;
  RankKind kind = RankKind::kRank;
  std::optional<Pid> parent;  // of a child: its rank
  RankIdentity identity;      // of a rank
};

// Whose a process is, and where it is: what the kernel says, not the process.
struct ProcessPlace {
  std::optional<long> user;  // real user id
  std::string network;       // network namespace, "net:[4026531840]"; empty: unknown, as it may not be read
  std::string cgroups;       // /proc/PID/cgroup, all lines
  bool adopts = false;       // pid 1 of a pid namespace: the parent of processes whose parent has ended
};

// Facts about a process that are read on demand, and as seldom as possible, because reading them is expensive.
struct ProcessFacts {
  std::function<std::map<std::string, std::string>(Pid)> environment;
  // Whether it waits for its only child: a shell or similar process around a program, or a rank in system().
  std::function<bool(Pid)> is_wrapper;
  // Whether it has loaded a library with which ranks communicate; if empty, this is not known for any process.
  std::function<bool(Pid)> can_train = {};
  // The first word of its command line, which may be a title (known/process_titles.h).
  std::function<std::string(Pid)> title = {};
  // Announces that the environments of these processes will be asked for, one after the other.
  std::function<void(const std::vector<Pid>&)> read_ahead = {};
  std::function<ProcessPlace(Pid)> place = {};  // if empty, all processes are of one user, in one place
};

// The targets for explicit pids. Each pid stands for itself, that of a launcher (torchrun, mpirun, a spawning parent)
// for its ranks, that of a wrapper for the program that it wraps; children are included. Order: ranks as given, each
// followed by its children. No pid occurs twice. `self` is this tool; it and processes that only wait for it (a
// `timeout` or a shell around it) are never a rank or a child, unless they were named. The processes of a server that
// direct its workers and have no rank (known/process_titles.h) are ranks without a number.
std::vector<PlannedTarget> plan_pids(const std::vector<Pid>& pids, const ProcessTable& table, const ProcessFacts& facts,
                                     Pid self);

// The running ranks of the same job on this machine that are not in `plan`: of the same program, with the same world
// size and the same MASTER_PORT. Only searched for if the world has more ranks than were planned. Sorted by number.
std::vector<UnseenRank> find_unseen(const std::vector<PlannedTarget>& plan, const ProcessTable& table,
                                    const ProcessFacts& facts, const std::string& host, Pid self);

// Every process of the machine that has a rank. The tool's ancestors (an srun shell, `timeout`, a script) have the
// variables of a rank in their environment but are not ranks, except those with several threads: a watchdog in a rank
// may have started the tool.
std::vector<PlannedTarget> plan_job(const ProcessTable& table, const ProcessFacts& facts, Pid self);

// The number of processes of other users whose environments the kernel does not show to this process; any of them could
// be a rank.
std::size_t count_hidden_environments();
// Whether one of them may be: not if all are services of the system, or what this process was started by.
bool may_hide_ranks();

}  // namespace rankstacks::capture
