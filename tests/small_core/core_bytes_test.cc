// Small cores as files: what is written is read back by the reader of cores, which the truth tests compare with gdb and
// eu-stack.
#include <elf.h>
#include <sys/procfs.h>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>

#include "small_core/kept_process.h"
#include "small_core/live_notes.h"
#include "support/elf_writer.h"
#include "support/literal_library.h"
#include "support/temporary_directory.h"
#include "target/core_target.h"

using namespace rankstacks;
using namespace rankstacks::small_core;

namespace {

std::vector<std::byte> filled(std::size_t size, int value) { return std::vector<std::byte>(size, std::byte(value)); }

KeptProcess one_thread() {
  elf_prstatus status{};
  status.pr_pid = 4711;
  KeptProcess process;
  process.pid = 4711;
  target::append_note(process.notes, "CORE", NT_PRSTATUS, std::as_bytes(std::span(&status, 1)));
  process.mappings = {{{0x10000, 0x20000}, PF_R | PF_W}, {{0x40000, 0x50000}, PF_R | PF_X}};
  process.pieces = {{0x11000, PF_R | PF_W, filled(0x2000, 1)},
                    {0x15000, PF_R | PF_W, filled(0x1000, 2)},
                    {0x40abc, PF_R | PF_X, filled(100, 3)}};
  return process;
}

std::string write(const testing::TemporaryDirectory& directory, const std::vector<std::byte>& bytes) {
  const std::string path = directory.path() + "/core";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return path;
}

std::size_t readable(const target::Target& target, Address at, std::size_t size, int value) {
  std::vector<std::byte> bytes(size);
  const std::size_t n = target.read(at, bytes);
  for (std::size_t i = 0; i < n; ++i) CHECK(bytes[i] == std::byte(value));
  return n;
}

}  // namespace

TEST_CASE("a small core has its pages, and nothing in their place elsewhere") {
  const testing::TemporaryDirectory directory;
  elf::ImageCache images;
  const auto opened =
      target::CoreTarget::open(write(directory, core_bytes(one_thread(), R"({"schema":1})")), {}, images);
  REQUIRE(opened);
  const target::CoreTarget& core = **opened;
  REQUIRE(core.threads().size() == 1);
  CHECK(core.threads()[0].tid == 4711);
  CHECK(readable(core, 0x11000, 0x3000, 1) == 0x2000);
  CHECK(readable(core, 0x13000, 16, 0) == 0);
  CHECK(readable(core, 0x15ff0, 32, 2) == 16);
  CHECK(readable(core, 0x40abc, 200, 3) == 100);
  CHECK(readable(core, 0x40ab0, 4, 3) == 0);
  REQUIRE(core.mappings().size() == 2);
  CHECK(core.mappings()[0].range.start == 0x10000);
  CHECK(core.mappings()[0].range.end == 0x20000);
  CHECK(core.mappings()[0].writable);
  CHECK(core.mappings()[1].executable);
  CHECK(core.own_notes().is_capture());
  const auto report = core.own_notes().body(target::OwnNote::kReport);
  CHECK(std::string_view(reinterpret_cast<const char*>(report.data()), report.size()) == R"({"schema":1})");
}

TEST_CASE("mapped files of a small core are those of NT_FILE and of its own note") {
  KeptProcess process = one_thread();
  target::append_note(process.notes, "CORE", NT_FILE,
                      testing::nt_file_note(0x1000, {{0x40000, 0x50000, 0, "/lib/a.so"}}));
  process.files = target::files_note(std::vector<target::NotedFile>{{{0x10000, 0x20000}, 0x3000, "/b (deleted)"}});
  const testing::TemporaryDirectory directory;
  elf::ImageCache images;
  const auto opened = target::CoreTarget::open(write(directory, core_bytes(process, "{}")), {}, images);
  REQUIRE(opened);
  const auto mappings = (*opened)->mappings();
  REQUIRE(mappings.size() == 2);
  CHECK(mappings[0].path == "/b");
  CHECK(mappings[0].deleted);
  CHECK(mappings[0].writable);
  CHECK(mappings[0].file_offset == 0x3000);
  CHECK(mappings[1].path == "/lib/a.so");
}

TEST_CASE("offsets in the file agree with addresses, as the loader and libdwfl expect") {
  const auto bytes = core_bytes(one_thread(), "{}");
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  REQUIRE(header.e_phnum == 5);
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  std::memcpy(segments.data(), bytes.data() + header.e_phoff, segments.size() * sizeof(Elf64_Phdr));
  CHECK(segments.front().p_type == PT_NOTE);  // the first one is all that libdwfl reads
  CHECK(segments.back().p_type == PT_NOTE);
  for (const Elf64_Phdr& p : segments) {
    CHECK(p.p_offset + p.p_filesz <= bytes.size());
    if (p.p_type != PT_LOAD) continue;
    CHECK(p.p_offset % 4096 == p.p_vaddr % 4096);
    CHECK(p.p_filesz == p.p_memsz);
  }
}

namespace {

std::vector<std::byte> page_with_build_id() {
  std::vector<std::byte> note, page(0x1000);
  target::append_note(note, "GNU", NT_GNU_BUILD_ID, std::as_bytes(std::span("01234567890123456789", 20)));
  std::copy(note.begin(), note.end(), page.begin());
  return page;
}

// The bytes that libdwfl reads at an address, present or not (elfutils 0.188, dwfl_elf_phdr_memory_callback).
std::vector<std::byte> libdwfl_reads(const std::vector<std::byte>& core, Address at, std::size_t size) {
  Elf64_Ehdr header;
  std::memcpy(&header, core.data(), sizeof header);
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr p;
    std::memcpy(&p, core.data() + header.e_phoff + i * sizeof p, sizeof p);
    if (p.p_type != PT_LOAD || p.p_vaddr + p.p_memsz <= at) continue;
    const std::uint64_t start = at - p.p_vaddr + p.p_offset;
    if (start >= p.p_offset + p.p_filesz) return {};
    return {core.begin() + static_cast<std::ptrdiff_t>(start),
            core.begin() + static_cast<std::ptrdiff_t>(start + size)};
  }
  return {};
}

}  // namespace

TEST_CASE("libdwfl finds no other module's build-id where a module's note is absent") {
  const auto other = page_with_build_id();
  for (std::uint32_t pages_between = 0; pages_between < 6; ++pages_between) {
    KeptProcess process = one_thread();
    process.mappings.clear();
    process.pieces = {{0x100000, PF_R, other}, {0x110000, PF_R, testing::library_with_moved_note(0x6000, 0x300, 36)}};
    for (std::uint32_t i = 0; i < pages_between; ++i)
      process.pieces.push_back({0x112000 + 0x1000 * i, PF_R | (i % 2 == 0 ? PF_W : 0u), other});
    process.pieces.push_back({0x118000, PF_R, filled(0x1000, 4)});
    const auto read = libdwfl_reads(core_bytes(process, "{}"), 0x116000, 36);
    // Where the note's page is among the pieces, it is what is there.
    const bool absent = pages_between < 5;
    CHECK((read == std::vector<std::byte>(other.begin(), other.begin() + 36)) == !absent);
  }
}

TEST_CASE("more pieces than a program header's number can say") {
  KeptProcess process = one_thread();
  process.pieces.clear();
  constexpr std::size_t kPieces = 66'000;
  for (std::size_t i = 0; i < kPieces; ++i) process.pieces.push_back({0x100000 + i * 0x2000, PF_R, filled(1, 7)});
  const testing::TemporaryDirectory directory;
  elf::ImageCache images;
  const auto opened = target::CoreTarget::open(write(directory, core_bytes(process, "")), {}, images);
  REQUIRE(opened);
  CHECK((*opened)->file().segments().size() == kPieces);
  CHECK(readable(**opened, 0x100000 + (kPieces - 1) * 0x2000, 2, 7) == 1);
  CHECK((*opened)->problems().size() == 1);  // there is no NT_FILE
}

TEST_CASE("notes of a newer version are not read, and the core is") {
  std::vector<std::byte> notes;
  const std::uint32_t version = target::kNotesVersion + 1;
  target::append_note(notes, target::kNoteOwner, 1, std::as_bytes(std::span(&version, 1)));
  target::append_note(notes, target::kNoteOwner, 2, std::as_bytes(std::span("{}", 2)));
  const target::CoreNoteSegment segment{0, notes, false};
  const auto own = target::parse_own_notes(std::span(&segment, 1));
  CHECK(own.is_capture());
  CHECK(own.body(target::OwnNote::kReport).empty());
  REQUIRE(own.problems.size() == 1);
  CHECK(own.problems[0].message ==
        "captured by a newer rankstacks (notes of version 2, this tool reads 1): what it notes in addition to the "
        "memory is not read");
}

TEST_CASE("notes without a version, with unknown kinds, and mappings without sense") {
  std::vector<std::byte> notes;
  const auto add = [&](std::uint32_t type, std::span<const std::byte> body) {
    target::append_note(notes, target::kNoteOwner, type, body);
  };
  const auto parse = [&] {
    const target::CoreNoteSegment segment{0, notes, false};
    return target::parse_own_notes(std::span(&segment, 1));
  };
  add(99, std::as_bytes(std::span("unknown", 7)));
  add(2, std::as_bytes(std::span("{}", 2)));
  CHECK_FALSE(parse().is_capture());
  CHECK(parse().body(target::OwnNote::kReport).empty());
  const std::uint32_t version = target::kNotesVersion;
  add(1, std::as_bytes(std::span(&version, 1)));
  add(3, target::mappings_note(std::vector<target::NotedMapping>{
             {{0x3000, 0x4000}, PF_R}, {{0x2000, 0x5000}, PF_R}, {{0x6000, 0x6000}, PF_R}, {{0x7000, 0x8000}, 0xff}}));
  const auto own = parse();
  REQUIRE(own.mappings.size() == 2);
  CHECK(own.mappings[1].flags == (PF_R | PF_W | PF_X));
  CHECK(own.find(0x3fff) == &own.mappings[0]);
  CHECK(own.find(0x4000) == nullptr);
  REQUIRE(own.problems.size() == 1);
  CHECK(own.problems[0].message == "2 of 4 mappings in its own notes make no sense");
}

TEST_CASE("mapped files come back as they were noted, and what makes no sense is left out") {
  const std::vector<target::NotedFile> files = {{{0x1000, 0x3000}, 0x2000, "/lib/a.so"},
                                                {{0x5000, 0x6000}, 0, "/tmp/b (deleted)"}};
  const auto whole = target::files_note(files);
  const auto parse = [&](std::span<const std::byte> body) {
    std::vector<std::byte> notes;
    const std::uint32_t version = target::kNotesVersion;
    target::append_note(notes, target::kNoteOwner, 1, std::as_bytes(std::span(&version, 1)));
    target::append_note(notes, target::kNoteOwner, 7, body);
    const target::CoreNoteSegment segment{0, notes, false};
    return target::parse_own_notes(std::span(&segment, 1));
  };
  const auto own = parse(whole);
  CHECK(own.problems.empty());
  REQUIRE(own.files.size() == 2);
  CHECK(own.files[0].range.end == 0x3000);
  CHECK(own.files[0].file_offset == 0x2000);
  CHECK(own.files[0].path == "/lib/a.so");
  CHECK(own.files[1].path == "/tmp/b (deleted)");
  for (std::size_t size = 1; size < whole.size(); ++size) {
    const auto cut = parse(std::span(whole).first(size));
    CHECK(cut.files.size() < 2);
    CHECK(cut.problems.size() == (size == 24 + 4 + 9 ? 0 : 1));
  }
  const auto odd = parse(target::files_note(std::vector<target::NotedFile>{
      {{0x2000, 0x3000}, 0, "a"}, {{0x2fff, 0x4000}, 0, "b"}, {{0x5000, 0x5000}, 0, "c"}, {{0x6000, 0x7000}, 0, ""}}));
  CHECK(odd.files.size() == 1);
  REQUIRE(odd.problems.size() == 1);
  CHECK(odd.problems[0].message == "3 of 4 mapped files in its own notes make no sense");
}

TEST_CASE("a capture of a capture has one set of own notes") {
  std::vector<std::byte> notes, kept;
  target::append_note(notes, "CORE", 5, std::as_bytes(std::span("abc", 3)));
  target::append_note(notes, target::kNoteOwner, 2, std::as_bytes(std::span("{}", 2)));
  target::append_note(notes, "LINUX", 6, std::as_bytes(std::span("de", 2)));
  append_foreign_notes(kept, notes);
  std::vector<std::byte> expected;
  target::append_note(expected, "CORE", 5, std::as_bytes(std::span("abc", 3)));
  target::append_note(expected, "LINUX", 6, std::as_bytes(std::span("de", 2)));
  CHECK(kept == expected);
}
