#include "python/locks.h"

#include <algorithm>
#include <unordered_map>

#include "known/places.h"
#include "python/attributes.h"
#include "python/lock_holders.h"
#include "python/value_stack.h"
#include "python/values.h"
#include "target/syscalls.h"

namespace rankstacks::python {
namespace {

constexpr std::size_t kLikelyName = 128;
constexpr std::size_t kMaxText = 1u << 20;  // bytes of attributes' and modules' names

// struct wait_entry, Python/parking_lot.c, 3.13+: {void *park_arg; uintptr_t addr; _PySemaphore sema; ...}. The
// semaphore is a sem_t.
constexpr Address kParkedBeforeSemaphore = 8;

// Offsets after the head of an object (Modules/_threadmodule.c). rlockobject: {PyThread_type_lock lock; unsigned long
// owner, count}; from 3.14 on {PyMutex mutex; unsigned long long thread; size_t level}, where the level of a lock that
// is held once is 0.
constexpr Address kRLockOwner = 8, kRLockCount = 16;
// lockobject: {PyThread_type_lock lock_lock; PyObject *in_weakreflist; char locked}; from 3.14 on {PyMutex lock}, whose
// lowest bit is set while it is held.
constexpr Address kLocked = 16;
// ThreadHandle (3.13+), to which a _ThreadHandle object points: {struct llist_node node, shutdown_node;
// PyThread_ident_t ident; ...; PyEvent thread_is_exiting; ...}. kHandleSize is larger than the structure in any
// version; the next block of memory begins after it.
constexpr Address kHandleIdent = 32, kHandleSize = 80;
// PyCFunctionObject: {PyMethodDef *m_ml; PyObject *m_self; ...}.
constexpr Address kBuiltinSelf = 8;

constexpr int kFirstParked = 13;  // 3.13: waits for a thread's end; 3.14: waits for locks too
constexpr int kFirstByteLocks = 14;

// A thread in a futex call, or one that may be.
struct Waiting {
  ThreadState* thread = nullptr;
  const RawFrame* frame = nullptr;    // its innermost
  Address semaphore = 0, parked = 0;  // what it waits on; 0: it does not wait in the parking lot
  Address lock = 0;                   // the lock object
  bool recursive = false;
};

class LockReader {
 public:
  LockReader(const target::Target& target, const Layout& layout, std::span<const Address> ends, CodeReader& codes,
             State& state)
      : target_(target),
        layout_(layout),
        ends_(ends),
        codes_(codes),
        state_(state),
        objects_(target, layout),
        text_(target, layout, kMaxText),
        attributes_(target, layout, objects_, text_) {}

  void read() {
    find_threads();
    if (waiting_.empty()) return;
    find_locks();
    std::erase_if(waiting_, [](const Waiting& w) { return w.lock == 0; });
    if (waiting_.empty()) return;
    find_ends();
    std::vector<WantedLock> wanted;
    for (Waiting& w : waiting_) fill_in(w, wanted);
    if (wanted.empty()) return;
    find_holders(target_, layout_, codes_, objects_, attributes_, state_, wanted);
    for (const WantedLock& lock : wanted)
      if (lock.holder) lock.waiting->lock->owner = tid_of(lock.holder->pthread_id);
  }

 private:
  Address word_at(Address address) const { return target_.read_value<Address>(address).value_or(0); }
  // A field after the head of an object.
  Address field(Address object, Address offset = 0) const { return word_at(object + layout_.object_head() + offset); }

  void find_threads() {
    std::unordered_map<std::uint64_t, Address> futexes;  // by pthread_self()
    for (const target::ThreadInfo& info : target_.threads()) {
      if (!info.registers || info.registers->fs_base == 0) continue;
      tids_.try_emplace(info.registers->fs_base, info.tid);
      if (const auto futex = target::possible_futex_address(target_, *info.registers))
        futexes.try_emplace(info.registers->fs_base, *futex);
    }
    if (futexes.empty()) return;
    std::vector<Range> ranges;
    for (ThreadState& thread : state_.threads) {
      const auto futex = futexes.find(thread.pthread_id);
      if (futex == futexes.end() || thread.runs.empty() || waiting_.size() >= kMaxLockWaits) continue;
      const bool on_gil = std::any_of(state_.gil_ranges.begin(), state_.gil_ranges.end(),
                                      [&](const Range& r) { return r.contains(futex->second); });
      const RawFrame& frame = thread.runs.front().frames.front();
      if (on_gil || codes_.body(frame.code).kind != CodeReader::Kind::kCode) continue;
      waiting_.push_back({.thread = &thread, .frame = &frame, .semaphore = futex->second});
      if (layout_.frame_value_stack != kAbsent)
        ranges.push_back(range_of(frame.address + layout_.frame_value_stack, sizeof(Address)));
      if (layout_.minor >= kFirstParked)
        ranges.push_back(range_of(futex->second - kParkedBeforeSemaphore, sizeof(Address)));
    }
    if (!ranges.empty()) target_.prefetch(ranges);
    for (Waiting& w : waiting_)
      if (layout_.minor >= kFirstParked) w.parked = word_at(w.semaphore - kParkedBeforeSemaphore);
  }

  // Searches the objects on the value stacks, including leftover ones: the semaphore identifies the lock that a thread
  // waits for.
  void find_locks() {
    std::vector<Range> stacks;
    for (const Waiting& w : waiting_)
      stacks.push_back(value_stack_of(target_, layout_, *w.frame, codes_.body(w.frame->code)));
    target_.prefetch(stacks);
    std::vector<std::vector<Address>> held(waiting_.size());
    std::vector<Address> objects, owners;
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      std::vector<Address> words(static_cast<std::size_t>(stacks[i].size()) / sizeof(Address));
      if (!target_.read_exact(stacks[i].start, std::as_writable_bytes(std::span(words)))) continue;
      for (const Address word : words)
        if (const Address object = object_in_slot(layout_, word); object != 0 && object % sizeof(Address) == 0)
          held[i].push_back(object);
      objects.insert(objects.end(), held[i].begin(), held[i].end());
    }
    objects_.prefetch(objects);
    for (std::vector<Address>& of_thread : held) {
      for (Address& object : of_thread)
        if (objects_.kind(object) == ObjectKind::kBuiltin) owners.push_back(object = field(object, kBuiltinSelf));
    }
    objects_.prefetch(owners);
    for (std::size_t i = 0; i < waiting_.size(); ++i)
      for (const Address object : held[i])
        if (look_at(waiting_[i], object)) break;
  }

  bool look_at(Waiting& w, Address object) {
    const ObjectKind kind = objects_.kind(object);
    if (kind == ObjectKind::kThreadHandle && w.parked != 0) {
      const Address handle = field(object);
      if (handle == 0 || !range_of(handle, kHandleSize).contains(w.parked)) return false;
      w.thread->joins = tid_of(word_at(handle + kHandleIdent));
      return true;
    }
    if (kind != ObjectKind::kLock && kind != ObjectKind::kRLock) return false;
    const bool is_it =
        layout_.minor >= kFirstByteLocks ? w.parked == object + layout_.object_head() : w.semaphore == field(object);
    if (!is_it) return false;
    w.lock = object;
    w.recursive = kind == ObjectKind::kRLock;
    return true;
  }

  std::optional<Tid> tid_of(std::uint64_t ident) const {
    const auto it = ident == 0 ? tids_.end() : tids_.find(ident);
    return it == tids_.end() ? std::nullopt : std::optional(it->second);
  }

  // Up to 3.12 a thread that joins another one waits for a lock that no thread holds and that is released when the
  // other thread ends. The other thread's state has a weak reference to that lock; PyWeakReference begins with the
  // object that it refers to.
  void find_ends() {
    std::vector<Range> ranges;
    for (const Address end : ends_)
      if (end != 0) ranges.push_back(range_of(end + layout_.object_head(), sizeof(Address)));
    if (ranges.empty()) return;
    target_.prefetch(ranges);
    for (std::size_t i = 0; i < std::min(ends_.size(), state_.threads.size()); ++i)
      if (const Address lock = ends_[i] != 0 ? field(ends_[i]) : 0)
        ends_of_.try_emplace(lock, state_.threads[i].pthread_id);
  }

  bool is_in(const Waiting& w, known::Place place, std::string_view function) const {
    const Code& code = codes_.codes()[w.frame->code];
    return code.name == function && known::is_file_of(place, code.file);
  }

  void fill_in(Waiting& w, std::vector<WantedLock>& wanted) {
    if (const auto end = ends_of_.find(w.lock); end != ends_of_.end()) {
      w.thread->joins = tid_of(end->second);
      return;
    }
    PythonLock& lock = w.thread->lock.emplace();
    if (w.recursive) {
      lock.kind = PythonLockKind::kRLock;
      const bool held = layout_.minor >= kFirstByteLocks || field(w.lock, kRLockCount) > 0;
      if (held) lock.owner = tid_of(field(w.lock, kRLockOwner));
    } else if (is_in(w, known::Place::kThreading, "wait")) {
      lock.kind = PythonLockKind::kCondition;
    } else if (!(is_in(w, known::Place::kImport, "acquire") && fill_in_module(w, lock)) && is_held(w.lock)) {
      wanted.push_back({.lock = w.lock, .waiting = w.thread, .holder = nullptr});
    }
  }

  bool is_held(Address lock) const {
    const Address at = lock + layout_.object_head() + (layout_.minor >= kFirstByteLocks ? 0 : kLocked);
    return (target_.read_value<std::uint8_t>(at).value_or(0) & 1) != 0;
  }

  // importlib's _ModuleLock.acquire: its first argument has the lock that it waits for, the owner and the module's
  // name.
  bool fill_in_module(const Waiting& w, PythonLock& lock) {
    const Address slot = w.frame->address + layout_.frame_slots;
    const Address self = object_in_slot(layout_, word_at(slot));
    if (self == 0 || attributes_.find(self, "wakeup") != w.lock) return false;
    lock.kind = PythonLockKind::kModule;
    if (const auto owner = attributes_.find(self, "owner"); owner && *owner != 0) {
      objects_.prefetch(std::span(&*owner, 1));
      if (const auto ident = objects_.integer(*owner)) lock.owner = tid_of(static_cast<std::uint64_t>(*ident));
    }
    const auto name = attributes_.find(self, "name");
    if (!name || *name == 0) return true;
    const Range likely = range_of(*name, kLikelyName);
    target_.prefetch(std::span(&likely, 1));
    if (objects_.kind(*name) == ObjectKind::kString) lock.name = text_.beginning(*name, kLongestModuleName);
    return true;
  }

  const target::Target& target_;
  const Layout& layout_;
  std::span<const Address> ends_;
  CodeReader& codes_;
  State& state_;
  ObjectReader objects_;
  CodeReader text_;
  AttributeReader attributes_;
  std::vector<Waiting> waiting_;
  std::unordered_map<std::uint64_t, Tid> tids_;         // by pthread_self()
  std::unordered_map<Address, std::uint64_t> ends_of_;  // by lock: the thread whose end releases it
};

}  // namespace

void read_locks(const target::Target& target, const Layout& layout, std::span<const Address> ends, CodeReader& codes,
                State& state) {
  LockReader(target, layout, ends, codes, state).read();
}

}  // namespace rankstacks::python
