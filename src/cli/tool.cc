#include "cli/tool.h"

#include <iostream>
#include <string_view>

#include "base/memory_limit.h"
#include "base/unattended.h"
#include "cli/run.h"
#include "cli/start.h"
#include "cli/sudden_end.h"
#include "gpu/nvml_helper.h"
#include "gpu/session_helper.h"
#include "nodes/agent.h"

namespace rankstacks::cli {

int run_tool(int argc, const char* const* argv, const gpu::Machine& machine) {
  hold_standard_descriptors();
  raise_limit_of_files();
  make_room_for_files();
  outlive_limit_of_file_size();
  take_memory_in_large_steps();
  end_at_once_without_memory();
  if (argc > 1 && std::string_view(argv[1]).starts_with("--internal-"))
    lift_memory_limit();  // the tool's own, not the driver's in a helper
  gpu::run_nvml_helper_if_asked(argc, argv, machine);
  gpu::run_session_helper_if_asked(argc, argv, machine);
  nodes::run_agent_if_asked(argc, argv);
  // Left to the kernel, which releases it sooner.
  static const auto* const leftovers = new std::shared_ptr<capture::Leftovers>(std::make_shared<capture::Leftovers>());
  const int status = run(argc, argv, std::cout, std::cerr, machine, *leftovers);
  // A worker that was given up may come back while this process ends: so nothing that it uses is destroyed before.
  if (any_given_up()) {
    std::cout.flush();
    end_at_once(status);
  }
  (*leftovers)->wait();
  return status;
}

}  // namespace rankstacks::cli
