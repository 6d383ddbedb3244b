// The notes of a core as the kernel writes them, for a process that was looked at while it ran on.
//
//     of the first thread   NT_PRSTATUS; the process's NT_PRPSINFO, NT_AUXV, NT_FILE; NT_FPREGSET, NT_X86_XSTATE
//     of each other         NT_PRSTATUS, NT_FPREGSET, NT_X86_XSTATE
//
// No signal has ended the process: pr_cursig is 0, and there is no NT_SIGINFO. Source: Linux fs/binfmt_elf.c,
// fill_note_info().
#pragma once

#include <span>
#include <vector>

#include "target/initial_block.h"
#include "target/live_target.h"

namespace rankstacks::small_core {

// /proc/PID/auxv; empty if it cannot be read.
target::AuxiliaryVector auxiliary_vector_of(Pid pid);

// `target`: captured, with its raw threads.
std::vector<std::byte> notes_of(const target::LiveTarget& target, const target::AuxiliaryVector& auxv);

// Appends all notes of `notes` but this tool's own: of a core that is made smaller.
void append_foreign_notes(std::vector<std::byte>& to, std::span<const std::byte> notes);

}  // namespace rankstacks::small_core
