// Compares the rows of GPU cores (src/gpu/core_layout.h) with the toolkit's own header, if a build is given it
// (RANKSTACKS_CUDA_HEADERS).
#include <cstddef>
#include <cstdint>

#include <cudacoredump.h>

#undef SHT_LOUSER
#include "gpu/core_layout.h"

namespace {

using namespace rankstacks::gpu::core;

#define SAME(row, member, ours)                                                                            \
  static_assert(offsetof(row, member) == (ours).offset && sizeof(row::member) == sizeof_member(ours), #row \
                ":"                                                                                        \
                ":" #member)

template <class T>
constexpr std::size_t sizeof_member(Member<T>) {
  return sizeof(T);
}

SAME(CudbgDeviceTableEntry, devName, device::kName);
SAME(CudbgDeviceTableEntry, smType, device::kSmType);
SAME(CudbgDeviceTableEntry, devId, device::kId);
SAME(CudbgDeviceTableEntry, pciBusId, device::kPciBus);
SAME(CudbgDeviceTableEntry, pciDevId, device::kPciDevice);
SAME(CudbgDeviceTableEntry, instructionSize, device::kInstructionSize);
SAME(CudbgDeviceTableEntry, status, device::kStatus);
SAME(CudbgContextTableEntry, contextId, context::kId);
SAME(CudbgContextTableEntry, tid, context::kTid);
SAME(CudbgModuleTableEntry, moduleHandle, module::kHandle);
SAME(CudbgGridTableEntry, gridId64, grid::kId);
SAME(CudbgGridTableEntry, contextId, grid::kContext);
SAME(CudbgGridTableEntry, function, grid::kFunction);
SAME(CudbgGridTableEntry, functionEntry, grid::kEntry);
SAME(CudbgGridTableEntry, moduleHandle, grid::kModule);
SAME(CudbgGridTableEntry, gridDimX, grid::kGridX);
SAME(CudbgGridTableEntry, gridDimY, grid::kGridY);
SAME(CudbgGridTableEntry, gridDimZ, grid::kGridZ);
SAME(CudbgGridTableEntry, blockDimX, grid::kBlockX);
SAME(CudbgGridTableEntry, blockDimY, grid::kBlockY);
SAME(CudbgGridTableEntry, blockDimZ, grid::kBlockZ);
SAME(CudbgSmTableEntry, smId, sm::kId);
SAME(CudbgCTATableEntry, gridId64, block::kGrid);
SAME(CudbgCTATableEntry, blockIdxX, block::kX);
SAME(CudbgCTATableEntry, blockIdxY, block::kY);
SAME(CudbgCTATableEntry, blockIdxZ, block::kZ);
SAME(CudbgWarpTableEntry, errorPC, warp::kErrorPc);
SAME(CudbgWarpTableEntry, warpId, warp::kId);
SAME(CudbgWarpTableEntry, validLanesMask, warp::kValidLanes);
SAME(CudbgWarpTableEntry, activeLanesMask, warp::kActiveLanes);
SAME(CudbgWarpTableEntry, errorPCValid, warp::kErrorPcValid);
SAME(CudbgThreadTableEntry, virtualPC, thread::kPc);
SAME(CudbgThreadTableEntry, ln, thread::kLane);
SAME(CudbgThreadTableEntry, threadIdxX, thread::kX);
SAME(CudbgThreadTableEntry, threadIdxY, thread::kY);
SAME(CudbgThreadTableEntry, threadIdxZ, thread::kZ);
SAME(CudbgThreadTableEntry, exception, thread::kException);
SAME(CudbgBacktraceTableEntry, virtualReturnAddress, returns::kAddress);
SAME(CudbgBacktraceTableEntry, level, returns::kLevel);

static_assert(
    CUDBG_SHT_RELF_IMG == static_cast<unsigned>(kRelocatedImage) && CUDBG_SHT_BT == static_cast<unsigned>(kReturns) &&
    CUDBG_SHT_DEV_TABLE == static_cast<unsigned>(kDevices) && CUDBG_SHT_CTX_TABLE == static_cast<unsigned>(kContexts) &&
    CUDBG_SHT_SM_TABLE == static_cast<unsigned>(kSms) && CUDBG_SHT_GRID_TABLE == static_cast<unsigned>(kGrids) &&
    CUDBG_SHT_CTA_TABLE == static_cast<unsigned>(kBlocks) && CUDBG_SHT_WP_TABLE == static_cast<unsigned>(kWarps) &&
    CUDBG_SHT_LN_TABLE == static_cast<unsigned>(kThreads) && CUDBG_SHT_MOD_TABLE == static_cast<unsigned>(kModules));
// The minimal size of a row: up to the members that were appended later.
static_assert(offsetof(CudbgDeviceTableEntry, numUniformRegsPrWarp) == device::kLeast &&
              sizeof(CudbgContextTableEntry) == context::kLeast &&
              offsetof(CudbgGridTableEntry, clusterDimX) == grid::kLeast &&
              offsetof(CudbgCTATableEntry, clusterIdxX) == block::kLeast &&
              offsetof(CudbgWarpTableEntry, numRegs) == warp::kLeast &&
              sizeof(CudbgBacktraceTableEntry) == returns::kLeast);

}  // namespace
