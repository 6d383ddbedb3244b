// How a process has died, in words; and whether that is a cause of its own.
#pragma once

#include <string>
#include <string_view>

#include "model/snapshot.h"

namespace rankstacks::analyzers {

// Whether another process has sent the signal, as a launcher does when another rank has failed, and as a person does
// who takes cores of a job that hangs.
bool is_sent_by_another(const RankSnapshot& rank);

// Whether the thread ends its process by an exception that only reports what other ranks, or the other ends of its
// connections, have done.
bool reports_others(const ThreadSnapshot& thread);

// "at 0x10, in the first page: a null pointer with offset 16"; "" if the signal has no fault address.
std::string describe_fault(const SignalInfo& signal);

// "sent by pid 4711"; "" if the process has sent it itself, or if the sender is not known.
std::string describe_sender(const RankSnapshot& rank);

// The first line of what the C library said before it aborted the process; "" if it said nothing.
std::string first_line_of_abort(const RankSnapshot& rank);

// The first line of a text, cut at 320 bytes.
std::string first_line(std::string_view text);

}  // namespace rankstacks::analyzers
