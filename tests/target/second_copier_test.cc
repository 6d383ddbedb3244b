#include "target/second_copier.h"

#include <unistd.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <numeric>
#include <vector>

using namespace rankstacks;
using namespace rankstacks::target;

TEST_CASE("two threads make each call once, and all of them are done afterwards") {
  constexpr std::size_t kCalls = SecondCopier::Shared::kMax, kWords = 4096;
  std::vector<std::uint64_t> from(kCalls * kWords), to(kCalls * kWords);
  SecondCopier second;
  const auto shared = second.shared();
  for (std::uint64_t round = 0; round < 400; ++round) {
    // A few calls now and then: the second thread may come too late for them, or in the middle.
    const std::size_t count = round % 3 == 0 ? kCalls : 1 + round % 5;
    std::iota(from.begin(), from.end(), round);
    std::fill(to.begin(), to.end(), 0);
    for (std::size_t i = 0; i < count; ++i) {
      CopyCall& call = shared->calls[i];
      call.clear();
      call.copied = 0;
      call.local.push_back({&to[i * kWords], kWords * sizeof to[0]});
      call.remote.push_back({&from[i * kWords], kWords * sizeof from[0]});
    }
    shared->make(getpid(), count);
    bool all = true;
    for (std::size_t i = 0; i < count; ++i)
      all = all && shared->calls[i].copied == static_cast<ssize_t>(kWords * sizeof to[0]);
    REQUIRE(all);
    REQUIRE(std::equal(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(count * kWords), from.begin()));
    REQUIRE(std::all_of(to.begin() + static_cast<std::ptrdiff_t>(count * kWords), to.end(),
                        [](std::uint64_t word) { return word == 0; }));
  }
}

TEST_CASE("a second thread that was asked for nothing ends") {
  for (int i = 0; i < 20; ++i) const SecondCopier second;
}
