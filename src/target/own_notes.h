// The notes that `rankstacks capture` adds to a small core: what no other note of a core can say.
//
// docs/captures.md describes them byte by byte. They are ELF notes with the owner "RANKSTACKS"; other tools skip them.
// The first has the format's version, and each of the others is one part, whose body is read where it is used:
//
//     kVersion       u32: the version, u32: flags
//     kReport        the JSON report of the process, without the frames of its threads cli/captured_facts
//     kMappings      what was mapped, of which the core holds some pages only          here
//     kStacks        the return addresses of each thread                               small_core/stack_note
//     kSymbols       functions and lines of these addresses                            small_core/symbol_note
//     kInterpreters  where the Python interpreters are                                 small_core/interpreter_note
//     kFiles         mapped files whose bytes the process may have changed             here
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "target/core_file.h"

namespace rankstacks::target {

inline constexpr std::string_view kNoteOwner = "RANKSTACKS";

enum class OwnNote : std::uint32_t {
  kVersion = 1,
  kReport = 2,
  kMappings = 3,
  kStacks = 4,
  kSymbols = 5,
  kInterpreters = 6,
  kFiles = 7,
};
inline constexpr std::uint32_t kLastOwnNote = 7;
inline constexpr std::uint32_t kNotesVersion = 1;
// kVersion's flags: kSymbols has all addresses of the stacks, so that no file is missed.
inline constexpr std::uint32_t kHasAllSymbols = 1;

// A mapping of the process; `flags`: PF_R, PF_W, PF_X.
struct NotedMapping {
  Range range;
  std::uint32_t flags = 0;
};

// A mapped file, as an entry of NT_FILE has it.
struct NotedFile {
  Range range;
  std::uint64_t file_offset = 0;  // in bytes
  std::string path;               // perhaps with " (deleted)" at its end
};

struct OwnNotes {
  std::uint32_t version = 0;  // 0: the core has none of these notes, and is not a capture
  std::uint32_t flags = 0;    // kHasAllSymbols
  // Bodies by their OwnNote, of the first note of each kind; they live as long as the core. Empty where the version is
  // newer than this tool's.
  std::array<std::span<const std::byte>, kLastOwnNote + 1> bodies{};
  std::vector<NotedMapping> mappings;  // by address, without overlaps
  std::vector<NotedFile> files;        // those that are not in NT_FILE, by address, without overlaps
  std::vector<Problem> problems;

  bool is_capture() const { return version != 0; }
  std::span<const std::byte> body(OwnNote kind) const { return bodies[static_cast<std::uint32_t>(kind)]; }
  // The mapping that contains `a`, or nullptr.
  const NotedMapping* find(Address a) const;
};

OwnNotes parse_own_notes(std::span<const CoreNoteSegment> segments);

// Appends a note of this owner to `to`.
void append_note(std::vector<std::byte>& to, std::string_view owner, std::uint32_t type,
                 std::span<const std::byte> body);

// The body of a note of mappings.
std::vector<std::byte> mappings_note(std::span<const NotedMapping> mappings);

// The body of a note of files.
std::vector<std::byte> files_note(std::span<const NotedFile> files);

}  // namespace rankstacks::target
