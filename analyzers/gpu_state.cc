#include "analyzers/gpu_state.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "analyzers/names.h"
#include "base/text.h"
#include "known/collective_kernels.h"

namespace rankstacks::analyzers {
namespace {

// NCCL and RCCL. Longer names come first, since older names continue without a separator
// ("ncclReduceScatterRingLLKernel_sum_f32").
constexpr std::pair<std::string_view, known::Collective> kOperations[] = {
    {"AllReduce", known::Collective::kAllReduce},
    {"AllGather", known::Collective::kAllGather},
    {"AllToAll", known::Collective::kAllToAll},
    {"AlltoAll", known::Collective::kAllToAll},
    {"ReduceScatter", known::Collective::kReduceScatter},
    {"Broadcast", known::Collective::kBroadcast},
    {"SendRecv", known::Collective::kSendRecv},
    {"Reduce", known::Collective::kReduce},
    {"Gather", known::Collective::kGather},
    {"Scatter", known::Collective::kScatter}};

// Parses the rest of a name, "AllReduce_Sum_f32_RING_LL".
std::optional<known::Collective> operation_at(std::string_view rest) {
  for (const auto& [name, operation] : kOperations)
    if (rest.starts_with(name)) return operation;
  return std::nullopt;
}

// The prefixes before the operation. ncclDevKernel_ since 2.19 (src/device/generate.py), ncclKernel_ before
// (src/collectives/device/common.h); for symmetric memory ncclSymDevKernel_ (2.27) and ncclSymkDevKernel_ (2.28;
// src/device/symmetric/generate.py). RCCL uses NCCL's.
constexpr std::string_view kNcclPrefixes[] = {"ncclDevKernel", "ncclKernel", "ncclSymDevKernel", "ncclSymkDevKernel"};

std::optional<known::Collective> nccl_operation(std::string_view name) {
  if (!name.starts_with("nccl")) return std::nullopt;
  for (const std::string_view prefix : kNcclPrefixes) {
    if (!name.starts_with(prefix)) continue;
    const std::size_t at = name.find('_');
    return at == std::string_view::npos ? known::Collective::kUnknown
                                        : operation_at(name.substr(at + 1)).value_or(known::Collective::kUnknown);
  }
  // Before 2.8: ncclAllReduceRingLLKernel_sum_f32.
  const auto operation = operation_at(name.substr(4));
  if (operation && contains(name, "Kernel_")) return operation;
  return std::nullopt;
}

// A kernel calls ncclDevFunc_AllReduce_Sum_f32_RING_SIMPLE() and similar functions.
constexpr std::string_view kDeviceFunction = "ncclDevFunc_";

// What the functions are of that the warps of a kernel for several collectives are in.
known::Collective operation_within(const FrameTable& frames, const GpuKernel& kernel) {
  std::set<known::Collective> found;
  const auto look_at = [&](FrameId id) {
    const std::string name = frames[id].function.value_or("");
    if (!name.starts_with(kDeviceFunction)) return;
    if (const auto operation = operation_at(std::string_view(name).substr(kDeviceFunction.size())))
      found.insert(*operation);
  };
  for (const GpuPlace& place : kernel.places) look_at(place.frame);
  for (const FrameId id : kernel.frames) look_at(id);
  return found.size() == 1 ? *found.begin() : known::Collective::kUnknown;
}

// What follows the operation in a name: "Sum_f32_RING_LL" of "AllReduce_Sum_f32_RING_LL", in words.
std::string variant_after_operation(std::string_view rest) {
  const std::size_t at = rest.find('_');
  std::string words(at == std::string_view::npos ? std::string_view() : rest.substr(at + 1));
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

// NCCL has few kernels: one serves every reduction and protocol of its collective, data type and algorithm. It has the
// code of the one in its name itself, and calls ncclDevFunc_...() for each other (src/device/generate.py:
// best_kernel()). So the functions that the warps are in decide; if one of them has no name, it may be such a function.
// Where only some warps are known, as from what another tool has printed, those of the kernel itself may not have
// called it yet.
std::optional<std::string> nccl_variant(const GpuKernel& kernel, const FrameTable& frames) {
  constexpr std::string_view kKernel = "ncclDevKernel_";
  const std::string name = kernel_name(*kernel.function);
  if (!name.starts_with(kKernel) || kernel.places.empty()) return std::nullopt;
  std::set<std::string> called;
  bool all_known = true;
  for (const GpuPlace& place : kernel.places) {
    if (!frames[place.frame].function) return std::nullopt;
    all_known &= place.warps > 0;
    const std::string function = kernel_name(*frames[place.frame].function);
    if (function.starts_with(kDeviceFunction))
      called.insert(variant_after_operation(std::string_view(function).substr(kDeviceFunction.size())));
  }
  if (called.size() > 1 || (called.empty() && !all_known)) return std::nullopt;
  const std::string variant =
      called.empty() ? variant_after_operation(std::string_view(name).substr(kKernel.size())) : *called.begin();
  return variant.empty() ? std::nullopt : std::optional(variant);
}

std::string extent(const GpuDim& dim) {
  return dim.y == 1 && dim.z == 1 ? std::to_string(dim.x) : fmt::format("({},{},{})", dim.x, dim.y, dim.z);
}
std::string index(const GpuDim& dim) { return fmt::format("({},{},{})", dim.x, dim.y, dim.z); }

}  // namespace

std::string kernel_name(std::string_view function) {
  std::string name = short_function(function);
  for (const std::string_view tail : {"(...)", "()", "<...>"})
    if (name.ends_with(tail)) name.resize(name.size() - tail.size());
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  std::string plain;
  std::size_t from = 0;
  for (std::size_t at = name.find(kAnonymous); at != std::string::npos; at = name.find(kAnonymous, from)) {
    plain.append(name, from, at - from);
    from = at + kAnonymous.size();
  }
  return plain.append(name, from);
}

std::optional<known::Collective> collective_of(std::string_view function) {
  const std::string name = kernel_name(function);
  if (auto operation = nccl_operation(name)) return operation;
  return known::operation_of_kernel(name);
}

bool runs_collective_of_another_library(const GpuState& state) {
  return state.in_collective() && state.launch && state.kernel->function &&
         !nccl_operation(kernel_name(*state.kernel->function));
}

bool gpus_were_examined(const RankSnapshot& rank) {
  return std::any_of(rank.gpus.begin(), rank.gpus.end(),
                     [](const GpuSnapshot& gpu) { return gpu.execution.has_value(); });
}

GpuState gpu_state_of(const FrameTable& frames, const RankSnapshot& rank) {
  GpuState state;
  const GpuKernel* nameless = nullptr;
  const GpuKernel* other = nullptr;
  bool looked_at = false;
  int kernels_of_collectives = 0;
  for (const GpuSnapshot& gpu : rank.gpus) {
    if (!gpu.execution) continue;
    looked_at = true;
    if (!gpu.execution->exceptions.empty() && !state.exception) state.exception = &gpu.execution->exceptions.front();
    for (const GpuKernel& kernel : gpu.execution->kernels) {
      const auto collective = kernel.function ? collective_of(*kernel.function) : std::nullopt;
      if (collective) {
        ++kernels_of_collectives;
        if (!state.kernel) state.kernel = &kernel;
        state.collectives.push_back(*collective == known::Collective::kUnknown ? operation_within(frames, kernel)
                                                                               : *collective);
      } else if (!kernel.function) {
        nameless = &kernel;
      } else if (!other) {
        other = &kernel;
      }
    }
  }
  std::sort(state.collectives.begin(), state.collectives.end());
  state.collectives.erase(std::unique(state.collectives.begin(), state.collectives.end()), state.collectives.end());
  if (state.exception) {
    state.activity = GpuActivity::kException;
    state.collectives.clear();
  } else if (!state.collectives.empty()) {
    state.activity = GpuActivity::kCollective;
    if (kernels_of_collectives == 1 && state.named() && !state.only_messages()) {
      state.launch = describe_launch(*state.kernel);
      state.variant = nccl_variant(*state.kernel, frames);
    }
  } else if (nameless) {
    state.activity = GpuActivity::kUnknown;  // it may be a collective's
  } else if (other) {
    state.activity = GpuActivity::kKernel;
    state.kernel = other;
  } else if (looked_at) {
    state.activity = GpuActivity::kIdle;
  }
  return state;
}

std::vector<GpuCluster> gpu_clusters(const JobSnapshot& job) {
  const auto order = [](GpuActivity activity) {
    switch (activity) {
      case GpuActivity::kException: return 0;
      case GpuActivity::kKernel: return 1;
      case GpuActivity::kIdle: return 2;
      case GpuActivity::kUnknown: return 3;
      case GpuActivity::kCollective: return 4;
    }
    return 5;
  };
  std::map<std::tuple<int, std::vector<known::Collective>, std::string>, GpuCluster> clusters;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.kind != RankKind::kRank || !gpus_were_examined(rank)) continue;
    GpuState state = gpu_state_of(job.frames, rank);
    std::string what;
    if (state.activity == GpuActivity::kKernel) what = *state.kernel->function;
    if (state.activity == GpuActivity::kException)
      what = state.exception->kind + '\n' + state.exception->kernel.value_or("");
    std::tuple key{order(state.activity), state.collectives, std::move(what)};
    const auto it = clusters.try_emplace(std::move(key), GpuCluster{std::move(state), {}}).first;
    it->second.ranks.push_back(r);
  }
  std::vector<GpuCluster> in_order;
  for (auto& [key, cluster] : clusters) in_order.push_back(std::move(cluster));
  return in_order;
}

bool differ_in_variant(const GpuState& a, const GpuState& b) {
  return a.collectives == b.collectives && a.variant && b.variant && *a.variant != *b.variant;
}

bool may_be_same_collective(const GpuState& a, const GpuState& b) {
  if (!a.named() || !b.named()) return true;
  if (a.collectives == b.collectives && a.launch && b.launch && *a.launch != *b.launch) return false;
  if (differ_in_variant(a, b)) return false;
  std::vector<known::Collective> both;
  std::set_intersection(a.collectives.begin(), a.collectives.end(), b.collectives.begin(), b.collectives.end(),
                        std::back_inserter(both));
  return !both.empty();
}

bool polls_at_one_place(const GpuKernel& kernel) {
  return kernel.warps > 0 && kernel.places.size() == 1 && kernel.places.front().warps == kernel.warps;
}

std::string name_collectives(const GpuState& state) {
  if (!state.named()) return "a collective";
  std::string text;
  for (const known::Collective collective : state.collectives)
    text += fmt::format("{}{}", text.empty() ? "" : " and ", known::to_string(collective));
  return text;
}

std::string describe_launch(const GpuKernel& kernel) {
  const bool one = kernel.grid.x == 1 && kernel.grid.y == 1 && kernel.grid.z == 1;
  return fmt::format("{} block{} of {}", extent(kernel.grid), one ? "" : "s", extent(kernel.block));
}

std::string describe_kernel(const GpuKernel& kernel) {
  const std::string name = kernel.function ? kernel_name(*kernel.function)
                           : kernel.entry  ? fmt::format("the kernel at {:#x}", *kernel.entry)
                                           : "a kernel without a name";
  return fmt::format("{} ({})", name, describe_launch(kernel));
}

std::string describe_exception(const GpuException& exception) {
  std::string text = exception.kind;
  if (exception.kernel) text += " in kernel " + kernel_name(*exception.kernel);
  if (exception.block) text += ", block " + index(*exception.block);
  if (exception.thread) text += " thread " + index(*exception.thread);
  return text;
}

}  // namespace rankstacks::analyzers
