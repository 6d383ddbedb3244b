// Stacks that gcore leaves as zeros: a real core of gdb's whose stack mappings are emptied in the way in which gdb
// leaves them, and stacks that must not be taken for such.
#include <elf.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "core_fixture.h"
#include "target/core_target.h"

namespace rankstacks::target {
namespace {

using namespace testing;

std::string text_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The bytes of the segment that contains `address`: from `address` on, or the whole segment.
std::span<char> bytes_at(std::string& core, Address address, bool whole) {
  Elf64_Ehdr header;
  std::memcpy(&header, core.data(), sizeof header);
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr p;
    std::memcpy(&p, core.data() + header.e_phoff + i * sizeof p, sizeof p);
    if (p.p_type != PT_LOAD || address < p.p_vaddr || address - p.p_vaddr >= p.p_filesz) continue;
    const std::uint64_t skip = whole ? 0 : address - p.p_vaddr;
    return std::span(core).subspan(p.p_offset + skip, p.p_filesz - skip);
  }
  return {};
}

std::unique_ptr<CoreTarget> open(const std::string& path, elf::ImageCache& images) {
  auto opened = CoreTarget::open(path, {}, images);
  if (!opened) FAIL(opened.error().message());
  return std::move(*opened);
}

struct Made {
  TemporaryDirectory directory;
  elf::ImageCache images;
  std::unique_ptr<CoreTarget> core;

  explicit Made(const std::string& bytes) {
    std::ofstream(directory / "core", std::ios::binary) << bytes;
    core = open(directory / "core", images);
  }
};

Address stack_pointer(const CoreTarget& core, Tid tid) {
  for (const ThreadInfo& t : core.threads()) {
    if (t.tid == tid) return t.registers->sp();
  }
  return 0;
}

}  // namespace

TEST_CASE("stacks that gcore has left out are missing, and their threads are named") {
  std::string why;
  const FixtureCore* real = gcore_core(why);
  if (real == nullptr) {
    WARN("skipped: " << why);
    return;
  }
  const std::string sound = text_of_file(real->path);
  const Made whole(sound);
  CHECK(whole.core->lost_stacks().empty());
  CHECK_FALSE(whole.core->partial());

  const Tid tid = real->facts.threads[1].tid;
  const Address sp = stack_pointer(*whole.core, tid);
  REQUIRE(whole.core->read_value<Address>(sp));
  std::string bytes = sound;
  std::ranges::fill(bytes_at(bytes, sp, true), '\0');
  const Made lost(bytes);
  REQUIRE(lost.core->lost_stacks().size() == 1);
  CHECK(lost.core->lost_stacks()[0] == tid);
  CHECK(lost.core->partial());
  CHECK_FALSE(lost.core->read_value<Address>(sp));
  CHECK(lost.core->read_value<Address>(stack_pointer(*whole.core, real->facts.threads[2].tid)));
  const auto& problems = lost.core->problems();
  const auto problem = std::find_if(problems.begin(), problems.end(),
                                    [](const Problem& p) { return p.message.starts_with("gcore has left out"); });
  REQUIRE(problem != problems.end());
  CHECK(problem->message.starts_with("gcore has left out the stack of 1 thread (tid " + std::to_string(tid) + "), "));
  CHECK(problem->message.find("it gives up a mapping at the first page that cannot be read") != std::string::npos);
  REQUIRE(problem->hint);
  CHECK(problem->hint->starts_with("take the kernel's core"));
}

TEST_CASE("a stack with any data is not taken for one that gcore has left out") {
  std::string why;
  const FixtureCore* real = gcore_core(why);
  if (real == nullptr) {
    WARN("skipped: " << why);
    return;
  }
  const std::string sound = text_of_file(real->path);
  const Made whole(sound);
  const FixtureThread& thread = real->facts.threads[1];
  const Address sp = stack_pointer(*whole.core, thread.tid);
  // No data are below the stack pointer.
  std::string below = sound;
  const auto all = bytes_at(below, sp, true);
  std::ranges::fill(all.first(all.size() - bytes_at(below, sp, false).size()), '\0');
  CHECK(Made(below).core->lost_stacks().empty());
  // Zeros on the stack, while the thread's own control block has data.
  std::string above = sound;
  std::ranges::fill(bytes_at(above, sp, false).first(256), '\0');
  CHECK(Made(above).core->lost_stacks().empty());
}

TEST_CASE("in the kernel's core no zeros are taken for gcore's") {
  std::string why;
  const FixtureCore* real = kernel_core("abort", why);
  if (real == nullptr) {
    WARN("skipped: " << why);
    return;
  }
  std::string bytes = text_of_file(real->path);
  const Address sp = stack_pointer(*Made(bytes).core, real->facts.threads[1].tid);
  std::ranges::fill(bytes_at(bytes, sp, true), '\0');
  CHECK(Made(bytes).core->lost_stacks().empty());
}

}  // namespace rankstacks::target
