#include "target/glances.h"

#include <fmt/format.h>
#include <sys/uio.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <thread>

#include "base/hurry.h"
#include "target/mapping_list.h"
#include "target/proc.h"
#include "target/still_threads.h"

namespace rankstacks::target {
namespace {

constexpr std::chrono::milliseconds kPause{1};
constexpr std::size_t kRedZone = 128;  // System V ABI: the bytes below rsp that a leaf function may use
constexpr std::size_t kMaxStack = 32u << 10;

// How long a glance may take: its work takes microseconds.
constexpr std::chrono::milliseconds kReturnTimeout{250};

std::size_t copy(Pid pid, Address from, std::span<std::byte> into, LeavableThread& reader) {
  iovec local{into.data(), into.size()}, remote{reinterpret_cast<void*>(from), into.size()};
  ssize_t copied = 0;
  reader.blocking([&] { copied = process_vm_readv(pid, &local, 1, &remote, 1, 0); });
  return copied < 0 ? 0 : static_cast<std::size_t>(copied);
}

std::optional<Registers> registers_of(Pid pid, Tid tid, LeavableThread& reader) {
  std::optional<Registers> registers;
  reader.blocking([&] { registers = proc::waiting_registers(pid, tid); });
  return registers;
}

// The thread, with the registers and the count to prove that it has not run since; std::nullopt if it is in no system
// call.
std::optional<SeenThreads> see(Pid pid, Tid tid, LeavableThread& reader) {
  SeenThreads seen;
  reader.blocking([&] { seen = see_threads(pid, {tid}); });
  const bool waits = seen.refused == 0 && seen.threads.size() == 1 && seen.threads.front().registers &&
                     seen.threads.front().registers->orig_rax >= 0;
  return waits ? std::optional(std::move(seen)) : std::nullopt;
}

bool has_run_since(Pid pid, const SeenThreads& seen, LeavableThread& reader) {
  bool ran = true;
  reader.blocking([&] { ran = !ran_since(pid, seen).empty(); });
  return ran;
}

}  // namespace

void Glances::follow(Pid pid, Tid tid) {
  if (threads_.size() == kMaxThreads) return;
  threads_.push_back({.pid = pid, .tid = tid});
  if (code_.contains(pid)) return;
  std::vector<Range>& code = code_[pid];
  if (const auto mappings = mappings_in(fmt::format("/proc/{}", pid)))
    for (const Mapping& m : *mappings)
      if (m.executable) code.push_back(m.range);
}

std::vector<Address> Glances::place_of(Pid pid, const Registers& registers, LeavableThread& reader) const {
  std::vector<Address> place = {static_cast<Address>(registers.orig_rax), registers.sp(), registers.pc()};
  std::array<Address, 64> top;
  const std::size_t words = copy(pid, registers.sp(), std::as_writable_bytes(std::span(top)), reader) / sizeof(Address);
  const std::vector<Range>& code = code_.at(pid);
  for (std::size_t i = 0; i < words; ++i) {
    const auto after =
        std::upper_bound(code.begin(), code.end(), top[i], [](Address a, const Range& r) { return a < r.start; });
    if (after != code.begin() && std::prev(after)->contains(top[i])) place.push_back(top[i]);
  }
  return place;
}

void Glances::glance(Followed& thread, LeavableThread& reader) {
  if (thread.glances.size() == kMaxPlaces) return;
  const auto before = registers_of(thread.pid, thread.tid, reader);
  if (!before || thread.places.contains(place_of(thread.pid, *before, reader))) return;
  // Perhaps a new place: from here on, all has to be of one moment.
  const auto seen = see(thread.pid, thread.tid, reader);
  if (!seen) return;
  const Registers& registers = *seen->threads.front().registers;
  std::vector<Address> place = place_of(thread.pid, registers, reader);
  const auto alike = std::count_if(thread.glances.begin(), thread.glances.end(), [&](const Glance& g) {
    return g.registers.sp() == registers.sp() && g.registers.pc() == registers.pc();
  });
  if (alike >= kMaxAlike) return;
  Glance glance{.tid = thread.tid, .registers = registers, .stack_start = registers.sp() - kRedZone};
  glance.stack.resize(kMaxStack);
  glance.stack.resize(copy(thread.pid, glance.stack_start, glance.stack, reader));
  if (has_run_since(thread.pid, *seen, reader) || !thread.places.insert(std::move(place)).second) return;
  thread.glances.push_back(std::move(glance));
}

void Glances::glance_until(Clock::time_point when, Clock::duration at_least) {
  if (has_stuck_) return;
  LeavableThread reader;
  // When the glances end; not set until they begin, which on a busy machine takes long.
  std::atomic<Clock::time_point> until{Clock::time_point::max()};
  reader.start([&] {
    const bool hurries = hurry();  // on a busy machine too, most glances are to be made at their time
    const auto end = std::max(when, Clock::now() + at_least);
    until = end;
    while (Clock::now() < end) {
      for (Followed& thread : threads_) glance(thread, reader);
      std::this_thread::sleep_until(std::min(end, Clock::now() + kPause));
    }
    if (hurries) hurry_no_more();
  });
  while (!has_stuck_) {
    const auto end = until.load();
    const bool begun = end != Clock::time_point::max();
    if (reader.wait_until((begun ? std::max(end, Clock::now()) : Clock::now()) + kReturnTimeout)) return;
    has_stuck_ = begun && reader.leave_behind();
  }
}

std::vector<Glance> Glances::of(Pid pid, std::size_t n) const {
  std::vector<Glance> found;
  for (const Followed& thread : threads_)
    if (thread.pid == pid && n < thread.glances.size()) found.push_back(thread.glances[n]);
  return found;
}

GlancedTarget::GlancedTarget(std::unique_ptr<LiveTarget> process, std::vector<Glance> glances)
    : process_(std::move(process)), glances_(std::move(glances)) {
  process_->forget_copy();  // nothing is read of the process while it runs
  for (const Glance& glance : glances_)
    threads_.push_back({.tid = glance.tid, .state = 'S', .registers = glance.registers});
}

std::size_t GlancedTarget::read(Address address, std::span<std::byte> into) const noexcept {
  for (const Glance& glance : glances_) {
    const Address end = glance.stack_start + glance.stack.size();
    if (address < glance.stack_start || address >= end) continue;
    const std::size_t n = std::min<std::size_t>(into.size(), end - address);
    std::memcpy(into.data(), glance.stack.data() + (address - glance.stack_start), n);
    return n;
  }
  return process_->read(address, into);
}

}  // namespace rankstacks::target
