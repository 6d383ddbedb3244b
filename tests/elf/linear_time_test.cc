// Files that make a parser read the same bytes again and again: many headers over the same range. Each of them once
// took minutes or hours, by the square of its size; now the time is compared with limits far above what is needed.
#include <catch2/catch.hpp>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "elf/dynamic.h"
#include "elf/image.h"
#include "elf/symbol_table.h"
#include "elf/tiny_elf.h"

namespace rankstacks::elf {
namespace {

using elf::Image;
using testing::TinyElf;

constexpr double kGenerous = 10;  // seconds

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class T>
void append(std::vector<std::byte>& to, const T& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof value);
}

// Header, program headers, `body`, section headers; more of both than the ELF header can count, so that section 0 has
// the counts.
std::vector<std::byte> file_of(const std::vector<Elf64_Phdr>& segments, const std::vector<Elf64_Shdr>& sections,
                               std::size_t body) {
  TinyElf made;
  made.header.e_phoff = sizeof(Elf64_Ehdr);
  made.header.e_phentsize = sizeof(Elf64_Phdr);
  made.header.e_phnum = static_cast<Elf64_Half>(std::min<std::size_t>(segments.size(), PN_XNUM));
  std::vector<Elf64_Shdr> all(1);
  all[0].sh_info = static_cast<Elf64_Word>(segments.size());
  all.insert(all.end(), sections.begin(), sections.end());
  all[0].sh_size = all.size();
  made.header.e_shoff = sizeof(Elf64_Ehdr) + segments.size() * sizeof(Elf64_Phdr) + body;
  made.header.e_shentsize = sizeof(Elf64_Shdr);
  std::vector<std::byte> bytes;
  append(bytes, made.header);
  for (const Elf64_Phdr& p : segments) append(bytes, p);
  bytes.resize(bytes.size() + body);
  for (const Elf64_Shdr& s : all) append(bytes, s);
  return bytes;
}

}  // namespace

TEST_CASE("300,000 empty symbol tables are skipped in one pass") {
  std::vector<Elf64_Shdr> sections(300'000);
  for (Elf64_Shdr& section : sections) {
    section.sh_type = SHT_SYMTAB;
    section.sh_entsize = sizeof(Elf64_Sym);
  }
  auto bytes = file_of({}, sections, 64);
  CHECK(seconds_of([&] { REQUIRE(Image::from_bytes(std::move(bytes), "lib.so")); }) < kGenerous);
}

TEST_CASE("a symbol table after empty ones is found, with its string table") {
  TinyElf file;
  file.add_section(".symtab", SHT_SYMTAB, "").sh_entsize = sizeof(Elf64_Sym);
  Elf64_Sym symbols[2]{};
  symbols[1].st_name = 1;
  symbols[1].st_shndx = 1;
  symbols[1].st_value = 0x1234;
  auto& table =
      file.add_section(".symtab", SHT_SYMTAB, std::string(reinterpret_cast<const char*>(symbols), sizeof symbols));
  table.sh_entsize = sizeof(Elf64_Sym);
  table.sh_link = 3;
  file.add_section(".strtab", SHT_STRTAB, std::string("\0f\0", 3));
  file.finish();
  const auto image = Image::from_bytes(file.bytes(), "lib.so");
  REQUIRE(image);
  REQUIRE((*image)->find_symbol("f"));
  CHECK((*image)->find_symbol("f")->value == 0x1234);
}

TEST_CASE("a note area under a hundred thousand headers") {
  std::vector<Elf64_Shdr> sections(100'000);
  for (Elf64_Shdr& section : sections) {
    section.sh_type = SHT_NOTE;
    section.sh_offset = sizeof(Elf64_Ehdr);
    section.sh_size = 12 << 20;  // notes of twelve zeros: a million
  }
  auto bytes = file_of({}, sections, 12 << 20);
  CHECK(seconds_of([&] { REQUIRE(Image::from_bytes(std::move(bytes), "lib.so")); }) < kGenerous);
}

TEST_CASE("each section's name is the rest of a large string table") {
  std::vector<Elf64_Shdr> sections(200'000);
  for (Elf64_Shdr& section : sections) section.sh_name = 0;
  sections[0].sh_type = SHT_STRTAB;
  sections[0].sh_offset = sizeof(Elf64_Ehdr);
  sections[0].sh_size = 16 << 20;
  auto bytes = file_of({}, sections, 16 << 20);
  std::memset(bytes.data() + sizeof(Elf64_Ehdr), 'n', (16 << 20) - 1);  // one 0, at the very end
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.e_shstrndx = 1;
  std::memcpy(bytes.data(), &header, sizeof header);
  CHECK(seconds_of([&] { REQUIRE(Image::from_bytes(std::move(bytes), "lib.so")); }) < kGenerous);
}

TEST_CASE("lookups of many segments among as many others") {
  std::vector<Elf64_Phdr> segments(60'000);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    segments[i].p_type = i % 2 == 0 ? PT_LOAD : i % 4 == 1 ? PT_NOTE : PT_DYNAMIC;
    segments[i].p_vaddr = 0x1000 * (segments.size() - i);
    segments[i].p_filesz = segments[i].p_memsz = 16;
    segments[i].p_offset = sizeof(Elf64_Ehdr);
  }
  auto bytes = file_of(segments, {}, 64);
  std::shared_ptr<const Image> image;
  CHECK(seconds_of([&] {
          auto opened = Image::from_bytes(std::move(bytes), "lib.so");
          REQUIRE(opened);
          image = *opened;
          for (Vaddr v = 0; v < 1'000'000; ++v) (void)image->at(v * 64);
        }) < kGenerous);
  CHECK(image->at(0x1000 * 60'000).size() == 16);
  CHECK(image->at(0x1000 * 60'000 + 16).empty());
  CHECK(image->loads().size() == 30'000);
}

TEST_CASE("more program headers than a loader accepts") {
  const auto image = Image::from_bytes(file_of(std::vector<Elf64_Phdr>(70'000), {}, 64), "lib.so");
  REQUIRE_FALSE(image);
  CHECK(image.error().message() == "lib.so: 70000 program headers, more than any loader takes (at 0x38)");
}

TEST_CASE("of overlapping segments the one that begins first counts, in whatever order they are listed") {
  TinyElf file;
  const char text[] = "0123456789abcdef";
  const auto at = file.add_bytes(text, sizeof text);
  file.add_segment(PT_LOAD, at + 8, 8).p_vaddr = 0x1008;
  file.add_segment(PT_LOAD, at, 16).p_vaddr = 0x1000;
  file.add_segment(PT_LOAD, at, 4).p_vaddr = 0x3000;
  file.finish();
  const auto image = Image::from_bytes(file.bytes(), "lib.so");
  REQUIRE(image);
  CHECK((*image)->loads().size() == 2);
  CHECK((*image)->at(0x1008).size() == 8);
  CHECK((*image)->at(0x3001).size() == 3);
  CHECK((*image)->at(0x2000).empty());
  REQUIRE((*image)->load_of(0x100f) != nullptr);
  CHECK((*image)->load_of(0x100f)->p_vaddr == 0x1000);
  CHECK((*image)->load_of(0xfff) == nullptr);
}

TEST_CASE("counting symbols by a hash table reads a bounded number of words") {
  // The only bucket leads to a chain without an end bit: without a bound the walk would read all words.
  std::vector<std::uint32_t> hash = {1, 1, 0, 0, /* bucket */ 1};
  hash.resize(1'000'000, 0);  // a chain whose end bit never comes
  elf::SymbolTable table;
  table.gnu_hash = std::as_bytes(std::span(hash));
  std::uint64_t left = 1000;
  CHECK(elf::count_symbols(table, left) == 0);
  CHECK(left == 0);
  hash[5] = 1;
  left = 1000;
  CHECK(elf::count_symbols(table, left) == 2);
  CHECK(left == 998);
}

TEST_CASE("a chain of a hash table that is as long as the table") {
  // All symbols in one bucket, with the wanted hash each, and another name.
  constexpr std::uint32_t kSymbols = 400'000;
  std::vector<Elf64_Sym> symbols(kSymbols);
  for (Elf64_Sym& s : symbols) s.st_shndx = 1;
  std::vector<std::uint32_t> hash = {1, 1, 0, 0, 1};
  std::uint32_t h = 5381;
  for (const char c : std::string("wanted")) h = h * 33 + static_cast<unsigned char>(c);
  hash.resize(5 + kSymbols, h & ~1U);
  elf::SymbolTable table;
  table.symbols = std::as_bytes(std::span(symbols));
  const std::string strings("\0other", 7);
  table.strings = std::as_bytes(std::span(strings));
  table.gnu_hash = std::as_bytes(std::span(hash));
  CHECK(seconds_of([&] {
          for (int i = 0; i < 20'000; ++i) REQUIRE_FALSE(table.find("wanted"));
        }) < kGenerous);
}

TEST_CASE("a name of which the first word of a hash table says that it is not there") {
  std::uint32_t h = 5381;
  for (const char c : std::string("wanted")) h = h * 33 + static_cast<unsigned char>(c);
  constexpr std::uint32_t kShift = 7;
  const std::string strings("\0wanted\0taken\0", 14);
  // Symbol 1 is another file's, symbol 2 is defined here.
  std::vector<Elf64_Sym> symbols(3);
  symbols[1].st_name = 8;
  symbols[2].st_name = 1;
  symbols[2].st_shndx = 1;
  elf::SymbolTable table;
  table.symbols = std::as_bytes(std::span(symbols));
  table.strings = std::as_bytes(std::span(strings));
  const auto hash_with = [&](std::uint64_t bloom) {
    return std::vector<std::uint32_t>{
        1, 2, 1, kShift, static_cast<std::uint32_t>(bloom), static_cast<std::uint32_t>(bloom >> 32), 2, h | 1U};
  };
  const std::uint64_t first = std::uint64_t{1} << (h % 64), second = std::uint64_t{1} << ((h >> kShift) % 64);
  for (const auto& [bloom, is_found] : {std::pair(first | second, true), {~(first | second), false}}) {
    const std::vector<std::uint32_t> hash = hash_with(bloom);
    table.gnu_hash = std::as_bytes(std::span(hash));
    CHECK(table.find("wanted").has_value() == is_found);
    CHECK(table.has_undefined("taken"));
    CHECK_FALSE(table.has_undefined("wanted"));
    CHECK_FALSE(table.has_undefined("take"));
  }
}

TEST_CASE("a symbol's name is no longer than a name may be") {
  std::string strings(1 << 20, 'n');
  strings.back() = '\0';
  elf::SymbolTable table;
  table.strings = std::as_bytes(std::span(strings));
  Elf64_Sym symbol{};
  CHECK(table.name(symbol).empty());
  symbol.st_name = (1 << 20) - 5;
  CHECK(table.name(symbol) == "nnnn");
}

}  // namespace rankstacks::elf
