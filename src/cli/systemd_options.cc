#include "cli/systemd_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <chrono>

#include "report/sanitize.h"

namespace rankstacks::cli {

CLI::Option* SystemdOptions::add_to(CLI::App& command) {
  systemd_ = command
                 .add_option("--systemd", systemd_word_,
                             "the cores that systemd-coredump keeps: of these pids (101,102), of the user "
                             "(user:NAME), or of the job with that name in their environment (slurm:4711)")
                 ->type_name("[PID|JOB]")
                 ->expected(0, 1);
  since_ = command
               .add_option("--since", since_word_,
                           "only cores that systemd-coredump keeps since then: 2h, 10min, '2026-01-31 12:00'; "
                           "without --systemd all of these")
               ->type_name("TIME");
  return command.add_option("--systemd-directory", directory_, "where systemd-coredump keeps them")
      ->type_name("DIR")
      ->default_str(directory_);
}

std::optional<capture::SystemdChoice> SystemdOptions::take(bool has_files) const {
  if (systemd_->count() == 0 && since_->count() == 0) {
    if (!has_files) throw CLI::RequiredError("core: one of CORE, --systemd and --since");
    return std::nullopt;
  }
  if (systemd_word_.empty() && since_->count() == 0)
    throw CLI::ValidationError("--systemd", "of which processes? Expected PID, JOB, user:NAME, or --since TIME");
  auto choice = capture::parse_systemd_choice(systemd_word_);
  if (!choice)
    throw CLI::ValidationError("--systemd",
                               fmt::format("{}, found {}", choice.error().what, report::in_quotes(systemd_word_)));
  choice->directory = directory_;
  if (since_->count() == 0) return std::move(*choice);
  choice->since = capture::parse_since(since_word_, std::chrono::system_clock::now());
  if (!choice->since)
    throw CLI::ValidationError(
        "--since", fmt::format("expected a time as 2h, 10min, 2026-01-31, \"2026-01-31 12:00\" or @SECONDS, found {}",
                               report::in_quotes(since_word_)));
  return std::move(*choice);
}

}  // namespace rankstacks::cli
