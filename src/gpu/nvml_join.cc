#include "gpu/nvml_join.h"

#include <dirent.h>
#include <fmt/format.h>
#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "model/rank_set.h"
#include "target/proc.h"

namespace rankstacks::gpu {
namespace {

constexpr int kDeepestFamily = 64;
constexpr int kMaxFiles = 1 << 16;

// Xid events of the process that the line names: its channel on the GPU is gone, the other processes' work goes on.
// Source: NVIDIA, "Xid Errors", docs.nvidia.com/deploy/xid-errors (13: graphics engine exception, 31: MMU fault, 32:
// invalid push buffer, 43: reset channel verification, 45: preemptive cleanup, 68: video processor exception, 69:
// graphics engine class error). Others, such as 48, 74 or 79, are the device's whatever process they name.
constexpr unsigned kXidsOfOneProcess[] = {13, 31, 32, 43, 45, 68, 69};

class Join {
 public:
  Join(const NvmlAnswer& answer, const std::vector<GpuUser>& users, const ProcessFacts& facts, bool own_namespace)
      : answer_(answer), users_(users), facts_(facts), own_namespace_(own_namespace) {
    for (const GpuUser& user : users) pids_.insert(user.pid);
  }

  JoinedGpus run() {
    for (const NvmlDevice& device : answer_.devices) join_by_list(device);
    std::vector<int> unjoined;
    for (const GpuUser& user : users_)
      if (user.uses_cuda && !joined_.of.contains(user.pid) && !join_by_file(user)) unjoined.push_back(user.pid);
    joined_.problems = answer_.problems;
    if (!unjoined.empty()) report_unjoined(unjoined);
    for (auto& [pid, gpus] : joined_.of)
      std::stable_sort(gpus.begin(), gpus.end(),
                       [](const GpuSnapshot& a, const GpuSnapshot& b) { return a.pci < b.pci; });
    return std::move(joined_);
  }

 private:
  // The rank that this process is, or that it descends from; 0: none.
  Pid owner_of(Pid pid) {
    for (int up = 0; up < kDeepestFamily && pid > 0; ++up) {
      if (pids_.contains(pid)) return pid;
      pid = facts_.parent(pid).value_or(0);
    }
    return 0;
  }

  std::optional<DeviceFiles> files_of(Pid pid) {
    const auto [known, added] = files_.try_emplace(pid);
    if (added) known->second = facts_.device_files(pid);
    return known->second;
  }

  // False if no process in this pid namespace has this number, or if that process cannot have a context on a GPU.
  bool is_here(Pid pid) {
    if (pid <= 0 || !facts_.parent(pid)) return false;
    const auto files = files_of(pid);
    return !files || files->any;
  }

  void join_by_list(const NvmlDevice& device) {
    if (!device.processes) {
      without_list_ = true;
      return;
    }
    std::map<Pid, std::optional<std::uint64_t>> ranks;  // with the memory that they use
    std::vector<Pid> others;
    std::vector<std::pair<Pid, Pid>> here;  // each process, with its rank or 0
    for (const NvmlProcess& process : *device.processes) {
      if (!is_here(process.pid)) {
        foreign_ = true;
        continue;
      }
      const Pid owner = owner_of(process.pid);
      here.emplace_back(process.pid, owner);
      if (owner == 0) continue;
      auto& memory = ranks[owner];
      if (process.memory) memory = memory.value_or(0) + *process.memory;
    }
    for (const auto& [pid, memory] : ranks) {
      others.clear();
      for (const auto& [process, owner] : here)
        if (owner != pid) others.push_back(process);
      add(pid, device, memory, others);
    }
  }

  bool join_by_file(const GpuUser& user) {
    const auto files = files_of(user.pid);
    if (!files || files->minors.empty())
      return true;  // it never started CUDA, or that cannot be seen: there is no problem to report
    if (files->minors.size() > 1)
      return !without_list_ && !foreign_ && !own_namespace_;  // if the lists are complete, it has no context
    const unsigned minor = *files->minors.begin();
    for (const NvmlDevice& device : answer_.devices) {
      if (device.minor != minor) continue;
      std::vector<Pid> others;
      for (const NvmlProcess& process : device.processes.value_or(std::vector<NvmlProcess>{}))
        if (is_here(process.pid) && owner_of(process.pid) != user.pid) others.push_back(process.pid);
      add(user.pid, device, std::nullopt, others);
    }
    return true;
  }

  void add(Pid pid, const NvmlDevice& device, std::optional<std::uint64_t> memory, const std::vector<Pid>& others) {
    GpuSnapshot gpu = device.gpu;
    if (!gpu.health) gpu.health.emplace();
    gpu.health->process_memory = memory;
    gpu.health->other_processes = others;
    gpu.health->xids = xids_for(pid, device);
    joined_.of[pid].push_back(std::move(gpu));
  }

  // Ascending, unique.
  std::vector<unsigned> xids_for(Pid pid, const NvmlDevice& device) {
    const auto user = std::find_if(users_.begin(), users_.end(), [&](const GpuUser& one) { return one.pid == pid; });
    std::set<unsigned> numbers;
    for (const XidEvent& event : device.xids) {
      const bool earlier = user != users_.end() && user->started && event.seconds && *event.seconds < *user->started;
      if (event.pid && (earlier || is_of_another(*event.pid, pid, event.number))) continue;
      numbers.insert(event.number);
    }
    return {numbers.begin(), numbers.end()};
  }

  // Whether the event is a failure of the work of another process, which leaves this one's work on the device alone. A
  // process that has ended may have been a child of this one.
  bool is_of_another(Pid reported, Pid pid, unsigned number) {
    return !own_namespace_ && facts_.parent(reported) &&
           std::ranges::find(kXidsOfOneProcess, number) != std::end(kXidsOfOneProcess) && owner_of(reported) != pid;
  }

  void report_unjoined(const std::vector<int>& unjoined) {
    if (answer_.devices.empty()) return;  // the answer's problems say why
    const std::string who =
        fmt::format("NVML: which GPUs pid{} {} use{}: ", plural(unjoined.size()), format_numbers(unjoined),
                    unjoined.size() == 1 ? "s is not known" : " is not known");
    if (foreign_ || own_namespace_) {
      joined_.problems.push_back(
          {who + "the driver names its processes by numbers of another pid namespace, or not at all",
           "run rankstacks on the host, or in a container with the host's: docker run --pid=host, Kubernetes: hostPID: "
           "true",
           ProblemCode::kGpu});
    } else {
      joined_.problems.push_back(
          {who + "the driver gives this user no list of processes", "sudo rankstacks ...", ProblemCode::kGpu});
    }
  }

  const NvmlAnswer& answer_;
  const std::vector<GpuUser>& users_;
  const ProcessFacts& facts_;
  const bool own_namespace_;  // then the pids of events are those of another namespace
  std::set<Pid> pids_;
  std::map<Pid, std::optional<DeviceFiles>> files_;
  bool without_list_ = false;  // whether some device has no list of processes
  bool foreign_ = false;       // whether some pid is not one of this pid namespace
  JoinedGpus joined_;
};

std::optional<DeviceFiles> open_device_files(Pid pid, const std::string& devices) {
  const std::string directory = fmt::format("/proc/{}/fd", pid), prefix = devices + "/nvidia";
  DIR* dir = ::opendir(directory.c_str());
  if (dir == nullptr) return std::nullopt;
  DeviceFiles files;
  int left = kMaxFiles;
  while (const dirent* entry = ::readdir(dir)) {
    if (left-- == 0) break;
    const auto path = target::proc::read_link(directory + "/" + entry->d_name);
    if (!path || !path->starts_with(prefix)) continue;
    files.any = true;
    unsigned minor = 0;
    const char* const end = path->data() + path->size();
    const auto [rest, error] = std::from_chars(path->data() + prefix.size(), end, minor);
    if (error == std::errc() && rest == end) files.minors.insert(minor);
  }
  ::closedir(dir);
  return files;
}

}  // namespace

JoinedGpus join_gpus(const NvmlAnswer& answer, const std::vector<GpuUser>& users, const ProcessFacts& facts,
                     bool own_namespace) {
  return Join(answer, users, facts, own_namespace).run();
}

ProcessFacts facts_of_this_machine(const std::string& devices) {
  return {[](Pid pid) -> std::optional<Pid> {
            const auto stat = target::proc::stat_of(pid);
            return stat ? std::optional(stat->parent) : std::nullopt;
          },
          [devices](Pid pid) { return open_device_files(pid, devices); }};
}

bool in_own_pid_namespace() {
  // The inode number of the initial pid namespace: Linux, include/linux/proc_ns.h.
  const auto own = target::proc::read_link("/proc/self/ns/pid");
  return own && *own != "pid:[4026531836]";
}

}  // namespace rankstacks::gpu
