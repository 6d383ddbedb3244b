#include "cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/memory_limit.h"
#include "base/unattended.h"
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

// Parses "101,102" and "101 102", in any mixture. A word may contain blanks too: --pids "$(pgrep -f train.py)".
std::vector<Pid> parse_pids(const std::vector<std::string>& words) {
  std::vector<Pid> pids;
  for (const std::string& word : words) {
    std::size_t at = 0;
    while (at <= word.size()) {
      std::size_t comma = word.find_first_of(", \t\n", at);
      if (comma == std::string::npos) comma = word.size();
      const char* begin = word.data() + at;
      const char* end = word.data() + comma;
      Pid pid = 0;
      const auto [p, e] = std::from_chars(begin, end, pid);
      if (begin != end) {
        if (e != std::errc() || p != end || pid <= 0)
          throw CLI::ValidationError("--pids",
                                     fmt::format("expected process ids, found \"{}\"", std::string(begin, end)));
        if (std::find(pids.begin(), pids.end(), pid) == pids.end()) pids.push_back(pid);
      }
      at = comma + 1;
    }
  }
  if (pids.empty()) throw CLI::ValidationError("--pids", "expected process ids, found none");
  return pids;
}

// CLI::Range accepts NaN, because every comparison with it is false.
CLI::Validator a_number() {
  return {[](std::string& word) {
            double value = 0;
            return CLI::detail::lexical_cast(word, value) && value == value
                       ? std::string()
                       : fmt::format("expected a number, found \"{}\"", report::sanitize(word));
          },
          ""};
}

// Checks a file or directory that the user names for cores. Without this check, the only sign of a misspelt path would
// be missing function names.
CLI::Validator is_there(bool directory) {
  return {[directory](std::string& path) {
            constexpr std::chrono::seconds kLongestWait{10};  // --timeout may come later on the command line
            struct FileStatus {
              int error = 0;
              mode_t mode = 0;
            };
            const std::string name = path.empty() ? "\"\"" : report::sanitize(path);
            const auto status = unattended<FileStatus>(
                [path] {
                  struct stat st {};
                  return stat(path.c_str(), &st) != 0 ? FileStatus{errno, 0} : FileStatus{0, st.st_mode};
                },
                kLongestWait);
            if (!status) return fmt::format("{}: its file system does not answer", name);
            if (status->error != 0) return fmt::format("{}: {}", name, std::strerror(status->error));
            return (S_ISDIR(status->mode) != 0) == directory
                       ? std::string()
                       : fmt::format("{}: {}", name, directory ? "not a directory" : "a directory, not a file");
          },
          ""};
}

CLI::Validator exists() {
  return {[](std::string& path) { return is_there(true)(path).empty() ? std::string() : is_there(false)(path); }, ""};
}

// --flight-recorder ask. A file of that name is ./ask.
constexpr const char* kAsk = "ask";

CLI::Validator asks_or_exists() {
  return {[](std::string& word) { return word == kAsk ? std::string() : exists()(word); }, ""};
}

// With less memory than the tool itself needs with a few threads, it would end at once.
CLI::Validator a_size() {
  return {[](std::string& word) {
            constexpr std::size_t kLeast = 128u << 20;
            const auto bytes = parse_size(word);
            if (!bytes) return fmt::format("expected a size as 512M or 2G, found \"{}\"", report::sanitize(word));
            return *bytes >= kLeast ? std::string()
                                    : fmt::format("expected at least 128M, found \"{}\"", report::sanitize(word));
          },
          ""};
}

CLI::Validator not_empty() {
  return {[](std::string& path) {
            return path.empty() ? std::string("expected a file's name, found none") : std::string();
          },
          ""};
}

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
      if (attach_->parsed()) take_pids_of(attach_live_, "attach: one of --pids and --job");
      if (capture_->parsed()) take_processes_of_capture();
      if (doctor_->parsed()) take_pids_of_doctor();
      if (diff_->parsed()) take_diff();
      if (core_->parsed()) options_.systemd = systemd_options_.take(!options_.paths.empty());
      if (job_command_->parsed()) options_.job = job_.take();
      if (dump_->parsed()) options_.dump = dump_command_.take();
      if (watch_->parsed()) take_watch();
      if (core_handler_->parsed()) options_.core_handler = core_handler_command_.take();
      check_stop();
      take_file_ranks();
      take_flight_recorder();
      take_redaction();
    } catch (const CLI::ParseError& e) {
      const int status = app_.exit(e, out, err);
      if (status == 0) return EarlyExit{out.str(), 0};
      return EarlyExit{fmt::format("rankstacks: {}\nhint: rankstacks --help\n",
                                   err.str().substr(0, err.str().find_last_not_of('\n') + 1)),
                       2};
    }
    complete_options();
    options_.words.assign(argv, argv + argc);
    return std::move(options_);
  }

 private:
  void add_attach() {
    attach_ = app_.add_subcommand("attach",
                                  "look at running processes: what sleeps is not stopped, what runs for milliseconds");
    attach_live_ = add_live(attach_);
    attach_
        ->add_option("--stop", stop_,
                     "whether processes may be stopped while they are read. auto: only threads that run, or whose "
                     "registers are needed; always: all threads; never: none, and no ptrace call is made")
        ->check(CLI::IsMember({"auto", "always", "never"}))
        ->capture_default_str();
    CLI::Option* gpu = add_gpu(attach_);
    attach_
        ->add_option("--gpu-core", gpu_core_,
                     "write a lightweight GPU core of each rank to FILE.rankN (FILE.HOST.PID where two processes say "
                     "that they are one rank)")
        ->type_name("FILE")
        ->needs(gpu);
    attach_->add_option("--gpu-core-limit", gpu_core_limit_, "a GPU core that would be larger is not written")
        ->type_name("MIB")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    add_capturing(attach_);
    add_for_node(attach_);
    attach_->footer("\nExample: rankstacks attach --pids 101,102,103,104");
  }

  void add_core() {
    core_ =
        app_.add_subcommand("core", "look at core files, of processes and of their GPUs (also .zst, .lz4, .xz, .gz)");
    core_->add_option("CORE", options_.paths, "the core files of the ranks; also apport's reports (.crash)");
    systemd_options_.add_to(*core_)->check(is_there(true));
    add_files(core_);
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
                     "files written with --format json, or by py-spy, pystack, gdb, eu-stack, faulthandler, "
                     "coredumpctl; - for the standard input")
        ->required();
    report_
        ->add_option("--ranks", file_rank_words_,
                     "the ranks of other tools' files whose names do not state them: FILE=RANK,...")
        ->delimiter(',');
    add_files(report_);
    add_common(report_);
    add_limit(report_);
    report_->footer("\nExample: rankstacks report hang.json --threads all");
  }

  void add_diff() {
    diff_ = app_.add_subcommand("diff",
                                "compare two reports of one job: which threads moved and which stood, which clusters "
                                "and ranks came and went, which settings changed");
    diff_->add_option("OLD", diff_old_, "the earlier report, written with --format json (also .gz, .zst)")->required();
    diff_->add_option("NEW", diff_new_, "the later report; - for the standard input")->required();
    add_writing(diff_);
    add_redaction(diff_);
    add_rules_option(diff_);
    add_memory(diff_);
    add_threads(diff_);
    add_limit(diff_);
    diff_->footer("\nExample: rankstacks diff before.json after.json");
  }

  void add_doctor() {
    doctor_ = app_.add_subcommand("doctor",
                                  "say what would stop an attach or a core from working here, each with what mends it");
    doctor_pids_ = doctor_->add_option("--pids", pid_words_, "these processes too; a launcher stands for its ranks")
                       ->type_name("PID");
    doctor_job_ = add_job(doctor_);
    doctor_pids_->excludes(doctor_job_);
    doctor_->add_option("CORE", options_.paths,
                        "core files: whether they are whole, and the files they are of are on this machine");
    add_files(doctor_);
    doctor_
        ->add_option("--host-root", options_.host_root,
                     "in a container: where the machine's root directory is mounted, for who gets cores there, and "
                     "systemd's settings")
        ->type_name("DIR")
        ->check(is_there(true));
    add_writing(doctor_);
    add_for_node(doctor_);
    doctor_->footer(
        "\nExit status: 0 all is well; 1 something is not; 2 a usage error.\nExample: rankstacks doctor --pids "
        "101,102,103,104");
  }

  void add_rules() {
    rules_ = app_.add_subcommand(
        "rules", "show what is known of other programs: by which frames, names and files threads are recognized");
    add_rules_option(rules_);
    add_writing(rules_);
    rules_->footer(
        "\nWith --format json in the form that --rules reads (docs/rules.md).\nExample: rankstacks rules --rules "
        "acme.json");
  }

  void add_job_command() {
    job_command_ = app_.add_subcommand(
        "job", "look at a job on many nodes: runs the tool on each by ssh, clush, pdsh, srun or mpirun, and merges");
    job_.add_to(*job_command_);
    add_common(job_command_);
    add_limit(job_command_, "make the report of what has come after this long");
    job_command_->footer(
        "\nExample: rankstacks job --hosts 'node-[1-64]' --via clush\n"
        "         rankstacks job --slurm 4711 core '/cores/core.*'");
  }

  void add_capture() {
    capture_ = app_.add_subcommand(
        "capture", "write a small core of each process, which gdb, eu-stack and this tool open: MB in place of GB");
    capture_live_ = add_live(capture_);
    capture_->add_option("CORE", options_.paths, "core files, in place of running processes");
    add_gpu(capture_);
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
    add_files(capture_);
    add_rules_option(capture_);
    add_memory(capture_);
    add_reading(capture_);
    capture_->footer(
        "\nExample: rankstacks capture --job -o hang.tar.zst\n"
        "         rankstacks capture core-python-* -o small --with-symbols");
  }

  // What is common to commands that look at running processes.
  struct LiveOptions {
    CLI::Option *pids = nullptr, *job = nullptr, *samples = nullptr, *interval = nullptr;
  };

  LiveOptions add_live(CLI::App* sub) {
    LiveOptions live;
    live.pids = sub->add_option("--pids", pid_words_,
                                "process ids, separated by commas or blanks; a launcher stands for its ranks")
                    ->type_name("PID");
    live.job = add_job(sub);
    live.pids->excludes(live.job);
    live.samples = sub->add_option("--samples", options_.live.samples,
                                   "samples to take of the job: several distinguish what moves from what is stuck; "
                                   "more are taken where the default leaves that open")
                       ->type_name("N")
                       ->check(CLI::Range(1, 1000))
                       ->capture_default_str();
    live.interval = sub->add_option("--interval", interval_, "from one sample to the next")
                        ->type_name("SECONDS")
                        ->check(a_number())
                        ->check(CLI::Range(0.0, 3600.0))
                        ->capture_default_str();
    sub->add_option("--max-wait", max_wait_,
                    "how long to go on sampling where all that is seen is waits for GPUs, or loops, which a long step "
                    "shows as well; not with --samples or --interval")
        ->type_name("SECONDS")
        ->check(a_number())
        ->check(CLI::Range(0.0, 3600.0))
        ->capture_default_str();
    return live;
  }

  CLI::Option* add_gpu(CLI::App* sub) {
    CLI::Option* gpu =
        sub->add_flag("--gpu", options_.gpu.sessions,
                      "also what runs on the ranks' GPUs: each GPU is paused for milliseconds, attaching takes about "
                      "a second; drivers before 590 keep some memory loaded for it");
    sub->add_option("--gpu-limit", gpu_limit_,
                    "how long GPU sessions are waited for until the GPUs are being paused; three times as long in all")
        ->type_name("SECONDS")
        ->check(CLI::Range(1, 3600))
        ->capture_default_str();
    return gpu;
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
    watch_pids_ =
        watch_->add_option("--pids", pid_words_, "these processes; a launcher stands for its ranks")->type_name("PID");
    watch_job_ = add_job(watch_);
    watch_pids_->excludes(watch_job_);
    watch_command_.add_to(*watch_);
    add_rules_option(watch_);
    add_memory(watch_);
  }

  void add_core_handler() {
    core_handler_ = app_.add_subcommand(
        "core-handler", "what kernel.core_pattern starts: writes a small core of a process that dies, as it dies");
    core_handler_command_.add_to(*core_handler_);
    add_memory(core_handler_);
  }

  // Of the tool that `rankstacks job` starts on a node.
  void add_for_node(CLI::App* sub) { sub->add_flag("--for-node", options_.for_node)->group(""); }

  // Options that several commands have.
  CLI::Option* add_job(CLI::App* sub) {
    return sub
        ->add_option("--job", job_name_,
                     "the ranks of the job on this machine, found by their environment; where there are several jobs, "
                     "they are listed, and JOB says which: its ID, pid:N of any of its processes, user:NAME, "
                     "cgroup:PATH")
        ->type_name("[JOB]")
        ->expected(0, 1);
  }

  void add_writing(CLI::App* sub, const std::vector<std::string>& formats = {"text", "json"}) {
    sub->add_option("--format", format_, fmt::format("{}", fmt::join(formats, ", ")))
        ->check(CLI::IsMember(formats))
        ->capture_default_str();
    sub->add_option("-o,--output", options_.output,
                    "write the report to this file instead of stdout; a new one only its owner can read; packed, if "
                    "its name ends in .gz or .zst")
        ->type_name("FILE")
        ->check(not_empty());
    sub->add_option("--color", color_, "auto, always or never")
        ->check(CLI::IsMember({"auto", "always", "never"}))
        ->capture_default_str();
  }

  void add_files(CLI::App* sub) {
    sub->add_option("--exe", options_.core.executable,
                    "the program that the cores are of, when it is not at the path they name")
        ->type_name("FILE")
        ->check(is_there(false));
    sub->add_option("--sysroot", options_.core.sysroot,
                    "directory that holds the other machine's files under their paths")
        ->type_name("DIR")
        ->check(is_there(true));
    sub->add_option(
           "--search", options_.core.search,
           "directory with executables, libraries or debug files: also a conda environment, one of wheels, another "
           "machine's root; may be repeated")
        ->type_name("DIR")
        ->expected(1)
        ->take_all()
        ->check(is_there(true));
    sub->add_flag("--debuginfod", debuginfod_,
                  "files that are not here are fetched by build-id from the servers in DEBUGINFOD_URLS, by "
                  "debuginfod-find, which keeps them in its cache");
    sub->add_option("--debuginfod-time", debuginfod_time_, "how long that may take for all files together")
        ->type_name("SECONDS")
        ->check(CLI::Range(0.1, 3600.0))
        ->capture_default_str();
  }

  void add_rules_option(CLI::App* sub) {
    sub->add_option("--rules", options_.rules,
                    "file of rules (JSON) for programs that the tool does not know, asked before the built-in ones; "
                    "may be repeated")
        ->type_name("FILE")
        ->expected(1)
        ->take_all()
        ->check(is_there(false));
  }

  // What makes a report fit to be shown to others (docs/redaction.md).
  void add_redaction(CLI::App* sub) {
    auto* redact = sub->add_flag("--redact", redact_,
                                 "show hosts, users, addresses, arguments and messages under pseudonyms (in markdown "
                                 "and html that is the default)");
    sub->add_flag("--no-redact", no_redact_, "show them as they are")->excludes(redact);
    sub->add_option("--redact-map", options_.redact_map, "write what the pseudonyms stand for to this new file")
        ->type_name("FILE")
        ->check(not_empty());
    sub->add_flag("--with-secrets", options_.with_secrets,
                  "leave keys, tokens and passwords in the report, which are taken out otherwise");
  }

  void add_common(CLI::App* sub) {
    add_writing(sub, {"text", "json", "markdown", "html", "folded"});
    add_redaction(sub);
    sub->add_option("--max-bytes", options_.max_bytes, "markdown: the longest report")
        ->type_name("N")
        ->check(CLI::Range(4096, 1 << 30))
        ->capture_default_str();
    add_rules_option(sub);
    add_memory(sub);
    add_threads(sub);
    sub->add_option("--rank", options_.ranks,
                    "show these ranks' threads in full (text): a number, host:pid or pid; may be repeated")
        ->type_name("RANK")
        ->delimiter(',');
  }

  void add_threads(CLI::App* sub) {
    sub->add_option("--threads", threads_, "all: show every thread of every rank in full (text)")
        ->check(CLI::IsMember({"all", "clusters"}));
  }

  void add_memory(CLI::App* sub) {
    sub->add_option("--memory", memory_,
                    "the most that the tool takes, as 512M or 2G; what does not fit is left out, and said (default: "
                    "half of the machine's, or of the container's)")
        ->type_name("SIZE")
        ->check(a_size());
  }

  void add_limit(CLI::App* sub, const std::string& text =
                                    "give up on a rank, on what it waits for, or on a file's functions, after this "
                                    "long, and on a file that does not answer after a fourth of it; the report has "
                                    "what was read by then") {
    sub->add_option("--timeout", timeout_, text)
        ->type_name("SECONDS")
        ->check(a_number())
        ->check(CLI::Range(0.001, 86400.0))
        ->capture_default_str();
  }

  void add_capturing(CLI::App* sub) {
    add_common(sub);
    add_reading(sub);
  }

  void add_reading(CLI::App* sub) {
    sub->add_option("--flight-recorder", options_.capture.flight_recorder,
                    "dump of PyTorch's Flight Recorder, whose name ends with its rank, or a directory of these; may be "
                    "repeated. ask (attach only): has each rank write its dump now")
        ->type_name("PATH|ask")
        ->expected(1)
        ->take_all()
        ->check(asks_or_exists());
    sub->add_flag("--no-inlines", no_inlines_, "leave out inlined frames");
    sub->add_flag("--libc-lines", options_.capture.libc_lines,
                  "also the lines and inlined functions of the C library's own frames, if its debug file is installed");
    sub->add_option("--unwinder", unwinder_,
                    "auto: libunwind, and libdwfl for threads that it does not finish; or one of both alone")
        ->check(CLI::IsMember({"auto", "libunwind", "libdwfl"}))
        ->capture_default_str();
    add_limit(sub);
  }

  void check_stop() const {
    if (stop_ == "never" && options_.gpu.sessions)
      throw CLI::ValidationError("--stop", "--gpu pauses GPUs, and stops a thread for that: not with --stop never");
  }

  void take_job() {
    auto choice = capture::parse_job_choice(job_name_);
    if (!choice)
      throw CLI::ValidationError("--job",
                                 fmt::format("{}, found {}", choice.error().what, report::in_quotes(job_name_)));
    options_.live.job = std::move(*choice);
  }

  void take_pids_of(const LiveOptions& live, const char* needed) {
    if (live.job->count() != 0) return take_job();
    if (live.pids->count() == 0) throw CLI::RequiredError(needed);
    options_.live.pids = parse_pids(pid_words_);
  }

  void take_processes_of_capture() {
    const bool is_live = capture_live_.pids->count() != 0 || capture_live_.job->count() != 0;
    if (is_live && !options_.paths.empty())
      throw CLI::ValidationError("capture", "either running processes or cores, not both at once");
    if (options_.paths.empty()) take_pids_of(capture_live_, "capture: one of --pids, --job and cores");
  }

  void take_watch() {
    options_.watch = watch_command_.take();
    if (watch_job_->count() != 0) return take_job();
    if (watch_pids_->count() == 0) throw CLI::RequiredError("watch: one of --pids and --job");
    options_.live.pids = parse_pids(pid_words_);
  }

  void take_pids_of_doctor() {
    const auto is_core = [](const std::string& word) {
      return word.find_first_not_of("0123456789,") != std::string::npos && access(word.c_str(), F_OK) == 0;
    };
    if (doctor_job_->count() != 0) {
      // --job takes the word that follows it, which may be a core.
      if (is_core(job_name_)) options_.paths.insert(options_.paths.begin(), std::exchange(job_name_, ""));
      return take_job();
    }
    if (doctor_pids_->count() == 0) return;
    // --pids takes all words that follow it. Those that are the names of files are cores.
    const auto cores = std::stable_partition(pid_words_.begin(), pid_words_.end(),
                                             [&](const std::string& word) { return !is_core(word); });
    options_.paths.insert(options_.paths.end(), cores, pid_words_.end());
    pid_words_.erase(cores, pid_words_.end());
    options_.live.pids = parse_pids(pid_words_);
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

  void take_flight_recorder() {
    if (std::erase(options_.capture.flight_recorder, kAsk) == 0) return;
    if (!attach_->parsed() && (!capture_->parsed() || !options_.paths.empty()))
      throw CLI::ValidationError("--flight-recorder", "a core cannot be asked: name its dump, or a directory of dumps");
    options_.ask_flight_recorders = true;
  }

  void take_diff() {
    if (diff_old_ == "-" && diff_new_ == "-")
      throw CLI::ValidationError("diff", "the standard input is one report: name the other by its file");
    options_.paths = {diff_old_, diff_new_};
  }

  void take_redaction() {
    options_.redact = redact_ || ((format_ == "markdown" || format_ == "html") && !no_redact_);
    if (options_.redact && options_.with_secrets)
      throw CLI::ValidationError("--with-secrets", "a redacted report has no secrets: --no-redact as well");
    if (options_.redact_map.empty()) return;
    if (!options_.redact) throw CLI::ValidationError("--redact-map", "there are no pseudonyms without --redact");
    if (access(options_.redact_map.c_str(), F_OK) == 0)
      throw CLI::ValidationError("--redact-map", report::sanitize(options_.redact_map) +
                                                     ": exists already; remove it first, or name another file");
  }

  void take_debuginfod() {
    // A rank, and a file, have --timeout each: something has to remain of that.
    const auto time =
        std::chrono::duration_cast<Deadline::Clock::duration>(std::chrono::duration<double>(debuginfod_time_));
    auto client = elf::Debuginfod::open(std::min(time, options_.capture.timeout / 2));
    if (!client) throw CLI::ValidationError("--debuginfod", client.error().message() + "; " + client.error().hint);
    options_.core.debuginfod = options_.capture.symbols.debuginfod = std::move(*client);
  }

  // Converts the words and numbers that the user gave to the values of the options.
  void complete_options() {
    options_.command = doctor_->parsed()         ? Options::Command::kDoctor
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
    options_.live.stop = stop_ == "always"  ? target::StopPolicy::kAlways
                         : stop_ == "never" ? target::StopPolicy::kNever
                                            : target::StopPolicy::kAuto;
    if (!gpu_core_.empty()) options_.gpu.core = gpu_core_;
    options_.gpu.limit = std::chrono::seconds(gpu_limit_);
    options_.gpu.core_limit = static_cast<std::uint64_t>(gpu_core_limit_) << 20;
    options_.format = format_ == "json"       ? Format::kJson
                      : format_ == "markdown" ? Format::kMarkdown
                      : format_ == "html"     ? Format::kHtml
                      : format_ == "folded"   ? Format::kFolded
                                              : Format::kText;
    options_.color = color_ == "always" ? Color::kAlways : color_ == "never" ? Color::kNever : Color::kAuto;
    options_.all_threads = threads_ == "all";
    options_.capture.unwinder = unwinder_ == "libunwind" ? capture::UnwinderChoice::kLibunwind
                                : unwinder_ == "libdwfl" ? capture::UnwinderChoice::kLibdwfl
                                                         : capture::UnwinderChoice::kAuto;
    options_.capture.symbols.inlines = !no_inlines_;
    options_.max_wait = std::chrono::duration_cast<Deadline::Clock::duration>(std::chrono::duration<double>(max_wait_));
    const auto samples_freely = [](const CLI::App* command, const LiveOptions& live) {
      return command->parsed() && live.samples->count() == 0 && live.interval->count() == 0;
    };
    options_.samples_as_needed = samples_freely(attach_, attach_live_) || samples_freely(capture_, capture_live_);
    if (capture_->parsed() || core_handler_->parsed())
      options_.capture.kept = std::make_shared<small_core::KeptJobs>(options_.with_symbols);
    options_.live.interval =
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(interval_));
    options_.capture.timeout =
        std::chrono::duration_cast<Deadline::Clock::duration>(std::chrono::duration<double>(timeout_));
    options_.gpu.timeout = options_.capture.timeout;
    options_.capture.memory =
        memory_.empty() ? default_memory_limit() : parse_size(memory_).value_or(default_memory_limit());
    options_.capture.symbols.sysroot = options_.core.sysroot;
    options_.capture.symbols.search = options_.core.search;
    if (debuginfod_) take_debuginfod();
  }

  std::vector<std::string> file_rank_words_;  // --ranks, "FILE=RANK"
  Options options_;
  CLI::App app_{
      "Shows which rank of a distributed training job is different, and where it is stuck: the stacks of all threads "
      "of all ranks,\n"
      "native and Python frames merged, clustered across the ranks; from running processes or from their core files."};
  CLI::App *attach_ = nullptr, *core_ = nullptr, *report_ = nullptr, *diff_ = nullptr, *doctor_ = nullptr,
           *rules_ = nullptr, *job_command_ = nullptr, *capture_ = nullptr, *dump_ = nullptr, *watch_ = nullptr,
           *core_handler_ = nullptr;
  LiveOptions attach_live_, capture_live_;
  CLI::Option *doctor_job_ = nullptr, *doctor_pids_ = nullptr, *watch_job_ = nullptr, *watch_pids_ = nullptr;

  // As the user gave them.
  std::string format_ = "text", color_ = "auto", threads_, unwinder_ = "auto", stop_ = "auto";
  double debuginfod_time_ = 30;
  bool debuginfod_ = false, no_inlines_ = false, redact_ = false, no_redact_ = false;
  double interval_ = std::chrono::duration<double>(capture::LiveRequest().interval).count();
  double max_wait_ = std::chrono::duration<double>(Options().max_wait).count();
  double timeout_ = std::chrono::duration<double>(capture::CaptureOptions::kDefaultTimeout).count();
  JobCommand job_;
  DumpCommand dump_command_;
  WatchCommand watch_command_;
  CoreHandlerCommand core_handler_command_;
  std::vector<std::string> pid_words_;
  SystemdOptions systemd_options_;
  std::string job_name_, gpu_core_, memory_, diff_old_, diff_new_;
  int gpu_core_limit_ = 1024, gpu_limit_ = 5;
};

}  // namespace

std::variant<Options, EarlyExit> parse_command_line(int argc, const char* const* argv) {
  return CommandLine().parse(argc, argv);
}

void describe_command_line(const std::function<void(const CLI::App&)>& use) { use(CommandLine().description()); }

}  // namespace rankstacks::cli
