#include "dumps/native_frame.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"

namespace rankstacks::dumps {
namespace {

constexpr std::string_view kLibc = "libc.so.6", kPython = "python3";

// glibc's own paths, relative to where it was built (glibc 2.3x as Debian, Fedora and Ubuntu build it).
constexpr std::array<std::string_view, 12> kLibcSources = {"../sysdeps/", "./nptl/",  "../csu/",   "./io/",
                                                           "./misc/",     "./posix/", "./time/",   "./socket/",
                                                           "./stdlib/",   "./libio/", "./malloc/", "./signal/"};

// Functions in which a thread blocks or begins; the underscores at the beginning of glibc's inner names are left out.
constexpr std::array<std::string_view, 58> kLibcFunctions = {"accept",
                                                             "accept4",
                                                             "clock_nanosleep",
                                                             "clone",
                                                             "clone3",
                                                             "close",
                                                             "connect",
                                                             "epoll_pwait",
                                                             "epoll_wait",
                                                             "fcntl",
                                                             "fdatasync",
                                                             "flock",
                                                             "fsync",
                                                             "futex_wait",
                                                             "getrandom",
                                                             "ioctl",
                                                             "kill",
                                                             "lll_lock_wait",
                                                             "lll_lock_wait_private",
                                                             "lockf",
                                                             "msync",
                                                             "nanosleep",
                                                             "open",
                                                             "open64",
                                                             "openat",
                                                             "pause",
                                                             "poll",
                                                             "ppoll",
                                                             "pread",
                                                             "pread64",
                                                             "pselect",
                                                             "pwrite",
                                                             "pwrite64",
                                                             "raise",
                                                             "read",
                                                             "readv",
                                                             "recv",
                                                             "recvfrom",
                                                             "recvmsg",
                                                             "sched_yield",
                                                             "select",
                                                             "send",
                                                             "sendmsg",
                                                             "sendto",
                                                             "sigsuspend",
                                                             "sigwait",
                                                             "sigwaitinfo",
                                                             "sleep",
                                                             "start_thread",
                                                             "syscall",
                                                             "usleep",
                                                             "wait4",
                                                             "waitid",
                                                             "waitpid",
                                                             "write",
                                                             "writev",
                                                             "abort",
                                                             "sync"};
constexpr std::array<std::string_view, 6> kLibcPrefixes = {"pthread_", "futex_abstimed_wait", "libc_start_",
                                                           "sem_",     "internal_syscall_",   "syscall_cancel"};
constexpr std::array<std::string_view, 7> kPythonPrefixes = {"Py_Run",    "Py_Bytes",   "PyEval_",  "_PyEval_",
                                                             "PyObject_", "_PyObject_", "PyThread_"};

template <std::size_t N>
bool begins_with_one_of(std::string_view text, const std::array<std::string_view, N>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view p) { return text.starts_with(p); });
}

bool is_of_libc(std::string_view function) {
  if (contains(function, "@GLIBC")) return true;
  if (contains(function, "::")) return false;
  function = function.substr(0, function.find_first_of("@("));
  function.remove_prefix(std::min(function.find_first_not_of('_'), function.size()));
  for (const std::string_view inner : {"GI_", "libc_", "new_"})
    if (function.starts_with(inner) && !function.starts_with("libc_start")) function.remove_prefix(inner.size());
  function.remove_prefix(std::min(function.find_first_not_of('_'), function.size()));
  return begins_with_one_of(function, kLibcPrefixes) ||
         std::find(kLibcFunctions.begin(), kLibcFunctions.end(), function) != kLibcFunctions.end();
}

bool is_interpreter_function(std::string_view function) { return begins_with_one_of(function, kPythonPrefixes); }

std::string_view module_by_name(const Frame& frame) {
  if (frame.file && begins_with_one_of(*frame.file, kLibcSources)) return kLibc;
  if (!frame.function) return {};
  // A file that is not glibc's: a function of the program that has the name of one of glibc's.
  if (!frame.file && is_of_libc(*frame.function)) return kLibc;
  return is_interpreter_function(*frame.function) ? kPython : std::string_view();
}

using ModuleAt = std::map<Address, std::string>;

std::string module_between(const ModuleAt& known, Address address) {
  const auto above = known.lower_bound(address);
  if (above == known.end() || above == known.begin()) return {};
  return above->second == std::prev(above)->second ? above->second : std::string();
}

// Calls f with every native frame; f returns the module that the frame is to have.
template <class F>
void set_modules(FrameTable& frames, RankSnapshot& rank, F&& f) {
  for (ThreadSnapshot& thread : rank.threads)
    for (FrameId& id : thread.frames.edit()) {
      if (frames[id].kind != FrameKind::kNative || !frames[id].module.empty()) continue;
      Frame named = frames[id];
      named.module = f(named);
      if (!named.module.empty()) id = frames.intern(std::move(named));
    }
}

}  // namespace

void name_modules(FrameTable& frames, RankSnapshot& rank) {
  ModuleAt known;
  set_modules(frames, rank, [](const Frame& frame) { return std::string(module_by_name(frame)); });
  for (const ThreadSnapshot& thread : rank.threads)
    for (const FrameId id : thread.frames) {
      const Frame& frame = frames[id];
      if (frame.kind != FrameKind::kNative) continue;
      if (frame.address != 0 && !frame.module.empty()) known.emplace(frame.address, frame.module);
      if (frame.function && is_interpreter_function(*frame.function) && !rank.python_version) rank.python_version = "";
    }
  set_modules(frames, rank, [&](const Frame& frame) { return module_between(known, frame.address); });
}

}  // namespace rankstacks::dumps
