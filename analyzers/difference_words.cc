#include "analyzers/difference_words.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "base/word_table.h"
#include "known/components.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

using K = DifferenceKind;

constexpr WordTable<K, 15> kWords = {{{K::kVersion, "version"},
                                      {K::kBuild, "build"},
                                      {K::kVariable, "variable"},
                                      {K::kKernel, "kernel"},
                                      {K::kDistribution, "distribution"},
                                      {K::kContainer, "container"},
                                      {K::kGpuDriver, "gpu-driver"},
                                      {K::kLimit, "limit"},
                                      {K::kMemoryLimit, "memory-limit"},
                                      {K::kCpuLimit, "cpu-limit"},
                                      {K::kProcessLimit, "process-limit"},
                                      {K::kCpus, "cpus"},
                                      {K::kClock, "clock"},
                                      {K::kOldDriver, "old-driver"},
                                      {K::kOtherDriver, "other-driver"}}};

std::string cut(std::string_view value) {
  constexpr std::size_t kLongest = 60;
  if (value.size() <= kLongest) return std::string(value);
  return std::string(value.substr(0, kLongest)) + "...";
}

std::string bytes_text(std::string_view value) {
  std::uint64_t bytes = 0;
  std::from_chars(value.data(), value.data() + value.size(), bytes);
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30, kMiB = std::uint64_t{1} << 20;
  if (bytes >= kGiB) return fmt::format("{:.4g} GiB", static_cast<double>(bytes) / kGiB);
  if (bytes >= kMiB) return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / kMiB);
  return fmt::format("{} bytes", bytes);
}

bool is_of_bytes(const Difference& d) {
  return d.kind == K::kMemoryLimit ||
         (d.kind == K::kLimit && (d.name.ends_with("-size") || d.name == "locked-memory" || d.name == "address-space" ||
                                  d.name == "message-queues"));
}

// What comes before the first value, "NCCL ", and before each: "build ".
std::string subject_of(const Difference& d) {
  switch (d.kind) {
    case K::kVersion: return d.name + " ";
    case K::kBuild: return d.name + ": build ";
    case K::kVariable: return d.name;
    case K::kKernel: return "Linux ";
    case K::kDistribution: return "distribution: ";
    case K::kContainer: return "container: ";
    case K::kGpuDriver: return "GPU driver ";
    case K::kLimit: {
      std::string name = d.name;
      std::replace(name.begin(), name.end(), '-', ' ');
      return fmt::format("limit of {}: ", name);
    }
    case K::kMemoryLimit: return "memory of the control group: ";
    case K::kCpuLimit: return "CPUs of the control group: ";
    case K::kProcessLimit: return "processes of the control group: ";
    case K::kCpus: return "CPUs to run on: ";
    case K::kClock: return "clock: ";
    case K::kOldDriver:
    case K::kOtherDriver: return "driver ";
  }
  return "";
}

std::string value_text(const Difference& d, const std::optional<std::string>& value, bool first) {
  constexpr std::size_t kOfBuildId = 8;
  if (d.kind == K::kVariable) {
    if (!value) return first ? " not set" : "not set";
    return (first ? "=" : "") + (value->empty() ? "\"\"" : cut(*value));
  }
  if (!value) return "unlimited";
  if (d.kind == K::kBuild) return value->substr(0, kOfBuildId);
  return is_of_bytes(d) ? bytes_text(*value) : cut(*value);
}

// The ranks of the sides, named by their hosts where no host has ranks on two sides.
class Names {
 public:
  Names(const JobSnapshot& job, const Difference& d) : job_(job) {
    std::map<std::string, std::set<const DifferenceSide*>> sides;
    for (const DifferenceSide& side : d.sides)
      for (const std::size_t r : side.ranks) sides[job.ranks[r].host].insert(&side);
    by_host_ = sides.size() > 1 && d.sides.size() > 1 &&
               std::all_of(sides.begin(), sides.end(), [](const auto& host) { return host.second.size() == 1; });
  }

  std::string of(const DifferenceSide& side) const {
    constexpr std::size_t kMaxItems = 6, kMaxHosts = 3;
    std::string ranks = name_ranks(job_, side.ranks, kMaxItems);
    std::set<std::string> hosts;
    for (const std::size_t r : side.ranks) hosts.insert(job_.ranks[r].host);
    if (!by_host_ || hosts.size() > kMaxHosts) return ranks;
    return fmt::format("{} ({})", fmt::join(hosts, ", "), ranks);
  }

 private:
  const JobSnapshot& job_;
  bool by_host_ = false;
};

std::string of_two_parts(const JobSnapshot& job, const Difference& d) {
  const Names names(job, d);
  std::string text;
  for (const DifferenceSide& side : d.sides) {
    if (!text.empty()) text += "; ";
    const std::string driver = side.value.value_or("");
    if (d.kind == K::kOldDriver) {
      const int major = std::atoi(d.name.c_str());
      text += fmt::format("driver {} is too old for CUDA {}, which needs {}: {}", driver, d.name,
                          known::least_driver_of(major).value_or("a newer one"), names.of(side));
    } else {
      text += fmt::format("libcuda {} with the kernel's driver {}: {}", driver, d.name, names.of(side));
    }
  }
  return text;
}

// The version that most ranks have, with a '*' where ranks differ.
std::string most_frequent(const JobSnapshot& job, const std::function<std::string(const RankSnapshot&)>& of) {
  std::map<std::string, std::size_t> counts;
  for (const RankSnapshot& rank : job.ranks)
    if (rank.kind == RankKind::kRank)
      if (std::string value = of(rank); !value.empty()) ++counts[std::move(value)];
  if (counts.empty()) return "";
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most->first + (counts.size() > 1 ? "*" : "");
}

// Of the library that the rank has loaded, else of the kernel's driver, if the rank is known to use GPUs.
std::string driver_of(const RankSnapshot& rank) {
  std::string library = version_of(rank, known::kCudaDriver);
  return library.empty() && !rank.gpus.empty() ? gpu_driver_of(rank) : library;
}

std::string cuda_of(const RankSnapshot& rank) {
  if (std::string runtime = version_of(rank, known::kCudaRuntime); !runtime.empty()) return runtime;
  for (const LoadedModule& module : rank.modules)
    if (!module.cuda.empty()) return module.cuda;
  return "";
}

}  // namespace

std::string_view to_string(DifferenceKind kind) { return word_of(kWords, kind); }

std::string describe(const JobSnapshot& job, const Difference& difference) {
  if (difference.kind == K::kOldDriver || difference.kind == K::kOtherDriver) return of_two_parts(job, difference);
  constexpr std::size_t kMaxSides = 4;
  const std::vector<DifferenceSide>& sides = difference.sides;
  const Names names(job, difference);
  std::string text = subject_of(difference);
  for (std::size_t i = 0; i < sides.size(); ++i) {
    const bool last = i + 1 == sides.size();
    if (i + 1 >= kMaxSides && !last) continue;
    if (i > 0) text += i >= kMaxSides ? fmt::format(", {} other values, ", sides.size() - kMaxSides) : ", ";
    text += value_text(difference, sides[i].value, i == 0) + " on ";
    const std::size_t count = sides[i].ranks.size();
    const bool clear = last && i > 0 && count > 1 && count > sides[i - 1].ranks.size();
    text += clear ? fmt::format("the {} others", count) : names.of(sides[i]);
  }
  return text;
}

bool versions_are_of_names_alone(const JobSnapshot& job) {
  return std::all_of(job.ranks.begin(), job.ranks.end(), [](const RankSnapshot& rank) {
    return !rank.environment && std::all_of(rank.modules.begin(), rank.modules.end(), [](const LoadedModule& module) {
      return module.from == VersionFrom::kFileName;
    });
  });
}

std::string describe_versions(const JobSnapshot& job) {
  const bool known = std::any_of(job.ranks.begin(), job.ranks.end(), [](const RankSnapshot& rank) {
    return rank.environment.has_value() || !rank.modules.empty();
  });
  if (!known) return "";
  const auto of = [](std::string_view component) {
    return [component](const RankSnapshot& rank) { return version_of(rank, component); };
  };
  const auto of_environment = [](std::string ProcessEnvironment::*member) {
    return
        [member](const RankSnapshot& rank) { return rank.environment ? (*rank.environment).*member : std::string(); };
  };
  std::string text;
  const auto add = [&](std::string_view before, const std::string& version, std::string_view separator = ", ") {
    if (!version.empty()) text += fmt::format("{}{}{}", text.empty() ? "" : separator, before, version);
  };
  add("torch ", most_frequent(job, of(known::kTorch)));
  std::string nccl = most_frequent(job, of(known::kNccl));
  if (nccl.empty() && job.nccl) nccl = job.nccl->version;
  add("NCCL ", nccl);
  add("CUDA ", most_frequent(job, cuda_of));
  add("driver ", most_frequent(job, driver_of));
  add("cuDNN ", most_frequent(job, of("cuDNN")));
  add("", most_frequent(job, of("MPI")));
  add("", most_frequent(job, of("NCCL network plugin")));
  add("libfabric ", most_frequent(job, of("libfabric")));
  add("Python ", most_frequent(job, of(known::kPython)));
  add("glibc ", most_frequent(job, of("glibc")));
  add("Linux ", most_frequent(job, of_environment(&ProcessEnvironment::kernel)), "; ");
  add("", most_frequent(job, of_environment(&ProcessEnvironment::distribution)));
  const std::string container = most_frequent(job, of_environment(&ProcessEnvironment::container));
  add("in ", container);
  if (!text.empty() && versions_are_of_names_alone(job)) {
    const bool python_is_known = std::any_of(job.ranks.begin(), job.ranks.end(), [](const RankSnapshot& rank) {
      return !rank.python_version.value_or("").empty();
    });
    text += python_is_known ? " (libraries: by the names of files)" : " (by the names of files)";
  }
  return text;
}

}  // namespace rankstacks::analyzers
