// The instruction of a fault, with the registers of the operand that has the fault's address.
#include <catch2/catch.hpp>

#include <csignal>

#include "support/fake_target.h"
#include "target/fault_instruction.h"
#include "target/oom_kills.h"

using namespace rankstacks;
using namespace rankstacks::target;
using rankstacks::testing::FakeTarget;

namespace {

constexpr Address kCode = 0x401000;
constexpr Tid kThread = 101;
constexpr int kKernel = 0x80;

class Process : public FakeTarget {
 public:
  explicit Process(const std::vector<std::uint8_t>& code) {
    ThreadInfo info;
    info.tid = kThread;
    info.registers.emplace();
    for (unsigned i = 0; i < kDwarfRegisters; ++i) info.registers->set(i, 0);
    info.registers->set(kRip, kCode);
    threads_ = {info};
    std::vector<std::byte> bytes;
    for (const std::uint8_t byte : code) bytes.push_back(std::byte{byte});
    put(kCode, bytes);
  }
  Process& with(unsigned number, std::uint64_t value) {
    threads_[0].registers->set(number, value);
    return *this;
  }
  SignalInfo died(int number, std::optional<Address> address, int code = 1) const {
    SignalInfo signal{number, "SIG", kThread, code, address};
    read_fault_instruction(*this, signal);
    return signal;
  }
};

using Values = std::vector<std::pair<std::string, std::uint64_t>>;

}  // namespace

TEST_CASE("the registers of the operand that has the fault's address") {
  const SignalInfo signal =
      Process({0x48, 0x8b, 0x54, 0xc8, 0x10, 0x90}).with(kRax, 0x20).with(kRcx, 2).died(SIGSEGV, 0x40);
  REQUIRE(signal.instruction);
  CHECK(signal.instruction->text == "mov 0x10(%rax,%rcx,8),%rdx");
  CHECK(signal.instruction->bytes == "48 8b 54 c8 10");
  CHECK(signal.instruction->registers == Values{{"rax", 0x20}, {"rcx", 2}});
}

TEST_CASE("of two operands, the one with the address") {
  Process copy({0xf3, 0xa4});
  copy.with(kRsi, 0x7000).with(kRdi, 0x10);
  CHECK(copy.died(SIGSEGV, 0x10).instruction->registers == Values{{"rdi", 0x10}});
  CHECK(copy.died(SIGSEGV, 0x7000).instruction->registers == Values{{"rsi", 0x7000}});
  CHECK(copy.died(SIGSEGV, 0x9999).instruction->registers.empty());
}

TEST_CASE("an address that is not canonical takes the place of the kernel's 0") {
  Process process({0x48, 0x8b, 0x10});
  process.with(kRax, 0xdeadbeefdeadbeef);
  const SignalInfo signal = process.died(SIGSEGV, 0, kKernel);
  CHECK(signal.fault_address == 0xdeadbeefdeadbeef);
  CHECK(signal.instruction->registers == Values{{"rax", 0xdeadbeefdeadbeef}});
  process.with(kRax, 0x1000);
  CHECK(process.died(SIGSEGV, 0, kKernel).fault_address == Address{0});
  CHECK(process.died(SIGSEGV, 0x1000).fault_address == Address{0x1000});
}

TEST_CASE("a division, an instruction that is none, code that is not there") {
  CHECK(Process({0xf7, 0xf9}).died(SIGFPE, kCode).instruction->registers == Values{{"rcx", 0}});
  const auto undefined = Process({0x0f, 0x0b, 0x90}).died(SIGILL, kCode).instruction;
  CHECK((undefined && undefined->text == "ud2" && undefined->bytes == "0f 0b"));
  const auto unknown = Process({0x0f, 0x05, 0x90}).died(SIGILL, kCode).instruction;
  CHECK((unknown && unknown->text.empty() && unknown->bytes == "0f 05"));
  CHECK_FALSE(Process({0x48, 0x8b, 0x10}).died(SIGSEGV, kCode).instruction);  // executed
  CHECK_FALSE(Process({}).died(SIGSEGV, 0).instruction);
  CHECK_FALSE(Process({0x0f, 0x0b}).died(SIGABRT, {}).instruction);
  CHECK_FALSE(Process({0x48, 0x8b, 0x10}).died(SIGSEGV, {}, 0).instruction);  // sent by kill
}

TEST_CASE("where a control group's count of killed processes is, and what it says") {
  CHECK(oom_count_files("0::/system.slice/job.scope\n") ==
        std::vector<std::string>{"/sys/fs/cgroup/system.slice/job.scope/memory.events",
                                 "/sys/fs/cgroup/unified/system.slice/job.scope/memory.events"});
  CHECK(oom_count_files("9:name=systemd:/\n4:memory:/a/b\n3:cpu,cpuacct:/\n") ==
        std::vector<std::string>{"/sys/fs/cgroup/memory/a/b/memory.oom_control"});
  CHECK(oom_count_files("4:memory:/\n") == std::vector<std::string>{"/sys/fs/cgroup/memory/memory.oom_control"});
  CHECK(oom_count_files("4:memory:/../../x\n0::/..\nnonsense\n:\n4:memory\n").empty());
  CHECK(parse_oom_kills("low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\noom_group_kill 0\n") == 2u);
  CHECK(parse_oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n") == 7u);
  CHECK_FALSE(parse_oom_kills("oom_kill_disable 0\nunder_oom 0\n"));
  CHECK_FALSE(parse_oom_kills("oom_kill x\n"));
}
