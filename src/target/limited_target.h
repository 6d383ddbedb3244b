// A target whose memory becomes unreadable once a deadline has passed: every walk over it then ends as it would at
// missing memory.
//
// The walks (unwinding, Python's lists, expressions in unwind tables that never end) therefore need no clock of their
// own. The caller asks gave_up() afterwards, and says in the report that the rest was given up, as opposed to missing.
#pragma once

#include "base/deadline.h"
#include "target/target.h"

namespace rankstacks::target {

// Borrows the target. For use by one thread of the tool.
class LimitedTarget final : public Target {
 public:
  LimitedTarget(const Target& target, const Deadline& deadline) : target_(target), check_(deadline) {}

  const std::string& subject() const override { return target_.subject(); }
  std::span<const ThreadInfo> threads() const override { return target_.threads(); }
  std::span<const Mapping> mappings() const override { return target_.mappings(); }
  const ModuleMap& modules() const override { return target_.modules(); }
  std::size_t read(Address address, std::span<std::byte> into) const noexcept override {
    return check_.passed() ? 0 : target_.read(address, into);
  }
  void prefetch(std::span<const Range> ranges) const noexcept override {
    if (!check_.passed()) target_.prefetch(ranges);
  }

  bool expired() const noexcept override { return check_.passed(); }
  bool is_recorded() const noexcept override { return target_.is_recorded(); }
  std::vector<Problem> damage() const override { return target_.damage(); }

  bool gave_up() const { return check_.gave_up(); }

 private:
  const Target& target_;
  mutable DeadlineCheck check_;
};

}  // namespace rankstacks::target
