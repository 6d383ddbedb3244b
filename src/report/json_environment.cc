#include "report/json_environment.h"

#include "analyzers/difference_words.h"

namespace rankstacks::report {
namespace {

constexpr std::size_t kMaxModules = 1024, kMaxVariables = 1024, kMaxLimits = 64;

constexpr WordTable<VersionFrom, 4> kVersionFromWords = {{{VersionFrom::kFileName, "file-name"},
                                                          {VersionFrom::kMetadata, "metadata"},
                                                          {VersionFrom::kText, "text"},
                                                          {VersionFrom::kMemory, "memory"}}};

std::optional<std::string> known(const std::string& text) { return text.empty() ? std::nullopt : std::optional(text); }

void write_module(JsonText& json, const LoadedModule& module) {
  json.open('{');
  json.field("name", module.component);
  json.field("path", module.path);
  json.field("build_id", known(module.build_id));
  json.field("version", known(module.version));
  if (module.from != VersionFrom::kUnknown)
    json.field("version_from", std::string(word_of(kVersionFromWords, module.from)));
  if (!module.cuda.empty()) json.field("cuda", module.cuda);
  json.close();
}

void write_optional(JsonText& json, std::string_view name, const std::string& text) {
  if (!text.empty()) json.field(name, text);
}

void write_limits(JsonText& json, const std::vector<ResourceLimit>& limits) {
  json.key("limits");
  json.open('{');
  for (const ResourceLimit& limit : limits) {
    json.foreign_key(limit.name);
    json.open('{');
    json.field("soft", limit.soft);
    json.field("hard", limit.hard);
    json.close();
  }
  json.close();
}

void write_one(JsonText& json, const ProcessEnvironment& environment) {
  json.open('{', true);
  write_optional(json, "kernel", environment.kernel);
  write_optional(json, "distribution", environment.distribution);
  write_optional(json, "container", environment.container);
  write_optional(json, "gpu_driver", environment.gpu_driver);
  json.key("variables");
  if (environment.variables_known) {
    json.open('{');
    for (const auto& [name, value] : environment.variables) json.foreign_key(name), json.string(value);
    json.close();
  } else {
    json.null();
  }
  if (!environment.limits.empty()) write_limits(json, environment.limits);
  if (environment.cgroup) {
    json.key("cgroup");
    json.open('{');
    json.field("memory_bytes", environment.cgroup->memory_bytes);
    json.field("cpus", environment.cgroup->cpus);
    json.field("processes", environment.cgroup->processes);
    json.close();
  }
  write_optional(json, "cpus", environment.cpus);
  write_optional(json, "cpu_nodes", environment.cpu_nodes);
  write_optional(json, "memory_nodes", environment.memory_nodes);
  if (environment.clock) {
    json.key("clock");
    json.open('{');
    json.key("synchronized"), json.boolean(environment.clock->synchronized);
    json.key("offset_us"), json.number(environment.clock->offset_us);
    json.key("max_error_us"), json.number(environment.clock->max_error_us);
    json.close();
  }
  json.close();
}

LoadedModule read_module(const Node& node) {
  node.require_object();
  LoadedModule module;
  node.required("name", [&](const Node& n) { module.component = n.text(); });
  node.required("path", [&](const Node& n) { module.path = n.text(); });
  node.optional("build_id", [&](const Node& n) { module.build_id = n.text(); });
  node.optional("version", [&](const Node& n) { module.version = n.text(); });
  node.optional("version_from", [&](const Node& n) { module.from = n.word(kVersionFromWords); });
  node.optional("cuda", [&](const Node& n) { module.cuda = n.text(); });
  return module;
}

ResourceLimit read_limit(const std::string& name, const Node& node) {
  node.require_object();
  ResourceLimit limit{.name = name, .soft = {}, .hard = {}};
  node.optional("soft", [&](const Node& n) { limit.soft = n.unsigned64(); });
  node.optional("hard", [&](const Node& n) { limit.hard = n.unsigned64(); });
  return limit;
}

ProcessEnvironment read_one(const Node& node) {
  node.require_object();
  ProcessEnvironment environment;
  node.optional("kernel", [&](const Node& n) { environment.kernel = n.text(); });
  node.optional("distribution", [&](const Node& n) { environment.distribution = n.text(); });
  node.optional("container", [&](const Node& n) { environment.container = n.text(); });
  node.optional("gpu_driver", [&](const Node& n) { environment.gpu_driver = n.text(); });
  node.optional("variables", [&](const Node& list) {
    environment.variables_known = true;
    list.each_member(kMaxVariables, [&](const std::string& name, const Node& n) {
      environment.variables.emplace_back(name, n.text());
    });
  });
  node.optional("limits", [&](const Node& list) {
    list.each_member(
        kMaxLimits, [&](const std::string& name, const Node& n) { environment.limits.push_back(read_limit(name, n)); });
  });
  node.optional("cgroup", [&](const Node& n) {
    n.require_object();
    CgroupLimits& limits = environment.cgroup.emplace();
    n.optional("memory_bytes", [&](const Node& v) { limits.memory_bytes = v.unsigned64(); });
    n.optional("cpus", [&](const Node& v) { limits.cpus = v.real(); });
    n.optional("processes", [&](const Node& v) { limits.processes = v.unsigned64(); });
  });
  node.optional("cpus", [&](const Node& n) { environment.cpus = n.text(); });
  node.optional("cpu_nodes", [&](const Node& n) { environment.cpu_nodes = n.text(); });
  node.optional("memory_nodes", [&](const Node& n) { environment.memory_nodes = n.text(); });
  node.optional("clock", [&](const Node& n) {
    n.require_object();
    ClockState& clock = environment.clock.emplace();
    n.required("synchronized", [&](const Node& v) { clock.synchronized = v.boolean(); });
    n.optional("offset_us", [&](const Node& v) { clock.offset_us = v.integer(INT64_MIN, INT64_MAX); });
    n.optional("max_error_us", [&](const Node& v) { clock.max_error_us = v.integer(0, INT64_MAX); });
  });
  return environment;
}

}  // namespace

void write_environment(JsonText& json, const RankSnapshot& rank) {
  if (!rank.environment && rank.modules.empty()) return;
  json.key("modules");
  json.open('[', true);
  for (const LoadedModule& module : rank.modules) write_module(json, module);
  json.close();
  json.key("environment");
  rank.environment ? write_one(json, *rank.environment) : json.null();
}

void read_environment(const Node& rank_node, RankSnapshot& rank) {
  rank_node.optional("modules", [&](const Node& list) {
    list.each(kMaxModules, [&](const Node& n) { rank.modules.push_back(read_module(n)); });
  });
  rank_node.optional("environment", [&](const Node& n) { rank.environment = read_one(n); });
}

void write_differences(JsonText& json, const JobSnapshot& job, const std::vector<analyzers::Difference>& differences,
                       const std::function<void(std::size_t)>& label) {
  json.key("differences");
  json.open('[', true);
  for (const analyzers::Difference& difference : differences) {
    json.open('{', true);
    json.field("kind", std::string(analyzers::to_string(difference.kind)));
    json.field("name", known(difference.name));
    json.field("summary", analyzers::describe(job, difference));
    json.key("values");
    json.open('[', true);
    for (const analyzers::DifferenceSide& side : difference.sides) {
      json.open('{');
      json.field("value", side.value);
      json.key("ranks");
      json.open('[');
      for (const std::size_t rank : side.ranks) label(rank);
      json.close();
      json.close();
    }
    json.close();
    json.close();
  }
  json.close();
}

}  // namespace rankstacks::report
