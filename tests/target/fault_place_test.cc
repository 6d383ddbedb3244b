// Faults at literal addresses, in a process with a program, a thread's stack and the main stack.
#include <catch2/catch.hpp>

#include <csignal>

#include "support/fake_target.h"
#include "target/fault_place.h"

using namespace rankstacks;
using namespace rankstacks::target;
using rankstacks::testing::FakeTarget;

namespace {

constexpr Address kCode = 0x400000, kGuard = 0x7f0000000000, kStack = 0x7f0000001000, kStackEnd = 0x7f0000801000;
constexpr Address kMainStack = 0x7ffe00000000, kPage = 4096;
constexpr Pid kPid = 100;
constexpr Tid kThread = 101;

Mapping mapping(Address start, Address end, const std::string& permissions, std::string path = "") {
  Mapping m;
  m.range = {start, end};
  m.path = std::move(path);
  m.readable = permissions[0] == 'r', m.writable = permissions[1] == 'w', m.executable = permissions[2] == 'x';
  return m;
}

ThreadInfo thread(Tid tid, Address sp, Address fs_base) {
  ThreadInfo info;
  info.tid = tid;
  info.registers.emplace().set(kRsp, sp);
  info.registers->set(kRip, kCode);
  info.registers->fs_base = fs_base;
  return info;
}

class Process : public FakeTarget {
 public:
  Process() {
    mappings_ = {mapping(kCode, kCode + kPage, "r-x", "/bin/app"), mapping(kGuard, kStack, "---"),
                 mapping(kStack, kStackEnd, "rw-"), mapping(kMainStack, kMainStack + kPage, "rw-", "[stack]")};
    stack_pointers(kMainStack + 64, kStack + 64);
  }
  void stack_pointers(Address main, Address other) {
    threads_ = {thread(kPid, main, kStackEnd - 64), thread(kThread, other, kStackEnd - 512)};
  }
  FaultPlace at(Address address, Tid tid = kThread, int number = SIGSEGV) const {
    const auto place = place_of_fault(*this, SignalInfo{number, "SIG", tid, 1, address}, kPid);
    REQUIRE(place);
    return *place;
  }
};

}  // namespace

TEST_CASE("the place of a fault") {
  Process process;
  SECTION("a null pointer with an offset") {
    CHECK(process.at(16).region == FaultRegion::kFirstPage);
    CHECK(process.at(kPage - 1).region == FaultRegion::kFirstPage);
    CHECK(process.at(kPage).region == FaultRegion::kUnmapped);
  }
  SECTION("in a mapping") {
    const FaultPlace place = process.at(kCode + 8);
    CHECK(place.region == FaultRegion::kMapped);
    CHECK(place.mapping == FaultMapping{"/bin/app", "r-x", 8});
    CHECK_FALSE(place.executed);
  }
  SECTION("between two mappings") {
    const FaultPlace place = process.at(kCode + kPage + 3);
    CHECK(place.region == FaultRegion::kUnmapped);
    CHECK(place.below == FaultMapping{"/bin/app", "r-x", 3});
    CHECK(place.above == FaultMapping{"", "---", kGuard - kCode - kPage - 3});
  }
  SECTION("above all mappings") {
    const FaultPlace place = process.at(~Address{0});
    CHECK(place.below);
    CHECK_FALSE(place.above);
  }
  SECTION("the address that was to be executed") { CHECK(process.at(kCode).executed); }
}

TEST_CASE("a stack that has overflowed") {
  Process process;
  SECTION("of a thread: in its guard") { CHECK(process.at(kStack - 8).region == FaultRegion::kBelowStack); }
  SECTION("its guard is not mapped") {
    process.mappings_.erase(process.mappings_.begin() + 1);
    CHECK(process.at(kStack - 8).region == FaultRegion::kBelowStack);
  }
  SECTION("of the main thread") { CHECK(process.at(kMainStack - 8, kPid).region == FaultRegion::kBelowStack); }
  SECTION("the stack pointer has left it already") {
    process.stack_pointers(kMainStack + 64, kStack - 2048);
    CHECK(process.at(kStack - 2048).region == FaultRegion::kBelowStack);
  }
  SECTION("not of a thread that is far from the end of its stack") {
    process.stack_pointers(kMainStack + 64, kStackEnd - 4096);
    CHECK(process.at(kStack - 8).region == FaultRegion::kMapped);
    CHECK(process.at(kStack - 8).mapping == FaultMapping{"", "---", kPage - 8});
  }
  SECTION("not of another thread") { CHECK(process.at(kStack - 8, kPid).region == FaultRegion::kMapped); }
  SECTION("not far below the stack") {
    CHECK(process.at(kMainStack - (Address{2} << 20), kPid).region == FaultRegion::kUnmapped);
  }
}

TEST_CASE("signals without a place") {
  Process process;
  CHECK_FALSE(place_of_fault(process, SignalInfo{SIGSEGV, "SIGSEGV", kPid, 128, {}}, kPid));
  CHECK_FALSE(place_of_fault(process, SignalInfo{SIGFPE, "SIGFPE", kPid, 1, kCode}, kPid));
  process.mappings_.clear();
  CHECK_FALSE(place_of_fault(process, SignalInfo{SIGSEGV, "SIGSEGV", kPid, 1, kCode}, kPid));
}

TEST_CASE("a signal of a thread that is not known has a place") {
  Process process;
  process.threads_.clear();
  CHECK(process.at(kCode + 1).region == FaultRegion::kMapped);
}
