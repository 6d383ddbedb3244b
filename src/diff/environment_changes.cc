#include "diff/environment_changes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "analyzers/differences.h"
#include "known/components.h"

namespace rankstacks::diff {
namespace {

std::string limit_text(const std::optional<std::uint64_t>& limit) {
  return limit ? std::to_string(*limit) : "unlimited";
}

// The build-ids of a component's files, by the files' names.
std::map<std::string, std::string> builds_of(const RankSnapshot& rank, const std::string& component) {
  std::map<std::string, std::string> builds;
  for (const LoadedModule& module : rank.modules)
    if (module.component == component && !module.build_id.empty())
      builds[module.path.substr(module.path.rfind('/') + 1)] = module.build_id;
  return builds;
}

class Changes {
 public:
  Changes(const RankSnapshot& old, const RankSnapshot& now) : old_(old), now_(now) {}

  std::vector<SettingChange> take() {
    versions();
    if (old_.environment && now_.environment) {
      const ProcessEnvironment &was = *old_.environment, &is = *now_.environment;
      if (was.variables_known && is.variables_known) variables(was, is);
      limits(was, is);
      if (was.cgroup && is.cgroup) groups(*was.cgroup, *is.cgroup);
      machine(was, is);
    }
    return std::move(changes_);
  }

 private:
  void add(Setting setting, const std::string& name, const std::string& was, const std::string& is) {
    if (was != is) changes_.push_back({setting, was, is, {}, name});
  }
  void add_known(Setting setting, const std::string& was, const std::string& is) {
    if (!was.empty() && !is.empty()) add(setting, "", was, is);
  }

  void versions() {
    std::set<std::string> components;
    for (const LoadedModule& module : old_.modules) components.insert(module.component);
    for (const std::string& component : components) {
      const std::string was = analyzers::version_of(old_, component), is = analyzers::version_of(now_, component);
      if (!was.empty() && !is.empty() && !known::may_be_same_version(was, is)) {
        add(Setting::kVersion, component, was, is);
        continue;
      }
      // Another build of the same version, or of one that is not known.
      const auto before = builds_of(old_, component), after = builds_of(now_, component);
      for (const auto& [file, build] : before)
        if (const auto same = after.find(file); same != after.end())
          add(Setting::kBuild, component, build, same->second);
    }
  }

  void variables(const ProcessEnvironment& was, const ProcessEnvironment& is) {
    std::map<std::string, std::pair<std::string, std::string>> values;
    for (const auto& [name, value] : was.variables) values[name].first = value;
    for (const auto& [name, value] : is.variables) values[name].second = value;
    for (const auto& [name, both] : values) add(Setting::kVariable, name, both.first, both.second);
  }

  void limits(const ProcessEnvironment& was, const ProcessEnvironment& is) {
    for (const ResourceLimit& limit : was.limits) {
      const auto same = std::find_if(is.limits.begin(), is.limits.end(),
                                     [&](const ResourceLimit& other) { return other.name == limit.name; });
      if (same != is.limits.end()) add(Setting::kLimit, limit.name, limit_text(limit.soft), limit_text(same->soft));
    }
  }

  void groups(const CgroupLimits& was, const CgroupLimits& is) {
    const auto cpus = [](const CgroupLimits& of) { return of.cpus ? fmt::format("{:g}", *of.cpus) : "unlimited"; };
    add(Setting::kMemoryLimit, "", limit_text(was.memory_bytes), limit_text(is.memory_bytes));
    add(Setting::kCpuLimit, "", cpus(was), cpus(is));
    add(Setting::kProcessLimit, "", limit_text(was.processes), limit_text(is.processes));
  }

  void machine(const ProcessEnvironment& was, const ProcessEnvironment& is) {
    if (old_.source == now_.source) add_known(Setting::kKernel, was.kernel, is.kernel);  // a core has its numbers alone
    add_known(Setting::kDistribution, was.distribution, is.distribution);
    if (old_.source == now_.source) add(Setting::kContainer, "", was.container, is.container);
    add_known(Setting::kCpus, was.cpus, is.cpus);
    add_known(Setting::kMemoryNodes, was.memory_nodes, is.memory_nodes);
    const auto clock = [](const ClockState& of) { return of.synchronized ? "synchronized" : "not synchronized"; };
    if (was.clock && is.clock) add(Setting::kClock, "", clock(*was.clock), clock(*is.clock));
  }

  const RankSnapshot &old_, &now_;
  std::vector<SettingChange> changes_;
};

// Its values, each with the names of its ranks: what makes a difference the same in another report.
using Content = std::map<std::string, std::set<std::string>>;
Content content_of(const Side& side, const analyzers::Difference& difference) {
  Content content;
  for (const analyzers::DifferenceSide& one : difference.sides) {
    // An unset variable, and one that is set to the empty text.
    std::set<std::string>& ranks = content[one.value ? "=" + *one.value : ""];
    for (const std::size_t r : one.ranks) ranks.insert(rank_label(side.job.ranks[r]));
  }
  return content;
}

}  // namespace

std::vector<SettingChange> environment_changes(const RankSnapshot& old, const RankSnapshot& now) {
  return Changes(old, now).take();
}

std::vector<DifferenceChange> difference_changes(const Sides& sides) {
  using Key = std::tuple<analyzers::DifferenceKind, std::string, Content>;
  const auto keys_of = [](const Side& side) {
    std::set<Key> keys;
    for (const analyzers::Difference& difference : side.analysis.differences)
      keys.emplace(difference.kind, difference.name, content_of(side, difference));
    return keys;
  };
  const std::set<Key> old = keys_of(sides.old), now = keys_of(sides.now);
  std::vector<DifferenceChange> changes;
  const auto add = [&](const Side& side, const std::set<Key>& other, DifferenceFate fate) {
    for (std::size_t i = 0; i < side.analysis.differences.size(); ++i) {
      const analyzers::Difference& difference = side.analysis.differences[i];
      if (!other.contains({difference.kind, difference.name, content_of(side, difference)}))
        changes.push_back({fate, i});
    }
  };
  add(sides.now, old, DifferenceFate::kCame);
  add(sides.old, now, DifferenceFate::kWent);
  return changes;
}

}  // namespace rankstacks::diff
