#include "target/decompress.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <lz4frame.h>
#include <lzma.h>
#include <sys/statvfs.h>
#include <zlib.h>
#include <zstd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <vector>

namespace rankstacks::target {
namespace {

constexpr std::size_t kInput = 256 << 10;
constexpr std::size_t kOutput = 1 << 20;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kFirstBytes = 64;  // an ELF header
// The largest unpacked size, including holes: a few KB of zstd data can claim more zeros than this.
constexpr std::uint64_t kLargest = std::uint64_t{1} << 40;
constexpr std::uint64_t kMaxXzMemory = std::uint64_t{512} << 20;  // xz -9 needs 65 MB to unpack

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

bool all_zero(std::span<const char> page) {
  return page.empty() || (page[0] == 0 && std::memcmp(page.data(), page.data() + 1, page.size() - 1) == 0);
}

std::string temporary_directory() {
  const char* directory = std::getenv("TMPDIR");
  return directory != nullptr && *directory != 0 ? directory : "/tmp";
}

// A file with holes that grows at its end.
class SparseFile {
 public:
  static Result<SparseFile> create(const std::string& directory, const std::string& subject) {
    SparseFile made;
    made.directory_ = directory;
    int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    // overlayfs and NFS do not support O_TMPFILE.
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
      std::string name = directory + "/rankstacks-core-XXXXXX";
      fd = mkostemp(name.data(), O_CLOEXEC);
      if (fd >= 0) ::unlink(name.c_str());
    }
    struct statvfs space {};
    if (fd < 0 || fstatvfs(fd, &space) != 0) {
      const int why = errno;
      if (fd >= 0) ::close(fd);
      return fail({.code = ErrorCode::kUnreadable,
                   .subject = subject,
                   .what = "cannot make a file in " + directory + " to unpack it to",
                   .os_errno = why,
                   .hint = "set TMPDIR to a directory that can be written, or unpack it yourself"});
    }
    made.file_ = FileDescriptor(fd);
    const auto free = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
    made.budget_ = free - free / 20;
    return made;
  }

  std::optional<Error> append(std::span<const char> bytes, const std::string& subject) {
    if (bytes.size() > kLargest - size_) {
      return Error{.code = ErrorCode::kLimit,
                   .subject = subject,
                   .what = fmt::format("it unpacks to more than {} GiB", kLargest >> 30),
                   .hint = "no core of this size is read"};
    }
    std::size_t done = 0;
    while (done < bytes.size()) {
      // The bytes from `at` to the end of its page of the file.
      const auto piece = [&](std::size_t at) {
        return bytes.subspan(at, std::min(bytes.size() - at, kPage - (size_ + at) % kPage));
      };
      std::size_t end = done;
      while (end < bytes.size() && !all_zero(piece(end))) end += piece(end).size();
      if (auto failed = write(bytes.subspan(done, end - done), size_ + done, subject)) return failed;
      while (end < bytes.size() && all_zero(piece(end))) end += piece(end).size();
      done = end;
    }
    size_ += bytes.size();
    return std::nullopt;
  }

  std::optional<Error> finish(const std::string& subject) {
    if (ftruncate(file_.get(), static_cast<off_t>(size_)) == 0) return std::nullopt;
    return Error{.code = ErrorCode::kUnreadable,
                 .subject = subject,
                 .what = "cannot set the size of the unpacked file",
                 .os_errno = errno};
  }

  std::uint64_t size() const { return size_; }
  FileDescriptor take() { return std::move(file_); }

 private:
  std::optional<Error> write(std::span<const char> bytes, std::uint64_t at, const std::string& subject) {
    const auto no_room = [&](int os_errno) {
      return Error{.code = ErrorCode::kLimit,
                   .subject = subject,
                   .what = fmt::format("no room in {}: unpacking stopped after {} MiB", directory_, at >> 20),
                   .os_errno = os_errno,
                   .hint = "set TMPDIR to a directory on a larger disk"};
    };
    if (bytes.size() > budget_) return no_room(0);
    budget_ -= bytes.size();
    while (!bytes.empty()) {
      const ssize_t n = pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return no_room(n < 0 ? errno : ENOSPC);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      at += static_cast<std::uint64_t>(n);
    }
    return std::nullopt;
  }

  FileDescriptor file_;
  std::string directory_;
  std::uint64_t size_ = 0;
  std::uint64_t budget_ = 0;
};

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
  if (first_bytes.starts_with("\x04\x22\x4d\x18"sv)) return Compression::kLz4;   // LZ4 frame format, magic 0x184D2204
  if (first_bytes.starts_with("\xfd"
                              "7zXZ\0"sv))
    return Compression::kXz;                                                  // the .xz file format, 2.1.1.1
  if (first_bytes.starts_with("\x1f\x8b"sv)) return Compression::kGzip;       // RFC 1952, 2.3.1
  if (first_bytes.starts_with("ProblemType: ")) return Compression::kApport;  // apport writes it first
  return Compression::kNone;
}

namespace {

// Unpacks one compressed file into a sparse one.
class Unpacker {
 public:
  Unpacker(int compressed, Compression compression, const std::string& subject, FirstBytesCheck refuse, SparseFile file)
      : compressed_(compressed),
        kind_(name_of(compression)),
        subject_(subject),
        refuse_(refuse),
        decoder_(make_decoder(compression)),
        file_(std::move(file)) {}

  Result<Unpacked> run(const Deadline& deadline) {
    while (!damage_ && !ended_) {
      if (deadline.passed()) {
        damage_ =
            Error{.code = ErrorCode::kTimeout,
                  .subject = subject_,
                  .what = fmt::format("unpacking was given up after {} MiB, as the time for it (--timeout) was over",
                                      (file_.size() + filled_) >> 20),
                  .hint = "give it more time with --timeout, or unpack it yourself"};
        break;
      }
      if (pending_.empty() && !input_ended_ && !read_input()) break;
      decode();
      if (filled_ < out_.size()) continue;
      const bool first = !checked_;
      if (auto failed = flush()) {
        if (first) return fail(*failed);
        damage_ = std::move(failed);
      }
    }
    return finish();
  }

 private:
  // False if the file cannot be read; `damage_` then has the reason.
  bool read_input() {
    ssize_t n;
    do n = pread(compressed_, in_.data(), in_.size(), static_cast<off_t>(offset_));
    while (n < 0 && errno == EINTR);
    if (n < 0) {
      damage_ = Error{.subject = subject_, .what = "cannot read", .where = offset_, .os_errno = errno};
      return false;
    }
    input_ended_ = n == 0;
    pending_ = {in_.data(), static_cast<std::size_t>(n)};
    return true;
  }

  void decode() {
    const Decoder::Step step = decoder_->decode(pending_, std::span(out_).subspan(filled_));
    pending_ = pending_.subspan(step.consumed);
    offset_ += step.consumed;
    filled_ += step.produced;
    if (!step.error.empty()) {
      damage_ = Error{.code = ErrorCode::kMalformed,
                      .subject = subject_,
                      .what = fmt::format("the {} data is damaged: {}", kind_, step.error),
                      .where = offset_};
      return;
    }
    ended_ = step.consumed == 0 && step.produced == 0 && !decoder_->has_more() && filled_ < out_.size() &&
             (input_ended_ || !pending_.empty());
    if (ended_ && !decoder_->at_end())
      damage_ = Error{.code = ErrorCode::kMalformed,
                      .subject = subject_,
                      .what = fmt::format("the {} data {} in the middle of a frame", kind_,
                                          input_ended_ ? "ends" : "stops making sense"),
                      .where = offset_};
  }

  // Writes what was decoded. Before it writes the first piece, the caller's check may refuse its first bytes.
  std::optional<Error> flush() {
    if (!checked_) {
      if (auto refused = refuse_({out_.data(), std::min(filled_, kFirstBytes)}, subject_)) return refused;
      checked_ = true;
    }
    const std::size_t n = std::exchange(filled_, 0);
    return file_.append({out_.data(), n}, subject_);
  }

  Result<Unpacked> finish() {
    if (damage_ && damage_->hint.empty())
      damage_->hint = "copy it again, or take the core again: only what comes before this point is used";
    if (filled_ == 0 && file_.size() == 0) {
      if (damage_) return fail(*damage_);
      return fail({.code = ErrorCode::kMalformed,
                   .subject = subject_,
                   .what = fmt::format("the {} data holds nothing", kind_)});
    }
    if (filled_ > 0) {
      const bool first = !checked_;
      if (auto failed = flush()) {
        if (first) return fail(*failed);
        if (!damage_) damage_ = std::move(failed);
      }
    }
    if (auto failed = file_.finish(subject_)) return fail(*failed);
    return Unpacked{.file = file_.take(), .size = file_.size(), .damage = std::move(damage_)};
  }

  const int compressed_;
  const std::string_view kind_;
  const std::string& subject_;
  const FirstBytesCheck refuse_;
  const std::unique_ptr<Decoder> decoder_;
  SparseFile file_;
  std::vector<char> in_ = std::vector<char>(kInput), out_ = std::vector<char>(kOutput);
  std::span<const char> pending_;  // the part of `in_` that is not decoded yet
  std::uint64_t offset_ = 0;       // position of `pending_` in the compressed file
  std::size_t filled_ = 0;         // number of bytes in `out_`
  bool checked_ = false, input_ended_ = false, ended_ = false;
  std::optional<Error> damage_;
};

}  // namespace

Result<Unpacked> unpack(int compressed, Compression compression, const std::string& subject, FirstBytesCheck refuse,
                        const Deadline& deadline) {
  auto file = SparseFile::create(temporary_directory(), subject);
  if (!file) return fail(file.error());
  return Unpacker(compressed, compression, subject, refuse, std::move(*file)).run(deadline);
}

}  // namespace rankstacks::target
