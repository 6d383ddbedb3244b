// What a packed file unpacks to, as a stream.
//
//     core.zst  --256 KiB-->  decoder  --up to 1 MiB-->  next()
//
// Decoding may begin anew at the beginning of any frame (member, stream) of the file: pzstd, `xz` with several streams
// and writers of the seekable format make many. Of that format the frames are known before anything is unpacked.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"

namespace rankstacks::target {

// kApport: a report of apport's (/var/crash/*.crash), a text whose field CoreDump is gzip data in lines of base64.
enum class Compression { kNone, kZstd, kLz4, kXz, kGzip, kApport };

std::string_view name_of(Compression compression);

// Determined by the first bytes of the file (at least 16, or all it has), never by its name.
Compression compression_of(std::string_view first_bytes);

// A frame of a packed file: where it begins there, and where what it unpacks to begins, in bytes.
struct PackedFrame {
  std::uint64_t packed = 0, unpacked = 0;
};

// The frames of a file in zstd's seekable format, as the table at its end says, and one for the end of what they unpack
// to; empty: it has no such table, or one that cannot be true.
std::vector<PackedFrame> seekable_frames(int packed, Compression compression);

class Decoder;

class PackedStream {
 public:
  static constexpr std::size_t kPiece = 1 << 20;
  static constexpr std::size_t kFirstBytes = 64;  // an ELF header: enough to refuse a file by
  // The largest size of what a file unpacks to: a few KB of zstd data can claim more zeros than this.
  static constexpr std::uint64_t kLargest = std::uint64_t{1} << 40;

  // `packed` has to stay open. Names in errors: `subject`.
  PackedStream(int packed, Compression compression, std::string subject);
  ~PackedStream();
  PackedStream(const PackedStream&) = delete;
  PackedStream& operator=(const PackedStream&) = delete;

  void go_to(PackedFrame frame);
  // The next bytes, at most `most` and kPiece; they are valid until the next call. Empty at the end: that of the file,
  // of what can be decoded, of the time, or of kLargest. damage() says why, unless it is the file's; a file that holds
  // nothing is damaged.
  std::span<const char> next(const Deadline& deadline, std::size_t most = kPiece);
  std::uint64_t offset() const {
    return unpacked_ + filled_;
  }  // of what next() will return, in what the file unpacks to
  const std::optional<Error>& damage() const { return damage_; }
  // Beginnings of frames that were passed, in order, at least kPiece apart; the first is that of the file.
  const std::vector<PackedFrame>& frames() const { return frames_; }

 private:
  bool read_input();
  void decode(std::size_t most);
  void note_frame();

  const int packed_;
  const Compression compression_;
  const std::string subject_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<char> in_, out_;
  std::span<const char> pending_;  // the part of `in_` that is not decoded yet
  std::uint64_t offset_ = 0;       // position of `pending_` in the packed file
  std::uint64_t unpacked_ = 0;     // position of `out_` in what it unpacks to
  std::size_t filled_ = 0;         // number of bytes in `out_`
  bool input_ended_ = false, ended_ = false;
  std::vector<PackedFrame> frames_{{}};
  std::optional<Error> damage_;
};

}  // namespace rankstacks::target
