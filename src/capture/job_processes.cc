#include "capture/job_processes.h"

#include <fmt/format.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <iterator>
#include <set>
#include <utility>

#include "base/text.h"
#include "capture/titled_servers.h"
#include "known/starting_programs.h"
#include "target/proc.h"

namespace rankstacks::capture {
namespace {

// Finds ranks below a process and the children below ranks; caches identities, so that each process is asked once.
class Planner {
 public:
  Planner(const ProcessTable& table, const ProcessFacts& facts, Pid self, bool whole_job)
      : table_(table), facts_(facts), self_(self), whole_job_(whole_job), servers_(table, facts) {
    bool only_leads = true;
    int depth = 0;
    for (const ProcessEntry* at = table_.find(self); at != nullptr && depth < kMaxDepth;
         at = table_.find(at->parent), ++depth) {
      if (at->pid != self) {
        ancestors_.insert(at->pid);
        only_leads = only_leads && table_.children(at->pid).size() == 1;
      }
      if (only_leads) leads_to_self_.insert(at->pid);
    }
    leads_to_self_.insert(self);
  }

  const RankIdentity& identity(Pid pid) {
    auto it = identities_.find(pid);
    if (it != identities_.end()) return it->second;
    RankIdentity found = identity_from_environment(facts_.environment(pid));
    if (found.precedence < 0 || found.precedence > RankIdentity::kTitle)
      if (const auto titled = servers_.identity(pid)) {
        const RankIdentity inherited = std::exchange(found, *titled);
        found.inherited_rank = inherited.inherited_rank;
        found.inherited_precedence = inherited.inherited_precedence;
      }
    return identities_.emplace(pid, found).first->second;
  }

  // This tool, or an ancestor of it that has inherited its rank from its own environment. A process with several
  // threads may be a rank whose watchdog started the tool; but srun's variables alone do not make a rank of a notebook
  // or editor from which the tool was started.
  bool is_bystander(Pid pid) {
    if (pid == self_) return true;
    if (!whole_job_ || !ancestors_.contains(pid)) return false;
    return table_.find(pid)->threads == 1 || identity(pid).precedence == RankIdentity::kSlurm;
  }

  // Whether it has its rank only from a shell from which the tool was started too: everything started in such a shell
  // has that rank, including `less` and `tee`.
  bool has_it_from_bystander(Pid pid) {
    int depth = 0;
    const ProcessEntry* entry = table_.find(pid);
    for (const ProcessEntry* up = entry ? table_.find(entry->parent) : nullptr; up != nullptr && depth < kMaxDepth;
         up = table_.find(up->parent), ++depth)
      if (is_bystander(up->pid) && inherits(identity(pid), identity(up->pid))) return true;
    return false;
  }

  // Whether it may be a training program, or have started one: a Python process, or one with several threads, as every
  // process that has loaded NCCL or CUDA has.
  bool may_train(Pid pid, int depth = 0) const {
    const ProcessEntry* entry = table_.find(pid);
    if (entry == nullptr || depth > kMaxDepth || leads_to_self_.contains(pid)) return false;
    if (entry->threads > 1 || entry->name.starts_with("python")) return true;
    const auto& children = table_.children(pid);
    return std::any_of(children.begin(), children.end(), [&](Pid child) { return may_train(child, depth + 1); });
  }

  bool empty() const { return planned_.empty(); }

  void add(Pid pid) {
    const ProcessEntry* entry = table_.find(pid);
    if (entry == nullptr || entry->kernel_thread || pid == self_) {
      add_rank(pid, {});  // it does not exist, or cannot be captured: the capture reports that
      return;
    }
    std::vector<Pid> ranks;
    find_ranks(pid, ranks);
    if (ranks.empty() && entry->name == "srun") ranks = slurm_tasks(pid);
    if (ranks.empty()) ranks.push_back(pid);
    const std::vector<Pid> directors = servers_.directors_below(pid);
    const bool unnumbered = ranks == std::vector{pid} && identity(pid).precedence < 0;
    if (unnumbered && !directors.empty()) ranks.clear();
    if (const auto actors = servers_.actors_below(pid); unnumbered && directors.empty() && actors.size() >= 2)
      ranks = actors;
    for (const Pid director : directors)
      if (!is_left_out(director) && std::find(ranks.begin(), ranks.end(), director) == ranks.end())
        ranks.push_back(director);
    const std::set<Pid> others(ranks.begin(), ranks.end());
    for (const Pid rank : ranks) {
      add_rank(rank, identity(rank));
      add_children(rank, rank, others);
    }
  }

  // Adds the processes without a rank that direct the workers planned so far.
  void add_directors() {
    std::set<Pid> roots;
    for (const PlannedTarget& target : planned_)
      if (target.identity.precedence >= 0 && servers_.is_part(target.pid)) roots.insert(servers_.root_of(target.pid));
    for (const Pid root : roots)
      for (const Pid director : servers_.directors_below(root))
        if (!is_left_out(director) && !position_.contains(director)) add_rank(director, {});
  }

  // Returns the planned targets. A rank's helper that was named too (`--pids $(pgrep -f train.py)` also names loader
  // workers) has the rank's number from the environment that it inherited: it becomes a child of that rank, although it
  // was named. A process with another number, or in a job without numbers, is a rank.
  std::vector<PlannedTarget> take() {
    for (PlannedTarget& target : planned_) {
      if (target.kind != RankKind::kRank || !target.identity.rank) continue;
      const ProcessEntry* entry = table_.find(target.pid);
      std::optional<Pid> top;
      int depth = 0;
      for (const ProcessEntry* up = entry ? table_.find(entry->parent) : nullptr;
           up != nullptr && up->pid != target.pid && depth < kMaxDepth; up = table_.find(up->parent), ++depth) {
        const auto at = position_.find(up->pid);
        if (at != position_.end() && planned_[at->second].kind == RankKind::kRank &&
            inherits(target.identity, planned_[at->second].identity))
          top = up->pid;
      }
      if (top) target = {target.pid, RankKind::kChild, top, {}};
    }
    return std::move(planned_);
  }

 private:
  // Whether a process below the requested ones is left out. The kernel's threads are children of kthreadd; they have
  // neither an environment nor a user stack.
  bool is_left_out(Pid pid) const {
    const ProcessEntry* entry = table_.find(pid);
    return leads_to_self_.contains(pid) || (entry != nullptr && entry->kernel_thread);
  }

  // Finds the topmost ranks at or below `pid`. A process that has a rank itself is replaced by descendants whose rank
  // comes from variables closer to the program (`srun torchrun`), or by the program that it merely wraps.
  void find_ranks(Pid pid, std::vector<Pid>& ranks, int depth = 0) {
    if (depth > kMaxDepth) return;
    std::vector<Pid> below;
    const RankIdentity own = identity(pid);
    for (const Pid child : table_.children(pid))
      if (!is_left_out(child)) find_ranks(child, below, depth + 1);
    const bool nearer =
        std::any_of(below.begin(), below.end(), [&](Pid p) { return identity(p).precedence < own.precedence; });
    const bool wraps = below.size() == 1 && inherits(identity(below.front()), own) && facts_.is_wrapper(pid) &&
                       only_starts(pid, below.front());
    const bool starts_other =
        std::any_of(below.begin(), below.end(), [&](Pid p) { return !inherits(identity(p), own); });
    if (own.precedence < 0 || nearer || wraps || is_bystander(pid)) {
      ranks.insert(ranks.end(), below.begin(), below.end());
      return;
    }
    if (const auto trainer = only_trainer(pid, below)) {
      ranks.push_back(*trainer);
      return;
    }
    ranks.push_back(pid);
    // A rank may have started other ranks (multiprocessing.spawn in a process that has RANK itself): those are ranks
    // too, but its helpers are not.
    if (starts_other)
      for (const Pid p : below)
        if (!inherits(identity(p), own)) ranks.push_back(p);
  }

  known::ProgramKind program(Pid pid) const {
    const ProcessEntry* entry = table_.find(pid);
    return known::kind_of_program(entry != nullptr ? entry->name : std::string(),
                                  facts_.title ? facts_.title(pid) : std::string());
  }

  // Whether a process that waits for its only child has a rank's variables only to hand them on to this child. A rank
  // may wait in system() for a program that does something for it.
  bool only_starts(Pid pid, Pid child) {
    if (program(child) == known::ProgramKind::kUtility) return false;
    if (program(pid) == known::ProgramKind::kStarter) return true;
    return program(child) != known::ProgramKind::kStarter && !(facts_.can_train && facts_.can_train(pid)) &&
           !has_working_namesake(pid);
  }

  // Whether the same program is another rank of this job that does something else than to wait for its only child.
  bool has_working_namesake(Pid pid) {
    const ProcessEntry* own = table_.find(pid);
    if (own == nullptr) return false;
    std::vector<Pid> namesakes;
    for (const auto& [other, entry] : table_.all())
      if (other != pid && !entry.kernel_thread && entry.state != 'Z' && entry.name == own->name && !is_left_out(other))
        namesakes.push_back(other);
    if (facts_.read_ahead) facts_.read_ahead(namesakes);
    return std::any_of(namesakes.begin(), namesakes.end(), [&](Pid other) {
      const RankIdentity &its = identity(other), &mine = identity(pid);
      if (!its.rank || !mine.rank || its.rank == mine.rank || its.precedence != mine.precedence ||
          its.world_size != mine.world_size || facts_.is_wrapper(other))
        return false;
      const Pid parent = table_.find(other)->parent;  // what a program of this name has started may be wrapped by it
      return identity(parent).precedence < 0 || !inherits(its, identity(parent));
    });
  }

  // For a script around a training program, in shell (`python train.py | tee log`) or in Python: returns that program,
  // which is recognised by libraries that it has loaded and the script has not.
  std::optional<Pid> only_trainer(Pid script, const std::vector<Pid>& below) {
    if (below.empty() || !facts_.can_train || facts_.can_train(script) ||
        !std::all_of(below.begin(), below.end(), [&](Pid p) { return inherits(identity(p), identity(script)); }))
      return std::nullopt;
    std::vector<Pid> trainers;
    std::copy_if(below.begin(), below.end(), std::back_inserter(trainers), facts_.can_train);
    if (trainers.size() != 1) return std::nullopt;
    return trainers.front();
  }

  std::vector<Pid> slurm_tasks(Pid srun) {
    const auto own = facts_.environment(srun);
    std::vector<Pid> tasks;
    for (const auto& [pid, entry] : table_.all()) {
      if (pid == srun || entry.kernel_thread || leads_to_self_.contains(pid)) continue;
      const auto environment = facts_.environment(pid);
      if (!environment.contains("SLURM_PROCID")) continue;
      const auto job = own.find("SLURM_JOB_ID"), its_job = environment.find("SLURM_JOB_ID");
      if (job != own.end() && its_job != environment.end() && job->second != its_job->second) continue;
      const ProcessEntry* parent = table_.find(entry.parent);
      if (parent != nullptr && facts_.environment(parent->pid).contains("SLURM_PROCID")) continue;  // not the topmost
      find_ranks(pid, tasks);
    }
    return tasks;
  }

  void add_rank(Pid pid, const RankIdentity& identity) {
    // A process that was already added as a child of another one becomes a rank if the user names it.
    const auto [at, fresh] = position_.emplace(pid, planned_.size());
    if (!fresh) {
      planned_[at->second] = {pid, RankKind::kRank, std::nullopt, identity};
      return;
    }
    planned_.push_back({pid, RankKind::kRank, std::nullopt, identity});
  }

  void add_children(Pid rank, Pid of, const std::set<Pid>& ranks, int depth = 0) {
    if (depth > kMaxDepth) return;
    for (const Pid child : table_.children(of)) {
      if (ranks.contains(child) || is_left_out(child) || !position_.emplace(child, planned_.size()).second) continue;
      planned_.push_back({child, RankKind::kChild, rank, {}});
      add_children(rank, child, ranks, depth + 1);
    }
  }

  // Process trees are less deep; the table is not read in one instant, so it may contain a cycle.
  static constexpr int kMaxDepth = 64;

  const ProcessTable& table_;
  const ProcessFacts& facts_;
  const Pid self_;
  const bool whole_job_;
  TitledServers servers_;
  std::set<Pid> ancestors_;      // of self_
  std::set<Pid> leads_to_self_;  // self_, and those of its ancestors that have no other descendants
  std::map<Pid, RankIdentity> identities_;
  std::vector<PlannedTarget> planned_;
  std::map<Pid, std::size_t> position_;  // of a pid in planned_
};

}  // namespace

ProcessTable::ProcessTable(std::vector<ProcessEntry> entries) {
  for (ProcessEntry& e : entries) {
    if (e.parent != e.pid) children_[e.parent].push_back(e.pid);
    entries_.emplace(e.pid, std::move(e));
  }
  for (auto& [pid, children] : children_) std::sort(children.begin(), children.end());
}

ProcessTable ProcessTable::scan() {
  std::vector<ProcessEntry> entries;
  for (const Pid pid : target::proc::processes()) {
    const auto stat = target::proc::stat_of(pid);
    if (!stat) continue;
    entries.push_back(
        {pid, stat->parent, stat->name, stat->state, stat->threads, stat->kernel_thread(), stat->start_ticks});
  }
  return ProcessTable(std::move(entries));
}

const ProcessEntry* ProcessTable::find(Pid pid) const {
  const auto it = entries_.find(pid);
  return it == entries_.end() ? nullptr : &it->second;
}

const std::vector<Pid>& ProcessTable::children(Pid pid) const {
  static const std::vector<Pid> none;
  const auto it = children_.find(pid);
  return it == children_.end() ? none : it->second;
}

std::vector<PlannedTarget> plan_pids(const std::vector<Pid>& pids, const ProcessTable& table, const ProcessFacts& facts,
                                     Pid self) {
  Planner planner(table, facts, self, false);
  for (const Pid pid : pids) planner.add(pid);
  return planner.take();
}

std::vector<UnseenRank> find_unseen(const std::vector<PlannedTarget>& plan, const ProcessTable& table,
                                    const ProcessFacts& facts, const std::string& host, Pid self) {
  std::set<int> numbers;
  std::set<Pid> pids;
  const PlannedTarget* model = nullptr;
  int world = 0;
  for (const PlannedTarget& target : plan) {
    pids.insert(target.pid);
    if (target.kind != RankKind::kRank || !target.identity.rank) continue;
    numbers.insert(*target.identity.rank);
    if (target.identity.world_size.value_or(0) > world) {
      world = *target.identity.world_size;
      model = &target;
    }
  }
  if (model == nullptr || numbers.size() >= static_cast<std::size_t>(world)) return {};
  const ProcessEntry* program = table.find(model->pid);
  if (program == nullptr) return {};
  const auto port_of = [](const std::map<std::string, std::string>& environment) {
    const auto port = environment.find("MASTER_PORT");
    return port == environment.end() ? std::string() : port->second;
  };
  const std::string port = port_of(facts.environment(model->pid));
  std::vector<Pid> namesakes;
  for (const auto& [pid, entry] : table.all())
    if (pid != self && !entry.kernel_thread && entry.state != 'Z' && !pids.contains(pid) && entry.name == program->name)
      namesakes.push_back(pid);
  if (facts.read_ahead) facts.read_ahead(namesakes);
  std::vector<UnseenRank> unseen;
  for (const Pid pid : namesakes) {
    const auto environment = facts.environment(pid);
    const RankIdentity identity = identity_from_environment(environment);
    if (!identity.rank || identity.world_size != world || port_of(environment) != port) continue;
    if (numbers.insert(*identity.rank).second) unseen.push_back({*identity.rank, host, pid});
  }
  std::sort(unseen.begin(), unseen.end(), [](const UnseenRank& a, const UnseenRank& b) { return a.rank < b.rank; });
  return unseen;
}

std::vector<PlannedTarget> plan_job(const ProcessTable& table, const ProcessFacts& facts, Pid self) {
  Planner planner(table, facts, self, true);
  const ProcessEntry* own = table.find(self);
  std::vector<Pid> doubtful;
  for (const auto& [pid, entry] : table.all()) {
    if (entry.kernel_thread || entry.state == 'Z') continue;
    // The topmost process with a rank represents its tree; lower ranks are found from there.
    if (planner.identity(pid).precedence < 0 || planner.is_bystander(pid)) continue;
    bool topmost = true;
    int depth = 0;
    for (const ProcessEntry* up = table.find(entry.parent); up != nullptr && up->pid != 0 && topmost && depth < 64;
         up = table.find(up->parent), ++depth)
      if (planner.identity(up->pid).precedence >= 0 && !planner.is_bystander(up->pid)) topmost = false;
    if (!topmost) continue;
    if (planner.has_it_from_bystander(pid)) {
      // A process started just after the tool reads the tool's output (`| less`). A tick is 10 ms; within one tick, the
      // pids decide.
      if (own != nullptr && std::pair(entry.start_ticks, pid) > std::pair(own->start_ticks, self)) continue;
      if (!planner.may_train(pid)) {
        doubtful.push_back(pid);
        continue;
      }
    }
    planner.add(pid);
  }
  if (planner.empty())
    for (const Pid pid : doubtful) planner.add(pid);
  planner.add_directors();
  return planner.take();
}

namespace {

// f(pid) for each process of another user whose environment the kernel does not show to this one.
template <class F>
void each_hidden(F&& f) {
  for (const Pid pid : target::proc::processes()) {
    const auto stat = target::proc::stat_of(pid);
    const auto uid = target::proc::status_number(pid, "Uid");
    if (!stat || stat->kernel_thread() || stat->ends() || !uid || static_cast<uid_t>(*uid) == geteuid()) continue;
    const auto environment = target::proc::read_file(fmt::format("/proc/{}/environ", pid), 1);
    if (!environment && (environment.error().os_errno == EACCES || environment.error().os_errno == EPERM)) f(pid);
  }
}

// systemd runs a service of the system in a control group of its own, /system.slice/cron.service, and itself, also that
// of a user, in one called init.scope (systemd.slice(5), systemd.special(7)).
bool is_of_service(Pid pid) {
  const auto groups = target::proc::read_file(fmt::format("/proc/{}/cgroup", pid));
  return groups && (contains(*groups, ".service\n") || contains(*groups, "/init.scope\n"));
}

}  // namespace

std::size_t count_hidden_environments() {
  std::size_t hidden = 0;
  each_hidden([&](Pid) { ++hidden; });
  return hidden;
}

bool may_hide_ranks() {
  std::set<Pid> ancestors;  // sshd's among them
  for (Pid pid = getppid(); pid > 0 && ancestors.insert(pid).second;) {
    const auto stat = target::proc::stat_of(pid);
    pid = stat ? stat->parent : 0;
  }
  bool any = false;
  each_hidden([&](Pid pid) { any = any || (!ancestors.contains(pid) && !is_of_service(pid)); });
  return any;
}

}  // namespace rankstacks::capture
