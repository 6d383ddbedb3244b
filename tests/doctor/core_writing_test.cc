// Where cores go, and what would prevent one from being written completely.
#include "literal_system.h"

namespace rankstacks::doctor {
namespace {

const std::string kAside = " -> sysctl kernel.core_pattern=core.%p";

}  // namespace

TEST_CASE("core_pattern as a file") {
  LiteralSystem s = LiteralSystem::sound();
  const auto with = [&](const char* pattern) {
    s.files["/proc/sys/kernel/core_pattern"] = std::string(pattern) + "\n";
    return machine_line(s, "core-pattern");
  };
  CHECK(with("core.%p") == "ok core-pattern: cores are files named core.%p in the process's working directory");
  CHECK(machine_line(s, "core-names") == "");
  CHECK(with("core") == "ok core-pattern: cores are files named core in the process's working directory");
  CHECK(machine_line(s, "core-names") ==
        "note core-names: the name has no %p: ranks that die in one directory write over each other's core -> sysctl "
        "kernel.core_pattern=core.%p");
  s.files["/proc/sys/kernel/core_uses_pid"] = "1\n";
  CHECK(machine_line(s, "core-names") == "");
  s.directories["/cores"] = {};
  CHECK(with("/cores/%e.%p") == "ok core-pattern: cores are files named /cores/%e.%p");
  CHECK(with("/nowhere/%e.%p") ==
        "problem core-pattern: cores are to be files named /nowhere/%e.%p, and the directory is not there -> mkdir -p "
        "/nowhere && chmod 1777 "
        "/nowhere" +
            kAside);
  // The text comes from someone else, and the line is meant to be copied into a shell.
  CHECK(with("/my cores/$(id)/it's.%p") ==
        "problem core-pattern: cores are to be files named /my cores/$(id)/it's.%p, and the directory is not there -> "
        "mkdir -p '/my cores/$(id)' && chmod "
        "1777 '/my cores/$(id)'" +
            kAside);
  s.files["/proc/sys/kernel/core_uses_pid"] = "0\n";
  CHECK(with("core; reboot") ==
        "ok core-pattern: cores are files named core; reboot in the process's working directory");
  CHECK(machine_line(s, "core-names") ==
        "note core-names: the name has no %p: ranks that die in one directory write over each other's core -> sysctl "
        "'kernel.core_pattern=core; reboot.%p'");
  s.files["/proc/sys/kernel/core_uses_pid"] = "1\n";
  CHECK(with("/cores/%h/%p") == "ok core-pattern: cores are files named /cores/%h/%p");
  CHECK(with("/dev/null") == "problem core-pattern: kernel.core_pattern is /dev/null: cores are thrown away" + kAside);
  CHECK(with("") == "ok core-pattern: cores are files named  in the process's working directory");
  s.files.erase("/proc/sys/kernel/core_uses_pid");
  CHECK(with("") == "problem core-pattern: kernel.core_pattern is empty: no core is written" + kAside);
  s.files.erase("/proc/sys/kernel/core_pattern");
  CHECK(machine_line(s, "core-pattern") == "note core-pattern: /proc/sys/kernel/core_pattern cannot be read");
}

TEST_CASE("core_pattern as a pipe or a socket") {
  LiteralSystem s = LiteralSystem::sound();
  s.files["/proc/self/limits"] = LiteralSystem::limits("0", "unlimited");
  const auto with = [&](const char* pattern) {
    s.files["/proc/sys/kernel/core_pattern"] = std::string(pattern) + "\n";
    return machine_line(s, "core-pattern");
  };
  const char* systemd = "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h";
  CHECK(with(systemd) ==
        "problem core-pattern: cores are piped to /usr/lib/systemd/systemd-coredump, which is not there" + kAside);
  s.present = {"/usr/lib/systemd/systemd-coredump", "/usr/bin/collector", "/bin/false"};
  CHECK(with(systemd) ==
        "ok core-pattern: systemd-coredump keeps cores: `coredumpctl dump PID -o core.PID` fetches one");
  CHECK(machine_line(s, "core-limit") ==
        "problem core-limit: ulimit -c is 0: jobs started from here leave no core -> ulimit -c unlimited   (in the "
        "shell that starts the "
        "job; in a systemd unit: LimitCORE=infinity)");
  s.files["/etc/systemd/coredump.conf"] = "[Coredump]\nStorage=none\n";
  CHECK(with(systemd) ==
        "problem core-pattern: systemd-coredump takes cores, and its Storage=none throws them away -> set "
        "Storage=external in "
        "/etc/systemd/coredump.conf");
  s.directories["/etc/systemd/coredump.conf.d"] = {"50-keep.conf"};
  s.files["/etc/systemd/coredump.conf.d/50-keep.conf"] = "[Coredump]\n#Storage=none\nStorage=external\n";
  CHECK(with(systemd) ==
        "ok core-pattern: systemd-coredump keeps cores: `coredumpctl dump PID -o core.PID` fetches one");
  CHECK(with("| /usr/bin/collector %p") ==
        "note core-pattern: cores are piped to /usr/bin/collector: where it keeps them is up to it");
  CHECK(machine_line(s, "core-limit") == "ok core-limit: ulimit -c is 0 bytes, which does not bind collector");
  CHECK(with("|/bin/false") ==
        "problem core-pattern: kernel.core_pattern is \"|/bin/false\": cores are thrown away" + kAside);
  CHECK(with("@/run/coredump.sock") ==
        "note core-pattern: cores go to the socket /run/coredump.sock: where its server keeps them is up to it");
  s.in_docker();
  CHECK(with("|/host/collector") ==
        "note core-pattern: cores go to the host's /host/collector: they are found there, not in this container");
}

TEST_CASE("this tool's own limit on cores") {
  LiteralSystem s = LiteralSystem::sound();
  const auto with = [&](const char* soft, const char* hard) {
    s.files["/proc/self/limits"] = LiteralSystem::limits(soft, hard);
    return machine_line(s, "core-limit");
  };
  const std::string raise =
      " -> ulimit -c unlimited   (in the shell that starts the job; in a systemd unit: LimitCORE=infinity)";
  CHECK(with("unlimited", "unlimited") == "ok core-limit: ulimit -c is unlimited");
  CHECK(with("0", "unlimited") == "problem core-limit: ulimit -c is 0: jobs started from here leave no core" + raise);
  CHECK(with("104857600", "unlimited") ==
        "note core-limit: ulimit -c is 100 MB: larger cores of jobs started from here are cut off" + raise);
  CHECK(with("0", "0") == "problem core-limit: ulimit -c is 0: jobs started from here leave no core" + raise);
  s.files["/proc/self/status"] = LiteralSystem::status("rankstacks", 1000, 0);
  CHECK(with("0", "0") ==
        "problem core-limit: ulimit -c is 0: jobs started from here leave no core -> sudo prlimit --pid $$ "
        "--core=unlimited   (in the "
        "shell that starts the job)");
  s.in_docker();
  CHECK(with("0", "unlimited") == "problem core-limit: ulimit -c is 0: jobs started from here leave no core" + raise +
                                      " -> docker run --ulimit core=-1 ..., podman run --ulimit core=-1 ...");
  s.files["/proc/self/limits"] = "nonsense";
  CHECK(machine_line(s, "core-limit") == "note core-limit: /proc/self/limits cannot be read");
  // Processes that run have limits of their own.
  s.add_process(7, "python3");
  CHECK(line_of(examine(s, {.pids = {7}}).sections[0], "core-limit") == "");
}

TEST_CASE("a process's limit on its core") {
  LiteralSystem s = LiteralSystem::sound();
  s.add_process(7, "python3", 1000);
  const auto with = [&](const char* soft, const char* hard) {
    s.files["/proc/7/limits"] = LiteralSystem::limits(soft, hard);
    return process_line(s, 7, "core-limit");
  };
  CHECK(with("unlimited", "unlimited") == "ok core-limit: unlimited");
  CHECK(with("0", "unlimited") ==
        "problem core-limit: its limit is 0: it would leave no core -> prlimit --pid {PID} --core=unlimited");
  CHECK(with("1073741824", "1073741824") ==
        "problem core-limit: its limit is 1024 MB, it has 2048 MB in memory: its core would be cut off -> prlimit "
        "--pid {PID} "
        "--core=unlimited");
  CHECK(with("4294967296", "unlimited") == "ok core-limit: its limit is 4096 MB, it has 2048 MB in memory");
  s.files["/proc/self/status"] = LiteralSystem::status("rankstacks", 1000, 0);
  CHECK(with("0", "unlimited") ==
        "problem core-limit: its limit is 0: it would leave no core -> prlimit --pid {PID} --core=unlimited");
  CHECK(with("0", "0") ==
        "problem core-limit: its limit is 0: it would leave no core -> sudo prlimit --pid {PID} --core=unlimited");
  s.files["/proc/self/status"] = LiteralSystem::status("rankstacks", 1001, 0);
  CHECK(with("0", "unlimited") ==
        "problem core-limit: its limit is 0: it would leave no core -> sudo prlimit --pid {PID} --core=unlimited");
  s.in_docker();
  CHECK(with("0", "unlimited") ==
        "problem core-limit: its limit is 0: it would leave no core -> start its container with: docker run --ulimit "
        "core=-1 ..., podman "
        "run --ulimit core=-1 ...");
  s.files["/proc/sys/kernel/core_pattern"] = "|/usr/bin/collector\n";
  CHECK(with("0", "unlimited") == "ok core-limit: its limit is 0 bytes, which does not bind collector");
  s.files.erase("/proc/7/limits");
  CHECK(process_line(s, 7, "core-limit") == "note core-limit: /proc/PID/limits cannot be read");
}

TEST_CASE("coredump_filter") {
  LiteralSystem s = LiteralSystem::sound();
  s.add_process(7, "python3");
  const auto with = [&](const char* filter) {
    s.files["/proc/7/coredump_filter"] = filter;
    return process_line(s, 7, "coredump-filter");
  };
  CHECK(with("00000033\n") == "ok coredump-filter: 0x33: stacks, heap and build-ids would be in its core");
  CHECK(with("00000032\n") ==
        "problem coredump-filter: its coredump_filter is 0x32: stacks and heap would not be in its core -> echo 0x33 > "
        "/proc/{PID}/coredump_filter");
  CHECK(with("00000023\n") ==
        "problem coredump-filter: its coredump_filter is 0x23: build-ids would not be in its core, so that its "
        "libraries could not be "
        "checked -> echo 0x33 > /proc/{PID}/coredump_filter");
  CHECK(with("00000031\n") ==
        "note coredump-filter: its coredump_filter is 0x31: shared memory would not be in its core -> echo 0x33 > "
        "/proc/{PID}/coredump_filter");
}

TEST_CASE("a process that is not dumpable leaves no core") {
  LiteralSystem s = LiteralSystem::sound();
  s.add_process(7, "python3", 1000);
  CHECK(process_line(s, 7, "dumpable") == "");
  s.owners["/proc/7/status"] = 0;
  s.files["/proc/sys/fs/suid_dumpable"] = "0\n";
  const std::string mends =
      " -> after a change of its user: sysctl fs.suid_dumpable=2, and a core_pattern that is a pipe or an absolute "
      "path -> after "
      "prctl(PR_SET_DUMPABLE, 0): gcore, as root";
  const std::string why =
      "it is not dumpable (by prctl(PR_SET_DUMPABLE), a change of its user, or a program that may not be read): ";
  CHECK(process_line(s, 7, "dumpable") ==
        "problem dumpable: " + why + "the kernel writes no core of it (fs.suid_dumpable is 0)" + mends);
  s.files["/proc/sys/fs/suid_dumpable"] = "2\n";
  CHECK(process_line(s, 7, "dumpable") ==
        "problem dumpable: " + why + "the kernel writes no core of it (fs.suid_dumpable is 2)" + mends);
  s.directories["/cores"] = {};
  s.files["/proc/sys/kernel/core_pattern"] = "/cores/%p\n";
  CHECK(process_line(s, 7, "dumpable") ==
        "note dumpable: " + why +
            "its core is written for root alone (fs.suid_dumpable is 2), or not at all after prctl");
  LiteralSystem::replace(s.files["/proc/7/status"], "Uid:\t1000\t1000", "Uid:\t1000\t0");
  s.owners["/proc/7/status"] = 1000;
  s.files["/proc/sys/fs/suid_dumpable"] = "0\n";
  CHECK(process_line(s, 7, "dumpable") ==
        "problem dumpable: it is not dumpable (as it changed its user): the kernel writes no core of it "
        "(fs.suid_dumpable is 0)" +
            mends);
}

}  // namespace rankstacks::doctor
