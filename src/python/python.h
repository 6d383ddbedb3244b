// Reads Python stacks from a target: finds the interpreter, copies its state, determines the lines, and merges the
// Python frames into the native stack.
//
// This takes three steps, so that a live target is paused only during the second:
//   1. find_python_runtime()     before the stop: files on disk only (symbols, sections, version)
//   2. read_python_state()       during the stop: memory only, through Target::read after batched Target::prefetch
//   3. python_frames(), merge    after: pure computation on what step 2 copied
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/snapshot.h"
#include "target/target.h"
#include "unwind/unwinder.h"

namespace rankstacks::python {

struct Version {
  int major = 0, minor = 0, micro = 0;
  std::string suffix;             // "a1", "rc2", "+", ""
  std::string to_string() const;  // "3.11.2"
  auto key() const { return major * 10000 + minor * 100 + micro; }
};

struct Layout;  // layouts.h: the offsets of one version

// A candidate interpreter in a target, found from its files alone. If there are several, memory decides which one is
// real.
struct RuntimeCandidate {
  std::string module;              // path of the executable or libpython
  Address runtime = 0;             // &_PyRuntime (3.7+); for 3.6 see layouts.h
  std::optional<Version> version;  // from Py_Version, the debug offsets' version, or the version string in .rodata
  std::string how;                 // "symbol _PyRuntime", "section .PyRuntime": used in messages
  Address tstate_current = 0;      // 3.6 only: &_PyThreadState_Current
  Address hash_secret = 0;         // &_Py_HashSecret; 0: not known, which only costs time
  Address faulthandler = 0;        // &faulthandler_handlers (faulthandler.h); 0: not known
};

// Every module that could be an interpreter. Empty if there is no Python in this process. Reads images only; a version
// that only memory can determine is left unset.
std::vector<RuntimeCandidate> find_python_runtime(const target::Target& target);

// The frame is about to execute its first instruction: line_of() returns the first line.
inline constexpr std::int64_t kNotStarted = -1;
// The frame's instruction pointer is outside of its code: no line.
inline constexpr std::int64_t kUnknownInstruction = -2;
inline constexpr std::uint32_t kNoVariables = ~std::uint32_t{0};

struct RawFrame {
  std::uint32_t code = 0;  // index into State::codes
  // Byte offset into the bytecode of the instruction whose line CPython calls the current one: f_lasti, or prev_instr
  // (3.11, 3.12: the code unit before the next instruction), or instr_ptr (3.13+), minus the start of the code.
  std::int64_t instruction = kNotStarted;
  Address address = 0;                     // of the frame itself
  std::uint32_t variables = kNoVariables;  // index into State::variables
};

// One code object, copied once.
struct Code {
  Address address = 0;
  std::string name, file;  // UTF-8; surrogates and damage as U+FFFD; empty if `damaged`
  std::optional<std::string> qualname;
  int first_line = 0;
  std::vector<std::uint8_t> line_table;  // co_lnotab / co_linetable
  bool damaged = false;                  // some part could not be read
};

// The Python frames that run in one native frame of the interpreter's eval loop.
struct Run {
  std::vector<RawFrame> frames;  // innermost first
  // An address on the C stack that lies inside the native frame of this run's eval call: the shim frame (3.12+) or the
  // _PyCFrame (3.10, 3.11). std::nullopt up to 3.9, where runs are matched by count.
  std::optional<Address> anchor;
};

// An exception that a thread is handling (handled.h), with both ends of its traceback.
struct Handled {
  struct Place {
    std::string function, file;
    std::optional<std::string> qualname;
    std::optional<int> line;
    bool operator==(const Place&) const = default;
  };
  // An exception that led to another one.
  struct Chained {
    ExceptionLink link = ExceptionLink::kContext;
    std::string type;
    std::optional<std::string> message;
    std::optional<Place> raised = {};
    bool operator==(const Chained&) const = default;
  };
  std::string type;  // as in the model's HandledException
  std::optional<std::string> message;
  std::optional<Place> handler, raised;
  std::vector<Place> traceback;  // outermost first; at most kMaxTracebackPlaces
  std::optional<OmittedFrames> traceback_omitted;
  Address frame = 0;  // RawFrame::address of the handler; 0: it is not a frame of the thread
  std::vector<Chained> chain;
  // What led to the last one of these, but the program has hidden (raise ... from None): the nearest first. Without
  // places.
  std::vector<Chained> hidden;
};

struct ThreadState {
  std::uint64_t pthread_id = 0;  // == fs_base of its thread
  std::int64_t native_id = 0;    // 0: this version has none. In the target's pid namespace
  // The number of the thread whose descriptor is at pthread_id now, in the target's pid namespace; 0: it has ended.
  // std::nullopt: it cannot be read, or there is no descriptor of glibc's.
  std::optional<std::int32_t> descriptor_tid;
  std::uint64_t interpreter_id = 0;
  std::optional<std::string> name;  // threading's name of it (thread_names.h)
  std::vector<Run> runs;            // innermost first; empty: no Python frame at the moment
  bool holds_gil = false;
  // It holds the GIL of an interpreter whose collector runs. Known from 3.9 on, without any symbol.
  bool collects = false;
  std::vector<Problem> problems;  // a damaged chain: `runs` has what could be read
  std::optional<Handled> handles;
  std::optional<Handled> raises;    // the exception that is on its way through its frames (3.7+)
  std::optional<PythonLock> lock;   // the lock that it waits for (locks.h)
  std::optional<Tid> joins;         // the thread whose end it waits for
  bool left_out_innermost = false;  // Chain::left_out_innermost, Chain::empty_calls
  std::vector<Address> empty_calls;
};

struct State {
  Version version;
  std::string module;                // path of the interpreter's executable or library
  std::vector<ThreadState> threads;  // of all interpreters
  std::vector<Code> codes;
  // Of the frames that have variables of interest (variables.h); their member `frame` is not set here.
  std::vector<FrameVariables> variables;
  // By RawFrame::address; only if they were asked for (locals.h).
  std::unordered_map<Address, std::vector<LocalVariable>> locals = {};
  // Memory of the GIL structures: a futex wait on an address in one of these ranges waits for the GIL.
  std::vector<Range> gil_ranges;
  std::vector<Problem> problems;  // rejected candidates, unreadable parts
  bool partial = false;           // thread states, or names, are missing
  std::optional<Faulthandler> faulthandler = {};
};

// Reads the state of the interpreter that runs in the target. Error if none of the candidates is a running interpreter;
// the message says why for each (kNotFound: none of them is running; any other code: one is running but could not be
// read). Without candidates it searches memory (3.13+), in modules whose files are not available; kNotFound then means
// that this process has no Python.
// `locals`: the longest repr of each local variable, in characters; 0: they are not read.
Result<State> read_python_state(const target::Target& target, std::span<const RuntimeCandidate> candidates,
                                std::size_t locals = 0);

// The line of `frame`; std::nullopt where CPython itself gives None.
std::optional<int> line_of(const State& state, const RawFrame& frame);

// The stack of one OS thread, used to find the thread states that run on it.
struct NativeThread {
  std::uint64_t pthread_id = 0;  // its fs_base
  const unwind::UnwoundStack* stack = nullptr;
  bool is_leader = false;  // the main thread of its process
};

// For each of `threads`, the thread states that belong to it. A state belongs to the thread whose stack holds its
// anchors; without anchors, or if they are on no known stack, to the thread with its pthread_id. (Up to 3.12 a
// subinterpreter's state names the thread that created it, not the one that runs it.) The state of a thread that has
// ended belongs to none, although another thread may use the ended one's memory, and have its pthread_id.
std::vector<std::vector<const ThreadState*>> assign_threads(const State& state, std::span<const NativeThread> threads);

// A frame of a merged stack: either native (index into the unwound stack) or Python.
struct MergedFrame {
  bool is_python = false;
  std::size_t native = 0;  // index into UnwoundStack::frames
  std::uint32_t code = 0;  // index into State::codes
  std::optional<int> line;
  std::uint32_t variables = kNoVariables;     // index into State::variables
  Address address = 0;                        // RawFrame::address
  FrameOrigin origin = FrameOrigin::kNormal;  // kSeparate: could not be placed
};

struct MergedStack {
  std::vector<MergedFrame> frames;  // innermost first
  std::vector<Problem> problems;    // a segment that could not be merged
  bool partial = false;             // some calls of the loop lack their Python frames
};

// What symbols show about the native frames of a stack, by index in UnwoundStack::frames; entries missing at the end of
// a vector count as false.
struct KnownFrames {
  std::vector<bool> eval_loop;  // the interpreter's eval loop: used up to 3.9, and as a check for later versions
  // Functions that the loop calls before it links a frame or after it has unlinked one; none of them runs Python code.
  std::vector<bool> loop_border;
  // Where a greenlet's part of the stack begins: the frames from here outwards belong to other greenlets.
  std::optional<std::size_t> greenlet;
  // Frames without a function's name that may be a part of the loop: in the interpreter's file, or in unknown code.
  std::vector<bool> nameless = {};
};

// Those of `threads` whose frames can be on this stack. Up to 3.10 no number tells the state of a thread that has ended
// from that of the thread which uses its memory now (the child of a fork(2) that Python does not know of), and no later
// version tells it of every state. But each run of Python frames needs a call of the loop, so a stack that is known
// completely has none of the frames for which there is no call.
std::vector<const ThreadState*> states_on_stack(const State& state, const NativeThread& thread,
                                                std::span<const ThreadState* const> states, const KnownFrames& known);

// Replaces each native frame of the interpreter's eval loop with the Python frames that run in it. `threads` are all
// thread states of this OS thread (several with subinterpreters).
MergedStack merge(const State& state, std::span<const ThreadState* const> threads, const unwind::UnwoundStack& native,
                  const KnownFrames& known);

}  // namespace rankstacks::python
