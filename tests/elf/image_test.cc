#include <catch2/catch.hpp>

#include <dlfcn.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <typeinfo>

#include "elf/image.h"
#include "elf/tiny_elf.h"

namespace rankstacks::elf {
namespace {

namespace fs = std::filesystem;
using elf::Image;
using testing::TinyElf;

struct Directory {
  fs::path path;
  Directory() {
    std::string name = (fs::temp_directory_path() / "rankstacks-elf-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Directory() { fs::remove_all(path); }
};

std::vector<std::byte> slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

// The loaded module that holds `address`: its path and load bias.
struct Loaded {
  std::string path;
  std::uint64_t bias = 0;
  Vaddr header = 0;
};

Loaded loaded_at(const void* address) {
  Dl_info info{};
  link_map* map = nullptr;
  REQUIRE(dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0);
  return {info.dli_fname, map->l_addr, reinterpret_cast<std::uint64_t>(info.dli_fbase) - map->l_addr};
}

// Reads this process's own memory like that of another process; fails where nothing is mapped.
Image::MemoryReader own_memory(std::uint64_t bias) {
  return [bias](Vaddr vaddr, std::span<std::byte> into) {
    static int fd = ::open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    return pread(fd, into.data(), into.size(), static_cast<off_t>(bias + vaddr)) == static_cast<ssize_t>(into.size());
  };
}

}  // namespace

TEST_CASE("a library's build-id, segments and symbols are those the loader sees") {
  // A function that no other library interposes: sanitizers have a malloc and a pthread_create of their own.
  const Loaded libc = loaded_at(reinterpret_cast<void*>(&gnu_get_libc_version));
  void* opened = dlopen(libc.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(opened != nullptr);
  auto image = Image::open(libc.path, "libc");
  REQUIRE(image);
  CHECK((*image)->name() == "libc");
  CHECK((*image)->path() == libc.path);
  CHECK((*image)->type() == ET_DYN);
  CHECK((*image)->build_id().size() == 20);
  CHECK((*image)->eh_frame_hdr());
  for (const char* name : {"pthread_create", "malloc", "getpid", "environ"}) {
    const auto symbol = (*image)->find_symbol(name);
    REQUIRE(symbol);
    CHECK(symbol->name == name);
    CHECK(libc.bias + symbol->value == reinterpret_cast<std::uint64_t>(dlsym(opened, name)));
  }
  CHECK_FALSE((*image)->find_symbol("rankstacks_has_no_such_symbol"));
  CHECK((*image)->section(".text") != nullptr);
  CHECK((*image)->section(".nowhere") == nullptr);
}

TEST_CASE("symbols that only .symtab has are found in the program itself") {
  auto image = Image::open("/proc/self/exe", "self");
  REQUIRE(image);
  const auto symbol = (*image)->find_symbol("main");
  REQUIRE(symbol);
  CHECK(symbol->type == STT_FUNC);
  CHECK(symbol->size > 0);
}

TEST_CASE("an image in memory has the file's build-id and dynamic symbols, though the loader has changed PT_DYNAMIC") {
  const void* in_libc = reinterpret_cast<const void*>(&gnu_get_libc_version);
  const void* in_libstdcxx = &typeid(int);
  for (const void* address : {in_libc, in_libstdcxx}) {
    const Loaded module = loaded_at(address);
    auto file = Image::open(module.path, module.path);
    auto memory = Image::from_memory(own_memory(module.bias), module.header, module.path);
    REQUIRE(file);
    REQUIRE(memory);
    CHECK((*memory)->build_id() == (*file)->build_id());
    CHECK((*memory)->dynamic_symbols().size() == (*file)->dynamic_symbols().size());
    CHECK((*memory)->sections().empty());
    CHECK((*memory)->bytes().empty());
    CHECK((*memory)->path().empty());
    for (std::size_t i = 0; i < (*file)->dynamic_symbols().size(); i += 37) {
      const auto symbol = (*file)->dynamic_symbols().at(i);
      CHECK((*memory)->dynamic_symbols().name((*memory)->dynamic_symbols().at(i)) ==
            (*file)->dynamic_symbols().name(symbol));
    }
    // Code and .eh_frame are the same as in the file.
    REQUIRE((*file)->eh_frame_hdr());
    CHECK((*memory)->eh_frame_hdr() == (*file)->eh_frame_hdr());
    const auto from_file = (*file)->at(*(*file)->eh_frame_hdr()).first(64);
    const auto from_memory = (*memory)->at(*(*file)->eh_frame_hdr()).first(64);
    CHECK(std::equal(from_file.begin(), from_file.end(), from_memory.begin()));
  }
}

TEST_CASE("the vdso is read from memory and from its bytes") {
  const std::uint64_t base = getauxval(AT_SYSINFO_EHDR);
  if (base == 0) {
    WARN("skipped: this kernel gives no vdso");
    return;
  }
  auto memory = Image::from_memory(own_memory(base), 0, "[vdso]");
  REQUIRE(memory);
  REQUIRE((*memory)->find_symbol("__vdso_clock_gettime"));
  std::vector<std::byte> bytes(8192);
  REQUIRE(own_memory(base)(0, bytes));
  auto file = Image::from_bytes(bytes, "[vdso]");
  REQUIRE(file);
  CHECK((*file)->find_symbol("__vdso_clock_gettime")->value == (*memory)->find_symbol("__vdso_clock_gettime")->value);
  CHECK((*file)->build_id() == (*memory)->build_id());
}

TEST_CASE("an image in memory leaves out what cannot be read") {
  TinyElf file;
  file.add_segment(PT_LOAD, 0, 0x4000);
  file.finish();
  auto bytes = file.bytes();
  bytes.resize(0x4000, std::byte{7});
  const auto read = [&](Vaddr v, std::span<std::byte> into) {
    if (v + into.size() > bytes.size() || (v < 0x2000 && v + into.size() > 0x1000))
      return false;  // the page at 0x1000 is gone
    std::memcpy(into.data(), bytes.data() + v, into.size());
    return true;
  };
  auto image = Image::from_memory(read, 0, "gone.so");
  REQUIRE(image);
  CHECK((*image)->at(0xfff).size() == 1);
  CHECK((*image)->at(0x1000).empty());
  CHECK((*image)->at(0x1fff).empty());
  CHECK((*image)->at(0x2000).size() == 0x2000);

  auto nothing = Image::from_memory([](Vaddr, std::span<std::byte>) { return false; }, 0x1000, "gone.so");
  REQUIRE_FALSE(nothing);
  CHECK(nothing.error().message() == "gone.so: the ELF header is not in memory (at 0x1000)");
  bytes[offsetof(Elf64_Ehdr, e_phoff) + 2] = std::byte{1};
  auto no_table = Image::from_memory(read, 0, "gone.so");
  REQUIRE_FALSE(no_table);
  CHECK(no_table.error().message() == "gone.so: the program headers are not in memory (at 0x10040)");
}

TEST_CASE("segments in memory that claim the whole address space are bounded") {
  TinyElf file;
  file.add_segment(PT_LOAD, 0, 0x1000);
  auto& huge = file.add_segment(PT_LOAD, 0x10000, 0);
  huge.p_filesz = std::uint64_t{1} << 33;
  file.finish();
  auto bytes = file.bytes();
  bytes.resize(0x1000);
  auto image = Image::from_memory(
      [&](Vaddr v, std::span<std::byte> into) {
        if (v + into.size() > bytes.size()) return false;
        std::memcpy(into.data(), bytes.data() + v, into.size());
        return true;
      },
      0, "huge.so");
  REQUIRE(image);
  CHECK((*image)->at(0).size() == 0x1000);
  CHECK((*image)->at(0x10000).empty());
}

TEST_CASE("more sections and program headers than the ELF header's fields can count") {
  TinyElf file;
  file.add_section(".first", SHT_PROGBITS, "first");
  for (int i = 0; i < 66'000; ++i) file.add_section("", SHT_PROGBITS, "");
  auto& symbols = file.add_section(".symtab", SHT_SYMTAB, "");
  Elf64_Sym table[2]{};
  table[1].st_name = 1;
  table[1].st_shndx = SHN_XINDEX;
  table[1].st_value = 0x1234;
  const std::uint32_t indices[2] = {0, 66'002};
  symbols.sh_offset = file.add_bytes(table, sizeof table);
  symbols.sh_size = sizeof table;
  symbols.sh_entsize = sizeof(Elf64_Sym);
  symbols.sh_link = 66'003;
  file.add_section(".strtab", SHT_STRTAB, std::string("\0far\0", 5));
  file.add_section(".symtab_shndx", SHT_SYMTAB_SHNDX,
                   std::string(reinterpret_cast<const char*>(indices), sizeof indices))
      .sh_link = 66'002;
  file.finish();
  const std::size_t count = file.sections.size();
  file.header.e_shnum = 0;
  file.header.e_shstrndx = SHN_XINDEX;
  file.sections[0].sh_size = count;
  file.sections[0].sh_link = static_cast<Elf64_Word>(count - 1);
  file.header.e_phnum = PN_XNUM;  // the true count is in section 0 (sh_info)
  file.header.e_phoff = sizeof(Elf64_Ehdr);
  file.header.e_phentsize = sizeof(Elf64_Phdr);
  file.sections[0].sh_info = 2;

  auto image = Image::from_bytes(file.bytes(), "many.o");
  REQUIRE(image);
  CHECK((*image)->sections().size() == count);
  CHECK((*image)->segments().size() == 2);
  REQUIRE((*image)->section(".first") != nullptr);
  REQUIRE((*image)->section(".symtab_shndx") != nullptr);
  const auto symbol = (*image)->find_symbol("far");
  REQUIRE(symbol);
  CHECK(symbol->value == 0x1234);
  const auto& all = (*image)->static_symbols();
  CHECK(all.section_of(1, all.at(1)) == 66'002U);
}

TEST_CASE("a build-id is found by PT_NOTE where there are no sections") {
  TinyElf file;
  const std::string contents = testing::note("GNU", NT_GNU_BUILD_ID, "\x11\x22\x33");
  const std::uint64_t offset = file.add_bytes(contents.data(), contents.size());
  file.add_segment(PT_LOAD, 0, offset + contents.size());
  file.add_segment(PT_NOTE, offset, contents.size()).p_align = 4;
  file.finish();
  auto image = Image::from_bytes(file.bytes(), "lib.so");
  REQUIRE(image);
  CHECK(elf::to_string((*image)->build_id()) == "112233");
}

TEST_CASE("only regular files are opened, and none blocks") {
  const Directory directory;
  const std::string fifo = (directory.path / "fifo").string();
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(Image::open(fifo, "lib.so").error().message() == "lib.so: a pipe, not a regular file");
  CHECK(Image::open("/dev/zero", "lib.so").error().message() == "lib.so: a device, not a regular file");
  CHECK(Image::open(directory.path.string(), "lib.so").error().message() == "lib.so: a directory, not a regular file");
  CHECK(Image::open("/proc/self/maps", "lib.so").error().message() == "lib.so: a file of procfs, not a regular file");
  auto missing = Image::open((directory.path / "none").string(), "lib.so");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().message() == "lib.so: cannot open: No such file or directory");
  CHECK(missing.error().code == ErrorCode::kNotFound);
  const std::string empty = (directory.path / "empty").string();
  std::ofstream(empty).close();
  CHECK(Image::open(empty, "lib.so").error().message() == "lib.so: no ELF header: 0 bytes in all");
}

TEST_CASE("the cache opens a file once, by whatever path and from whatever thread") {
  const Directory directory;
  const std::string original = (directory.path / "lib.so").string();
  const std::string link = (directory.path / "hard").string();
  const std::string copy = (directory.path / "copy.so").string();
  fs::copy_file(loaded_at(reinterpret_cast<void*>(&gnu_get_libc_version)).path, original);
  fs::create_hard_link(original, link);
  fs::copy_file(original, copy);

  elf::ImageCache cache;
  std::vector<std::shared_ptr<const Image>> images(8);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < images.size(); ++i) {
      threads.emplace_back(
          [&, i] { images[i] = cache.open(i % 2 == 0 ? original : link, "lib.so").value_or(nullptr); });
    }
  }
  REQUIRE(images[0] != nullptr);
  for (const auto& image : images) CHECK(image == images[0]);
  CHECK(*cache.open(copy, "copy.so") != images[0]);

  // A file that was replaced is another file; one that could not be opened is remembered as such, under the path that
  // it was requested by.
  fs::remove(original);
  fs::copy_file(copy, original);
  CHECK(*cache.open(original, "lib.so") != images[0]);
  CHECK(cache.open("/nowhere/a.so", "first").error().message() == "first: cannot open: No such file or directory");
  CHECK(cache.open("/nowhere/a.so", "second").error().message() == "second: cannot open: No such file or directory");
  const std::string text = (directory.path / "text").string();
  std::ofstream(text) << "no library, but longer than an ident";
  CHECK(cache.open(text, "first").error().message() == "first: not an ELF file");
  CHECK(cache.open(text, "second").error().message() == "second: not an ELF file");
}

TEST_CASE("who may change a file while it is read") {
  const Directory directory;
  const std::string path = (directory.path / "lib.so").string();
  fs::copy_file(loaded_at(reinterpret_cast<void*>(&gnu_get_libc_version)).path, path);
  const auto may_change = [&](const std::string& opened) { return (*Image::open(opened, path))->others_may_change(); };
  REQUIRE(chmod(path.c_str(), 0644) == 0);
  CHECK_FALSE(may_change(path));
  CHECK_FALSE(may_change("/proc/self/root" + path));
  CHECK_FALSE(may_change("/proc/" + std::to_string(getpid()) + "/root" + path));
  for (const mode_t mode : {0664, 0646}) {
    REQUIRE(chmod(path.c_str(), mode) == 0);
    CHECK(may_change(path));
  }
  CHECK_FALSE((*Image::from_bytes(slurp(path), "lib.so"))->others_may_change());
  if (geteuid() != 0) return;
  REQUIRE(chmod(path.c_str(), 0644) == 0);
  REQUIRE(chown(path.c_str(), 65534, 65534) == 0);
  CHECK(may_change(path));
}

TEST_CASE("section names stay what they were when the file changes") {
  const Directory directory;
  const std::string path = (directory.path / "lib.so").string();
  fs::copy_file(loaded_at(reinterpret_cast<void*>(&gnu_get_libc_version)).path, path);
  const auto image = *Image::open(path, "lib.so");
  const std::size_t sections = image->sections().size();
  std::vector<char> nothing(fs::file_size(path), 1);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
      .write(nothing.data(), static_cast<long>(nothing.size()));
  CHECK(image->sections().size() == sections);
  CHECK(image->section(".text") != nullptr);
}

TEST_CASE("bytes in memory and a mapped file make the same image") {
  const Loaded libc = loaded_at(reinterpret_cast<void*>(&gnu_get_libc_version));
  auto mapped = Image::open(libc.path, "libc");
  auto given = Image::from_bytes(slurp(libc.path), "libc");
  REQUIRE(mapped);
  REQUIRE(given);
  CHECK((*given)->build_id() == (*mapped)->build_id());
  CHECK((*given)->sections().size() == (*mapped)->sections().size());
  CHECK((*given)->find_symbol("malloc")->value == (*mapped)->find_symbol("malloc")->value);
}

}  // namespace rankstacks::elf
