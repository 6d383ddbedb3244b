// Runs of pages of a stream that are kept, while others become holes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

namespace rankstacks::target {

inline constexpr std::size_t kFilePage = 4096;

inline bool is_all_zero(std::span<const char> page) {
  return page.empty() || (page[0] == 0 && std::memcmp(page.data(), page.data() + 1, page.size() - 1) == 0);
}

// `bytes` begin at `offset`, in which pages are counted. keep(page, its offset) says of each page, or of what there is
// of it, whether it is kept; write(run, its offset) gets what is kept one after the other.
template <class Keep, class Write>
void each_kept_run(std::span<const char> bytes, std::uint64_t offset, const Keep& keep, const Write& write) {
  std::size_t begin = 0, at = 0;
  const auto end_run = [&] {
    if (at > begin) write(bytes.subspan(begin, at - begin), offset + begin);
  };
  while (at < bytes.size()) {
    const auto page = bytes.subspan(at, std::min(bytes.size() - at, kFilePage - (offset + at) % kFilePage));
    if (!keep(page, offset + at)) {
      end_run();
      begin = at + page.size();
    }
    at += page.size();
  }
  end_run();
}

}  // namespace rankstacks::target
