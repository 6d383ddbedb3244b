// faulthandler's table of handlers: found in a file's data, read from memory.
#include <catch2/catch.hpp>

#include <array>
#include <csignal>
#include <cstring>

#include "elf/tiny_elf.h"
#include "python/faulthandler.h"
#include "support/fake_target.h"

using namespace rankstacks;
using namespace rankstacks::python;
using rankstacks::testing::FakeTarget;
using rankstacks::testing::TinyElf;

namespace {

constexpr std::size_t kHandler = 176;
constexpr Address kHandlers = 0x555500001000, kRuntime = 0x555500100000, kInterpreter = 0x555500200000;
constexpr Offset kState = 64;

using Enabled = std::array<int, 5>;

std::vector<std::byte> table(const Enabled& enabled) {
  constexpr std::array<int, 5> kSignals = {SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSEGV};
  std::vector<std::byte> bytes(kSignals.size() * kHandler);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    std::memcpy(&bytes[i * kHandler], &kSignals[i], sizeof(int));
    std::memcpy(&bytes[i * kHandler + 4], &enabled[i], sizeof(int));
  }
  return bytes;
}

std::optional<Vaddr> found_in(const std::vector<std::byte>& data, std::uint32_t flags) {
  TinyElf elf;
  const auto offset = elf.add_bytes(data.data(), data.size());
  elf.add_segment(PT_LOAD, offset, data.size()).p_flags = flags;
  elf.finish();
  const auto image = elf::Image::from_bytes(elf.bytes(), "python");
  REQUIRE(image);
  const auto found = find_faulthandler(**image);
  return found ? std::optional(*found - offset) : std::nullopt;
}

struct FatalError {
  std::int32_t enabled = 1, padding = 0;
  std::uint64_t file = 0;
  std::int32_t descriptor = 2, all_threads = 1;
  std::uint64_t interpreter = kInterpreter;
};

std::optional<Faulthandler> read(const Enabled& enabled, const FatalError& fatal_error = {}) {
  FakeTarget target;
  target.put(kHandlers, table(enabled));
  target.put_value(kRuntime + kState, fatal_error);
  Layout layout;
  layout.runtime_faulthandler = kState;
  const std::array<Address, 1> interpreters = {kInterpreter};
  RuntimeCandidate candidate{.module = "python", .runtime = kRuntime};
  candidate.faulthandler = kHandlers;
  return read_faulthandler(target, layout, candidate, interpreters);
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("the table of handlers is found by its first contents, if there is one") {
  std::vector<std::byte> data(48);
  const auto handlers = table({});
  data.insert(data.end(), handlers.begin(), handlers.end());
  CHECK(found_in(data, PF_R | PF_W) == Vaddr{48});
  CHECK_FALSE(found_in(data, PF_R | PF_X));
  auto changed = data;
  changed[48 + 4 * kHandler + 20] = std::byte{1};  // a handler that was there before
  CHECK_FALSE(found_in(changed, PF_R | PF_W));
  data.insert(data.end(), handlers.begin(), handlers.end());
  CHECK_FALSE(found_in(data, PF_R | PF_W));  // two of them
}

TEST_CASE("what faulthandler is enabled for, and what it was called for") {
  const auto off = read({});
  REQUIRE(off);
  CHECK((off->signals.empty() && off->called.empty() && !off->descriptor));
  const auto on = read({1, 1, 1, 1, 1});
  REQUIRE(on);
  CHECK(on->signals == Names{"SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGSEGV"});
  CHECK(on->called.empty());
  CHECK(on->descriptor == 2);
  const auto called = read({1, 1, 1, 1, 0});
  REQUIRE(called);
  CHECK(called->called == Names{"SIGSEGV"});
  CHECK_FALSE(read({1, 1, 7, 1, 1}));
}

TEST_CASE("a descriptor that is not certain is not stated") {
  const Enabled all = {1, 1, 1, 1, 1};
  const auto stated = [&](const FatalError& fatal_error) { return read(all, fatal_error)->descriptor.has_value(); };
  CHECK(stated({}));
  CHECK_FALSE(stated({.enabled = 0}));
  CHECK_FALSE(stated({.descriptor = -1}));
  CHECK_FALSE(stated({.all_threads = 9}));
  CHECK_FALSE(stated({.interpreter = kInterpreter + 8}));
}
