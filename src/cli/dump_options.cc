#include "cli/dump_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <charconv>

#include "cli/option_checks.h"
#include "report/sanitize.h"

namespace rankstacks::cli {
namespace {

// Decimal, or in hex after "0x", as py-spy takes it.
Pid parse_pid(const std::string& word) {
  const bool hex = word.starts_with("0x") || word.starts_with("0X");
  const char* const begin = word.data() + (hex ? 2 : 0);
  const char* const end = word.data() + word.size();
  Pid pid = 0;
  const auto [stop, error] = std::from_chars(begin, end, pid, hex ? 16 : 10);
  if (error != std::errc() || stop != end || pid <= 0)
    throw CLI::ValidationError("--pid", fmt::format("expected a process id, found {}", report::in_quotes(word)));
  return pid;
}

}  // namespace

void DumpCommand::add_to(CLI::App& command) {
  command_ = &command;
  auto* pid = command_->add_option("-p,--pid", pid_, "the process, in decimal or hex")->type_name("PID");
  command_->add_option("-c,--core", options_.core, "a core file instead of a process")
      ->type_name("FILE")
      ->check(CLI::ExistingFile)
      ->excludes(pid);
  command_->add_flag("--full-filenames", options_.full_filenames,
                     "the whole paths of Python files, not only the part below the outermost package");
  command_->add_flag("-l,--locals", options_.locals,
                     "also the arguments and local variables of Python frames; given twice: longer values");
  command_->add_flag("-j,--json", options_.json, "py-spy's JSON instead of text");
  command_->add_flag("-s,--subprocesses", options_.subprocesses, "also the processes that this one has started");
  command_->add_flag("-n,--native", options_.native, "also native frames");
  command_->add_flag("--nonblocking", options_.nonblocking,
                     "stop no process: threads that run meanwhile have no frames");
  command_->add_option("--within", within_, "be done after this long, whatever does not answer")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  command_->footer(
      "\nstdout has the process in py-spy's form; in text the verdict on all ranks of its job on this machine follows."
      "\nExample: rankstacks dump --pid 4711 --native");
}

DumpOptions DumpCommand::take() {
  if (pid_.empty() && options_.core.empty()) throw CLI::RequiredError("dump: one of --pid and --core");
  if (!pid_.empty()) options_.pid = parse_pid(pid_);
  if (!(within_ > 0)) throw CLI::ValidationError("--within", "expected a number of seconds");
  options_.within = of_seconds(within_);
  return options_;
}

}  // namespace rankstacks::cli
