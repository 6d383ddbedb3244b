// The part of LiveTarget that copies what unwinding needs: the stacks of its threads, and generated code.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>

#include "target/live_target.h"

namespace rankstacks::target {
namespace {

// The System V ABI lets a leaf function use 128 bytes below rsp without moving it.
constexpr std::uint64_t kRedZone = 128;
// For a stack in a mapping of unknown use (heap, a coroutine's own): how far above rsp frames are searched for.
constexpr std::uint64_t kForeignStack = 256u << 10;
// The most that is copied of one stack: 8 times the usual limit of a main stack.
constexpr std::uint64_t kMaxStack = 64u << 20;

Range at_most(Range range, std::uint64_t bytes) { return {range.start, std::min(range.end, range.start + bytes)}; }

}  // namespace

// The mapping of a thread's own stack, and where its first frame begins.
LiveTarget::Home LiveTarget::home_of(const ThreadInfo& thread) const {
  const Mapping* home = nullptr;
  if (thread.tid == pid_) {
    const auto it = std::find_if(process_.mappings.begin(), process_.mappings.end(),
                                 [](const Mapping& m) { return m.path == "[stack]"; });
    if (it != process_.mappings.end()) home = &*it;
  } else if (thread.registers->fs_base != 0) {
    home = mapping_of(thread.registers->fs_base);
  }
  if (home == nullptr) return {};
  // glibc keeps the static TLS and struct pthread at the top of a thread's stack, above its first frame; fs_base is
  // between the two.
  return {home, home->range.contains(thread.registers->fs_base) ? thread.registers->fs_base : home->range.end};
}

// The range from below rsp to the first frame; std::nullopt if the thread is not on its own stack.
std::optional<Range> LiveTarget::own_stack(const ThreadInfo& thread) const {
  const Home home = home_of(thread);
  const Address sp = thread.registers->sp();
  if (home.mapping == nullptr || !home.mapping->range.contains(sp) || sp >= home.end) return std::nullopt;
  return at_most({std::max(home.mapping->range.start, sp - kRedZone), home.end}, kMaxStack);
}

// The stack of a thread that is not on its own: in a signal handler on an alternate stack, or in a coroutine.
std::optional<Range> LiveTarget::foreign_stack(const ThreadInfo& thread) const {
  const Address sp = thread.registers->sp();
  const Mapping* at = mapping_of(sp);
  if (at == nullptr) return std::nullopt;
  const Address start = std::max(at->range.start, sp - kRedZone);
  if (at->path == "[stack]") return at_most({start, at->range.end}, kMaxStack);
  return Range{start, std::min(at->range.end, sp + kForeignStack)};
}

// The thread's own stack below the foreign one, from the lowest address that the foreign one, already copied, points
// to: a frame's caller is never below that.
std::optional<Range> LiveTarget::stack_below(const ThreadInfo& thread, const Range& foreign) const {
  const Home home = home_of(thread);
  if (home.mapping == nullptr) return std::nullopt;
  const Range& range = home.mapping->range;
  std::vector<Address> words(foreign.size() / sizeof(Address));
  const std::size_t n = memory_.read(foreign.start & ~Address{7}, std::as_writable_bytes(std::span(words)));
  // A thread that overflowed its stack left it at its lower end: its sp is in a guard page, or in the 1 MiB that the
  // kernel keeps free there.
  constexpr std::uint64_t kGuard = 1u << 20;
  const auto in_guard = [&](Address a) {
    if (a >= range.start || range.start - a > kGuard) return false;
    const Mapping* below = mapping_of(a);
    return below == nullptr || !below->readable;
  };
  Address lowest = home.end;
  for (std::size_t i = 0; i < n / sizeof(Address); ++i) {
    if (words[i] >= range.start && words[i] < lowest) lowest = words[i];
    else if (in_guard(words[i])) lowest = range.start;
  }
  if (lowest >= home.end) return std::nullopt;
  return at_most({std::max(range.start, (lowest & ~Address{7}) - kRedZone), home.end}, kMaxStack);
}

// Threads on their own stacks come first. Any other memory may be of any kind, and the stack pointer does not show
// which: if it belongs to a file that does not answer, everything that is read after it is missing as well.
void LiveTarget::copy_stacks(const Threads& of) {
  std::vector<Range> own, foreign, below;
  std::vector<const ThreadInfo*> elsewhere;
  for (const ThreadInfo* t : of) {
    if (!t->registers) continue;
    if (const auto stack = own_stack(*t)) {
      own.push_back(*stack);
    } else if (const auto other = foreign_stack(*t)) {
      foreign.push_back(*other);
      elsewhere.push_back(t);
    }
  }
  memory_.copy_stacks(own, foreign.size() * kForeignStack);
  if (foreign.empty()) return copy_generated_code(of);
  memory_.copy_stacks(foreign);
  for (std::size_t i = 0; i < foreign.size(); ++i)
    if (const auto stack = stack_below(*elsewhere[i], foreign[i])) below.push_back(*stack);
  memory_.copy_stacks(below);
  copy_generated_code(of);
}

// Code in anonymous memory (a JIT compiler's) has no file to be read from later, and a return address into it is
// accepted only if the bytes before it are a call. So this copies the pages that program counters and words on the
// stacks point to, and some before them, where the function shows whether it keeps a frame pointer.
void LiveTarget::copy_generated_code(const Threads& of) {
  std::vector<Range> generated;
  for (const Mapping& m : process_.mappings)
    if (m.executable && m.path.empty()) generated.push_back(m.range);
  if (generated.empty()) return;
  constexpr std::size_t kMaxPages = 4096;
  constexpr Address kPageMask = ~Address{4095};
  constexpr std::uint64_t kFunction = 16u << 10, kEpilogue = 64;
  std::set<Address> pages;
  const auto add = [&](Address a) {
    if (a < generated.front().start || a > generated.back().end || pages.size() >= kMaxPages) return;
    const auto after = std::upper_bound(generated.begin(), generated.end(), a - 1,
                                        [](Address x, const Range& r) { return x < r.start; });
    if (after == generated.begin() || !std::prev(after)->contains(a - 1)) return;
    const Range& code = *std::prev(after);
    const Address from = a - code.start < kFunction ? code.start : a - kFunction;
    for (Address page = from & kPageMask; page < std::min(code.end, a + kEpilogue); page += 4096) pages.insert(page);
  };
  for (const ThreadInfo* t : of)
    if (t->registers) add(t->registers->pc() + 1);
  memory_.for_each_stack_piece([&](const Range& piece, std::span<const std::byte> bytes) {
    for (std::size_t at = -piece.start & 7; at + sizeof(Address) <= bytes.size() && pages.size() < kMaxPages;
         at += sizeof(Address)) {
      Address word = 0;
      std::memcpy(&word, bytes.data() + at, sizeof word);
      add(word);
    }
  });
  std::vector<Range> wanted;
  for (const Address page : pages) wanted.push_back({page, page + 4096});
  memory_.fetch_pages(wanted);
}

}  // namespace rankstacks::target
