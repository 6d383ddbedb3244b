#include "small_core/stack_ranges.h"

#include <algorithm>

namespace rankstacks::small_core {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kRedZone = 128;  // below the stack pointer (System V ABI, AMD64)
// To its end, a stack is kept if that is as near as this: a waiting thread has 1 to 200 KB. The first frames of a
// thread, its descriptor and, on the main stack, arguments and environment are there.
constexpr std::uint64_t kToTheEnd = 1u << 20;
constexpr std::uint64_t kBehindFrames = 64u << 10;  // behind the outermost frame of a deeper one
constexpr std::uint64_t kWithoutEnd = 1u << 20;     // of a stack that could not be unwound to its end
constexpr std::uint64_t kMaxStack = 64u << 20;      // as much as is copied of a live one
constexpr std::uint64_t kMaxFrame = 8u << 20;

const target::Mapping* mapping_of(const target::Target& target, Address a) {
  const auto mappings = target.mappings();
  const auto after = std::upper_bound(mappings.begin(), mappings.end(), a,
                                      [](Address x, const target::Mapping& m) { return x < m.range.start; });
  return after != mappings.begin() && std::prev(after)->range.contains(a) ? &*std::prev(after) : nullptr;
}

class StackOfThread {
 public:
  StackOfThread(const target::Target& target, std::vector<Range>& ranges) : target_(target), ranges_(ranges) {}

  void add(const target::Registers& registers, const unwind::UnwoundStack& stack) {
    const Address sp = registers.sp();
    const target::Mapping* mapping = mapping_of(target_, sp);
    if (mapping == nullptr) return;
    const Address start = std::max(mapping->range.start, sp - std::min(sp, kRedZone));
    Address end = std::max(start, sp);
    for (const unwind::UnwoundFrame& frame : stack.frames) {
      // A frame elsewhere: the thread has switched stacks (a signal's, a coroutine's).
      if (!mapping->range.contains(frame.sp) || frame.sp < sp) add_frame(frame);
      else end = std::max({end, frame.sp, mapping->range.contains(frame.cfa) ? frame.cfa : 0});
    }
    if (mapping->range.end - start <= kToTheEnd) end = mapping->range.end;
    else if (stack.end == StackEnd::kComplete) end += kBehindFrames;
    else end += kWithoutEnd;
    put(start, std::min({end, mapping->range.end, start + kMaxStack}));
  }

 private:
  void add_frame(const unwind::UnwoundFrame& frame) {
    const target::Mapping* mapping = mapping_of(target_, frame.sp);
    if (mapping == nullptr) return;
    Address end = frame.sp + kPage;
    if (mapping->range.contains(frame.cfa) && frame.cfa > frame.sp && frame.cfa - frame.sp < kMaxFrame)
      end = std::max(end, frame.cfa + kPage);
    if (mapping->range.end - frame.sp <= kToTheEnd) end = mapping->range.end;
    put(std::max(mapping->range.start, frame.sp - kRedZone), std::min(end, mapping->range.end));
  }

  void put(Address start, Address end) {
    if (start < end) ranges_.push_back({start & ~(kPage - 1), (end + kPage - 1) & ~(kPage - 1)});
  }

  const target::Target& target_;
  std::vector<Range>& ranges_;
};

}  // namespace

std::vector<Range> stack_ranges(const target::Target& target, std::span<const unwind::UnwoundStack> stacks) {
  std::vector<Range> ranges;
  StackOfThread thread_stack(target, ranges);
  const auto threads = target.threads();
  for (std::size_t i = 0; i < std::min(threads.size(), stacks.size()); ++i)
    if (threads[i].registers) thread_stack.add(*threads[i].registers, stacks[i]);
  return ranges;
}

}  // namespace rankstacks::small_core
