// Compressed cores, unpacked as a stream into a file that has no name and whose zero pages are holes.
//
//     core.zst  --256 KiB-->  decoder  --1 MiB-->  pages: all zero? skip : pwrite  -->  unlinked file in $TMPDIR or /tmp
//
// A core of 420 MB that is mostly untouched memory takes a few MB there. Nothing is read whole.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/result.h"
#include "base/file_descriptor.h"

namespace rankstacks {

enum class Compression { kNone, kZstd, kLz4, kXz, kGzip };

std::string_view name_of(Compression compression);

// By the first bytes of the file (at least 6, or as many as it has), never by its name.
Compression compression_of(std::string_view first_bytes);

struct Unpacked {
  FileDescriptor file;               // unlinked: gone when closed
  std::uint64_t size = 0;
  std::optional<Error> damage;       // the stream broke off: what was there before it is in the file
};

// Bounds: the free space of the temporary directory less a twentieth, for what is not zero; 1 TiB for the size with holes.
// `refuse` sees the first bytes that come out (64, or all there are) and may end it there with an error.
// At the deadline it ends as if the stream had broken off there.
// Errors: the temporary file cannot be made, or nothing at all comes out.
using FirstBytesCheck = std::optional<Error> (*)(std::string_view first_bytes, const std::string& subject);
Result<Unpacked> unpack(int compressed, Compression compression, const std::string& subject, FirstBytesCheck refuse,
                        const Deadline& deadline = Deadline::never());

}  // namespace rankstacks
