// Unpacks GPU cores and archives as a stream into an unlinked file, in which zero pages are holes. Cores of processes:
// packed_core.h.
//
//     core.zst  --256 KiB-->  decoder  --1 MiB-->  pages: all zero? skip : pwrite  -->  unlinked file in $TMPDIR or
//     /tmp
//
// A core of 420 MB that is mostly untouched memory takes a few MB there. No file is read as a whole.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/result.h"
#include "target/packed_stream.h"

namespace rankstacks::target {

struct Unpacked {
  FileDescriptor file;  // unlinked: gone when closed
  std::uint64_t size = 0;
  std::optional<Error> damage;  // the stream is broken: the file has what came before the damage
};

// Limits: the free space of the temporary directory minus a twentieth, for nonzero pages; 1 TiB for the size with
// holes. `refuse` is called with the first bytes that are unpacked (64, or all there are) and may stop the unpacking
// with an error. At the deadline the unpacking ends as if the stream were cut off there. Errors: the temporary file
// cannot be made, or no bytes at all can be unpacked.
using FirstBytesCheck = std::optional<Error> (*)(std::string_view first_bytes, const std::string& subject);
Result<Unpacked> unpack(int compressed, Compression compression, const std::string& subject, FirstBytesCheck refuse,
                        const Deadline& deadline = Deadline::never());

}  // namespace rankstacks::target
