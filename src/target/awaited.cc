#include "target/awaited.h"

#include <asm/unistd_64.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <algorithm>
#include <iterator>
#include <utility>

namespace rankstacks::target {
namespace {

using What = Awaited::What;

// Calls that wait on their first argument.
struct Call {
  int number;
  What what;
};
constexpr Call kCalls[] = {
    {__NR_read, What::kInput},          {__NR_readv, What::kInput},       {__NR_recvfrom, What::kInput},
    {__NR_recvmsg, What::kInput},       {__NR_recvmmsg, What::kInput},    {__NR_write, What::kOutput},
    {__NR_writev, What::kOutput},       {__NR_sendto, What::kOutput},     {__NR_sendmsg, What::kOutput},
    {__NR_sendmmsg, What::kOutput},     {__NR_vmsplice, What::kOutput},   {__NR_sendfile, What::kOutput},
    {__NR_connect, What::kOutput},      {__NR_epoll_wait, What::kEvents}, {__NR_epoll_pwait, What::kEvents},
    {__NR_epoll_pwait2, What::kEvents}, {__NR_flock, What::kFlock}};

struct Polled {
  int fd = -1;
  What what = What::kInput;
};

std::optional<Polled> only_polled(const Target& target, Address fds, std::uint64_t count) {
  constexpr std::uint64_t kMax = 64;  // most of them are -1, which poll() ignores
  if (count > kMax) return std::nullopt;
  std::optional<Polled> only;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto entry = target.read_value<pollfd>(fds + i * sizeof(pollfd));
    if (!entry) return std::nullopt;
    if (entry->fd < 0) continue;
    if (only) return std::nullopt;
    only = Polled{entry->fd, (entry->events & (POLLIN | POLLPRI | POLLRDNORM)) == 0 &&
                                     (entry->events & (POLLOUT | POLLWRNORM)) != 0
                                 ? What::kOutput
                                 : What::kInput};
  }
  return only;
}

// Of the three sets of select(): for reading, for writing, for exceptions.
std::optional<Polled> only_selected(const Target& target, const Registers& r) {
  constexpr std::uint64_t kMax = 1024, kBits = 64;  // FD_SETSIZE
  const std::uint64_t count = r[kRdi];
  if (count > kMax) return std::nullopt;
  std::optional<Polled> only;
  for (const auto& [set, what] :
       {std::pair(r[kRsi], What::kInput), {r[kRdx], What::kOutput}, {r[kR10], What::kInput}}) {
    for (std::uint64_t word = 0; set != 0 && word * kBits < count; ++word) {
      auto bits = target.read_value<std::uint64_t>(set + word * sizeof(std::uint64_t));
      if (!bits) return std::nullopt;
      if (count - word * kBits < kBits) *bits &= (std::uint64_t{1} << (count - word * kBits)) - 1;
      if (*bits == 0) continue;
      const int fd = static_cast<int>(word * kBits) + __builtin_ctzll(*bits);
      if ((*bits & (*bits - 1)) != 0 || (only && only->fd != fd)) return std::nullopt;
      if (!only) only = Polled{fd, what};
    }
  }
  return only;
}

std::optional<Awaited> with_descriptor(What what, int fd) {
  return fd >= 0 ? std::optional(Awaited{.what = what, .fd = fd}) : std::nullopt;
}

// wait4(2) and waitid(2) wait for one child, given by its number or by a pidfd (which becomes readable when it has
// ended), or for any child.
std::optional<Awaited> awaited_child(int number, const Registers& r) {
  constexpr std::uint64_t kByDescriptor = 3;  // P_PIDFD, include/uapi/linux/wait.h
  const int id = static_cast<int>(number == __NR_wait4 ? r[kRdi] : r[kRsi]);
  if (number == __NR_waitid && r[kRdi] == kByDescriptor) return with_descriptor(What::kInput, id);
  if (number == __NR_waitid ? r[kRdi] == P_ALL : id == -1) return Awaited{.what = What::kAnyChild};
  if ((number == __NR_waitid && r[kRdi] != P_PID) || id <= 0) return std::nullopt;
  return Awaited{.what = What::kChild, .child = id};
}

std::optional<Awaited> by_arguments(const Target& target, const Registers& r, int number) {
  const int fd = static_cast<int>(r[kRdi]);
  if (number == __NR_wait4 || number == __NR_waitid) return awaited_child(number, r);
  if (number == __NR_fcntl && r[kRsi] == F_SETLKW) return with_descriptor(What::kRecordLock, fd);
  constexpr std::uint64_t kSetOpenFileLockAndWait = 38;  // F_OFD_SETLKW, include/uapi/asm-generic/fcntl.h
  if (number == __NR_fcntl && r[kRsi] == kSetOpenFileLockAndWait) return with_descriptor(What::kOpenFileLock, fd);
  if (number == __NR_poll || number == __NR_ppoll || number == __NR_select || number == __NR_pselect6) {
    const bool polls = number == __NR_poll || number == __NR_ppoll;
    const auto only = polls ? only_polled(target, r[kRdi], r[kRsi]) : only_selected(target, r);
    return only ? with_descriptor(only->what, only->fd) : std::nullopt;
  }
  const auto* call =
      std::find_if(std::begin(kCalls), std::end(kCalls), [&](const Call& c) { return c.number == number; });
  return call != std::end(kCalls) ? with_descriptor(call->what, fd) : std::nullopt;
}

}  // namespace

std::optional<Awaited> awaited_by(const Target& target, const Registers& r, const SyscallInfo& call) {
  auto awaited = by_arguments(target, r, call.number);
  if (!awaited) return std::nullopt;
  awaited->number = call.number;
  awaited->first_argument = r[kRdi];
  return awaited;
}

}  // namespace rankstacks::target
