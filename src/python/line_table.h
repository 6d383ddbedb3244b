// Maps an instruction to its line, for the three formats that CPython has had. Pure functions of the table's bytes,
// which are untrusted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace rankstacks::python {

using LineTable = std::span<const std::uint8_t>;

// `instruction` is a byte offset into the bytecode. All of these return what CPython's PyCode_Addr2Line returns;
// std::nullopt where that is "no line".

// Up to 3.9: co_lnotab. Source: Objects/lnotab_notes.txt.
std::optional<int> line_in_lnotab(LineTable table, int first_line, std::int64_t instruction);

// 3.10: co_linetable. Source: PEP 626 and Objects/lnotab_notes.txt of 3.10.
std::optional<int> line_in_ranges(LineTable table, int first_line, std::int64_t instruction);

// 3.11+: co_linetable, the location table. Source: Objects/locations.md.
std::optional<int> line_in_locations(LineTable table, int first_line, std::int64_t instruction);

}  // namespace rankstacks::python
