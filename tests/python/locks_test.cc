// Which lock a thread waits for and which thread holds it, in memory built by hand, intact and damaged, of every
// version.
#include <catch2/catch.hpp>

#include <map>

#include "fake_versions.h"
#include "python/locks.h"
#include "python/value_stack.h"

using namespace rankstacks;
using namespace rankstacks::testing;

namespace {

constexpr Address kNowhere = 0x7777'7777'0000;
constexpr std::uint64_t kWaiter = 0x7f00'0000'1000, kHolder = 0x7f00'0000'2000, kOther = 0x7f00'0000'3000;
constexpr Tid kWaiterTid = 101, kHolderTid = 102, kOtherTid = 103;

// A thread that waits for the lock on its frame's value stack, and other threads.
struct Scene {
  explicit Scene(int which) : fake(interpreter_of(which)) {}

  // Frames of these functions, outermost first; each in a file of the function's name, or in the given one.
  std::vector<Address> thread(std::uint64_t ident, const std::vector<std::pair<std::string, std::string>>& functions) {
    const auto& layout = fake.layout();
    const bool has_shims = layout.frame_owner != python::kAbsent && layout.frame_is_entry == python::kAbsent;
    std::vector<Address> frames;
    Address previous = has_shims ? fake.shim(0, FakeInterpreter::kCStack + (ident & 0xffff)) : 0;
    for (const auto& [name, file] : functions) {
      previous = fake.frame(fake.code_of(fake.string(name), fake.string(file), 7), previous);
      frames.push_back(previous);
    }
    if (layout.frame_is_entry != python::kAbsent) fake.mark_entry(frames.front());
    state_of[ident] = fake.thread(ident, previous);
    return frames;
  }
  // The frame calls lock.acquire(): its stack has the method and the lock; 3.6 has a bound method instead.
  Address waits_for(std::uint64_t ident, Tid tid, Address lock, const std::string& function = "step",
                    const std::string& file = "/x/train.py") {
    const Address frame = thread(ident, {{function, file}}).front();
    fake.set_stack(frame, fake.layout().minor == 6 ? std::vector{fake.builtin("acquire", lock)}
                                                   : std::vector{fake.method_descriptor("acquire"), lock});
    fake.waits_on(ident, tid, fake.futex_of(lock));
    return frame;
  }
  // A running thread, inside of `with lock:` in the outermost of its frames.
  std::vector<Address> holds(std::uint64_t ident, Tid tid, Address lock,
                             const std::vector<std::pair<std::string, std::string>>& inside = {
                                 {"sleep", "/x/nap.py"}}) {
    std::vector<std::pair<std::string, std::string>> functions = {{"report", "/x/report.py"}};
    functions.insert(functions.end(), inside.begin(), inside.end());
    const auto frames = thread(ident, functions);
    auto stack = std::vector{fake.integer(1)};
    for (const Address object : fake.exit_of(lock)) stack.push_back(object);
    fake.set_stack(frames.front(), stack, stack.size());
    fake.waits_on(ident, tid, 0);
    return frames;
  }

  // Reads the state; there must be no problem.
  python::ThreadState read(std::uint64_t ident = kWaiter) const {
    const auto state = fake.read();
    REQUIRE(state.has_value());
    CHECK(state->problems.empty());
    CHECK_FALSE(state->partial);
    for (const python::ThreadState& t : state->threads) {
      CHECK(t.problems.empty());
      if (t.pthread_id == ident) return t;
    }
    return {};
  }

  FakeInterpreter fake;
  std::map<std::uint64_t, Address> state_of;
};

PythonLock lock_of(PythonLockKind kind, std::optional<Tid> owner, std::optional<std::string> name = {}) {
  return {.kind = kind, .name = std::move(name), .owner = owner};
}

}  // namespace

TEST_CASE("an RLock names its owner") {
  Scene scene(GENERATE(6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16));
  const Address lock = scene.fake.rlock(kHolder, 2);
  scene.waits_for(kWaiter, kWaiterTid, lock);
  scene.thread(kHolder, {{"sleep", "/x/nap.py"}});
  std::optional<Tid> owner = kHolderTid;
  SECTION("as it is") { scene.fake.waits_on(kHolder, kHolderTid, 0); }
  SECTION("which is no thread of the process") {
    scene.fake.waits_on(kOther, kOtherTid, 0);
    owner.reset();
  }
  SECTION("which is no thread") {
    scene.fake.waits_on(kHolder, kHolderTid, 0);
    scene.fake.set(lock + scene.fake.layout().object_head() + 8, std::uint64_t{0});
    owner.reset();
  }
  CHECK(scene.read().lock == lock_of(PythonLockKind::kRLock, owner));
  CHECK_FALSE(scene.read().joins.has_value());
  CHECK_FALSE(scene.read(kHolder).lock.has_value());
}

TEST_CASE("up to 3.13 an RLock that no thread holds has a count of zero") {
  Scene scene(GENERATE(6, 10, 11, 13));
  scene.waits_for(kWaiter, kWaiterTid, scene.fake.rlock(kHolder, 0));
  scene.fake.waits_on(kHolder, kHolderTid, 0);
  CHECK(scene.read().lock == lock_of(PythonLockKind::kRLock, {}));
}

TEST_CASE("a thread that waits for no lock") {
  Scene scene(GENERATE(6, 8, 10, 11, 12, 13, 14, 15, 16));
  const Address lock = scene.fake.rlock(kHolder);
  const Address frame = scene.waits_for(kWaiter, kWaiterTid, lock);
  scene.fake.waits_on(kHolder, kHolderTid, 0);
  REQUIRE(scene.read().lock.has_value());
  const auto& layout = scene.fake.layout();
  target::Registers& registers = *scene.fake.target.threads_.front().registers;
  SECTION("for another semaphore") { registers.set(target::kRdi, scene.fake.futex_of(scene.fake.lock())); }
  SECTION("for an address that cannot be read") {
    registers.set(target::kRdi, GENERATE(Address{0}, Address{4}, kNowhere, ~Address{7}));
  }
  SECTION("in another call") { registers.orig_rax = 0; }
  SECTION("in no call") { registers.set(target::kRax, 7); }
  SECTION("without registers") { scene.fake.target.threads_.front().registers.reset(); }
  SECTION("of another thread") { registers.fs_base = kOther; }
  SECTION("of another type") { scene.fake.set(lock + layout.object_type, FakeInterpreter::kIntType); }
  SECTION("of no type") { scene.fake.set(lock + layout.object_type, kNowhere); }
  SECTION("with an absurd value stack") {
    const Address code = *scene.fake.target.read_value<Address>(frame + layout.frame_code) & ~Address{3};
    scene.fake.set<std::int32_t>(code + layout.code_stack_size, GENERATE(-1, 0, 1 << 30));
  }
  SECTION("whose value stack lies elsewhere") {
    const Address wrong = GENERATE(Address{0}, kNowhere, Address{0x10001}, ~Address{7});
    if (layout.frame_value_stack != python::kAbsent) scene.fake.set(frame + layout.frame_value_stack, wrong);
    else
      scene.fake.set(*scene.fake.target.read_value<Address>(frame + layout.frame_code) - (layout.minor >= 14) +
                         layout.code_slot_count,
                     std::int32_t{-1});
  }
  CHECK_FALSE(scene.read().lock.has_value());
}

TEST_CASE("a wait that was interrupted once") {
  Scene scene(GENERATE(6, 11, 13, 14));
  scene.waits_for(kWaiter, kWaiterTid, scene.fake.rlock(kHolder));
  scene.fake.waits_on(kHolder, kHolderTid, 0);
  target::Registers& registers = *scene.fake.target.threads_.front().registers;
  registers.orig_rax = 219;  // restart_syscall
  CHECK(scene.read().lock == lock_of(PythonLockKind::kRLock, kHolderTid));
  registers.set(target::kRdi, scene.fake.futex_of(scene.fake.lock()));
  CHECK_FALSE(scene.read().lock.has_value());
}

TEST_CASE("a Lock is held by the thread that is inside of its with statement") {
  Scene scene(GENERATE(6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16));
  const auto& layout = scene.fake.layout();
  const Address lock = scene.fake.lock();
  const Address waiter = scene.waits_for(kWaiter, kWaiterTid, lock);
  const Address holder = scene.holds(kHolder, kHolderTid, lock).front();
  std::optional<Tid> owner;
  SECTION("one") { owner = kHolderTid; }
  SECTION("one, and others that wait as well") {
    scene.waits_for(kOther, kOtherTid, lock);
    owner = kHolderTid;
  }
  SECTION("two: one has released it") { scene.holds(kOther, kOtherTid, lock); }
  SECTION("the lock is free") {
    scene.fake.set<std::uint8_t>(lock + layout.object_head() + (layout.minor >= 14 ? 0 : 16), 0);
  }
  SECTION("an earlier statement, whose values are left over on the stack") { scene.fake.set_stack(holder, {}, 1); }
  SECTION("in no statement") { scene.fake.set_stack(holder, {}, 0); }
  SECTION("in more slots than the code's value stack has") { scene.fake.set_stack(holder, {}, 9); }
  SECTION("another method of the lock") {
    std::vector<Address> stack = {scene.fake.integer(1), scene.fake.builtin("release", lock)};
    if (layout.minor >= 14) stack = {scene.fake.integer(1), scene.fake.method_descriptor("release"), lock};
    scene.fake.set_stack(holder, stack, stack.size());
  }
  SECTION("of another lock") {
    const auto stack = scene.fake.exit_of(scene.fake.lock());
    scene.fake.set_stack(holder, stack, stack.size());
  }
  SECTION("elsewhere in its code") {
    scene.fake.set_stack(holder, {}, layout.frame_blocks == python::kAbsent ? 2 : 0, 10);
  }
  SECTION("itself") {
    scene.fake.set_stack(holder, {}, 0);
    auto stack = scene.fake.exit_of(lock);
    const std::size_t in_use = stack.size();
    stack.push_back(layout.minor == 6 ? scene.fake.builtin("__enter__", lock) : lock);
    scene.fake.set_stack(waiter, stack, in_use);
    owner = kWaiterTid;
  }
  CHECK(scene.read().lock == lock_of(PythonLockKind::kLock, owner));
}

TEST_CASE("Condition.wait gives the lock back") {
  Scene scene(GENERATE(6, 8, 10, 11, 12, 13, 14, 15, 16));
  const Address lock = scene.fake.lock(), other = scene.fake.lock();
  scene.waits_for(kWaiter, kWaiterTid, lock);
  const bool apart = GENERATE(false, true);
  const std::string threading = "/usr/lib/python3/threading.py";
  const auto inside = [&](Address self) {
    scene.fake.set_slot(scene.holds(kHolder, kHolderTid, lock, {{"wait", threading}}).back(), 0, self);
  };
  std::optional<Tid> owner;
  SECTION("this lock") { inside(scene.fake.instance({{"_waiters", scene.fake.none()}, {"_lock", lock}}, apart)); }
  SECTION("another lock") {
    inside(scene.fake.instance({{"_lock", other}}, apart));
    owner = kHolderTid;
  }
  SECTION("none: Event.wait") {
    inside(scene.fake.instance({{"_cond", scene.fake.none()}}, apart));
    owner = kHolderTid;
  }
  SECTION("what cannot be read") { inside(GENERATE(Address{0}, kNowhere)); }
  SECTION("of no instance") { inside(scene.fake.integer(1)); }
  SECTION("a function of that name elsewhere") {
    scene.holds(kHolder, kHolderTid, lock, {{"wait", "/x/wait.py"}});
    owner = kHolderTid;
  }
  CHECK(scene.read().lock == lock_of(PythonLockKind::kLock, owner));
}

TEST_CASE("no thread holds what Condition.wait waits for") {
  Scene scene(GENERATE(6, 10, 11, 13, 14, 16));
  const Address lock = scene.fake.lock();
  scene.waits_for(kWaiter, kWaiterTid, lock, "wait", "/usr/lib/python3/threading.py");
  scene.holds(kHolder, kHolderTid, lock);
  CHECK(scene.read().lock == lock_of(PythonLockKind::kCondition, {}));
}

TEST_CASE("the import of a module names its owner and the module") {
  Scene scene(GENERATE(6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16));
  auto& fake = scene.fake;
  const bool apart = GENERATE(false, true);
  const Address wakeup = fake.lock();
  const Address owner = fake.integer({kHolder & 0x3fff'ffff, kHolder >> 30}, 1);
  const Address frame = scene.waits_for(kWaiter, kWaiterTid, wakeup, "acquire", "<frozen importlib._bootstrap>");
  fake.waits_on(kHolder, kHolderTid, 0);
  const auto self = [&](const std::vector<std::pair<std::string, Address>>& attributes) {
    fake.set_slot(frame, 0, fake.instance(attributes, apart));
  };
  SECTION("as it is") {
    self({{"lock", fake.lock()}, {"wakeup", wakeup}, {"name", fake.string("torch._C")}, {"owner", owner}});
    CHECK(scene.read().lock == lock_of(PythonLockKind::kModule, kHolderTid, "torch._C"));
  }
  SECTION("without an owner") {
    self({{"wakeup", wakeup}, {"name", fake.string("torch._C")}, {"owner", fake.none()}});
    CHECK(scene.read().lock == lock_of(PythonLockKind::kModule, {}, "torch._C"));
  }
  SECTION("without names") {
    self({{"wakeup", wakeup}, {"name", fake.none()}});
    CHECK(scene.read().lock == lock_of(PythonLockKind::kModule, {}));
  }
  SECTION("a long name is cut") {
    self({{"wakeup", wakeup}, {"name", fake.string(std::string(100'000, 'm'))}});
    CHECK(scene.read().lock->name == std::string(python::kLongestModuleName, 'm'));
  }
  SECTION("another lock of its own") {
    self({{"wakeup", fake.lock()}, {"name", fake.string("torch._C")}, {"owner", owner}});
    CHECK(scene.read().lock == lock_of(PythonLockKind::kLock, {}));
  }
  SECTION("no instance") {
    fake.set_slot(frame, 0, GENERATE_COPY(Address{0}, kNowhere, owner));
    CHECK(scene.read().lock == lock_of(PythonLockKind::kLock, {}));
  }
}

TEST_CASE("Thread.join, up to 3.12: the lock that the thread's end releases") {
  Scene scene(GENERATE(6, 7, 8, 9, 10, 11, 12));
  const Address lock = scene.fake.lock();
  scene.waits_for(kWaiter, kWaiterTid, lock, "_wait_for_tstate_lock", "/usr/lib/python3/threading.py");
  scene.thread(kHolder, {{"run", "/usr/lib/python3/threading.py"}});
  scene.fake.waits_on(kHolder, kHolderTid, 0);
  const Address data = scene.state_of[kHolder] + scene.fake.layout().thread_on_delete_data;
  const Address to_nothing = scene.fake.weak_reference(0), to_another = scene.fake.weak_reference(scene.fake.lock());
  SECTION("of a thread") {
    scene.fake.set(data, scene.fake.weak_reference(lock));
    CHECK(scene.read().joins == kHolderTid);
    CHECK_FALSE(scene.read().lock.has_value());
  }
  SECTION("of no thread") {
    scene.fake.set(data, GENERATE_COPY(Address{0}, kNowhere, to_nothing, to_another));
    CHECK_FALSE(scene.read().joins.has_value());
    CHECK(scene.read().lock == lock_of(PythonLockKind::kLock, {}));
  }
}

TEST_CASE("Thread.join, from 3.13 on: the thread's handle") {
  Scene scene(GENERATE(13, 14, 15, 16));
  auto& fake = scene.fake;
  const Address object = fake.thread_handle(kHolder),
                handle = *fake.target.read_value<Address>(object + fake.layout().object_head());
  const Address frame = scene.thread(kWaiter, {{"join", "/usr/lib/python3/threading.py"}}).front();
  fake.set_stack(frame, {fake.method_descriptor("join"), object, fake.none()});
  fake.waits_on(kHolder, kHolderTid, 0);
  std::optional<Tid> joined;
  SECTION("of a thread") {
    fake.waits_on(kWaiter, kWaiterTid, fake.parked_at(handle + 57));
    joined = kHolderTid;
  }
  SECTION("for something else") {
    fake.waits_on(kWaiter, kWaiterTid, fake.parked_at(GENERATE_COPY(Address{0}, kNowhere, handle - 1, handle + 80)));
  }
  SECTION("of a thread that has ended") {
    fake.set(handle + 32, kOther);
    fake.waits_on(kWaiter, kWaiterTid, fake.parked_at(handle + 57));
  }
  CHECK(scene.read().joins == joined);
  CHECK_FALSE(scene.read().lock.has_value());
}

TEST_CASE("levels of the value stack in exception tables") {
  // [3, 5): 2; [5, 105): 1; [200, 4296): 70
  const std::vector<std::uint8_t> table = {0x83, 2, 9,    5,    0x85, 0x41, 0x24, 9,   2,
                                           0xc3, 8, 0x41, 0x40, 0,    9,    0x42, 0x0d};
  CHECK(python::level_in(table, 2) == 0);
  CHECK(python::level_in(table, 3) == 2);
  CHECK(python::level_in(table, 4) == 2);
  CHECK(python::level_in(table, 5) == 1);
  CHECK(python::level_in(table, 104) == 1);
  CHECK(python::level_in(table, 105) == 0);
  CHECK(python::level_in(table, 200) == 70);
  CHECK(python::level_in(table, 4295) == 70);
  CHECK(python::level_in(table, 4296) == 0);
  CHECK(python::level_in({}, 0) == 0);
  for (std::size_t size = 0; size < table.size(); ++size)
    CHECK(python::level_in(std::span(table).first(size), 4000) <= 70);
  const std::vector<std::uint8_t> endless(1000, 0xff);
  CHECK(python::level_in(endless, 7) == 0);
}
