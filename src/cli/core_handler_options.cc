#include "cli/core_handler_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <optional>

#include "base/memory_limit.h"
#include "cli/option_checks.h"
#include "report/sanitize.h"

namespace rankstacks::cli {
namespace {

std::optional<std::uint64_t> size_of(const char* option, const std::string& word, std::uint64_t least) {
  if (word.empty()) return std::nullopt;
  const auto bytes = parse_size(word);
  if (!bytes || *bytes < least)
    throw CLI::ValidationError(option, fmt::format("expected a size as 512M or 8G, found {}", report::in_quotes(word)));
  return *bytes;
}

}  // namespace

void CoreHandlerCommand::add_to(CLI::App& command) {
  constexpr int kMaxPid = 1 << 22;  // Linux include/linux/threads.h, PID_MAX_LIMIT
  command.add_option("PID", options_.pid, "%P: the process")->required()->check(CLI::Range(1, kMaxPid));
  command.add_option("UID", options_.user, "%u: its user, whose the files are")->required();
  command.add_option("GID", options_.group, "%g: its group")->required();
  command.add_option("SIGNAL", options_.signal, "%s: of which it dies")->required();
  command.add_option("TIME", options_.time, "%t: when, in seconds")->required();
  command.add_option("HOST", options_.host, "%h: the host")->required();
  command.add_option("--directory", options_.directory, "where the cores are written; it has to be there")
      ->type_name("DIR")
      ->required();
  command.add_flag("--full", options_.full, "also the full core, as HOST-PID-TIME.full-core");
  command.add_option("--max-bytes", max_bytes_, "no full core that is larger than this, as 8G")->type_name("SIZE");
  command.add_option("--keep", options_.keep.keep, "of how many processes cores are kept: the first and the newest")
      ->type_name("N")
      ->check(CLI::Range(2, 100000))
      ->capture_default_str();
  command
      .add_option("--keep-bytes", keep_bytes_, "the most that all cores take, as 20G (default: a tenth of the disk)")
      ->type_name("SIZE");
  command
      .add_option("--keep-free", keep_free_,
                  "how much of the disk has to stay free (default: a twentieth of it, at most 4G)")
      ->type_name("SIZE");
  command.add_flag("--plain", options_.plain, "the small core is not packed by zstd");
  command.add_option("--within", within_, "give up after this long, and let the process go")
      ->type_name("SECONDS")
      ->check(CLI::Range(1.0, 3600.0))
      ->capture_default_str();
  command.footer(
      "\nExample: sysctl kernel.core_pattern='|/usr/bin/rankstacks core-handler --directory /var/cores -- %P %u %g %s "
      "%t "
      "%h'");
}

CoreHandlerOptions CoreHandlerCommand::take() {
  options_.max_bytes = size_of("--max-bytes", max_bytes_, 1).value_or(0);
  options_.keep.max_bytes = size_of("--keep-bytes", keep_bytes_, 1);
  options_.keep.keep_free = size_of("--keep-free", keep_free_, 0);
  options_.within = of_seconds(within_);
  return options_;
}

}  // namespace rankstacks::cli
