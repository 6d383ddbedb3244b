// The thread pointers (fs_base) of threads that are not stopped.
//
// /proc does not show the register. But glibc registers each thread's list of robust mutexes, whose head is a member of
// the thread's descriptor, and the thread pointer is the address of that descriptor: get_robust_list(2) returns the
// address of any thread's head, with the rights that reading its memory needs. The first and the third word of the
// descriptor are its own address (nptl/descr.h, tcbhead_t: `tcb` and `self`), which confirms it.
//
// musl registers the list only for a thread that locks a robust mutex, and Go never does: such thread pointers remain
// unknown.
#pragma once

#include <array>
#include <optional>

#include "base/types.h"

namespace rankstacks::target {

// The address that the descriptor of a thread has if it is glibc's; std::nullopt: the kernel does not tell, or the
// thread has registered nothing.
std::optional<Address> supposed_thread_pointer(Tid tid);

// The first words of a descriptor, which never change.
using DescriptorHead = std::array<Address, 3>;

// Whether the descriptor at this address, which begins so, has its own address in both places.
bool is_thread_descriptor(Address at, const DescriptorHead& head);

// Where glibc's descriptor has the thread's number, of the pid namespace of its process (2.17 to 2.42). The kernel sets
// it to 0 when the thread ends, and so does fork() in the child for the threads that the child does not have.
inline constexpr Address kTidInDescriptor = 720;

}  // namespace rankstacks::target
