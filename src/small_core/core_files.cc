#include "small_core/core_files.h"

#include <zstd.h>
#include <algorithm>
#include <ctime>
#include <memory>
#include <span>

#include "small_core/archive.h"
#include "small_core/new_file.h"

namespace rankstacks::small_core {
namespace {

// Memory of a process, 8 MB of it: a fourth smaller than by level 3, in 0.1 s. Ranks of a job have many pages in
// common, which are found within a window of 32 MiB: eight ranks of 19.7 MB in all become 2.4 MB in 0.12 s, and 4.3 MB
// in 0.72 s by level 6 without it. The decoders of zstd and of this
// tool take windows of 128 MiB; RFC 8878 asks for 8 MiB of a decoder.
constexpr int kLevel = 6, kLevelOfArchive = 3, kWindowLogOfArchive = 25;

struct FreeEncoder {
  void operator()(ZSTD_CCtx* encoder) const { ZSTD_freeCCtx(encoder); }
};

// A new file, and the encoder of what is written to it.
class Output {
 public:
  static Result<Output> create(const std::string& path, bool is_archive) {
    auto file = NewFile::create(path);
    if (!file) return fail(file.error());
    Output output(path, std::move(*file));
    if (path.ends_with(".zst")) output.pack(is_archive);
    return output;
  }

  Result<void> write(std::span<const std::byte> bytes) { return put(bytes, ZSTD_e_continue); }

  Result<std::uint64_t> finish() {
    if (auto written = put({}, ZSTD_e_end); !written) return fail(written.error());
    if (auto finished = file_.finish(); !finished) return fail(finished.error());
    return size_;
  }

 private:
  Output(std::string path, NewFile file) : path_(std::move(path)), file_(std::move(file)) {}

  void pack(bool is_archive) {
    encoder_.reset(ZSTD_createCCtx());
    ZSTD_CCtx_setParameter(encoder_.get(), ZSTD_c_compressionLevel, is_archive ? kLevelOfArchive : kLevel);
    if (is_archive) {
      ZSTD_CCtx_setParameter(encoder_.get(), ZSTD_c_enableLongDistanceMatching, 1);
      ZSTD_CCtx_setParameter(encoder_.get(), ZSTD_c_windowLog, kWindowLogOfArchive);
    }
    ZSTD_CCtx_setParameter(encoder_.get(), ZSTD_c_checksumFlag, 1);
    room_.resize(ZSTD_CStreamOutSize());
  }

  Result<void> put(std::span<const std::byte> bytes, ZSTD_EndDirective directive) {
    if (!encoder_) {
      size_ += bytes.size();
      return file_.write(bytes);
    }
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    for (bool done = false; !done;) {
      ZSTD_outBuffer out{room_.data(), room_.size(), 0};
      const std::size_t left = ZSTD_compressStream2(encoder_.get(), &out, &in, directive);
      if (ZSTD_isError(left) != 0)
        return fail({.code = ErrorCode::kLimit, .subject = path_, .what = ZSTD_getErrorName(left)});
      size_ += out.pos;
      if (auto written = file_.write(std::span(room_).first(out.pos)); !written) return written;
      done = directive == ZSTD_e_end ? left == 0 : in.pos == in.size;
    }
    return {};
  }

  std::string path_;
  NewFile file_;
  std::unique_ptr<ZSTD_CCtx, FreeEncoder> encoder_;  // nullptr: not packed
  std::vector<std::byte> room_;
  std::uint64_t size_ = 0;
};

}  // namespace

Result<std::uint64_t> write_core(const std::string& path, const NamedCore& core) {
  auto output = Output::create(path, false);
  if (!output) return fail(output.error());
  if (auto written = output->write(core.bytes); !written) return fail(written.error());
  return output->finish();
}

Result<std::uint64_t> write_archive(const std::string& path, const std::vector<NamedCore>& cores) {
  auto output = Output::create(path, true);
  if (!output) return fail(output.error());
  const auto write = [&](std::span<const std::byte> bytes) { return output->write(bytes); };
  for (const NamedCore& core : cores) {
    const std::vector<std::byte> padding(tar_padding(core.bytes.size()));
    for (const auto& part :
         {write(tar_header(core.name, core.bytes.size(), std::time(nullptr))), write(core.bytes), write(padding)})
      if (!part) return fail(part.error());
  }
  if (auto written = write(tar_end()); !written) return fail(written.error());
  return output->finish();
}

}  // namespace rankstacks::small_core
