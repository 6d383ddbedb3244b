#include "analyzers/gpu_health.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/text.h"
#include "model/process_index.h"
#include "model/process_key.h"
#include "model/rank_set.h"

namespace rankstacks::analyzers {
namespace {

struct Member {
  std::size_t rank, gpu;
  const GpuSnapshot* snapshot;
  const GpuHealth& health() const { return *snapshot->health; }
};

template <class T>
std::optional<T> median(std::vector<T> values) {
  if (values.empty()) return std::nullopt;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// The value that more than half of the members have; std::nullopt if there is none, or if there are fewer than two
// members.
template <class T>
std::optional<T> most_common(const std::vector<T>& values, std::size_t members) {
  std::map<T, std::size_t> counts;
  for (const T& value : values)
    if (++counts[value] * 2 > members && members > 1) return value;
  return std::nullopt;
}

std::string numbers(const std::vector<unsigned>& values) {
  constexpr std::size_t kMax = 6;
  std::string text;
  for (std::size_t i = 0; i < values.size() && i < kMax; ++i) text += fmt::format("{}{}", i == 0 ? "" : ",", values[i]);
  return values.size() > kMax ? text + fmt::format(" and {} more", values.size() - kMax) : text;
}

// The values that most of the GPUs have.
struct Reference {
  std::optional<double> utilization;
  std::optional<unsigned> sm_clock, pcie_width;
  std::optional<std::uint64_t> memory, nvlink_errors;
  std::optional<std::string> driver, name;
  std::map<std::string, std::size_t> throttled;
  std::size_t members = 0;
};

Reference reference_of(const std::vector<Member>& members) {
  Reference reference;
  reference.members = members.size();
  if (members.size() < 2) return reference;
  std::vector<double> utilizations;
  std::vector<unsigned> clocks, widths;
  std::vector<std::uint64_t> memories, errors;
  std::vector<std::string> drivers, names;
  for (const Member& m : members) {
    const GpuHealth& h = m.health();
    if (h.utilization_mean) utilizations.push_back(*h.utilization_mean);
    if (h.sm_clock) clocks.push_back(*h.sm_clock);
    if (h.pcie_width) widths.push_back(*h.pcie_width);
    if (h.process_memory) memories.push_back(*h.process_memory);
    if (h.nvlink_errors) errors.push_back(*h.nvlink_errors);
    drivers.push_back(h.driver);
    names.push_back(m.snapshot->name);
    for (const std::string& reason : h.throttle) ++reference.throttled[reason];
  }
  reference.utilization = median(utilizations);
  reference.sm_clock = median(clocks);
  reference.pcie_width = most_common(widths, members.size());
  reference.memory = median(memories);
  reference.nvlink_errors = median(errors);
  reference.driver = most_common(drivers, members.size());
  reference.name = most_common(names, members.size());
  return reference;
}

// Processes on the same device that do not belong to the job.
class UnrelatedProcesses {
 public:
  explicit UnrelatedProcesses(const JobSnapshot& job) : job_(job), processes_(job) {
    for (const UnseenRank& unseen : job.not_looked_at) unseen_.insert(process_key(unseen));
  }
  std::size_t on(const Member& member) const {
    const std::vector<Pid>& others = member.health().other_processes;
    return static_cast<std::size_t>(std::count_if(others.begin(), others.end(), [&](Pid pid) {
      return processes_.find(member.rank, pid).empty() && !unseen_.contains(process_key(job_.ranks[member.rank], pid));
    }));
  }

 private:
  const JobSnapshot& job_;
  const ProcessIndex processes_;
  std::set<ProcessKey> unseen_;
};

constexpr double kAtRest = 10;          // percent
constexpr double kFarUtilization = 50;  // minimal difference in points
constexpr double kSlowClock = 0.85;     // of the others' clock: boost clocks vary by a few percent between boards
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

std::vector<std::string> notes_of(const UnrelatedProcesses& processes, const Member& member, const Reference& most) {
  const GpuHealth& h = member.health();
  std::vector<std::string> notes;
  const auto note = [&]<class... A>(fmt::format_string<A...> format, A&&... arguments) {
    notes.push_back(fmt::format(format, std::forward<A>(arguments)...));
  };
  if (h.utilization_mean && most.utilization && std::abs(*h.utilization_mean - *most.utilization) >= kFarUtilization)
    note("{:.0f} % used, the others {:.0f} %", *h.utilization_mean, *most.utilization);
  if (h.process_memory && most.memory) {
    const std::uint64_t a = *h.process_memory, b = *most.memory;
    if (std::max(a, b) - std::min(a, b) > kGiB && (a < b / 2 || a / 2 > b))
      note("{:.1f} GiB of its own, the others {:.1f}", static_cast<double>(a) / kGiB, static_cast<double>(b) / kGiB);
  }
  // A GPU at rest clocks down.
  const bool at_rest = h.utilization_mean && *h.utilization_mean <= kAtRest;
  if (h.sm_clock && most.sm_clock && !at_rest && *h.sm_clock < kSlowClock * *most.sm_clock)
    note("SM clock {} MHz, of the others {}", *h.sm_clock, *most.sm_clock);
  std::string throttle;
  for (const std::string& reason : h.throttle) {
    const auto count = most.throttled.find(reason);
    if (count == most.throttled.end() || count->second * 2 <= most.members)
      throttle += (throttle.empty() ? "" : ", ") + reason;
  }
  if (!throttle.empty()) note("throttled by {}", throttle);
  if (!h.nvlinks_down.empty()) note("NVLink{} {} down", plural(h.nvlinks_down.size()), numbers(h.nvlinks_down));
  else if (h.nvlinks && h.nvlinks_up && *h.nvlinks_up < *h.nvlinks)
    note("{} of {} NVLinks up", *h.nvlinks_up, *h.nvlinks);
  if (h.nvlink_errors && *h.nvlink_errors > 0 && most.nvlink_errors == std::uint64_t{0})
    note("{} NVLink errors", *h.nvlink_errors);
  if (h.ecc_uncorrected.value_or(0) > 0) note("{} uncorrected ECC errors", *h.ecc_uncorrected);
  if (h.remap_failed) note("row remapping failed");
  else if (h.remap_pending) note("row remapping pending");
  if (!h.xids.empty()) note("Xid {}", numbers(h.xids));
  if (h.pcie_width && ((most.pcie_width && *h.pcie_width < *most.pcie_width) ||
                       (h.pcie_width_max && *h.pcie_width < *h.pcie_width_max)))
    note("PCIe x{} of x{}", *h.pcie_width, std::max(h.pcie_width_max.value_or(0), most.pcie_width.value_or(0)));
  if (const std::size_t unrelated = processes.on(member); unrelated > 0)
    note("{} other process{} on it", unrelated, plural(unrelated, "es"));
  if (most.driver && h.driver != *most.driver && !h.driver.empty())
    note("driver {}, of the others {}", h.driver, *most.driver);
  if (most.name && member.snapshot->name != *most.name && !member.snapshot->name.empty())
    note("the others are {}", *most.name);
  return notes;
}

}  // namespace

std::vector<GpuCondition> gpu_conditions(const JobSnapshot& job) {
  std::vector<Member> members;
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    for (std::size_t g = 0; g < job.ranks[r].gpus.size() && job.ranks[r].kind == RankKind::kRank; ++g)
      if (job.ranks[r].gpus[g].health) members.push_back({r, g, &job.ranks[r].gpus[g]});
  const Reference most = reference_of(members);
  const UnrelatedProcesses processes(job);
  std::vector<GpuCondition> conditions;
  std::vector<std::vector<std::string>> all_notes;
  for (const Member& member : members) {
    conditions.push_back({member.rank, member.gpu, notes_of(processes, member, most), false});
    all_notes.push_back(conditions.back().notes);
  }
  if (members.size() < 2) return conditions;
  const std::vector<std::string> usual = most_common(all_notes, members.size()).value_or(std::vector<std::string>{});
  for (GpuCondition& condition : conditions) condition.differs = condition.notes != usual && !condition.notes.empty();
  return conditions;
}

std::string describe_gpu_differences(const JobSnapshot& job) {
  constexpr std::size_t kMax = 3;
  std::string text;
  std::size_t count = 0;
  for (const GpuCondition& condition : gpu_conditions(job)) {
    if (!condition.differs || ++count > kMax) continue;
    text += fmt::format("{}the GPU of {} differs ({})", text.empty() ? "" : ", ", name_ranks(job, {condition.rank}),
                        joined(condition.notes));
  }
  return count > kMax ? fmt::format("{} and {} more", text, count - kMax) : text;
}

}  // namespace rankstacks::analyzers
