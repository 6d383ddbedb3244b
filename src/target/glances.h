// Samples of waiting threads, taken while their process runs. A stop finds a thread that takes many short steps nearly
// always in its longest wait. A glance does not disturb the thread, so that there can be a thousand of them.
//
// /proc/PID/task/TID/syscall has the stack pointer and pc of a thread in a system call (proc(5)); process_vm_readv
// reads its stack. Both are of the same moment if the thread has not run in between (still_threads.h). The callee-saved
// registers are unknown: a walk that needs them does not reach the end of the stack.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/leavable_thread.h"
#include "target/live_target.h"

namespace rankstacks::target {

struct Glance {
  Tid tid = 0;
  Registers registers;
  Address stack_start = 0;
  std::vector<std::byte> stack;
};

// One glance at every place where a thread waits. A place is identified by the stack pointer, the pc, and the code
// addresses at the top of the stack, as the frames of two functions may have the same size.
class Glances {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMaxThreads = 32;  // read every millisecond, at about 10 us each
  static constexpr std::size_t kMaxPlaces = 12;   // of one thread
  // Of these, with the same stack pointer and pc: a stack may hold dozens of stale code addresses.
  static constexpr int kMaxAlike = 2;

  bool empty() const { return threads_.empty(); }
  void follow(Pid pid, Tid tid);  // threads beyond kMaxThreads are ignored
  // Until then, and for at least so long. Runs on a thread that is abandoned if some memory does not answer. Then no
  // more glances are taken, and those taken so far are kept.
  void glance_until(Clock::time_point when, Clock::duration at_least = {});

  // The nth places of the threads of one process, one for each thread that has so many; empty if none has.
  std::vector<Glance> of(Pid pid, std::size_t n) const;

 private:
  struct Followed {
    Pid pid;
    Tid tid;
    std::set<std::vector<Address>> places;
    std::vector<Glance> glances;
  };
  void glance(Followed& thread, LeavableThread& reader);
  std::vector<Address> place_of(Pid pid, const Registers& registers, LeavableThread& reader) const;

  bool has_stuck_ = false;
  std::vector<Followed> threads_;
  std::map<Pid, std::vector<Range>> code_;  // the executable ranges when the first thread was followed, sorted
};

// Glances at the threads of one process as a target to unwind: their stacks, and what the files of its modules contain.
class GlancedTarget final : public Target {
 public:
  GlancedTarget(std::unique_ptr<LiveTarget> process, std::vector<Glance> glances);

  const std::string& subject() const override { return process_->subject(); }
  std::span<const ThreadInfo> threads() const override { return threads_; }
  std::span<const Mapping> mappings() const override { return process_->mappings(); }
  const ModuleMap& modules() const override { return process_->modules(); }
  std::size_t read(Address address, std::span<std::byte> into) const noexcept override;

  void leave_out(std::size_t thread) { threads_.erase(threads_.begin() + static_cast<std::ptrdiff_t>(thread)); }

 private:
  std::unique_ptr<LiveTarget> process_;
  std::vector<Glance> glances_;
  std::vector<ThreadInfo> threads_;
};

}  // namespace rankstacks::target
