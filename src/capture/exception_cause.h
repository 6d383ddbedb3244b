// What an exception's text says of its cause. Texts of other projects are read here, once, and become a value: nothing
// behind the snapshot reads them.
#pragma once

#include <optional>
#include <string_view>

#include "model/snapshot.h"

namespace rankstacks {

// Of what PyTorch's watchdogs and their like die of; nothing: the text is none that is known, which tells nothing.
std::optional<ExceptionCause> cause_of(std::string_view what);

}  // namespace rankstacks
