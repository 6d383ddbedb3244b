#include "cli/output_options.h"

#include <unistd.h>
#include <CLI/CLI.hpp>

#include "base/text.h"
#include "cli/option_checks.h"
#include "report/sanitize.h"

namespace rankstacks::cli {

void OutputOptions::add_writing(CLI::App& command, const std::vector<std::string>& formats) {
  command.add_option("--format", format_, joined(formats))->check(CLI::IsMember(formats))->capture_default_str();
  command
      .add_option("-o,--output", options_.output,
                  "write the report to this file instead of stdout (-); a new one only its owner can read; packed, "
                  "if its name ends in .gz or .zst")
      ->type_name("FILE")
      ->check(not_empty());
  command.add_option("--color", color_, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
}

void OutputOptions::add_redaction(CLI::App& command) {
  auto* redact = command.add_flag("--redact", redact_,
                                  "show hosts, users, addresses, arguments and messages under pseudonyms (in markdown "
                                  "and html that is the default)");
  command.add_flag("--no-redact", no_redact_, "show them as they are")->excludes(redact);
  command.add_option("--redact-map", options_.redact_map, "write what the pseudonyms stand for to this new file")
      ->type_name("FILE")
      ->check(not_empty());
  command.add_flag("--with-secrets", options_.with_secrets,
                   "leave keys, tokens and passwords in the report, which are taken out otherwise");
}

void OutputOptions::add_max_bytes(CLI::App& command) {
  command.add_option("--max-bytes", options_.max_bytes, "markdown: the longest report")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(4096, 1 << 30))
      ->capture_default_str();
}

void OutputOptions::add_threads(CLI::App& command) {
  command.add_option("--threads", threads_, "all: show every thread of every rank in full (text)")
      ->check(CLI::IsMember({"all", "clusters"}));
}

void OutputOptions::add_ranks(CLI::App& command) {
  command
      .add_option("--rank", options_.ranks,
                  "show these ranks' threads in full (text): a number, host:pid or pid; may be repeated")
      ->type_name("RANK")
      ->delimiter(',');
}

void OutputOptions::take() {
  options_.format = format_ == "json"       ? Format::kJson
                    : format_ == "markdown" ? Format::kMarkdown
                    : format_ == "html"     ? Format::kHtml
                    : format_ == "folded"   ? Format::kFolded
                                            : Format::kText;
  options_.color = color_ == "always" ? Color::kAlways : color_ == "never" ? Color::kNever : Color::kAuto;
  options_.all_threads = threads_ == "all";
  take_redaction();
}

void OutputOptions::take_redaction() {
  options_.redact = redact_ || ((format_ == "markdown" || format_ == "html") && !no_redact_);
  if (options_.redact && options_.with_secrets)
    throw CLI::ValidationError("--with-secrets", "a redacted report has no secrets: --no-redact as well");
  if (options_.redact_map.empty()) return;
  if (!options_.redact) throw CLI::ValidationError("--redact-map", "there are no pseudonyms without --redact");
  if (access(options_.redact_map.c_str(), F_OK) == 0)
    throw CLI::ValidationError("--redact-map", report::sanitize(options_.redact_map) +
                                                   ": exists already; remove it first, or name another file");
}

}  // namespace rankstacks::cli
