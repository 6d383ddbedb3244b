#include "capture/rank_versions.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <tuple>

#include <fmt/format.h>

#include "base/root_directory.h"
#include "base/unattended.h"
#include "known/components.h"
#include "known/containers.h"
#include "known/settings.h"
#include "target/proc.h"
#include "versions/file_versions.h"
#include "versions/process_facts.h"
#include "versions/version_texts.h"

namespace rankstacks::capture {
namespace {

using target::Module;

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// One loaded file of a component.
struct Wanted {
  const known::ComponentRule* rule = nullptr;
  std::string path;  // as the target names it
  std::string site;  // its directory of Python packages; "": none
  BuildId build_id;
  std::shared_ptr<const elf::Image> image;
};

std::vector<Wanted> wanted_of(const target::ModuleMap& modules) {
  constexpr std::size_t kMax = 256;
  std::vector<Wanted> wanted;
  for (const Module& module : modules.all()) {
    const known::ComponentRule* rule = known::component_of(base_name(module.path));
    const bool again =
        std::any_of(wanted.begin(), wanted.end(), [&](const Wanted& w) { return w.path == module.path; });
    if (rule == nullptr || again || wanted.size() >= kMax) continue;
    wanted.push_back({rule, module.path, versions::site_directory(module.path), module.build_id, module.image});
  }
  return wanted;
}

void set_variables(ProcessEnvironment& environment, const Variables& all) {
  constexpr std::size_t kMax = 512, kLongest = 4096;
  for (const auto& [name, value] : all) {
    if (!known::is_setting(name) || environment.variables.size() >= kMax) continue;
    environment.variables.emplace_back(name, value.substr(0, kLongest));
  }
  environment.variables_known = !all.empty();
}

// The variables by which a container is recognised, of those that are set.
std::vector<std::string> container_variables(const Variables& all) {
  std::vector<std::string> names;
  for (const known::ContainerRule& rule : known::container_rules())
    if (rule.sign == known::ContainerSign::kVariable && all.contains(std::string(rule.text)))
      names.emplace_back(rule.text);
  return names;
}

LoadedModule module_of(const Wanted& wanted, const versions::FileVersion& in_file, const versions::Packages* packages) {
  const versions::FileVersion found = versions::version_of(*wanted.rule, base_name(wanted.path), in_file, packages);
  return {.component = std::string(wanted.rule->component),
          .path = wanted.path,
          .build_id = wanted.build_id.empty() ? "" : elf::to_string(wanted.build_id),
          .version = found.version,
          .from = found.from,
          .cuda = found.cuda};
}

// By which the roots of two processes are known to be the same.
using RootKey = std::tuple<std::string, std::uint64_t, std::uint64_t>;

struct Process {
  Pid pid = 0;
  std::uint64_t start_ticks = 0;  // identifies it, with the pid
  std::string root_path;          // through which its files are read
  ProcessEnvironment environment;
  std::vector<Wanted> wanted;
  std::vector<std::string> container_variables;
  RootKey root;
  std::string cgroups;
};

struct Surroundings {
  std::string distribution, container;
  CgroupLimits cgroup;
  bool cgroup_known = false;
};

bool is_still_there(const Process& process) {
  const auto stat = target::proc::stat_of(process.pid);
  return stat && stat->start_ticks == process.start_ticks;
}

void read_process(Process& process, const versions::MachineFacts& machine) {
  constexpr std::size_t kLongest = 64u << 10;
  const Process before = process;
  const std::string directory = fmt::format("/proc/{}", process.pid);
  ProcessEnvironment& environment = process.environment;
  if (const auto text = target::proc::read_file(directory + "/limits", kLongest))
    environment.limits = versions::parse_limits(*text);
  if (const auto text = target::proc::read_file(directory + "/status", kLongest)) {
    environment.cpus = versions::status_value(*text, "Cpus_allowed_list");
    environment.memory_nodes = versions::status_value(*text, "Mems_allowed_list");
    environment.cpu_nodes = versions::nodes_of(machine, environment.cpus);
  }
  process.cgroups = target::proc::read_file(directory + "/cgroup", kLongest).value_or("");
  const std::string namespace_of = target::proc::read_link(directory + "/ns/mnt").value_or("");
  if (const auto root = RootDirectory::open(process.root_path))
    process.root = {namespace_of, root->identity().first, root->identity().second};
  if (is_still_there(process)) return;
  // It has ended; what was read may be of another process, which has its number now.
  process = before;
  process.root_path.clear();
}

Surroundings read_surroundings(const Process& process) {
  constexpr std::size_t kLongest = 64u << 10;
  Surroundings found;
  const auto root = RootDirectory::open(process.root_path);
  if (root)
    for (const char* path : {"/etc/os-release", "/usr/lib/os-release"})
      if (found.distribution.empty())
        if (const auto text = root->read(path, kLongest)) found.distribution = versions::distribution_of(*text);
  found.container = versions::container_of(process.cgroups, root ? &*root : nullptr, process.container_variables);
  found.cgroup_known = !process.cgroups.empty();
  if (found.cgroup_known) found.cgroup = versions::read_cgroup_limits(versions::cgroup_places(process.cgroups));
  return found;
}

// What one piece of work has found; one of these.
struct Answer {
  Surroundings surroundings;
  versions::FileVersion file;
  versions::Packages packages;
};

// The pieces of work, each of them planned once for all processes: where their answers are.
struct Plan {
  using SurroundingsKey = std::tuple<RootKey, std::string, std::vector<std::string>>;
  std::map<SurroundingsKey, std::size_t> surroundings;
  std::map<const elf::Image*, std::size_t> files;
  std::map<std::pair<RootKey, std::string>, std::size_t> packages;
  std::vector<std::function<Answer()>> pieces;  // own what they use

  static SurroundingsKey key_of(const Process& process) {
    return {process.root, process.cgroups, process.container_variables};
  }

  void add_surroundings(const std::shared_ptr<const Process>& process) {
    if (surroundings.try_emplace(key_of(*process), pieces.size()).second)
      pieces.emplace_back([process] { return Answer{.surroundings = read_surroundings(*process)}; });
  }

  void add_files(const std::shared_ptr<const Process>& process) {
    for (const Wanted& wanted : process->wanted) {
      if (wanted.image != nullptr && files.try_emplace(wanted.image.get(), pieces.size()).second)
        pieces.emplace_back([wanted] {
          reading_now(wanted.path);
          return Answer{.file = versions::version_in_file(*wanted.rule, *wanted.image)};
        });
      if (!wanted.site.empty() && packages.try_emplace({process->root, wanted.site}, pieces.size()).second)
        pieces.emplace_back([process, site = wanted.site] {
          reading_now(site);
          const auto root = RootDirectory::open(process->root_path);
          return root ? Answer{.packages = versions::read_packages(*root, site)} : Answer();
        });
    }
  }
};

// Empty for a piece that did not return.
std::vector<Answer> answers_of(const std::vector<std::function<Answer()>>& pieces) {
  struct Work {
    std::vector<std::function<Answer()>> pieces;
    std::vector<Answer> answers;
  };
  const auto work = std::make_shared<Work>(Work{pieces, std::vector<Answer>(pieces.size())});
  const auto outcomes =
      Unattended{[work](std::size_t i) { work->answers[i] = work->pieces[i](); }, kMinTimeout}.run(pieces.size());
  std::vector<Answer> answers(pieces.size());
  for (std::size_t i = 0; i < answers.size(); ++i)
    if (outcomes[i].came_back) answers[i] = std::move(work->answers[i]);
  return answers;
}

// Reads what each process has for itself. What a process that does not answer would say stays unknown.
void read_processes(std::vector<std::shared_ptr<const Process>>& processes, const versions::MachineFacts& machine) {
  struct Work {
    versions::MachineFacts machine;
    std::vector<Process> read;
  };
  const auto work = std::make_shared<Work>(Work{machine, {}});
  for (const auto& process : processes) work->read.push_back(*process);
  const auto outcomes =
      Unattended{[work](std::size_t i) { read_process(work->read[i], work->machine); }, kMinTimeout}.run(
          processes.size());
  for (std::size_t i = 0; i < processes.size(); ++i)
    if (outcomes[i].came_back) processes[i] = std::make_shared<const Process>(std::move(work->read[i]));
}

std::vector<LoadedModule> modules_of(const Process& process, const Plan& plan, const std::vector<Answer>& answers) {
  std::vector<LoadedModule> modules;
  for (const Wanted& wanted : process.wanted) {
    const auto file = plan.files.find(wanted.image.get());
    const auto packages = plan.packages.find({process.root, wanted.site});
    modules.push_back(module_of(wanted, file == plan.files.end() ? versions::FileVersion() : answers[file->second].file,
                                packages == plan.packages.end() ? nullptr : &answers[packages->second].packages));
  }
  std::stable_sort(modules.begin(), modules.end(), [](const LoadedModule& a, const LoadedModule& b) {
    return std::tie(a.component, a.path) < std::tie(b.component, b.path);
  });
  return modules;
}

void set_surroundings(const Surroundings& surroundings, ProcessEnvironment& environment) {
  environment.distribution = surroundings.distribution;
  environment.container = surroundings.container;
  if (surroundings.cgroup_known) environment.cgroup = surroundings.cgroup;
}

}  // namespace

void add_versions(std::vector<RankStacks>& ranks, const std::function<Variables(Pid)>& environment) {
  const versions::MachineFacts machine = versions::read_machine_facts();
  std::vector<std::size_t> indices;
  std::vector<std::shared_ptr<const Process>> processes;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i].target) continue;
    Process process{.pid = ranks[i].snapshot.pid,
                    .start_ticks = ranks[i].snapshot.start_ticks,
                    .root_path = fmt::format("/proc/{}/root", ranks[i].snapshot.pid),
                    .wanted = wanted_of(ranks[i].target->modules())};
    const Variables variables = environment(process.pid);
    set_variables(process.environment, variables);
    process.container_variables = container_variables(variables);
    process.environment.kernel = machine.kernel;
    process.environment.gpu_driver = machine.gpu_driver;
    process.environment.clock = machine.clock;
    indices.push_back(i);
    processes.push_back(std::make_shared<const Process>(std::move(process)));
  }
  read_processes(processes, machine);
  Plan plan;
  for (const auto& process : processes) {
    plan.add_surroundings(process);
    plan.add_files(process);
  }
  const std::vector<Answer> answers = answers_of(plan.pieces);
  for (std::size_t n = 0; n < indices.size(); ++n) {
    RankSnapshot& rank = ranks[indices[n]].snapshot;
    rank.environment = processes[n]->environment;
    set_surroundings(answers[plan.surroundings.at(Plan::key_of(*processes[n]))].surroundings, *rank.environment);
    rank.modules = modules_of(*processes[n], plan, answers);
  }
}

void add_environment_of_core(RankStacks& rank, const Variables& environment) {
  ProcessEnvironment& known = rank.snapshot.environment.emplace();
  set_variables(known, environment);
  for (const Module& module : rank.target->modules().all())
    if (module.path == "[vdso]" && module.image != nullptr)
      for (const Elf64_Phdr& segment : module.image->segments())
        if (segment.p_type == PT_NOTE && known.kernel.empty())
          known.kernel = versions::kernel_of_notes(module.image->at(segment.p_vaddr));
}

void add_surroundings_of_dying(RankSnapshot& rank, Pid pid, const std::string& sysroot, const Variables& environment) {
  if (!rank.environment) return;
  const auto stat = target::proc::stat_of(pid);
  if (!stat) return;
  Process process{.pid = pid, .start_ticks = stat->start_ticks, .root_path = sysroot.empty() ? "/" : sysroot};
  const versions::MachineFacts machine = versions::read_machine_facts();
  process.container_variables = container_variables(environment);
  std::vector<std::shared_ptr<const Process>> processes{std::make_shared<const Process>(std::move(process))};
  read_processes(processes, machine);
  Plan plan;
  plan.add_surroundings(processes.front());
  ProcessEnvironment& known = *rank.environment;
  const ProcessEnvironment& read = processes.front()->environment;
  if (!machine.kernel.empty()) known.kernel = machine.kernel;
  known.gpu_driver = machine.gpu_driver;
  known.clock = machine.clock;
  known.limits = read.limits;
  std::tie(known.cpus, known.cpu_nodes, known.memory_nodes) = std::tie(read.cpus, read.cpu_nodes, read.memory_nodes);
  set_surroundings(answers_of(plan.pieces).front().surroundings, known);
}

void add_modules_of_cores(std::vector<RankStacks>& ranks) {
  std::vector<std::size_t> indices;
  std::vector<std::shared_ptr<const Process>> processes;
  Plan plan;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i].target) continue;
    Process process{.root_path = "/", .wanted = wanted_of(ranks[i].target->modules())};
    // A file on this machine that is the one that was loaded: so the metadata next to it is that of its package.
    for (Wanted& wanted : process.wanted)
      wanted.site = wanted.image != nullptr ? versions::site_directory(wanted.image->path()) : "";
    indices.push_back(i);
    processes.push_back(std::make_shared<const Process>(std::move(process)));
    plan.add_files(processes.back());
  }
  const std::vector<Answer> answers = answers_of(plan.pieces);
  for (std::size_t n = 0; n < indices.size(); ++n)
    ranks[indices[n]].snapshot.modules = modules_of(*processes[n], plan, answers);
}

void set_python_version(RankSnapshot& rank) {
  if (!rank.python_version || rank.python_version->empty()) return;
  for (LoadedModule& module : rank.modules.edit())
    if (module.component == known::kPython) module.version = *rank.python_version, module.from = VersionFrom::kMemory;
}

}  // namespace rankstacks::capture
