// Where this machine has NVIDIA's files.
#pragma once

#include <string>

namespace rankstacks::gpu {

struct Machine {
  // In tests: a directory that plays the machine. Its libraries count as the machine's own, no matter who may write
  // them. No option of the installed tool sets it, only the tests' own build of main() does (tests/tool).
  std::string directory;

  bool is_played() const { return !directory.empty(); }
  std::string devices() const { return is_played() ? directory : "/dev"; }  // nvidiactl, nvidia0 ...
  std::string driver() const { return is_played() ? directory + "/driver" : "/proc/driver/nvidia"; }
  std::string kernel_log() const { return is_played() ? directory + "/kmsg" : "/dev/kmsg"; }
};

// How a helper process of the tool is given that directory: this option, then the directory, in front of all other
// arguments.
inline constexpr const char* kTestMachineOption = "--test-machine";

}  // namespace rankstacks::gpu
