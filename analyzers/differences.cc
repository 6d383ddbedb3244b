#include "analyzers/differences.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analyzers/names.h"
#include "analyzers/own_value.h"
#include "base/text.h"
#include "known/components.h"
#include "known/settings.h"

namespace rankstacks::analyzers {
namespace {

using Values = std::map<std::optional<std::string>, std::vector<std::size_t>>;

bool contradict(const std::string& a, const std::string& b) { return !known::may_be_same_version(a, b); }

// The numbers of a version, "580.95.05" -> {580, 95, 5}; as far as they go.
std::vector<int> numbers_of(std::string_view version) {
  std::vector<int> numbers;
  while (!version.empty()) {
    int number = 0;
    const auto [end, error] = std::from_chars(version.data(), version.data() + version.size(), number);
    if (error != std::errc{}) break;
    numbers.push_back(number);
    version.remove_prefix(static_cast<std::size_t>(end - version.data()));
    if (version.empty() || version.front() != '.') break;
    version.remove_prefix(1);
  }
  return numbers;
}

std::optional<std::string> text_of(std::optional<std::uint64_t> number) {
  return number ? std::optional(std::to_string(*number)) : std::nullopt;
}

std::size_t count_of_list(std::string_view list) {
  std::size_t count = 0;
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    const std::size_t dash = item.find('-');
    const auto first = numbers_of(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : numbers_of(item.substr(dash + 1));
    if (first.empty() || last.empty() || last[0] < first[0]) return 0;
    count += static_cast<std::size_t>(last[0] - first[0]) + 1;
  }
  return count;
}

// A report that somebody has made up may have any number of names.
constexpr std::size_t kMaxOfAKind = 128;

void keep_few(std::set<std::string>& names) {
  while (names.size() > kMaxOfAKind) names.erase(std::prev(names.end()));
}

class Finder {
 public:
  explicit Finder(const JobSnapshot& job) : job_(job) {
    for (std::size_t r = 0; r < job.ranks.size(); ++r) {
      const RankSnapshot& rank = job.ranks[r];
      if (rank.kind == RankKind::kRank &&
          (rank.environment || !rank.modules.empty() || rank.python_version || !rank.gpus.empty()))
        ranks_.push_back(r);
    }
  }

  std::vector<Difference> find() {
    components();
    variables();
    surroundings();
    limits();
    drivers();
    std::stable_sort(found_.begin(), found_.end(), [](const Difference& a, const Difference& b) {
      return std::pair(!a.concerns_communication, a.kind) < std::pair(!b.concerns_communication, b.kind);
    });
    return std::move(found_);
  }

 private:
  void add(DifferenceKind kind, std::string name, const Values& values, bool concerns_communication) {
    Difference difference{kind, std::move(name), {}, concerns_communication};
    for (const auto& [value, ranks] : values) difference.sides.push_back({value, ranks});
    std::stable_sort(difference.sides.begin(), difference.sides.end(),
                     [](const DifferenceSide& a, const DifferenceSide& b) { return a.ranks.size() < b.ranks.size(); });
    found_.push_back(std::move(difference));
  }

  // f(rank) is the rank's value, "" where it is not known.
  template <class F>
  void compare(DifferenceKind kind, const std::string& name, bool concerns_communication, F&& f) {
    Values values;
    for (const std::size_t r : ranks_)
      if (std::string value = f(job_.ranks[r]); !value.empty()) values[std::move(value)].push_back(r);
    if (values.size() > 1) add(kind, name, values, concerns_communication);
  }

  void components() {
    std::set<std::string> names = {std::string(known::kPython)};
    for (const std::size_t r : ranks_)
      for (const LoadedModule& module : job_.ranks[r].modules) names.insert(module.component);
    keep_few(names);
    for (const std::string& name : names) {
      const bool concerns = known::is_for_communication(name);
      Values versions;
      for (const std::size_t r : ranks_)
        if (std::string version = version_of(job_.ranks[r], name); !version.empty()) versions[version].push_back(r);
      const bool differ = std::any_of(versions.begin(), versions.end(), [&](const auto& one) {
        return std::any_of(versions.begin(), versions.end(),
                           [&](const auto& other) { return contradict(*one.first, *other.first); });
      });
      if (differ) add(DifferenceKind::kVersion, name, versions, concerns);
      else builds(name, concerns);
    }
  }

  // "libnccl" of "libnccl.so.2.28.7".
  static std::string stem_of(const std::string& path) {
    const std::string_view name = base_name(path);
    return std::string(name.substr(0, name.find(".so")));
  }

  // The files of one name that a component consists of, compared by their build-ids.
  void builds(const std::string& component, bool concerns) {
    std::map<std::string, std::map<std::size_t, std::string>> of_file;  // base name, rank, build-id
    for (const std::size_t r : ranks_)
      for (const LoadedModule& module : job_.ranks[r].modules)
        if (module.component == component && !module.build_id.empty())
          of_file[stem_of(module.path)].try_emplace(r, module.build_id);
    for (const auto& [file, ids] : of_file) {
      Values values;
      for (const auto& [rank, id] : ids) values[id].push_back(rank);
      if (values.size() < 2) continue;
      add(DifferenceKind::kBuild, component, values, concerns);
      return;  // one file is enough: a component's files are built together
    }
  }

  using Variable = std::vector<std::pair<std::size_t, std::string_view>>;  // rank, value

  void variables() {
    std::map<std::string_view, Variable> all;
    std::vector<std::size_t> known;  // ranks
    for (const std::size_t r : ranks_) {
      const auto& environment = job_.ranks[r].environment;
      if (!environment || !environment->variables_known) continue;
      known.push_back(r);
      for (const auto& [name, value] : environment->variables) all[name].emplace_back(r, value);
    }
    const std::size_t before = found_.size();
    for (const auto& [name, values] : all)
      if (found_.size() < before + kMaxOfAKind) variable(name, values, known);
  }

  void variable(std::string_view name, const Variable& set, const std::vector<std::size_t>& known) {
    const bool everywhere = set.size() == known.size();
    const bool same = std::all_of(set.begin(), set.end(), [&](const auto& one) { return one.second == set[0].second; });
    if ((everywhere && same) || known::own_value_rule(name) != nullptr) return;
    Values values;
    std::vector<std::size_t> ranks;
    std::vector<std::string_view> texts;
    for (const auto& [rank, value] : set) {
      values[std::string(value)].push_back(rank);
      ranks.push_back(rank);
      texts.push_back(value);
    }
    if (everywhere && differ_by_own_names_alone(job_, ranks, texts)) return;
    if (!everywhere)
      std::set_difference(known.begin(), known.end(), ranks.begin(), ranks.end(),
                          std::back_inserter(values[std::nullopt]));
    add(DifferenceKind::kVariable, std::string(name), values, known::is_communication_setting(name));
  }

  void surroundings() {
    const auto of = [](std::string ProcessEnvironment::*member) {
      return
          [member](const RankSnapshot& rank) { return rank.environment ? (*rank.environment).*member : std::string(); };
    };
    kernels();
    compare(DifferenceKind::kDistribution, "", false, of(&ProcessEnvironment::distribution));
    compare(DifferenceKind::kGpuDriver, "", true, gpu_driver_of);
    compare(DifferenceKind::kContainer, "", false, [](const RankSnapshot& rank) {
      if (!rank.environment || rank.environment->distribution.empty()) return std::string();
      return rank.environment->container.empty() ? std::string("none") : rank.environment->container;
    });
    compare(DifferenceKind::kCpus, "", false, [](const RankSnapshot& rank) {
      const std::size_t count = rank.environment ? count_of_list(rank.environment->cpus) : 0;
      return count == 0 ? std::string() : std::to_string(count);
    });
    compare(DifferenceKind::kClock, "", false, [](const RankSnapshot& rank) {
      if (!rank.environment || !rank.environment->clock) return std::string();
      return std::string(rank.environment->clock->synchronized ? "synchronized" : "not synchronized");
    });
  }

  // A core states the numbers of its kernel's version, and not what the distribution makes of them: it is compared with
  // other cores alone.
  void kernels() {
    const bool some_live =
        std::any_of(ranks_.begin(), ranks_.end(), [&](std::size_t r) { return job_.ranks[r].source == Source::kLive; });
    Values values;
    for (const std::size_t r : ranks_)
      if ((job_.ranks[r].source == Source::kLive) != some_live) continue;
      else if (const auto& environment = job_.ranks[r].environment; environment && !environment->kernel.empty())
        values[environment->kernel].push_back(r);
    const bool differ = std::any_of(values.begin(), values.end(),
                                    [&](const auto& one) { return contradict(*one.first, *values.begin()->first); });
    if (differ) add(DifferenceKind::kKernel, "", values, false);
  }

  // f(rank): whether the limit is known, and its value; empty: unlimited.
  template <class F>
  void compare_limits(DifferenceKind kind, const std::string& name, F&& f) {
    Values values;
    for (const std::size_t r : ranks_)
      if (const auto& [known, value] = f(job_.ranks[r]); known) values[value].push_back(r);
    if (values.size() > 1) add(kind, name, values, false);
  }

  void limits() {
    using Known = std::pair<bool, std::optional<std::string>>;
    std::set<std::string> names;
    for (const std::size_t r : ranks_)
      if (job_.ranks[r].environment)
        for (const ResourceLimit& limit : job_.ranks[r].environment->limits) names.insert(limit.name);
    keep_few(names);
    for (const std::string& name : names)
      compare_limits(DifferenceKind::kLimit, name, [&](const RankSnapshot& rank) -> Known {
        if (rank.environment)
          for (const ResourceLimit& limit : rank.environment->limits)
            if (limit.name == name) return {true, text_of(limit.soft)};
        return {false, std::nullopt};
      });
    const auto of_cgroup = [&](DifferenceKind kind, auto&& f) {
      compare_limits(kind, "", [&](const RankSnapshot& rank) -> Known {
        if (!rank.environment || !rank.environment->cgroup) return {false, std::nullopt};
        return {true, f(*rank.environment->cgroup)};
      });
    };
    of_cgroup(DifferenceKind::kMemoryLimit, [](const CgroupLimits& c) { return text_of(c.memory_bytes); });
    of_cgroup(DifferenceKind::kProcessLimit, [](const CgroupLimits& c) { return text_of(c.processes); });
    of_cgroup(DifferenceKind::kCpuLimit, [](const CgroupLimits& c) {
      return c.cpus ? std::optional(fmt::format("{:g}", *c.cpus)) : std::nullopt;
    });
  }

  // Parts of one rank that do not fit each other.
  void drivers() {
    std::map<std::string, Values> too_old, other;
    for (const std::size_t r : ranks_) {
      const RankSnapshot& rank = job_.ranks[r];
      const std::string library = version_of(rank, known::kCudaDriver);
      if (library.empty()) continue;
      const std::string kernel = gpu_driver_of(rank);
      const std::string runtime = cuda_of(rank);
      const auto wanted = numbers_of(runtime);
      const auto least = wanted.empty() ? std::nullopt : known::least_driver_of(wanted.front());
      if (least && numbers_of(library) < numbers_of(*least)) too_old[runtime][library].push_back(r);
      if (!kernel.empty() && contradict(library, kernel) && !has_compatible_driver(rank))
        other[kernel][library].push_back(r);
    }
    for (const auto& [runtime, values] : too_old) add(DifferenceKind::kOldDriver, runtime, values, true);
    for (const auto& [kernel, values] : other) add(DifferenceKind::kOtherDriver, kernel, values, true);
  }

  // The CUDA toolkit of what it has loaded.
  static std::string cuda_of(const RankSnapshot& rank) {
    if (std::string runtime = version_of(rank, known::kCudaRuntime); !runtime.empty()) return runtime;
    for (const LoadedModule& module : rank.modules)
      if (module.component == known::kTorch && !module.cuda.empty()) return module.cuda;
    return "";
  }

  // NVIDIA's package for forward compatibility has a newer libcuda for an older driver of the kernel:
  // /usr/local/cuda/compat/libcuda.so.580.65.06.
  static bool has_compatible_driver(const RankSnapshot& rank) {
    return std::any_of(rank.modules.begin(), rank.modules.end(), [](const LoadedModule& module) {
      return module.component == known::kCudaDriver && contains(module.path, "/compat/");
    });
  }

  const JobSnapshot& job_;
  std::vector<std::size_t> ranks_;
  std::vector<Difference> found_;
};

}  // namespace

std::string version_of(const RankSnapshot& rank, std::string_view component) {
  if (component == known::kPython && rank.python_version && !rank.python_version->empty()) return *rank.python_version;
  std::set<std::string> versions;
  for (const LoadedModule& module : rank.modules)
    if (module.component == component && !module.version.empty()) versions.insert(module.version);
  std::string text;
  for (const std::string& version : versions) text += (text.empty() ? "" : " and ") + version;
  return text;
}

std::string gpu_driver_of(const RankSnapshot& rank) {
  if (rank.environment && !rank.environment->gpu_driver.empty()) return rank.environment->gpu_driver;
  for (const GpuSnapshot& gpu : rank.gpus)
    if (gpu.health && !gpu.health->driver.empty()) return gpu.health->driver;
  return "";
}

std::vector<Difference> find_differences(const JobSnapshot& job) { return Finder(job).find(); }

}  // namespace rankstacks::analyzers
