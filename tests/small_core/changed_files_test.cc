#include "small_core/changed_files.h"

#include <elf.h>
#include <catch2/catch.hpp>

#include "support/elf_writer.h"
#include "support/fake_target.h"
#include "support/library_header.h"

using namespace rankstacks;
using namespace rankstacks::small_core;

namespace {

std::vector<std::byte> notes_with(const std::vector<std::byte>& files) {
  std::vector<std::byte> notes;
  target::append_note(notes, "CORE", NT_PRPSINFO, std::as_bytes(std::span("abc", 3)));
  target::append_note(notes, "CORE", NT_FILE, files);
  target::append_note(notes, "LINUX", NT_X86_XSTATE, std::as_bytes(std::span("de", 2)));
  return notes;
}

target::Mapping mapped(Address start, Address end, bool writable) {
  target::Mapping m;
  m.range = {start, end};
  m.readable = true;
  m.writable = writable;
  return m;
}

// One library: headers, RELRO (read-only now), data.
std::shared_ptr<const elf::Image> library() {
  const Elf64_Ehdr header = testing::library_header(2);
  const Elf64_Phdr segments[] = {
      {.p_type = PT_LOAD, .p_flags = PF_R, .p_filesz = 0x1000, .p_memsz = 0x1000, .p_align = 0x1000},
      {.p_type = PT_LOAD,
       .p_flags = PF_R | PF_W,
       .p_offset = 0x1e00,
       .p_vaddr = 0x1e00,
       .p_filesz = 0x300,
       .p_memsz = 0x1200,
       .p_align = 0x1000}};
  std::vector<std::byte> file(0x2100);
  std::memcpy(file.data(), &header, sizeof header);
  std::memcpy(file.data() + sizeof header, segments, sizeof segments);
  auto image = elf::Image::from_bytes(std::move(file), "library.so");
  REQUIRE(image);
  return *image;
}

}  // namespace

TEST_CASE("what a process may have changed is not in NT_FILE, for which gdb would read the file") {
  testing::FakeTarget target;
  target.mappings_ = {mapped(0x10000, 0x11000, false), mapped(0x11000, 0x12000, false), mapped(0x12000, 0x13000, true),
                      mapped(0x20000, 0x21000, true)};
  target.modules_ = target::ModuleMap({{"/library.so", {0x10000, 0x13000}, 0x10000, {}, library(), {}}});
  const testing::MappedFileEntry headers{0x10000, 0x11000, 0, "/library.so"}, relro{0x11000, 0x12000, 1, "/library.so"},
      data{0x12000, 0x13000, 2, "/library.so"}, shared{0x20000, 0x21000, 16, "/dev/shm/x (deleted)"},
      other{0x30000, 0x31000, 0, "/other"};
  std::vector<target::NotedFile> left_out = {{{0x1000, 0x2000}, 0, "/noted/before"}};
  const auto notes = without_changed_files(
      notes_with(testing::nt_file_note(0x1000, {headers, relro, data, shared, other})), target, left_out);
  CHECK(notes == notes_with(testing::nt_file_note(0x1000, {headers, other})));
  REQUIRE(left_out.size() == 4);
  CHECK(left_out[0].path == "/noted/before");
  CHECK(left_out[1].range.start == 0x11000);
  CHECK(left_out[1].file_offset == 0x1000);
  CHECK(left_out[2].range.start == 0x12000);
  CHECK(left_out[3].file_offset == 0x10000);
  CHECK(left_out[3].path == "/dev/shm/x (deleted)");
}

TEST_CASE("a damaged NT_FILE stays as it is") {
  testing::FakeTarget target;
  target.mappings_ = {mapped(0x10000, 0x11000, true)};
  auto body = testing::nt_file_note(0x1000, {{0x10000, 0x11000, 0, "/a"}});
  body.resize(body.size() - 1);  // the path's end
  std::vector<target::NotedFile> left_out;
  CHECK(without_changed_files(notes_with(body), target, left_out) == notes_with(body));
  body.resize(20);
  CHECK(without_changed_files(notes_with(body), target, left_out) == notes_with(body));
  CHECK(left_out.empty());
}
