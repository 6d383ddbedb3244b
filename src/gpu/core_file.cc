#include "gpu/core_file.h"

#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "gpu/core_layout.h"
#include "gpu/core_sections.h"
#include "gpu/cubin.h"
#include "gpu/summarize.h"

namespace rankstacks::gpu {
namespace {

using core::Row;
using core::Sections;
using core::Table;

// Exceptions of a single thread (CUDBG_EXCEPTION_LANE_*), and an assert. The others are of a warp, and all its lanes
// are marked with them.
bool is_of_lane(ExceptionCode code) {
  return code == 1 || code == 2 || (code >= 11 && code <= 13) || code == 15 || code == 16;
}

class CoreReader {
 public:
  CoreReader(Sections& sections, GpuCore& core, const Deadline& deadline)
      : sections_(sections), core_(core), whole_deadline_(deadline), deadline_(deadline) {}

  void read() {
    const Table devices = sections_.table(core::kDevices, 0, 0, core::device::kLeast);
    for (std::uint64_t i = 0; i < devices.size() && next_row(); ++i) read_device(devices, i);
    const Row meta(sections_.contents(core::kMetaData, 0, 0));  // one row, in a section that states no row size
    if (meta[core::meta::kDriverMajor] != 0)
      core_.driver = fmt::format("{}.{}", meta[core::meta::kDriverMajor], meta[core::meta::kDriverMinor]);
    if (meta[core::meta::kTime] != 0) core_.written.emplace(std::chrono::seconds(meta[core::meta::kTime]));
    if (out_of_rows_)
      sections_.report(fmt::format("it has more than {} rows: those behind them are not read", kMaxRows), "");
    if (out_of_warps_)
      sections_.report(fmt::format("it has more than {} warps: those behind them are not read", kMaxWarps), "");
    if (whole_deadline_.passed())
      sections_.report("reading it took longer than --timeout: what is behind is not read",
                       "give it more with --timeout");
  }

 private:
  bool next_row() {
    if (rows_left_ == 0) out_of_rows_ = true;
    if (rows_left_ == 0 || deadline_.passed()) return false;
    --rows_left_;
    return true;
  }

  void read_device(const Table& devices, std::uint64_t index) {
    const Row row = devices[index];
    DeviceState device;
    device.device = row[core::device::kId];
    // The format has no PCI domain; the GPUs of servers are mostly in domain 0.
    device.pci = fmt::format("0000:{:02x}:{:02x}.0", row[core::device::kPciBus], row[core::device::kPciDevice]);
    device.name = sections_.text(row[core::device::kName]);
    device.sm_type = sections_.text(row[core::device::kSmType]);
    instruction_size_ = row[core::device::kInstructionSize];
    if (const std::uint32_t status = row[core::device::kStatus]; status != 0) {
      sections_.report(
          fmt::format("GPU {}: the driver could not read its state (CUDBGResult {})", device.device, status), "");
    }
    read_sms(device, devices.section(), index);
    const Table contexts = sections_.table(core::kContexts, devices.section(), index, core::context::kLeast);
    for (std::uint64_t i = 0; i < contexts.size() && next_row(); ++i) {
      ++device.contexts;
      const auto tid = static_cast<Tid>(contexts[i][core::context::kTid]);
      if (tid > 0 && std::find(core_.threads.begin(), core_.threads.end(), tid) == core_.threads.end())
        core_.threads.push_back(tid);
    }
    if (device.contexts == 0 && device.warps.empty() && device.sm_exceptions.empty())
      return;  // it was only visible to the process
    read_grids(device, devices.section(), index);
    read_stacks(device);
    read_images(device, contexts);
    core_.devices.push_back(std::move(device));
  }

  void read_sms(DeviceState& device, std::uint32_t devices, std::uint64_t index) {
    const Table sms = sections_.table(core::kSms, devices, index, core::sm::kLeast);
    for (std::uint64_t s = 0; s < sms.size() && next_row(); ++s) {
      const Row row = sms[s];
      const std::uint32_t sm = row[core::sm::kId];
      if (const ExceptionCode code = row[core::sm::kException]; code != 0) {
        SmException exception{sm, code, {}};
        if (row[core::sm::kErrorPcValid] != 0 && row.has(core::sm::kErrorPc))
          exception.error_pc = row[core::sm::kErrorPc];
        device.sm_exceptions.push_back(exception);
      }
      const Table blocks = sections_.table(core::kBlocks, sms.section(), s, core::block::kLeast);
      for (std::uint64_t b = 0; b < blocks.size() && next_row(); ++b) read_block(device, sm, blocks, b);
    }
  }

  void read_block(DeviceState& device, std::uint32_t sm, const Table& blocks, std::uint64_t index) {
    const Row block = blocks[index];
    const Table warps = sections_.table(core::kWarps, blocks.section(), index, core::warp::kLeast);
    for (std::uint64_t w = 0; w < warps.size() && next_row(); ++w) {
      if (warps_ == kMaxWarps) {
        out_of_warps_ = true;
        return;
      }
      ++warps_;
      const Row row = warps[w];
      Warp warp;
      warp.sm = sm;
      warp.index = row[core::warp::kId];
      warp.grid_id = block[core::block::kGrid];
      warp.block = {block[core::block::kX], block[core::block::kY], block[core::block::kZ]};
      warp.valid_lanes = row[core::warp::kValidLanes];
      warp.active_lanes = row[core::warp::kActiveLanes];
      if (row[core::warp::kErrorPcValid] != 0) warp.error_pc = row[core::warp::kErrorPc];
      read_lanes(device, warp, sections_.table(core::kThreads, warps.section(), w, core::thread::kLeast));
      device.warps.push_back(warp);
    }
  }

  void read_lanes(const DeviceState& device, Warp& warp, const Table& threads) {
    std::array<GpuDim, kLanes> index;
    std::array<ExceptionCode, kLanes> exception{};
    std::array<std::uint32_t, kLanes> rows{};
    std::uint32_t seen = 0;
    for (std::uint64_t t = 0; t < threads.size() && next_row(); ++t) {
      const Row row = threads[t];
      const std::uint32_t lane = row[core::thread::kLane];
      if (lane >= kLanes || (warp.valid_lanes >> lane & 1) == 0 || (seen >> lane & 1) != 0) continue;
      seen |= 1u << lane;
      warp.pc[lane] = row[core::thread::kPc];
      index[lane] = {row[core::thread::kX], row[core::thread::kY], row[core::thread::kZ]};
      exception[lane] = row[core::thread::kException];
      rows[lane] = static_cast<std::uint32_t>(t);
    }
    if (seen != warp.valid_lanes) {
      if (!lost_lanes_)
        sections_.report(fmt::format("GPU {}: not all threads of its warps are in the core", device.device), "");
      lost_lanes_ = true;
      warp.valid_lanes = seen;
    }
    for (std::uint32_t left = seen; left != 0 && warp.exception == 0; left &= left - 1) {
      warp.exception = exception[static_cast<std::size_t>(std::countr_zero(left))];
    }
    if (warp.exception != 0) {
      for (std::uint32_t left = seen & warp.active_lanes; left != 0 && !warp.exception_thread; left &= left - 1) {
        const auto lane = static_cast<std::size_t>(std::countr_zero(left));
        if (exception[lane] == warp.exception && has_raised(warp, lane)) warp.exception_thread = index[lane];
      }
    }
    threads_of_[{warp.sm, warp.index}] = {threads.section(), rows};
  }

  // Of an exception of the warp, only the lanes that have just been at its pc: the pc is the start of an instruction,
  // and such a lane is there or right behind that instruction.
  bool has_raised(const Warp& warp, std::size_t lane) const {
    if (is_of_lane(warp.exception)) return true;
    return warp.error_pc && (warp.pc[lane] == *warp.error_pc || warp.pc[lane] - *warp.error_pc == instruction_size_);
  }

  void read_grids(DeviceState& device, std::uint32_t devices, std::uint64_t index) {
    std::set<std::uint64_t> named;
    for (const Warp& warp : device.warps) named.insert(warp.grid_id);
    const Table grids = sections_.table(core::kGrids, devices, index, core::grid::kLeast);
    for (std::uint64_t i = 0; i < grids.size() && next_row(); ++i) {
      const Row row = grids[i];
      if (named.erase(row[core::grid::kId]) == 0) continue;
      device.grids.push_back({row[core::grid::kId],
                              row[core::grid::kContext],
                              row[core::grid::kModule],
                              row[core::grid::kFunction],
                              row[core::grid::kEntry],
                              {row[core::grid::kGridX], row[core::grid::kGridY], row[core::grid::kGridZ]},
                              {row[core::grid::kBlockX], row[core::grid::kBlockY], row[core::grid::kBlockZ]}});
    }
  }

  void read_stacks(DeviceState& device) {
    std::map<std::pair<std::uint32_t, std::uint64_t>, LaneStack> wanted;
    for (const LaneId& lane : representative_lanes(device)) {
      const auto it = threads_of_.find({lane.sm, lane.warp});
      if (it != threads_of_.end())
        wanted[{it->second.section, it->second.rows[lane.lane]}] = {lane.sm, lane.warp, lane.lane, {}};
    }
    std::vector<std::pair<std::uint32_t, std::uint64_t>> keys;
    for (const auto& [key, stack] : wanted) keys.push_back(key);
    const std::vector<Table> tables = sections_.tables(core::kReturns, keys, core::returns::kLeast);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      LaneStack& stack = wanted[keys[i]];
      std::vector<std::pair<std::uint32_t, Address>> by_level;
      for (std::uint64_t r = 0; r < tables[i].size() && r < kMaxReturns && next_row(); ++r) {
        by_level.emplace_back(tables[i][r][core::returns::kLevel], tables[i][r][core::returns::kAddress]);
      }
      std::stable_sort(by_level.begin(), by_level.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (const auto& [level, address] : by_level) stack.returns.push_back(address);
      device.stacks.push_back(std::move(stack));
    }
    threads_of_.clear();
  }

  // Images of the modules that a kernel belongs to, and of those whose code it has called.
  void read_images(DeviceState& device, const Table& contexts) {
    const std::vector<ModuleId> needed = needed_modules(device);
    const std::vector<Address> addresses = code_addresses(device);
    for (std::uint64_t c = 0; c < contexts.size() && next_row(); ++c) {
      const std::uint64_t context = contexts[c][core::context::kId];
      const Table modules = sections_.table(core::kModules, contexts.section(), c, core::module::kLeast);
      // One module may have a million sections: the deadline is checked before each module.
      for (std::uint64_t m = 0; m < modules.size() && next_row() && !whole_deadline_.passed(); ++m) {
        const std::uint64_t module = modules[m][core::module::kHandle];
        const auto image = sections_.contents(core::kRelocatedImage, modules.section(), m);
        const bool is_needed = std::binary_search(needed.begin(), needed.end(), ModuleId{context, module});
        if (!is_needed && !has_code_at(image, addresses)) continue;
        if (device.images.size() == kMaxImages || image.size() > image_bytes_left_) {
          sections_.report(
              fmt::format(
                  "GPU {}: more than {} modules or {} MiB of their code: functions of those behind have no names",
                  device.device, kMaxImages, kMaxImageBytes >> 20),
              "");
          return;
        }
        image_bytes_left_ -= image.size();
        if (image.empty()) {
          sections_.report(
              fmt::format("GPU {}: the code of module 0x{:x} is not in the core: its functions have no names",
                          device.device, module),
              "write cores without skip_... of ELF images in CUDA_COREDUMP_GENERATION_FLAGS but "
              "skip_nonrelocated_elf_images");
        }
        device.images.push_back({context, module, {image.begin(), image.end()}});
      }
    }
  }

  struct ThreadsOf {
    std::uint32_t section = 0;
    std::array<std::uint32_t, kLanes> rows{};  // by lane
  };

  Sections& sections_;
  GpuCore& core_;
  Deadline whole_deadline_;
  DeadlineCheck deadline_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, ThreadsOf> threads_of_;  // of the warps (SM, index) of one device
  std::uint64_t rows_left_ = kMaxRows;
  std::uint64_t image_bytes_left_ = kMaxImageBytes;
  std::size_t warps_ = 0;
  std::uint32_t instruction_size_ = 0;
  bool out_of_rows_ = false, out_of_warps_ = false, lost_lanes_ = false;
};

}  // namespace

std::optional<Result<GpuCore>> read_gpu_core(const std::string& path, const Deadline& deadline) {
  auto opened = Sections::open(path, deadline);
  if (!opened) return std::nullopt;
  if (!*opened) return fail(opened->error());
  Sections& sections = ***opened;
  GpuCore core;
  CoreReader(sections, core, deadline).read();
  if (sections.has_lost_pages())
    sections.report("the core became shorter, or its disk failed, while it was read",
                    "open it again when nothing writes to it");
  core.problems = std::move(sections.problems());
  core.partial = !sections.is_complete();
  return core;
}

}  // namespace rankstacks::gpu
