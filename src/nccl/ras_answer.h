// The JSON document that NCCL's RAS answers with (NCCL, src/ras/client_support.cc, rasDumpCommsToJSON).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "model/snapshot.h"

namespace rankstacks::nccl {

// The text is untrusted: depth and number of values are bounded. A communicator must have its hash, and each member its
// rank and pid (else kMalformed); anything else may be missing, or be of a type that this program does not know, and
// then has its default. `subject`: the sender, for errors.
Result<NcclStatus> parse_ras_answer(std::string_view text, const std::string& subject);

}  // namespace rankstacks::nccl
