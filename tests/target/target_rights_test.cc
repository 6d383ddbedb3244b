// The rights of a process, read and taken on: by children of this program.
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <csignal>
#include <functional>

#include "target/proc.h"
#include "target/target_rights.h"

namespace rankstacks::target {
namespace {

constexpr uid_t kSomebody = 54321;

// A child that calls `begin` and waits; it is ended together with this object.
struct Child {
  explicit Child(const std::function<bool()>& begin) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid = fork();
    if (pid == 0) {
      const char answer = begin() ? 'y' : 'n';
      (void)!write(ends[1], &answer, 1);
      while (true) ::pause();
    }
    char answer = 0;
    (void)!::read(ends[0], &answer, 1);
    began = answer == 'y';
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~Child() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  std::string status() const { return *target::proc::read_file(fmt::format("/proc/{}/status", pid)); }
  pid_t pid = 0;
  bool began = false;
};

std::string line_of(const std::string& status, const std::string& name) {
  const auto at = status.find("\n" + name + ":");
  return at == std::string::npos ? "" : status.substr(at + 1, status.find('\n', at + 1) - at - 1);
}

// A child with the rights of that process.
Child with_rights_of(pid_t pid) {
  return Child([pid] {
    const auto rights = rights_of(pid);
    return rights && take_on(*rights);
  });
}

void check_same_rights(const Child& one, const Child& other) {
  for (const char* name : {"Uid", "Gid", "Groups", "CapPrm", "CapEff"}) {
    CAPTURE(name);
    CHECK(line_of(one.status(), name) == line_of(other.status(), name));
  }
  CHECK(line_of(other.status(), "NoNewPrivs") == "NoNewPrivs:\t1");
  CHECK(line_of(other.status(), "CapInh") == "CapInh:\t0000000000000000");
}

bool skipped() {
  if (geteuid() == 0) return false;
  WARN("skipped: another user's rights need root");
  return true;
}

}  // namespace

TEST_CASE("rights are read from a process's status") {
  const std::string status =
      "Name:\tx\nUid:\t1\t2\t3\t2\nGid:\t4\t5\t6\t5\nGroups:\t30 20 "
      "\nCapInh:\t0\nCapPrm:\t00000000a80425fb\nCapEff:\t0000000000000010\nCapBnd:\t000001ffffffffff\n";
  const auto rights = parse_rights(status);
  REQUIRE(rights);
  CHECK(rights->real_uid == 1);
  CHECK(rights->effective_uid == 2);
  CHECK(rights->saved_uid == 3);
  CHECK(rights->saved_gid == 6);
  CHECK(rights->groups == std::vector<gid_t>{20, 30});
  CHECK(rights->permitted == 0xa80425fb);
  CHECK(rights->effective == 0x10);
  CHECK(rights->bounding == 0x1ffffffffff);
  for (const char* line : {"Uid:", "Gid:", "Groups:", "CapPrm:", "CapEff:", "CapBnd:"}) {
    std::string without = status;
    without.replace(without.find(line), 3, "Xyz");
    CHECK_FALSE(parse_rights(without));
  }
  CHECK_FALSE(parse_rights(""));
  CHECK_FALSE(parse_rights("Uid:\t1\t2\t-3\t2\n"));
}

TEST_CASE("an ordinary user's rights are taken on, and none of root's stay") {
  if (skipped()) return;
  const Child user([] {
    const gid_t groups[] = {7, 8};
    return setgroups(2, groups) == 0 && setresgid(kSomebody, kSomebody, kSomebody) == 0 &&
           setresuid(kSomebody, kSomebody, kSomebody) == 0;
  });
  REQUIRE(user.began);
  const Child taken = with_rights_of(user.pid);
  REQUIRE(taken.began);
  check_same_rights(user, taken);
  CHECK(line_of(taken.status(), "CapEff") == "CapEff:\t0000000000000000");
  // Nor can that user trace or read it, although he can trace and read each of his own processes.
  const Child tracer([&] {
    return setresgid(kSomebody, kSomebody, kSomebody) == 0 && setresuid(kSomebody, kSomebody, kSomebody) == 0 &&
           prctl(PR_SET_DUMPABLE, 1) == 0 && ::open(fmt::format("/proc/{}/mem", taken.pid).c_str(), O_RDONLY) < 0 &&
           ::open(fmt::format("/proc/{}/environ", taken.pid).c_str(), O_RDONLY) < 0;
  });
  CHECK(tracer.began);
}

TEST_CASE("root's rights in a user namespace of its own stay in there") {
  if (skipped()) return;
  const Child inside([] {
    if (setresuid(kSomebody, kSomebody, kSomebody) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0) return false;
    return unshare(CLONE_NEWUSER) == 0;
  });
  if (!inside.began) {
    WARN("skipped: no user namespaces here");
    return;
  }
  const Child taken = with_rights_of(inside.pid);
  REQUIRE(taken.began);
  check_same_rights(inside, taken);
  CHECK(target::proc::read_link(fmt::format("/proc/{}/ns/user", taken.pid)) ==
        target::proc::read_link(fmt::format("/proc/{}/ns/user", inside.pid)));
}

TEST_CASE("a container's capabilities are taken on, and its bounding set") {
  if (skipped()) return;
  const Child container([] {
    for (int capability = 0; capability < 64; ++capability)
      if (capability != CAP_CHOWN && capability != CAP_KILL) prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    data[0].permitted = 1u << CAP_CHOWN | 1u << CAP_KILL;
    data[0].effective = 1u << CAP_KILL;
    return syscall(SYS_capset, &header, data) == 0;
  });
  REQUIRE(container.began);
  const Child taken = with_rights_of(container.pid);
  REQUIRE(taken.began);
  check_same_rights(container, taken);
  CHECK(line_of(taken.status(), "CapBnd") == line_of(container.status(), "CapBnd"));
}

TEST_CASE("less than the process has is not taken on either") {
  if (skipped()) return;
  const Child root([] { return true; });
  const Child other([&] {
    const auto rights = rights_of(root.pid);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    if (!rights || syscall(SYS_capget, &header, data) != 0) return false;
    for (auto* set : {&data[0].effective, &data[0].permitted, &data[0].inheritable}) *set &= ~(1u << CAP_NET_RAW);
    return syscall(SYS_capset, &header, data) == 0 && !take_on(*rights);
  });
  CHECK(other.began);
}

TEST_CASE("who may not take them on does not go on") {
  if (skipped()) return;
  const Child user([] {
    return setresgid(kSomebody, kSomebody, kSomebody) == 0 && setresuid(kSomebody, kSomebody, kSomebody) == 0;
  });
  const Child other([&] {
    const auto rights = rights_of(user.pid);
    if (setresuid(kSomebody + 1, kSomebody + 1, kSomebody + 1) != 0) return false;
    return rights && !take_on(*rights);
  });
  CHECK(other.began);
}

}  // namespace rankstacks::target
