#include "target/fault_place.h"

#include <algorithm>
#include <csignal>

namespace rankstacks::target {
namespace {

constexpr std::uint64_t kPage = 4096;
// stack_guard_gap of the kernel, 256 pages, below the main stack; glibc's guards have one page by default.
constexpr std::uint64_t kWidestGuard = 256 * kPage;
// How far the stack pointer may be from the end of an overflowed stack: functions with large arrays move it at once.
constexpr std::uint64_t kNearEnd = 64 << 10;

bool is_accessible(const Mapping& mapping) { return mapping.readable || mapping.writable || mapping.executable; }

FaultMapping described(const Mapping& mapping, std::uint64_t distance) {
  const std::string permissions{mapping.readable ? 'r' : '-', mapping.writable ? 'w' : '-',
                                mapping.executable ? 'x' : '-'};
  return {mapping.path, permissions, distance};
}

bool is_stack_of(const Mapping& mapping, const Registers& registers, bool is_main) {
  if (is_main) return mapping.path == "[stack]";
  return mapping.path.empty() && mapping.writable && mapping.range.contains(registers.fs_base);
}

// `above`: the first accessible mapping above the address.
bool is_below_stack(Address address, const Mapping& above, const Registers& registers, bool is_main) {
  if (!is_stack_of(above, registers, is_main)) return false;
  const Address sp = registers.sp(), start = above.range.start;
  const bool at_the_end = sp < start ? start - sp <= kWidestGuard : sp - start <= kNearEnd;
  return at_the_end && start - address <= kWidestGuard;
}

const Registers* registers_of(const Target& target, Tid tid) {
  const auto threads = target.threads();
  const auto at = std::find_if(threads.begin(), threads.end(), [&](const ThreadInfo& t) { return t.tid == tid; });
  return at == threads.end() || !at->registers ? nullptr : &*at->registers;
}

bool is_memory_fault(int signal) { return signal == SIGSEGV || signal == SIGBUS; }

// `registers`: nullptr if they are not known.
std::optional<FaultPlace> place_of(const Target& target, const Registers* registers, const SignalInfo& signal,
                                   Pid pid) {
  const auto mappings = target.mappings();
  if (!is_memory_fault(signal.number) || !signal.fault_address || mappings.empty()) return std::nullopt;
  const Address address = *signal.fault_address;
  FaultPlace place;
  place.executed = registers != nullptr && registers->pc() == address;
  const auto after = std::upper_bound(mappings.begin(), mappings.end(), address,
                                      [](Address a, const Mapping& m) { return a < m.range.start; });
  const Mapping* before = after == mappings.begin() ? nullptr : &*std::prev(after);
  const bool mapped = before != nullptr && before->range.contains(address);
  const auto above = std::find_if(after, mappings.end(), is_accessible);
  const bool no_access = !mapped || !is_accessible(*before);
  if (no_access && registers != nullptr && above != mappings.end() &&
      is_below_stack(address, *above, *registers, signal.tid == pid)) {
    place.region = FaultRegion::kBelowStack;
  } else if (mapped) {
    place.region = FaultRegion::kMapped;
    place.mapping = described(*before, address - before->range.start);
  } else if (address < kPage) {
    place.region = FaultRegion::kFirstPage;
  } else {
    if (before != nullptr) place.below = described(*before, address - before->range.end);
    if (after != mappings.end()) place.above = described(*after, after->range.start - address);
  }
  return place;
}

}  // namespace

std::optional<FaultPlace> place_of_fault(const Target& target, const SignalInfo& signal, Pid pid) {
  return place_of(target, registers_of(target, signal.tid), signal, pid);
}

std::optional<FaultPlace> place_of_fault(const Target& target, const Registers& registers, const SignalInfo& signal,
                                         Pid pid) {
  return place_of(target, &registers, signal, pid);
}

}  // namespace rankstacks::target
