// Threads that do not run while something is read, proved without stopping them.
//
//     count   registers               the reading                 count
//     ------------|---------------------------------------------------|----> time
//                 no processor: it stands in the kernel          the same count: it was given none meanwhile
//
// A thread changes nothing, neither memory nor its registers, unless it is given a processor. The kernel counts how
// often that happens: sched_info_arrive() raises sched_info.pcount at each switch to a thread, before the thread runs
// (kernel/sched/stats.h, called from prepare_task_switch() in kernel/sched/core.c); it is the third number of
// /proc/PID/task/TID/schedstat. The count does not rise while a thread stays on its processor. So the thread has to be
// off it once after the first count was read, which /proc/PID/task/TID/syscall shows: it has the numbers only of a
// thread that wait_task_inactive() has found switched out, before and after it copied them, with an unchanged number of
// switches (lib/syscall.c, task_current_syscall()). Of any other thread it says "running".
//
// If the kernel does not count (built without CONFIG_SCHED_INFO, or before Linux 5.14 with delay accounting switched
// off), the numbers of switches in /proc/PID/task/TID/status are compared instead. They are raised when a thread leaves
// its processor (kernel/sched/core.c, __schedule()), so it has to be off it at the end as well.
//
// Threads are created by threads of their process alone. So if the process has as many threads as were listed, after
// the last of them was seen off its processor, then there are no others until one of them runs. The same holds for its
// memory map and for exec. What is not a thread of the process is not covered, nor is it by a stop: devices, io_uring's
// workers, processes that share memory with it, and a child between vfork and exec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/file_descriptor.h"
#include "base/types.h"
#include "target/registers.h"

namespace rankstacks::target {

// How often a thread was given a processor, or has left it.
struct RunCount {
  enum class Of : std::uint8_t { kRuns, kSwitches } of = Of::kRuns;
  std::uint64_t count = 0;
  bool operator==(const RunCount&) const = default;
};

struct SeenThread {
  Tid tid = 0;
  RunCount count;
  // Of a thread without a processor: rsp and rip, in a system call also its number and arguments. std::nullopt: it
  // runs, or is about to.
  std::optional<Registers> registers;
  std::optional<Address> pointer;  // supposed_thread_pointer() of such a thread
  // Its schedstat, kept open so that the count can be read again by one system call: others may be held meanwhile.
  // nullptr: of too many threads.
  std::shared_ptr<const FileDescriptor> schedstat;
};

struct SeenThreads {
  std::vector<SeenThread> threads;  // those that still exist
  int refused = 0;                  // an errno: the kernel does not tell; `threads` is not to be used
};

// The following functions read /proc alone, and may wait there while the process executes a program.
//
// `before`: the same process, seen earlier. A thread that was given no processor since then stands where it did, which
// its count tells by one system call.
SeenThreads see_threads(Pid pid, const std::vector<Tid>& tids, const SeenThreads& before = {});

// Those of the threads that may have run since they were seen; threads that were running then are among them.
std::vector<Tid> ran_since(Pid pid, const SeenThreads& seen);

// The number of threads of a process, those that have ended and remain (a main thread) included; std::nullopt if it has
// ended.
std::optional<std::size_t> number_of_threads(Pid pid);

}  // namespace rankstacks::target
