#include "small_core/stack_note.h"

#include <algorithm>

#include "small_core/note_bytes.h"

namespace rankstacks::small_core {
namespace {

constexpr std::size_t kThreadBytes = 32, kFrameBytes = 26;
constexpr auto kLastEnd = static_cast<std::uint8_t>(StackEnd::kDepthLimit);
constexpr auto kLastOrigin = static_cast<std::uint8_t>(FrameOrigin::kReturnSlot);

void write_frame(NoteWriter& to, const unwind::UnwoundFrame& frame) {
  to.put(frame.pc);
  to.put(frame.sp);
  to.put(frame.cfa);
  to.put(std::uint8_t{frame.exact_pc});
  to.put(static_cast<std::uint8_t>(frame.origin));
}

unwind::UnwoundFrame read_frame(NoteReader& from) {
  unwind::UnwoundFrame frame;
  frame.pc = from.get<Address>();
  frame.sp = from.get<Address>();
  frame.cfa = from.get<Address>();
  frame.exact_pc = from.get<std::uint8_t>() != 0;
  frame.origin = static_cast<FrameOrigin>(std::min(from.get<std::uint8_t>(), kLastOrigin));
  return frame;
}

}  // namespace

std::vector<std::byte> write_stacks(std::span<const target::ThreadInfo> threads,
                                    std::span<const unwind::UnwoundStack> stacks) {
  NoteWriter note;
  const std::size_t count = std::min(threads.size(), stacks.size());
  note.put(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    const unwind::UnwoundStack& stack = stacks[i];
    note.put(std::int32_t{threads[i].tid});
    note.put(static_cast<std::uint32_t>(stack.end));
    note.put(static_cast<std::uint64_t>(stack.omitted ? stack.omitted->at : 0));
    note.put(static_cast<std::uint64_t>(stack.omitted ? stack.omitted->count : 0));
    note.put(std::uint32_t{0});
    note.put(static_cast<std::uint32_t>(stack.frames.size()));
    for (const unwind::UnwoundFrame& frame : stack.frames) write_frame(note, frame);
  }
  return note.take();
}

std::map<Tid, unwind::UnwoundStack> read_stacks(std::span<const std::byte> body) {
  std::map<Tid, unwind::UnwoundStack> stacks;
  NoteReader note(body);
  const std::uint32_t threads = note.get_count(kThreadBytes);
  for (std::uint32_t i = 0; i < threads; ++i) {
    unwind::UnwoundStack stack;
    const auto tid = note.get<std::int32_t>();
    stack.end = static_cast<StackEnd>(std::min<std::uint32_t>(note.get<std::uint32_t>(), kLastEnd));
    const auto at = note.get<std::uint64_t>(), left_out = note.get<std::uint64_t>();
    note.get<std::uint32_t>();
    const std::uint32_t count = note.get_count(kFrameBytes);
    // The unwinder itself keeps no more.
    if (!note.is_sound() || count > unwind::kMaxFrames) break;
    for (std::uint32_t f = 0; f < count; ++f) stack.frames.push_back(read_frame(note));
    if (left_out > 0 && at <= count) stack.omitted = OmittedFrames{at, left_out};
    if (!stack.frames.empty()) stacks.try_emplace(tid, std::move(stack));
  }
  return stacks;
}

}  // namespace rankstacks::small_core
