#include "cli/watch_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/memory_limit.h"
#include "cli/option_checks.h"
#include "report/sanitize.h"

namespace rankstacks::cli {
namespace {

CLI::Option* add_seconds(CLI::App* command, const char* name, double& into, const char* text, double least) {
  return command->add_option(name, into, text)
      ->type_name("SECONDS")
      ->check(a_number())
      ->check(CLI::Range(least, 86400.0));
}

}  // namespace

void WatchCommand::add_to(CLI::App& command) {
  command_ = &command;
  command_->add_option("--on-hang", options_.directory, "where the reports are written; made if it is not there")
      ->type_name("DIR")
      ->required();
  command_->add_flag("--capture", options_.captures,
                     "also a small core of each process next to the reports, as `rankstacks capture` writes it");
  command_
      ->add_option("--exec", options_.command,
                   "command for the shell, run after each report, which RANKSTACKS_REPORT names")
      ->type_name("CMD");
  add_seconds(command_, "--period", period_, "from one reading of the counters to the next", 0.1)
      ->capture_default_str();
  add_seconds(command_, "--job-timeout", job_timeout_,
              "when the job's own watchdog ends it (default: as the ranks' environment or torch's defaults say)", 1.0);
  add_seconds(command_, "--grace", grace_, "how long the last look may take after SIGTERM", 0.1)->capture_default_str();
  command_->add_option("--keep", options_.keep, "how many events are kept: the first one and the newest")
      ->type_name("N")
      ->check(CLI::Range(2, 100000))
      ->capture_default_str();
  command_->add_option("--max-bytes", max_bytes_, "the most that all reports and captures take, as 64M or 1G")
      ->type_name("SIZE")
      ->capture_default_str();
  command_->footer("\nExample: rankstacks watch --job --on-hang /var/log/hangs");
}

WatchOptions WatchCommand::take() {
  const auto bytes = parse_size(max_bytes_);
  if (!bytes || *bytes == 0)
    throw CLI::ValidationError("--max-bytes",
                               fmt::format("expected a size as 64M or 1G, found {}", report::in_quotes(max_bytes_)));
  options_.max_bytes = *bytes;
  options_.period = of_seconds(period_);
  options_.grace = of_seconds(grace_);
  if (command_->count("--job-timeout") > 0)
    options_.job_timeout = std::chrono::seconds(static_cast<long>(job_timeout_));
  return options_;
}

}  // namespace rankstacks::cli
