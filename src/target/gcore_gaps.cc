#include "target/gcore_gaps.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>

#include "base/text.h"

namespace rankstacks::target {
namespace {

constexpr std::uint64_t kPiece = 1 << 20;  // gdb's MAX_COPY_BYTES
// From the stack pointer on: the frame of a function has a return address.
constexpr std::uint64_t kStackLookedAt = 4096;

// False if they cannot be read.
bool is_zero(const CoreFile& file, Address a, std::uint64_t size) {
  std::array<std::byte, kStackLookedAt> buffer;
  const auto bytes = std::span(buffer).first(std::min<std::uint64_t>(size, buffer.size()));
  return file.read_exact(a, bytes) && std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{}; });
}

// Whether the stack from `sp` on is zeros, and also the thread's own block above it (whose first word points to
// itself), if both are in one mapping, as glibc makes it. The block of the main thread is elsewhere, and its stack has
// no guard inside.
bool is_lost(const CoreFile& file, const CoreSegment& segment, const Registers& registers) {
  constexpr std::uint64_t kWord = sizeof(Address);
  const std::uint64_t at = registers.sp() - segment.range.start;
  const std::uint64_t block = registers.fs_base - segment.range.start;
  const std::uint64_t size = segment.bytes.size();
  if (at >= size || registers.fs_base < registers.sp() || block >= size || size - block < kWord) return false;
  return is_zero(file, registers.sp(), std::min(kStackLookedAt, block - at)) && is_zero(file, registers.fs_base, kWord);
}

}  // namespace

GcoreGaps drop_gcore_gaps(CoreFile& file, std::span<const ThreadInfo> threads) {
  GcoreGaps gaps;
  if (!file.has_notes_last()) return gaps;  // the kernel wrote it
  std::vector<Address> lost;                // the starts of pieces with lost stacks
  for (const ThreadInfo& thread : threads) {
    if (!thread.registers) continue;
    const CoreSegment* segment = file.find(thread.registers->sp());
    if (segment == nullptr || !is_lost(file, *segment, *thread.registers)) continue;
    const std::uint64_t at = thread.registers->sp() - segment->range.start;
    lost.push_back(segment->range.start + at / kPiece * kPiece);
    gaps.threads.push_back(thread.tid);
  }
  // Only now: a mapping with several stacks is cut at the lowest one, from which on everything is lost.
  std::sort(lost.begin(), lost.end());
  for (const Address from : lost) gaps.bytes += file.drop_from(from);
  return gaps;
}

std::optional<Problem> describe(const GcoreGaps& gaps) {
  if (gaps.threads.empty()) return std::nullopt;
  constexpr std::size_t kMaxShown = 16;
  std::string tids;
  for (std::size_t i = 0; i < std::min(gaps.threads.size(), kMaxShown); ++i)
    tids += fmt::format("{}{}", i == 0 ? "" : ", ", gaps.threads[i]);
  if (gaps.threads.size() > kMaxShown) tids += ", ...";
  const std::string_view s = plural(gaps.threads.size());
  return Problem{
      fmt::format("gcore has left out the stack{} of {} thread{} (tid {}), {} MiB in all: it gives up a mapping at the "
                  "first page that cannot be "
                  "read, such as the stack guards that glibc 2.42 and newer place inside of mappings",
                  s, gaps.threads.size(), s, tids, (gaps.bytes + (1 << 20) - 1) >> 20),
      "take the kernel's core, which holds them: prlimit --pid PID --core=unlimited, then kill -ABRT PID, which ends "
      "the process; or look at it "
      "live: rankstacks attach --pids PID",
      ProblemCode::kIncomplete};
}

}  // namespace rankstacks::target
