#include "cli/reading_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/memory_limit.h"
#include "cli/option_checks.h"

namespace rankstacks::cli {
namespace {

// --flight-recorder ask. A file of that name is ./ask.
constexpr const char* kAsk = "ask";

CLI::Validator asks_or_exists() {
  return {[](std::string& word) { return word == kAsk ? std::string() : exists()(word); }, ""};
}

}  // namespace

ReadingOptions::ReadingOptions(Options& options)
    : options_(options), timeout_(std::chrono::duration<double>(capture::CaptureOptions::kDefaultTimeout).count()) {}

void ReadingOptions::add_files(CLI::App& command) {
  command
      .add_option("--exe", options_.core.executable,
                  "the program that the cores are of, when it is not at the path they name")
      ->type_name("FILE")
      ->check(is_there(false));
  command
      .add_option("--sysroot", options_.core.sysroot,
                  "directory that holds the other machine's files under their paths")
      ->type_name("DIR")
      ->check(is_there(true));
  command
      .add_option(
          "--search", options_.core.search,
          "directory with executables, libraries or debug files: also a conda environment, one of wheels, another "
          "machine's root; may be repeated")
      ->type_name("DIR")
      ->expected(1)
      ->take_all()
      ->check(is_there(true));
  command.add_flag("--debuginfod", debuginfod_,
                   "files that are not here are fetched by build-id from the servers in DEBUGINFOD_URLS, by "
                   "debuginfod-find, which keeps them in its cache");
  command.add_option("--debuginfod-time", debuginfod_time_, "how long that may take for all files together")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
}

void ReadingOptions::add_rules(CLI::App& command) {
  command
      .add_option("--rules", options_.rules,
                  "file of rules (JSON) for programs that the tool does not know, asked before the built-in ones; "
                  "may be repeated")
      ->type_name("FILE")
      ->expected(1)
      ->take_all()
      ->check(is_there(false));
}

void ReadingOptions::add_memory(CLI::App& command) {
  command
      .add_option("--memory", memory_,
                  "the most that the tool takes, as 512M or 2G; what does not fit is left out, and said (default: "
                  "half of the machine's, or of the container's)")
      ->type_name("SIZE")
      ->check(a_size());
}

void ReadingOptions::add_timeout(CLI::App& command) {
  add_timeout(command,
              "give up on a rank, on what it waits for, or on a file's functions, after this "
              "long, and on a file that does not answer after a fourth of it; the report has "
              "what was read by then");
}

void ReadingOptions::add_timeout(CLI::App& command, const std::string& text) {
  command.add_option("--timeout", timeout_, text)
      ->type_name("SECONDS")
      ->check(a_number())
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str();
}

void ReadingOptions::add_reading(CLI::App& command) {
  command
      .add_option("--flight-recorder", options_.capture.flight_recorder,
                  "dump of PyTorch's Flight Recorder, whose name ends with its rank, or a directory of these; may be "
                  "repeated. ask (attach only): has each rank write its dump now")
      ->type_name("PATH|ask")
      ->expected(1)
      ->take_all()
      ->check(asks_or_exists());
  command.add_flag("--no-inlines", no_inlines_, "leave out inlined frames");
  command.add_flag(
      "--libc-lines", options_.capture.libc_lines,
      "also the lines and inlined functions of the C library's own frames, if its debug file is installed");
  command
      .add_option("--unwinder", unwinder_,
                  "auto: libunwind, and libdwfl for threads that it does not finish; or one of both alone")
      ->check(CLI::IsMember({"auto", "libunwind", "libdwfl"}))
      ->capture_default_str();
  add_timeout(command);
}

void ReadingOptions::take(bool may_ask_flight_recorders) {
  take_flight_recorder(may_ask_flight_recorders);
  options_.capture.unwinder = unwinder_ == "libunwind" ? capture::UnwinderChoice::kLibunwind
                              : unwinder_ == "libdwfl" ? capture::UnwinderChoice::kLibdwfl
                                                       : capture::UnwinderChoice::kAuto;
  options_.capture.symbols.inlines = !no_inlines_;
  options_.capture.timeout = of_seconds(timeout_);
  options_.gpu.timeout = options_.capture.timeout;
  options_.capture.memory =
      memory_.empty() ? default_memory_limit() : parse_size(memory_).value_or(default_memory_limit());
  options_.capture.symbols.sysroot = options_.core.sysroot;
  options_.capture.symbols.search = options_.core.search;
  if (debuginfod_) take_debuginfod();
}

void ReadingOptions::take_flight_recorder(bool may_ask) {
  if (std::erase(options_.capture.flight_recorder, kAsk) == 0) return;
  if (!may_ask)
    throw CLI::ValidationError("--flight-recorder", "a core cannot be asked: name its dump, or a directory of dumps");
  options_.ask_flight_recorders = true;
}

void ReadingOptions::take_debuginfod() {
  // A rank, and a file, have --timeout each: something has to remain of that.
  const auto time = of_seconds(debuginfod_time_);
  auto client = elf::Debuginfod::open(std::min(time, options_.capture.timeout / 2));
  if (!client) throw CLI::ValidationError("--debuginfod", client.error().message() + "; " + client.error().hint);
  options_.core.debuginfod = options_.capture.symbols.debuginfod = std::move(*client);
}

}  // namespace rankstacks::cli
