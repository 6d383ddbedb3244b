// Threads that wait, glanced at while their process runs on. A thread that takes many short steps is found at its longest wait by nearly every look:
// a glance costs it nothing, so that there can be a thousand.
//
// /proc/PID/task/TID/syscall has the stack pointer and pc of a thread in a system call (proc(5)), process_vm_readv its stack. Both are of one moment
// where the thread waits at the same place before and after. Registers that functions keep for their callers are not known: a walk that needs
// them does not come to its end.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/leavable_thread.h"
#include "target/live_target.h"

namespace rankstacks {

struct Glance {
  Tid tid = 0;
  Registers registers;
  Address stack_start = 0;
  std::vector<std::byte> stack;
};

// One glance at every place where a thread waits. What makes a place here: the stack pointer and pc, and the addresses of code that lie on top of the
// stack, as the frames of two functions may be equally large.
class Glances {
 public:
  static constexpr std::size_t kMaxThreads = 32;   // read every millisecond, at some 10 us each
  static constexpr std::size_t kMaxPlaces = 12;    // of one thread
  static constexpr int kMaxAlike = 2;              // of these, with the same stack pointer and pc: old addresses may lie on a stack by the dozen

  bool empty() const { return threads_.empty(); }
  void follow(Pid pid, Tid tid);                    // those beyond kMaxThreads are not
  // On a thread that is left behind where some memory does not answer; then no more is glanced at, and what was found by then stays.
  void glance_until(std::chrono::steady_clock::time_point when);

  // The nth places of the threads of one process, one a thread. Empty: none has so many.
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
  std::map<Pid, std::vector<Range>> code_;          // what was executable when the first thread was followed, sorted
};

// Glances at the threads of one process as a picture to be unwound: their stacks, and what the files of its modules hold.
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

}  // namespace rankstacks
