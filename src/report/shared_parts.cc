#include "report/shared_parts.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

namespace rankstacks::report {
namespace {

class Hash {
 public:
  template <class T>
  Hash& add(const T& value) {
    sum_ ^= std::hash<T>()(value) + 0x9e3779b97f4a7c15u + (sum_ << 6) + (sum_ >> 2);
    return *this;
  }
  std::size_t sum() const { return sum_; }

 private:
  std::size_t sum_ = 0;
};

// A hash may leave out what seldom differs alone.
std::size_t hash_of(const std::vector<FrameId>& frames) {
  Hash hash;
  for (const FrameId id : frames) hash.add(id);
  return hash.sum();
}

std::size_t hash_of(const std::vector<FrameVariables>& all) {
  Hash hash;
  for (const FrameVariables& variables : all) {
    hash.add(variables.frame).add(variables.loops);
    for (const auto& [name, value] : variables.numbers) hash.add(name).add(value);
    if (variables.group) hash.add(variables.group->name);
  }
  return hash.sum();
}

std::size_t hash_of(const SyscallInfo& call) {
  Hash hash;
  hash.add(call.number).add(call.fd).add(call.fd_target).add(call.other_host);
  for (const OtherEnd& end : call.others) hash.add(end.pid);
  return hash.sum();
}

std::size_t hash_of(const Motion& motion) {
  return Hash().add(motion.samples).add(motion.places).add(motion.cpu_ms).add(motion.span_ms).sum();
}

std::size_t hash_of(const std::vector<LoadedModule>& modules) {
  Hash hash;
  for (const LoadedModule& module : modules) hash.add(module.path).add(module.build_id);
  return hash.sum();
}

std::size_t hash_of(const ProcessEnvironment& environment) {
  Hash hash;
  hash.add(environment.kernel);
  for (const auto& [name, value] : environment.variables) hash.add(name).add(value);
  return hash.sum();
}

// `Part` is a Boxed or a SharedList.
template <class Part>
class Pool {
 public:
  void share(Part& part) {
    if (part.identity() == nullptr) return;
    // The threads of one report share such parts already.
    auto& [last, shared] = last_[reinterpret_cast<std::uintptr_t>(part.identity()) / 16 % last_.size()];
    if (last.identity() != part.identity()) {
      last = part;
      shared = shared_of(part);
    }
    part = shared;
  }

 private:
  static constexpr std::size_t kTried = 65536, kLast = 64;

  Part shared_of(const Part& part) {
    const std::size_t hash = of(part);
    const auto [begin, end] = parts_.equal_range(hash);
    for (auto it = begin; it != end; ++it)
      if (it->second == part) {
        ++shared_;
        return it->second;
      }
    // Where hardly any are alike, such as calls on sockets of their own, remembering more of them saves nothing.
    if (parts_.size() < kTried || parts_.size() < shared_) parts_.emplace(hash, part);
    return part;
  }

  template <class T>
  static std::size_t of(const Boxed<T>& part) {
    return hash_of(*part);
  }
  template <class T>
  static std::size_t of(const SharedList<T>& part) {
    return hash_of(part.get());
  }

  std::unordered_multimap<std::size_t, Part> parts_;
  std::size_t shared_ = 0;
  std::array<std::pair<Part, Part>, kLast> last_;  // some that were seen, and with what they were shared
};

}  // namespace

struct SharedParts::State {
  Pool<SharedList<FrameId>> stacks;
  Pool<SharedList<FrameVariables>> variables;
  Pool<Boxed<SyscallInfo>> syscalls;
  Pool<Boxed<Motion>> motions;
  Pool<SharedList<LoadedModule>> modules;
  Pool<Boxed<ProcessEnvironment>> environments;
};

SharedParts::SharedParts() : state_(std::make_unique<State>()) {}
SharedParts::~SharedParts() = default;

void SharedParts::forget() { *state_ = {}; }

void SharedParts::share(SharedList<FrameId>& stack) { state_->stacks.share(stack); }

void SharedParts::share(RankSnapshot& rank) {
  state_->modules.share(rank.modules);
  state_->environments.share(rank.environment);
  for (ThreadSnapshot& thread : rank.threads) {
    state_->variables.share(thread.variables);
    state_->syscalls.share(thread.syscall);
    state_->motions.share(thread.motion);
  }
}

}  // namespace rankstacks::report
