#include <iostream>

#include "base/unattended.h"
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
  rankstacks::gpu::run_nvml_helper_if_asked(argc, argv);
  rankstacks::gpu::run_session_helper_if_asked(argc, argv);
  const int status = rankstacks::run(argc, argv, std::cout, std::cerr);
  // What has not come back may do so while this process ends: nothing that it uses is destroyed before.
  if (rankstacks::any_given_up()) {
    std::cout.flush();
    rankstacks::end_at_once(status);
  }
  return status;
}
