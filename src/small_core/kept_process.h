// Everything of one process that its small core holds, except for its report.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "target/own_notes.h"

namespace rankstacks::small_core {

// Memory without a gap.
struct Piece {
  Address start = 0;
  std::uint32_t flags = 0;  // PF_R, PF_W, PF_X
  std::vector<std::byte> bytes;
};

struct KeptProcess {
  // As in its RankSnapshot.
  Pid pid = 0;
  std::optional<std::string> path;
  // For who looks for secrets in it.
  std::map<std::string, std::string> environment;
  std::vector<std::string> command;

  std::vector<std::byte> notes;  // those of a core that the kernel writes
  std::vector<target::NotedMapping> mappings;
  std::vector<Piece> pieces;  // by address, without overlaps
  // The bodies of this tool's own notes.
  std::vector<std::byte> stacks, symbols, interpreters, files;
  bool has_all_symbols = false;
  std::uint64_t left_out = 0;  // bytes of memory that did not fit
};

// The core as a file: `report` is the body of OwnNote::kReport.
std::vector<std::byte> core_bytes(const KeptProcess& process, std::string_view report);

}  // namespace rankstacks::small_core
