#include "doctor/gpu_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/text.h"
#include "model/rank_set.h"
#include "report/shell_quoted.h"
#include "target/proc.h"

namespace rankstacks::doctor {
namespace {

constexpr Area kArea = Area::kGpu;
// Since this driver a debugger is let in through a file descriptor: cudadebugger.h of CUDA 13.1.
constexpr unsigned kDescriptorSince = 590;
constexpr const char* kSmallCore =
    "CUDA_COREDUMP_GENERATION_FLAGS=skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_"
    "memory,skip_constbank_memory";

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

struct Devices {
  std::vector<int> gpus;  // numbers of /dev/nvidia<N>
  // All of NVIDIA's files in /dev that a process opens, those of the GPUs last.
  std::vector<std::string> files;
};

Devices devices_of(const System& system) {
  Devices found;
  for (const std::string& name : system.list("/dev")) {
    if (name == "nvidiactl" || name == "nvidia-uvm") found.files.push_back("/dev/" + name);
    if (name.starts_with("nvidia") && is_number(name.substr(6)) && name.size() < 12)
      found.gpus.push_back(std::stoi(name.substr(6)));
  }
  std::sort(found.files.begin(), found.files.end());
  std::sort(found.gpus.begin(), found.gpus.end());
  for (const int gpu : found.gpus) found.files.push_back(fmt::format("/dev/nvidia{}", gpu));
  return found;
}

// "580.159.04"; empty if there is no driver, or it does not say.
std::string driver_version(const System& system) {
  if (const auto text = system.read_file("/sys/module/nvidia/version"))
    return text->substr(0, text->find_first_of(" \n"));
  // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ...": the version is the first
  // word of digits and dots.
  const auto text = system.read_file("/proc/driver/nvidia/version");
  if (!text) return "";
  const std::string line = text->substr(0, text->find('\n'));
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    const std::string word = line.substr(at, end - at);
    if (contains(word, '.') && word.find_first_not_of("0123456789.") == std::string::npos) return word;
    at = end + 1;
  }
  return "";
}

Finding check_devices(const System& system, const Self& self, const Devices& devices) {
  const bool container = self.container.any() || self.own_pid_namespace();
  const std::vector<std::string> given = {
      "docker run --gpus all ..., Kubernetes: resources: {limits: {nvidia.com/gpu: 1}} in the container's spec"};
  if (devices.gpus.empty())
    return note("gpu", kArea, "NVIDIA's driver is loaded, and there is no GPU in /dev: processes in here have none",
                container ? given
                          : std::vector<std::string>{"nvidia-smi, as root, makes the device files; lspci | grep -i "
                                                     "nvidia shows whether there is a GPU at all"});
  std::map<int, std::vector<std::string>> refused;
  for (const std::string& file : devices.files)
    if (const int error = system.try_open(file); error != 0) refused[error].push_back(file);
  if (refused.empty())
    return ok("gpu", kArea,
              fmt::format("{} GPU{}: tried: {} can be opened", devices.gpus.size(), plural(devices.gpus.size()),
                          joined(devices.files)));
  std::vector<std::string> texts, mends;
  for (const auto& [error, files] : refused)
    texts.push_back(fmt::format("{}: {}", joined(files), std::strerror(error)));
  if (refused.contains(EACCES)) mends = {"sudo rankstacks ...", "sudo chmod a+rw /dev/nvidia*"};
  if (refused.contains(EPERM) && container) mends.insert(mends.end(), given.begin(), given.end());
  if (mends.empty()) mends = {"dmesg | grep NVRM: why the driver does not open it"};
  return problem("gpu", kArea,
                 fmt::format("{} GPU{}; tried to open: {}", devices.gpus.size(), plural(devices.gpus.size()),
                             fmt::join(texts, "; ")),
                 std::move(mends));
}

Finding check_driver(const std::string& version) {
  unsigned major = 0;
  const auto [rest, error] = std::from_chars(version.data(), version.data() + version.size(), major);
  if (error != std::errc())
    return note("gpu-driver", kArea,
                "neither /sys/module/nvidia/version nor /proc/driver/nvidia/version shows the driver's version");
  if (major >= kDescriptorSince)
    return ok("gpu-driver", kArea,
              fmt::format("{}: attach --gpu asks it through a file descriptor; no function is called inside of a rank",
                          version));
  return note("gpu-driver", kArea,
              fmt::format("{}: for attach --gpu a function has to be called inside of each rank: one of its threads "
                          "makes that call for milliseconds, a training step takes about "
                          "1.5 s longer, and memory stays in use",
                          version),
              {"a driver of 590 or newer (CUDA 13.1) lets a debugger in through a file descriptor"});
}

// The path of a library that the dynamic loader would find, from ld.so.cache.
std::string library_path(const System& system, const std::string& name) {
  const auto cache = system.read_file("/etc/ld.so.cache");
  if (cache) {
    const std::size_t at = cache->find("/" + name + '\0');
    if (at != std::string::npos) {
      const std::size_t before = cache->rfind('\0', at);
      return cache->substr(before + 1, at + 1 + name.size() - before - 1);
    }
  }
  for (const char* directory :
       {"/usr/lib/x86_64-linux-gnu/", "/usr/lib64/", "/usr/local/nvidia/lib64/", "/usr/local/cuda/compat/",
        "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/", "/usr/lib/wsl/lib/"})
    if (system.exists(directory + name)) return directory + name;
  return "";
}

Finding check_libraries(const System& system, const Self& self) {
  std::vector<std::string> found, missing;
  for (const auto& [name, purpose] : {std::pair("libcuda.so.1", "what runs on the GPUs"),
                                      std::pair("libcudadebugger.so.1", "the same, on drivers since 525"),
                                      std::pair("libnvidia-ml.so.1", "how the GPUs are")}) {
    const std::string path = library_path(system, name);
    if (path.empty()) missing.push_back(fmt::format("{} ({})", name, purpose));
    else found.push_back(path);
  }
  if (missing.empty()) return ok("gpu-libraries", kArea, joined(found));
  return note(
      "gpu-libraries", kArea,
      fmt::format("not found: {}{}{}", joined(missing), found.empty() ? "" : "; found: ", joined(found)),
      {self.container.any() ? "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ..."
                            : "install the driver's own libraries; Debian: apt install libcuda1 libnvidia-ml1"});
}

void check_nvml(const gpu::NvmlAnswer& answer, std::vector<Finding>& findings) {
  if (answer.outcome == gpu::NvmlOutcome::kAnswered && !answer.devices.empty()) {
    std::vector<std::string> names;
    for (const gpu::NvmlDevice& device : answer.devices)
      if (!device.gpu.name.empty() && std::find(names.begin(), names.end(), device.gpu.name) == names.end())
        names.push_back(device.gpu.name);
    findings.push_back(ok("nvml", kArea,
                          fmt::format("tried: it reports {} GPU{}{}{}", answer.devices.size(),
                                      plural(answer.devices.size()), names.empty() ? "" : ": ", joined(names))));
  }
  for (const Problem& p : answer.problems)
    findings.push_back(problem("nvml", kArea, "tried: " + p.message, {p.hint.value_or("nvidia-smi asks the same")}));
  std::vector<int> partitioned;
  for (const gpu::NvmlDevice& device : answer.devices)
    if (device.mig.value_or(false)) partitioned.push_back(static_cast<int>(device.gpu.index.value_or(0)));
  if (!partitioned.empty())
    findings.push_back(note(
        "mig", kArea,
        fmt::format(
            "GPU{} {}: MIG is on: NVML does not report how busy an instance is, and attach --gpu is untried with it",
            plural(partitioned.size()), format_numbers(partitioned)),
        {"where it is not needed: sudo nvidia-smi -mig 0"}));
}

// nvidia-cuda-mps-control and nvidia-cuda-mps-server; the kernel keeps 15 characters of a name.
std::vector<int> mps_processes(const System& system) {
  std::vector<int> pids;
  for (const std::string& name : system.list("/proc")) {
    if (!is_number(name) || name.size() > 9) continue;
    const auto text = system.read_file("/proc/" + name + "/comm");
    if (text && text->starts_with("nvidia-cuda-mps")) pids.push_back(std::stoi(name));
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

constexpr const char* kEndMps = "echo quit | nvidia-cuda-mps-control, then start the job again";

// The driver itself lists the clients of MPS.
bool is_mps_client(const gpu::NvmlAnswer& nvml, Pid pid) {
  return std::any_of(nvml.devices.begin(), nvml.devices.end(), [pid](const gpu::NvmlDevice& device) {
    const auto& processes = device.processes;
    return processes && std::any_of(processes->begin(), processes->end(),
                                    [pid](const gpu::NvmlProcess& p) { return p.pid == pid && p.mps; });
  });
}

bool is_on(const std::map<std::string, std::string>& environment, const char* name) {
  const auto found = environment.find(name);
  return found != environment.end() && !found->second.empty() && found->second != "0";
}

// Settings that the driver read when CUDA was initialized in the process.
Finding check_core_settings(const std::map<std::string, std::string>& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  if (!is_on(environment, "CUDA_ENABLE_COREDUMP_ON_EXCEPTION")) {
    std::string found = "an exception on its GPU leaves no GPU core: CUDA_ENABLE_COREDUMP_ON_EXCEPTION is not set";
    if (is_on(environment, "CUDA_ENABLE_USER_TRIGGERED_COREDUMP"))
      found += "; CUDA_ENABLE_USER_TRIGGERED_COREDUMP is: a core asked for through its pipe ends the process";
    return note(
        "gpu-core", kArea, found,
        {fmt::format("start the job with CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 CUDA_COREDUMP_FILE=/var/tmp/gpu.%h.%p {}",
                     kSmallCore)});
  }
  const std::string file = value("CUDA_COREDUMP_FILE"), flags = value("CUDA_COREDUMP_GENERATION_FLAGS");
  const bool small = contains(flags, "skip_global_memory") || is_on(environment, "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP");
  std::vector<std::string> remarks, mends;
  if (!file.empty() && !contains(file, "%p")) {
    remarks.push_back("the name has no %p: ranks in one directory write over each other's");
    mends.push_back("CUDA_COREDUMP_FILE=" + report::shell_quoted(file + ".%h.%p"));
  }
  if (!small) {
    remarks.push_back("all memory of the GPU goes into it: minutes, and up to its size on the disk");
    mends.push_back(kSmallCore);
  }
  const std::string found = fmt::format("an exception on its GPU leaves a GPU core: {}",
                                        file.empty() ? "core_TIME_HOST_PID.nvcudmp in its working directory" : file);
  if (remarks.empty()) return ok("gpu-core", kArea, found);
  return note("gpu-core", kArea, fmt::format("{}; {}", found, fmt::join(remarks, "; ")), std::move(mends));
}

}  // namespace

std::vector<Finding> check_gpus(const System& system, const Self& self, const gpu::NvmlAnswer& nvml) {
  const Devices devices = devices_of(system);
  const std::string version = driver_version(system);
  if (devices.files.empty() && version.empty() && !system.exists("/proc/driver/nvidia/version"))
    return {ok("gpu", kArea, "no NVIDIA GPU here")};
  std::vector<Finding> findings = {check_devices(system, self, devices), check_driver(version)};
  if (devices.gpus.empty()) return findings;
  findings.push_back(check_libraries(system, self));
  check_nvml(nvml, findings);
  if (const auto mps = mps_processes(system); !mps.empty())
    findings.push_back(note("mps", kArea,
                            fmt::format("MPS runs here (pid{} {}): attach --gpu cannot look at its clients",
                                        plural(mps.size()), format_numbers(mps)),
                            {kEndMps}));
  return findings;
}

std::vector<Finding> check_gpu_of(const System& system, const gpu::NvmlAnswer& nvml, Pid pid, const TargetFacts& facts,
                                  const std::vector<std::string>& threads) {
  const auto library = std::find_if(facts.files.begin(), facts.files.end(),
                                    [](const FileFacts& f) { return contains(f.path, "/libcuda.so"); });
  if (library == facts.files.end()) return {};
  std::vector<Finding> findings;
  const bool running = std::find(threads.begin(), threads.end(), "cuda-EvtHandlr") != threads.end();
  if (!running) {
    findings.push_back(note("gpu", kArea,
                            "it has libcuda loaded, and no thread cuda-EvtHandlr: CUDA was not started in it, or it is "
                            "the child of a process that did, and nothing of its own runs on a GPU"));
    return findings;
  }
  const std::optional<GpuFacts>& gpu = facts.gpu;
  if (!gpu)
    findings.push_back(
        note("gpu", kArea,
             "CUDA runs in it, and its libcuda has none of the debugger's names: attach --gpu cannot look at it"));
  else if (!gpu->unreadable.empty())
    findings.push_back(
        note("gpu", kArea,
             fmt::format("CUDA runs in it; whether it lets a debugger in cannot be read: {}", gpu->unreadable)));
  else if (!gpu->refusal.empty())
    findings.push_back(problem("gpu", kArea, fmt::format("attach --gpu: {}", gpu->refusal),
                               gpu->hint.empty() ? std::vector<std::string>{} : std::vector<std::string>{gpu->hint}));
  else
    findings.push_back(
        ok("gpu", kArea,
           fmt::format(
               "CUDA runs in it, and lets a debugger in{}{}", gpu->by_descriptor ? ", through a file descriptor" : "",
               gpu->left_by != 0
                   ? fmt::format("; the session of pid {}, which has ended, is cleared away by the next attach --gpu",
                                 gpu->left_by)
                   : "")));
  if (is_mps_client(nvml, pid))
    findings.push_back(problem("mps", kArea, "it is a client of MPS, which attach --gpu cannot look at", {kEndMps}));
  const auto text = system.read_file(fmt::format("/proc/{}/environ", pid));
  if (!text) {
    findings.push_back(note("gpu-core", kArea,
                            fmt::format("its environment cannot be read: {}", std::strerror(text.error().os_errno))));
    return findings;
  }
  findings.push_back(check_core_settings(target::proc::parse_environment(target::proc::split_nul(*text))));
  return findings;
}

}  // namespace rankstacks::doctor
