#include "target/read_pages.h"

#include <algorithm>

namespace rankstacks::target {

void ReadPages::add_page(Address page) {
  if (pages_.size() >= kMaxPages && !pages_.contains(page)) {
    cut_ = true;
    return;
  }
  pages_.insert(page);
  latest_ = page;
}

std::vector<Range> ReadPages::ranges() const { return ranges_without({}); }

std::vector<Range> ReadPages::ranges_without(const ReadPages& others) const {
  std::vector<Address> sorted;
  for (const Address page : pages_)
    if (!others.pages_.contains(page)) sorted.push_back(page);
  std::sort(sorted.begin(), sorted.end());
  std::vector<Range> ranges;
  for (const Address page : sorted) {
    if (!ranges.empty() && ranges.back().end == page) ranges.back().end += kPage;
    else ranges.push_back({page, page + kPage});
  }
  return ranges;
}

}  // namespace rankstacks::target
