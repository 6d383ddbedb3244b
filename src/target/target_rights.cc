#include "target/target_rights.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string>

#include "target/live_target.h"
#include "target/proc.h"

namespace rankstacks::target {
namespace {

constexpr int kMaxCapability = 63;
constexpr int kJoinSessionKeyring = 1;  // KEYCTL_JOIN_SESSION_KEYRING, include/uapi/linux/keyctl.h

struct Capabilities {
  std::uint64_t effective = 0, permitted = 0, inheritable = 0;
};

std::optional<Capabilities> own_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  if (syscall(SYS_capget, &header, data.data()) != 0) return std::nullopt;
  const auto both = [](std::uint32_t low, std::uint32_t high) { return low | std::uint64_t{high} << 32; };
  return Capabilities{both(data[0].effective, data[1].effective), both(data[0].permitted, data[1].permitted),
                      both(data[0].inheritable, data[1].inheritable)};
}

bool set_capabilities(std::uint64_t effective, std::uint64_t permitted) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  for (unsigned i = 0; i < 2; ++i)
    data[i] = {static_cast<std::uint32_t>(effective >> 32 * i), static_cast<std::uint32_t>(permitted >> 32 * i), 0};
  return syscall(SYS_capset, &header, data.data()) == 0;
}

std::vector<gid_t> own_groups() {
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(0, getgroups(0, nullptr))));
  const int n = getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<std::size_t>(std::max(0, n)));
  std::sort(groups.begin(), groups.end());
  return groups;
}

// The words of the line "NAME:\t..."; std::nullopt if there is no such line.
std::optional<std::vector<std::string_view>> words_of(std::string_view status, std::string_view name) {
  for (std::size_t at = 0; at < status.size();) {
    const std::size_t end = std::min(status.find('\n', at), status.size());
    std::string_view line = status.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    line.remove_prefix(name.size() + 1);
    std::vector<std::string_view> words;
    while (true) {
      const std::size_t first = line.find_first_not_of(" \t");
      if (first == std::string_view::npos) return words;
      line.remove_prefix(first);
      const std::size_t length = std::min(line.find_first_of(" \t"), line.size());
      words.push_back(line.substr(0, length));
      line.remove_prefix(length);
    }
  }
  return std::nullopt;
}

template <class T>
bool number(std::string_view word, T& into, int base = 10) {
  const char* end = word.data() + word.size();
  return std::from_chars(word.data(), end, into, base).ptr == end && !word.empty();
}

Error cannot(const char* what, int os_errno) {
  return {.code = ErrorCode::kPermission,
          .subject = "the process's rights",
          .what = fmt::format("they cannot be taken on: {}", what),
          .where = {},
          .os_errno = os_errno,
          .hint = "run rankstacks as root of the machine, or as the user of the process"};
}

}  // namespace

bool TargetRights::are_the_same(const TargetRights& other) const {
  struct stat own {
  }, others{};
  const bool namespaces =
      user_namespace.is_open() == other.user_namespace.is_open() &&
      (!user_namespace.is_open() || (fstat(user_namespace.get(), &own) == 0 &&
                                     fstat(other.user_namespace.get(), &others) == 0 && own.st_ino == others.st_ino));
  return namespaces && real_uid == other.real_uid && effective_uid == other.effective_uid &&
         saved_uid == other.saved_uid && real_gid == other.real_gid && effective_gid == other.effective_gid &&
         saved_gid == other.saved_gid && groups == other.groups && permitted == other.permitted &&
         effective == other.effective && bounding == other.bounding;
}

std::optional<TargetRights> parse_rights(std::string_view status) {
  TargetRights rights;
  const auto ids = [&](const char* name, auto& real, auto& effective, auto& saved) {
    const auto words = words_of(status, name);
    return words && words->size() == 4 && number((*words)[0], real) && number((*words)[1], effective) &&
           number((*words)[2], saved);
  };
  const auto set = [&](const char* name, std::uint64_t& into) {
    const auto words = words_of(status, name);
    return words && words->size() == 1 && number((*words)[0], into, 16);
  };
  const auto groups = words_of(status, "Groups");
  if (!groups || !ids("Uid", rights.real_uid, rights.effective_uid, rights.saved_uid) ||
      !ids("Gid", rights.real_gid, rights.effective_gid, rights.saved_gid))
    return std::nullopt;
  for (const std::string_view word : *groups)
    if (!number(word, rights.groups.emplace_back())) return std::nullopt;
  std::sort(rights.groups.begin(), rights.groups.end());
  if (!set("CapPrm", rights.permitted) || !set("CapEff", rights.effective) || !set("CapBnd", rights.bounding))
    return std::nullopt;
  return rights;
}

Result<TargetRights> rights_of(Pid pid) {
  const auto status = proc::read_file(fmt::format("/proc/{}/status", pid));
  if (!status) return fail(attach_error(pid, status.error().os_errno));
  auto rights = parse_rights(*status);
  if (!rights)
    return fail({.code = ErrorCode::kUnsupported,
                 .subject = fmt::format("/proc/{}/status", pid),
                 .what = "does not show the process's rights",
                 .where = {},
                 .os_errno = 0,
                 .hint = {}});
  const std::string path = fmt::format("/proc/{}/ns/user", pid);
  if (proc::read_link(path) != proc::read_link("/proc/self/ns/user")) {
    rights->user_namespace = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!rights->user_namespace.is_open()) return fail(attach_error(pid, errno));
  }
  return std::move(*rights);
}

namespace {

// Groups come before user ids: setting them needs a capability that is lost with the user ids unless it is kept.
Result<void> take_on_ids(const TargetRights& rights, const Capabilities& own) {
  if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0) return fail(cannot("capabilities cannot be kept on the way", errno));
  if (own_groups() != rights.groups && setgroups(rights.groups.size(), rights.groups.data()) != 0)
    return fail(cannot("its groups", errno));
  if (setresgid(rights.real_gid, rights.effective_gid, rights.saved_gid) != 0)
    return fail(cannot("its group ids", errno));
  if (setresuid(rights.real_uid, rights.effective_uid, rights.saved_uid) != 0)
    return fail(cannot("its user ids", errno));
  if (!set_capabilities(own.permitted, own.permitted))
    return fail(cannot("capabilities cannot be kept on the way", errno));
  // The result is checked, not assumed.
  uid_t uids[3];
  gid_t gids[3];
  if (getresuid(&uids[0], &uids[1], &uids[2]) != 0 || getresgid(&gids[0], &gids[1], &gids[2]) != 0)
    return fail(cannot("the ids afterwards are not known", errno));
  const bool same = uids[0] == rights.real_uid && uids[1] == rights.effective_uid && uids[2] == rights.saved_uid &&
                    gids[0] == rights.real_gid && gids[1] == rights.effective_gid && gids[2] == rights.saved_gid &&
                    own_groups() == rights.groups;
  if (!same) return fail(cannot("the ids are others afterwards", 0));
  return {};
}

}  // namespace

Result<void> take_on(const TargetRights& rights) {
  const auto own = own_capabilities();
  if (!own) return fail(cannot("the tool's own capabilities are not known", errno));
  if (own->permitted != 0 || getuid() != rights.real_uid || geteuid() != rights.effective_uid)
    if (auto done = take_on_ids(rights, *own); !done) return done;
  if (rights.user_namespace.is_open() && setns(rights.user_namespace.get(), CLONE_NEWUSER) != 0)
    return fail(cannot("its user namespace", errno));
  // The kernel refuses this without CAP_SETPCAP. Then the bounding set still grants nothing, as nothing is executed
  // from here on and no_new_privs is set below.
  for (int capability = 0; capability <= kMaxCapability; ++capability)
    if ((rights.bounding >> capability & 1) == 0) prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  // Not fewer than the process has, either: in a client without root's capabilities driver 580.159 crashed, and took
  // root's process down with it.
  const auto kept = own_capabilities();
  const std::uint64_t permitted = kept ? kept->permitted & rights.permitted : 0;
  if (permitted != rights.permitted) return fail(cannot("it has capabilities that this tool lacks", 0));
  if (!set_capabilities(permitted & rights.effective, permitted)) return fail(cannot("its capabilities", errno));
  if (prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return fail(cannot("no_new_privs", errno));
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail(cannot("it stays dumpable", errno));
  syscall(SYS_keyctl, kJoinSessionKeyring, nullptr);  // refused where the kernel has no keys
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  const auto left = own_capabilities();
  if (!left || left->inheritable != 0 || (left->permitted & ~rights.permitted) != 0 ||
      (left->effective & ~rights.effective) != 0)
    return fail(cannot("capabilities are left", 0));
  return {};
}

}  // namespace rankstacks::target
