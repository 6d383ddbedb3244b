#include "target/syscalls.h"

#include <asm/unistd_64.h>
#include <fmt/format.h>
#include <poll.h>
#include <algorithm>
#include <array>
#include <cstring>

namespace rankstacks::target {
namespace {

struct Name {
  int number;
  const char* name;
};
constexpr Name kNames[] = {
#include "target/syscall_names.inc"
};

// Calls whose first argument is the file descriptor they work on.
constexpr int kFdFirst[] = {
    __NR_read,      __NR_write,           __NR_pread64,   __NR_pwrite64,   __NR_readv,       __NR_writev,
    __NR_preadv,    __NR_pwritev,         __NR_preadv2,   __NR_pwritev2,   __NR_ioctl,       __NR_fsync,
    __NR_fdatasync, __NR_sync_file_range, __NR_ftruncate, __NR_fallocate,  __NR_flock,       __NR_fcntl,
    __NR_lseek,     __NR_close,           __NR_fstat,     __NR_getdents,   __NR_getdents64,  __NR_accept,
    __NR_accept4,   __NR_connect,         __NR_recvfrom,  __NR_recvmsg,    __NR_recvmmsg,    __NR_sendto,
    __NR_sendmsg,   __NR_sendmmsg,        __NR_shutdown,  __NR_epoll_wait, __NR_epoll_pwait, __NR_epoll_pwait2,
    __NR_syncfs,    __NR_readahead,       __NR_vmsplice,  __NR_splice,     __NR_tee,         __NR_io_uring_enter};

// What the kernel leaves in rax while a blocked call is interrupted: ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND,
// ERESTART_RESTARTBLOCK (include/linux/errno.h), or EINTR for calls that do not restart.
bool interrupted(const Registers& r) {
  const auto rax = static_cast<std::int64_t>(r[kRax]);
  return rax == -512 || rax == -513 || rax == -514 || rax == -516 || rax == -4;
}

// A call that was interrupted once shows up as restart_syscall from then on. The code shows which call it was: mov
// $NR,%eax; syscall.
int number_of(const Target& target, const Registers& r) {
  const int number = static_cast<int>(r.orig_rax);
  if (number != __NR_restart_syscall) return number;
  std::array<std::uint8_t, 7> code;
  if (!target.read_exact(r.pc() - code.size(), std::as_writable_bytes(std::span(code)))) return number;
  if (code[0] != 0xb8 || code[5] != 0x0f || code[6] != 0x05) return number;
  std::int32_t loaded;
  std::memcpy(&loaded, &code[1], 4);
  return loaded >= 0 ? loaded : number;
}

std::optional<int> first_polled(const Target& target, Address fds, std::uint64_t count) {
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(count, 64); ++i)
    if (const auto entry = target.read_value<pollfd>(fds + i * sizeof(pollfd)); entry && entry->fd >= 0)
      return entry->fd;
  return std::nullopt;
}

// The lowest descriptor of the first of select()'s sets that is not empty.
std::optional<int> first_selected(const Target& target, const Registers& r) {
  const std::uint64_t count = std::min<std::uint64_t>(r[kRdi], 1024);
  for (const Address set : {r[kRsi], r[kRdx], r[kR10]}) {
    for (std::uint64_t word = 0; set != 0 && word * 64 < count; ++word)
      if (const auto bits = target.read_value<std::uint64_t>(set + word * 8); bits && *bits != 0)
        return static_cast<int>(word * 64 + __builtin_ctzll(*bits));
  }
  return std::nullopt;
}

}  // namespace

bool is_spoiled_by_stop(int number) {
  constexpr std::array kSpoiled = {__NR_io_getevents, __NR_io_pgetevents, __NR_semop, __NR_semtimedop};
  return std::find(kSpoiled.begin(), kSpoiled.end(), number) != kSpoiled.end();
}

const char* syscall_name(int number) {
  const auto* it =
      std::lower_bound(std::begin(kNames), std::end(kNames), number, [](const Name& n, int x) { return n.number < x; });
  return it != std::end(kNames) && it->number == number ? it->name : nullptr;
}

std::optional<SyscallInfo> blocked_syscall(const Target& target, const Registers& r) {
  if (r.orig_rax < 0 || !interrupted(r)) return std::nullopt;
  SyscallInfo info;
  info.number = number_of(target, r);
  const char* name = syscall_name(info.number);
  info.name = name != nullptr ? name : fmt::format("syscall_{}", info.number);
  if (std::find(std::begin(kFdFirst), std::end(kFdFirst), info.number) != std::end(kFdFirst))
    info.fd = static_cast<int>(r[kRdi]);
  if (info.number == __NR_poll || info.number == __NR_ppoll) info.fd = first_polled(target, r[kRdi], r[kRsi]);
  if (info.number == __NR_select || info.number == __NR_pselect6) info.fd = first_selected(target, r);
  return info;
}

std::optional<Address> futex_address(const Target& target, const Registers& r) {
  if (r.orig_rax < 0 || !interrupted(r) || number_of(target, r) != __NR_futex) return std::nullopt;
  return r[kRdi];
}

std::optional<Address> possible_futex_address(const Target& target, const Registers& r) {
  if (const auto futex = futex_address(target, r)) return futex;
  const bool unknown =
      r.orig_rax == __NR_restart_syscall && interrupted(r) && number_of(target, r) == __NR_restart_syscall;
  return unknown ? std::optional<Address>(r[kRdi]) : std::nullopt;
}

}  // namespace rankstacks::target
