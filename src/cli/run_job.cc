#include "cli/run_job.h"

#include <unistd.h>
#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "base/text.h"
#include "cli/messages.h"
#include "cli/saved_reports.h"
#include "model/captured_at.h"
#include "nodes/ask_directly.h"
#include "nodes/ask_nodes.h"
#include "nodes/choose_engine.h"
#include "nodes/doctor_answers.h"
#include "nodes/host_list.h"
#include "nodes/join_answers.h"
#include "report/report_file.h"
#include "report/sanitize.h"

namespace rankstacks::cli {
namespace {

using known::Engine;
using std::chrono::seconds;

// Nodes that one engine is to ask; a heterogeneous job of Slurm has one part for each component.
struct Part {
  std::string slurm_job;
  std::vector<std::string> hosts;
};

struct Plan {
  std::vector<Part> parts;
  std::vector<Engine> engines;  // in the order in which they are tried
};

Error failed_command(const nodes::CommandOutput& output, std::string subject, std::string what) {
  // The first line that is a known refusal, else the last one: kubectl logs its attempts before it says what is wrong.
  const known::RefusalRule* rule = nullptr;
  std::string said;
  for (std::size_t at = 0; at < output.err.size() && rule == nullptr;) {
    const std::size_t end = std::min(output.err.find('\n', at), output.err.size());
    if (end > at) said = output.err.substr(at, end - at);
    at = end + 1;
    rule = known::refusal_in(said);
  }
  return {.code = ErrorCode::kUnreadable,
          .subject = std::move(subject),
          .what = said.empty() ? std::move(what) : std::move(what) + ": " + said.substr(0, 512),
          .hint = rule == nullptr ? "" : std::string(rule->hint)};
}

Result<std::vector<Part>> parts_of_slurm(const std::string& job, const nodes::Interrupts& interrupts) {
  const auto output = nodes::output_of(nodes::squeue_command(job), seconds(15), interrupts);
  if (output.outcome.end != nodes::CallEnd::kExited || output.outcome.status != 0)
    return fail(failed_command(output, "squeue", "does not list the job's nodes"));
  auto steps = nodes::parse_squeue(output.out, job);
  if (!steps) return fail(steps.error());
  std::vector<Part> parts;
  for (nodes::SlurmStep& step : *steps) parts.push_back({step.id, std::move(step.hosts)});
  return parts;
}

Result<std::vector<Part>> parts_of_selector(const JobOptions& job, const nodes::Interrupts& interrupts) {
  const std::vector<std::string> command = {
      "kubectl", "get", "pods", "--namespace=" + job.space, "--selector=" + job.selector, "--output=name"};
  const auto output = nodes::output_of(command, seconds(30), interrupts);
  if (output.outcome.end != nodes::CallEnd::kExited || output.outcome.status != 0)
    return fail(failed_command(output, "kubectl", "does not list the pods"));
  Part part;
  for (std::size_t at = 0; at < output.out.size();) {
    const std::size_t end = std::min(output.out.find('\n', at), output.out.size());
    std::string name = output.out.substr(at, end - at);
    at = end + 1;
    if (name.starts_with("pod/")) part.hosts.push_back(name.substr(4));
  }
  if (part.hosts.empty())
    return fail({.code = ErrorCode::kNotFound,
                 .subject = "kubectl",
                 .what = fmt::format("no pod of namespace {} has the labels {}", job.space, job.selector)});
  return std::vector<Part>{std::move(part)};
}

// Names, or a filter of `docker ps`, which has a "=" that no name has.
Result<std::vector<Part>> parts_of_containers(Engine engine, const std::string& asked,
                                              const nodes::Interrupts& interrupts) {
  if (!contains(asked, '=')) {
    auto names = nodes::parse_host_list(asked);
    if (!names) return fail(names.error());
    return std::vector<Part>{{"", std::move(*names)}};
  }
  const known::EngineRule& rule = known::rule_of(engine);
  const auto output = nodes::output_of(nodes::containers_command(rule, asked), seconds(30), interrupts);
  if (output.outcome.end != nodes::CallEnd::kExited || output.outcome.status != 0)
    return fail(failed_command(output, std::string(rule.name), "does not list the containers"));
  auto names = nodes::parse_containers(output.out, asked);
  if (!names) return fail(names.error());
  return std::vector<Part>{{"", std::move(*names)}};
}

Result<std::vector<Part>> parts_of(const Options& options, const nodes::Interrupts& interrupts) {
  const JobOptions& job = options.job;
  if (!job.slurm.empty()) return parts_of_slurm(job.slurm, interrupts);
  if (!job.selector.empty()) return parts_of_selector(job, interrupts);
  if (!job.docker.empty()) return parts_of_containers(Engine::kDocker, job.docker, interrupts);
  if (!job.podman.empty()) return parts_of_containers(Engine::kPodman, job.podman, interrupts);
  auto hosts = [&]() -> Result<std::vector<std::string>> {
    if (job.hostfile.empty()) return nodes::parse_host_list(job.hosts);
    auto texts = read_files({job.hostfile}, options.capture.timeout,
                            [](const std::string& path) { return report::read_rules_file(path); });
    if (!texts.front()) return fail(texts.front().error());
    return nodes::parse_hostfile(*texts.front(), job.hostfile);
  }();
  if (!hosts) return fail(hosts.error());
  return std::vector<Part>{{"", std::move(*hosts)}};
}

// Without a profile, which kubectl has since 1.27, the container would lack the right to trace.
Result<Plan> plan_of_debug(std::vector<Part> parts, const nodes::Interrupts& interrupts) {
  constexpr int kHasProfiles = 27;
  const auto version = nodes::output_of({"kubectl", "version", "--client"}, seconds(10), interrupts);
  const std::optional<int> minor = nodes::kubectl_minor(version.out);
  if (minor && *minor < kHasProfiles)
    return fail({.code = ErrorCode::kUnsupported,
                 .subject = "--debug-image",
                 .what = fmt::format("kubectl 1.{} has no `kubectl debug --profile`", *minor),
                 .hint = "kubectl 1.27 and newer have it"});
  return Plan{std::move(parts), {Engine::kKubectlDebug}};
}

Result<Plan> plan_of(const Options& options, const nodes::Interrupts& interrupts) {
  const JobOptions& job = options.job;
  auto parts = parts_of(options, interrupts);
  if (!parts) return fail(parts.error());
  if (!job.debug_image.empty()) return plan_of_debug(std::move(*parts), interrupts);
  const std::vector<Engine> usual = !job.slurm.empty()      ? std::vector{Engine::kSrun}
                                    : !job.selector.empty() ? std::vector{Engine::kKubectl}
                                    : !job.docker.empty()   ? std::vector{Engine::kDocker}
                                    : !job.podman.empty()   ? std::vector{Engine::kPodman}
                                                            : std::vector{Engine::kClush, Engine::kPdsh, Engine::kSsh};
  auto engines = nodes::engines_to_try(job.via, usual, interrupts);
  if (!engines) return fail(engines.error());
  if (engines->front() == Engine::kSrun && job.slurm.empty())
    return fail({.code = ErrorCode::kUsage, .subject = "--via srun", .what = "needs --slurm JOBID"});
  return Plan{std::move(*parts), std::move(*engines)};
}

std::vector<std::string> words_for_nodes(const Options& options) {
  const JobOptions& job = options.job;
  std::vector<std::string> words = job.node_words;
  std::vector<std::string> more = {"--format=json"};
  if (job.action != NodeAction::kDoctor) {
    more.push_back(fmt::format("--timeout={}", std::max<long>(1, job.node_limit.count() * 4 / 5)));
    if (options.with_secrets) more.emplace_back("--with-secrets");
  }
  // Behind the action and --for-node.
  words.insert(words.begin() + 2, more.begin(), more.end());
  return words;
}

// Of `rankstacks job` on a gateway. An engine that its nodes do not have is no reason to give up, but options are those
// of one engine.
std::vector<std::string> words_for_gateways(const Options& options, std::chrono::milliseconds start_in) {
  const JobOptions& job = options.job;
  std::vector<std::string> words = {
      "--for-gateway", "--format=json", fmt::format("--node-timeout={}", job.node_limit.count()),
      fmt::format("--connect-timeout={}", job.connect.count()), fmt::format("--fanout={}", job.fanout)};
  if (job.start_in || start_in.count() == 0)
    words.push_back(fmt::format("--start-in={:.3f}", std::chrono::duration<double>(start_in).count()));
  if (!job.copies) words.emplace_back("--no-copy");
  if (options.with_secrets) words.emplace_back("--with-secrets");
  const std::vector<std::string> passed_on = nodes::without_topology(job.engine_options);
  if (!passed_on.empty()) words.emplace_back("--via=clush");
  for (const std::string& option : passed_on) words.push_back("--engine-option=" + option);
  // The action, without --for-node.
  words.push_back(job.node_words.front());
  words.insert(words.end(), job.node_words.begin() + 2, job.node_words.end());
  return words;
}

// What clush's topology.conf says of the way to the nodes. One that only clush can read is left to it: its gateways
// then pass on what the nodes print.
nodes::Tree tree_to(const Options& options, const std::vector<std::string>& hosts) {
  char own[256] = {};
  if (gethostname(own, sizeof own - 1) != 0) return {};
  const std::vector<std::string> paths = nodes::topology_files(options.job.engine_options);
  const auto texts =
      read_files(paths, options.capture.timeout, [](const std::string& path) { return report::read_rules_file(path); });
  for (std::size_t p = paths.size(); p-- > 0;) {
    if (!texts[p]) continue;
    const auto routes = nodes::parse_topology(*texts[p], paths[p]);
    const std::string_view name = own;
    return routes ? nodes::tree_from(std::string(name.substr(0, name.find('.'))), *routes, hosts) : nodes::Tree();
  }
  return {};
}

// Ranks that run are seen at one moment. A node that is alone need not wait for others, and cores do not run.
std::chrono::milliseconds start_delay(const JobOptions& job, const nodes::NodeQuestion& question) {
  using std::chrono::milliseconds;
  if (job.action != NodeAction::kAttach || (question.hosts.size() < 2 && !job.for_gateway)) return milliseconds(0);
  if (job.start_in) return *job.start_in;
  constexpr milliseconds kOfAnEngine{1000}, kOfANode{10}, kLongest{5000}, kOfALevel{2000};
  std::size_t most = question.hosts.size();  // that one machine asks
  for (const nodes::Branch& branch : question.tree.branches) most -= branch.behind.size();
  for (const nodes::Branch& branch : question.tree.branches)
    most = std::max(most, branch.behind.size() / branch.gateways.size());
  return std::min<milliseconds>(kOfAnEngine + kOfANode * most, kLongest) + kOfALevel * question.tree.levels;
}

nodes::NodeQuestion question_for(const Options& options, const Part& part, Engine engine,
                                 const nodes::Interrupts& interrupts) {
  const JobOptions& job = options.job;
  nodes::NodeQuestion question;
  question.engine.engine = engine;
  question.engine.options = job.engine_options;
  question.engine.job = part.slurm_job;
  question.engine.space = job.space;
  question.engine.container = job.container;
  question.engine.image = job.debug_image;
  question.engine.as_root = geteuid() == 0;
  question.engine.fanout = job.fanout;
  question.engine.connect = job.connect;
  question.engine.node_limit = job.node_limit;
  if (engine == Engine::kSrun)
    question.engine.overlaps =
        nodes::knows_overlap(nodes::output_of({"srun", "--version"}, seconds(10), interrupts).out);
  question.hosts = part.hosts;
  question.words = words_for_nodes(options);
  question.copies = job.copies;
  if (engine == Engine::kClush && job.action != NodeAction::kDoctor) question.tree = tree_to(options, part.hosts);
  question.start_in = start_delay(job, question);
  question.gateway_words = words_for_gateways(options, question.start_in);
  question.start_at = job.start_at;
  return question;
}

void print_calls(const Options& options, const Plan& plan, const nodes::ToolFile& tool,
                 const nodes::Interrupts& interrupts, std::ostream& out) {
  for (const Part& part : plan.parts) {
    const auto planned = nodes::plan_calls(question_for(options, part, plan.engines.front(), interrupts), tool);
    for (const auto& call : planned.first) out << nodes::shown_call(call) << '\n';
    if (!options.job.debug_image.empty()) {
      out << "# Each of them gets through its standard input, which stays open, "
          << (options.job.copies ? fmt::format("the size of {} ({} bytes) packed by gzip, and that behind it",
                                               report::sanitize(tool.path), tool.size)
                                 : "the line 0")
          << '\n';
      continue;
    }
    if (!options.job.copies) continue;
    out << fmt::format("# Nodes that print \"lacks\" get {} ({} bytes) through standard input, packed by gzip:\n",
                       report::sanitize(tool.path), tool.size);
    for (const auto& call : planned.copying) out << nodes::shown_call(call) << '\n';
  }
}

// Whether an engine has failed as a whole, so that the next one may do better.
bool has_failed(const std::vector<nodes::NodeAnswer>& answers) {
  return std::all_of(answers.begin(), answers.end(), [](const nodes::NodeAnswer& answer) {
    return answer.node.fault == NodeFault::kNoEngine || answer.node.fault == NodeFault::kOther;
  });
}

int write_doctor(const Options& options, std::vector<nodes::NodeAnswer> answers, std::ostream& out, std::ostream& err) {
  const nodes::DoctorAnswers joined = nodes::join_doctors(std::move(answers));
  const std::string text = options.format == Format::kJson ? nodes::json_of(joined) : nodes::text_of(joined);
  if (!write_report(options, text, out, err) || joined.answered == 0) return 2;
  return joined.ok() ? 0 : 1;
}

}  // namespace

std::optional<JobSnapshot> take_job_of_nodes(const Options& options, std::ostream& out, std::ostream& err,
                                             int& status) {
  const auto started = Deadline::Clock::now();
  const Deadline deadline = Deadline::after(options.capture.timeout);
  const nodes::Interrupts interrupts;
  status = 2;
  const auto plan = plan_of(options, interrupts);
  const auto tool = plan ? nodes::own_file() : Result<nodes::ToolFile>(fail(plan.error()));
  if (!tool) {
    print_error(err, report::sanitize(tool.error().message()), tool.error().hint);
    return std::nullopt;
  }
  if (options.job.print) {
    print_calls(options, *plan, *tool, interrupts, out);
    status = 0;
    return std::nullopt;
  }
  std::vector<nodes::NodeAnswer> answers;
  std::optional<std::chrono::system_clock::time_point> first_start;
  for (const Part& part : plan->parts) {
    std::vector<nodes::NodeAnswer> of_part;
    for (const Engine engine : plan->engines) {
      const nodes::NodeQuestion question = question_for(options, part, engine, interrupts);
      if (question.start_in.count() > 0) first_start = std::chrono::system_clock::now() + question.start_in;
      of_part = nodes::ask_nodes(question, *tool, deadline, interrupts);
      if (!has_failed(of_part) || deadline.passed() || interrupts.have_come()) break;
    }
    std::move(of_part.begin(), of_part.end(), std::back_inserter(answers));
  }
  if (options.job.action == NodeAction::kDoctor) {
    status = write_doctor(options, std::move(answers), out, err);
    return std::nullopt;
  }
  const auto ask_directly = [&](const std::vector<std::string>& hosts) {
    return nodes::ask_directly(question_for(options, Part{"", hosts}, Engine::kSsh, interrupts), first_start, *tool,
                               deadline, interrupts);
  };
  JobSnapshot job = nodes::join_answers(std::move(answers), options.job.for_gateway, ask_directly);
  job.tool_version = RANKSTACKS_VERSION;
  if (job.captured_at.empty())
    job.captured_at = captured_at_text(std::chrono::system_clock::now());  // no rank was read
  job.elapsed_ms = std::chrono::duration<double, std::milli>(Deadline::Clock::now() - started).count();
  return job;
}

}  // namespace rankstacks::cli
