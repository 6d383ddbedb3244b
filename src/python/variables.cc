#include "python/variables.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "known/counter_names.h"
#include "python/process_groups.h"
#include "python/values.h"
#include "python/variable_names.h"

namespace rankstacks::python {
namespace {

constexpr std::size_t kMaxNames = 4096;  // of one code object
constexpr std::size_t kLongestName = 64;
constexpr std::size_t kLikelyString = 128;
constexpr std::size_t kMaxGlobals = 65'536;
constexpr std::size_t kMaxGlobalsInAll = 1u << 20;
constexpr std::size_t kMaxMembersInAll = 1u << 20;  // ranks of groups, a copy with each frame that works on one

// 3.11+, co_localspluskinds
constexpr std::uint8_t kKindCell = 0x40, kKindFree = 0x80;

// 3.14+: the low bits of a _PyStackRef that is a number of the interpreter's own.
constexpr Address kStackRefTags = 3, kNumber = 3;

// From this minor version on a loop over a list, a tuple or another sequence that CPython knows has no iterator: the
// value stack holds the sequence and, above it, the number of the next item.
constexpr int kFirstWithLoopsByNumber = 15;

constexpr std::size_t kMaxLoopSlots = 16;  // loops further inside are not counted

bool shows_progress(std::string_view name) { return known::is_counter_name(name) || known::is_position_name(name); }

struct Slot {
  std::string name;
  std::size_t index = 0;  // of the frame's slots
  bool may_be_cell = false;
};

// The variables that are read from the frames of one code object.
struct Plan {
  bool of_c10d = false;
  std::vector<Slot> numbers;
  // c10d: `group`; if that is None, the group that the function used instead (1.13); in some functions the group is
  // called `pg`.
  std::optional<Slot> group, default_pg, pg;
  bool of_module = false;
  std::size_t slots = 0;  // of variables: the value stack begins after them
  bool empty() const { return numbers.empty() && !of_module && !group && !pg; }
};

struct Wanted {
  RawFrame* frame = nullptr;
  const Plan* plan = nullptr;
};

class VariableReader {
 public:
  VariableReader(const target::Target& target, const Layout& layout, const RuntimeCandidate& runtime, CodeReader& codes,
                 State& state)
      : target_(target),
        layout_(layout),
        codes_(codes),
        state_(state),
        objects_(target, layout),
        groups_(target, layout, runtime.hash_secret, codes, objects_) {}

  void read() {
    choose_frames();
    if (wanted_.empty()) return;
    make_plans();
    std::erase_if(wanted_, [](const Wanted& w) { return w.plan->empty(); });
    if (wanted_.empty()) return;
    read_slots();
    for (const Wanted& w : wanted_) {
      FrameVariables found;
      for (const Slot& slot : w.plan->numbers) {
        if (const auto value = objects_.integer(value_of(*w.frame, slot))) add(found, slot.name, *value);
      }
      if (w.plan->of_module) add_globals(found, *w.frame);
      if (w.plan->of_c10d) add_group(found, *w.frame, *w.plan);
      if (found.numbers.empty() && !found.group) continue;
      std::sort(found.numbers.begin(), found.numbers.end());
      if (!w.plan->of_c10d) found.loops = loops_around(*w.frame, stack_bottom(*w.plan));
      w.frame->variables = static_cast<std::uint32_t>(state_.variables.size());
      state_.variables.push_back(std::move(found));
    }
  }

 private:
  void choose_frames() {
    const auto is_looked_at = [&](std::uint32_t index) {
      const auto [known, is_new] = plans_.try_emplace(index);
      if (!is_new) return known->second.has_value();
      const Code& code = codes_.codes()[index];
      const bool c10d = is_c10d_file(code.file);
      if (codes_.body(index).kind != CodeReader::Kind::kCode || code.file.empty() ||
          (!c10d && !is_user_file(code.file)))
        return false;
      known->second = Plan{.of_c10d = c10d};
      return true;
    };
    for (ThreadState& thread : state_.threads) {
      std::size_t of_thread = 0;
      for (Run& run : thread.runs) {
        for (RawFrame& frame : run.frames) {
          if (of_thread >= kMaxVariableFramesOfThread || wanted_.size() >= kMaxVariableFrames) break;
          if (frame.instruction == kUnknownInstruction || !is_looked_at(frame.code)) continue;
          wanted_.push_back({&frame, nullptr});
          ++of_thread;
        }
      }
    }
    for (Wanted& w : wanted_) w.plan = &*plans_[w.frame->code];
  }

  // Reads the names of each code object, in three batches for all of them.
  void make_plans() {
    std::vector<Address> tuples;
    for (const auto& [index, plan] : plans_) {
      if (!plan) continue;
      const CodeReader::Body& body = codes_.body(index);
      // slot_kinds is a bytes object, as long as slot_names: the range fetched for items covers it.
      for (const Address tuple : {body.slot_names, body.cell_names, body.free_names, body.slot_kinds}) {
        if (tuple != 0) tuples.push_back(tuple);
      }
      if (is_module(index) && !plan->of_c10d) tuples.push_back(body.global_names);
    }
    objects_.prefetch_tuples(tuples);
    std::vector<Range> strings;
    for (const auto& [index, plan] : plans_) {
      if (!plan) continue;
      const CodeReader::Body& body = codes_.body(index);
      for (const Address tuple : {body.slot_names, body.cell_names, body.free_names}) {
        const auto names = objects_.tuple(tuple, kMaxNames);
        for (std::size_t i = 0; names && i < names->size(); ++i)
          strings.push_back(range_of((*names)[i], kLikelyString));
      }
    }
    target_.prefetch(strings);
    for (auto& [index, plan] : plans_) {
      if (plan) make_plan(index, *plan);
    }
  }

  bool is_module(std::uint32_t index) const { return codes_.codes()[index].name == "<module>"; }

  // Empty if it is longer than any name that is searched for, or is not a str.
  std::string name_of(Address string, std::size_t longest = kLongestName) {
    const auto length = target_.read_value<std::uint64_t>(string + layout_.string_length);
    if (!length || *length > longest) return {};
    return objects_.kind(string) == ObjectKind::kString ? codes_.text(string, kLongestName).value_or("")
                                                        : std::string();
  }

  void make_plan(std::uint32_t index, Plan& plan) {
    const CodeReader::Body& body = codes_.body(index);
    const auto names = objects_.tuple(body.slot_names, kMaxNames);
    if (!names) return;
    constexpr std::size_t kLongestOfC10d = 10;  // default_pg
    const std::size_t longest = plan.of_c10d ? kLongestOfC10d : kLongestName;
    std::size_t at = 0;
    if (layout_.code_slot_kinds != kAbsent) {
      std::vector<std::uint8_t> kinds(names->size());
      const auto size = target_.read_value<std::uint64_t>(body.slot_kinds + layout_.bytes_size);
      const bool is_bytes = objects_.kind(body.slot_kinds) == ObjectKind::kBytes && size == kinds.size();
      if (!is_bytes ||
          !target_.read_exact(body.slot_kinds + layout_.bytes_data, std::as_writable_bytes(std::span(kinds))))
        return;
      for (const Address name : *names) {
        const std::uint8_t kind = kinds[at];
        plan_slot(plan, {name_of(name, longest), at++, (kind & (kKindCell | kKindFree)) != 0});
      }
    } else {
      const auto cells = objects_.tuple(body.cell_names, kMaxNames), frees = objects_.tuple(body.free_names, kMaxNames);
      if (!cells || !frees) return;
      for (const Address name : *names) plan_slot(plan, {name_of(name, longest), at++, false});
      for (const auto* tuple : {&*cells, &*frees}) {
        for (const Address name : *tuple) plan_slot(plan, {name_of(name, longest), at++, true});
      }
    }
    plan.of_module = is_module(index) && !plan.of_c10d;
    plan.slots = at;
  }

  static Slot stack_bottom(const Plan& plan) { return {{}, plan.slots, false}; }

  static void plan_slot(Plan& plan, Slot slot) {
    if (plan.of_c10d) {
      if (slot.name == "group") plan.group = slot;
      if (slot.name == "default_pg") plan.default_pg = slot;
      if (slot.name == "pg") plan.pg = slot;
      if (is_c10d_number(slot.name)) plan.numbers.push_back(std::move(slot));
    } else if (shows_progress(slot.name)) {
      plan.numbers.push_back(std::move(slot));
    }
  }

  template <class Visit>
  static void each_slot(const Plan& plan, Visit visit) {
    for (const Slot& slot : plan.numbers) visit(slot);
    for (const std::optional<Slot>* slot : {&plan.group, &plan.default_pg, &plan.pg}) {
      if (*slot) visit(**slot);
    }
    if (!plan.of_c10d) visit(stack_bottom(plan));
  }

  Address slot_address(const RawFrame& frame, const Slot& slot) const {
    return frame.address + layout_.frame_slots + slot.index * sizeof(Address);
  }

  // Fetches the slots of all frames, the objects in them, and the contents of the cells among these.
  void read_slots() {
    std::vector<Range> ranges;
    for (const Wanted& w : wanted_) {
      ranges.push_back(
          range_of(w.frame->address, std::max(layout_.frame_globals, layout_.frame_locals) + sizeof(Address)));
      each_slot(*w.plan,
                [&](const Slot& slot) { ranges.push_back(range_of(slot_address(*w.frame, slot), sizeof(Address))); });
      if (!w.plan->of_c10d)
        ranges.push_back(range_of(slot_address(*w.frame, stack_bottom(*w.plan)), kMaxLoopSlots * sizeof(Address)));
    }
    target_.prefetch(ranges);
    std::vector<Address> held, in_cells;
    each_held([&](const Slot&, Address object) { held.push_back(object); });
    objects_.prefetch(held);
    each_held([&](const Slot& slot, Address object) {
      if (!slot.may_be_cell) return;
      const auto content = content_of(object);
      if (content != 0 && content != object) in_cells.push_back(content);
    });
    objects_.prefetch(in_cells);
  }

  template <class Visit>
  void each_held(Visit visit) {
    for (const Wanted& w : wanted_) {
      each_slot(*w.plan, [&](const Slot& slot) {
        if (const Address object = held_by(*w.frame, slot)) visit(slot, object);
      });
    }
  }

  // The object in a slot. 0: none.
  Address held_by(const RawFrame& frame, const Slot& slot) const {
    return object_in_slot(layout_, target_.read_value<Address>(slot_address(frame, slot)).value_or(0));
  }

  // A loop's iterator is on the value stack for as long as the loop runs, those of nested loops one above the other;
  // values pushed for a call are above them. From 3.15 on each loop has a second slot above its first: if it loops over
  // a list or tuple itself, the sequence is in the iterator's place and a number in the second slot.
  int loops_around(const RawFrame& frame, Slot slot) {
    int loops = 0;
    for (std::size_t seen = 0; seen < kMaxLoopSlots; ++loops) {
      const Address object = held_by(frame, slot);
      const bool has_number = layout_.minor >= kFirstWithLoopsByNumber && seen + 1 < kMaxLoopSlots && object != 0 &&
                              (target_.read_value<Address>(slot_address(frame, slot) + sizeof(Address)).value_or(0) &
                               kStackRefTags) == kNumber;
      if (!has_number && !objects_.is_iterator(object)) break;
      const std::size_t slots = has_number || layout_.minor >= kFirstWithLoopsByNumber ? 2 : 1;
      slot.index += slots;
      seen += slots;
    }
    return loops;
  }

  // The value of a variable that closures share is in a cell. It is in the slot itself before the function's first
  // instructions have created the cell, and in comprehensions that became part of their function (3.12).
  Address content_of(Address object) {
    const ObjectKind kind = objects_.kind(object);
    return kind == ObjectKind::kCell || kind == ObjectKind::kUnnamed ? objects_.cell_content(object).value_or(0)
                                                                     : object;
  }

  Address value_of(const RawFrame& frame, const Slot& slot) {
    const Address object = held_by(frame, slot);
    return object != 0 && slot.may_be_cell ? content_of(object) : object;
  }

  static void add(FrameVariables& found, const std::string& name, std::int64_t value) {
    const bool is_known =
        std::any_of(found.numbers.begin(), found.numbers.end(), [&](const auto& n) { return n.first == name; });
    if (!is_known && found.numbers.size() < kMaxNumbersOfFrame) found.numbers.emplace_back(name, value);
  }

  const std::unordered_map<Address, Address>& globals_of(Address dict) {
    const auto [known, is_new] = globals_.try_emplace(dict);
    if (is_new) {
      const auto entries = objects_.dict(dict, std::min(kMaxGlobals, globals_left_));
      for (std::size_t i = 0; entries && i < entries->size(); ++i)
        known->second.emplace((*entries)[i].key, (*entries)[i].value);
      if (entries) globals_left_ -= entries->size();
    }
    return known->second;
  }

  // A module's variables are those of its globals that its code uses: the same str objects, as all names in code are
  // interned.
  void add_globals(FrameVariables& found, const RawFrame& frame) {
    const auto dict = target_.read_value<Address>(frame.address + layout_.frame_globals);
    const auto locals = target_.read_value<Address>(frame.address + layout_.frame_locals);
    if (!dict || dict != locals) return;  // exec() with two dicts: it is not certain which one has its names
    const auto names = objects_.tuple(codes_.body(frame.code).global_names, kMaxNames);
    if (!names) return;
    const auto& globals = globals_of(*dict);
    std::vector<DictEntry> held;
    std::vector<Range> strings;
    for (const Address name : *names) {
      const auto it = globals.find(name);
      if (it == globals.end()) continue;
      held.push_back({name, it->second});
      strings.push_back(range_of(name, kLikelyString));
    }
    target_.prefetch(strings);
    std::erase_if(held, [&](const DictEntry& e) { return !shows_progress(name_of(e.key)); });
    std::vector<Address> objects;
    for (const DictEntry& e : held) objects.push_back(e.value);
    objects_.prefetch(objects);
    for (const DictEntry& e : held) {
      if (const auto value = objects_.integer(e.value)) add(found, name_of(e.key), *value);
    }
  }

  void add_group(FrameVariables& found, const RawFrame& frame, const Plan& plan) {
    if (!plan.group && !plan.pg) return;
    const auto globals = target_.read_value<Address>(frame.address + layout_.frame_globals);
    if (!globals) return;
    const ProcessGroup* group = nullptr;
    if (!plan.group) {
      if (const Address object = value_of(frame, *plan.pg)) group = groups_.find(*globals, object);
    } else if (const Address object = value_of(frame, *plan.group)) {
      group = groups_.find(*globals, object);
      if (!group && objects_.kind(object) == ObjectKind::kNone) {
        const Address taken = plan.default_pg ? value_of(frame, *plan.default_pg) : 0;
        group = taken != 0 ? groups_.find(*globals, taken) : groups_.default_group(*globals);
      }
    }
    if (!group) return;
    found.group = ProcessGroup{.name = group->name, .ranks = {}, .description = group->description};
    if (group->ranks.size() > members_left_) return;
    members_left_ -= group->ranks.size();
    found.group->ranks = group->ranks;
  }

  const target::Target& target_;
  const Layout& layout_;
  CodeReader& codes_;
  State& state_;
  ObjectReader objects_;
  ProcessGroups groups_;
  std::map<std::uint32_t, std::optional<Plan>> plans_;  // by code; std::nullopt: no variables to read
  std::vector<Wanted> wanted_;
  std::unordered_map<Address, std::unordered_map<Address, Address>> globals_;  // by dict: key, value
  std::size_t globals_left_ = kMaxGlobalsInAll;
  std::size_t members_left_ = kMaxMembersInAll;
};

}  // namespace

void read_variables(const target::Target& target, const Layout& layout, const RuntimeCandidate& runtime,
                    CodeReader& codes, State& state) {
  VariableReader(target, layout, runtime, codes, state).read();
}

}  // namespace rankstacks::python
