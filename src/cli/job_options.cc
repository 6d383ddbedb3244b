#include "cli/job_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <utility>

#include "capture/job_choice.h"
#include "cli/option_checks.h"
#include "report/sanitize.h"

namespace rankstacks::cli {
namespace {

constexpr long long kYear9999 = 253'402'300'799'000;  // in ms; a time_point holds later ones only for some clocks

CLI::Validator one_word() {
  return {[](std::string& word) {
            return word.empty() || word.front() == '-' ? fmt::format("expected a name, found \"{}\"", word)
                                                       : std::string();
          },
          ""};
}

// The options that were given to an action, as words again.
std::vector<std::string> words_of(const CLI::App& action) {
  std::vector<std::string> words = {action.get_name(), "--for-node"};
  std::vector<std::string> files;
  for (const CLI::Option* option : action.get_options()) {
    if (option->count() == 0) continue;
    if (option->get_positional()) {
      files = option->results();
      continue;
    }
    const std::string name = option->get_name();
    const std::vector<std::string> values = option->results();
    if (option->get_items_expected_max() == 0 || values.empty() || (values.size() == 1 && values.front().empty()))
      words.push_back(name);
    else
      for (const std::string& value : values) words.push_back(fmt::format("{}={}", name, value));
  }
  if (!files.empty()) words.emplace_back("--");
  words.insert(words.end(), files.begin(), files.end());
  return words;
}

}  // namespace

void JobCommand::add_to(CLI::App& command) {
  job_ = &command;
  job_->require_subcommand(0, 1);
  job_->add_option("--hosts", options_.hosts, "the nodes, as a,b[1-64]")->type_name("LIST");
  job_->add_option("--hostfile", options_.hostfile, "a file with one node in each line, as mpirun reads it")
      ->type_name("FILE");
  job_->add_option("--slurm", options_.slurm, "the nodes of this job of Slurm, as squeue says")
      ->type_name("JOBID")
      ->check(one_word());
  auto* kubectl = job_->add_option("--kubectl", options_.selector, "the pods that have these labels")
                      ->type_name("SELECTOR")
                      ->check(one_word());
  job_->add_option("-n,--namespace", options_.space, "of --kubectl: the namespace of the pods")
      ->type_name("NS")
      ->needs(kubectl)
      ->check(one_word());
  job_->add_option("--container", options_.container, "of --kubectl: the container of each pod, if not its first")
      ->type_name("NAME")
      ->needs(kubectl)
      ->check(one_word());
  job_->add_option("--debug-image", options_.debug_image,
                   "of --kubectl: the image of an ephemeral container that looks at --container, where that one has no "
                   "shell or may not trace")
      ->type_name("IMAGE")
      ->needs(kubectl)
      ->check(one_word());
  job_->add_option("--docker", options_.docker,
                   "containers of Docker on this machine, as a,b[1-8], or those of a filter of docker ps, as label=KEY")
      ->type_name("LIST")
      ->check(one_word());
  job_->add_option("--podman", options_.podman, "containers of Podman on this machine: the same")
      ->type_name("LIST")
      ->check(one_word());
  job_->add_option("--via", options_.via,
                   "the engine that runs the tool on the nodes: ssh, clush, pdsh, srun, mpirun, "
                   "flux, and for names of containers docker, podman; without it, the first that is there and works")
      ->type_name("ENGINE")
      ->check(CLI::IsMember({"ssh", "clush", "pdsh", "srun", "mpirun", "flux", "kubectl", "docker", "podman"}));
  job_->add_option("--engine-option", options_.engine_options,
                   "an option of the engine's own, as --engine-option=-F --engine-option=FILE; may be repeated")
      ->type_name("WORD")
      ->expected(1)
      ->take_all();
  job_->add_option("--fanout", fanout_, "how many nodes are asked at the same time")
      ->type_name("N")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  job_->add_option("--node-timeout", node_limit_, "a node has to answer within this time")
      ->type_name("SECONDS")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  job_->add_option("--connect-timeout", connect_, "of these, until the node has taken the connection")
      ->type_name("SECONDS")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  job_->add_option("--start-in", start_in_,
                   "all nodes look at their ranks this long after the call, by their clocks, or as soon as they are "
                   "ready; 0: each when it is ready (default: 1 s and 0.01 s for each node, at most 5)")
      ->type_name("SECONDS")
      ->check(a_number())
      ->check(CLI::Range(0.0, 8.0));
  job_->add_flag("--for-gateway", options_.for_gateway)->group("");
  job_->add_option("--start-at", start_at_)->group("")->check(CLI::Range(0LL, kYear9999));
  job_->add_flag("--print", options_.print, "show the exact commands, and do nothing");
  job_->add_flag("--no-copy", no_copy_, "do not copy the tool to nodes that have none, or another build");
  add_attach();
  add_core();
  add_doctor();
  for (CLI::App* action : {attach_, core_, doctor_}) action->fallthrough();
}

void JobCommand::add_attach() {
  attach_ = job_->add_subcommand("attach", "look at the running ranks of each node; this is the default");
  attach_->add_option("--job", job_name_, "which job, where a node runs several: as of attach --job")
      ->type_name("[JOB]")
      ->expected(0, 1);
  attach_->add_option("--samples", samples_, "as of attach")->type_name("N")->check(CLI::Range(1, 1000));
  attach_->add_option("--interval", interval_, "as of attach")->type_name("SECONDS")->check(CLI::Range(0.0, 3600.0));
  attach_->add_option("--max-wait", max_wait_, "as of attach")->type_name("SECONDS")->check(CLI::Range(0.0, 3600.0));
  attach_->add_option("--stop", stop_, "as of attach")->check(CLI::IsMember({"auto", "always", "never"}));
  attach_->add_flag("--gpu", gpu_, "as of attach");
  attach_->add_option("--flight-recorder", records_, "as of attach: files of the nodes")->expected(1)->take_all();
  attach_->add_flag("--no-inlines", no_inlines_, "as of attach");
  attach_->add_flag("--libc-lines", libc_lines_, "as of attach");
  attach_->add_option("--unwinder", unwinder_, "as of attach")->check(CLI::IsMember({"auto", "libunwind", "libdwfl"}));
}

void JobCommand::add_core() {
  core_ = job_->add_subcommand("core", "look at the cores of each node where they are");
  core_->add_option("PATTERN", cores_, "files of the nodes, as '/cores/core.*'; quoted, so that the nodes expand it")
      ->required();
  core_->add_option("--exe", exe_, "as of core")->type_name("FILE");
  core_->add_option("--sysroot", sysroot_, "as of core")->type_name("DIR");
  core_->add_option("--search", search_, "as of core")->type_name("DIR")->expected(1)->take_all();
  core_->add_option("--flight-recorder", records_, "as of core")->expected(1)->take_all();
  core_->add_flag("--no-inlines", no_inlines_, "as of core");
  core_->add_flag("--libc-lines", libc_lines_, "as of core");
  core_->add_option("--unwinder", unwinder_, "as of core")->check(CLI::IsMember({"auto", "libunwind", "libdwfl"}));
}

void JobCommand::add_doctor() {
  doctor_ = job_->add_subcommand("doctor", "say what would stop an attach or a core from working on each node");
  doctor_->add_option("--job", doctor_job_, "also the ranks of this job: as of doctor --job")
      ->type_name("[JOB]")
      ->expected(0, 1);
}

JobOptions JobCommand::take() {
  std::size_t given = 0;
  for (const char* name : {"--hosts", "--hostfile", "--slurm", "--kubectl", "--docker", "--podman"})
    given += job_->count(name) != 0;
  if (given != 1)
    throw CLI::ValidationError("job",
                               "which nodes? One of --hosts, --hostfile, --slurm, --kubectl, --docker and --podman");
  for (const auto& [name, engine] : {std::pair{"--docker", "docker"}, std::pair{"--podman", "podman"}})
    if (job_->count(name) != 0 && !options_.via.empty() && options_.via != engine)
      throw CLI::ValidationError("--via", fmt::format("{} asks by {} alone", name, engine));
  if (job_->count("--kubectl") != 0 && !options_.via.empty() && options_.via != "kubectl")
    throw CLI::ValidationError("--via", "--kubectl asks by kubectl alone");
  if (!options_.debug_image.empty() && options_.container.empty())
    throw CLI::ValidationError("--debug-image", "needs --container NAME: whose processes it looks at");
  for (const std::string& name : {job_name_, doctor_job_})
    if (const auto choice = capture::parse_job_choice(name); !choice)
      throw CLI::ValidationError("--job", fmt::format("{}, found {}", choice.error().what, report::in_quotes(name)));
  options_.fanout = static_cast<std::size_t>(fanout_);
  options_.node_limit = std::chrono::seconds(node_limit_);
  options_.connect = std::chrono::seconds(std::min(connect_, node_limit_));
  options_.copies = !no_copy_;
  if (job_->count("--start-in") > 0)
    options_.start_in = std::chrono::duration_cast<std::chrono::milliseconds>(of_seconds(start_in_));
  if (job_->count("--start-at") > 0)
    options_.start_at = std::chrono::system_clock::time_point(std::chrono::milliseconds(start_at_));
  if (!options_.selector.empty() && options_.space.empty()) options_.space = "default";
  if (core_->parsed()) options_.action = NodeAction::kCore, options_.node_words = words_of(*core_);
  else if (doctor_->parsed()) options_.action = NodeAction::kDoctor, options_.node_words = words_of(*doctor_);
  else options_.node_words = words_of(*attach_);
  // Which of the node's jobs it is, is known where it is Slurm's.
  const bool names_job = attach_->count("--job") > 0 && !job_name_.empty();
  if (options_.action == NodeAction::kAttach && !names_job) {
    std::erase(options_.node_words, "--job");
    options_.node_words.emplace_back(options_.slurm.empty() ? "--job" : "--job=slurm:" + options_.slurm);
  }
  return options_;
}

}  // namespace rankstacks::cli
