// What a machine, a container and a user allow, each for a literal description of a machine.
#include <csignal>

#include "literal_system.h"

namespace rankstacks::doctor {
namespace {

const std::string kDocker = "docker run --cap-add=SYS_PTRACE ...";
const std::string kDockerFilter = "docker run --cap-add=SYS_PTRACE --security-opt seccomp=unconfined ...";
const std::string kAsRootThere = "and run rankstacks as root there: a user's processes are not given the capability";

}  // namespace

TEST_CASE("a machine where all is well has no problem and no note") {
  const Examination e = examine(LiteralSystem::sound(), {});
  REQUIRE(e.sections.size() == 1);
  for (const Finding& f : e.sections[0].findings)
    CHECK((f.severity == Severity::kOk && f.mends.empty() && !f.found.empty()));
  CHECK(e.exit_status() == 0);
}

TEST_CASE("the trial of ptrace decides") {
  LiteralSystem s = LiteralSystem::sound();
  CHECK(machine_line(s, "ptrace") == "ok ptrace: tried on a process of its own: it can be seized");
  CHECK(machine_line(s, "memory") == "ok memory: tried: process_vm_readv reads it");
  s.trial.seize = EPERM;
  s.trial.read = EPERM;
  CHECK(machine_line(s, "ptrace") ==
        "problem ptrace: tried on a process of its own: Operation not permitted -> sudo rankstacks ...");
  CHECK(machine_line(s, "memory") == "problem memory: tried: process_vm_readv: Operation not permitted");
  CHECK(examine(s, {}).exit_status() == 1);
  s.in_docker();
  CHECK(machine_line(s, "ptrace") ==
        "problem ptrace: tried on a process of its own: Operation not permitted -> " + kDocker);
  s.trial = {.not_run = "fork: Resource temporarily unavailable"};
  CHECK(machine_line(s, "ptrace") ==
        "problem ptrace: could not be tried: fork: Resource temporarily unavailable -> raise the limit on processes: "
        "ulimit -u");
  CHECK(machine_line(s, "memory") == "note memory: process_vm_readv was not tried");
  CHECK(machine_line(s, "mapped-files") == "note mapped-files: /proc/PID/map_files was not tried");
}

TEST_CASE("capabilities") {
  CHECK(machine_line(LiteralSystem::sound(), "capabilities") ==
        "ok capabilities: CAP_SYS_PTRACE: processes of every user");
  LiteralSystem s = LiteralSystem::of_user(1000);
  CHECK(machine_line(s, "capabilities") ==
        "note capabilities: no CAP_SYS_PTRACE: processes of uid 1000 alone, and only those that have no more rights "
        "than this tool -> sudo "
        "rankstacks ...");
  s.in_docker();
  CHECK(machine_line(s, "capabilities") ==
        "note capabilities: no CAP_SYS_PTRACE: processes of uid 1000 alone, and only those that have no more rights "
        "than this tool -> " +
            kDocker + " -> " + kAsRootThere);
}

TEST_CASE("yama's four scopes, with and without the capability") {
  LiteralSystem s = LiteralSystem::of_user(1000);
  const auto with_scope = [&](const char* scope) {
    s.files["/proc/sys/kernel/yama/ptrace_scope"] = scope;
    return machine_line(s, "yama");
  };
  CHECK(machine_line(s, "yama") == "ok yama: this kernel has no kernel.yama.ptrace_scope");
  CHECK(with_scope("0\n") == "ok yama: kernel.yama.ptrace_scope is 0");
  CHECK(with_scope("1\n") == "ok yama: kernel.yama.ptrace_scope is 1, and yet the trial was allowed");
  s.trial.seize = EPERM;
  CHECK(
      with_scope("1\n") ==
      "problem yama: kernel.yama.ptrace_scope is 1: without CAP_SYS_PTRACE only a process's own ancestors may trace it"
      " -> sudo sysctl kernel.yama.ptrace_scope=0 -> sudo rankstacks ...");
  CHECK(machine_line(s, "ptrace") == "problem ptrace: tried on a process of its own: Operation not permitted");
  CHECK(with_scope("2\n") ==
        "problem yama: kernel.yama.ptrace_scope is 2: only CAP_SYS_PTRACE may trace -> sudo sysctl "
        "kernel.yama.ptrace_scope=0 -> sudo "
        "rankstacks ...");
  s.in_docker();
  CHECK(with_scope("2\n") ==
        "problem yama: kernel.yama.ptrace_scope is 2: only CAP_SYS_PTRACE may trace -> on the host: sysctl "
        "kernel.yama.ptrace_scope=0 -> " +
            kDocker + " -> " + kAsRootThere);
  s = LiteralSystem::sound();
  CHECK(with_scope("2\n") == "ok yama: kernel.yama.ptrace_scope is 2: with CAP_SYS_PTRACE every process may be traced");
  CHECK(
      with_scope("3\n") ==
      "problem yama: kernel.yama.ptrace_scope is 3: nobody may trace, root included, until the machine is booted again"
      " -> set kernel.yama.ptrace_scope=0 in /etc/sysctl.d and boot");
}

TEST_CASE("a seccomp filter is distinguished from the kernel's own refusal by a call that affects no process") {
  LiteralSystem s = LiteralSystem::sound();
  CHECK(machine_line(s, "seccomp") == "ok seccomp: no system call filter");
  LiteralSystem::replace(s.files["/proc/self/status"], "Seccomp:\t0", "Seccomp:\t2");
  CHECK(machine_line(s, "seccomp") ==
        "ok seccomp: a system call filter, which lets ptrace and process_vm_readv through (tried)");
  s.in_docker();
  s.trial = {.seize_nobody = EPERM, .read_nobody = ESRCH, .seize = EPERM};
  CHECK(machine_line(s, "seccomp") ==
        "problem seccomp: a system call filter refuses ptrace (Operation not permitted) -> " + kDockerFilter);
  CHECK(machine_line(s, "ptrace") == "problem ptrace: tried on a process of its own: Operation not permitted");
  s.trial = {.seize_nobody = EPERM, .read_nobody = ENOSYS, .seize = EPERM, .read = ENOSYS};
  CHECK(machine_line(s, "seccomp") ==
        "problem seccomp: a system call filter refuses ptrace (Operation not permitted) and process_vm_readv (Function "
        "not implemented) -> " +
            kDockerFilter);
  s.trial = {.killed_by = SIGSYS};
  CHECK(machine_line(s, "seccomp") ==
        "problem seccomp: a system call filter kills the process that calls ptrace or process_vm_readv -> " +
            kDockerFilter);
  CHECK(machine_line(s, "ptrace") ==
        "problem ptrace: the process that tried it was killed by signal 31 (Bad system call) -> " + kDockerFilter);
  s.trial = {.not_run = "fork: x"};
  CHECK(machine_line(s, "seccomp") ==
        "note seccomp: a system call filter; whether it lets ptrace through was not tried");
}

TEST_CASE("mapped files") {
  LiteralSystem s = LiteralSystem::of_user(1000);
  CHECK(machine_line(s, "mapped-files") ==
        "ok mapped-files: tried: /proc/PID/map_files opens; deleted and replaced libraries can be read");
  s.trial.map_files = EPERM;
  const std::string found =
      "note mapped-files: tried: /proc/PID/map_files: Operation not permitted (it wants CAP_CHECKPOINT_RESTORE or "
      "CAP_SYS_ADMIN): "
      "of libraries deleted or replaced since they were loaded, only the exported names are there";
  CHECK(machine_line(s, "mapped-files") == found + " -> sudo rankstacks ...");
  s.in_docker();
  CHECK(machine_line(s, "mapped-files") ==
        found + " -> docker run --cap-add=CHECKPOINT_RESTORE ... -> " + kAsRootThere);
  CHECK(examine(s, {}).exit_status() == 0);
}

TEST_CASE("containers, by what their engines leave, and the flag of each") {
  LiteralSystem s = LiteralSystem::sound();
  s.trial.seize = EPERM;
  const std::string refused = "problem ptrace: tried on a process of its own: Operation not permitted";
  const std::string kubernetes =
      "Kubernetes, in the container's spec: securityContext: {capabilities: {add: [\"SYS_PTRACE\"]}}";
  CHECK(machine_line(s, "container") == "ok container: no sign of one");
  SECTION("docker by its cgroup") {
    s.files["/proc/self/cgroup"] = "0::/system.slice/docker-0123.scope\n";
    CHECK(machine_line(s, "container") == "ok container: docker, by docker- in /proc/self/cgroup");
    CHECK(machine_line(s, "ptrace") == refused + " -> " + kDocker);
  }
  SECTION("podman") {
    s.present.insert("/run/.containerenv");
    CHECK(machine_line(s, "container") == "ok container: podman, by /run/.containerenv");
    CHECK(machine_line(s, "ptrace") == refused + " -> podman run --cap-add=SYS_PTRACE ...");
  }
  SECTION("Kubernetes") {
    s.variables["KUBERNETES_SERVICE_HOST"] = "10.0.0.1";
    s.files["/proc/self/cgroup"] = "0::/kubepods.slice/x\n";
    CHECK(machine_line(s, "container") ==
          "ok container: Kubernetes, by KUBERNETES_SERVICE_HOST, kubepods in /proc/self/cgroup");
    CHECK(machine_line(s, "ptrace") == refused + " -> " + kubernetes);
    s.trial = {.seize_nobody = EPERM, .read_nobody = EPERM, .seize = EPERM, .read = EPERM};
    CHECK(machine_line(s, "seccomp") ==
          "problem seccomp: a system call filter refuses ptrace (Operation not permitted) and process_vm_readv "
          "(Operation not permitted) -> "
          "Kubernetes, in the container's spec: securityContext: {capabilities: {add: [\"SYS_PTRACE\"]}, "
          "seccompProfile: {type: "
          "Unconfined}}");
  }
  SECTION("another: all flags") {
    s.files["/proc/self/cgroup"] = "0::/lxc/x\n";
    CHECK(machine_line(s, "container") == "ok container: a container, by /lxc in /proc/self/cgroup");
    CHECK(machine_line(s, "ptrace") ==
          refused + " -> " + kDocker + " -> podman run --cap-add=SYS_PTRACE ... -> " + kubernetes);
  }
}

TEST_CASE("namespaces of its own") {
  LiteralSystem s = LiteralSystem::sound();
  CHECK(machine_line(s, "user-namespace") == "ok user-namespace: the machine's own");
  CHECK(machine_line(s, "pid-namespace") == "ok pid-namespace: the machine's own");
  s.links["/proc/self/ns/user"] = "user:[4026532201]";
  s.files["/proc/self/uid_map"] = "         0       1000          1\n";
  CHECK(machine_line(s, "user-namespace") ==
        "note user-namespace: user:[4026532201], one of its own (uid 0 in it is uid 1000 outside): capabilities reach "
        "the processes in it, "
        "and no other"
        " -> for other processes: run rankstacks outside of it, as root");
  CHECK(machine_line(s, "capabilities") ==
        "ok capabilities: CAP_SYS_PTRACE, in this user namespace: its processes of every user");
  s.links["/proc/self/ns/pid"] = "pid:[4026532300]";
  s.directories["/proc"] = {"1", "17", "self", "sys"};
  CHECK(machine_line(s, "pid-namespace") ==
        "note pid-namespace: pid:[4026532300], one of its own: its 2 processes can be named, by the numbers they have "
        "in it"
        " -> for the machine's: docker run --pid=host ..., podman run --pid=host ..., Kubernetes: hostPID: true in the "
        "pod's spec"
        " -> for another container's: docker run --pid=container:NAME ..., Kubernetes: kubectl debug POD "
        "--target=CONTAINER, or "
        "shareProcessNamespace: true");
  s.links.clear();
  CHECK(machine_line(s, "user-namespace") == "note user-namespace: /proc/self/ns/user cannot be read");
  CHECK(machine_line(s, "pid-namespace") == "note pid-namespace: /proc/self/ns/pid cannot be read");
}

TEST_CASE("hidepid, of the mount that is on top") {
  LiteralSystem s = LiteralSystem::of_user(1000);
  CHECK(machine_line(s, "hidepid") == "ok hidepid: /proc shows all processes");
  s.files["/proc/self/mountinfo"] =
      "22 27 0:21 / /proc rw - proc proc rw\n23 22 0:22 / /proc rw,nosuid shared:5 - proc proc "
      "rw,hidepid=invisible,gid=4\n";
  CHECK(machine_line(s, "hidepid") ==
        "note hidepid: /proc is mounted with hidepid=invisible: it shows only processes that may be traced anyway -> "
        "sudo mount -o "
        "remount,hidepid=0 /proc");
  s.files["/proc/self/status"] = LiteralSystem::status("rankstacks", 0, LiteralSystem::kAll);
  CHECK(machine_line(s, "hidepid") ==
        "ok hidepid: /proc is mounted with hidepid=invisible, which does not bind CAP_SYS_PTRACE");
  s.files["/proc/self/mountinfo"] =
      "22 27 0:21 / /proc rw - proc proc rw,hidepid=2\n23 22 0:22 / /proc rw - proc proc rw,hidepid=off\n";
  CHECK(machine_line(s, "hidepid") == "ok hidepid: /proc shows all processes");
}

}  // namespace rankstacks::doctor
