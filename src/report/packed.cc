#include "report/packed.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>
#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>

namespace rankstacks::report {
namespace {

constexpr std::string_view kGzipMagic = "\x1f\x8b", kZstdMagic = "\x28\xb5\x2f\xfd";
constexpr int kGzipWindow = 15 + 16;  // zlib: the largest window, and a gzip header
constexpr std::size_t kChunk = std::size_t{1} << 20, kLeast = 256;

tl::unexpected<Error> refuse(ErrorCode code, const std::string& subject, std::string what, std::string hint = "") {
  return fail({.code = code, .subject = subject, .what = std::move(what), .hint = std::move(hint)});
}
tl::unexpected<Error> too_large(const std::string& subject, std::size_t limit) {
  return refuse(ErrorCode::kLimit, subject,
                fmt::format("too large: unpacks to more than {} bytes, the most that a saved report has", limit));
}
tl::unexpected<Error> damaged(const std::string& subject, std::string_view packing, std::string_view why) {
  return refuse(ErrorCode::kMalformed, subject, fmt::format("the {} data is damaged: {}", packing, why),
                "copy the file again, or have the report written again");
}

struct EndInflate {
  void operator()(z_stream* stream) const {
    inflateEnd(stream);
    delete stream;
  }
};

// Room for the next bytes: grows by what has been found, never by what the file states. One byte beyond the limit
// shows that there is more. `packed`: the bytes that are left to be unpacked; `stated`: into how many, 0 if unknown.
void make_room(std::string& out, std::size_t used, std::size_t packed, std::size_t limit, std::size_t stated = 0) {
  constexpr std::size_t kUsualRatio = 16;
  if (used != out.size()) return;
  std::size_t room = packed < kChunk / kUsualRatio ? std::max(packed, kLeast) * kUsualRatio : kChunk;
  if (used == 0 && stated != 0) room = std::min(room, stated);
  out.resize(std::min(std::max(room, 2 * used), limit + 1));
}

Result<std::string> gunzip(std::string_view bytes, std::size_t limit, const std::string& subject) {
  const std::unique_ptr<z_stream, EndInflate> stream(new z_stream{});
  if (inflateInit2(stream.get(), kGzipWindow) != Z_OK) return refuse(ErrorCode::kLimit, subject, "out of memory");
  std::string out;
  std::size_t used = 0;
  while (true) {
    make_room(out, used, bytes.size(), limit);
    const std::size_t in = std::min<std::size_t>(bytes.size(), std::numeric_limits<uInt>::max());
    const std::size_t room = std::min<std::size_t>(out.size() - used, std::numeric_limits<uInt>::max());
    stream->next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream->avail_in = static_cast<uInt>(in);
    stream->next_out = reinterpret_cast<Bytef*>(out.data() + used);
    stream->avail_out = static_cast<uInt>(room);
    const int status = inflate(stream.get(), Z_NO_FLUSH);
    const std::size_t taken = in - stream->avail_in, made = room - stream->avail_out;
    bytes.remove_prefix(taken);
    used += made;
    if (used > limit) return too_large(subject, limit);
    if (status == Z_STREAM_END) {
      while (bytes.starts_with('\0')) bytes.remove_prefix(1);  // tapes and block devices pad with zeros
      if (bytes.empty()) break;
      inflateReset(stream.get());
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      return damaged(subject, "gzip", stream->msg != nullptr ? stream->msg : "it cannot be read");
    } else if (taken == 0 && made == 0) {
      return damaged(subject, "gzip", "it ends too early");
    }
  }
  out.resize(used);
  return out;
}

struct FreeDecoder {
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

using Decoder = std::unique_ptr<ZSTD_DStream, FreeDecoder>;

// A decoder is kept for the next text: the answers of 16,000 nodes are small, and a decoder's memory is not.
class FreeDecoders {
 public:
  // nullptr: out of memory.
  Decoder take() {
    const std::lock_guard lock(mutex_);
    if (kept_) return std::exchange(kept_, nullptr);
    return Decoder(ZSTD_createDStream());
  }
  void give_back(Decoder decoder) {
    constexpr std::size_t kMaxKept = std::size_t{1} << 20;  // bytes; a large window is not for the next one
    if (ZSTD_sizeof_DStream(decoder.get()) > kMaxKept) return;
    ZSTD_DCtx_reset(decoder.get(), ZSTD_reset_session_only);
    const std::lock_guard lock(mutex_);
    kept_ = std::move(decoder);
  }

 private:
  std::mutex mutex_;
  Decoder kept_;
};

FreeDecoders& free_decoders() {
  static FreeDecoders decoders;
  return decoders;
}

Result<std::string> unzstd(std::string_view bytes, std::size_t limit, const std::string& subject) {
  Decoder decoder = free_decoders().take();
  ZSTD_DStream* const stream = decoder.get();
  if (stream == nullptr) return refuse(ErrorCode::kLimit, subject, "out of memory");
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};  // libzstd's own limit of a window is 128 MiB (ZSTD_d_windowLogMax)
  const unsigned long long stated = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  const bool is_stated = stated != ZSTD_CONTENTSIZE_UNKNOWN && stated != ZSTD_CONTENTSIZE_ERROR;
  std::string out;
  std::size_t used = 0;
  while (true) {
    make_room(out, used, in.size - in.pos, limit, is_stated ? stated : 0);
    const std::size_t before = in.pos;
    ZSTD_outBuffer room{out.data() + used, out.size() - used, 0};
    const std::size_t status = ZSTD_decompressStream(stream, &room, &in);
    if (ZSTD_isError(status) != 0) {
      if (ZSTD_getErrorCode(status) == ZSTD_error_frameParameter_windowTooLarge)
        return refuse(ErrorCode::kLimit, subject, "packed with a window of more than 128 MiB",
                      "unpack it on the way: zstd --long=31 -dc FILE | rankstacks report -");
      return damaged(subject, "zstd", ZSTD_getErrorName(status));
    }
    used += room.pos;
    if (used > limit) return too_large(subject, limit);
    if (status == 0 && in.pos == in.size) break;
    if (in.pos == before && room.pos == 0) return damaged(subject, "zstd", "it ends too early");
  }
  out.resize(used);
  free_decoders().give_back(std::move(decoder));
  return out;
}

Result<std::string> gzip(std::string_view text, const std::string& subject) {
  z_stream stream{};
  constexpr int kMemory = 8;  // zlib's default
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, kMemory, Z_DEFAULT_STRATEGY) != Z_OK)
    return refuse(ErrorCode::kLimit, subject, "out of memory");
  std::string out, chunk(kChunk, '\0');
  int status = Z_OK;
  while (status == Z_OK) {
    const std::size_t in = std::min<std::size_t>(text.size(), kChunk);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    status = deflate(&stream, in == text.size() ? Z_FINISH : Z_NO_FLUSH);
    text.remove_prefix(in - stream.avail_in);
    out.append(chunk, 0, chunk.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return out;
}

Result<std::string> zstd(std::string_view text, const std::string& subject) {
  constexpr int kLevel = 9;  // a report of 256 ranks: a third smaller than by level 3, in a second
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size = ZSTD_compress(out.data(), out.size(), text.data(), text.size(), kLevel);
  if (ZSTD_isError(size) != 0) return refuse(ErrorCode::kLimit, subject, ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

}  // namespace

Packing packing_of_name(std::string_view path) {
  return path.ends_with(".gz") ? Packing::kGzip : path.ends_with(".zst") ? Packing::kZstd : Packing::kNone;
}

Packing packing_of_bytes(std::string_view bytes) {
  return bytes.starts_with(kGzipMagic)   ? Packing::kGzip
         : bytes.starts_with(kZstdMagic) ? Packing::kZstd
                                         : Packing::kNone;
}

Result<std::string> pack(std::string_view text, Packing packing, const std::string& subject) {
  switch (packing) {
    case Packing::kNone: break;
    case Packing::kGzip: return gzip(text, subject);
    case Packing::kZstd: return zstd(text, subject);
  }
  return std::string(text);
}

Result<std::string> unpack(std::string bytes, std::size_t limit, const std::string& subject) {
  switch (packing_of_bytes(bytes)) {
    case Packing::kNone: break;
    case Packing::kGzip: return gunzip(bytes, limit, subject);
    case Packing::kZstd: return unzstd(bytes, limit, subject);
  }
  return bytes;
}

}  // namespace rankstacks::report
