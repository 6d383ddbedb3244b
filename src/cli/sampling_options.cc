#include "cli/sampling_options.h"

#include <CLI/CLI.hpp>
#include <chrono>

#include "cli/option_checks.h"

namespace rankstacks::cli {

SamplingOptions::SamplingOptions(Options& options)
    : options_(options),
      interval_seconds_(std::chrono::duration<double>(options.live.interval).count()),
      max_wait_seconds_(std::chrono::duration<double>(options.max_wait).count()) {}

void SamplingOptions::add_to(CLI::App& command) {
  samples_ = command
                 .add_option("--samples", options_.live.samples,
                             "samples to take of the job: several distinguish what moves from what is stuck; "
                             "more are taken where the default leaves that open")
                 ->type_name("N")
                 ->check(CLI::Range(1, 1000))
                 ->capture_default_str();
  interval_ = command.add_option("--interval", interval_seconds_, "from one sample to the next")
                  ->type_name("SECONDS")
                  ->check(a_number())
                  ->check(CLI::Range(0.0, 3600.0))
                  ->capture_default_str();
  command
      .add_option("--max-wait", max_wait_seconds_,
                  "how long to go on sampling where all that is seen is waits for GPUs, or loops, which a long step "
                  "shows as well; not with --samples or --interval")
      ->type_name("SECONDS")
      ->check(a_number())
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
}

void SamplingOptions::take() {
  options_.live.interval = of_seconds(interval_seconds_);
  options_.max_wait = of_seconds(max_wait_seconds_);
  options_.samples_as_needed = samples_->count() == 0 && interval_->count() == 0;
}

}  // namespace rankstacks::cli
