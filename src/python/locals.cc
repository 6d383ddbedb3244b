#include "python/locals.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "python/object_values.h"
#include "python/values.h"

namespace rankstacks::python {
namespace {

constexpr std::size_t kLongestName = 256;

// 3.11+, co_localspluskinds: a local variable, which may be in a cell as well. All of these come first.
constexpr std::uint8_t kKindLocal = 0x20;

// The local variables of one code object.
struct Names {
  std::vector<std::string> names;
  std::size_t arguments = 0;
};

class LocalReader {
 public:
  LocalReader(const target::Target& target, const Layout& layout, std::size_t longest, CodeReader& codes, State& state)
      : target_(target),
        layout_(layout),
        longest_(static_cast<std::ptrdiff_t>(longest)),
        codes_(codes),
        state_(state),
        objects_(target, layout),
        values_(target, layout, objects_, codes) {}

  void read() {
    prefetch_names();
    const std::vector<const RawFrame*> frames = prefetch_slots();
    for (const RawFrame* frame : frames) {
      if (values_.exhausted()) break;
      std::vector<LocalVariable> variables = variables_of(*frame);
      if (!variables.empty()) state_.locals.emplace(frame->address, std::move(variables));
    }
    if (left_ == 0 || values_.exhausted()) {
      state_.problems.push_back(
          {fmt::format(
               "variables of Python frames are missing: after {} of them, {} objects and {} MiB, or if there is "
               "no time, no more are read",
               kMaxLocalsInAll, kMaxObjectsInAll, kMaxBytesOfStrings >> 20),
           std::nullopt});
      state_.partial = true;
    }
  }

 private:
  template <class Visit>
  void each_frame(Visit visit) {
    for (ThreadState& thread : state_.threads)
      for (Run& run : thread.runs)
        for (const RawFrame& frame : run.frames)
          if (frame.instruction != kUnknownInstruction && codes_.body(frame.code).kind == CodeReader::Kind::kCode)
            visit(frame);
  }

  void prefetch_names() {
    std::vector<Address> tuples;
    each_frame([&](const RawFrame& frame) {
      if (!names_.try_emplace(frame.code).second) return;
      for (const Address at : {codes_.body(frame.code).slot_names, codes_.body(frame.code).slot_kinds})
        if (at != 0) tuples.push_back(at);
    });
    objects_.prefetch_tuples(tuples);
    std::vector<Address> names;
    for (const auto& [code, unused] : names_) {
      const auto all = objects_.tuple(codes_.body(code).slot_names, kMaxLocalsOfFrame);
      if (all) names.insert(names.end(), all->begin(), all->end());
    }
    objects_.prefetch(names);
    for (auto& [code, names_of_code] : names_) names_of_code = names_in(code);
  }

  Names names_in(std::uint32_t code) {
    Names found;
    const CodeReader::Body& body = codes_.body(code);
    const auto all = objects_.tuple(body.slot_names, kMaxLocalsOfFrame);
    if (!all) return found;
    std::size_t count = all->size();
    if (layout_.code_slot_kinds != kAbsent) {
      std::vector<std::uint8_t> kinds(all->size());
      const auto size = target_.read_value<std::uint64_t>(body.slot_kinds + layout_.bytes_size);
      if (objects_.kind(body.slot_kinds) != ObjectKind::kBytes || size != kinds.size() ||
          !target_.read_exact(body.slot_kinds + layout_.bytes_data, std::as_writable_bytes(std::span(kinds))))
        return found;
      count = static_cast<std::size_t>(
          std::find_if(kinds.begin(), kinds.end(), [](std::uint8_t kind) { return (kind & kKindLocal) == 0; }) -
          kinds.begin());
    }
    for (std::size_t i = 0; i < count; ++i) {
      const Address name = (*all)[i];
      found.names.push_back(objects_.kind(name) == ObjectKind::kString ? codes_.text(name, kLongestName).value_or("?")
                                                                       : std::string("?"));
    }
    const auto arguments =
        target_.read_value<std::int32_t>(codes_.codes()[code].address + layout_.code_argument_count());
    found.arguments = static_cast<std::size_t>(std::max(arguments.value_or(0), 0));
    return found;
  }

  // The frames whose variables are read, as far as the limit for all of them allows.
  std::vector<const RawFrame*> prefetch_slots() {
    std::vector<const RawFrame*> frames;
    std::vector<Range> ranges;
    each_frame([&](const RawFrame& frame) {
      const std::size_t count = names_.at(frame.code).names.size();
      if (count == 0 || left_ == 0) return;
      left_ -= std::min(left_, count);
      frames.push_back(&frame);
      ranges.push_back(range_of(frame.address + layout_.frame_slots, count * sizeof(Address)));
    });
    target_.prefetch(ranges);
    std::vector<Address> held;
    for (const RawFrame* frame : frames)
      for (std::size_t i = 0; i < names_.at(frame->code).names.size(); ++i)
        if (const Address object = held_by(*frame, i)) held.push_back(object);
    objects_.prefetch(held);
    return frames;
  }

  Address held_by(const RawFrame& frame, std::size_t slot) const {
    const Address at = frame.address + layout_.frame_slots + slot * sizeof(Address);
    return object_in_slot(layout_, target_.read_value<Address>(at).value_or(0));
  }

  std::vector<LocalVariable> variables_of(const RawFrame& frame) {
    std::vector<LocalVariable> variables;
    const Names& names = names_.at(frame.code);
    for (std::size_t i = 0; i < names.names.size(); ++i) {
      const Address object = held_by(frame, i);
      if (object == 0) continue;
      variables.push_back({.name = names.names[i],
                           .address = object,
                           .is_argument = i < names.arguments,
                           .value = values_.read(object, longest_)});
    }
    return variables;
  }

  const target::Target& target_;
  const Layout& layout_;
  const std::ptrdiff_t longest_;
  CodeReader& codes_;
  State& state_;
  ObjectReader objects_;
  ValueReader values_;
  std::unordered_map<std::uint32_t, Names> names_;  // by code
  std::size_t left_ = kMaxLocalsInAll;
};

}  // namespace

void read_locals(const target::Target& target, const Layout& layout, std::size_t longest, CodeReader& codes,
                 State& state) {
  LocalReader(target, layout, longest, codes, state).read();
}

}  // namespace rankstacks::python
