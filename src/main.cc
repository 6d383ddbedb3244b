#include <iostream>
#include <string_view>

#include "base/leavable_thread.h"
#include "base/memory_limit.h"
#include "cli/run.h"
#include "cli/start.h"
#include "cli/sudden_end.h"
#include "gpu/nvml_helper.h"
#include "gpu/session_helper.h"

int main(int argc, char** argv) {
  rankstacks::hold_standard_descriptors();
  rankstacks::raise_limit_of_files();
  rankstacks::outlive_limit_of_file_size();
  rankstacks::end_at_once_without_memory();
  if (argc > 1 && std::string_view(argv[1]).starts_with("--internal-")) rankstacks::lift_memory_limit();
  rankstacks::gpu::run_nvml_helper_if_asked(argc, argv);
  rankstacks::gpu::run_session_helper_if_asked(argc, argv);
  const int status = rankstacks::run(argc, argv, std::cout, std::cerr);
  if (rankstacks::LeavableThread::any_left_behind()) {
    std::cout.flush();
    rankstacks::leave_at_once(status);
  }
  return status;
}
