#include "nodes/choose_engine.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>

#include <fmt/format.h>

#include "base/text.h"
#include "model/host_set.h"
#include "nodes/host_list.h"

namespace rankstacks::nodes {
namespace {

using std::chrono::seconds;

constexpr seconds kProbeLimit{10};

class Collector : public CallListener {
 public:
  void started(std::size_t) override {}
  void line(std::size_t, bool is_error, std::string_view text) override {
    std::string& into = is_error ? err : out;
    const std::size_t limit = is_error ? std::size_t{64} << 10 : std::size_t{16} << 20;
    if (into.size() + text.size() < limit) (into += text) += '\n';
  }
  bool is_done(std::size_t) const override { return false; }
  std::string out, err;
};

std::vector<std::string> words_of(std::string_view command, std::string_view arguments) {
  std::vector<std::string> words = {std::string(command)};
  while (!arguments.empty()) {
    const std::size_t blank = std::min(arguments.find(' '), arguments.size());
    words.emplace_back(arguments.substr(0, blank));
    arguments.remove_prefix(std::min(blank + 1, arguments.size()));
  }
  return words;
}

bool is_installed(const known::EngineRule& rule, const Interrupts& interrupts) {
  const CommandOutput probe = output_of(words_of(rule.command, rule.probe), kProbeLimit, interrupts);
  return probe.outcome.end == CallEnd::kExited && probe.outcome.status == 0 &&
         contains(probe.out + probe.err, rule.shows);
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

CommandOutput output_of(std::vector<std::string> command, seconds limit, const Interrupts& interrupts) {
  Collector collector;
  const std::vector<Call> calls = {{std::move(command), nullptr, limit}};
  const Outcome outcome = fan_out(calls, 1, Deadline::never(), interrupts, collector).front();
  return {outcome, std::move(collector.out), std::move(collector.err)};
}

Result<std::vector<known::Engine>> engines_to_try(std::string_view via, const std::vector<known::Engine>& usual,
                                                  const Interrupts& interrupts) {
  std::vector<known::Engine> engines;
  std::set<std::string_view> names;
  for (const known::EngineRule& rule : known::engine_rules()) names.insert(rule.name);
  if (!via.empty() && !names.contains(via))
    return fail({.code = ErrorCode::kUsage, .subject = "--via", .what = fmt::format("no engine is called {}", via)});
  std::string tried;
  for (const known::EngineRule& rule : known::engine_rules()) {
    if (via.empty() ? std::find(usual.begin(), usual.end(), rule.engine) == usual.end() : rule.name != via) continue;
    if (is_installed(rule, interrupts)) engines.push_back(rule.engine);
    if (!names.contains(rule.name)) continue;
    tried += (tried.empty() ? "" : ", ") + std::string(rule.name);
    names.erase(rule.name);
  }
  if (engines.empty() && interrupts.have_come())
    return fail({.code = ErrorCode::kTimeout, .subject = tried, .what = "interrupted before any node was asked"});
  if (engines.empty())
    return fail({.code = ErrorCode::kNotFound,
                 .subject = tried,
                 .what = "not installed here, or it does not start",
                 .hint = usual.size() > 1 || !via.empty()
                             ? "--via names another engine: ssh, clush, pdsh, srun, mpirun or flux"
                             : ""});
  if (via.empty())
    std::sort(engines.begin(), engines.end(), [&](known::Engine a, known::Engine b) {
      return std::find(usual.begin(), usual.end(), a) < std::find(usual.begin(), usual.end(), b);
    });
  return engines;
}

bool knows_overlap(std::string_view version) {
  const std::size_t at = version.find_first_of("0123456789");
  if (at == std::string_view::npos) return true;
  version.remove_prefix(at);
  int year = 0, month = 0;
  const auto [dot, error] = std::from_chars(version.data(), version.data() + version.size(), year);
  if (error != std::errc() || dot == version.data() + version.size()) return true;
  std::from_chars(dot + 1, version.data() + version.size(), month);
  return year > 20 || (year == 20 && month >= 11);
}

// "Client Version: v1.32.4", before 1.28: "Client Version: version.Info{Major:"1", Minor:"20", GitVersion:"v1.20.2",
// ...".
std::optional<int> kubectl_minor(std::string_view version) {
  const std::size_t at = version.find("v1.");
  if (at == std::string_view::npos) return std::nullopt;
  version.remove_prefix(at + 3);
  int minor = 0;
  if (std::from_chars(version.data(), version.data() + version.size(), minor).ec != std::errc()) return std::nullopt;
  return minor;
}

std::vector<std::string> squeue_command(const std::string& job) {
  return {"squeue", "--noheader", "--jobs=" + job, "--format=%i|%A|%T|%N"};
}

Result<std::vector<SlurmStep>> parse_squeue(std::string_view text, const std::string& job) {
  std::vector<SlurmStep> steps;
  std::string states;
  std::set<std::string> tasks;
  for (const std::string_view line : split(text, '\n')) {
    const std::vector<std::string_view> fields = split(line, '|');
    if (fields.size() != 4) continue;
    if (fields[2] != "RUNNING" && fields[2] != "COMPLETING" && fields[2] != "SUSPENDED") {
      states += (states.empty() ? "" : ", ") + std::string(fields[2]);
      continue;
    }
    auto hosts = parse_host_list(fields[3]);
    if (!hosts) return fail(hosts.error());
    // "12_3" is a task of the array 12; "12+1" a component of the heterogeneous job 12.
    if (contains(fields[0], '_')) tasks.emplace(fields[0]);
    steps.push_back({std::string(fields[1]), std::move(*hosts)});
  }
  const std::string subject = "Slurm's job " + job;
  if (tasks.size() > 1) {
    return fail({.code = ErrorCode::kUsage,
                 .subject = subject,
                 .what = "an array, of which several tasks run: " + joined(tasks).substr(0, 512),
                 .hint = "--slurm takes one of them"});
  }
  if (steps.empty())
    return fail({.code = ErrorCode::kNotFound,
                 .subject = subject,
                 .what = states.empty() ? "squeue lists no such job" : "does not run: " + states.substr(0, 512),
                 .hint = "`squeue --me` lists the jobs that run"});
  return steps;
}

std::vector<std::string> containers_command(const known::EngineRule& engine, const std::string& filter) {
  return {std::string(engine.command), "ps", "--filter=" + filter, "--format={{.Names}}"};
}

Result<std::vector<std::string>> parse_containers(std::string_view text, const std::string& filter) {
  std::vector<std::string> names;
  for (const std::string_view line : split(text, '\n')) {
    // One that others are linked to has several names; one is enough.
    const std::string_view name = split(line, ',').front();
    if (!name.empty() && names.size() <= kMaxHosts) names.emplace_back(name);
  }
  if (names.empty())
    return fail({.code = ErrorCode::kNotFound,
                 .subject = filter,
                 .what = "no container that runs fits this filter",
                 .hint = "`docker ps` and `podman ps` list those that run: root's own for root, a user's own for that "
                         "user of Podman"});
  // The folded form has numbers in their order.
  return parse_host_list(format_host_set(std::move(names), SIZE_MAX));
}

}  // namespace rankstacks::nodes
