// Writes the seeds of the harnesses gpu_core and cubin: DIRECTORY/gpu_core/* and DIRECTORY/cubin/*.
//
//     gpu_core_seeds DIRECTORY
#include <cstdio>
#include <filesystem>

#include "gpu/gpu_core_writer.h"
#include "support/temporary_directory.h"

using namespace rankstacks::testing;

namespace {

GpuCoreWriter with_exceptions() {
  GpuCoreWriter core = spin_core();
  GpuDevice& device = core.devices[0];
  GpuWarp& warp = device.sms[0].blocks[0].warps[0];
  warp.error_pc = kSpinCode + 0x120;
  for (GpuThread& thread : warp.threads) thread.exception = 14;
  device.sms[1].exception = 12;
  device.sms[1].error_pc = kSpinCode + 0x20;
  core.written = 1795297016;
  return core;
}

GpuCoreWriter two_devices() {
  GpuCoreWriter core = spin_core();
  core.devices.push_back(core.devices[0]);
  core.devices[1].id = 1;
  core.devices[1].contexts.push_back({0xc1, 4712, {{0xa0, spin_cubin().write()}, {0xa1, {}}}});
  core.devices[1].grids.push_back({.id = 10, .context = 0xc1, .module = 0xa1, .entry = 0x10});
  core.devices[1].sms[0].blocks.push_back({10, 0, {whole_warp(1, 0x20)}});
  return core;
}

GpuCoreWriter old_driver() {
  GpuCoreWriter core = spin_core();
  core.rows = kRowsR525;
  return core;
}

CubinWriter many_functions() {
  CubinWriter cubin = spin_cubin();
  cubin.code.push_back({"_Z5laterv", 0, 0x200, {{"_Z5laterv", 0, 0x200, true}}});
  cubin.code.push_back({"_Z4lazyv", 0x7100'0000, 0x200, {{"_Z4lazyv", 0x40, 0x100, false}}, true});
  cubin.code.push_back({"g",
                        kSpinCode + 0x1000,
                        0x100,
                        {{"__nv_static_8__abcdef0__Z1gv", 0, 0x100}, {"local", 0, 0x100, false, false}}});
  return cubin;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: gpu_core_seeds DIRECTORY\n");
    return 2;
  }
  const std::string directory = arguments[1];
  std::filesystem::create_directories(directory + "/gpu_core");
  std::filesystem::create_directories(directory + "/cubin");
  GpuCoreWriter idle = spin_core();
  idle.devices[0].sms.clear();
  write_file(directory + "/gpu_core/spin", spin_core().write());
  write_file(directory + "/gpu_core/exceptions", with_exceptions().write());
  write_file(directory + "/gpu_core/two-devices", two_devices().write());
  write_file(directory + "/gpu_core/old-driver", old_driver().write());
  write_file(directory + "/gpu_core/idle", idle.write());
  write_file(directory + "/cubin/spin", spin_cubin().write());
  write_file(directory + "/cubin/functions", many_functions().write());
  CubinWriter wide = spin_cubin();
  wide.padding_sections = 600;
  write_file(directory + "/cubin/sections", wide.write());
  return 0;
}
