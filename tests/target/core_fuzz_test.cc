// Damaged cores cause no crash, no hang and no invented data: the same few thousand cores in every run.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <random>

#include "core_fixture.h"
#include "support/elf_writer.h"
#include "target/core_target.h"

namespace rankstacks::target {
namespace {

using namespace testing;

// Does everything with a target that its users do.
void use(const std::string& path, elf::ImageCache& images) {
  auto opened = CoreTarget::open(path, {}, images);
  if (!opened) {
    REQUIRE_FALSE(opened.error().what.empty());
    return;
  }
  const CoreTarget& core = **opened;
  std::array<std::byte, 5000> into{};
  for (const Mapping& m : core.mappings()) {
    REQUIRE(m.range.start < m.range.end);
    REQUIRE(core.read(m.range.start, into) <= into.size());
    REQUIRE(core.read(m.range.end - 8, into) <= into.size());
  }
  Address end = 0;
  for (const Module& m : core.modules().all()) {
    REQUIRE(m.range.start < m.range.end);
    REQUIRE(m.range.start >= end);
    REQUIRE((m.image != nullptr) == m.why_no_image.empty());
    end = m.range.end;
  }
  for (const ThreadInfo& t : core.threads()) core.read(t.registers->sp(), into);
}

// A small core: its memory is reduced to what open() itself reads, so that a flipped byte is likely to matter.
Bytes small_core() {
  CoreWriter core;
  Bytes elf(4096);  // a library's first page
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_DYN;
  header.e_machine = EM_X86_64;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 2;
  const Elf64_Phdr code{.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = 8192, .p_memsz = 8192, .p_align = 4096};
  const Elf64_Phdr note{
      .p_type = PT_NOTE, .p_flags = PF_R, .p_offset = 512, .p_vaddr = 512, .p_filesz = 36, .p_memsz = 36, .p_align = 4};
  const Elf64_Nhdr id{4, 20, NT_GNU_BUILD_ID};
  std::memcpy(elf.data(), &header, sizeof header);
  std::memcpy(elf.data() + sizeof header, &code, sizeof code);
  std::memcpy(elf.data() + sizeof header + sizeof code, &note, sizeof note);
  std::memcpy(elf.data() + 512, &id, sizeof id);
  std::memcpy(elf.data() + 524, "GNU", 4);
  core.add_note(NT_PRSTATUS, thread_note(100, 11, 0x7f00'0000'0100, 0x7ffc'0000'0010));
  core.add_note(NT_PRPSINFO, process_note(100, "train", "train --x"));
  core.add_note(NT_SIGINFO, Bytes(128, std::byte{11}));
  core.add_note(
      NT_AUXV,
      auxv_note({{AT_PHDR, 0x7f00'0000'0040}, {AT_SYSINFO_EHDR, 0x7f00'0001'0000}, {AT_EXECFN, 0x7ffc'0000'0100}}));
  core.add_note(NT_FILE, nt_file_note(4096, {{0x7f00'0000'0000, 0x7f00'0000'1000, 0, "/nowhere/libx.so"},
                                             {0x7f00'0000'1000, 0x7f00'0000'2000, 1, "/nowhere/libx.so"}}));
  core.add_note(NT_PRSTATUS, thread_note(101, 11, 0, 0));
  core.add_memory(0x7f00'0000'0000, elf, 4096, PF_R | PF_X);
  core.add_memory(0x7f00'0000'1000, {}, 4096, PF_R | PF_X);
  core.add_memory(0x7f00'0001'0000, elf, 4096, PF_R | PF_X);
  core.add_memory(0x7ffc'0000'0000, Bytes(1024, std::byte{'A'}), 1024);
  return core.write();
}

void damage_and_use(const Bytes& sound, int rounds, std::chrono::seconds bound) {
  TemporaryDirectory directory;
  elf::ImageCache images;
  const std::string path = directory / "core";
  std::mt19937_64 random(4711);
  // Headers, notes and the first bytes of each segment are changed more often than other memory.
  const auto place = [&](std::size_t size) {
    return random() % 4 != 0 ? random() % std::min<std::size_t>(size, 3000) : random() % size;
  };
  const std::array<std::uint64_t, 8> nasty{0,
                                           1,
                                           0x7fffffff,
                                           0xffffffff,
                                           0x7fffffffffffffff,
                                           0x8000000000000000,
                                           ~std::uint64_t{0},
                                           ~std::uint64_t{0} - 4095};
  const auto deadline = std::chrono::steady_clock::now() + bound;
  int done = 0;
  for (; done < rounds && std::chrono::steady_clock::now() < deadline; ++done) {
    Bytes bytes = sound;
    for (std::uint64_t i = random() % 4 + 1; i > 0; --i) {
      const std::size_t at = place(bytes.size());
      switch (random() % 4) {
        case 0: bytes[at] = static_cast<std::byte>(random()); break;
        case 1: bytes[at] ^= static_cast<std::byte>(1u << random() % 8); break;
        case 2: {
          const std::uint64_t value = nasty[random() % nasty.size()];
          std::memcpy(bytes.data() + at, &value, std::min<std::size_t>(sizeof value, bytes.size() - at));
          break;
        }
        default: bytes.resize(std::max<std::size_t>(at, 1));
      }
    }
    write_file(path, bytes);
    CAPTURE(done);
    use(path, images);
  }
  CHECK(done > rounds / 20);  // otherwise each round takes far too long
}

}  // namespace

TEST_CASE("a damaged small core never harms") { damage_and_use(small_core(), 4000, std::chrono::seconds(20)); }

TEST_CASE("a damaged real core never harms") {
  std::string why;
  const FixtureCore* made = kernel_core("fault", why);
  if (made == nullptr) {
    WARN("skipped: " << why);
    return;
  }
  Bytes bytes = read_file(made->path);
  bytes.resize(200'000);  // headers, notes and the first segments
  damage_and_use(bytes, 1000, std::chrono::seconds(20));
}

TEST_CASE("damaged compressed cores never harm") {
  std::string why;
  TemporaryDirectory directory;
  write_file(directory / "core", small_core());
  for (const std::string tool : {"zstd -q -c", "lz4 -q -c", "xz -c", "gzip -c"}) {
    if (!has_command(tool.substr(0, tool.find(' '))) ||
        !run_command(tool + " " + directory / "core" + " >" + directory / "compressed")) {
      WARN("skipped: " << tool);
      continue;
    }
    damage_and_use(read_file(directory / "compressed"), 400, std::chrono::seconds(10));
  }
}

}  // namespace rankstacks::target
