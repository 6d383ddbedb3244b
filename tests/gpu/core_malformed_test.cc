// One small GPU core for each defect, with the whole message about it.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "elf/bytes.h"
#include "gpu/core_file.h"
#include "gpu/summarize.h"
#include "gpu_core_writer.h"
#include "support/temporary_directory.h"

namespace rankstacks::gpu {
namespace {

using namespace testing;

class Reader {
 public:
  std::optional<Result<GpuCore>> read(std::span<const std::byte> bytes) {
    write_file(path(), bytes);
    return read_gpu_core(path());
  }
  std::string path() const { return directory_ / "gpucore.bad"; }
  const TemporaryDirectory& directory() const { return directory_; }

  // The whole error, without the directory.
  std::string error(std::span<const std::byte> bytes) {
    const auto core = read(bytes);
    if (!core) return "not a GPU's";
    if (*core) return "read";
    std::string text = core->error().message();
    CHECK(!core->error().hint.empty());
    if (text.starts_with(directory_.path() + "/")) text.erase(0, directory_.path().size() + 1);
    return text;
  }
  // The first problem of a core that is read nevertheless.
  std::string problem(std::span<const std::byte> bytes, std::size_t* warps = nullptr) {
    const auto core = read(bytes);
    if (!core || !*core) return "not read: " + error(bytes);
    CHECK((*core)->partial == !(*core)->problems.empty());
    if (warps != nullptr) *warps = (*core)->devices.empty() ? 0 : (*core)->devices[0].warps.size();
    return (*core)->problems.empty() ? "none" : (*core)->problems.front().message;
  }

 private:
  TemporaryDirectory directory_;
};

std::size_t number_of(const std::vector<CubinSection>& sections, std::string_view name) {
  for (std::size_t i = 0; i < sections.size(); ++i)
    if (sections[i].name == name) return i;
  return sections.size();
}

}  // namespace

TEST_CASE("a sound synthetic GPU core, by an old driver and by a new one") {
  for (const RowSizes& rows : {kRowsR525, kRowsR580}) {
    GpuCoreWriter writer = spin_core();
    writer.rows = rows;
    Reader reader;
    const auto core = reader.read(writer.write());
    REQUIRE((core && *core));
    CHECK((*core)->problems.empty());
    CHECK_FALSE((*core)->partial);
    CHECK((*core)->threads == std::vector<Tid>{4711});
    CHECK((*core)->driver.empty());
    CHECK_FALSE((*core)->written);
    REQUIRE((*core)->devices.size() == 1);
    const DeviceState& device = (*core)->devices[0];
    CHECK(device.name == "NVIDIA Test");
    CHECK(device.pci == "0000:00:06.0");
    REQUIRE(device.warps.size() == 2);
    CHECK(device.warps[1].sm == 5);
    CHECK(device.warps[1].index == 2);
    CHECK(device.warps[1].block == GpuDim{1, 0, 0});
    REQUIRE(device.grids.size() == 1);
    CHECK(device.grids[0].grid == GpuDim{2, 1, 1});
    FrameTable frames;
    const auto kernels = summarize(device, frames).execution->kernels;
    REQUIRE(kernels.size() == 1);
    CHECK(kernels[0].function == "spin(int*)");
    REQUIRE(kernels[0].frames.size() == 2);
    CHECK(frames[kernels[0].frames[0]].function == "inner(int)");
    CHECK(frames[kernels[0].frames[1]].function == "spin(int*)");
  }
}

TEST_CASE("a core by a driver that is not known yet: longer rows") {
  GpuCoreWriter writer = spin_core();
  for (std::uint64_t* size :
       {&writer.rows.device, &writer.rows.context, &writer.rows.module, &writer.rows.grid, &writer.rows.sm,
        &writer.rows.block, &writer.rows.warp, &writer.rows.thread, &writer.rows.returns, &writer.rows.meta})
    *size += 40;
  writer.written = 1795297016;
  Reader reader;
  const auto core = reader.read(writer.write());
  REQUIRE((core && *core));
  CHECK((*core)->problems.empty());
  CHECK((*core)->driver == "580.159");
  CHECK((*core)->written == std::chrono::system_clock::from_time_t(1795297016));
  REQUIRE((*core)->devices.size() == 1);
  CHECK((*core)->devices[0].warps.size() == 2);
  CHECK((*core)->devices[0].stacks.size() == 1);
}

TEST_CASE("a multiprocessor's exception is there from R555 on") {
  GpuCoreWriter writer = spin_core();
  writer.devices[0].sms[0].exception = 14;
  writer.devices[0].sms[0].error_pc = kSpinCode + 0x10;
  Reader reader;
  auto core = reader.read(writer.write());
  REQUIRE((core && *core));
  REQUIRE((*core)->devices[0].sm_exceptions.size() == 1);
  CHECK((*core)->devices[0].sm_exceptions[0].sm == 3);
  CHECK((*core)->devices[0].sm_exceptions[0].error_pc == kSpinCode + 0x10);
  writer.rows = kRowsR525;
  core = reader.read(writer.write());
  REQUIRE((core && *core));
  CHECK((*core)->devices[0].sm_exceptions.empty());
}

TEST_CASE("which thread raised it") {
  Reader reader;
  const auto thread = [&](GpuWarp warp) {
    GpuCoreWriter writer = spin_core();
    writer.devices[0].sms[0].blocks[0].warps = {std::move(warp)};
    const auto core = reader.read(writer.write());
    REQUIRE((core && *core));
    const auto index = (*core)->devices[0].warps[0].exception_thread;
    return index ? static_cast<int>(index->x) : -1;
  };
  const auto all_marked = [&](std::uint32_t code) {
    GpuWarp warp = whole_warp(0, kSpinCode + 0x70);
    for (GpuThread& t : warp.threads) t.exception = code;
    return warp;
  };
  GpuWarp own = whole_warp(0, kSpinCode + 0x70);
  own.threads[9].exception = 1;  // an exception of a lane
  CHECK(thread(own) == 9);
  GpuWarp warp = all_marked(14);  // of the warp: all are marked, none is where it was raised
  warp.error_pc = kSpinCode + 0xf0;
  CHECK(thread(warp) == -1);
  warp.threads[4].pc = kSpinCode + 0x100;  // this one is just behind
  CHECK(thread(warp) == 4);
  warp.threads[4].pc = kSpinCode + 0x110;
  CHECK(thread(warp) == -1);
  warp.threads[6].pc = kSpinCode + 0xf0;
  CHECK(thread(warp) == 6);
  warp.active = 1;  // and was not active
  CHECK(thread(warp) == -1);
  CHECK(thread(all_marked(6)) == -1);  // the place is not known
}

TEST_CASE("files that are none of a GPU's are left to others") {
  Reader reader;
  CHECK(reader.error({}) == "not a GPU's");
  CHECK(reader.error(Bytes(3)) == "not a GPU's");
  CHECK(reader.error(Bytes(1000)) == "not a GPU's");
  GpuCoreWriter writer = spin_core();
  writer.change_header = [](Elf64_Ehdr& h) { h.e_machine = EM_X86_64; };
  CHECK(reader.error(writer.write()) == "not a GPU's");
  CHECK_FALSE(read_gpu_core(reader.directory() / "missing"));
  CHECK_FALSE(read_gpu_core(reader.directory().path()));
}

TEST_CASE("GPU files of which nothing can be read") {
  Reader reader;
  const auto with = [&](auto change) {
    GpuCoreWriter writer = spin_core();
    writer.change_header = change;
    return reader.error(writer.write());
  };
  CHECK(with([](auto& h) { h.e_type = ET_EXEC; }) == "gpucore.bad: code of a GPU (a cubin), not a GPU core (at 0x10)");
  CHECK(with([](auto& h) { h.e_ident[EI_CLASS] = ELFCLASS32; }) ==
        "gpucore.bad: a GPU's ELF file of class 1 and byte order 1 where 2 and 1 are expected (at 0x4)");
  CHECK(with([](auto& h) { h.e_shoff = 0; }) == "gpucore.bad: a GPU core without section headers (at 0x28)");
  CHECK(with([](auto& h) { h.e_shentsize = 0; }) ==
        "gpucore.bad: section headers of 0 bytes where 64 are expected (at 0x3a)");
  CHECK(with([](auto& h) {
          h.e_shoff = ~std::uint64_t{0};
        }).starts_with("gpucore.bad: the section headers lie outside the file of "));
  CHECK(with([](auto& h) { h.e_shnum = 1; }) == "gpucore.bad: a GPU core without a table of devices");
  GpuCoreWriter writer = spin_core();
  writer.change_sections = [](auto& sections) { sections[0].header.sh_type = SHT_PROGBITS; };
  CHECK(reader.error(writer.write()) == "gpucore.bad: a GPU core without a table of devices");
}

TEST_CASE("a GPU core that is cut off shows what it holds") {
  Reader reader;
  const Bytes whole = spin_core().write();
  std::size_t warps = 0;
  // A truncated core: section headers are missing; the sections at the start of the core are complete.
  const std::size_t end = whole.size() - 3 * sizeof(Elf64_Shdr);
  const Elf64_Ehdr header = *elf::load<Elf64_Ehdr>(whole, 0);
  CHECK(reader.problem(std::span(whole).first(end), &warps) ==
        fmt::format("3 of {} section headers are missing: the core ends at byte {}", header.e_shnum, end));
  CHECK(warps == 2);
  CHECK(reader.error(std::span(whole).first(whole.size() / 2))
            .starts_with("gpucore.bad: the section headers lie outside the file of "));
  CHECK(reader.error(std::span(whole).first(64)) ==
        fmt::format("gpucore.bad: the section headers lie outside the file of 64 bytes (at 0x{:x})", header.e_shoff));
}

TEST_CASE("defects inside of a GPU core") {
  Reader reader;
  std::size_t warps = 0;
  const auto with = [&](auto change) {
    GpuCoreWriter writer = spin_core();
    writer.change_sections = [&](auto& sections) { change(sections); };
    return reader.problem(writer.write(), &warps);
  };
  CHECK(with([](auto&) {}) == "none");
  const std::string ends =
      with([](auto& s) { s[number_of(s, ".cudbg.relfimg")].header.sh_offset = std::uint64_t{1} << 62; });
  CHECK(ends.starts_with("1 of "));
  CHECK(ends.find(" sections are cut off or missing: the core ends at byte ") != std::string::npos);
  CHECK(warps == 2);
  CHECK(with([](auto& s) { s[number_of(s, ".cudbg.wptbl")].header.sh_entsize = 31; }) ==
        "section 8 has rows of 31 bytes where 32 are the fewest: it is left out");
  CHECK(warps == 1);
  CHECK(with([](auto& s) { s[number_of(s, ".cudbg.smtbl")].header.sh_entsize = 0; }) ==
        "section 6 has rows of 0 bytes where 8 are the fewest: it is left out");
  CHECK(warps == 0);
  CHECK(with([](auto& s) { s[number_of(s, ".cudbg.lntbl")].header.sh_link = 1; }) ==
        "GPU 0: not all threads of its warps are in the core");
  CHECK(warps == 2);
  CHECK(with([](auto& s) { s[number_of(s, ".cudbg.relfimg")].header.sh_link = 1; }) ==
        "GPU 0: the code of module 0xa0 is not in the core: its functions have no names");
  CHECK(with([](auto& s) {
          s[number_of(s, ".strtab")].header.sh_offset = ~std::uint64_t{0};
        }).find("cut off or missing") != std::string::npos);
  // Links that form a cycle, and links to no section.
  CHECK(with([](auto& s) { s[number_of(s, ".cudbg.smtbl")].header.sh_link = 6; }) == "none");
  CHECK(warps == 0);
  CHECK(with([](auto& s) { s[number_of(s, ".cudbg.gridtbl")].header.sh_link = 0xffff'ffff; }) == "none");
  CHECK(warps == 2);
}

TEST_CASE("a driver that could not read a device") {
  GpuCoreWriter writer = spin_core();
  writer.devices[0].status = 10;
  Reader reader;
  CHECK(reader.problem(writer.write()) == "GPU 0: the driver could not read its state (CUDBGResult 10)");
}

TEST_CASE("devices that the process only sees are not its own") {
  GpuCoreWriter writer = spin_core();
  writer.devices.insert(writer.devices.begin(), GpuDevice{.name = "other", .slot = 7});
  writer.devices[1].id = 1;
  Reader reader;
  const auto core = reader.read(writer.write());
  REQUIRE((core && *core));
  REQUIRE((*core)->devices.size() == 1);
  CHECK((*core)->devices[0].device == 1);
  CHECK((*core)->devices[0].name == "NVIDIA Test");
  CHECK((*core)->devices[0].warps.size() == 2);
}

TEST_CASE("a GPU core of more sections than its header can count") {
  GpuCoreWriter writer = spin_core();
  GpuSm sm{.id = 7};
  for (std::uint32_t i = 0; i < 66'000; ++i) sm.blocks.push_back({9, i, {}});
  writer.devices[0].sms.insert(writer.devices[0].sms.begin(), sm);
  Reader reader;
  std::size_t warps = 0;
  CHECK(reader.problem(writer.write(), &warps) == "none");
  CHECK(warps == 2);
}

TEST_CASE("the largest number of warps") {
  GpuCoreWriter writer = spin_core();
  GpuSm& sm = writer.devices[0].sms[0];
  sm.blocks[0].warps.assign(kMaxWarps, GpuWarp{.id = 1});
  Reader reader;
  std::size_t warps = 0;
  CHECK(reader.problem(writer.write(), &warps) == "it has more than 262144 warps: those behind them are not read");
  CHECK(warps == kMaxWarps);
}

}  // namespace rankstacks::gpu
