// Records of /dev/kmsg, as kernels write them.
#include <catch2/catch.hpp>

#include "target/kernel_log.h"

using namespace rankstacks;
using namespace rankstacks::target;
using Cause = KernelKill::Cause;

TEST_CASE("a process that the kernel has killed for lack of memory") {
  // Linux 4.19 and later, of a control group and of the machine; before.
  for (const std::string text :
       {"Memory cgroup out of memory: Killed process 13571 (python3) total-vm:276100kB, anon-rss:65024kB, "
        "file-rss:5288kB, shmem-rss:0kB, UID:0 pgtables:192kB oom_score_adj:1000",
        "Out of memory: Killed process 13571 (python3) total-vm:276100kB, anon-rss:65024kB",
        "Killed process 13571 (python3) total-vm:276100kB, anon-rss:65024kB"}) {
    const auto found = parse_kernel_record("3,1042,24829755865,-;" + text + "\n SUBSYSTEM=x\n");
    REQUIRE(found.has_value());
    CHECK(found->since_boot_us == 24'829'755'865);
    CHECK(found->kill == KernelKill{"", 13571, "python3", Cause::kOutOfMemory, "", text});
  }
}

TEST_CASE("a fault that was not handled") {
  const std::string segfault = "pt_autograd_0[5293]: segfault at 1230 ip 0000562d5a2d0419 sp 00007ffeb6d020c0 error 6";
  const auto found = parse_kernel_record("6,1,7,-;" + segfault + "\n");
  REQUIRE(found.has_value());
  CHECK(found->kill == KernelKill{"", 5293, "pt_autograd_0", Cause::kFault, "", segfault});
  const auto trap = parse_kernel_record("6,1,7,-;traps: x[1] y[22] trap invalid opcode ip:401136 sp:7ffd error:0");
  REQUIRE(trap.has_value());
  CHECK(trap->kill.name == "x[1] y");
  CHECK(trap->kill.pid == 22);
  CHECK(parse_kernel_record("6,1,7,-;traps: python3[9] general protection fault ip:1 sp:2 error:0 in libc.so.6"));
}

TEST_CASE("names that look like records") {
  const auto found =
      parse_kernel_record("3,1,7,-;Killed process 5 (a) total-vm:1kB (x) total-vm:276100kB, anon-rss:1kB");
  REQUIRE(found.has_value());
  CHECK(found->kill.pid == 5);
  CHECK(found->kill.name == "a");
}

TEST_CASE("other records") {
  for (const std::string record :
       {"6,1,7,-;bridge: port 1(v1) entered disabled state", "6,1,7,-;oom_reaper: reaped process 13571 (python3), now",
        "6,1,7,-;[5293]: segfault at 1230", "6,1,7,-;x[]: segfault at 1230", "6,1,7,-;Killed process x (y) total-vm:1",
        "6,1,7,-;Killed process 5 total-vm:1", "6,1;Killed process 5 (y) total-vm:1",
        "6,1,x,-;Killed process 5 (y) total-vm:1", "Killed process 5 (y) total-vm:1", "",
        // Written by a process: facility 1.
        "11,1,7,-;Out of memory: Killed process 5 (y) total-vm:1kB"})
    CHECK_FALSE(parse_kernel_record(record).has_value());
}

TEST_CASE("a log that cannot be read") { CHECK_FALSE(read_kernel_log("/nowhere/kmsg").has_value()); }
