#include "target/decompress.h"

#include <algorithm>
#include <span>
#include <utility>

#include "target/page_runs.h"
#include "target/sparse_file.h"

namespace rankstacks::target {

Result<Unpacked> unpack(int compressed, Compression compression, const std::string& subject, FirstBytesCheck refuse,
                        const Deadline& deadline) {
  auto file = SparseFile::create(subject);
  if (!file) return fail(file.error());
  PackedStream stream(compressed, compression, subject);
  std::optional<Error> damage;
  std::uint64_t size = 0;
  while (!damage) {
    const auto piece = stream.next(deadline);
    if (piece.empty()) break;
    if (size == 0)
      if (auto refused = refuse({piece.data(), std::min(piece.size(), PackedStream::kFirstBytes)}, subject))
        return fail(*refused);
    each_kept_run(
        piece, size, [](std::span<const char> page, std::uint64_t) { return !is_all_zero(page); },
        [&](std::span<const char> run, std::uint64_t at) {
          if (!damage) damage = file->write(run, at);
        });
    if (!damage) size += piece.size();
  }
  if (!damage) damage = stream.damage();
  if (damage && size == 0) return fail(*damage);
  if (auto failed = file->set_size(size)) return fail(*failed);
  return Unpacked{.file = file->take(), .size = size, .damage = std::move(damage)};
}

}  // namespace rankstacks::target
