// Reports packed by gzip (RFC 1952) or zstd (RFC 8878): a report of 4,096 ranks is hundreds of megabytes as text, and a
// few packed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace rankstacks::report {

enum class Packing { kNone, kGzip, kZstd };

Packing packing_of_name(std::string_view path);    // by its ending: ".gz", ".zst"
Packing packing_of_bytes(std::string_view bytes);  // by its first bytes

// kLimit, if zlib or libzstd cannot get the memory that they need.
Result<std::string> pack(std::string_view text, Packing packing, const std::string& subject);

// Unpacks all members (frames) of a file; bytes that are not packed are returned as they are. The input is untrusted:
// kLimit, if it unpacks to more than `limit` bytes (no more are unpacked, and no size that it states is believed), or
// wants a window of more than 128 MiB; kMalformed, if it is damaged or cut off.
Result<std::string> unpack(std::string bytes, std::size_t limit, const std::string& subject);

}  // namespace rankstacks::report
