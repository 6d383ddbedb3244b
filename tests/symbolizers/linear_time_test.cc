// Files that make a parser read the same bytes again and again: each once took minutes, hours or for ever. The limit is
// far above what is needed.
#include <catch2/catch.hpp>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>

#include "elf/tiny_elf.h"
#include "symbolizers/symbolizer.h"
#include "symbolizers/workshop.h"

namespace rankstacks::symbolizers {
namespace {

using testing::alone;
using testing::TinyElf;
using testing::Workshop;

constexpr double kGenerous = 10;  // seconds

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The file with `copies` more of the section `which`, over the same bytes and with the same name. The section table is
// moved to the end; section 0 has its size.
std::vector<std::byte> repeat_section(const TinyElf& file, std::size_t which, std::size_t copies) {
  auto bytes = file.bytes();
  std::vector<Elf64_Shdr> sections = file.sections;
  sections.insert(sections.end(), copies, file.sections[which]);
  sections[0].sh_size = sections.size();
  Elf64_Ehdr header = file.header;
  header.e_shnum = 0;
  header.e_shoff = bytes.size();
  std::memcpy(bytes.data(), &header, sizeof header);
  const auto table = std::as_bytes(std::span(sections));
  bytes.insert(bytes.end(), table.begin(), table.end());
  return bytes;
}

std::vector<Vaddr> addresses_from(Vaddr first, std::size_t count, Vaddr step) {
  std::vector<Vaddr> addresses(count);
  for (std::size_t i = 0; i < count; ++i) addresses[i] = first + i * step;
  return addresses;
}

void resolve_in_time(std::vector<std::byte> bytes, const std::vector<Vaddr>& addresses) {
  const auto image = elf::Image::from_bytes(std::move(bytes), "lib.so");
  REQUIRE(image);
  CHECK(seconds_of([&] {
          CHECK(Symbolizer(alone()).resolve(**image, addresses).locations.size() == addresses.size());
        }) < kGenerous);
}

}  // namespace

TEST_CASE("addresses without symbols among three hundred thousand sections of code") {
  TinyElf file;
  auto& code = file.add_section(".text", SHT_PROGBITS, std::string(16, '\x90'));
  code.sh_flags = SHF_ALLOC | SHF_EXECINSTR;
  code.sh_addr = 0x10;
  file.finish();
  resolve_in_time(repeat_section(file, 1, 300'000), addresses_from(0x100000, 50'000, 16));
}

TEST_CASE("a table of relocations under a hundred thousand headers") {
  TinyElf file;
  auto& plt = file.add_section(".plt", SHT_PROGBITS, std::string("\xff\x25\0\0\0\0\x68\0\0\0\0\xe9\0\0\0\0", 16));
  plt.sh_flags = SHF_ALLOC | SHF_EXECINSTR;
  plt.sh_addr = 0x1000;
  plt.sh_size = 16;
  file.add_section(".rela.dyn", SHT_RELA, std::string(8 << 20, '\0'));
  file.finish();
  resolve_in_time(repeat_section(file, 2, 100'000), {0x1000, 0x1004});
}

TEST_CASE("the procedure linkage table is named as before") {
  const Workshop shop;
  shop.write("user.c", "int callee(int); int user(int x) { return callee(x) + 1; }");
  shop.run("gcc -O1 -shared -fPIC user.c -o user.so -Wl,-z,lazy");
  const auto image = shop.open("user.so");
  const elf::Section* plt = image->section(".plt.sec") != nullptr ? image->section(".plt.sec") : image->section(".plt");
  REQUIRE(plt != nullptr);
  const bool has_first = plt->name == ".plt";
  std::vector<std::string> names;
  for (Vaddr at = plt->header.sh_addr + (has_first ? 16 : 0); at < plt->header.sh_addr + plt->header.sh_size;
       at += 16) {
    const auto resolved = Symbolizer(alone()).resolve(*image, std::span(&at, 1));
    names.push_back(resolved.locations[0].back().function.value_or("?"));
  }
  CHECK(std::find(names.begin(), names.end(), "callee@plt") != names.end());
}

TEST_CASE("the CRC of a debug file of a terabyte that is all hole") {
  const Workshop shop;
  TinyElf stripped;
  stripped.add_section(".gnu_debuglink", SHT_PROGBITS, std::string("huge.debug\0\0\x12\x34\x56\x78", 16));
  stripped.finish();
  TinyElf debug;
  debug.add_section(".text", SHT_NOBITS, "");
  debug.finish();
  const auto write = [&](const char* name, const std::vector<std::byte>& bytes) {
    shop.write(name, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  };
  write("lib.so", stripped.bytes());
  write("huge.debug", debug.bytes());
  std::error_code error;
  std::filesystem::resize_file(shop.path("huge.debug"), std::uintmax_t{1} << 40, error);
  if (error) {
    WARN("skipped: no file of a terabyte here: " << error.message());
    return;
  }
  const auto image = shop.open("lib.so");
  const Vaddr address = 0x1000;
  SymbolizedImage resolved;
  CHECK(seconds_of([&] { resolved = Symbolizer(alone()).resolve(*image, std::span(&address, 1)); }) < kGenerous);
  REQUIRE(resolved.problems.size() == 1);
  CHECK(resolved.problems[0] ==
        shop.path("huge.debug") +
            ": refused as a debug file: it has no build-id, and is too long (1024 GiB) for its CRC to be taken");
}

}  // namespace rankstacks::symbolizers
