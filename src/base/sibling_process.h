// Work in a process beside this one that shares everything with it but the thread group: memory, descriptors, directory, signal handlers.
//
// A process ends with the last of its threads, and one that the kernel does not let go (a page fault or a request to a file system that nobody answers) keeps
// it for ever, even beyond SIGKILL. A sibling does not: the tool can end, and be waited for, while the kernel keeps it. It ends with the tool
// (PR_SET_PDEATHSIG) as soon as the kernel has it back.
#pragma once

#include <functional>

namespace rankstacks {

// Returns when the work is done. Meanwhile the calling thread stands still in the kernel (CLONE_VFORK), and the work uses its stack and its thread-local variables. The thread's stack
// must have 64 KiB more than the work needs. Where no process is to be had, the thread does the work itself. If the work ends its process, so does this one, alike.
void in_sibling_process(const std::function<void()>& work);

}  // namespace rankstacks
