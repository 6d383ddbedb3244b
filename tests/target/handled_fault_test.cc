// The fault before a handler has raised its signal again, from a literal struct ucontext.
#include <catch2/catch.hpp>

#include <array>
#include <csignal>
#include <cstring>

#include "support/fake_target.h"
#include "target/handled_fault.h"

using namespace rankstacks;
using namespace rankstacks::target;
using rankstacks::testing::FakeTarget;

namespace {

constexpr Address kCode = 0x401000, kContext = 0x7f0000001000, kStack = 0x7ffe00000000, kPage = 4096;
constexpr Pid kPid = 100;
constexpr int kTkill = -6;

// The numbers of <sys/ucontext.h>, REG_R8 and so on: the general registers begin 40 bytes into the context.
enum Saved {
  kSavedR8 = 0,
  kSavedRdi = 8,
  kSavedRax = 13,
  kSavedRcx = 14,
  kSavedRsp = 15,
  kSavedRip = 16,
  kSavedException = 20,
  kSavedCr2 = 22
};

struct Found : SignalInfo {
  bool reraised = false;
};

class Process : public FakeTarget {
 public:
  explicit Process(const std::vector<std::uint8_t>& code) {
    ThreadInfo info;
    info.tid = kPid;
    info.registers.emplace().set(kRip, 0x7f0000900000);  // in raise
    info.registers->set(kRsp, kContext - 512);
    threads_ = {info};
    Mapping stack;
    stack.range = {kStack, kStack + kPage};
    stack.path = "[stack]";
    stack.readable = stack.writable = true;
    mappings_ = {stack};
    std::vector<std::byte> bytes;
    for (const std::uint8_t byte : code) bytes.push_back(std::byte{byte});
    put(kCode, bytes);
    with(kSavedRip, kCode);
  }
  Process& with(Saved where, std::uint64_t value) {
    saved_[5 + where] = value;
    put_value(kContext, saved_);
    return *this;
  }
  Found died(int number, int code = kTkill, Pid sender = kPid, Address pc = kCode) const {
    Found found{{number, "SIG", kPid, code, {}}};
    found.sender = sender;
    found.reraised = read_handled_fault(*this, kContext, pc, kPid, found);
    return found;
  }

 private:
  std::array<std::uint64_t, 28> saved_{};
};

const std::vector<std::uint8_t> kLoad = {0x48, 0x8b, 0x50, 0x10};  // mov 0x10(%rax),%rdx
constexpr std::uint64_t kPageFault = 14, kGeneralProtection = 13, kDivide = 0, kInvalidOpcode = 6;

}  // namespace

TEST_CASE("the fault that a handler was called for") {
  Process process(kLoad);
  process.with(kSavedRax, 8).with(kSavedException, kPageFault).with(kSavedCr2, 0x18);
  const Found signal = process.died(SIGSEGV);
  REQUIRE(signal.reraised);
  CHECK(signal.fault_address == 0x18);
  REQUIRE(signal.instruction);
  CHECK(signal.instruction->text == "mov 0x10(%rax),%rdx");
  REQUIRE(signal.place);
  CHECK(signal.place->region == FaultRegion::kFirstPage);
  CHECK(signal.code == kTkill);
  CHECK(signal.sender == kPid);
}

TEST_CASE("no fault of this signal: nothing is said") {
  Process process(kLoad);
  process.with(kSavedRax, 8).with(kSavedException, kPageFault).with(kSavedCr2, 0x18);
  const auto says = [](const Found& signal) {
    return signal.reraised || signal.fault_address || signal.instruction || signal.place;
  };
  CHECK(says(process.died(SIGSEGV)));
  CHECK_FALSE(says(process.died(SIGSEGV, kTkill, kPid + 1)));  // another process has sent it
  CHECK_FALSE(says(process.died(SIGSEGV, 0x80)));              // the kernel
  CHECK_FALSE(says(process.died(SIGABRT)));
  CHECK_FALSE(says(process.died(SIGSEGV, kTkill, kPid, kCode + 4)));  // the context is of another frame
  process.with(kSavedCr2, 0x40018);                                   // of an earlier exception
  CHECK_FALSE(says(process.died(SIGSEGV)));
  process.with(kSavedException, kGeneralProtection);
  CHECK_FALSE(says(process.died(SIGSEGV)));
}

TEST_CASE("a call of a wild pointer, an address that is not canonical, an overflow, other signals") {
  Process wild({});
  wild.with(kSavedException, kPageFault).with(kSavedCr2, kCode);
  const Found executed = wild.died(SIGSEGV);
  CHECK((executed.reraised && executed.place && executed.place->executed && !executed.instruction));

  Process odd(kLoad);
  odd.with(kSavedRax, 0xdeadbeefdeadbeef).with(kSavedException, kGeneralProtection);
  CHECK(odd.died(SIGSEGV).fault_address == 0xdeadbeefdeadbeff);

  Process deep({0x50});  // push %rax
  deep.with(kSavedRsp, kStack).with(kSavedException, kPageFault).with(kSavedCr2, kStack - 8);
  const Found overflow = deep.died(SIGSEGV);
  CHECK((overflow.place && overflow.place->region == FaultRegion::kBelowStack));

  Process division({0xf7, 0xf9});  // idiv %ecx
  const Found divided = division.with(kSavedException, kDivide).died(SIGFPE);
  CHECK((divided.reraised && divided.fault_address == kCode));
  CHECK_FALSE(Process(kLoad).with(kSavedException, kDivide).died(SIGFPE).reraised);
  CHECK(Process({0x0f, 0x0b}).with(kSavedException, kInvalidOpcode).died(SIGILL).reraised);
}
