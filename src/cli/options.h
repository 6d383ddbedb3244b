// The command line, parsed. Errors in it are usage errors: exit status 2, nothing on stdout.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "capture/capture_job.h"
#include "capture/gpu_sessions.h"
#include "capture/systemd_cores.h"
#include "cli/core_handler_options.h"
#include "cli/dump_options.h"
#include "cli/job_options.h"
#include "cli/watch_options.h"

namespace CLI {
class App;
}

namespace rankstacks::cli {

enum class Format { kText, kJson, kMarkdown, kHtml, kFolded };
enum class Color { kAuto, kAlways, kNever };

using FileRanks = std::map<std::string, int>;  // by the path as it was given

struct Options {
  enum class Command {
    kAttach,
    kCore,
    kReport,
    kDiff,
    kDoctor,
    kRules,
    kJob,
    kCapture,
    kDump,
    kWatch,
    kCoreHandler
  } command = Command::kAttach;
  std::vector<std::string> words;  // the command line as it was given, the program's name first
  capture::LiveRequest live;
  // --max-wait: how long to sample a job that only waits for GPUs, or loops.
  std::chrono::steady_clock::duration max_wait = std::chrono::seconds(10);
  // Neither --samples nor --interval was given: take more samples if the first few leave it open.
  bool samples_as_needed = false;
  capture::GpuRequest gpu;
  std::vector<std::string> paths;  // cores, snapshots, or dumps of other tools; of kDiff: the old one, the new one
  std::string host_root;           // of kDoctor
  std::optional<capture::SystemdChoice> systemd;  // --systemd: also these cores
  FileRanks file_ranks;                           // --ranks
  target::CoreOptions core;
  capture::CaptureOptions capture;
  Format format = Format::kText;
  Color color = Color::kAuto;
  bool all_threads = false;
  std::vector<std::string> ranks;
  std::string output;                 // -o; empty: stdout
  bool ask_flight_recorders = false;  // --flight-recorder ask
  std::vector<std::string> rules;     // --rules: files, in the order in which they are asked
  JobOptions job;                     // of kJob
  bool with_symbols = false;          // of kCapture
  DumpOptions dump;                   // of kDump
  CoreHandlerOptions core_handler;    // of kCoreHandler
  WatchOptions watch;                 // of kWatch
  bool for_node = false;              // --for-node: it is `rankstacks job` that reads the answer
  bool redact = false;                // --redact, or the format's default
  bool with_secrets = false;
  std::string redact_map;  // a file that must not exist yet; empty: none
  std::size_t max_bytes = 65536;
};

// What to do instead of running: print `text` (on stdout for help and version, on stderr for a usage error) and exit.
struct EarlyExit {
  std::string text;
  int status = 0;
};

std::variant<Options, EarlyExit> parse_command_line(int argc, const char* const* argv);

// Passes the commands, options and their texts to `visit`, from which the man page and the shells' completions are
// written.
void describe_command_line(const std::function<void(const CLI::App&)>& visit);

}  // namespace rankstacks::cli
