// What would prevent an attach to one process.
#include "literal_system.h"

namespace rankstacks::doctor {
namespace {

const std::string kDenied = "problem ptrace: tried: Operation not permitted: ";

// As uid 1000, examining a process that the kernel does not let it trace.
LiteralSystem refused() {
  LiteralSystem s = LiteralSystem::of_user(1000);
  s.add_process(7, "python3", 1000);
  s.seize_errors[7] = EPERM;
  return s;
}

}  // namespace

TEST_CASE("a process that can be looked at") {
  LiteralSystem s = LiteralSystem::sound();
  s.add_process(7, "python3");
  const Examination e = examine(s, {.pids = {7}});
  REQUIRE(e.sections.size() == 2);
  CHECK((e.sections[1].pid == 7 && e.sections[1].name == "python3"));
  for (const Finding& f : e.sections[1].findings) CHECK(f.severity == Severity::kOk);
  CHECK(line_of(e.sections[1], "threads") == "ok threads: 1 thread");
  CHECK(line_of(e.sections[1], "ptrace") == "ok ptrace: tried: it can be seized");
  CHECK(line_of(e.sections[1], "memory") == "ok memory: tried: process_vm_readv reads it");
  CHECK(line_of(e.sections[1], "namespaces") == "ok namespaces: the same as this tool's");
  CHECK(line_of(e.sections[1], "files") == "ok files: its executable and 0 libraries, opened as they were loaded");
  CHECK(line_of(e.sections[1], "build-ids") == "ok build-ids: every file has one (1)");
  CHECK(line_of(e.sections[1], "debuginfo") == "ok debuginfo: every file has debug information (1)");
  CHECK(line_of(e.sections[1], "python") == "ok python: no Python in it");
  CHECK(e.exit_status() == 0);
}

TEST_CASE("no such process, one that is hidden, a kernel thread, a zombie") {
  LiteralSystem s = LiteralSystem::of_user(1000);
  const std::string on_machine =
      " -> if the number is one of a container, name it by the number that `ps` shows on this machine: grep NSpid "
      "/proc/[0-9]*/status";
  CHECK(process_line(s, 7, "process") == "problem process: no such process" + on_machine);
  s.links["/proc/self/ns/pid"] = "pid:[4026532300]";
  CHECK(process_line(s, 7, "process") ==
        "problem process: no such process -> this is a pid namespace of its own (a container): name it by the number "
        "that `ps` shows in "
        "here, or run rankstacks on the host");
  s.signal_errors[7] = EPERM;
  CHECK(process_line(s, 7, "process") ==
        "problem process: it exists, and /proc does not show it: hidepid -> sudo mount -o remount,hidepid=0 /proc -> "
        "sudo rankstacks ...");

  s.add_process(7, "kworker/0:1");
  LiteralSystem::replace(s.files["/proc/7/stat"], " -1 0 ", " -1 2129984 ");
  CHECK(process_line(s, 7, "process") ==
        "problem process: a kernel thread: it has no stack of its own to show -> its kernel stack: cat /proc/7/stack");

  s.add_process(8, "python3");
  s.files["/proc/1/stat"] = "1 (torchrun) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0\n";
  LiteralSystem::replace(s.files["/proc/8/task/8/status"], "State:\tS", "State:\tZ");
  CHECK(process_line(s, 8, "process") ==
        "problem process: a zombie: it has ended, and its parent, pid 1 (torchrun), has not collected its exit status "
        "-> its core, if it "
        "left one, is what can be looked at");
}

TEST_CASE("a thread, or the tool itself: no process to examine") {
  LiteralSystem s = LiteralSystem::sound();
  s.add_process(7, "python3");
  s.add_process(8, "pt_autograd_0");
  s.files["/proc/8/status"] += "Tgid:\t7\n";
  CHECK(process_line(s, 8, "process") ==
        "problem process: a thread of process 7 (python3), not a process -> name the process: --pids 7");
  s.files["/proc/7/status"] += "Tgid:\t7\n";
  CHECK(process_line(s, 7, "process") == "");
  s.links["/proc/self"] = "7";
  const Examination e = examine(s, {.pids = {7}});
  CHECK(line_of(e.sections[1], "process") ==
        "problem process: this is rankstacks itself, which cannot look at itself -> name the processes of the job: "
        "--pids, or --job");
  CHECK(e.sections[1].findings.size() == 1);
  CHECK(e.exit_status() == 1);
}

TEST_CASE("threads that wait, are stopped, or have ended") {
  LiteralSystem s = LiteralSystem::sound();
  s.add_process(7, "python3");
  s.directories["/proc/7/task"] = {"7", "8", "9"};
  s.files["/proc/7/task/8/status"] = s.files["/proc/7/task/9/status"] = LiteralSystem::status("python3", 0, 0);
  CHECK(process_line(s, 7, "threads") == "ok threads: 3 threads");
  LiteralSystem::replace(s.files["/proc/7/task/7/status"], "State:\tS", "State:\tZ");
  s.seize_errors[7] = EPERM;  // a thread that lives is tried
  CHECK(process_line(s, 7, "threads") == "ok threads: 3 threads; the main thread has ended, the others go on");
  CHECK(process_line(s, 7, "ptrace") == "ok ptrace: tried: it can be seized");
  LiteralSystem::replace(s.files["/proc/7/task/8/status"], "State:\tS", "State:\tT");
  CHECK(process_line(s, 7, "threads") ==
        "ok threads: 3 threads; the main thread has ended, the others go on; 1 stopped by a signal, and will stay so");
  LiteralSystem::replace(s.files["/proc/7/task/8/status"], "State:\tT", "State:\tD");
  CHECK(process_line(s, 7, "threads") ==
        "note threads: 3 threads; the main thread has ended, the others go on; 1 in an uninterruptible wait (state D): "
        "such a thread "
        "cannot be stopped, and its stack is "
        "read as far as /proc shows it -> look at its storage, and at what it waits for: cat /proc/7/wchan");
}

TEST_CASE("a process that is traced: the tracer is named, and nothing is tried") {
  LiteralSystem s = LiteralSystem::sound();
  s.add_process(7, "python3");
  s.files["/proc/99/stat"] = "99 (gdb) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0\n";
  LiteralSystem::replace(s.files["/proc/7/task/7/status"], "TracerPid:\t0", "TracerPid:\t99");
  CHECK(process_line(s, 7, "ptrace") ==
        "problem ptrace: 1 of its threads are traced by pid 99 (gdb): a thread has one tracer at most -> end that "
        "tracer, or let it "
        "detach: kill 99");
}

TEST_CASE("why a process may not be traced") {
  LiteralSystem s = refused();
  SECTION("another user's") {
    s.add_process(7, "python3", 1001);
    CHECK(process_line(s, 7, "ptrace") ==
          kDenied +
              "it belongs to uid 1001, this is uid 1000 -> sudo rankstacks ... -> sudo -u '#1001' rankstacks ...");
  }
  SECTION("root's") {
    s.add_process(7, "python3", 0);
    CHECK(process_line(s, 7, "ptrace") == kDenied + "it belongs to uid 0, this is uid 1000 -> sudo rankstacks ...");
  }
  SECTION("a setuid program") {
    LiteralSystem::replace(s.files["/proc/7/status"], "Uid:\t1000\t1000\t1000", "Uid:\t1000\t0\t0");
    CHECK(process_line(s, 7, "ptrace") ==
          kDenied + "it changed its user (uids 1000, 0, 0): only root may trace it -> sudo rankstacks ...");
  }
  SECTION("another group") {
    LiteralSystem::replace(s.files["/proc/7/status"], "Gid:\t1000\t1000\t1000", "Gid:\t100\t100\t100");
    CHECK(process_line(s, 7, "ptrace") ==
          kDenied + "its groups are 100, 100, 100, this is group 1000 -> sudo rankstacks ...");
  }
  SECTION("not dumpable") {
    s.owners["/proc/7/status"] = 0;
    CHECK(process_line(s, 7, "ptrace") ==
          kDenied +
              "it is not dumpable: it called prctl(PR_SET_DUMPABLE, 0), changed its user, or its program "
              "may not be read -> sudo rankstacks ...");
  }
  SECTION("in another user namespace") {
    s.links["/proc/7/ns/user"] = "user:[4026532222]";
    CHECK(process_line(s, 7, "ptrace") ==
          kDenied +
              "it is in user:[4026532222], this tool in user:[4026531837]: capabilities do not reach out of a user "
              "namespace"
              " -> run rankstacks outside of this user namespace (rootless container, unshare -U)");
  }
  SECTION("root of a user namespace, on a process outside, whose namespace it cannot even read") {
    s.links["/proc/self/ns/user"] = "user:[4026532222]";
    s.files["/proc/self/status"] = LiteralSystem::status("rankstacks", 1000, LiteralSystem::kAll);
    s.links.erase("/proc/7/ns/user");
    CHECK(process_line(s, 7, "ptrace") ==
          kDenied +
              "it is in another user namespace, this tool in user:[4026532222]: capabilities do not reach out of a "
              "user namespace"
              " -> run rankstacks outside of this user namespace (rootless container, unshare -U)");
  }
  SECTION("more capabilities") {
    LiteralSystem::replace(s.files["/proc/7/status"], "CapPrm:\t0000000000000000", "CapPrm:\t00000000a80425fb");
    CHECK(process_line(s, 7, "ptrace") == kDenied +
                                              "it has capabilities that this tool lacks: CAP_CHOWN, CAP_DAC_OVERRIDE, "
                                              "CAP_FOWNER and 11 more -> sudo rankstacks ...");
  }
  SECTION("Yama") {
    s.files["/proc/sys/kernel/yama/ptrace_scope"] = "1\n";
    CHECK(process_line(s, 7, "ptrace") ==
          kDenied + "kernel.yama.ptrace_scope is 1 -> sudo sysctl kernel.yama.ptrace_scope=0 -> sudo rankstacks ...");
    s.files["/proc/sys/kernel/yama/ptrace_scope"] = "3\n";
    CHECK(process_line(s, 7, "ptrace") ==
          kDenied +
              "kernel.yama.ptrace_scope is 3: nobody may trace until the machine is booted again -> set "
              "kernel.yama.ptrace_scope=0 in /etc/sysctl.d and boot");
  }
  SECTION("a seccomp filter") {
    s.trial.seize_nobody = EPERM;
    s.in_docker();
    CHECK(process_line(s, 7, "ptrace") == kDenied +
                                              "a seccomp filter on this tool answers ptrace itself -> docker run "
                                              "--cap-add=SYS_PTRACE --security-opt seccomp=unconfined ...");
  }
  SECTION("AppArmor") {
    s.present.insert("/sys/module/apparmor");
    s.files["/proc/self/attr/apparmor/current"] = "docker-default (enforce)\n";
    CHECK(process_line(s, 7, "ptrace") ==
          kDenied +
              "this tool runs under the AppArmor profile docker-default (enforce) -> aa-complain -- docker-default");
    s.in_docker();
    CHECK(process_line(s, 7, "ptrace") ==
          kDenied +
              "this tool runs under the AppArmor profile docker-default (enforce) -> docker run --security-opt "
              "apparmor=unconfined ..."
              " -> Kubernetes, in the container's spec: securityContext: {appArmorProfile: {type: Unconfined}}");
  }
  SECTION("SELinux") {
    s.files["/sys/fs/selinux/booleans/deny_ptrace"] = "1 1";
    CHECK(process_line(s, 7, "ptrace") == kDenied + "SELinux's boolean deny_ptrace is on -> setsebool deny_ptrace off");
  }
  SECTION("none of these") {
    CHECK(process_line(s, 7, "ptrace") ==
          kDenied +
              "users, groups, capabilities, namespaces, Yama, seccomp, AppArmor and SELinux would allow "
              "it: another security module refuses -> sudo rankstacks ...");
  }
  SECTION("it ended") {
    s.seize_errors[7] = ESRCH;
    CHECK(process_line(s, 7, "ptrace") == "problem ptrace: it ended meanwhile -> name a process that runs");
  }
}

TEST_CASE("memory that may not be read") {
  LiteralSystem s = LiteralSystem::of_user(1000);
  s.add_process(7, "python3", 1001);
  s.read_errors[7] = EPERM;
  const std::string mends = " -> sudo rankstacks ... -> sudo -u '#1001' rankstacks ...";
  CHECK(process_line(s, 7, "memory") == "problem memory: tried: process_vm_readv: Operation not permitted" + mends);
  s.files.erase("/proc/7/maps");
  s.read_file_errors["/proc/7/maps"] = EACCES;
  CHECK(process_line(s, 7, "memory") == "problem memory: tried: /proc/PID/maps: Permission denied" + mends);
  s.seize_errors[7] = EPERM;  // the reason is in the line before
  CHECK(process_line(s, 7, "memory") == "problem memory: tried: /proc/PID/maps: Permission denied");
  s.files["/proc/7/maps"] = "";
  CHECK(process_line(s, 7, "memory") == "note memory: no file is mapped in it: nothing to try process_vm_readv with");
}

TEST_CASE("a process in another container") {
  LiteralSystem s = LiteralSystem::sound();
  s.add_process(7, "python3", 0, "NSpid:\t7\t1\n");
  s.links["/proc/7/ns/pid"] = "pid:[4026532300]";
  s.links["/proc/7/ns/mnt"] = "mnt:[4026532301]";
  CHECK(process_line(s, 7, "namespaces") ==
        "note namespaces: another container than this tool's (its pid, mount namespaces): it has a pid of its own in "
        "there; its files are "
        "opened through /proc/PID");
  for (const char* kind : {"user", "pid", "mnt"}) s.links.erase(std::string("/proc/7/ns/") + kind);
  CHECK(process_line(s, 7, "namespaces") == "note namespaces: its namespaces may not be looked at");
}

TEST_CASE("files: build-ids, symbols and debug information, grouped") {
  LiteralSystem s = LiteralSystem::of_user(1000);
  s.add_process(7, "python3", 1000);
  auto& files = s.processes[7].files;
  for (const char* name : {"libone.so", "libtwo.so", "libthree.so", "libfour.so", "libfive.so"}) {
    FileFacts f = LiteralSystem::file(std::string("/opt/") + name);
    f.build_id.clear();
    f.debug_info = f.symbols = false;
    files.push_back(f);
  }
  const std::string names = "libone.so, libtwo.so, libthree.so, libfour.so and 1 more";
  const std::string debug_mend =
      " -> Debian, Ubuntu: find-dbgsym-packages FILE names the packages (debian-goodies); Fedora, RHEL: dnf "
      "debuginfo-install";
  CHECK(process_line(s, 7, "files") == "ok files: its executable and 5 libraries, opened as they were loaded");
  CHECK(process_line(s, 7, "build-ids") ==
        "note build-ids: 5 of 6 files have none: " + names +
            ": a core's files can be checked by their first bytes alone -> link them with -Wl,--build-id");
  CHECK(process_line(s, 7, "debuginfo") ==
        "note debuginfo: 5 of 6 files have none: " + names +
            ": native frames of them have no lines; of them the exported names alone are known" + debug_mend);
  files[1].symbols = files[2].symbols = files[3].symbols = files[4].symbols = true;
  CHECK(process_line(s, 7, "debuginfo") ==
        "note debuginfo: 5 of 6 files have none: " + names +
            ": native frames of them have no lines; of libfive.so the exported names alone are known" + debug_mend);
  CHECK(examine(s, {.pids = {7}}).exit_status() == 0);

  files[1].opened = false;
  CHECK(process_line(s, 7, "files") ==
        "note files: 1 of 6 cannot be opened as they were loaded: libone.so: only their exported names are there");
  s.open_errors["/proc/7/map_files/1000-2000"] = EPERM;
  CHECK(process_line(s, 7, "files") ==
        "note files: 1 of 6 cannot be opened as they were loaded: libone.so: only their exported names are there -> "
        "sudo rankstacks ...");
  s.processes.clear();
  CHECK(process_line(s, 7, "files") ==
        "problem files: pid 7: no such process -> try again: it may be starting or ending");
}

TEST_CASE("files of which nothing can be read: nothing is said of what is in them") {
  LiteralSystem s = LiteralSystem::of_user(1000);
  s.add_process(7, "python3", 1000);
  auto& files = s.processes[7].files;
  FileFacts lost{.path = "/opt/liblost.so", .why_not_opened = "it is gone", .unread = true};
  files.push_back(lost);
  CHECK(
      process_line(s, 7, "files") ==
      "note files: 1 of 2 cannot be opened as they were loaded: liblost.so: nor can what of them is in memory be read");
  CHECK(process_line(s, 7, "build-ids") == "ok build-ids: every file has one (1)");
  CHECK(process_line(s, 7, "debuginfo") == "ok debuginfo: every file has debug information (1)");
  CHECK(process_line(s, 7, "python") ==
        "note python: not known: not all of its files can be read; in those that can there is none");
  files = {lost};
  CHECK(process_line(s, 7, "build-ids") == "note build-ids: not known: its files cannot be read");
  CHECK(process_line(s, 7, "debuginfo") == "note debuginfo: not known: its files cannot be read");
  CHECK(process_line(s, 7, "python") == "note python: not known: its files cannot be read");
}

TEST_CASE("a filter that kills: nothing is tried on a process") {
  LiteralSystem s = LiteralSystem::sound();
  s.add_process(7, "python3");
  LiteralSystem::replace(s.files["/proc/self/status"], "Seccomp:\t0", "Seccomp:\t2");
  s.trial.killed_by = 31;
  s.seize_errors[7] = EPERM;
  CHECK(process_line(s, 7, "ptrace")
            .starts_with(
                "problem ptrace: not tried: a system call filter kills the process that calls it -> docker run "));
  CHECK(process_line(s, 7, "memory") == "note memory: process_vm_readv was not tried");
  CHECK(process_line(s, 7, "files") == "note files: not looked at: its memory cannot be read");
}

TEST_CASE("Python, read or not") {
  LiteralSystem s = LiteralSystem::sound();
  s.add_process(7, "python3");
  s.processes[7].python = PythonFacts{.module = "/usr/lib/libpython3.11.so.1.0", .version = "3.11.2"};
  CHECK(process_line(s, 7, "python") == "ok python: CPython 3.11.2 (libpython3.11.so.1.0): its state was read");
  s.processes[7].python = PythonFacts{.module = "/usr/bin/python3.19",
                                      .version = "3.19.0",
                                      .unreadable = "the structures of CPython 3.19.0 are not known"};
  CHECK(process_line(s, 7, "python") ==
        "problem python: CPython 3.19.0 (python3.19): the structures of CPython 3.19.0 are not known"
        " -> CPython 3.6 to 3.15 is supported, released versions: of others native frames alone are shown");
  s.processes[7].python.reset();
  s.processes[7].executable = "/opt/pypy3.10";
  CHECK(process_line(s, 7, "python") ==
        "note python: pypy3.10 is no CPython: its native frames are shown, its Python frames are not");
}

}  // namespace rankstacks::doctor
