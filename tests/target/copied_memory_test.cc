#include "target/copied_memory.h"

#include <sys/mman.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <optional>

using namespace rankstacks;
using namespace rankstacks::target;

namespace {

constexpr std::size_t kPage = 4096;

// Memory of this process, which the test reads like that of another process: each word contains its own address.
class Stacks {
 public:
  Stacks(std::size_t count, std::size_t size) : count_(count), size_(size) {
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, count * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(memory_ != MAP_FAILED);
    for (std::size_t at = 0; at < count * size; at += sizeof(Address))
      *reinterpret_cast<Address*>(memory_ + at) = reinterpret_cast<Address>(memory_ + at);
  }
  ~Stacks() { munmap(memory_, count_ * size_); }

  std::byte* at(std::size_t stack, std::size_t offset) const { return memory_ + stack * size_ + offset; }
  Range range(std::size_t stack, std::size_t from = 0) const {
    return {address(stack, from), address(stack, 0) + size_};
  }
  Address address(std::size_t stack, std::size_t offset) const { return reinterpret_cast<Address>(at(stack, offset)); }
  std::vector<Range> all() const {
    std::vector<Range> ranges;
    for (std::size_t i = 0; i < count_; ++i) ranges.push_back(range(i));
    return ranges;
  }

 private:
  std::byte* memory_;
  std::size_t count_, size_;
};

bool has(CopiedMemory& memory, Address address) {
  Address word = 0;
  return memory.read(address, std::as_writable_bytes(std::span(&word, 1))) == sizeof word && word == address;
}

}  // namespace

TEST_CASE("stacks are copied whole where there is room") {
  const Stacks stacks(3, 5u << 20);
  CopiedMemory memory;
  memory.open(getpid());
  const std::vector<Range> ranges{stacks.range(0, 72), stacks.range(1, 3 * kPage + 8), stacks.range(2)};
  memory.copy_stacks(ranges);
  memory.close();
  CHECK_FALSE(memory.is_cut());
  for (const Range& r : ranges)
    for (Address at = r.start; at < r.end; at += 8 * 1021) REQUIRE(has(memory, at));
  std::vector<std::byte> whole(ranges[0].size());
  CHECK(memory.read(ranges[0].start, whole) == whole.size());
  CHECK_FALSE(has(memory, stacks.address(1, kPage)));
}

TEST_CASE("without room for all stacks, the innermost part of each is copied, the same size of each") {
  const std::size_t count = 64, size = 1u << 20;
  const Stacks stacks(count, size);
  CopiedMemory memory;
  memory.clear({.own = 8u << 20});
  memory.open(getpid());
  memory.copy_stacks(stacks.all());
  memory.close();
  CHECK(memory.is_cut());
  CHECK(memory.stack_bytes_left_out() == count * size - (8u << 20));
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(has(memory, stacks.address(i, 0)));
    CHECK(has(memory, stacks.address(i, (8u << 20) / count - 8)));
    CHECK_FALSE(has(memory, stacks.address(i, (8u << 20) / count)));
  }
}

TEST_CASE("with fewer pages than stacks, as many stacks as possible have one page") {
  const Stacks stacks(64, 16 * kPage);
  CopiedMemory memory;
  memory.clear({.own = 10 * kPage});
  memory.open(getpid());
  memory.copy_stacks(stacks.all());
  memory.close();
  std::size_t with_one = 0;
  for (std::size_t i = 0; i < 64; ++i) with_one += has(memory, stacks.address(i, 0));
  CHECK(with_one == 10);
}

TEST_CASE("overlapping stacks are copied once, and none loses its innermost end") {
  const Stacks stacks(1, 64u << 20);
  CopiedMemory memory;
  memory.clear({.own = 1u << 20});
  memory.open(getpid());
  const std::vector<Range> ranges{stacks.range(0), stacks.range(0, 40u << 20), stacks.range(0, 20u << 20),
                                  stacks.range(0, 20u << 20)};
  memory.copy_stacks(ranges);
  memory.close();
  for (const Range& r : ranges) CHECK(has(memory, r.start));
  CHECK(memory.stack_bytes_left_out() >= (64u << 20) - (1u << 20));
  CHECK(memory.stack_bytes_left_out() <= (64u << 20) - (1u << 20) + 3 * kPage);
}

TEST_CASE("what was copied by an earlier call is not copied again, and all of it is found") {
  const Stacks stacks(1, 1u << 20);
  CopiedMemory memory;
  memory.clear({.own = 1u << 20});
  memory.open(getpid());
  memory.copy_stacks(std::vector<Range>{{stacks.address(0, 40 * kPage), stacks.address(0, 60 * kPage)},
                                        {stacks.address(0, 100 * kPage), stacks.address(0, 101 * kPage)}});
  memory.copy_stacks(stacks.all(), 1u << 20);
  memory.copy_stacks(stacks.all());
  memory.close();
  CHECK(memory.stack_bytes_left_out() > 0);  // of the second call, which left half of the room free
  for (std::size_t at = 0; at < 1u << 20; at += kPage) CHECK(has(memory, stacks.address(0, at)));
}

TEST_CASE("what one process does not need of the pool is available to another, and is given back") {
  const Stacks stacks(1, 4u << 20);
  const auto pool = std::make_shared<CopyPool>(3u << 20);
  CopiedMemory one, other;
  one.clear({.own = 1u << 20, .pool = pool});
  other.clear({.own = 1u << 20, .pool = pool});
  one.open(getpid());
  one.copy_stacks(stacks.all());
  CHECK_FALSE(one.is_cut());
  other.open(getpid());
  other.copy_stacks(stacks.all());
  CHECK(other.stack_bytes_left_out() == 3u << 20);
  one.clear();
  other.clear({.own = 1u << 20, .pool = pool});
  other.open(getpid());
  other.copy_stacks(stacks.all());
  CHECK_FALSE(other.is_cut());
}

TEST_CASE("single pages count too, and the deadline ends both kinds of copies") {
  const Stacks stacks(2, 1u << 20);
  CopiedMemory memory;
  memory.clear({.own = 4 * kPage});
  memory.open(getpid());
  for (std::size_t at = 0; at < 1u << 20; at += 4 * kPage) (void)has(memory, stacks.address(0, at));
  CHECK(memory.is_cut());
  std::size_t pages = 0;
  memory.close();
  for (std::size_t at = 0; at < 1u << 20; at += kPage) pages += has(memory, stacks.address(0, at));
  CHECK(pages == 4);

  memory.clear();
  memory.open(getpid());
  CHECK(has(memory, stacks.address(0, 0)));
  memory.end_fetching();
  memory.copy_stacks(stacks.all());
  CHECK_FALSE(has(memory, stacks.address(1, 0)));
  CHECK(has(memory, stacks.address(0, 0)));
}

TEST_CASE("a range that ends at the end of the address space is not a request for all memory") {
  CopiedMemory memory;
  memory.clear();
  memory.open(getpid());
  const Address last = ~Address{0};
  for (const Address start : {last - 7, last - kPage, last - 3 * kPage}) {
    const Range range{start, last};
    memory.fetch_pages(std::span(&range, 1));
    CHECK_FALSE(has(memory, start & ~Address{7}));
  }
  CHECK_FALSE(memory.is_cut());
}

TEST_CASE("of a stack that is only readable in its first part, that part is kept") {
  const Stacks stacks(2, 1u << 20);
  REQUIRE(mprotect(stacks.at(0, 200 * kPage), 56 * kPage, PROT_NONE) == 0);
  CopiedMemory memory;
  memory.open(getpid());
  memory.copy_stacks(std::vector<Range>{stacks.range(0), stacks.range(1)});
  CHECK_FALSE(memory.is_cut());
  CHECK(has(memory, stacks.address(0, 200 * kPage - 8)));
  CHECK_FALSE(has(memory, stacks.address(0, 200 * kPage)));
  CHECK(has(memory, stacks.address(1, (1u << 20) - 8)));
}

TEST_CASE("copied again: what was wanted, at its new value; nothing else is left of an earlier moment") {
  const Stacks pages(1, 8 * kPage);
  const auto value = [&](std::size_t offset) -> Address& { return *reinterpret_cast<Address*>(pages.at(0, offset)); };
  const auto copy_of = [&](CopiedMemory& memory, std::size_t offset) -> std::optional<Address> {
    Address word = 0;
    if (memory.read(pages.address(0, offset), std::as_writable_bytes(std::span(&word, 1))) != sizeof word)
      return std::nullopt;
    return word;
  };
  CopiedMemory memory;
  memory.open(getpid());
  const Range stack{pages.address(0, 0), pages.address(0, kPage)},
      asked{pages.address(0, 6 * kPage + 16), pages.address(0, 6 * kPage + 32)};
  memory.copy_stacks(std::span(&stack, 1));
  memory.fetch_pages(std::span(&asked, 1));
  REQUIRE(copy_of(memory, 2 * kPage + 64) == pages.address(0, 2 * kPage + 64));
  REQUIRE(copy_of(memory, 2 * kPage + 128) == pages.address(0, 2 * kPage + 128));
  for (const std::size_t at :
       {std::size_t{8}, 2 * kPage + 64, 2 * kPage + 128, 2 * kPage + 512, 3 * kPage, 6 * kPage + 16})
    value(at) = 1;
  REQUIRE(memory.refresh());
  memory.hold();
  CHECK(copy_of(memory, 8) == 1);
  CHECK(copy_of(memory, 2 * kPage + 64) == 1);
  CHECK(copy_of(memory, 2 * kPage + 96) == pages.address(0, 2 * kPage + 96));  // between two that were wanted
  CHECK(copy_of(memory, 2 * kPage + 128) == 1);
  CHECK(copy_of(memory, 6 * kPage + 16) == 1);
  CHECK_FALSE(memory.has_missed());
  SECTION("the rest of a page") {
    CHECK_FALSE(copy_of(memory, 2 * kPage + 512));
    CHECK(memory.has_missed());
  }
  SECTION("a page that was fetched with the one before") {
    CHECK_FALSE(copy_of(memory, 3 * kPage));
    CHECK(memory.has_missed());
  }
  REQUIRE(memory.refresh());
  CHECK(copy_of(memory, 2 * kPage + 512) == 1);
  CHECK(copy_of(memory, 3 * kPage) == 1);
}

TEST_CASE("copied again: pages that can be read since, and pages that no longer can") {
  const Stacks pages(1, 2 * kPage);
  const auto protect = [&](std::size_t page, int how) {
    REQUIRE(mprotect(pages.at(0, page * kPage), kPage, how) == 0);
  };
  CopiedMemory memory;
  memory.open(getpid());
  protect(1, PROT_NONE);
  REQUIRE(has(memory, pages.address(0, 0)));
  REQUIRE_FALSE(has(memory, pages.address(0, kPage)));
  protect(0, PROT_NONE);
  protect(1, PROT_READ | PROT_WRITE);
  REQUIRE(memory.refresh());
  memory.hold();
  CHECK_FALSE(has(memory, pages.address(0, 0)));
  CHECK(has(memory, pages.address(0, kPage)));
  CHECK_FALSE(memory.has_missed());
}

TEST_CASE("copied again by two threads: each page once, and the unreadable ones cost no others") {
  constexpr std::size_t kPages = 2'500;
  const Stacks pages(kPages, kPage);
  SecondCopier second;
  CopiedMemory memory;
  memory.open(getpid());
  memory.share_with(second.shared());
  for (std::size_t i = 0; i < kPages; ++i) REQUIRE(has(memory, pages.address(i, 8 * (i % 512))));
  for (std::size_t i = 0; i < kPages; ++i) {
    *reinterpret_cast<Address*>(pages.at(i, 8 * (i % 512))) = i;
    // 2 to 5 of every hundred, so that both threads meet some
    if (i % 41 == 0 || i % 67 == 1) REQUIRE(mprotect(pages.at(i, 0), kPage, PROT_NONE) == 0);
  }
  REQUIRE(memory.pieces() >= CopiedMemory::kWorthTwo);
  for (int round = 0; round < 3; ++round) {
    REQUIRE(memory.refresh());
    memory.hold();
    for (std::size_t i = 0; i < kPages; ++i) {
      Address word = 0;
      const bool is_there =
          memory.read(pages.address(i, 8 * (i % 512)), std::as_writable_bytes(std::span(&word, 1))) == sizeof word;
      CAPTURE(round, i);
      REQUIRE(is_there == !(i % 41 == 0 || i % 67 == 1));
      if (is_there) REQUIRE(word == i);
    }
  }
}

TEST_CASE("what is read for once is not copied again, and is no copy of the later moment") {
  const Stacks pages(1, 4 * kPage);
  const auto value = [&](std::size_t page) -> Address& {
    return *reinterpret_cast<Address*>(pages.at(0, page * kPage));
  };
  const auto copy_of = [&](CopiedMemory& memory, std::size_t page) -> std::optional<Address> {
    Address word = 0;
    if (memory.read(pages.address(0, page * kPage), std::as_writable_bytes(std::span(&word, 1))) != sizeof word)
      return std::nullopt;
    return word;
  };
  for (std::size_t page = 0; page < 4; ++page) value(page) = 100 + page;
  CopiedMemory memory;
  memory.open(getpid());
  REQUIRE(copy_of(memory, 0) == 100);
  memory.read_for_once(true);
  REQUIRE(copy_of(memory, 0) == 100);
  REQUIRE(copy_of(memory, 3) == 103);
  memory.read_for_once(false);
  for (std::size_t page = 0; page < 4; ++page) value(page) = 200 + page;
  REQUIRE(memory.refresh());
  memory.hold();
  CHECK(copy_of(memory, 0) == 200);
  memory.read_for_once(true);
  CHECK(copy_of(memory, 3) == 103);
  CHECK_FALSE(memory.has_missed());
  memory.read_for_once(false);
  for (int reads = 0; reads < 2; ++reads) CHECK_FALSE(copy_of(memory, 3));
  CHECK(memory.has_missed());
  memory.read_for_once(true);
  CHECK(copy_of(memory, 3) == 103);
  memory.read_for_once(false);
  REQUIRE(memory.refresh());
  CHECK_FALSE(memory.has_missed());
  CHECK(copy_of(memory, 3) == 203);
  // Others want it first when nothing is held.
  memory.read_for_once(true);
  REQUIRE(copy_of(memory, 1) == 201);
  memory.read_for_once(false);
  value(1) = 301;
  enum class Then { kReadIt, kMissIt, kFetchIt };
  const Then then = GENERATE(Then::kReadIt, Then::kMissIt, Then::kFetchIt);
  REQUIRE(memory.refresh());
  if (then == Then::kMissIt) {
    memory.hold();
    CHECK_FALSE(copy_of(memory, 1));
    CHECK(memory.has_missed());
    memory.release();
    CHECK_FALSE(memory.has_missed());
  } else if (then == Then::kFetchIt) {
    const Range range{pages.address(0, kPage), pages.address(0, 2 * kPage)};
    memory.fetch_pages(std::span(&range, 1));
    memory.hold();
  }
  CHECK(copy_of(memory, 1) == 301);
}

TEST_CASE("stacks that stand are not copied again; those that only overlap with one are") {
  const Stacks stacks(4, 2 * kPage);
  CopiedMemory memory;
  memory.open(getpid());
  memory.copy_stacks(stacks.all());
  const auto word_of = [&](std::size_t stack) {
    Address word = 0;
    CHECK(memory.read(stacks.address(stack, kPage), std::as_writable_bytes(std::span(&word, 1))) == sizeof word);
    return word;
  };
  for (std::size_t stack = 0; stack < 4; ++stack) *reinterpret_cast<Address*>(stacks.at(stack, kPage)) = stack;
  const std::vector<Range> standing{stacks.range(1), stacks.range(2, 8)};
  memory.plan_refresh(standing);
  memory.touch_planned();
  CHECK(word_of(0) == stacks.address(0, kPage));
  REQUIRE(memory.refresh());
  CHECK(word_of(0) == 0);
  CHECK(word_of(1) == stacks.address(1, kPage));
  CHECK(word_of(2) == 2);
  CHECK(word_of(3) == 3);
  REQUIRE(memory.refresh());
  CHECK(word_of(1) == 1);
}

TEST_CASE("what was planned before the process ran again is planned anew") {
  const Stacks stacks(2, 4 * kPage);
  CopiedMemory memory;
  memory.open(getpid());
  memory.copy_stacks(stacks.all());
  for (std::size_t stack = 0; stack < 2; ++stack) *reinterpret_cast<Address*>(stacks.at(stack, kPage)) = stack;
  const std::vector<Range> standing{stacks.range(0)};
  memory.plan_refresh(standing);
  memory.hold();
  REQUIRE(memory.refresh());
  for (std::size_t stack = 0; stack < 2; ++stack) {
    Address word = ~Address{0};
    CHECK(memory.read(stacks.address(stack, kPage), std::as_writable_bytes(std::span(&word, 1))) == sizeof word);
    CHECK(word == stack);
  }
}
