// The tool with one additional switch for tests: `rankstacks --test-machine DIR ...`. The tool then uses DIR in place
// of the machine's NVIDIA libraries and device files and of the kernel's log. The installed tool has no such switch.
#include <cstring>

#include "cli/tool.h"

int main(int argc, char** argv) {
  rankstacks::gpu::Machine machine;
  if (argc > 2 && std::strcmp(argv[1], rankstacks::gpu::kTestMachineOption) == 0) {
    machine.directory = argv[2];
    argv[2] = argv[0];
    argc -= 2;
    argv += 2;
  }
  return rankstacks::cli::run_tool(argc, argv, machine);
}
