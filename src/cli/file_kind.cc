#include "cli/file_kind.h"

#include <elf.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/regular_file.h"
#include "base/unattended.h"
#include "small_core/archive.h"
#include "target/decompress.h"

namespace rankstacks::cli {
namespace {

constexpr std::size_t kHead = small_core::kTarBlock;
constexpr std::size_t kPackedHead = 256u << 10;  // a block of zstd has 128 KiB at most

struct FreeDecoder {
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

std::string unzstd_head(std::string_view packed) {
  const std::unique_ptr<ZSTD_DStream, FreeDecoder> stream(ZSTD_createDStream());
  std::string head(kHead, '\0');
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  ZSTD_outBuffer out{head.data(), head.size(), 0};
  for (std::size_t before = 0; stream && out.pos < out.size; before = in.pos + out.pos)
    if (ZSTD_isError(ZSTD_decompressStream(stream.get(), &out, &in)) != 0 || in.pos + out.pos == before) break;
  head.resize(out.pos);
  return head;
}

std::string gunzip_head(std::string_view packed) {
  constexpr int kGzipWindow = 15 + 16;  // zlib: the largest window, and a gzip header
  std::string head(kHead, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) return {};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(head.data());
  stream.avail_out = static_cast<uInt>(head.size());
  inflate(&stream, Z_SYNC_FLUSH);
  head.resize(head.size() - stream.avail_out);
  inflateEnd(&stream);
  return head;
}

FileKind kind_of_head(std::string_view head) {
  if (head.starts_with(ELFMAG)) return FileKind::kCore;
  if (small_core::is_tar(std::as_bytes(std::span(head.data(), head.size())))) return FileKind::kArchive;
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && head[first] == '{' ? FileKind::kJson : FileKind::kOther;
}

FileKind look_at(const std::string& path) {
  const auto file = open_regular_file(path);
  if (!file) return FileKind::kOther;
  std::string bytes(kPackedHead, '\0');
  const ssize_t n = pread(file->descriptor.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  switch (target::compression_of(bytes)) {
    case target::Compression::kNone: return kind_of_head(std::string_view(bytes).substr(0, kHead));
    case target::Compression::kZstd: return kind_of_head(unzstd_head(bytes));
    case target::Compression::kGzip: return kind_of_head(gunzip_head(bytes));
    default: return FileKind::kCore;
  }
}

}  // namespace

FileKind kind_of_file(const std::string& path, std::chrono::steady_clock::duration limit) {
  if (path == "-") return FileKind::kOther;
  return unattended<FileKind>([path] { return look_at(path); },
                              std::max<std::chrono::steady_clock::duration>(limit, kMinTimeout))
      .value_or(FileKind::kOther);
}

}  // namespace rankstacks::cli
