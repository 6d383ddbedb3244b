// One small core for each defect, with the complete line that is reported about it.
#include <sys/stat.h>
#include <catch2/catch.hpp>

#include "elf/bytes.h"
#include "support/elf_writer.h"
#include "support/temporary_directory.h"
#include "target/core_target.h"

namespace rankstacks::target {
namespace {

using namespace testing;

constexpr Address kStack = 0x7ffc0000'0000;
constexpr Address kHeap = 0x5555'0000'0000;

// Two threads, a stack, and 8 KB of heap whose second page was not dumped.
CoreWriter sound() {
  CoreWriter core;
  core.add_note(NT_PRSTATUS, thread_note(100, 6, 0x1111, kStack + 64));
  core.add_note(NT_PRPSINFO, process_note(100, "train", "python3 train.py --lr 3 "));
  core.add_note(NT_FILE, nt_file_note(4096, {{0x40'0000, 0x40'1000, 0, "/nowhere/data.bin"}}));
  core.add_note(NT_PRSTATUS, thread_note(101, 6, 0x2222, kStack + 128));
  core.add_memory(kHeap, Bytes(4096, std::byte{0x5a}), 8192);
  core.add_memory(kStack, Bytes(4096, std::byte{0x11}), 4096);
  return core;
}

class Opener {
 public:
  Result<std::unique_ptr<CoreTarget>> open(std::span<const std::byte> bytes) {
    write_file(path(), bytes);
    return CoreTarget::open(path(), {}, images_);
  }
  Result<std::unique_ptr<CoreTarget>> open_path(const std::string& path) { return CoreTarget::open(path, {}, images_); }
  std::string path() const { return directory_ / "core.bad"; }
  const TemporaryDirectory& directory() const { return directory_; }

  // The complete error, without the directory.
  std::string error(std::span<const std::byte> bytes) { return error_of(open(bytes)); }
  std::string error_of(const Result<std::unique_ptr<CoreTarget>>& opened) {
    if (opened) return "opened";
    std::string text = opened.error().message();
    CHECK(!opened.error().hint.empty());
    if (text.starts_with(directory_.path() + "/")) text.erase(0, directory_.path().size() + 1);
    return text;
  }
  // The first problem of a core that opens nevertheless.
  std::string problem(std::span<const std::byte> bytes) {
    auto opened = open(bytes);
    if (!opened) return "not opened: " + opened.error().message();
    CHECK((*opened)->partial());
    return (*opened)->problems().empty() ? "none" : (*opened)->problems().front().message;
  }

 private:
  TemporaryDirectory directory_;
  elf::ImageCache images_;
};

}  // namespace

TEST_CASE("a valid synthetic core") {
  Opener opener;
  auto opened = opener.open(sound().write());
  REQUIRE(opened);
  const CoreTarget& core = **opened;
  CHECK(core.problems().empty());
  CHECK_FALSE(core.partial());
  CHECK(core.pid() == 100);
  CHECK(core.executable() == "train");
  CHECK(core.command() == std::vector<std::string>{"python3", "train.py", "--lr", "3"});
  CHECK(core.environment().empty());
  REQUIRE(core.threads().size() == 2);
  CHECK(core.threads()[0].tid == 100);
  CHECK(core.threads()[0].name == "train");
  CHECK(core.threads()[1].name.empty());
  CHECK(core.threads()[1].tid == 101);
  CHECK(core.threads()[1].registers->pc() == 0x2222);
  CHECK(core.threads()[1].registers->sp() == kStack + 128);
  REQUIRE(core.signal());
  CHECK(core.signal()->name == "SIGABRT");
  CHECK_FALSE(core.signal()->code);
  CHECK_FALSE(core.signal()->fault_address);

  // Memory past p_filesz was not dumped: it is missing, not zero.
  CHECK(core.read_value<std::uint8_t>(kHeap + 4095) == 0x5a);
  CHECK_FALSE(core.read_value<std::uint8_t>(kHeap + 4096));
  std::array<std::byte, 64> into{};
  CHECK(core.read(kHeap + 4096 - 16, into) == 16);
  CHECK(core.read(0, into) == 0);
  CHECK(core.read(~Address{0} - 3, into) == 0);
  CHECK(core.read(kHeap + 8192, into) == 0);

  REQUIRE(core.mappings().size() == 3);
  CHECK(core.mappings()[0].path == "/nowhere/data.bin");
  CHECK(core.mappings()[1].range.start == kHeap);
  CHECK(core.mappings()[1].range.end == kHeap + 8192);
  CHECK(core.mappings()[1].path.empty());
  CHECK(core.mappings()[2].path == "[stack]");
  CHECK(core.mappings()[2].writable);
}

TEST_CASE("files that are no core") {
  Opener opener;
  const auto text = [&](std::string_view s) { return opener.error(std::as_bytes(std::span(s))); };
  CHECK(text("") == "core.bad: the file is empty");
  CHECK(text("#!/bin/sh\n") ==
        "core.bad: not a core file: it begins neither as ELF, nor as .zst, .lz4, .xz or .gz, nor as a report of "
        "apport's");
  CHECK(text("\x7f"
             "EL") ==
        "core.bad: not a core file: it begins neither as ELF, nor as .zst, .lz4, .xz or .gz, nor as a report of "
        "apport's");
  CHECK(text("\x7f"
             "ELF\2\1\1") == "core.bad: the ELF header is cut off: 7 of 64 bytes");
  CHECK(text("\x1f\x8bxxxxxxxxxxxxxxxxxxx") ==
        "core.bad: the gzip data is damaged: unknown compression method (at 0x4)");
  CHECK(opener.error_of(opener.open_path(opener.directory().path())) ==
        opener.directory().path() + ": a directory, not a core file");
  CHECK(opener.error_of(opener.open_path("/dev/zero")) == "/dev/zero: a device, not a core file");
  CHECK(opener.error_of(opener.open_path("/nowhere/core")) == "/nowhere/core: cannot open: No such file or directory");
  CHECK(opener.error_of(opener.open_path("/proc/self/exe")) ==
        "/proc/self/exe: an executable or shared library, not a core");
  REQUIRE(mkfifo((opener.directory() / "pipe").c_str(), 0600) == 0);
  CHECK(opener.error_of(opener.open_path(opener.directory() / "pipe")) == "pipe: a pipe, not a core file");
}

TEST_CASE("ELF headers that cannot be used") {
  Opener opener;
  CoreWriter core = sound();
  const auto with = [&](std::function<void(Elf64_Ehdr&)> change) {
    core.change_header = std::move(change);
    return opener.error(core.write());
  };
  CHECK(with([](auto& h) { h.e_ident[EI_CLASS] = ELFCLASS32; }) ==
        "core.bad: ELF class 1 where 2 (64-bit) is expected (at 0x4)");
  CHECK(with([](auto& h) { h.e_ident[EI_DATA] = ELFDATA2MSB; }) ==
        "core.bad: ELF byte order 2 where 1 (little-endian) is expected (at 0x5)");
  CHECK(with([](auto& h) { h.e_machine = EM_AARCH64; }) ==
        "core.bad: a core of another machine (AArch64) where x86-64 is expected (at 0x12)");
  CHECK(with([](auto& h) { h.e_machine = EM_CUDA; }) ==
        "core.bad: a core of another machine (CUDA, a GPU) where x86-64 is expected (at 0x12)");
  CHECK(with([](auto& h) { h.e_type = ET_DYN; }) == "core.bad: an executable or shared library, not a core");
  CHECK(with([](auto& h) { h.e_type = ET_REL; }) == "core.bad: ELF type 1 where 4 (core) is expected (at 0x10)");
  CHECK(with([](auto& h) { h.e_phnum = 0; }) ==
        "core.bad: no program headers: it holds neither threads nor memory (at 0x38)");
  CHECK(with([](auto& h) { h.e_phentsize = 32; }) ==
        "core.bad: program headers of 32 bytes where 56 are expected (at 0x36)");
  const std::string size = std::to_string(sound().write().size());
  CHECK(with([](auto& h) { h.e_phoff = 1 << 20; }) ==
        "core.bad: the program headers lie outside the file of " + size + " bytes (at 0x100000)");
  CHECK(with([](auto& h) { h.e_phoff = ~std::uint64_t{0} - 8; }) ==
        "core.bad: the program headers lie outside the file of " + size + " bytes (at 0xfffffffffffffff7)");
  core.change_segments = [](auto& segments) {
    for (Elf64_Phdr& p : segments) p.p_type = PT_NULL;
  };
  CHECK(with({}) == "core.bad: no usable program header: it holds neither threads nor memory (at 0x40)");
}

TEST_CASE("program headers that make no sense") {
  Opener opener;
  CoreWriter core = sound();
  const auto with = [&](std::function<void(std::vector<Elf64_Phdr>&)> change) {
    core.change_segments = std::move(change);
    return opener.problem(core.write());
  };
  CHECK(with([](auto& s) { s[1].p_offset = ~std::uint64_t{0} - 100; }) ==
        "1 program header left out: offset or address and size overflow (the first at 0x78)");
  CHECK(with([](auto& s) { s[1].p_memsz = ~std::uint64_t{0} - 100; }) ==
        "1 program header left out: offset or address and size overflow (the first at 0x78)");
  CHECK(with([](auto& s) { s[2].p_vaddr = kHeap + 8; }) ==
        "1 segment left out: memory that another one holds too (the first at 0x555500000008)");
  CHECK(
      with([](auto& s) { s[1].p_offset = std::uint64_t{1} << 60; }) ==
      "the core is cut off: it ends at byte 9372 of 1152921504606851072; missing: 4 KiB of memory in 1 of 2 segments");
}

TEST_CASE("more than 65534 program headers") {
  Opener opener;
  CoreWriter core = sound();
  const Bytes plain = core.write();
  Elf64_Shdr section{};
  section.sh_info = 3;
  core.change_header = [&](Elf64_Ehdr& h) {
    h.e_phnum = PN_XNUM;
    h.e_shoff = plain.size();
    h.e_shnum = 1;
    h.e_shentsize = sizeof section;
  };
  Bytes file = core.write();
  // Cut off before section 0; and there are no notes where they would be with 65535 headers.
  CHECK(opener.problem(file) ==
        "the number of program headers is missing: more than 65534, and section 0 is not in the file");
  append_value(file, section);
  auto opened = opener.open(file);
  REQUIRE(opened);
  CHECK((*opened)->problems().empty());
  CHECK((*opened)->threads().size() == 2);
  CHECK((*opened)->read_value<std::uint8_t>(kStack) == 0x11);
}

TEST_CASE("a real number of program headers above 65534, cut off before section 0") {
  Opener opener;
  CoreWriter core;
  core.add_note(NT_PRSTATUS, thread_note(1, 0, 0, 0));
  core.add_note(NT_FILE, nt_file_note(4096, {}));
  for (std::uint64_t i = 0; i < 70'000; ++i) core.add_memory(0x10000 + i * 8192, Bytes(1, std::byte{7}), 4096);
  core.change_header = [](Elf64_Ehdr& h) {
    h.e_phnum = PN_XNUM;
    h.e_shoff = std::uint64_t{1} << 40;
  };
  auto opened = opener.open(core.write());
  REQUIRE(opened);
  CHECK((*opened)->problems().empty());
  CHECK((*opened)->mappings().size() == 70'000);
  CHECK((*opened)->read_value<std::uint8_t>(0x10000 + 69'999 * 8192) == 7);
}

TEST_CASE("so many program headers, or notes, that reading them all would take minutes and gigabytes") {
  Opener opener;
  SECTION("program headers, in a core that consists nearly completely of a hole") {
    CoreWriter core = sound();
    const Bytes plain = core.write();
    constexpr std::uint64_t kSize = std::uint64_t{1} << 34;
    core.change_header = [&](Elf64_Ehdr& h) {
      h.e_phnum = PN_XNUM;
      h.e_shoff = plain.size();
      h.e_shnum = 1;
      h.e_shentsize = sizeof(Elf64_Shdr);
    };
    Bytes file = core.write();
    Elf64_Shdr section{};
    section.sh_info = 200'000'000;
    append_value(file, section);
    write_file(opener.path(), file);
    REQUIRE(truncate(opener.path().c_str(), kSize) == 0);
    auto opened = opener.open_path(opener.path());
    REQUIRE(opened);
    CHECK((*opened)->partial());
    CHECK((*opened)->problems().front().message ==
          "197902848 of 200000000 program headers left out: of that many the first 2097152 are read");
    CHECK((*opened)->threads().size() == 2);
  }
  SECTION("segments of notes, all of the same bytes") {
    CoreWriter core = sound();
    for (int i = 0; i < 20'000; ++i) core.add_note(NT_PRSTATUS, thread_note(200 + i, 0, 0, 0));
    Bytes file = core.write();
    auto header = *elf::load<Elf64_Ehdr>(file, 0);
    Elf64_Phdr notes{};
    for (unsigned i = 0; i < header.e_phnum; ++i) {
      const auto p = *elf::load<Elf64_Phdr>(file, header.e_phoff + i * sizeof(Elf64_Phdr));
      if (p.p_type == PT_NOTE) notes = p;
    }
    const std::uint64_t table = file.size();
    for (unsigned i = 0; i < 60'000; ++i) append_value(file, notes);
    header.e_phoff = table;
    header.e_phnum = 60'000;
    std::memcpy(file.data(), &header, sizeof header);
    auto opened = opener.open(file);
    REQUIRE(opened);
    CHECK((*opened)->partial());
    CHECK((*opened)->threads().size() == 20'002);
    CHECK((*opened)->problems().front().message.ends_with(
        "of notes left out: more than the core can hold, or than 2 GiB"));
    CHECK((*opened)->problems().size() < 40);
  }
  SECTION("lists of mapped files") {
    CoreWriter core = sound();
    for (int i = 0; i < 200'000; ++i)
      core.add_note(
          NT_FILE,
          nt_file_note(4096, {{0x50'0000ull + 0x1000ull * i, 0x50'1000ull + 0x1000ull * i, 0, "/nowhere/other.bin"}}));
    auto opened = opener.open(core.write());
    REQUIRE(opened);
    CHECK((*opened)->partial());
    CHECK(
        (*opened)->problems().front().message.starts_with("a second list of mapped files (NT_FILE) is not read (at "));
    CHECK((*opened)->problems()[32].message == "199968 more notes are damaged");
  }
}

TEST_CASE("notes that make no sense") {
  Opener opener;
  const auto with_note = [&](std::uint32_t type, const Bytes& body) {
    CoreWriter core;
    core.add_note(NT_PRSTATUS, thread_note(100, 6, 0x1111, kStack + 64));
    core.add_note(type, body);
    core.add_memory(kStack, Bytes(64, std::byte{0x11}), 64);
    return opener.problem(core.write());
  };
  CHECK(with_note(NT_PRSTATUS, Bytes(100)) ==
        "a thread left out: NT_PRSTATUS of 100 bytes where 336 are expected (at 0x228)");
  CHECK(with_note(NT_PRSTATUS, thread_note(100, 6, 1, 2)) == "a thread left out: tid 100 is there twice (at 0x228)");
  CHECK(with_note(NT_PRPSINFO, Bytes(8)) ==
        "the process's name is not read: NT_PRPSINFO of 8 bytes where 136 are expected (at 0x228)");
  CHECK(with_note(NT_FILE, Bytes(8)) == "the mapped files are not read: NT_FILE of 8 bytes (at 0x228)");
  CHECK(with_note(NT_FILE, nt_file_note(0, {{1, 2, 0, "/x"}})) ==
        "the mapped files are not read: NT_FILE says that a page has 0 bytes (at 0x228)");
  Bytes absurd = nt_file_note(4096, {{0x1000, 0x2000, 0, "/x"}});
  std::memset(absurd.data(), 0xff, 8);
  CHECK(with_note(NT_FILE, absurd) ==
        "the mapped files are not read: NT_FILE of 43 bytes claims 18446744073709551615 entries (at 0x228)");
  Bytes unterminated = nt_file_note(4096, {{0x1000, 0x2000, 0, "/x"}, {0x3000, 0x4000, 0, "/y"}});
  unterminated.pop_back();
  CHECK(with_note(NT_FILE, unterminated) ==
        "1 of 2 mapped files left out: the paths in NT_FILE end before them (at 0x228)");
  CHECK(with_note(
            NT_FILE,
            nt_file_note(4096, {{0x2000, 0x1000, 0, "/x"}, {0x1000, 0x3000, 0, "/y"}, {0x2000, 0x4000, 0, "/z"}})) ==
        "2 of 3 mapped files left out: their ranges make no sense (NT_FILE at 0x228)");
  CHECK(with_note(NT_FILE,
                  nt_file_note(
                      4096, {{0x1000, 0x2000, 0, ""}, {0x3000, 0x4000, 0, "/y"}, {0x5000, 0x6000, 0, " (deleted)"}})) ==
        "2 of 3 mapped files left out: their paths are empty (NT_FILE at 0x228)");
  CHECK(with_note(NT_FILE, nt_file_note(4096, {{0x1000, 0x2000, ~std::uint64_t{0} / 8, "/x"}})) ==
        "1 of 1 mapped files left out: their ranges make no sense (NT_FILE at 0x228)");
}

TEST_CASE("a note larger than its segment") {
  Opener opener;
  for (const std::uint32_t size : {400u, 0xffffffffu}) {
    Bytes file = sound().write();
    const std::size_t notes = 64 + 3 * sizeof(Elf64_Phdr);
    std::memcpy(file.data() + notes + 4, &size, sizeof size);  // n_descsz of the first note
    const std::string said = opener.problem(file);
    if (size == 400u)
      CHECK(said == "a note reaches past the end of its segment (at 0x308): what is behind it is not read");
    else CHECK(said == "a note reaches past the end of its segment (at 0xe8): what is behind it is not read");
  }
}

TEST_CASE("cores without the data that stacks need") {
  Opener opener;
  CoreWriter no_threads;
  no_threads.add_note(NT_PRPSINFO, process_note(1, "x", "x"));
  no_threads.add_memory(kStack, Bytes(64), 64);
  CHECK(opener.problem(no_threads.write()) == "no thread's registers (NT_PRSTATUS) are in it");
  CoreWriter no_files;
  no_files.add_note(NT_PRSTATUS, thread_note(1, 0, 0, 0));
  no_files.add_memory(kStack, Bytes(64), 64);
  CHECK(opener.problem(no_files.write()) == "it does not say which files were mapped (no NT_FILE): no module is known");
}

TEST_CASE("cores that are cut off") {
  Opener opener;
  const Bytes whole = sound().write();
  const auto first = [&](std::size_t n) { return std::span(whole).first(n); };
  CHECK(opener.problem(first(whole.size() - 4096 - 1024)) ==
        "the core is cut off: it ends at byte 4252 of 9372; missing: 5 KiB of memory in 2 of 2 segments");
  auto opened = opener.open(first(whole.size() - 1024));
  REQUIRE(opened);
  CHECK((*opened)->threads().size() == 2);
  CHECK((*opened)->read_value<std::uint8_t>(kStack + 3071) == 0x11);
  CHECK_FALSE((*opened)->read_value<std::uint8_t>(kStack + 3072));

  auto in_notes = opener.open(first(1100));
  REQUIRE(in_notes);
  REQUIRE((*in_notes)->problems().size() == 2);
  CHECK((*in_notes)->problems()[0].message ==
        "the core is cut off: it ends at byte 1100 of 9372; missing: 8 KiB of memory in 2 of 2 segments, and the "
        "notes, which hold the threads' registers");
  CHECK((*in_notes)->problems()[1].message ==
        "the notes are cut off at 0x338: threads behind it are missing (1 are there)");
  CHECK((*in_notes)->threads().size() == 1);

  CHECK(opener.problem(first(64 + 56)) == "2 of 3 program headers are missing: the core ends at byte 120");
  CHECK(opener.error(first(70)) == "core.bad: the program headers lie outside the file of 70 bytes (at 0x40)");
}

TEST_CASE("signals that tools cause are not reported as fatal") {
  Opener opener;
  const auto signal_of = [&](int current, bool gdb, std::optional<std::pair<int, int>> info) {
    CoreWriter core;
    Bytes thread = thread_note(100, current, 0, 0);
    if (gdb) std::memset(thread.data(), 0, 4);  // gdb fills in only pr_cursig
    core.add_note(NT_PRSTATUS, thread);
    if (info) {
      Bytes siginfo(128);
      std::memcpy(siginfo.data(), &info->first, 4);
      std::memcpy(siginfo.data() + 8, &info->second, 4);
      const Address address = 0x1230;
      std::memcpy(siginfo.data() + 16, &address, 8);
      core.add_note(NT_SIGINFO, siginfo);
    }
    core.add_note(NT_FILE, nt_file_note(4096, {}));
    if (gdb) core.add_note(0xff000000, Bytes(4), "GDB");
    core.add_memory(kStack, Bytes(64), 64);
    auto opened = opener.open(core.write());
    REQUIRE(opened);
    return (*opened)->signal();
  };
  CHECK_FALSE(signal_of(0, true, std::pair(19, 0x80)));  // gcore
  CHECK_FALSE(signal_of(19, true, std::pair(19, 0x80)));
  CHECK_FALSE(signal_of(2, true, std::pair(2, 0x80)));  // Ctrl-C in gdb
  CHECK_FALSE(signal_of(5, true, std::pair(5, 1)));     // a breakpoint
  const auto trap = signal_of(5, false, std::pair(5, 1));
  REQUIRE(trap);
  CHECK(trap->name == "SIGTRAP");
  const auto fault = signal_of(11, true, std::pair(11, 1));
  REQUIRE(fault);
  CHECK(fault->tid == 100);
  CHECK(fault->code == 1);
  CHECK(fault->fault_address == 0x1230);
  CHECK_FALSE(signal_of(11, false, std::pair(11, 0x80))
                  ->fault_address);  // SI_KERNEL: a non-canonical address, and si_addr is 0
  CHECK_FALSE(signal_of(11, false, std::pair(11, 0))->fault_address);  // kill -SEGV: the field contains si_pid
  CHECK_FALSE(signal_of(6, false, std::pair(6, -6))->fault_address);
  CHECK_FALSE(signal_of(11, false, std::pair(6, -6))->code);  // of another signal
}

}  // namespace rankstacks::target
