#include "report/text_gpus.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "analyzers/gpu_health.h"
#include "analyzers/gpu_state.h"
#include "analyzers/names.h"
#include "base/text.h"
#include "model/rank_set.h"
#include "report/frame_text.h"
#include "report/sanitize.h"

namespace rankstacks::report {
namespace {

using Lines = std::vector<std::string>;
using Ranks = std::vector<std::size_t>;

constexpr double kGiB = 1024.0 * 1024 * 1024;

std::string join(const std::vector<std::string>& parts, std::string_view between = ", ") {
  std::string text;
  for (const std::string& part : parts)
    if (!part.empty()) text += (text.empty() ? std::string() : std::string(between)) + part;
  return text;
}

// Limits a number for display; a saved report may contain any number.
double shown(double value, double most) { return std::clamp(value, -most, most); }

template <class T>
struct Extent {
  std::optional<T> least, greatest;
  void add(const std::optional<T>& value) {
    if (!value) return;
    least = std::min(least.value_or(*value), *value);
    greatest = std::max(greatest.value_or(*value), *value);
  }
};

// "99-100 %"
std::string percent(const Extent<double>& extent) {
  if (!extent.least) return "";
  const double a = std::round(shown(*extent.least, 1000)), b = std::round(shown(*extent.greatest, 1000));
  return a == b ? fmt::format("{:.0f} %", a) : fmt::format("{:.0f}-{:.0f} %", a, b);
}

std::string memory(const Extent<std::uint64_t>& used, const std::optional<std::uint64_t>& total) {
  if (!used.least) return "";
  const std::string a = fmt::format("{:.1f}", static_cast<double>(*used.least) / kGiB),
                    b = fmt::format("{:.1f}", static_cast<double>(*used.greatest) / kGiB);
  return (a == b ? a : a + "-" + b) +
         (total ? fmt::format(" of {:.1f} GiB", static_cast<double>(*total) / kGiB) : " GiB");
}

std::string name_members(const JobSnapshot& job, Ranks ranks, std::size_t gpus) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::string count = counted(ranks.size(), "rank");
  if (gpus > ranks.size()) count += ", " + counted(gpus, "GPU");
  return fmt::format("{} ({}): ", sanitize(format_rank_set(job, ranks)), count);
}

// The state of the GPUs; GPUs with the same notes share a line.
Lines health_lines(const JobSnapshot& job, const TextStyle& style, std::size_t width) {
  struct Group {
    Ranks ranks;
    Extent<double> utilization;
    Extent<std::uint64_t> used;
    const GpuSnapshot* first = nullptr;
    std::vector<std::string> notes;
    bool differs = false;
  };
  std::vector<Group> groups;
  std::map<std::tuple<std::string, std::vector<std::string>, bool>, std::size_t> index;
  for (const analyzers::GpuCondition& condition : analyzers::gpu_conditions(job)) {
    const GpuSnapshot& gpu = job.ranks[condition.rank].gpus[condition.gpu];
    const auto [it, is_new] = index.try_emplace({gpu.name, condition.notes, condition.differs}, groups.size());
    if (is_new) groups.emplace_back();
    Group& group = groups[it->second];
    if (is_new) group.first = &gpu, group.notes = condition.notes, group.differs = condition.differs;
    group.ranks.push_back(condition.rank);
    group.utilization.add(gpu.health->utilization_mean);
    group.used.add(gpu.health->memory_used);
  }
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    return a.differs != b.differs ? a.differs : a.ranks.size() > b.ranks.size();
  });
  Lines lines;
  for (const Group& group : groups) {
    const GpuHealth& health = *group.first->health;
    std::string text =
        name_members(job, group.ranks, group.ranks.size()) +
        sanitize(join({group.first->name, percent(group.utilization), memory(group.used, health.memory_total)}));
    if (!group.notes.empty()) text += (group.differs ? "  <- " : "; ") + sanitize(join(group.notes));
    text = cut_end("  " + text, width);
    lines.push_back(group.differs ? style.alarm(text) : text);
  }
  return lines;
}

// "most at +0x1230", "most at helper+0x40"
std::string top_place(const JobSnapshot& job, const GpuKernel& kernel) {
  if (kernel.places.empty()) return "";
  const Frame& frame = job.frames[kernel.places.front().frame];
  if (frame.line && frame.file) return fmt::format("at {}:{}", analyzers::base_name(*frame.file), *frame.line);
  if (!frame.offset && frame.function)  // of another tool
    return frame.function != kernel.function ? "at " + analyzers::kernel_name(*frame.function) : "";
  std::string where = frame.offset ? fmt::format("+{:#x}", *frame.offset) : fmt::format("{:#x}", frame.address);
  if (frame.offset && frame.function && frame.function != kernel.function)
    where.insert(0, analyzers::kernel_name(*frame.function));
  return fmt::format("{} {}", kernel.places.size() > 1 || kernel.more_places > 0 ? "most at" : "at", where);
}

std::string name_of(const GpuKernel& kernel) {
  if (kernel.function) return analyzers::kernel_name(*kernel.function);
  return kernel.entry ? fmt::format("kernel at {:#x}", *kernel.entry) : "a kernel without a name";
}

std::string summary_of(const JobSnapshot& job, const GpuKernel& kernel, bool with_place) {
  std::vector<std::string> parts = {name_of(kernel), analyzers::describe_launch(kernel)};
  const std::uint64_t launched = std::uint64_t{kernel.grid.x} * kernel.grid.y;  // three factors of 32 bits do not fit
  if (kernel.blocks > 0 && (kernel.grid.z != 1 || launched != kernel.blocks))
    parts.push_back(fmt::format("{} resident", kernel.blocks));
  if (kernel.warps > 0) parts.push_back(counted(kernel.warps, "warp"));
  if (with_place) parts.push_back(top_place(job, kernel));
  return join(parts);
}

bool has_execution(const RankSnapshot& rank) {
  return std::any_of(rank.gpus.begin(), rank.gpus.end(),
                     [](const GpuSnapshot& gpu) { return gpu.execution.has_value(); });
}

// What runs on the GPUs. Ranks whose GPUs run the same kernels, with the same launch parameters, are one group.
class ExecutionGroups {
 public:
  explicit ExecutionGroups(const JobSnapshot& job) : job_(job) {
    for (std::size_t r = 0; r < job.ranks.size(); ++r) {
      const RankSnapshot& rank = job.ranks[r];
      if (!rank.gpus.empty() && !has_execution(rank)) add(r, Order::kUnknown, "", "kernels unknown", "kernels unknown");
      for (const GpuSnapshot& gpu : rank.gpus)
        if (gpu.execution) add_execution(r, *gpu.execution);
    }
    std::stable_sort(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) { return a.order < b.order; });
  }

  Lines lines(const TextStyle& style, std::size_t width) const {
    Lines lines;
    for (const Group& group : groups_) {
      const std::string who = "  > " + name_members(job_, group.ranks, group.gpus), what = sanitize(group.text);
      const std::string text =
          cut_end(who + (columns_of(who) + columns_of(what) <= width ? what : sanitize(group.shorter)), width);
      lines.push_back(group.order == Order::kException ? style.alarm(text) : text);
    }
    return lines;
  }

 private:
  enum class Order { kException, kKernel, kIdle, kUnknown, kCollective };
  struct Group {
    Order order;
    std::string text, shorter;  // shorter: used if `text` does not fit
    Ranks ranks;
    std::size_t gpus = 0;
  };

  void add(std::size_t rank, Order order, const std::string& key, const std::string& text, const std::string& shorter) {
    const auto [it, is_new] = index_.try_emplace(fmt::format("{} {}", static_cast<int>(order), key), groups_.size());
    if (is_new) groups_.push_back({order, text, shorter, {}, 0});
    groups_[it->second].ranks.push_back(rank);
    ++groups_[it->second].gpus;
  }

  void add_execution(std::size_t rank, const GpuExecution& execution) {
    for (const GpuException& exception : execution.exceptions) {
      const std::string text = "exception: " + analyzers::describe_exception(exception);
      add(rank, Order::kException, exception.kind + '\n' + exception.kernel.value_or(""), text, text);
    }
    if (execution.kernels.empty() && execution.exceptions.empty())
      add(rank, Order::kIdle, "", "no kernel", "no kernel");
    if (!execution.kernels.empty()) add_kernels(rank, execution.kernels);
  }

  void add_kernels(std::size_t rank, const std::vector<GpuKernel>& kernels) {
    constexpr std::size_t kMaxKernels = 3;
    bool collective = false, nameless = false;
    std::string key;
    std::vector<std::string> texts, shorter;
    for (const GpuKernel& kernel : kernels) {
      collective |= kernel.function && analyzers::collective_of(*kernel.function);
      nameless |= !kernel.function;
      key += name_of(kernel) + ' ' + analyzers::describe_launch(kernel) + '\n';
      if (texts.size() >= kMaxKernels) continue;
      texts.push_back(summary_of(job_, kernel, true));
      shorter.push_back(summary_of(job_, kernel, false));
    }
    if (kernels.size() > kMaxKernels)
      texts.push_back(counted(kernels.size() - kMaxKernels, "more kernel")), shorter.push_back(texts.back());
    add(rank,
        collective ? Order::kCollective
        : nameless ? Order::kUnknown
                   : Order::kKernel,
        key, join(texts, "; "), join(shorter, "; "));
  }

  const JobSnapshot& job_;
  std::vector<Group> groups_;
  std::map<std::string, std::size_t> index_;
};

// The kernels on the GPUs, a line for each group; none if no GPU was looked at.
Lines execution_lines(const JobSnapshot& job, const TextStyle& style, std::size_t width) {
  if (std::none_of(job.ranks.begin(), job.ranks.end(), has_execution)) return {};
  return ExecutionGroups(job).lines(style, width);
}

template <class T>
std::string quantity(std::string_view name, const std::optional<T>& value, std::string_view unit) {
  if (!value) return "";
  if constexpr (std::is_floating_point_v<T>) return fmt::format("{} {:.0f} {}", name, shown(*value, 1e9), unit);
  else return fmt::format("{} {}{}{}", name, *value, unit.empty() ? "" : " ", unit);
}

template <class T>
std::string of_most(std::string_view name, const std::optional<T>& value, const std::optional<T>& most,
                    std::string_view unit) {
  if (!value) return "";
  return most ? fmt::format("{} {} of {}{}{}", name, *value, *most, unit.empty() ? "" : " ", unit)
              : fmt::format("{} {}{}{}", name, *value, unit.empty() ? "" : " ", unit);
}

std::string numbers(std::string_view name, const auto& values) {
  std::vector<std::string> texts;
  for (const auto value : values) texts.push_back(std::to_string(value));
  return texts.empty() ? "" : fmt::format("{} {}", name, join(texts, ","));
}

std::string health_in_full(const GpuHealth& h) {
  Extent<double> utilization;
  utilization.add(h.utilization_mean);
  Extent<std::uint64_t> used;
  used.add(h.memory_used);
  Extent<std::uint64_t> own;
  own.add(h.process_memory);
  const std::string own_memory = memory(own, std::nullopt);
  return join(
      {percent(utilization) +
           (h.utilization_variance ? fmt::format(" (variance {:.0f})", shown(*h.utilization_variance, 1e6)) : ""),
       quantity("memory accessed", h.memory_utilization_mean, "%"),
       used.least ? "memory " + memory(used, h.memory_total) : "",
       own_memory.empty() ? "" : own_memory + " of this process",
       of_most("SM clock", h.sm_clock, h.sm_clock_max, "MHz"),
       of_most("memory clock", h.memory_clock, h.memory_clock_max, "MHz"),
       h.throttle.empty() ? "" : "throttled by " + join(h.throttle),
       quantity("power", h.power_w, "W"),
       quantity("mean power", h.power_mean_w, "W"),
       quantity("limit", h.power_limit_w, "W"),
       quantity("temperature", h.temperature_c, "C"),
       quantity("ECC corrected", h.ecc_corrected, ""),
       quantity("ECC uncorrected", h.ecc_uncorrected, ""),
       quantity("remapped rows", h.remapped_rows, ""),
       h.remap_failed ? "row remapping failed" : "",
       h.remap_pending ? "row remapping pending" : "",
       of_most("NVLinks up", h.nvlinks_up, h.nvlinks, ""),
       numbers("NVLinks down", h.nvlinks_down),
       quantity("NVLink errors", h.nvlink_errors, ""),
       of_most("PCIe width", h.pcie_width, h.pcie_width_max, ""),
       of_most("PCIe generation", h.pcie_generation, h.pcie_generation_max, ""),
       numbers("Xids", h.xids),
       numbers("other processes", h.other_processes),
       h.driver.empty() ? "" : "driver " + h.driver});
}

std::string frame_line(const Frame& frame) {
  std::string text = full_frame_name(frame);
  if (frame.address != 0) text.insert(0, fmt::format("{:#018x} ", frame.address));
  if (frame.function && frame.offset) text += fmt::format("+{:#x}", *frame.offset);
  return frame.file && frame.line ? text + fmt::format(" at {}:{}", *frame.file, *frame.line) : text;
}

void add_kernel(const JobSnapshot& job, const GpuKernel& kernel, const TextStyle& style, Lines& lines) {
  const std::string name = kernel.function ? *kernel.function : name_of(kernel);
  lines.push_back("    " + style.strong(sanitize(fmt::format("kernel {}", name))));
  // What another tool has printed has these numbers in part.
  std::vector<std::string> resident;
  for (const auto& [number, unit] :
       {std::pair{kernel.blocks, "block"}, std::pair{kernel.warps, "warp"}, std::pair{kernel.lanes, "thread"}})
    if (number > 0) resident.push_back(counted(number, unit));
  if (kernel.sms > 0) {
    const std::string sms = "on " + counted(kernel.sms, "SM");
    if (kernel.blocks > 0) resident.front() += " " + sms;
    else resident.insert(resident.begin(), sms);
  }
  lines.push_back(sanitize(fmt::format("      {}{}{}", analyzers::describe_launch(kernel),
                                       resident.empty() ? "" : "; resident: ", join(resident))));
  for (const GpuPlace& place : kernel.places)
    lines.push_back(fmt::format("      {:>7} at {}", place.warps > 0 ? counted(place.warps, "warp") : "a thread",
                                frame_line(job.frames[place.frame])));
  if (kernel.more_places > 0)
    lines.push_back(fmt::format("      ... and at {}", counted(kernel.more_places, "more place")));
  if (kernel.frames.size() < 2) return;  // just the place itself
  lines.push_back("      device stack at the first of these:");
  for (std::size_t f = 0; f < kernel.frames.size(); ++f)
    lines.push_back(fmt::format("      #{:<3} {}", f, frame_line(job.frames[kernel.frames[f]])));
}

}  // namespace

Lines gpu_lines(const JobSnapshot& job, const TextStyle& style, std::size_t width, std::size_t most) {
  Lines lines = execution_lines(job, style, width);
  Lines health = health_lines(job, style, width);
  // The kernels come after the state of the devices, and take precedence if there is not enough room.
  if (health.size() + lines.size() > most && health.size() > most / 2) {
    const std::size_t keep = std::max<std::size_t>(most > lines.size() ? most - lines.size() : 0, most / 2);
    if (health.size() > keep && keep > 0) {
      const std::size_t left_out = health.size() - (keep - 1);
      health.resize(keep - 1);
      health.push_back(fmt::format("  ... and {}: --threads all", counted(left_out, "more line")));
    }
  }
  const std::size_t room = most > health.size() ? most - health.size() : 1;
  if (lines.size() > room) {
    const std::size_t left_out = lines.size() - (room - 1);
    lines.resize(room - 1);
    lines.push_back(fmt::format("  > ... and {}: --threads all", counted(left_out, "more line")));
  }
  if (health.empty() && lines.empty()) return {};
  Lines all = {style.strong("GPUs")};
  all.insert(all.end(), health.begin(), health.end());
  all.insert(all.end(), lines.begin(), lines.end());
  return all;
}

Lines gpu_detail_lines(const JobSnapshot& job, std::size_t rank, const TextStyle& style) {
  Lines lines;
  for (const GpuSnapshot& gpu : job.ranks[rank].gpus) {
    std::string heading = "GPU";
    if (gpu.index) heading += fmt::format(" {}", *gpu.index);
    for (const std::string& part : {gpu.pci, gpu.name, gpu.uuid})
      if (!part.empty()) heading += "  " + part;
    lines.push_back("  " + style.strong(sanitize(heading)));
    if (gpu.health) lines.push_back("    " + sanitize(health_in_full(*gpu.health)));
    if (!gpu.execution) continue;
    const GpuExecution& execution = *gpu.execution;
    std::string source = execution.source == GpuSource::kCore ? "from " + execution.path.value_or("a GPU core")
                                                              : "through the debugger API";
    if (execution.held_ms) source += fmt::format(", held for {:.1f} ms", shown(*execution.held_ms, 1e9));
    lines.push_back("    " +
                    sanitize(fmt::format(
                        "{}: {}{}", source, execution.contexts > 0 ? counted(execution.contexts, "context") + ", " : "",
                        execution.kernels.empty() ? "no kernel" : counted(execution.kernels.size(), "kernel"))));
    for (const GpuException& exception : execution.exceptions) {
      lines.push_back("    " + style.alarm(sanitize("exception: " + analyzers::describe_exception(exception))));
      if (exception.frame) lines.push_back("      at " + frame_line(job.frames[*exception.frame]));
    }
    for (const GpuKernel& kernel : execution.kernels) add_kernel(job, kernel, style, lines);
  }
  return lines;
}

}  // namespace rankstacks::report
