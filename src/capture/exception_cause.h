// Determines the cause of an exception from its text. Texts of other projects are only interpreted here, and become an
// enumerator: no code that works on the snapshot interprets them.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "model/snapshot.h"

namespace rankstacks::capture {

// The cause, for texts of the exceptions that end a process through PyTorch's watchdogs and similar threads.
// std::nullopt if the text is not a known one, which proves nothing.
std::optional<ExceptionCause> cause_of(std::string_view what);

// That of a Python exception: of the first one of its chain, which the others follow from. Exceptions that programs
// handle in normal operation are passed over. `hidden`: what led to the last one of the chain, but is not shown.
std::optional<ExceptionCause> cause_of(const HandledException& exception,
                                       std::span<const ChainedException> hidden = {});

}  // namespace rankstacks::capture
