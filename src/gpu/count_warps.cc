#include "gpu/count_warps.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

namespace rankstacks::gpu {
namespace {

struct Position {
  Address pc = 0;
  std::uint32_t lane = 0;
};

// Where most of the lanes are; between equals the lowest lane decides.
Position position_of(const Warp& warp) {
  const std::uint32_t active = warp.active_lanes & warp.valid_lanes;
  std::uint32_t left = active != 0 ? active : warp.valid_lanes;
  Position best;
  for (int most = 0; std::popcount(left) > most;) {  // `most` is final once no more lanes than that are left
    const auto lane = static_cast<std::uint32_t>(std::countr_zero(left));
    const Address pc = warp.pc[lane];
    std::uint32_t there = 0;
    for (std::uint32_t rest = left; rest != 0; rest &= rest - 1) {
      if (warp.pc[static_cast<std::size_t>(std::countr_zero(rest))] == pc) there |= rest & -rest;
    }
    left &= ~there;
    if (std::popcount(there) > most) {
      best = {pc, lane};
      most = std::popcount(there);
    }
  }
  return best;
}

}  // namespace

std::vector<KernelCount> count_kernels(const DeviceState& state) {
  // A tree, not a hash table: whatever grids and pcs a core names, they cannot make it slow.
  std::map<std::pair<std::uint64_t, Address>, PlaceCount> places;
  for (std::size_t i = 0; i < state.warps.size(); ++i) {
    const Warp& warp = state.warps[i];
    if (warp.valid_lanes == 0) continue;
    const Position position = position_of(warp);
    const auto [it, is_new] =
        places.try_emplace({warp.grid_id, position.pc}, PlaceCount{position.pc, 0, i, position.lane});
    PlaceCount& place = it->second;
    ++place.warps;
    const Warp& first = state.warps[place.first_warp];
    if (std::tie(warp.sm, warp.index) < std::tie(first.sm, first.index)) {
      place.first_warp = i;
      place.lane = position.lane;
    }
  }
  std::vector<KernelCount> kernels;
  for (const auto& [key, place] : places) {
    if (kernels.empty() || kernels.back().grid_id != key.first) kernels.push_back({.grid_id = key.first});
    kernels.back().places.push_back(place);
    kernels.back().warps += place.warps;
  }
  const auto more_warps = [](const auto& a, const auto& b) { return a.warps > b.warps; };
  for (KernelCount& kernel : kernels) std::stable_sort(kernel.places.begin(), kernel.places.end(), more_warps);
  std::stable_sort(kernels.begin(), kernels.end(), more_warps);
  return kernels;
}

std::vector<ExceptionCount> count_exceptions(const DeviceState& state) {
  struct Raised {
    ExceptionCode code;
    std::uint64_t grid_id;
    std::optional<Address> pc;
    std::size_t warp;
    auto key() const { return std::tie(code, grid_id, pc, warp); }
  };
  std::vector<Raised> raised;
  std::vector<std::uint32_t> sms;  // multiprocessors of warps that have one
  for (std::size_t i = 0; i < state.warps.size(); ++i) {
    const Warp& warp = state.warps[i];
    if (warp.exception == 0) continue;
    std::optional<Address> pc = warp.error_pc;
    if (!pc && warp.valid_lanes != 0) pc = position_of(warp).pc;  // an assert: the pc is right behind it
    raised.push_back({warp.exception, warp.grid_id, pc, i});
    sms.push_back(warp.sm);
  }
  std::sort(raised.begin(), raised.end(), [](const Raised& a, const Raised& b) { return a.key() < b.key(); });
  std::sort(sms.begin(), sms.end());
  std::vector<ExceptionCount> counts;
  for (const Raised& r : raised) {
    if (counts.empty() || counts.back().code != r.code || counts.back().grid_id != r.grid_id ||
        counts.back().pc != r.pc) {
      counts.push_back({r.code, r.grid_id, r.pc, 0, r.warp});
    }
    ++counts.back().warps;
  }
  std::stable_sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.warps > b.warps; });

  std::vector<std::pair<ExceptionCode, std::optional<Address>>> known;
  for (const ExceptionCount& c : counts) known.emplace_back(c.code, c.pc);
  std::sort(known.begin(), known.end());
  std::vector<std::pair<ExceptionCode, std::optional<Address>>> remembered;
  for (const SmException& e : state.sm_exceptions) {
    if (e.code == 0 || std::binary_search(sms.begin(), sms.end(), e.sm)) continue;
    if (!std::binary_search(known.begin(), known.end(), std::pair(e.code, e.error_pc)))
      remembered.emplace_back(e.code, e.error_pc);
  }
  std::sort(remembered.begin(), remembered.end());
  remembered.erase(std::unique(remembered.begin(), remembered.end()), remembered.end());
  for (const auto& [code, pc] : remembered) counts.push_back({.code = code, .pc = pc});
  return counts;
}

const Grid* find_grid(const DeviceState& state, std::uint64_t id) {
  const auto it = std::find_if(state.grids.begin(), state.grids.end(), [&](const Grid& g) { return g.id == id; });
  return it != state.grids.end() ? &*it : nullptr;
}

}  // namespace rankstacks::gpu
