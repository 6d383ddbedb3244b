#include "target/packed_stream.h"

#include <fmt/format.h>
#include <lz4frame.h>
#include <lzma.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "elf/bytes.h"

namespace rankstacks::target {

// Wraps one of the four libraries. A stream may be a sequence of frames (members): at_end() is true between them.
class Decoder {
 public:
  struct Step {
    std::size_t consumed = 0;
    std::size_t produced = 0;
    std::string error;  // empty: no error
  };
  virtual ~Decoder() = default;
  virtual Step decode(std::span<const char> in, std::span<char> out) = 0;
  bool at_end() const { return at_end_; }
  // Input that was consumed and is not decoded yet.
  virtual bool has_more() const { return false; }

 protected:
  bool at_end_ = false;
};

namespace {

constexpr std::size_t kInput = 256 << 10;
constexpr std::uint64_t kMaxXzMemory = std::uint64_t{512} << 20;  // xz -9 needs 65 MB to unpack

class ZstdDecoder final : public Decoder {
 public:
  Step decode(std::span<const char> in, std::span<char> out) override {
    ZSTD_inBuffer source{in.data(), in.size(), 0};
    ZSTD_outBuffer target{out.data(), out.size(), 0};
    const std::size_t result = ZSTD_decompressStream(context_.get(), &target, &source);
    Step step{source.pos, target.pos, {}};
    if (ZSTD_isError(result) != 0) step.error = ZSTD_getErrorName(result);
    else if (source.pos > 0 || target.pos > 0) at_end_ = result == 0;
    return step;
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* s) const { ZSTD_freeDStream(s); }
  };
  std::unique_ptr<ZSTD_DStream, Free> context_{ZSTD_createDStream()};
};

class Lz4Decoder final : public Decoder {
 public:
  Lz4Decoder() {
    LZ4F_dctx* context = nullptr;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)) == 0) context_.reset(context);
  }
  Step decode(std::span<const char> in, std::span<char> out) override {
    if (!context_) return {0, 0, "out of memory"};
    std::size_t consumed = in.size(), produced = out.size();
    const std::size_t result = LZ4F_decompress(context_.get(), out.data(), &produced, in.data(), &consumed, nullptr);
    if (LZ4F_isError(result) != 0) return {0, 0, LZ4F_getErrorName(result)};
    if (consumed > 0 || produced > 0) at_end_ = result == 0;
    return {consumed, produced, {}};
  }

 private:
  struct Free {
    void operator()(LZ4F_dctx* c) const { LZ4F_freeDecompressionContext(c); }
  };
  std::unique_ptr<LZ4F_dctx, Free> context_;
};

class XzDecoder final : public Decoder {
 public:
  ~XzDecoder() override { lzma_end(&stream_); }
  Step decode(std::span<const char> in, std::span<char> out) override {
    if (!started_ || at_end_) {
      // Several streams may follow each other, with padding of zeros between them (.xz file format, 2.2).
      std::size_t padding = 0;
      while (started_ && padding < in.size() && in[padding] == 0) ++padding;
      if (padding > 0) return {padding, 0, {}};
      if (in.empty()) return {};
      if (lzma_stream_decoder(&stream_, kMaxXzMemory, 0) != LZMA_OK) return {0, 0, "out of memory"};
      started_ = true;
      at_end_ = false;
    }
    stream_.next_in = reinterpret_cast<const std::uint8_t*>(in.data());
    stream_.avail_in = in.size();
    stream_.next_out = reinterpret_cast<std::uint8_t*>(out.data());
    stream_.avail_out = out.size();
    const lzma_ret result = lzma_code(&stream_, LZMA_RUN);
    Step step{in.size() - stream_.avail_in, out.size() - stream_.avail_out, {}};
    if (result == LZMA_STREAM_END) at_end_ = true;
    else if (result == LZMA_MEMLIMIT_ERROR) step.error = "it needs more than 512 MiB of memory to unpack";
    else if (result != LZMA_OK && result != LZMA_BUF_ERROR) step.error = "damaged data";
    return step;
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool started_ = false;
};

class GzipDecoder final : public Decoder {
 public:
  ~GzipDecoder() override {
    if (started_) inflateEnd(&stream_);
  }
  Step decode(std::span<const char> in, std::span<char> out) override {
    if (!started_) {
      // 15: the largest window; +16: a gzip header.
      if (inflateInit2(&stream_, 15 + 16) != Z_OK) return {0, 0, "out of memory"};
      started_ = true;
    } else if (at_end_) {
      std::size_t padding = 0;  // tar and tapes leave zeros after the last member
      while (padding < in.size() && in[padding] == 0) ++padding;
      if (padding > 0) return {padding, 0, {}};
      if (in.empty()) return {};
      inflateReset(&stream_);
      at_end_ = false;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    const int result = inflate(&stream_, Z_NO_FLUSH);
    Step step{in.size() - stream_.avail_in, out.size() - stream_.avail_out, {}};
    if (result == Z_STREAM_END) at_end_ = true;
    else if (result != Z_OK && result != Z_BUF_ERROR)
      step.error = stream_.msg != nullptr ? stream_.msg : "damaged data";
    return step;
  }

 private:
  z_stream stream_{};
  bool started_ = false;
};

// Finds the field CoreDump in the text, and takes the base64 off its lines. Each line is encoded for itself and may end
// in
// '='; what they hold, one after the other, is one gzip stream (apport, problem_report.py, ProblemReport.write).
class ApportDecoder final : public Decoder {
 public:
  Step decode(std::span<const char> in, std::span<char> out) override {
    std::size_t taken = 0;
    if (packed_.empty()) {
      while (taken < in.size() && packed_buffer_.size() < kPiece) take(in[taken++]);
      packed_ = packed_buffer_;
    }
    if (packed_.empty())
      return {taken, 0, in.empty() && !found_ ? "it has no field \"CoreDump: base64\"" : std::string()};
    Step step = gzip_.decode(packed_, out);
    at_end_ = gzip_.at_end();
    if (step.error.empty() && step.consumed == 0 && step.produced == 0 && !out.empty())
      step.error = at_end_ ? "data behind the end of the core" : "damaged data";
    packed_ = packed_.subspan(step.consumed);
    if (packed_.empty()) packed_buffer_.clear();
    step.consumed = taken;
    return step;
  }
  bool has_more() const override { return !packed_.empty(); }

 private:
  static constexpr std::size_t kPiece = 64 << 10;
  static constexpr std::string_view kField = "CoreDump: base64";

  void take(char c) {
    if (c == '\n') {
      if (in_field_ && column_ == 0) in_field_ = false;
      if (!in_field_ && !found_ && head_ == kField) in_field_ = found_ = true;
      head_.clear();
      column_ = bits_ = 0;
      return;
    }
    if (column_++ == 0) {
      // A field's further lines begin with a blank.
      if (c != ' ') in_field_ = false;
      skips_ = c == ' ';
    }
    if (in_field_) return take_digit(c);
    if (!skips_ && head_.size() <= kField.size()) head_ += c;
  }

  void take_digit(char c) {
    static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return;  // the blank in front, '=' and '\r' at the end
    value_ = value_ << 6 | static_cast<std::uint32_t>(digit);
    bits_ += 6;
    if (bits_ < 8) return;
    bits_ -= 8;
    packed_buffer_ += static_cast<char>(value_ >> bits_ & 0xff);
  }

  GzipDecoder gzip_;
  std::string head_, packed_buffer_;
  std::span<const char> packed_;  // the part of `packed_buffer_` that is not unpacked yet
  bool found_ = false, in_field_ = false, skips_ = false;
  std::size_t column_ = 0;
  std::uint32_t value_ = 0, bits_ = 0;
};

std::unique_ptr<Decoder> make_decoder(Compression compression) {
  switch (compression) {
    case Compression::kZstd: return std::make_unique<ZstdDecoder>();
    case Compression::kLz4: return std::make_unique<Lz4Decoder>();
    case Compression::kXz: return std::make_unique<XzDecoder>();
    case Compression::kGzip: return std::make_unique<GzipDecoder>();
    case Compression::kApport: return std::make_unique<ApportDecoder>();
    case Compression::kNone: break;
  }
  return nullptr;
}
}  // namespace

std::string_view name_of(Compression compression) {
  switch (compression) {
    case Compression::kZstd: return "zstd";
    case Compression::kLz4: return "lz4";
    case Compression::kXz: return "xz";
    case Compression::kGzip: return "gzip";
    case Compression::kApport: return "apport";
    case Compression::kNone: break;
  }
  return "none";
}

Compression compression_of(std::string_view first_bytes) {
  using namespace std::string_view_literals;
  if (first_bytes.starts_with("\x28\xb5\x2f\xfd"sv)) return Compression::kZstd;  // RFC 8878, 3.1.1
  // pzstd: a skippable frame of 4 bytes (3.1.2) before each frame.
  constexpr std::size_t kPzstdHeader = 12;
  if (first_bytes.size() > kPzstdHeader && first_bytes.starts_with("\x50\x2a\x4d\x18\x04\0\0\0"sv))
    return compression_of(first_bytes.substr(kPzstdHeader));
  if (first_bytes.starts_with("\x04\x22\x4d\x18"sv)) return Compression::kLz4;  // LZ4 frame format, magic 0x184D2204
  if (first_bytes.starts_with("\xfd"
                              "7zXZ\0"sv))
    return Compression::kXz;                                                  // the .xz file format, 2.1.1.1
  if (first_bytes.starts_with("\x1f\x8b"sv)) return Compression::kGzip;       // RFC 1952, 2.3.1
  if (first_bytes.starts_with("ProblemType: ")) return Compression::kApport;  // apport writes it first
  return Compression::kNone;
}

PackedStream::PackedStream(int packed, Compression compression, std::string subject)
    : packed_(packed),
      compression_(compression),
      subject_(std::move(subject)),
      decoder_(make_decoder(compression)),
      in_(kInput),
      out_(kPiece) {}

PackedStream::~PackedStream() = default;

void PackedStream::go_to(PackedFrame frame) {
  decoder_ = make_decoder(compression_);
  pending_ = {};
  offset_ = frame.packed;
  unpacked_ = frame.unpacked;
  filled_ = 0;
  input_ended_ = ended_ = false;
  damage_.reset();
}

std::span<const char> PackedStream::next(const Deadline& deadline, std::size_t most) {
  most = std::min(most, out_.size());
  unpacked_ += std::exchange(filled_, 0);
  while (!damage_ && !ended_ && filled_ < most) {
    if (deadline.passed()) {
      damage_ =
          Error{.code = ErrorCode::kTimeout,
                .subject = subject_,
                .what = fmt::format("unpacking was given up after {} MiB, as the time for it (--timeout) was over",
                                    (unpacked_ + filled_) >> 20),
                .hint = "give it more time with --timeout, or unpack it yourself"};
      break;
    }
    if (pending_.empty() && !input_ended_ && !read_input()) break;
    decode(most);
  }
  if (!damage_ && unpacked_ + filled_ > kLargest)
    damage_ = Error{.code = ErrorCode::kLimit,
                    .subject = subject_,
                    .what = fmt::format("it unpacks to more than {} GiB", kLargest >> 30),
                    .hint = "no core of this size is read"};
  if (!damage_ && unpacked_ + filled_ == 0)
    damage_ = Error{.code = ErrorCode::kMalformed,
                    .subject = subject_,
                    .what = fmt::format("the {} data holds nothing", name_of(compression_))};
  if (damage_ && damage_->hint.empty())
    damage_->hint = "copy it again, or take the core again: only what comes before this point is used";
  return {out_.data(), filled_};
}

// False if the file cannot be read; `damage_` then has the reason.
bool PackedStream::read_input() {
  ssize_t n;
  do n = pread(packed_, in_.data(), in_.size(), static_cast<off_t>(offset_));
  while (n < 0 && errno == EINTR);
  if (n < 0) {
    damage_ = Error{.subject = subject_, .what = "cannot read", .where = offset_, .os_errno = errno};
    return false;
  }
  input_ended_ = n == 0;
  pending_ = {in_.data(), static_cast<std::size_t>(n)};
  return true;
}

void PackedStream::decode(std::size_t most) {
  const Decoder::Step step = decoder_->decode(pending_, std::span(out_).first(most).subspan(filled_));
  pending_ = pending_.subspan(step.consumed);
  offset_ += step.consumed;
  filled_ += step.produced;
  if (!step.error.empty()) {
    damage_ = Error{.code = ErrorCode::kMalformed,
                    .subject = subject_,
                    .what = fmt::format("the {} data is damaged: {}", name_of(compression_), step.error),
                    .where = offset_};
    return;
  }
  if (decoder_->at_end()) note_frame();
  ended_ = step.consumed == 0 && step.produced == 0 && !decoder_->has_more() && filled_ < most &&
           (input_ended_ || !pending_.empty());
  if (ended_ && !decoder_->at_end())
    damage_ = Error{.code = ErrorCode::kMalformed,
                    .subject = subject_,
                    .what = fmt::format("the {} data {} in the middle of a frame", name_of(compression_),
                                        input_ended_ ? "ends" : "stops making sense"),
                    .where = offset_};
}

// A frame ends here, and another one begins, if there is one. They are noted at least a piece apart, so that millions
// of small ones take no memory.
void PackedStream::note_frame() {
  const std::uint64_t here = unpacked_ + filled_;
  // The base64 of apport's reports can be read from its beginning alone.
  if (compression_ == Compression::kApport) return;
  if (here >= frames_.back().unpacked + kPiece) frames_.push_back({offset_, here});
  else if (here == frames_.back().unpacked) frames_.back().packed = offset_;  // behind padding
}

std::vector<PackedFrame> seekable_frames(int packed, Compression compression) {
  // zstd, contrib/seekable_format/zstd_seekable_compression_format.md: a skippable frame at the end, which has for each
  // frame its packed and its unpacked size and maybe a checksum, and then the number of frames, a byte of flags and a
  // magic number.
  constexpr std::uint32_t kSkippable = 0x184D2A5E, kSeekable = 0x8F92EAB1;
  constexpr std::uint64_t kFooter = 9, kSkippableHeader = 8, kMaxFrames = 1 << 22;
  constexpr unsigned kHasChecksums = 0x80;
  struct stat status {};
  if (compression != Compression::kZstd || fstat(packed, &status) != 0) return {};
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const auto read = [&](std::uint64_t at, std::span<std::byte> into) {
    return pread(packed, into.data(), into.size(), static_cast<off_t>(at)) == static_cast<ssize_t>(into.size());
  };
  std::array<std::byte, kFooter> footer{};
  if (size < kFooter + kSkippableHeader || !read(size - kFooter, footer)) return {};
  const std::uint64_t number = *elf::load<std::uint32_t>(footer, 0);
  const std::uint64_t entry = (std::to_integer<unsigned>(footer[4]) & kHasChecksums) != 0 ? 12 : 8;
  const std::uint64_t table = number * entry + kFooter + kSkippableHeader;
  if (*elf::load<std::uint32_t>(footer, 5) != kSeekable || number == 0 || number > kMaxFrames || table > size)
    return {};
  std::vector<std::byte> entries(table - kFooter);
  if (!read(size - table, entries) || *elf::load<std::uint32_t>(entries, 0) != kSkippable ||
      *elf::load<std::uint32_t>(entries, 4) != table - kSkippableHeader)
    return {};
  std::vector<PackedFrame> frames{{}};
  for (std::uint64_t i = 0; i < number; ++i) {
    const std::uint64_t at = kSkippableHeader + i * entry;
    const PackedFrame& last = frames.back();
    frames.push_back({last.packed + *elf::load<std::uint32_t>(entries, at),
                      last.unpacked + *elf::load<std::uint32_t>(entries, at + 4)});
  }
  if (frames.back().packed != size - table || frames.back().unpacked > PackedStream::kLargest) return {};
  return frames;
}

}  // namespace rankstacks::target
