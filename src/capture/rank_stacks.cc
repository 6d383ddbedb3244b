#include "capture/rank_stacks.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "target/limited_target.h"
#include "target/syscalls.h"
#include "target/thread_pointer.h"

namespace rankstacks::capture {
namespace {

unwind::UnwoundStack innermost_only(const target::Registers& registers, StackEnd end) {
  unwind::UnwoundStack stack;
  stack.frames.push_back({.pc = registers.pc(), .sp = registers.sp(), .exact_pc = true});
  stack.end = end;
  return stack;
}

// Whether a core lacks part of the stack that a stack pointer points into. Not if no readable memory is mapped there:
// then it is a wild stack pointer, or a stack that overflowed. Each stack is read once, however many threads claim it.
class CoreStacks {
 public:
  explicit CoreStacks(const target::Target& target) : target_(target) {}

  bool lacks(Address sp) {
    constexpr std::uint64_t kMax = 64u << 20;  // as much of a stack as is copied from a live process
    const auto mappings = target_.mappings();
    const auto after = std::upper_bound(mappings.begin(), mappings.end(), sp,
                                        [](Address a, const target::Mapping& m) { return a < m.range.start; });
    if (after == mappings.begin() || !std::prev(after)->range.contains(sp) || !std::prev(after)->readable) return false;
    const Range& stack = std::prev(after)->range;
    Seen& seen = seen_.try_emplace(stack.start, Seen{stack.end, stack.end}).first->second;
    const Address end = std::min(stack.end, sp + std::min(kMax, stack.end - sp));
    // Reads the part between here and the part that was read before. If memory is missing further up, it is missing for
    // this stack pointer as well.
    if (seen.missing < stack.end && sp <= seen.missing && seen.missing < end) return true;
    for (Address at = sp; at < std::min(end, seen.from);) {
      const std::size_t n = std::min<std::uint64_t>(bytes_.size(), std::min(end, seen.from) - at);
      if (!target_.read_exact(at, std::span(bytes_).first(n))) {
        seen.missing = at;
        return true;
      }
      at += n;
    }
    if (end >= seen.from) seen.from = std::min(seen.from, sp);
    return false;
  }

 private:
  struct Seen {
    // All memory from `from` on is available, up to `missing`: the lowest address known to be missing, or the end of
    // the stack.
    Address from, missing;
  };
  const target::Target& target_;
  std::map<Address, Seen> seen_;  // by the start of the mapping
  std::vector<std::byte> bytes_ = std::vector<std::byte>(64u << 10);
};

// Whether a noted stack goes through a module whose file, and with it the unwind tables, is not here.
bool lacks_files(const target::Target& target, const unwind::UnwoundStack& stack) {
  return std::any_of(stack.frames.begin(), stack.frames.end(), [&](const unwind::UnwoundFrame& frame) {
    const target::Module* module = target.modules().find(frame.lookup_pc());
    return module != nullptr && module->path != "[vdso]" && (!module->image || module->image->path().empty());
  });
}

}  // namespace

void read_python(RankStacks& rank, std::span<const python::RuntimeCandidate> candidates, std::size_t locals,
                 const Deadline& deadline, const char* limit) {
  const target::LimitedTarget target(*rank.target, deadline);
  auto state = python::read_python_state(target, candidates, locals);
  if (target.gave_up()) give_up(rank.snapshot, "reading Python's state", limit);
  if (!state) {
    if (candidates.empty() && state.error().code == ErrorCode::kNotFound) return;  // it is not a Python process
    rank.snapshot.problems.push_back(problem_of(state.error()));
    if (state.error().code != ErrorCode::kNotFound) {  // there is an interpreter, and its frames are missing
      rank.snapshot.python_version.emplace();
      worsen(rank.snapshot, Status::kPartial);
    }
    return;
  }
  rank.python = std::move(*state);
}

namespace {

// The structures of glibc that futex calls wait on:
//
// pthread_mutex_t (struct __pthread_mutex_s, since 2.3; on x86_64 and aarch64): int __lock, unsigned __count,
// int __owner, unsigned __nusers, int __kind. A futex call of pthread_mutex_lock waits on __lock, which is 2 while
// other threads wait. Bit 7 of __kind says that other processes use it, too. A thread that ends leaves its number in
// __owner. pthread_rwlock_t (struct __pthread_rwlock_arch_t, since 2.25): unsigned __readers, __writers,
// __wrphase_futex,
// __writers_futex, two more, int __cur_writer. A futex call waits on __wrphase_futex or __writers_futex.
// pthread_join waits on the `tid` of the other thread's descriptor (struct pthread, at its fs base), until the kernel
// clears it; no other function waits there.
constexpr std::size_t kMaxFutexes = 256;
constexpr std::size_t kWordOfMutexOwner = 2, kWordOfMutexUsers = 3, kWordOfMutexKind = 4;
constexpr std::size_t kWordOfWriterFromWriters = 3, kWordOfWriterFromPhase = 4;
using FutexWords = std::array<std::int32_t, 5>;

// The number of a thread of the process that has ended and holds the mutex; 0 if these words are none of such a mutex.
Tid ended_owner(const FutexWords& words) {
  constexpr std::int32_t kKinds = 0x3f | 0x300, kOfProcesses = 0x80;  // nptl: pthreadP.h, bits/struct_mutex.h
  constexpr std::int32_t kMaxPid = 1 << 22;                           // linux/threads.h: PID_MAX_LIMIT
  const std::int32_t owner = words[kWordOfMutexOwner], kind = words[kWordOfMutexKind];
  const bool is_own_mutex = (kind & ~kKinds) == 0 && (kind & kOfProcesses) == 0 && words[kWordOfMutexUsers] > 0;
  return is_own_mutex && owner > 0 && owner < kMaxPid ? owner : 0;
}

void read_futex_memory(RankStacks& rank) {
  const target::Target& target = *rank.target;
  const auto threads = target.threads();
  rank.futex_memory.assign(threads.size(), std::nullopt);
  rank.futexes.assign(threads.size(), std::nullopt);
  std::vector<std::pair<std::size_t, Address>> futexes;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (!threads[i].registers) continue;
    const auto& address = rank.futexes[i] = target::futex_address(target, *threads[i].registers);
    if (address && *address < ~Address{0} - sizeof(FutexWords) && futexes.size() < kMaxFutexes)
      futexes.emplace_back(i, *address);
  }
  std::vector<Range> ranges;
  for (const auto& [i, address] : futexes) ranges.push_back({address, address + sizeof(FutexWords)});
  target.prefetch(ranges);
  std::unordered_set<Tid> tids;
  std::unordered_map<Address, Tid> by_tid_address;
  for (const target::ThreadInfo& t : threads) {
    tids.insert(t.tid);
    if (t.registers && t.registers->fs_base != 0)
      by_tid_address.emplace(t.registers->fs_base + target::kTidInDescriptor, t.tid);
  }
  const auto thread_in = [&](std::int32_t word) { return tids.contains(word) ? word : 0; };
  // In a container the process counts its threads by other numbers than this tool may.
  const auto counts_as_the_kernel = [&](const target::ThreadInfo& thread) {
    if (!thread.registers || thread.registers->fs_base == 0) return false;
    const auto tid = target.read_value<std::int32_t>(thread.registers->fs_base + target::kTidInDescriptor);
    return tid && *tid == thread.tid;
  };
  for (const auto& [i, address] : futexes) {
    const auto words = target.read_value<FutexWords>(address);
    if (!words) continue;
    constexpr std::int32_t kContended = 2;
    FutexMemory& memory = rank.futex_memory[i].emplace();
    if ((*words)[0] == kContended) {
      memory.mutex_owner = thread_in((*words)[kWordOfMutexOwner]);
      if (memory.mutex_owner == 0 && counts_as_the_kernel(threads[i])) memory.mutex_owner = ended_owner(*words);
    }
    memory.rwlock_writer = thread_in((*words)[kWordOfWriterFromPhase]);
    if (memory.rwlock_writer == 0) memory.rwlock_writer = thread_in((*words)[kWordOfWriterFromWriters]);
    if (const auto other = by_tid_address.find(address);
        other != by_tid_address.end() && other->second != threads[i].tid)
      memory.joined = other->second;
  }
}

}  // namespace

void drop_moved(RankStacks& rank) {
  const auto threads = rank.target->threads();
  const auto drop = [](auto& read, std::size_t i) {
    if (i < read.size()) read[i].reset();
  };
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (threads[i].registers) continue;
    drop(rank.syscalls, i);
    drop(rank.awaited, i);
    drop(rank.futexes, i);
    drop(rank.futex_memory, i);
    drop(rank.exceptions.handled, i);
    drop(rank.exceptions.raised, i);
  }
}

void read_exceptions(RankStacks& rank) {
  if (rank.cxx) rank.exceptions = target::read_held_exceptions(*rank.target, *rank.cxx);
}

void read_recorders(RankStacks& rank) {
  rank.snapshot.flight_record = flight_recorder::read_recorders(
      [&](Address at, std::span<std::byte> into) { return rank.target->read_exact(at, into); }, rank.recorders);
  if (rank.snapshot.flight_record) rank.snapshot.flight_record->age_ms = 0;
}

void read_abort_message(RankStacks& rank) {
  rank.snapshot.abort_message = target::read_abort_message(*rank.target, rank.abort_messages);
}

void read_syscalls(RankStacks& rank) {
  rank.syscalls.clear();
  rank.awaited.clear();
  for (const target::ThreadInfo& t : rank.target->threads()) {
    rank.syscalls.push_back(t.registers ? target::blocked_syscall(*rank.target, *t.registers) : std::nullopt);
    const auto& call = rank.syscalls.back();
    rank.awaited.push_back(call ? target::awaited_by(*rank.target, *t.registers, *call) : std::nullopt);
  }
  read_futex_memory(rank);
}

namespace {

// What both unwinders together make of a stack.
class Unwinders {
 public:
  Unwinders(const target::Target& target, UnwinderChoice choice)
      : target_(target),
        choice_(choice),
        first_(choice == UnwinderChoice::kLibdwfl ? unwind::make_libdwfl_unwinder(target)
                                                  : unwind::make_libunwind_unwinder(target)) {}

  unwind::UnwoundStack unwind(const target::Registers& registers) {
    unwind::UnwoundStack stack = first_->unwind(registers);
    if (choice_ != UnwinderChoice::kAuto ||
        (stack.end != StackEnd::kNoUnwindInfo && stack.end != StackEnd::kMemoryUnavailable &&
         stack.end != StackEnd::kRegistersUnknown))
      return stack;
    if (!second_) second_ = unwind::make_libdwfl_unwinder(target_);
    unwind::UnwoundStack other = second_->unwind(registers);
    const bool finished = other.end == StackEnd::kComplete || other.end == StackEnd::kDepthLimit;
    if (finished || (other.end == stack.end && other.frames.size() > stack.frames.size())) return other;
    return stack;
  }

 private:
  const target::Target& target_;
  UnwinderChoice choice_;
  std::unique_ptr<unwind::Unwinder> first_;
  // Created for the first thread that needs it, because reporting every module to libdwfl is expensive.
  std::unique_ptr<unwind::Unwinder> second_;
};

void report_missing_callers(RankSnapshot& rank, std::size_t threads) {
  rank.problems.push_back(
      {fmt::format("the core does not hold the stack{} of {} thread{} to the end: callers are missing", plural(threads),
                   threads, plural(threads)),
       "it is cut off, or was taken without private memory: see ulimit -c and bit 0 of /proc/PID/coredump_filter, "
       "and take it again",
       ProblemCode::kIncomplete});
  worsen(rank, Status::kPartial);
}

void report_frame_limit(RankSnapshot& rank, std::size_t frames) {
  rank.problems.push_back(
      {fmt::format("{} frames in all: threads after that are shown with their innermost frame alone", frames),
       std::nullopt, ProblemCode::kLimit});
  worsen(rank, Status::kPartial);
}

}  // namespace

void unwind_threads(RankStacks& rank, UnwinderChoice choice, const Deadline& deadline, std::size_t most_frames) {
  if (!rank.target) return;
  const target::LimitedTarget target(*rank.target, deadline);
  Unwinders unwinders(target, choice);
  std::size_t frames = 0, unwound = 0, not_held = 0;
  CoreStacks core_stacks(target);
  for (const target::ThreadInfo& thread : rank.target->threads()) {
    if (!thread.registers) {
      rank.stacks.push_back({.end = StackEnd::kMemoryUnavailable});
      continue;
    }
    const bool too_many = frames >= most_frames || unwound >= kMaxUnwoundOfRank;
    if (target.gave_up() || too_many) {
      rank.stacks.push_back(
          innermost_only(*thread.registers, target.gave_up() ? StackEnd::kMemoryUnavailable : StackEnd::kDepthLimit));
      continue;
    }
    if (const auto noted = rank.noted_stacks.find(thread.tid);
        noted != rank.noted_stacks.end() && lacks_files(target, noted->second)) {
      frames += noted->second.frames.size();
      unwound += noted->second.frames.size();
      rank.stacks.push_back(noted->second);
      continue;
    }
    unwind::UnwoundStack stack = unwinders.unwind(*thread.registers);
    // The unwind information was not searched for, as the time was over.
    if (target.gave_up() && stack.end == StackEnd::kNoUnwindInfo) stack.end = StackEnd::kMemoryUnavailable;
    if (rank.snapshot.source == Source::kCore && stack.end == StackEnd::kMemoryUnavailable && !target.gave_up() &&
        !rank.lost_stacks.contains(thread.tid) && core_stacks.lacks(stack.frames.back().sp) && !target.gave_up())
      ++not_held;
    frames += stack.frames.size();
    unwound += stack.frames.size() + (stack.omitted ? stack.omitted->count : 0);
    rank.stacks.push_back(std::move(stack));
  }
  if (target.gave_up()) give_up(rank.snapshot, "unwinding");
  if (not_held > 0) report_missing_callers(rank.snapshot, not_held);
  if (frames >= most_frames || unwound >= kMaxUnwoundOfRank) report_frame_limit(rank.snapshot, unwound);
}

}  // namespace rankstacks::capture
