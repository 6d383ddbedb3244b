#include "gpu/summarize.h"

#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "gpu/count_warps.h"
#include "gpu/cubin.h"
#include "model/gpu_exception.h"
#include "symbolizers/symbolizer.h"

namespace rankstacks::gpu {
namespace {

// A return address is looked up one byte earlier: the call may be the last instruction of its function.
enum class Meaning { kPc, kReturn };

Address looked_up(Address address, Meaning meaning) { return meaning == Meaning::kReturn ? address - 1 : address; }

const LaneStack* find_stack(const DeviceState& state, const LaneId& lane) {
  const auto it = std::find_if(state.stacks.begin(), state.stacks.end(), [&](const LaneStack& s) {
    return s.sm == lane.sm && s.warp == lane.warp && s.lane == lane.lane;
  });
  return it != state.stacks.end() ? &*it : nullptr;
}

LaneId representative(const DeviceState& state, const KernelCount& kernel) {
  const PlaceCount& place = kernel.places.front();
  const Warp& warp = state.warps[place.first_warp];
  return {kernel.grid_id, warp.sm, warp.index, place.lane};
}

// Counted once, used by all that follows.
struct Counted {
  explicit Counted(const DeviceState& state) : kernels(count_kernels(state)), exceptions(count_exceptions(state)) {
    if (kernels.size() > kMaxKernels) {
      more_kernels = kernels.size() - kMaxKernels;
      kernels.resize(kMaxKernels);
    }
    if (exceptions.size() > kMaxExceptions) {
      more_exceptions = exceptions.size() - kMaxExceptions;
      exceptions.resize(kMaxExceptions);
    }
  }
  std::vector<KernelCount> kernels;
  std::vector<ExceptionCount> exceptions;
  std::size_t more_kernels = 0, more_exceptions = 0;
};

std::vector<Address> addresses_of(const DeviceState& state, const Counted& counted) {
  std::vector<Address> addresses;
  for (const KernelCount& kernel : counted.kernels) {
    for (std::size_t i = 0; i < kernel.places.size() && i < kMaxGpuPlaces; ++i)
      addresses.push_back(kernel.places[i].pc);
    if (const LaneStack* stack = find_stack(state, representative(state, kernel))) {
      for (const Address a : stack->returns) addresses.push_back(looked_up(a, Meaning::kReturn));
    }
    if (const Grid* grid = find_grid(state, kernel.grid_id); grid != nullptr && grid->entry != 0)
      addresses.push_back(grid->entry);
  }
  for (const ExceptionCount& e : counted.exceptions) {
    if (e.pc) addresses.push_back(*e.pc);
    const Grid* grid = e.grid_id ? find_grid(state, *e.grid_id) : nullptr;
    if (grid != nullptr && grid->entry != 0) addresses.push_back(grid->entry);
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  return addresses;
}

struct NamedPlace {
  std::string function;
  Address start = 0;
  std::optional<std::string> kernel;
  Address kernel_start = 0;
};

// The names of all addresses in all images.
class Names {
 public:
  Names(const DeviceState& state, std::vector<Address> addresses, std::vector<Problem>* problems)
      : addresses_(std::move(addresses)) {
    for (const ModuleImage& image : state.images) {
      if (image.bytes.empty()) continue;
      auto found = find_functions(image.bytes, addresses_);
      if (!found) {
        if (problems != nullptr)
          problems->push_back(
              {fmt::format("the image of module 0x{:x}: {}", image.module, found.error().message()), {}});
        continue;
      }
      Image& named = images_.emplace_back(Image{{image.context, image.module}, {}});
      for (std::size_t i = 0; i < addresses_.size(); ++i) {
        if (const auto& place = (*found)[i]) named.places.emplace(addresses_[i], name(*place));
      }
    }
  }

  // In the kernel's own module, else in another of its context, else in any: code of libraries and of the driver is in
  // other modules.
  const NamedPlace* find(Address address, const Grid* grid) const {
    const NamedPlace* best = nullptr;
    int best_rank = 0;
    for (const Image& image : images_) {
      const auto it = image.places.find(address);
      if (it == image.places.end()) continue;
      const bool same_context = grid != nullptr && image.id.context == grid->context;
      const int rank = same_context && image.id.module == grid->module ? 3 : same_context ? 2 : 1;
      if (rank > best_rank) {
        best = &it->second;
        best_rank = rank;
      }
    }
    return best;
  }

 private:
  struct Image {
    ModuleId id;
    std::map<Address, NamedPlace> places;
  };
  NamedPlace name(const CubinPlace& place) {
    NamedPlace named{demangled(place.function.name), place.function.start, {}, 0};
    if (place.kernel) {
      named.kernel = demangled(place.kernel->name);
      named.kernel_start = place.kernel->start;
    }
    return named;
  }
  const std::string& demangled(std::string_view mangled) {
    const auto [it, is_new] = demangled_.try_emplace(std::string(mangled));
    if (is_new) it->second = symbolizers::demangle(mangled);
    return it->second;
  }

  std::vector<Address> addresses_;
  std::vector<Image> images_;
  std::map<std::string, std::string> demangled_;
};

class Summary {
 public:
  Summary(const DeviceState& state, const Names& names, FrameTable& frames)
      : state_(state), names_(names), frames_(frames) {}

  GpuKernel kernel(const KernelCount& count) {
    GpuKernel kernel;
    kernel.grid_id = count.grid_id;
    const Grid* grid = find_grid(state_, count.grid_id);
    if (grid != nullptr) {
      kernel.grid = grid->grid;
      kernel.block = grid->block;
      if (grid->entry != 0) kernel.entry = grid->entry;
    }
    kernel.warps = count.warps;
    for (const PlaceCount& place : count.places) {
      if (kernel.places.size() == kMaxGpuPlaces) break;
      kernel.places.push_back({frame(place.pc, Meaning::kPc, grid), place.warps});
    }
    kernel.more_places = static_cast<std::uint32_t>(count.places.size() - kernel.places.size());
    const LaneId lane = representative(state_, count);
    kernel.frames.push_back(kernel.places.front().frame);
    Address outermost = count.places.front().pc;
    if (const LaneStack* stack = find_stack(state_, lane)) {
      for (const Address a : stack->returns) {
        kernel.frames.push_back(frame(a, Meaning::kReturn, grid));
        outermost = looked_up(a, Meaning::kReturn);
      }
    }
    kernel.function = kernel_name(grid, outermost);
    return kernel;
  }

  // `kernels`: those made before, by number of warps.
  GpuException exception(const ExceptionCount& count, const std::vector<GpuKernel>& kernels) {
    GpuException exception;
    exception.kind = gpu_exception_kind(count.code);
    exception.grid_id = count.grid_id;
    exception.warps = count.warps;
    const Grid* grid = count.grid_id ? find_grid(state_, *count.grid_id) : nullptr;
    if (count.warps != 0) {
      const Warp& warp = state_.warps[count.first_warp];
      exception.block = warp.block;
      exception.thread = warp.exception_thread;
    }
    if (count.pc) {
      exception.frame = frame(*count.pc, Meaning::kPc, grid);
      exception.kernel = kernel_name(grid, *count.pc);
      // A multiprocessor does not record which grid it was. The pc identifies the kernel, and the kernel identifies the
      // grid if only one grid runs it.
      if (const NamedPlace* place = names_.find(*count.pc, grid);
          place != nullptr && place->kernel && !exception.grid_id) {
        const auto runs_it = [&](const GpuKernel& k) { return k.entry == place->kernel_start; };
        const auto it = std::find_if(kernels.begin(), kernels.end(), runs_it);
        if (it != kernels.end() && std::find_if(it + 1, kernels.end(), runs_it) == kernels.end())
          exception.grid_id = it->grid_id;
      }
    } else if (grid != nullptr) {
      exception.kernel = kernel_name(grid, grid->entry);
    }
    return exception;
  }

 private:
  FrameId frame(Address address, Meaning meaning, const Grid* grid) {
    Frame frame;
    frame.kind = FrameKind::kGpu;
    frame.address = address;
    if (const NamedPlace* place = names_.find(looked_up(address, meaning), grid)) {
      frame.function = place->function;
      frame.offset = address - place->start;
    }
    return frames_.intern(std::move(frame));
  }

  // By the grid's entry; if the grid is unknown, by the entry function that covers its outermost frame.
  std::optional<std::string> kernel_name(const Grid* grid, Address inside) const {
    if (grid != nullptr && grid->entry != 0) {
      if (const NamedPlace* place = names_.find(grid->entry, grid)) return place->function;
    }
    const NamedPlace* place = names_.find(inside, grid);
    return place != nullptr ? place->kernel : std::nullopt;
  }

  const DeviceState& state_;
  const Names& names_;
  FrameTable& frames_;
};

// Blocks, multiprocessors and lanes of the kernels, in one pass over the warps.
void count_residents(const DeviceState& state, std::vector<GpuKernel>& kernels) {
  struct Resident {
    std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> blocks;
    std::set<std::uint32_t> sms;
  };
  std::map<std::uint64_t, std::size_t> by_grid;
  for (std::size_t i = 0; i < kernels.size(); ++i) by_grid.emplace(kernels[i].grid_id, i);
  std::vector<Resident> residents(kernels.size());
  for (const Warp& warp : state.warps) {
    const auto it = by_grid.find(warp.grid_id);
    if (warp.valid_lanes == 0 || it == by_grid.end()) continue;
    kernels[it->second].lanes += static_cast<std::uint32_t>(std::popcount(warp.valid_lanes));
    residents[it->second].blocks.emplace(warp.block.x, warp.block.y, warp.block.z);
    residents[it->second].sms.insert(warp.sm);
  }
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    kernels[i].blocks = static_cast<std::uint32_t>(residents[i].blocks.size());
    kernels[i].sms = static_cast<std::uint32_t>(residents[i].sms.size());
  }
}

}  // namespace

std::vector<LaneId> representative_lanes(const DeviceState& state) {
  std::vector<LaneId> lanes;
  for (const KernelCount& kernel : count_kernels(state)) {
    if (lanes.size() == kMaxKernels) break;
    lanes.push_back(representative(state, kernel));
  }
  return lanes;
}

std::vector<ModuleId> needed_modules(const DeviceState& state) {
  std::vector<std::uint64_t> named;
  for (const Warp& warp : state.warps) {
    if (named.empty() || named.back() != warp.grid_id) named.push_back(warp.grid_id);
  }
  std::sort(named.begin(), named.end());
  std::vector<ModuleId> modules;
  for (const Grid& grid : state.grids) {
    if (std::binary_search(named.begin(), named.end(), grid.id)) modules.push_back({grid.context, grid.module});
  }
  std::sort(modules.begin(), modules.end());
  modules.erase(std::unique(modules.begin(), modules.end()), modules.end());
  return modules;
}

std::vector<Address> code_addresses(const DeviceState& state) { return addresses_of(state, Counted(state)); }

GpuSnapshot summarize(const DeviceState& state, FrameTable& frames, std::vector<Problem>* problems) {
  const Counted counted(state);
  const Names names(state, addresses_of(state, counted), problems);
  GpuSnapshot gpu;
  gpu.pci = state.pci;
  gpu.name = state.name;
  GpuExecution& execution = gpu.execution.emplace();
  execution.contexts = state.contexts;
  Summary summary(state, names, frames);
  for (const KernelCount& kernel : counted.kernels) execution.kernels.push_back(summary.kernel(kernel));
  count_residents(state, execution.kernels);
  for (const ExceptionCount& exception : counted.exceptions)
    execution.exceptions.push_back(summary.exception(exception, execution.kernels));
  if (problems != nullptr && counted.more_kernels != 0) {
    problems->push_back(
        {fmt::format("GPU {}: {} kernels with the fewest warps are left out", state.device, counted.more_kernels), {}});
  }
  if (problems != nullptr && counted.more_exceptions != 0) {
    problems->push_back(
        {fmt::format("GPU {}: {} exceptions with the fewest warps are left out", state.device, counted.more_exceptions),
         {}});
  }
  return gpu;
}

}  // namespace rankstacks::gpu
