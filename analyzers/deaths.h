// How a process has died, in words; and whether that is a cause of its own.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

// Whether another process has sent the signal, as a launcher does when another rank has failed, and as a person does
// who takes cores of a job that hangs.
bool is_sent_by_another(const RankSnapshot& rank);

// Of a thread that ends its process, or is about to, by an exception that only reports what other ranks, or the other
// ends of its connections, have done: which of these.
std::optional<ExceptionCause> cause_in_others(const ThreadSnapshot& thread);
bool reports_others(const ThreadSnapshot& thread);

// "at 0x10, in the first page: a null pointer with offset 16"; "" if the signal has no fault address.
std::string describe_fault(const SignalInfo& signal);

// "mov 0x10(%rax),%rdx with rax=0x0"; without a text, its bytes; "" if the instruction is not known.
std::string describe_instruction(const SignalInfo& signal);

// "sent by pid 4711 (rank 3), uid 1000"; of another process of the job its program in place of the rank. "" if the
// process has sent it itself, or if the sender is not known. Not sanitized.
std::string describe_sender(const JobSnapshot& job, const RankSnapshot& rank);

// Whether a handler was called for a fault, and has raised its signal again: the address, its place and the instruction
// are those of the fault, `code` and `sender` those of the signal that has ended the process.
bool is_reraised(const SignalInfo& signal);

// "raised again by faulthandler", or by another handler; "" if it is not.
std::string describe_reraise(const RankSnapshot& rank);

// "Python's faulthandler has written stacks to descriptor 2 (SIGSEGV)"; "" if it is not enabled.
std::string describe_faulthandler(const RankSnapshot& rank);

// ", and by the kernel's log pid 4711 (python3) was killed for lack of memory at ...", of what the log says of
// processes with the job's names (JobSnapshot::kernel_log); without such lines ", and the kernel has killed 1 process
// of the control group of rank 0 for lack of memory", by the counts of the control groups.
std::string describe_kernel_kills(const JobSnapshot& job);

// The same of one process, by its pid, else of the control group of the rank that it belongs to.
std::string describe_kernel_kills(const JobSnapshot& job, const RankSnapshot& process, std::size_t rank);

// The first line of what the C library said before it aborted the process; "" if it said nothing.
std::string first_line_of_abort(const RankSnapshot& rank);

// The first line of a text, cut at 320 bytes.
std::string first_line(std::string_view text);

}  // namespace rankstacks::analyzers
