// Which pages of a target were read: what a small core of it has to hold, so that the same reads succeed there.
//
// A target with such a record adds to it whatever its read() returned. For use by one thread at a time.
#pragma once

#include <cstddef>
#include <unordered_set>
#include <vector>

#include "base/types.h"

namespace rankstacks::target {

class ReadPages {
 public:
  static constexpr std::uint64_t kPage = 4096;
  // 1 GiB: as much as is copied of a process.
  static constexpr std::size_t kMaxPages = 1u << 18;

  ReadPages() { pages_.reserve(kUsualPages); }

  void add(Address address, std::uint64_t size) {
    if (size == 0) return;
    const Address last = (address + size - 1) & ~(kPage - 1);
    for (Address page = address & ~(kPage - 1);; page += kPage) {
      if (page != latest_) add_page(page);
      if (page == last) return;
    }
  }

  // The pages, by address, neighbours as one range.
  std::vector<Range> ranges() const;
  // The same for those that are not in `others`.
  std::vector<Range> ranges_without(const ReadPages& others) const;
  // Whether pages were left out because of the limit.
  bool is_cut() const { return cut_; }

 private:
  static constexpr std::size_t kUsualPages = 4096;  // so that a walk in a stopped process makes no larger table

  void add_page(Address page);

  std::unordered_set<Address> pages_;
  Address latest_ = 1;  // no page begins there
  bool cut_ = false;
};

}  // namespace rankstacks::target
