#include "report/text_versions.h"

#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "analyzers/difference_words.h"
#include "base/text.h"
#include "model/rank_set.h"
#include "report/sanitize.h"

namespace rankstacks::report {
namespace {

using Lines = std::vector<std::string>;

std::string limit_text(const std::optional<std::uint64_t>& limit) {
  return limit ? std::to_string(*limit) : "unlimited";
}

// Names, and for each the values with their ranks.
using Table = std::map<std::string, std::map<std::string, std::vector<std::size_t>>>;

void add_modules(const RankSnapshot& rank, std::size_t index, Table& table) {
  for (const LoadedModule& module : rank.modules) {
    std::string text = module.version.empty() ? "version not known" : module.version;
    if (!module.cuda.empty()) text += fmt::format(", built with CUDA {}", module.cuda);
    if (!module.build_id.empty()) text += fmt::format(", build-id {}", module.build_id);
    auto& ranks = table[module.component + "  " + module.path][text];
    if (ranks.empty() || ranks.back() != index) ranks.push_back(index);
  }
}

void add_environment(const ProcessEnvironment& environment, std::size_t index, Table& variables, Table& others) {
  for (const auto& [name, value] : environment.variables) variables[name]["=" + value].push_back(index);
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) others[name][value].push_back(index);
  };
  add("kernel", environment.kernel);
  add("distribution", environment.distribution);
  add("container", environment.container);
  add("GPU driver of the kernel", environment.gpu_driver);
  add("CPUs", environment.cpus);
  add("NUMA nodes of the CPUs", environment.cpu_nodes);
  add("NUMA nodes of memory", environment.memory_nodes);
  for (const ResourceLimit& limit : environment.limits)
    others["limit " + limit.name][fmt::format("{} (hard: {})", limit_text(limit.soft), limit_text(limit.hard))]
        .push_back(index);
  if (const auto& cgroup = environment.cgroup) {
    add("control group, bytes of memory", limit_text(cgroup->memory_bytes));
    add("control group, CPUs", cgroup->cpus ? fmt::format("{:g}", *cgroup->cpus) : "unlimited");
    add("control group, processes", limit_text(cgroup->processes));
  }
  if (environment.clock)
    add("clock", fmt::format("{}, error at most {:.1f} ms",
                             environment.clock->synchronized ? "synchronized" : "not synchronized",
                             static_cast<double>(environment.clock->max_error_us) / 1000));
}

void append(Lines& lines, const JobSnapshot& job, const Table& table, std::size_t ranks) {
  constexpr std::size_t kItems = 6, kLongest = 300;
  for (const auto& [name, values] : table)
    for (const auto& [value, of] : values) {
      std::string text = fmt::format("{}{}{}", name, value.starts_with('=') ? "" : "  ", value);
      if (of.size() != ranks) text += fmt::format("  ({})", name_ranks(job, of, kItems));
      lines.push_back(cut_end(sanitize(text), kLongest));
    }
}

}  // namespace

Lines difference_lines(const JobSnapshot& job, const analyzers::Analysis& analysis, std::size_t most) {
  Lines lines;
  for (const analyzers::Difference& difference : analysis.differences) {
    if (lines.size() == most) {
      const std::size_t left = analysis.differences.size() - most;
      lines.push_back(fmt::format("... and {} more difference{} in the JSON report", left, plural(left)));
      break;
    }
    lines.push_back(sanitize(analyzers::describe(job, difference)));
  }
  return lines;
}

Lines environment_lines(const JobSnapshot& job) {
  Table modules, variables, others;
  std::size_t ranks = 0;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.kind != RankKind::kRank || (!rank.environment && rank.modules.empty())) continue;
    ++ranks;
    add_modules(rank, r, modules);
    if (rank.environment) add_environment(*rank.environment, r, variables, others);
  }
  Lines lines;
  for (const Table* table : {&modules, &variables, &others}) append(lines, job, *table, ranks);
  return lines;
}

}  // namespace rankstacks::report
