// Runs work in a second process that shares everything with this one except the thread group: memory, descriptors,
// working directory, signal handlers.
//
// A process ends only when its last thread does, and a thread that the kernel does not release (a page fault, or a
// request to a file system that nobody answers) keeps the process alive forever, even after SIGKILL. A sibling process
// does not: the tool can exit, and be waited for, while the kernel holds the sibling. The sibling ends with the tool
// (PR_SET_PDEATHSIG) as soon as the kernel releases it.
#pragma once

#include <functional>

namespace rankstacks {
inline namespace base {

// Returns when the work is done. Meanwhile the calling thread is blocked in the kernel (CLONE_VFORK), and the work uses
// its stack and its thread-local variables. The stack needs 64 KiB more than the work itself. If no process can be
// created, the thread does the work itself. If the work terminates its process, this process terminates in the same
// way.
void in_sibling_process(const std::function<void()>& work);

}  // namespace base
}  // namespace rankstacks
