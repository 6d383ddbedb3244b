// What this tool adds to a small core, and the archive that it comes in: notes, their bodies, ustar. The first byte
// selects the format.
#include "target/own_notes.h"
#include "input.h"
#include "small_core/archive.h"
#include "small_core/interpreter_note.h"
#include "small_core/stack_note.h"
#include "small_core/symbol_note.h"

using namespace rankstacks;

namespace {

void read_notes(std::span<const std::byte> bytes) {
  const target::CoreNoteSegment segment{0, bytes, false};
  const target::OwnNotes own = target::parse_own_notes(std::span(&segment, 1));
  for (std::size_t i = 1; i < own.mappings.size(); ++i)
    fuzz::require(own.mappings[i - 1].range.end <= own.mappings[i].range.start, "mappings without overlaps");
  for (std::size_t i = 0; i < own.files.size(); ++i) {
    const target::NotedFile& file = own.files[i];
    fuzz::require(file.range.start < file.range.end && !file.path.empty(), "files with a range and a path");
    fuzz::require(i == 0 || own.files[i - 1].range.end <= file.range.start, "files without overlaps");
  }
  small_core::read_stacks(own.body(target::OwnNote::kStacks));
  small_core::read_symbols(own.body(target::OwnNote::kSymbols));
  small_core::read_interpreters(own.body(target::OwnNote::kInterpreters));
}

void read_archive(std::span<const std::byte> bytes) {
  constexpr std::size_t kMax = 100;
  const auto members = small_core::read_tar(bytes, "x.tar", kMax);
  if (!members) return fuzz::require(!members.error().what.empty(), "an error says what is wrong");
  fuzz::require(members->size() <= kMax, "no more files than allowed");
  for (const small_core::TarMember& member : *members)
    fuzz::require(member.name.find('/') == std::string::npos, "names without directories");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  switch (input.take<std::uint8_t>() % 5) {
    case 0: read_notes(input.rest()); break;
    case 1: small_core::read_stacks(input.rest()); break;
    case 2: small_core::read_symbols(input.rest()); break;
    case 3: small_core::read_interpreters(input.rest()); break;
    default: read_archive(input.rest()); break;
  }
  return 0;
}
