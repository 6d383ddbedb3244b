// The tables of a GPU core: which section holds which table, and where in a row each member is.
//
//     devtbl <- ctxtbl <- modtbl <- relfimg
//        ^--- gridtbl
//        ^--- smtbl <- ctatbl <- wptbl <- lntbl <- bt
//
// An arrow points to the table above: the sh_link of a section is that table's section, its sh_info the row in it.
//
// The layouts are those of cudacoredump.h of CUDA 12.4, and of newer drivers what their cores hold (R580:
// tests/gpu/core_real_test.cc). Rows grow at their end: the length of a row is the section's sh_entsize, and a member
// beyond it is absent. tests/gpu/layouts/core.cc checks the layouts against the toolkit's header.
#pragma once

#include <elf.h>
#include <cstdint>

namespace rankstacks::gpu::core {

inline constexpr std::uint32_t kSectionTypes = 0x8000'0000;  // SHT_LOUSER
enum SectionType : std::uint32_t {
  kRelocatedImage = kSectionTypes + 7,
  kReturns = kSectionTypes + 8,
  kDevices = kSectionTypes + 9,
  kContexts = kSectionTypes + 10,
  kSms = kSectionTypes + 11,
  kGrids = kSectionTypes + 12,
  kBlocks = kSectionTypes + 13,
  kWarps = kSectionTypes + 14,
  kThreads = kSectionTypes + 15,
  kModules = kSectionTypes + 16,
  kMetaData = kSectionTypes + 22,  // since R565
};

// A member of a row: its offset and, by its type, its size.
template <class T>
struct Member {
  std::uint64_t offset;
};

namespace device {
inline constexpr std::uint64_t kLeast = 72;
inline constexpr Member<std::uint64_t> kName{0};     // in .strtab
inline constexpr Member<std::uint64_t> kSmType{16};  // likewise
inline constexpr Member<std::uint32_t> kId{24}, kPciBus{28}, kPciDevice{32}, kInstructionSize{64},
    kStatus{68};  // kStatus: a CUDBGResult, 0 is success
}  // namespace device

namespace context {
inline constexpr std::uint64_t kLeast = 40;
inline constexpr Member<std::uint64_t> kId{0};
inline constexpr Member<std::uint32_t> kTid{36};
}  // namespace context

namespace module {
inline constexpr std::uint64_t kLeast = 8;
inline constexpr Member<std::uint64_t> kHandle{0};
}  // namespace module

namespace grid {
inline constexpr std::uint64_t kLeast = 104;
inline constexpr Member<std::uint64_t> kId{0}, kContext{8}, kFunction{16}, kEntry{24}, kModule{32};
inline constexpr Member<std::uint32_t> kGridX{72}, kGridY{76}, kGridZ{80}, kBlockX{84}, kBlockY{88}, kBlockZ{92};
}  // namespace grid

namespace sm {
inline constexpr std::uint64_t kLeast = 8;
inline constexpr Member<std::uint32_t> kId{0};
inline constexpr Member<std::uint32_t> kException{8}, kErrorPcValid{12};  // since R555
inline constexpr Member<std::uint64_t> kErrorPc{16};
}  // namespace sm

namespace block {
inline constexpr std::uint64_t kLeast = 24;
inline constexpr Member<std::uint64_t> kGrid{0};
inline constexpr Member<std::uint32_t> kX{8}, kY{12}, kZ{16};
}  // namespace block

namespace warp {
inline constexpr std::uint64_t kLeast = 32;
inline constexpr Member<std::uint64_t> kErrorPc{0};
inline constexpr Member<std::uint32_t> kId{8}, kValidLanes{12}, kActiveLanes{16}, kErrorPcValid{24};
}  // namespace warp

namespace thread {
inline constexpr std::uint64_t kLeast = 48;
inline constexpr Member<std::uint64_t> kPc{0};
inline constexpr Member<std::uint32_t> kLane{16}, kX{20}, kY{24}, kZ{28}, kException{32};
}  // namespace thread

namespace returns {
inline constexpr std::uint64_t kLeast = 24;
inline constexpr Member<std::uint64_t> kAddress{8};
inline constexpr Member<std::uint32_t> kLevel{16};
}  // namespace returns

namespace meta {
inline constexpr Member<std::uint32_t> kDriverMajor{8}, kDriverMinor{12}, kTime{28};  // kTime: seconds since 1970
}  // namespace meta

}  // namespace rankstacks::gpu::core
