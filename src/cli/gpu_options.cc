#include "cli/gpu_options.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>

namespace rankstacks::cli {

CLI::Option* GpuOptions::add_sessions_to(CLI::App& command) {
  CLI::Option* gpu =
      command.add_flag("--gpu", options_.gpu.sessions,
                       "also what runs on the ranks' GPUs: each GPU is paused for milliseconds, attaching takes about "
                       "a second; drivers before 590 keep some memory loaded for it");
  command
      .add_option("--gpu-limit", limit_,
                  "how long GPU sessions are waited for until the GPUs are being paused; three times as long in all")
      ->type_name("SECONDS")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  return gpu;
}

void GpuOptions::add_to(CLI::App& command) { add_sessions_to(command); }

void GpuOptions::add_with_cores_to(CLI::App& command) {
  CLI::Option* gpu = add_sessions_to(command);
  command
      .add_option("--gpu-core", core_,
                  "write a lightweight GPU core of each rank to FILE.rankN (FILE.HOST.PID where two processes say "
                  "that they are one rank)")
      ->type_name("FILE")
      ->needs(gpu);
  command.add_option("--gpu-core-limit", core_limit_, "a GPU core that would be larger is not written")
      ->type_name("MIB")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
}

void GpuOptions::take() {
  if (!core_.empty()) options_.gpu.core = core_;
  options_.gpu.limit = std::chrono::seconds(limit_);
  options_.gpu.core_limit = static_cast<std::uint64_t>(core_limit_) << 20;
}

}  // namespace rankstacks::cli
