// What prevents reading GPU state, for literal descriptions of machines and processes.
#include "literal_system.h"

namespace rankstacks::doctor {
namespace {

// Two GPUs, a driver that lets a debugger in by a descriptor, all libraries.
LiteralSystem with_gpus() {
  LiteralSystem s = LiteralSystem::sound();
  s.directories["/dev"] = {"null", "nvidia1", "nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps", "nvidia-uvm-tools"};
  s.files["/sys/module/nvidia/version"] = "590.48.01\n";
  s.files["/proc/driver/nvidia/version"] =
      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  590.48.01  Release Build  (root@host)\nGCC version: "
      "12\n";
  std::string& cache = s.files["/etc/ld.so.cache"];
  for (const char* word : {"glibc-ld.so.cache1.1", "libcuda.so.1", "/usr/lib64/libcuda.so.1", "libcudadebugger.so.1",
                           "/usr/lib64/libcudadebugger.so.1"})
    cache += std::string(word) + '\0';
  s.present.insert("/usr/lib64/libnvidia-ml.so.1");
  s.nvml.outcome = gpu::NvmlOutcome::kAnswered;
  s.nvml.devices.resize(2);
  for (unsigned i = 0; i < 2; ++i) {
    s.nvml.devices[i].gpu.index = i;
    s.nvml.devices[i].gpu.name = "NVIDIA H200";
    s.nvml.devices[i].mig = false;
    s.nvml.devices[i].processes.emplace();
  }
  return s;
}

std::vector<std::string> gpu_checks(const LiteralSystem& s) {
  std::vector<std::string> names;
  for (const Section& section : examine(s, {}).sections)
    for (const Finding& f : section.findings)
      if (f.area == Area::kGpu) names.push_back(f.check);
  return names;
}

// A rank in which CUDA runs.
LiteralSystem with_rank() {
  LiteralSystem s = with_gpus();
  s.add_process(7, "python3");
  s.directories["/proc/7/task"] = {"7", "8"};
  s.files["/proc/7/task/8/status"] = LiteralSystem::status("cuda-EvtHandlr", 0, 0);
  s.files["/proc/7/environ"] = "RANK=0";
  s.processes[7].files.push_back(LiteralSystem::file("/usr/lib64/libcuda.so.1"));
  s.processes[7].gpu.emplace();
  return s;
}

}  // namespace

TEST_CASE("without an NVIDIA device one quiet line") {
  const LiteralSystem s = LiteralSystem::sound();
  CHECK(gpu_checks(s) == std::vector<std::string>{"gpu"});
  CHECK(machine_line(s, "gpu") == "ok gpu: no NVIDIA GPU here");
  CHECK(text_of(examine(s, {}), {}).find("GPU state") == std::string::npos);
}

TEST_CASE("a machine with GPUs where all is well") {
  const LiteralSystem s = with_gpus();
  CHECK(gpu_checks(s) == std::vector<std::string>{"gpu", "gpu-driver", "gpu-libraries", "nvml"});
  CHECK(machine_line(s, "gpu") ==
        "ok gpu: 2 GPUs: tried: /dev/nvidia-uvm, /dev/nvidiactl, /dev/nvidia0, /dev/nvidia1 can be opened");
  CHECK(machine_line(s, "gpu-driver") ==
        "ok gpu-driver: 590.48.01: attach --gpu asks it through a file descriptor; no function is called inside of a "
        "rank");
  CHECK(machine_line(s, "gpu-libraries") ==
        "ok gpu-libraries: /usr/lib64/libcuda.so.1, /usr/lib64/libcudadebugger.so.1, /usr/lib64/libnvidia-ml.so.1");
  CHECK(machine_line(s, "nvml") == "ok nvml: tried: it reports 2 GPUs: NVIDIA H200");
  CHECK(examine(s, {}).exit_status() == 0);
  CHECK(text_of(examine(s, {}), {}).find("GPU state: nothing stops it.\n") != std::string::npos);
}

TEST_CASE("the driver's version, and which way a debugger takes") {
  LiteralSystem s = with_gpus();
  s.files.erase("/sys/module/nvidia/version");
  CHECK(machine_line(s, "gpu-driver").starts_with("ok gpu-driver: 590.48.01: "));
  s.files["/proc/driver/nvidia/version"] =
      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\n";
  CHECK(machine_line(s, "gpu-driver") ==
        "note gpu-driver: 550.54.14: for attach --gpu a function has to be called inside of each rank: one of its "
        "threads makes that call for milliseconds, a training step takes "
        "about 1.5 s longer, and memory stays in use -> a driver of 590 or newer (CUDA 13.1) lets a debugger in "
        "through a file descriptor");
  s.files["/proc/driver/nvidia/version"] = "nothing of use";
  CHECK(
      machine_line(s, "gpu-driver") ==
      "note gpu-driver: neither /sys/module/nvidia/version nor /proc/driver/nvidia/version shows the driver's version");
  CHECK(examine(s, {}).exit_status() == 0);
}

TEST_CASE("device files that are not there, or not permitted") {
  LiteralSystem s = with_gpus();
  s.open_errors = {{"/dev/nvidia0", EACCES}, {"/dev/nvidiactl", EACCES}};
  CHECK(machine_line(s, "gpu") ==
        "problem gpu: 2 GPUs; tried to open: /dev/nvidiactl, /dev/nvidia0: Permission denied -> sudo rankstacks ... -> "
        "sudo chmod a+rw /dev/nvidia*");
  CHECK(examine(s, {}).exit_status() == 1);
  CHECK(text_of(examine(s, {}), {}).find("GPU state: 1 problem.") != std::string::npos);
  s.open_errors = {{"/dev/nvidia1", EIO}};
  CHECK(machine_line(s, "gpu") ==
        "problem gpu: 2 GPUs; tried to open: /dev/nvidia1: Input/output error -> dmesg | grep NVRM: why the driver "
        "does not open it");
  s.in_docker();
  s.open_errors = {{"/dev/nvidia1", EPERM}};
  CHECK(machine_line(s, "gpu").find("/dev/nvidia1: Operation not permitted -> docker run --gpus all") !=
        std::string::npos);

  s = with_gpus();
  s.directories["/dev"] = {"null"};
  s.nvml = {};
  CHECK(gpu_checks(s) == std::vector<std::string>{"gpu", "gpu-driver"});
  CHECK(machine_line(s, "gpu").starts_with(
      "note gpu: NVIDIA's driver is loaded, and there is no GPU in /dev: processes in here have none -> nvidia-smi"));
  s.in_docker();
  CHECK(machine_line(s, "gpu").find("-> docker run --gpus all") != std::string::npos);
}

TEST_CASE("libraries that are not found") {
  LiteralSystem s = with_gpus();
  s.files.erase("/etc/ld.so.cache");
  s.present = {"/usr/lib64/libcuda.so.1"};
  CHECK(machine_line(s, "gpu-libraries") ==
        "note gpu-libraries: not found: libcudadebugger.so.1 (the same, on drivers since 525), libnvidia-ml.so.1 (how "
        "the GPUs are); found: /usr/lib64/libcuda.so.1"
        " -> install the driver's own libraries; Debian: apt install libcuda1 libnvidia-ml1");
  s.in_docker();
  CHECK(machine_line(s, "gpu-libraries")
            .ends_with(" -> docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ..."));
}

TEST_CASE("NVML, MIG and MPS") {
  LiteralSystem s = with_gpus();
  s.nvml.problems = {{"NVML: GPU 1: GPU is lost", "a reboot"}};
  s.nvml.devices.pop_back();
  const Examination e = examine(s, {});
  CHECK(line_of(e.sections[0], "nvml") == "ok nvml: tried: it reports 1 GPU: NVIDIA H200");
  CHECK(text_of(e, {}).find("tried: NVML: GPU 1: GPU is lost") != std::string::npos);
  CHECK(e.exit_status() == 1);
  s.nvml = {.outcome = gpu::NvmlOutcome::kRefused, .problems = {{"NVML does not start: x", "y"}}};
  CHECK(machine_line(s, "nvml") == "problem nvml: tried: NVML does not start: x -> y");

  s = with_gpus();
  CHECK(machine_line(s, "mig").empty());
  s.nvml.devices[1].mig = true;
  CHECK(machine_line(s, "mig").starts_with("note mig: GPU 1: MIG is on: "));
  CHECK(machine_line(s, "mps").empty());
  s.directories["/proc"] = {"1", "33", "self", "34"};
  s.files["/proc/1/comm"] = "init\n";
  s.files["/proc/33/comm"] = s.files["/proc/34/comm"] = "nvidia-cuda-mps\n";
  CHECK(machine_line(s, "mps") ==
        "note mps: MPS runs here (pids 33-34): attach --gpu cannot look at its clients -> echo quit | "
        "nvidia-cuda-mps-control, then start the job again");
}

TEST_CASE("a process: whether it lets a debugger in") {
  LiteralSystem s = with_rank();
  CHECK(process_line(s, 7, "gpu") == "ok gpu: CUDA runs in it, and lets a debugger in");
  CHECK(process_line(s, 7, "mps").empty());
  s.processes[7].gpu = GpuFacts{.by_descriptor = true, .left_by = 99};
  CHECK(process_line(s, 7, "gpu") ==
        "ok gpu: CUDA runs in it, and lets a debugger in, through a file descriptor; the session of pid 99, which has "
        "ended, is cleared away by the next attach --gpu");
  s.processes[7].gpu = GpuFacts{.refusal = "a GPU debugger is attached: pid 5 (cuda-gdb)", .hint = "end it"};
  CHECK(process_line(s, 7, "gpu") ==
        "problem gpu: attach --gpu: a GPU debugger is attached: pid 5 (cuda-gdb) -> end it");
  CHECK(examine(s, {.pids = {7}}).exit_status() == 1);
  s.processes[7].gpu = GpuFacts{.unreadable = "no right"};
  CHECK(process_line(s, 7, "gpu") ==
        "note gpu: CUDA runs in it; whether it lets a debugger in cannot be read: no right");
  s.processes[7].gpu.reset();
  CHECK(process_line(s, 7, "gpu")
            .starts_with("note gpu: CUDA runs in it, and its libcuda has none of the debugger's names"));
  s.directories["/proc/7/task"] = {"7"};
  CHECK(process_line(s, 7, "gpu").starts_with("note gpu: it has libcuda loaded, and no thread cuda-EvtHandlr: "));
  CHECK(process_line(s, 7, "gpu-core").empty());
  s.processes[7].files.pop_back();
  CHECK(process_line(s, 7, "gpu").empty());

  s = with_rank();
  s.nvml.devices[1].processes = {{7, 1000, true}};
  CHECK(process_line(s, 7, "mps") ==
        "problem mps: it is a client of MPS, which attach --gpu cannot look at -> echo quit | nvidia-cuda-mps-control, "
        "then start the job again");
  s.nvml.devices[1].processes = {{7, 1000, false}};
  CHECK(process_line(s, 7, "mps").empty());
}

TEST_CASE("a process: the GPU core that an exception would leave") {
  LiteralSystem s = with_rank();
  const auto with = [&](const std::string& environment) {
    s.files["/proc/7/environ"] = environment;
    return process_line(s, 7, "gpu-core");
  };
  const std::string small =
      "CUDA_COREDUMP_GENERATION_FLAGS=skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_"
      "memory,skip_constbank_memory";
  const std::string off =
      "note gpu-core: an exception on its GPU leaves no GPU core: CUDA_ENABLE_COREDUMP_ON_EXCEPTION is not set";
  const std::string start =
      " -> start the job with CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 CUDA_COREDUMP_FILE=/var/tmp/gpu.%h.%p " + small;
  CHECK(with("A=1") == off + start);
  CHECK(with(std::string("CUDA_ENABLE_COREDUMP_ON_EXCEPTION=0") + '\0' + "CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1") ==
        off + "; CUDA_ENABLE_USER_TRIGGERED_COREDUMP is: a core asked for through its pipe ends the process" + start);
  const std::string on = std::string("CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1") + '\0';
  const std::string leaves = "an exception on its GPU leaves a GPU core: ",
                    large = "all memory of the GPU goes into it: minutes, and up to its size on the disk";
  CHECK(with(on) ==
        "note gpu-core: " + leaves + "core_TIME_HOST_PID.nvcudmp in its working directory; " + large + " -> " + small);
  CHECK(with(on + "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP=1") ==
        "ok gpu-core: " + leaves + "core_TIME_HOST_PID.nvcudmp in its working directory");
  CHECK(with(on + "CUDA_COREDUMP_FILE=/x/gpu.%p" + '\0' + small) == "ok gpu-core: " + leaves + "/x/gpu.%p");
  CHECK(with(on + "CUDA_COREDUMP_FILE=/x/gpu") ==
        "note gpu-core: " + leaves + "/x/gpu; the name has no %p: ranks in one directory write over each other's; " +
            large + " -> CUDA_COREDUMP_FILE=/x/gpu.%h.%p -> " + small);
  CHECK(with(on + "CUDA_COREDUMP_FILE=/x/a b`id`\x1b" + '\0' + small) ==
        "note gpu-core: " + leaves +
            "/x/a b`id`\x1b; the name has no %p: ranks in one directory write over each other's"
            " -> CUDA_COREDUMP_FILE=$'/x/a b`id`\\033.%h.%p'");
  s.files.erase("/proc/7/environ");
  CHECK(process_line(s, 7, "gpu-core") == "note gpu-core: its environment cannot be read: No such file or directory");
}

}  // namespace rankstacks::doctor
