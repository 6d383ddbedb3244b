#include "cli/options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <sstream>
#include <utility>

#include "cli/gpu_options.h"
#include "cli/option_checks.h"
#include "cli/output_options.h"
#include "cli/process_options.h"
#include "cli/reading_options.h"
#include "cli/sampling_options.h"
#include "cli/systemd_options.h"
#include "model/file_rank.h"
#include "report/sanitize.h"
#include "small_core/kept_jobs.h"

namespace rankstacks::cli {
namespace {

constexpr const char* kFooter = R"(
Examples:
  rankstacks attach --pids 101,102,103,104            which of these ranks is different, and where it is stuck
  rankstacks attach --job --format json -o hang.json  the job on this machine, saved for the bug report
  rankstacks attach --job slurm:4711.0                one of several jobs; --job alone lists them
  rankstacks core core-python-*                       the same from core files
  rankstacks report node-a.json node-b.json           saved reports of several machines as one
  rankstacks report hang.json --format markdown       the same as the body of an issue, without names of yours
  rankstacks report hang.json --format html -o h.html the same as a page for a browser, without names of yours
  rankstacks doctor                                   what would stop it from working here, and what mends that
  rankstacks job --hosts 'node-[1-64]'                the job on these nodes, by clush, pdsh or ssh
  rankstacks capture --job -o hang.tar.zst            small cores of the job, for gdb, for this tool elsewhere
  rankstacks dump --pid 4711 --native                 what a watchdog calls instead of py-spy dump
  rankstacks watch --job --on-hang /var/log/hangs     wait for a hang, and write the report before the job is ended
  rankstacks core core-* --rules acme.json            with what a file of rules says of an in-house framework

Exit status: 0 every target was read completely; 1 the report was made, but some target is partial or failed; 2 nothing could be done.)";

constexpr const char* kPids = "process ids, separated by commas or blanks; a launcher stands for its ranks";

// The only description of the command line: it parses the arguments, and the man page and the completions are generated
// from it.
class CommandLine {
 public:
  CommandLine() {
    app_.name("rankstacks");
    app_.footer(kFooter);
    app_.require_subcommand(1);
    app_.failure_message([](const CLI::App*, const CLI::Error& e) { return std::string(e.what()); });
    add_attach();
    add_core();
    add_report();
    add_diff();
    add_doctor();
    add_rules();
    add_job_command();
    add_capture();
    add_dump();
    add_watch();
    add_core_handler();
    for (CLI::App* command :
         {&app_, attach_, core_, report_, diff_, doctor_, rules_, job_command_, capture_, dump_, watch_, core_handler_})
      command->set_version_flag("--version", std::string("rankstacks ") + RANKSTACKS_VERSION,
                                "show the version and exit");
  }
  CommandLine(const CommandLine&) = delete;  // the description refers to the members
  CommandLine& operator=(const CommandLine&) = delete;

  const CLI::App& description() const { return app_; }

  // Call this only once.
  std::variant<Options, EarlyExit> parse(int argc, const char* const* argv) {
    if (argc > 1 && argv[1][0] != '-' &&
        app_.get_subcommands([&](const CLI::App* command) { return command->get_name() == argv[1]; }).empty())
      return EarlyExit{fmt::format("rankstacks: no command is called \"{}\": attach, core, report, diff, doctor, "
                                   "rules, job, capture, dump, watch or core-handler\nhint: rankstacks --help\n",
                                   report::sanitize(argv[1])),
                       2};
    std::ostringstream out, err;
    try {
      app_.parse(argc, const_cast<char**>(argv));
      if (attach_->parsed()) take_attach();
      if (capture_->parsed()) take_capture();
      if (doctor_->parsed()) doctor_processes_.take_with_cores();
      if (diff_->parsed()) take_diff();
      if (core_->parsed()) options_.systemd = systemd_options_.take(!options_.paths.empty());
      if (job_command_->parsed()) options_.job = job_.take();
      if (dump_->parsed()) options_.dump = dump_command_.take();
      if (watch_->parsed()) take_watch();
      if (core_handler_->parsed()) options_.core_handler = core_handler_command_.take();
      take_file_ranks();
      gpu_.take();
      reading_.take(attach_->parsed() || (capture_->parsed() && options_.paths.empty()));
      output_.take();
      if (options_.output == "-" && !capture_->parsed()) options_.output.clear();  // stdout
    } catch (const CLI::ParseError& e) {
      const int status = app_.exit(e, out, err);
      if (status == 0) return EarlyExit{out.str(), 0};
      return EarlyExit{fmt::format("rankstacks: {}\nhint: rankstacks --help\n",
                                   err.str().substr(0, err.str().find_last_not_of('\n') + 1)),
                       2};
    }
    options_.command = chosen_command();
    if (capture_->parsed() || core_handler_->parsed())
      options_.capture.kept = std::make_shared<small_core::KeptJobs>(options_.with_symbols);
    options_.words.assign(argv, argv + argc);
    return std::move(options_);
  }

 private:
  void add_attach() {
    attach_ = app_.add_subcommand("attach",
                                  "look at running processes: what sleeps is not stopped, what runs for milliseconds");
    attach_processes_.add_to(*attach_, kPids);
    attach_sampling_.add_to(*attach_);
    attach_
        ->add_option("--stop", stop_,
                     "whether processes may be stopped while they are read. auto: only threads that run, or whose "
                     "registers are needed; always: all threads; never: none, and no ptrace call is made")
        ->check(CLI::IsMember({"auto", "always", "never"}))
        ->capture_default_str();
    gpu_.add_with_cores_to(*attach_);
    add_capturing(attach_);
    add_for_node(attach_);
    attach_->footer("\nExample: rankstacks attach --pids 101,102,103,104");
  }

  void add_core() {
    core_ =
        app_.add_subcommand("core", "look at core files, of processes and of their GPUs (also .zst, .lz4, .xz, .gz)");
    core_->add_option("CORE", options_.paths, "the core files of the ranks; also apport's reports (.crash)");
    systemd_options_.add_to(*core_)->check(is_there(true));
    reading_.add_files(*core_);
    add_capturing(core_);
    add_for_node(core_);
    core_->footer("\nExample: rankstacks core core-python-* --sysroot /mnt/image");
  }

  void add_report() {
    report_ = app_.add_subcommand("report",
                                  "show saved JSON reports again, several as one job (also .gz, .zst), or what other "
                                  "tools have printed about the ranks");
    report_
        ->add_option("FILE", options_.paths,
                     "files written with --format json, or by py-spy, pystack, gdb, cuda-gdb, eu-stack, faulthandler, "
                     "coredumpctl, PyTorch's Flight Recorder or its py_stacks; - for the standard input")
        ->required();
    report_
        ->add_option("--ranks", file_rank_words_,
                     "the ranks of other tools' files whose names do not state them: FILE=RANK,...")
        ->delimiter(',');
    reading_.add_files(*report_);
    add_common(report_);
    reading_.add_timeout(*report_);
    report_->footer("\nExample: rankstacks report hang.json --threads all");
  }

  void add_diff() {
    diff_ = app_.add_subcommand("diff",
                                "compare two reports of one job: which threads moved and which stood, which clusters "
                                "and ranks came and went, which settings changed");
    diff_->add_option("OLD", diff_old_, "the earlier report, written with --format json (also .gz, .zst)")->required();
    diff_->add_option("NEW", diff_new_, "the later report; - for the standard input")->required();
    output_.add_writing(*diff_);
    output_.add_redaction(*diff_);
    reading_.add_rules(*diff_);
    reading_.add_memory(*diff_);
    output_.add_threads(*diff_);
    reading_.add_timeout(*diff_);
    diff_->footer("\nExample: rankstacks diff before.json after.json");
  }

  void add_doctor() {
    doctor_ = app_.add_subcommand("doctor",
                                  "say what would stop an attach or a core from working here, each with what mends it");
    doctor_processes_.add_to(*doctor_, "these processes too; a launcher stands for its ranks");
    doctor_->add_option("CORE", options_.paths,
                        "core files: whether they are whole, and the files they are of are on this machine");
    reading_.add_files(*doctor_);
    doctor_
        ->add_option("--host-root", options_.host_root,
                     "in a container: where the machine's root directory is mounted, for who gets cores there, and "
                     "systemd's settings")
        ->type_name("DIR")
        ->check(is_there(true));
    output_.add_writing(*doctor_);
    add_for_node(doctor_);
    doctor_->footer(
        "\nExit status: 0 all is well; 1 something is not; 2 a usage error.\nExample: rankstacks doctor --pids "
        "101,102,103,104");
  }

  void add_rules() {
    rules_ = app_.add_subcommand(
        "rules", "show what is known of other programs: by which frames, names and files threads are recognized");
    reading_.add_rules(*rules_);
    output_.add_writing(*rules_);
    rules_->footer(
        "\nWith --format json in the form that --rules reads (docs/rules.md).\nExample: rankstacks rules --rules "
        "acme.json");
  }

  void add_job_command() {
    job_command_ = app_.add_subcommand("job",
                                       "look at a job on many nodes: runs the tool on each by ssh, clush, pdsh, srun, "
                                       "mpirun, kubectl ..., and merges");
    job_.add_to(*job_command_);
    add_common(job_command_);
    reading_.add_timeout(*job_command_, "make the report of what has come after this long");
    job_command_->footer(
        "\nExample: rankstacks job --hosts 'node-[1-64]' --via clush\n"
        "         rankstacks job --slurm 4711 core '/cores/core.*'");
  }

  void add_capture() {
    capture_ = app_.add_subcommand(
        "capture", "write a small core of each process, which gdb, eu-stack and this tool open: MB in place of GB");
    capture_processes_.add_to(*capture_, kPids);
    capture_sampling_.add_to(*capture_);
    capture_->add_option("CORE", options_.paths, "core files, in place of running processes");
    gpu_.add_to(*capture_);
    capture_
        ->add_option("-o,--output", options_.output,
                     "the directory that gets rank-0.core.zst, ...; or FILE.tar.zst, with all of them in it; or "
                     "FILE.core or FILE.core.zst, of one process")
        ->type_name("DIR|FILE")
        ->required()
        ->check(not_empty());
    capture_->add_flag("--with-symbols", options_.with_symbols,
                       "also the functions and lines of its frames, for machines without the files of the process");
    capture_->add_flag(
        "--with-secrets", options_.with_secrets,
        "leave keys, tokens and passwords of environment and arguments, which are overwritten otherwise");
    reading_.add_files(*capture_);
    reading_.add_rules(*capture_);
    reading_.add_memory(*capture_);
    reading_.add_reading(*capture_);
    capture_->footer(
        "\nExample: rankstacks capture --job -o hang.tar.zst\n"
        "         rankstacks capture core-python-* -o small --with-symbols");
  }

  void add_dump() {
    dump_ = app_.add_subcommand(
        "dump",
        "what watchdogs call: takes the options of py-spy dump and prints its form, and looks at the whole job");
    dump_command_.add_to(*dump_);
  }

  void add_watch() {
    watch_ = app_.add_subcommand(
        "watch", "wait for a job to hang, and take the evidence before its watchdog ends it; costs next to nothing");
    watch_processes_.add_to(*watch_, "these processes; a launcher stands for its ranks");
    watch_command_.add_to(*watch_);
    reading_.add_rules(*watch_);
    reading_.add_memory(*watch_);
  }

  void add_core_handler() {
    core_handler_ = app_.add_subcommand(
        "core-handler", "what kernel.core_pattern starts: writes a small core of a process that dies, as it dies");
    core_handler_command_.add_to(*core_handler_);
    reading_.add_memory(*core_handler_);
  }

  // Of the tool that `rankstacks job` starts on a node.
  void add_for_node(CLI::App* sub) { sub->add_flag("--for-node", options_.for_node)->group(""); }

  // Options that several commands have.
  void add_common(CLI::App* command) {
    output_.add_writing(*command, {"text", "json", "markdown", "html", "folded"});
    output_.add_redaction(*command);
    output_.add_max_bytes(*command);
    reading_.add_rules(*command);
    reading_.add_memory(*command);
    output_.add_threads(*command);
    output_.add_ranks(*command);
  }

  void add_capturing(CLI::App* command) {
    add_common(command);
    reading_.add_reading(*command);
  }

  void take_attach() {
    attach_processes_.take_required("attach: one of --pids and --job");
    attach_sampling_.take();
    options_.live.stop = stop_ == "always"  ? target::StopPolicy::kAlways
                         : stop_ == "never" ? target::StopPolicy::kNever
                                            : target::StopPolicy::kAuto;
    if (stop_ == "never" && options_.gpu.sessions)
      throw CLI::ValidationError("--stop", "--gpu pauses GPUs, and stops a thread for that: not with --stop never");
  }

  void take_capture() {
    if (capture_processes_.given() && !options_.paths.empty())
      throw CLI::ValidationError("capture", "either running processes or cores, not both at once");
    if (options_.paths.empty()) capture_processes_.take_required("capture: one of --pids, --job and cores");
    capture_sampling_.take();
  }

  void take_watch() {
    options_.watch = watch_command_.take();
    watch_processes_.take_required("watch: one of --pids and --job");
  }

  void take_file_ranks() {
    for (const std::string& word : file_rank_words_) {
      const std::size_t equals = word.rfind('=');
      const std::string path = word.substr(0, equals);
      int rank = -1;
      if (equals != std::string::npos) std::from_chars(word.data() + equals + 1, word.data() + word.size(), rank);
      if (rank < 0 || rank > kMaxRank || std::to_string(rank) != word.substr(equals + 1))
        throw CLI::ValidationError("--ranks", report::sanitize(word) + ": FILE=RANK is expected");
      if (std::find(options_.paths.begin(), options_.paths.end(), path) == options_.paths.end())
        throw CLI::ValidationError("--ranks", report::sanitize(path) + ": not one of the files");
      options_.file_ranks[path] = rank;
    }
  }

  void take_diff() {
    if (diff_old_ == "-" && diff_new_ == "-")
      throw CLI::ValidationError("diff", "the standard input is one report: name the other by its file");
    options_.paths = {diff_old_, diff_new_};
  }

  Options::Command chosen_command() const {
    return doctor_->parsed()         ? Options::Command::kDoctor
           : rules_->parsed()        ? Options::Command::kRules
           : core_->parsed()         ? Options::Command::kCore
           : report_->parsed()       ? Options::Command::kReport
           : diff_->parsed()         ? Options::Command::kDiff
           : job_command_->parsed()  ? Options::Command::kJob
           : capture_->parsed()      ? Options::Command::kCapture
           : dump_->parsed()         ? Options::Command::kDump
           : watch_->parsed()        ? Options::Command::kWatch
           : core_handler_->parsed() ? Options::Command::kCoreHandler
                                     : Options::Command::kAttach;
  }

  Options options_;
  CLI::App app_{
      "Shows which rank of a distributed training job is different, and where it is stuck: the stacks of all threads "
      "of all ranks,\n"
      "native and Python frames merged, clustered across the ranks; from running processes or from their core files."};
  CLI::App *attach_ = nullptr, *core_ = nullptr, *report_ = nullptr, *diff_ = nullptr, *doctor_ = nullptr,
           *rules_ = nullptr, *job_command_ = nullptr, *capture_ = nullptr, *dump_ = nullptr, *watch_ = nullptr,
           *core_handler_ = nullptr;

  // Groups of options, and those of one command.
  ProcessOptions attach_processes_{options_}, doctor_processes_{options_}, capture_processes_{options_},
      watch_processes_{options_};
  SamplingOptions attach_sampling_{options_}, capture_sampling_{options_};
  GpuOptions gpu_{options_};
  ReadingOptions reading_{options_};
  OutputOptions output_{options_};
  SystemdOptions systemd_options_;
  JobCommand job_;
  DumpCommand dump_command_;
  WatchCommand watch_command_;
  CoreHandlerCommand core_handler_command_;

  // As the user gives them.
  std::string stop_ = "auto", diff_old_, diff_new_;
  std::vector<std::string> file_rank_words_;  // --ranks, "FILE=RANK"
};

}  // namespace

std::variant<Options, EarlyExit> parse_command_line(int argc, const char* const* argv) {
  return CommandLine().parse(argc, argv);
}

void describe_command_line(const std::function<void(const CLI::App&)>& use) { use(CommandLine().description()); }

}  // namespace rankstacks::cli
