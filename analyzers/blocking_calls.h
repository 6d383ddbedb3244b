// The purposes of the calls in which threads are blocked: system calls and functions of the C library, by their
// public names.
#pragma once

#include <array>
#include <string_view>

namespace rankstacks::analyzers {

inline constexpr std::array<std::string_view, 49> kFileCalls = {
    "read",         "write",      "pread",    "pwrite",          "pread64",   "pwrite64",
    "readv",        "writev",     "preadv",   "pwritev",         "preadv2",   "pwritev2",
    "open",         "openat",     "openat2",  "creat",           "close",     "fsync",
    "fdatasync",    "sync",       "syncfs",   "sync_file_range", "stat",      "lstat",
    "fstat",        "newfstatat", "statx",    "access",          "faccessat", "getdents",
    "getdents64",   "unlink",     "unlinkat", "rename",          "renameat",  "renameat2",
    "mkdir",        "mkdirat",    "flock",    "fallocate",       "truncate",  "copy_file_range",
    "ftruncate",    "msync",      "fcntl",    "fcntl64",         "lockf",     "io_getevents",
    "io_pgetevents"};
inline constexpr std::array<std::string_view, 13> kSocketCalls = {
    "connect", "accept", "accept4", "recv",     "recvfrom",    "recvmsg", "recvmmsg",
    "send",    "sendto", "sendmsg", "sendmmsg", "getpeername", "shutdown"};
inline constexpr std::array<std::string_view, 4> kWaitCalls = {"wait4", "waitid", "waitpid", "wait"};
inline constexpr std::array<std::string_view, 9> kMutexCalls = {
    "pthread_mutex_lock",      "lll_lock_wait",           "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",   "pthread_mutex_timedlock", "pthread_spin_lock",
    "pthread_mutex_clocklock", "lll_lock_wait_private",   "pthread_mutex_cond_lock"};
inline constexpr std::array<std::string_view, 4> kPollCalls = {"poll", "ppoll", "select", "pselect6"};
inline constexpr std::array<std::string_view, 4> kSleepCalls = {"nanosleep", "clock_nanosleep", "sleep", "usleep"};

}  // namespace rankstacks::analyzers
