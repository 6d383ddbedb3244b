#include "python/lock_holders.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "known/places.h"
#include "python/value_stack.h"

namespace rankstacks::python {
namespace {

constexpr std::string_view kExit = "__exit__";
constexpr std::size_t kLongestMethodName = 16;

// Offsets after the head of an object: PyCFunctionObject {PyMethodDef *m_ml; PyObject *m_self; ...},
// PyMethodDescrObject {PyTypeObject *d_type; PyObject *d_name, *d_qualname; PyMethodDef *d_method; ...}. A PyMethodDef
// begins with its name.
constexpr Address kBuiltinMethod = 0, kBuiltinSelf = 8, kDescriptorMethod = 24;
constexpr int kFirstWithTwoSlots = 14;

// A frame whose value stack has values that a statement keeps in use.
struct Inside {
  const ThreadState* thread = nullptr;
  std::size_t depth = 0;  // frames of the thread that are further inside
  const RawFrame* frame = nullptr;
  std::vector<Address> objects;  // in use, from the bottom of its value stack
};

class HolderFinder {
 public:
  HolderFinder(const target::Target& target, const Layout& layout, const CodeReader& codes, ObjectReader& objects,
               AttributeReader& attributes, const State& state)
      : target_(target), layout_(layout), codes_(codes), objects_(objects), attributes_(attributes), state_(state) {}

  void find(std::span<WantedLock> wanted) {
    for (const WantedLock& w : wanted) holders_.try_emplace(w.lock);
    choose_frames();
    read_slots();
    find_exits();
    for (WantedLock& w : wanted)
      if (const auto& found = holders_[w.lock]; found.size() == 1) w.holder = *found.begin();
  }

 private:
  void choose_frames() {
    std::vector<Range> ranges;
    for (const ThreadState& thread : state_.threads) {
      std::size_t depth = 0;
      for (const Run& run : thread.runs) {
        for (const RawFrame& frame : run.frames) {
          if (depth >= kMaxHolderFramesOfThread || frames_.size() >= kMaxHolderFrames) break;
          const CodeReader::Body& body = codes_.body(frame.code);
          const std::size_t inside = depth++;
          if (body.kind != CodeReader::Kind::kCode || frame.instruction == kUnknownInstruction) continue;
          frames_.push_back({.thread = &thread, .depth = inside, .frame = &frame, .objects = {}});
          if (const Range range = statements_of(layout_, frame, body); range.size() > 0) ranges.push_back(range);
        }
      }
    }
    if (!ranges.empty()) target_.prefetch(ranges);
  }

  void read_slots() {
    std::vector<Range> ranges;
    std::size_t left = kMaxSlotsInUse, bytes_left = kMaxExceptionTables;
    std::erase_if(frames_, [&](Inside& f) {
      const CodeReader::Body& body = codes_.body(f.frame->code);
      const std::size_t in_use = slots_in_use(target_, layout_, *f.frame, body, bytes_left);
      const Range stack = in_use == 0 || in_use > left ? Range{} : value_stack_of(target_, layout_, *f.frame, body);
      if (stack.size() == 0) return true;
      left -= in_use;
      ranges.push_back(range_of(stack.start, in_use * sizeof(Address)));
      return false;
    });
    if (ranges.empty()) return;
    target_.prefetch(ranges);
    std::vector<Address> all;
    for (std::size_t i = 0; i < frames_.size(); ++i) {
      std::vector<Address> words(static_cast<std::size_t>(ranges[i].size()) / sizeof(Address));
      if (!target_.read_exact(ranges[i].start, std::as_writable_bytes(std::span(words)))) continue;
      for (Address& word : words) word = object_in_slot(layout_, word);
      for (const Address object : words)
        if (object != 0) all.push_back(object);
      frames_[i].objects = std::move(words);
    }
    objects_.prefetch(all);
  }

  // The lock whose __exit__ is in this slot; 0 if the slot has another object.
  Address lock_left_by(const Inside& f, std::size_t slot) {
    const Address object = f.objects[slot], head = object + layout_.object_head();
    const auto word_at = [&](Address at) { return target_.read_value<Address>(at).value_or(0); };
    Address method = 0, lock = 0;
    if (objects_.kind(object) == ObjectKind::kBuiltin) {
      method = word_at(head + kBuiltinMethod);
      lock = word_at(head + kBuiltinSelf);
    } else if (layout_.minor >= kFirstWithTwoSlots && slot + 1 < f.objects.size() &&
               objects_.kind(object) == ObjectKind::kMethodDescriptor) {
      method = word_at(head + kDescriptorMethod);
      lock = f.objects[slot + 1];
    }
    if (!holders_.contains(lock)) return 0;
    return target_.read_c_string(word_at(method), kLongestMethodName) == kExit ? lock : 0;
  }

  void find_exits() {
    for (const Inside& f : frames_) {
      for (std::size_t slot = 0; slot < f.objects.size(); ++slot) {
        const Address lock = f.objects[slot] != 0 ? lock_left_by(f, slot) : 0;
        if (lock != 0 && !may_have_released(f, lock)) holders_[lock].insert(f.thread);
      }
    }
  }

  // Condition.wait releases its lock while it waits, whichever frame has taken it.
  bool may_have_released(const Inside& f, Address lock) {
    std::size_t depth = 0;
    for (const Run& run : f.thread->runs) {
      for (const RawFrame& frame : run.frames) {
        if (depth++ >= f.depth) return false;
        const Code& code = codes_.codes()[frame.code];
        if (code.name != "wait" || !known::is_file_of(known::Place::kThreading, code.file)) continue;
        if (conditions_left_ == 0) return true;
        --conditions_left_;
        const Address self =
            object_in_slot(layout_, target_.read_value<Address>(frame.address + layout_.frame_slots).value_or(0));
        // Event.wait and Barrier.wait have a condition, and no lock of their own.
        const auto released = self != 0 ? attributes_.find(self, "_lock") : std::nullopt;
        if (!released || *released == lock) return true;
      }
    }
    return false;
  }

  const target::Target& target_;
  const Layout& layout_;
  const CodeReader& codes_;
  ObjectReader& objects_;
  AttributeReader& attributes_;
  const State& state_;
  std::vector<Inside> frames_;
  std::unordered_map<Address, std::unordered_set<const ThreadState*>> holders_;  // by lock
  std::size_t conditions_left_ = kMaxConditionWaits;
};

}  // namespace

void find_holders(const target::Target& target, const Layout& layout, const CodeReader& codes, ObjectReader& objects,
                  AttributeReader& attributes, const State& state, std::span<WantedLock> wanted) {
  HolderFinder(target, layout, codes, objects, attributes, state).find(wanted);
}

}  // namespace rankstacks::python
