// The purpose of each thread, and whether it has no work, from the tables of known/.
#include "analyzers/roles.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "analyzers/activity_rules.h"
#include "analyzers/names.h"
#include "analyzers/role_stack.h"
#include "base/text.h"
#include "known/known_programs.h"

namespace rankstacks::analyzers {
namespace {

// So many threads of a process with one and the same waiting stack are a pool, whichever library it belongs to.
constexpr std::size_t kPoolSize = 3;

// A rule's number: the threads' rules first, then the children's.
using RuleNumber = std::uint32_t;

std::size_t rule_count() {
  return known::known_programs().thread_roles.size() + known::known_programs().child_roles.size();
}

bool is_of_child(RuleNumber i) { return i >= known::known_programs().thread_roles.size(); }

const known::RoleRule& rule_at(RuleNumber i) {
  const known::KnownPrograms& known = known::known_programs();
  return is_of_child(i) ? known.child_roles[i - known.thread_roles.size()] : known.thread_roles[i];
}

bool asks_for_function(known::RoleMatch match) {
  return match == known::RoleMatch::kFunction || match == known::RoleMatch::kEntry ||
         match == known::RoleMatch::kInnermost;
}
bool asks_for_module(known::RoleMatch match) {
  return match == known::RoleMatch::kEntryModule || match == known::RoleMatch::kPolls;
}

std::string_view file_of(const Frame& frame) { return frame.file ? std::string_view(*frame.file) : std::string_view(); }

// Of the rules whose text matches: those that may decide, whatever stack the text is in. These are the first rule per
// kind of match, for threads and for children, for the role of an idle pool and for other roles. This keeps the list
// short, however many rules there are.
class RuleList {
 public:
  // The rules are in the order of their numbers.
  void add(RuleNumber i) {
    const known::RoleRule& rule = rule_at(i);
    const auto decides_before = [&](RuleNumber k) {
      const known::RoleRule& earlier = rule_at(k);
      return earlier.match == rule.match && is_of_child(k) == is_of_child(i) &&
             (earlier.role == known::Role::kIdlePool) == (rule.role == known::Role::kIdlePool);
    };
    if (std::none_of(rules_.begin(), rules_.end(), decides_before)) rules_.push_back(i);
  }
  auto begin() const { return rules_.begin(); }
  auto end() const { return rules_.end(); }

 private:
  std::vector<RuleNumber> rules_;
};

template <typename Condition>
RuleList rules_where(Condition condition) {
  RuleList list;
  for (RuleNumber i = 0; i < rule_count(); ++i)
    if (condition(rule_at(i))) list.add(i);
  return list;
}

// The rules whose texts a frame matches, wherever in a stack the rule requires the frame to be. Ranks share their
// functions, at different addresses: each function, module and file is searched once.
class FrameRules {
 public:
  explicit FrameRules(const FrameTable& frames) : lists_(frames.size()) {
    for (RuleNumber i = 0; i < rule_count(); ++i)
      if (is_of_python(rule_at(i)) && !rule_at(i).what.empty()) by_name_[rule_at(i).what].push_back(i);
    for (FrameId id = 0; id < frames.size(); ++id)
      lists_[id] = frames[id].kind == FrameKind::kNative ? of_native(frames[id]) : of_python(frames[id]);
  }

  FrameRules(const FrameRules&) = delete;  // it has pointers into itself
  FrameRules& operator=(const FrameRules&) = delete;

  // Calls f(number) for each rule, in no particular order.
  template <typename F>
  void each(FrameId id, F&& f) const {
    for (const RuleList* list : lists_[id])
      if (list != nullptr)
        for (const RuleNumber i : *list) f(i);
  }

 private:
  using Lists = std::array<const RuleList*, 2>;  // into the maps below; nullptr if there is none

  static bool is_of_python(const known::RoleRule& r) {
    return !asks_for_function(r.match) && !asks_for_module(r.match);
  }
  static bool is_of_file(const known::RoleRule& r, std::string_view file) {
    return r.match == known::RoleMatch::kPython ? file.ends_with(r.file) : contains(file, r.file);
  }

  Lists of_native(const Frame& frame) {
    const auto [module, new_module] = by_module_.try_emplace(frame.module);
    if (new_module)
      module->second = rules_where([&](const known::RoleRule& r) {
        return asks_for_module(r.match) && base_name(frame.module).starts_with(r.what);
      });
    if (!frame.function) return {&module->second, nullptr};
    const auto [function, new_function] = by_function_.try_emplace(*frame.function);
    if (new_function)
      function->second = rules_where(
          [&](const known::RoleRule& r) { return asks_for_function(r.match) && contains(*frame.function, r.what); });
    return {&module->second, &function->second};
  }

  Lists of_python(const Frame& frame) {
    const std::string_view file = file_of(frame);
    const auto [of_file, new_file] = by_file_.try_emplace(file);
    if (new_file)
      of_file->second.any_function = rules_where(
          [&](const known::RoleRule& r) { return is_of_python(r) && r.what.empty() && is_of_file(r, file); });
    const auto named = frame.function ? by_name_.find(*frame.function) : by_name_.end();
    if (named == by_name_.end()) return {&of_file->second.any_function, nullptr};
    const auto [list, new_function] = of_file->second.named.try_emplace(*frame.function);
    if (new_function)
      for (const RuleNumber i : named->second)
        if (is_of_file(rule_at(i), file)) list->second.add(i);
    return {&of_file->second.any_function, &list->second};
  }

  struct OfFile {
    RuleList any_function;  // rules without a function
    std::unordered_map<std::string_view, RuleList> named;
  };

  std::vector<Lists> lists_;
  std::unordered_map<std::string_view, std::vector<RuleNumber>>
      by_name_;  // of Python rules, by the function that they name
  std::unordered_map<std::string_view, RuleList> by_function_, by_module_;
  std::unordered_map<std::string_view, OfFile> by_file_;
};

enum class Block { kNone, kUnknown, kCondition, kPoll, kSleep, kOther };

Block block_of_call(std::string_view name) {
  if (name.starts_with("pthread_cond_") || name.starts_with("sem_") ||
      is_one_of(name, {"futex", "futex_wait", "futex_abstimed_wait", "futex_abstimed_wait_cancelable"}))
    return Block::kCondition;
  if (is_one_of(name, {"poll", "ppoll", "select", "pselect", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2",
                       "accept", "accept4", "read", "recv", "recvfrom", "recvmsg", "io_getevents", "sigwait",
                       "sigwaitinfo", "sigtimedwait"}))
    return Block::kPoll;
  if (is_one_of(name, {"nanosleep", "clock_nanosleep", "usleep", "sleep"})) return Block::kSleep;
  // A frame on the way to one of the above.
  if (name.empty() || is_one_of(name, {"syscall", "internal_syscall_cancel", "syscall_cancel", "syscall_cancel_arch",
                                       "futex_abstimed_wait_common", "futex_abstimed_wait_common64"}))
    return Block::kUnknown;
  return Block::kOther;  // a mutex, abort, malloc, exit
}

// What the innermost frames of the C library wait in: the outermost of them that has a known name. If none has one,
// the system call decides.
Block block_of(const JobSnapshot& job, const ThreadSnapshot& thread) {
  Block block = Block::kNone;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind == FrameKind::kPython || !is_foreign(frame) || is_thread_start(frame)) {
      // CPython's locks are semaphores or condition variables, in libc's inner functions, which have no names without
      // debug symbols.
      const bool lock = frame.function && (frame.function->starts_with("PyThread_acquire_lock") ||
                                           frame.function->starts_with("_PySemaphore_"));
      if (block == Block::kUnknown && lock) block = Block::kCondition;
      break;
    }
    if (!is_c_library(frame.module)) {  // std::terminate and similar functions lead to no wait
      if (block == Block::kNone) block = Block::kUnknown;
      continue;
    }
    const Block found = block_of_call(frame.function ? public_libc_name(*frame.function) : std::string());
    if (found != Block::kUnknown || block == Block::kNone) block = found;
  }
  if ((block == Block::kNone || block == Block::kUnknown) && thread.syscall)
    block = block_of_call(thread.syscall->name);
  return block;
}

bool is_wait(Block block, known::Wait wait) {
  switch (wait) {
    case known::Wait::kAny: return true;
    case known::Wait::kCondition: return block == Block::kCondition;
    case known::Wait::kPoll: return block == Block::kPoll;
    case known::Wait::kBlocks: return block == Block::kCondition || block == Block::kPoll || block == Block::kSleep;
  }
  return false;
}

// Finds the rules that match a stack.
class Matcher {
 public:
  explicit Matcher(const FrameTable& frames) : traits_(frames), frame_rules_(frames) {}

  RoleStack stack(const JobSnapshot& job, const ThreadSnapshot& thread) const {
    return RoleStack(job, thread, traits_);
  }

  // Whether the thread's system call counts as well.
  static bool asks_for_call(const RoleStack& stack) {
    return !stack.has_python && stack.own_frames == 1 && !stack.job.frames[*stack.innermost_own].function;
  }

  // The first of the rules with these numbers; nullptr if there is none.
  const known::RoleRule* first(const RoleStack& stack, std::size_t begin, std::size_t end) const {
    std::size_t best = end;
    const auto look_at = [&](std::optional<FrameId> id, auto holds) {
      if (!id) return;
      frame_rules_.each(*id, [&](RuleNumber i) {
        if (i >= begin && i < best && holds(rule_at(i))) best = i;
      });
    };
    // If a pool's thread has a task in Python, the task decides.
    const auto is_hidden = [&](const known::RoleRule& r) {
      return stack.has_python && r.role == known::Role::kIdlePool &&
             (asks_for_function(r.match) || asks_for_module(r.match));
    };
    const auto of = [&](known::RoleMatch match) {
      return [&, match](const known::RoleRule& r) { return r.match == match && !is_hidden(r); };
    };
    for (const FrameId id : stack.thread.frames)
      look_at(id, [&](const known::RoleRule& r) {
        return (r.match == known::RoleMatch::kFunction || r.match == known::RoleMatch::kPython ||
                r.match == known::RoleMatch::kPythonFile) &&
               !is_hidden(r);
      });
    look_at(stack.entry_function, of(known::RoleMatch::kEntry));
    look_at(stack.python_entry, of(known::RoleMatch::kPythonEntryFile));
    look_at(stack.python_place, of(known::RoleMatch::kPythonWaits));
    if (!stack.has_python) {
      look_at(stack.entry, of(known::RoleMatch::kEntryModule));
      look_at(stack.innermost_own, of(known::RoleMatch::kInnermost));
      if (asks_for_call(stack) && block_of(stack.job, stack.thread) == Block::kPoll)
        look_at(stack.innermost_own, of(known::RoleMatch::kPolls));
    }
    return best == end ? nullptr : &rule_at(static_cast<RuleNumber>(best));
  }

 private:
  FrameTraits traits_;
  FrameRules frame_rules_;
};

// The role of a thread that is not the main thread of a rank.
const known::RoleRule* rule_of(const Matcher& matcher, const RankSnapshot& rank, const ThreadSnapshot& thread,
                               const RoleStack& stack) {
  const std::size_t of_threads = known::known_programs().thread_roles.size();
  return thread.tid == rank.pid ? matcher.first(stack, of_threads, rule_count()) : matcher.first(stack, 0, of_threads);
}

// What a stack says of its thread. Most stacks of a large job are those of many threads: each is looked at once.
class StackRoles {
 public:
  struct OfStack {
    const known::RoleRule* rule = nullptr;
    bool has_python = false;
  };

  explicit StackRoles(const JobSnapshot& job) : job_(job), matcher_(job.frames) {}

  OfStack of(const RankSnapshot& rank, const ThreadSnapshot& thread) {
    std::optional<OfStack>* const known =
        thread.frames.identity() == nullptr ? nullptr : &known_[thread.tid == rank.pid][thread.frames.identity()];
    if (known != nullptr && *known) return **known;
    const RoleStack stack = matcher_.stack(job_, thread);
    const OfStack found{rule_of(matcher_, rank, thread, stack), stack.has_python};
    if (known != nullptr && !Matcher::asks_for_call(stack)) *known = found;
    return found;
  }

 private:
  const JobSnapshot& job_;
  const Matcher matcher_;
  std::unordered_map<const void*, std::optional<OfStack>> known_[2];  // of main threads: [1]
};

known::Role role_of(StackRoles& stacks, const RankSnapshot& rank, const ThreadSnapshot* main,
                    const ThreadSnapshot& thread) {
  const bool is_main = thread.tid == rank.pid;
  if (is_main && rank.kind != RankKind::kChild) return known::Role::kMain;
  const StackRoles::OfStack stack = stacks.of(rank, thread);
  if (stack.rule != nullptr) return stack.rule->role;
  if (is_main) return known::Role::kMain;
  if (stack.has_python) return known::Role::kPython;
  // A name equal to the main thread's is inherited and means nothing.
  if (main == nullptr || main->name != thread.name)
    for (const known::NameRule& rule : known::known_programs().thread_names)
      if (thread.name.starts_with(rule.prefix)) return rule.role;
  return known::Role::kNative;
}

bool all_own_frames_in(const JobSnapshot& job, const ThreadSnapshot& thread, std::string_view module) {
  bool any = false;
  for (const FrameId id : thread.frames) {
    const Frame& frame = job.frames[id];
    if (frame.kind == FrameKind::kPython) return false;
    if (is_foreign(frame)) continue;
    if (!base_name(frame.module).starts_with(module)) return false;
    any = true;
  }
  return any;
}

bool holds(const RoleStack& stack, const known::IdleRule& rule) {
  const Frame* place = stack.python_place ? &stack.job.frames[*stack.python_place] : nullptr;
  const Frame* own = stack.innermost_own && !stack.has_python ? &stack.job.frames[*stack.innermost_own] : nullptr;
  switch (rule.match) {
    case known::IdleMatch::kFunction: return own && own->function && contains(*own->function, rule.what);
    case known::IdleMatch::kModule: return own && base_name(own->module).starts_with(rule.what);
    case known::IdleMatch::kOnly: return own && all_own_frames_in(stack.job, stack.thread, rule.what);
    case known::IdleMatch::kPython:
      return place && (rule.what.empty() || place->function == rule.what) && contains(file_of(*place), rule.file);
  }
  return false;
}

// Whether the thread seems to wait for work, without knowing the program: it sleeps on a condition variable, in no
// function that is known to wait for other ranks.
bool waits_for_work(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (block_of(job, thread) != Block::kCondition) return false;
  return std::none_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) {
    const Frame& frame = job.frames[id];
    return frame.kind == FrameKind::kPython || activity_rule_of(frame) != nullptr;
  });
}

// Threads that no rule knows and that wait alike: a framework's pool.
void find_pools(const JobSnapshot& job, const RankSnapshot& rank, std::vector<known::Role>& roles) {
  std::map<std::vector<FrameId>, std::vector<std::size_t>> alike;
  for (std::size_t t = 0; t < roles.size(); ++t)
    if (roles[t] == known::Role::kNative && !rank.threads[t].frames.empty()) alike[rank.threads[t].frames].push_back(t);
  for (const auto& [frames, threads] : alike)
    if (threads.size() >= kPoolSize && std::all_of(threads.begin(), threads.end(),
                                                   [&](std::size_t t) { return waits_for_work(job, rank.threads[t]); }))
      for (const std::size_t t : threads) roles[t] = known::Role::kIdlePool;
}

// If the tables know the pool, only they decide whether its thread is idle: a thread with a task may wait on a
// condition variable as well.
bool is_of_known_pool(const JobSnapshot& job, const ThreadSnapshot& thread) {
  const auto& rules = known::known_programs().thread_roles;
  return std::any_of(rules.begin(), rules.end(), [&](const known::RoleRule& rule) {
    if (rule.role != known::Role::kIdlePool || (!asks_for_function(rule.match) && !asks_for_module(rule.match)))
      return false;
    return std::any_of(thread.frames.begin(), thread.frames.end(), [&](FrameId id) {
      const Frame& frame = job.frames[id];
      return asks_for_module(rule.match) ? base_name(frame.module).starts_with(rule.what)
                                         : frame.function && contains(*frame.function, rule.what);
    });
  });
}

}  // namespace

std::vector<std::vector<known::Role>> assign_roles(const JobSnapshot& job) {
  StackRoles stacks(job);
  std::vector<std::vector<known::Role>> roles(job.ranks.size());
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    const auto main = std::find_if(rank.threads.begin(), rank.threads.end(),
                                   [&](const ThreadSnapshot& t) { return t.tid == rank.pid; });
    for (const ThreadSnapshot& thread : rank.threads)
      roles[r].push_back(role_of(stacks, rank, main == rank.threads.end() ? nullptr : &*main, thread));
    find_pools(job, rank, roles[r]);
  }
  return roles;
}

bool has_nccl(const std::vector<known::Role>& roles) {
  return std::any_of(roles.begin(), roles.end(), [](known::Role r) {
    return r == known::Role::kNcclWatchdog || r == known::Role::kNcclHeartbeat || r == known::Role::kNcclProxy ||
           r == known::Role::kNcclService || r == known::Role::kNcclRas || r == known::Role::kNcclMonitor;
  });
}

const known::RoleRule* role_rule_of(const JobSnapshot& job, std::size_t rank, std::size_t thread) {
  const RankSnapshot& process = job.ranks[rank];
  if (process.threads[thread].tid == process.pid && process.kind != RankKind::kChild) return nullptr;
  const Matcher matcher(job.frames);
  return rule_of(matcher, process, process.threads[thread], matcher.stack(job, process.threads[thread]));
}

const known::IdleRule* idle_rule_of(const JobSnapshot& job, const ThreadSnapshot& thread, known::Role role) {
  const RoleStack stack(job, thread);
  const Block block = block_of(job, thread);
  const auto& rules = known::known_programs().idle;
  const auto rule = std::find_if(rules.begin(), rules.end(), [&](const known::IdleRule& r) {
    return r.role == role && is_wait(block, r.wait) && holds(stack, r);
  });
  return rule == rules.end() ? nullptr : &*rule;
}

bool is_idle(const JobSnapshot& job, const ThreadSnapshot& thread, known::Role role) {
  // Stopped, frozen, waiting for a disk, holding the GIL or waiting for it: not the idle state of any role.
  constexpr std::string_view kNotIdle = "DTtF";
  if (thread.gil || (thread.state && contains(kNotIdle, *thread.state))) return false;
  return idle_rule_of(job, thread, role) != nullptr ||
         (role == known::Role::kIdlePool && waits_for_work(job, thread) && !is_of_known_pool(job, thread));
}

}  // namespace rankstacks::analyzers
