// One defect in each file: the complete line that the user reads, or what can still be used.
#include <catch2/catch.hpp>

#include "elf/image.h"
#include "elf/tiny_elf.h"

namespace rankstacks::elf {
namespace {

using elf::Image;
using testing::TinyElf;

std::string error_of(std::vector<std::byte> bytes) {
  auto image = Image::from_bytes(std::move(bytes), "lib.so");
  REQUIRE_FALSE(image);
  return image.error().message();
}

std::shared_ptr<const Image> good(std::vector<std::byte> bytes) {
  auto image = Image::from_bytes(std::move(bytes), "lib.so");
  if (!image) FAIL(image.error().message());
  return *image;
}

}  // namespace

TEST_CASE("an empty file") { CHECK(error_of({}) == "lib.so: no ELF header: 0 bytes in all"); }

TEST_CASE("a text file") { CHECK(error_of(std::vector<std::byte>(100, std::byte{'x'})) == "lib.so: not an ELF file"); }

TEST_CASE("a header that is cut off") {
  auto bytes = TinyElf().bytes();
  bytes.resize(40);
  CHECK(error_of(bytes) == "lib.so: the ELF header is cut off: 40 of 64 bytes");
}

TEST_CASE("a 32-bit file") {
  TinyElf file;
  file.header.e_ident[EI_CLASS] = ELFCLASS32;
  CHECK(error_of(file.bytes()) == "lib.so: ELF class 1 where 2 (64-bit) is expected (at 0x4)");
}

TEST_CASE("a big-endian file") {
  TinyElf file;
  file.header.e_ident[EI_DATA] = ELFDATA2MSB;
  CHECK(error_of(file.bytes()) == "lib.so: ELF byte order 2 where 1 (little-endian) is expected (at 0x5)");
}

TEST_CASE("a file for another machine") {
  TinyElf file;
  file.header.e_machine = EM_AARCH64;
  auto image = Image::from_bytes(file.bytes(), "lib.so");
  REQUIRE_FALSE(image);
  CHECK(image.error().message() == "lib.so: machine 183 where 62 (x86-64) is expected (at 0x12)");
  CHECK(image.error().code == ErrorCode::kUnsupported);
}

TEST_CASE("program headers of a wrong size") {
  TinyElf file;
  file.add_segment(PT_LOAD, 0, 64);
  file.finish();
  file.header.e_phentsize = 32;
  CHECK(error_of(file.bytes()) == "lib.so: program headers of 32 bytes where 56 are expected (at 0x36)");
}

TEST_CASE("program headers that reach past the end of the file") {
  TinyElf file;
  file.add_segment(PT_LOAD, 0, 64);
  file.finish();
  file.header.e_phnum = 1000;
  CHECK(error_of(file.bytes()) == "lib.so: 1000 program headers reach past the end of the file (at 0x40)");
}

TEST_CASE("program headers at an offset that wraps around") {
  TinyElf file;
  file.add_segment(PT_LOAD, 0, 64);
  file.finish();
  file.header.e_phoff = ~std::uint64_t{0} - 8;
  CHECK(error_of(file.bytes()) == "lib.so: 1 program headers reach past the end of the file (at 0xfffffffffffffff7)");
}

TEST_CASE("section headers that begin outside the file") {
  TinyElf file;
  file.add_section(".text", SHT_PROGBITS, "x");
  file.finish();
  file.header.e_shoff = 0x100000;
  CHECK(error_of(file.bytes()) == "lib.so: the section headers begin outside the file (at 0x100000)");
}

TEST_CASE("section headers that reach past the end of the file") {
  TinyElf file;
  file.add_section(".text", SHT_PROGBITS, "x");
  file.finish();
  file.header.e_shnum = 500;
  CHECK(error_of(file.bytes()) == "lib.so: 500 section headers reach past the end of the file (at 0x430)");
}

TEST_CASE("section headers of a wrong size") {
  TinyElf file;
  file.add_section(".text", SHT_PROGBITS, "x");
  file.finish();
  file.header.e_shentsize = 40;
  CHECK(error_of(file.bytes()) == "lib.so: section headers of 40 bytes where 64 are expected (at 0x3a)");
}

TEST_CASE("an extended number of sections that the file cannot hold") {
  TinyElf file;
  file.add_section(".text", SHT_PROGBITS, "x");
  file.finish();
  file.header.e_shnum = 0;
  file.sections[0].sh_size = ~std::uint64_t{0};
  CHECK(error_of(file.bytes()) ==
        "lib.so: 18446744073709551615 section headers reach past the end of the file (at 0x430)");
}

TEST_CASE("an extended number of program headers without a section to hold it") {
  TinyElf file;
  file.header.e_phnum = PN_XNUM;
  CHECK(error_of(file.bytes()) ==
        "lib.so: the number of program headers is in section 0, and there is no section (at 0x38)");
}

TEST_CASE("a section outside of the file is empty") {
  TinyElf file;
  file.add_section(".text", SHT_PROGBITS, "x").sh_size = ~std::uint64_t{0};
  file.finish();
  const auto image = good(file.bytes());
  REQUIRE(image->section(".text") != nullptr);
  CHECK(image->contents(*image->section(".text")).empty());
}

TEST_CASE("section names that do not end or lie outside are empty") {
  TinyElf file;
  file.add_section(".text", SHT_PROGBITS, "x").sh_name = 0xffffff;
  file.finish();
  file.sections.back().sh_size -= 1;  // .shstrtab without the final 0 of its last name
  const auto image = good(file.bytes());
  CHECK(image->sections()[1].name.empty());
  CHECK(image->sections()[2].name.empty());
}

TEST_CASE("a segment whose file part wraps around gives no bytes") {
  TinyElf file;
  auto& load = file.add_segment(PT_LOAD, 0x1000, ~std::uint64_t{0} - 0x1000);
  load.p_offset = ~std::uint64_t{0} - 8;
  file.finish();
  const auto image = good(file.bytes());
  CHECK(image->at(0x1000).empty());
  CHECK(image->at(0x2000).empty());
  CHECK(image->at(0).empty());
}

TEST_CASE("bytes come from p_filesz, never p_memsz") {
  TinyElf file;
  auto& load = file.add_segment(PT_LOAD, 0, 0x100);
  load.p_vaddr = 0x5000;
  load.p_memsz = 0x9000;
  file.finish();
  const auto image = good(file.bytes());
  CHECK(image->at(0x5000).size() == 0x100);
  CHECK(image->at(0x50ff).size() == 1);
  CHECK(image->at(0x5100).empty());
}

TEST_CASE("broken notes give no build-id") {
  using testing::note;
  const auto id_of = [](const std::string& contents) {
    TinyElf file;
    file.add_section(".note.gnu.build-id", SHT_NOTE, contents);
    file.finish();
    return elf::to_string(good(file.bytes())->build_id());
  };
  const std::string whole = note("GNU", NT_GNU_BUILD_ID, "\x01\x02\xab\xcd");
  CHECK(id_of(whole) == "0102abcd");
  CHECK(id_of(whole.substr(0, whole.size() - 1)) == "none");                            // the descriptor is cut off
  CHECK(id_of(whole.substr(0, 8)) == "none");                                           // so is the header
  CHECK(id_of(note("XYZ", NT_GNU_BUILD_ID, "\x01\x02")) == "none");                     // another owner
  CHECK(id_of(note("GNU", NT_GNU_BUILD_ID, "")) == "none");                             // empty
  CHECK(id_of(note("GNU", NT_GNU_BUILD_ID, std::string(300, 'x'))) == "none");          // longer than any linker writes
  CHECK(id_of(note("GNU", NT_GNU_ABI_TAG, "0123456789abcdef") + whole) == "0102abcd");  // behind another note
  std::string huge = whole;
  std::memset(huge.data(), 0xff, 8);  // both sizes 4 GiB
  CHECK(id_of(huge) == "none");
}

TEST_CASE("a cycle in a SysV hash chain ends") {
  TinyElf file;
  Elf64_Sym symbols[2]{};
  symbols[1].st_name = 1;
  symbols[1].st_shndx = 1;
  file.add_section(".dynstr", SHT_STRTAB, std::string("\0known\0", 7));
  auto& table =
      file.add_section(".dynsym", SHT_DYNSYM, std::string(reinterpret_cast<const char*>(symbols), sizeof symbols));
  table.sh_link = 1;
  table.sh_entsize = sizeof(Elf64_Sym);
  const std::uint32_t hash[] = {1, 2, 1, 0, 1};  // one bucket, two symbols; bucket 0 -> 1, chain[1] -> 1
  file.add_section(".hash", SHT_HASH, std::string(reinterpret_cast<const char*>(hash), sizeof hash)).sh_link = 2;
  file.finish();
  const auto image = good(file.bytes());
  CHECK(image->find_symbol("known"));
  CHECK_FALSE(image->find_symbol("unknown"));
}

TEST_CASE("a symbol name outside of the string table is empty, and no lookup finds it") {
  TinyElf file;
  Elf64_Sym symbols[3]{};
  symbols[1].st_name = 0x7fffffff;
  symbols[1].st_shndx = 1;
  symbols[2].st_name = 1;  // "open", without a final 0
  symbols[2].st_shndx = 1;
  file.add_section(".strtab", SHT_STRTAB, std::string("\0open", 5));
  auto& table =
      file.add_section(".symtab", SHT_SYMTAB, std::string(reinterpret_cast<const char*>(symbols), sizeof symbols));
  table.sh_link = 1;
  table.sh_entsize = sizeof(Elf64_Sym);
  file.finish();
  const auto image = good(file.bytes());
  const auto& static_symbols = image->static_symbols();
  REQUIRE(static_symbols.size() == 3);
  CHECK(static_symbols.name(static_symbols.at(1)).empty());
  CHECK(static_symbols.name(static_symbols.at(2)).empty());
  CHECK_FALSE(image->find_symbol("open"));
  CHECK_FALSE(image->find_symbol(""));
}

TEST_CASE("a segment in memory that claims more than is possible is read up to the limit") {
  TinyElf file;
  file.add_segment(PT_LOAD, 0, std::uint64_t{1} << 46);
  file.finish();
  const auto whole = file.bytes();
  std::uint64_t asked = 0;
  const auto read = [&](Vaddr v, std::span<std::byte> into) {
    asked += into.size();
    if (v > whole.size() || into.size() > whole.size() - v) return false;
    std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(v), into.size(), into.begin());
    return true;
  };
  constexpr std::uint64_t kMax = 64 << 20;
  CHECK(Image::from_memory(read, 0, "huge.so", kMax));
  CHECK(asked <= 2 * kMax + 4096);  // each part as a whole first, then page by page
}

TEST_CASE("a file that is truncated anywhere is refused") {
  TinyElf file;
  file.add_segment(PT_LOAD, 0, 0x600);
  file.add_segment(PT_DYNAMIC, 0x400, 0x40);
  file.add_section(".dynstr", SHT_STRTAB, std::string("\0known\0", 7));
  file.add_section(".note.gnu.build-id", SHT_NOTE, testing::note("GNU", NT_GNU_BUILD_ID, "12345678"));
  file.finish();
  const auto whole = file.bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    auto image = Image::from_bytes({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}, "lib.so");
    CHECK_FALSE(image);  // the section headers come last: any cut takes some of them
    if (!image) CHECK_FALSE(image.error().message().empty());
  }
}

}  // namespace rankstacks::elf
