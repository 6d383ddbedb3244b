// The memory of a Python process of each version, damaged: any word of it may become any number or point to any other
// part.
//
// The input is a list of pokes (address and value) into a valid interpreter with four threads: cycles, wild pointers,
// absurd lengths and counts.
#include <array>
#include <optional>
#include <vector>

#include "input.h"
#include "python/debug_offsets.h"
#include "python/fake_interpreter.h"
#include "python/python.h"

using namespace rankstacks;
using testing::FakeInterpreter;

namespace {

constexpr unsigned kProcesses = 11;
constexpr Address kThread = 0x7f00'0000'1000;

struct Process {
  FakeInterpreter fake;
  std::vector<Address> parts;  // what a poke may point to, and where it may be made
};

// The second thread waits for a lock; the first one is inside of a `with` statement of that lock. A fourth thread waits
// for the import of a module.
void add_locks(Process& p, Address holder, Address waiter) {
  FakeInterpreter& f = p.fake;
  const Address lock = f.lock(), wakeup = f.lock(), futex = f.futex_of(lock);
  const auto exit = f.exit_of(lock);
  f.set_stack(holder, exit, exit.size());
  f.set_stack(waiter, {f.builtin("acquire", lock), lock});
  const Address self = f.instance({{"wakeup", wakeup},
                                   {"name", f.string("torch._C")},
                                   {"owner", f.integer({kThread & 0x3fff'ffff, kThread >> 30}, 1)}});
  const bool has_shims = f.layout().frame_owner != python::kAbsent && f.layout().frame_is_entry == python::kAbsent;
  const Address code = f.code_of(f.string("acquire"), f.string("<frozen importlib._bootstrap>"), 7);
  const Address frame = f.frame(code, has_shims ? f.shim(0, FakeInterpreter::kCStack + 0x3800) : 0);
  if (f.layout().frame_is_entry != python::kAbsent) f.mark_entry(frame);
  const Address thread = f.thread(kThread + 3, frame);
  f.set_slot(frame, 0, self);
  f.set_stack(frame, {f.method_descriptor("acquire"), wakeup});
  f.waits_on(kThread, 1, 0);
  f.waits_on(kThread + 1, 2, futex);
  f.waits_on(kThread + 3, 4, f.futex_of(wakeup));
  p.parts.insert(p.parts.end(), {lock, wakeup, exit.front(), self, code, frame, thread,
                                 *f.target.read_value<Address>(self + f.layout().object_type)});
  if (f.layout().code_exception_table != python::kAbsent)
    p.parts.push_back(*f.target.read_value<Address>(code + f.layout().code_exception_table));
}

Process sound(FakeInterpreter fake) {
  Process p{std::move(fake), {FakeInterpreter::kRuntime, FakeInterpreter::kInterpreter, FakeInterpreter::kType}};
  p.parts.insert(p.parts.end(), {FakeInterpreter::kIntType, FakeInterpreter::kDictType});
  FakeInterpreter& f = p.fake;
  const bool has_shims = f.layout().frame_owner != python::kAbsent && f.layout().frame_is_entry == python::kAbsent;
  Address holder = 0, waiter = 0;
  for (std::uint64_t t = 0; t < 3; ++t) {
    // Its variables: those of a function, of a module, and a process group of torch.distributed.
    const Address code = t == 0 ? f.code("function")
                         : t == 1
                             ? f.code("<module>")
                             : f.code_of(f.string("recv"), f.string("/v/torch/distributed/distributed_c10d.py"), 7);
    f.name_slots(code, {"step", "src", "group"}, {"i"});
    const Address step = f.string("step");
    f.set(code + f.layout().code_global_names, f.tuple({step}));
    const Address number = f.integer({1, 2, 3}, 1), cell = f.cell(number), group = f.integer(1);
    const Address ranks = f.dict({{f.integer(1), f.integer(0)}, {f.integer(0), f.integer(1)}});
    const Address groups = f.dict({{group, ranks}}), names = f.dict({{group, f.string("0")}});
    const Address globals =
        f.dict({{step, number}, {f.string("_pg_names"), names}, {f.string("_pg_group_ranks"), groups}}, t == 1);
    const Address keys = *f.target.read_value<Address>(globals + f.layout().dict_keys);
    const Address outer_end = has_shims ? f.shim(0, FakeInterpreter::kCStack + 0x1000 * t + 0x800) : 0;
    const Address outer = f.frame(code, outer_end);
    const Address inner = f.frame(code, outer, 21);
    if (t == 0) holder = outer;
    if (t == 1) waiter = inner;
    for (const Address frame : {outer, inner}) {
      f.set_globals(frame, globals, globals);
      f.set_slot(frame, 0, number);
      f.set_slot(frame, 1, number);
      f.set_slot(frame, 2, frame == inner ? group : f.none());
      f.set_slot(frame, 3, cell);
    }
    if (f.layout().frame_is_entry != python::kAbsent) f.mark_entry(outer);
    const Address thread = f.thread(kThread + t, inner);
    if (f.layout().thread_cframe != python::kAbsent) {
      const Address cframe = f.cframe(f.root_cframe(thread), inner, FakeInterpreter::kCStack + 0x1000 * t + 0x400);
      f.set_cframe(thread, cframe);
      p.parts.push_back(cframe);
    }
    // The exceptions that are handled: raised in the inner frame, handled in the outer one; the first thread handles
    // its own in a generator.
    const Address raised = f.traceback(f.frame_object(inner), 0, -1),
                  handler = f.traceback(f.frame_object(outer), raised, 9);
    const Address error = f.exception(f.tuple({f.string("loss is NaN")}), handler);
    f.set_handled(thread, error);
    if (f.layout().thread_exc_info != python::kAbsent && t == 0) {
      const Address item = f.exc_item(0, *f.target.read_value<Address>(thread + f.layout().thread_exc_info));
      f.set(thread + f.layout().thread_exc_info, item);
      p.parts.push_back(item);
    }
    p.parts.insert(p.parts.end(), {code, outer, inner, thread, number, cell, ranks, groups, globals, keys, step});
    p.parts.push_back(*f.target.read_value<Address>(code + f.layout().code_slot_names));
    p.parts.insert(p.parts.end(), {raised, handler, error, FakeInterpreter::kErrorType, FakeInterpreter::kTracebackType,
                                   FakeInterpreter::kFrameType});
  }
  add_locks(p, holder, waiter);
  return p;
}

Process make(unsigned which) {
  static const python::Version kVersions[] = {{3, 6, 15, ""},  {3, 7, 17, ""}, {3, 8, 18, ""}, {3, 9, 18, ""},
                                              {3, 10, 13, ""}, {3, 11, 2, ""}, {3, 12, 3, ""}};
  constexpr unsigned kMeasured = std::size(kVersions);
  static_assert(kMeasured + 4 == kProcesses);
  switch (which) {
    case kMeasured: return sound(FakeInterpreter(testing::kDebugOffsets_3_13_0));
    case kMeasured + 1: return sound(FakeInterpreter(testing::kDebugOffsets_3_14_10));
    case kMeasured + 2: return sound(FakeInterpreter(testing::kDebugOffsets_3_14_10t));
    case kMeasured + 3: return sound(FakeInterpreter(testing::kDebugOffsets_3_15_2));
    default: return sound(FakeInterpreter(kVersions[which]));
  }
}

// Building one takes longer than copying and reading it.
const Process& process_of(unsigned which) {
  static std::array<std::optional<Process>, kProcesses> processes;
  std::optional<Process>& process = processes[which % kProcesses];
  if (!process) process = make(which % kProcesses);
  return *process;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  Process process = process_of(input.take<std::uint8_t>());
  constexpr int kMaxPokes = 64;
  for (int i = 0; i < kMaxPokes && !input.empty(); ++i) {
    const Address part = process.parts[input.take<std::uint8_t>() % process.parts.size()];
    const Address at = part + input.take<std::uint8_t>() * 4u;
    const auto how = input.take<std::uint8_t>();
    std::uint64_t value = 0;
    switch (how % 4) {
      case 0: value = input.take<std::uint64_t>(); break;
      case 1: value = input.take<std::uint8_t>(); break;
      case 2: value = process.parts[input.take<std::uint8_t>() % process.parts.size()]; break;
      default: value = (std::uint64_t{1} << (input.take<std::uint8_t>() % 64)) - 1; break;
    }
    try {
      process.fake.set(at, value);
    } catch (const std::logic_error&) {
      // There is no block.
    }
  }
  const auto state = process.fake.read();
  if (!state) {
    fuzz::require(!state.error().what.empty(), "an error says what is wrong");
    return 0;
  }
  unwind::UnwoundStack native;
  for (int i = 0; i < 12; ++i) {
    unwind::UnwoundFrame frame;
    frame.pc = 0x400000 + 16u * static_cast<unsigned>(i);
    frame.sp = FakeInterpreter::kCStack + 0x200u * static_cast<unsigned>(i);
    frame.cfa = i == 11 ? 0 : frame.sp + 0x200;
    native.frames.push_back(frame);
  }
  std::vector<const python::ThreadState*> threads;
  for (const python::ThreadState& t : state->threads) {
    constexpr std::size_t kMaxBytes = 4 * 200;  // of 200 characters
    fuzz::require(!t.handles || !t.handles->message || t.handles->message->size() <= kMaxBytes, "a message is bounded");
    constexpr Tid kMaxTid = 4;
    fuzz::require(!t.lock || !t.lock->owner || (*t.lock->owner >= 1 && *t.lock->owner <= kMaxTid),
                  "a lock's owner is a thread of the process");
    fuzz::require(!t.lock || !t.lock->name || t.lock->name->size() <= kMaxBytes, "a module's name is bounded");
    threads.push_back(&t);
  }
  const std::size_t count = native.frames.size();
  python::KnownFrames known{
      .eval_loop = std::vector<bool>(count), .loop_border = std::vector<bool>(count), .greenlet = std::nullopt};
  for (std::size_t i = 0; i < count; ++i) {
    known.eval_loop[i] = i % 2 == 0;
    known.loop_border[i] = i % 3 == 0;
  }
  if (state->threads.size() % 2 == 0) known.greenlet = count - 4;
  const python::MergedStack merged = python::merge(*state, threads, native, known);
  for (const python::MergedFrame& f : merged.frames) {
    fuzz::require(f.variables == python::kNoVariables || f.variables < state->variables.size(),
                  "variables of a frame are among those read");
    fuzz::require(f.is_python ? f.code < state->codes.size() : f.native < native.frames.size(),
                  "a merged frame is one of those given");
  }
  return 0;
}
