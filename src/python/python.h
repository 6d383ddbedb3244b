// Python stacks out of a target: find the interpreter, copy its state, name the lines, merge with the native stack.
//
// Three steps, so that a live target stands still only for the second:
//   1. find_python_runtime()     before the stop: files on disk only (symbols, sections, version)
//   2. read_python_state()       during the stop: memory only, through Target::read after batched Target::prefetch
//   3. python_frames(), merge    after: pure computation on what step 2 copied
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/snapshot.h"
#include "target/target.h"
#include "unwind/unwinder.h"

namespace rankstacks::python {

struct Version {
  int major = 0, minor = 0, micro = 0;
  std::string suffix;                       // "a1", "rc2", "+", ""
  std::string to_string() const;            // "3.11.2"
  auto key() const { return major * 10000 + minor * 100 + micro; }
};

struct Layout;   // layouts.h: the offsets of one version

// A candidate interpreter in a target, from its files alone. Memory decides which of several is real.
struct RuntimeCandidate {
  std::string module;                       // path of the executable or libpython
  Address runtime = 0;                      // &_PyRuntime (3.7+); for 3.6 see layouts.h
  std::optional<Version> version;           // from Py_Version, the debug offsets' version, or the version string in .rodata
  std::string how;                          // "symbol _PyRuntime", "section .PyRuntime": for messages
  Address tstate_current = 0;               // 3.6 only: &_PyThreadState_Current
  Address hash_secret = 0;                  // &_Py_HashSecret; 0: not known. Only saves time
};

// Every module that could be an interpreter. Empty: no Python in this process.
// Only reads images; where the version can only be told from memory it is left open.
std::vector<RuntimeCandidate> find_python_runtime(const Target& target);

inline constexpr std::int64_t kNotStarted = -1;           // the frame is about to execute its first instruction: line_of is the first line
inline constexpr std::int64_t kUnknownInstruction = -2;   // what the frame states lies outside its code: no line
inline constexpr std::uint32_t kNoVariables = ~std::uint32_t{0};

struct RawFrame {
  std::uint32_t code = 0;                   // index into State::codes
  // Byte offset into the bytecode of the instruction whose line CPython calls the current one: f_lasti, or prev_instr (3.11, 3.12: the code
  // unit before the next instruction), or instr_ptr (3.13+), less the start of the code.
  std::int64_t instruction = kNotStarted;
  Address address = 0;                      // of the frame itself
  std::uint32_t variables = kNoVariables;   // index into State::variables
};

// One code object, copied once.
struct Code {
  Address address = 0;
  std::string name, file;                   // UTF-8; surrogates and damage as U+FFFD; empty where `damaged`
  std::optional<std::string> qualname;
  int first_line = 0;
  std::vector<std::uint8_t> line_table;     // co_lnotab / co_linetable
  bool damaged = false;                     // some part could not be read
};

// Python frames that share one native frame of the interpreter's C loop.
struct Run {
  std::vector<RawFrame> frames;             // innermost first
  // An address on the C stack that lies inside the native frame of this run's eval call: the shim frame (3.12+), the _PyCFrame (3.10, 3.11).
  // Nothing up to 3.9: matched by count.
  std::optional<Address> anchor;
};

// An exception that a thread handles (handled.h), with the ends of its traceback.
struct Handled {
  struct Place {
    std::string function, file;
    std::optional<std::string> qualname;
    std::optional<int> line;
    bool operator==(const Place&) const = default;
  };
  std::string type;                         // as in the model's HandledException
  std::optional<std::string> message;
  std::optional<Place> handler, raised;
  Address frame = 0;                        // RawFrame::address of the handler; 0: it is no frame of the thread
};

struct ThreadState {
  std::uint64_t pthread_id = 0;             // == fs_base of its thread
  std::int64_t native_id = 0;               // 0: this version has none. In the target's pid namespace
  std::uint64_t interpreter_id = 0;
  std::vector<Run> runs;                    // innermost first; empty: no Python frame at the moment
  bool holds_gil = false;
  bool collects = false;                    // it holds the GIL of an interpreter whose collector runs: that is told from 3.9 on, without any symbol
  std::vector<Problem> problems;            // a damaged chain: what was read stands in `runs`
  std::optional<Handled> handles;
  std::optional<PythonLock> lock;           // that it waits for (locks.h)
  std::optional<Tid> joins;                 // the thread whose end it waits for
  bool left_out_innermost = false;          // Chain::left_out_innermost, Chain::empty_calls
  std::vector<Address> empty_calls;
};

struct State {
  Version version;
  std::vector<ThreadState> threads;         // of all interpreters
  std::vector<Code> codes;
  std::vector<FrameVariables> variables;    // of the frames that have any that tell something (variables.h); their `frame` is left open
  std::vector<Range> gil_ranges;            // memory of the GIL structures: a futex wait on an address in here waits for the GIL
  std::vector<Problem> problems;            // rejected candidates, unreadable parts
  bool partial = false;                     // thread states, or names, are missing
};

// Error: none of the candidates is a running interpreter; it says why of each (kNotFound: nothing runs in any of them; else: what runs could not be read). With no candidates it looks for one in memory (3.13+), in
// modules whose files are not at hand: kNotFound then means that this process has no Python.
Result<State> read_python_state(const Target& target, std::span<const RuntimeCandidate> candidates);

// The line of `frame`: nothing where CPython itself says None.
std::optional<int> line_of(const State& state, const RawFrame& frame);

// The stack of one OS thread, to find the thread states that run on it.
struct NativeThread {
  std::uint64_t pthread_id = 0;             // its fs_base
  const UnwoundStack* stack = nullptr;
};

// For each of `threads` the thread states that belong to it. A state belongs where its anchors lie; without anchors, or when they lie on no known
// stack, to the thread of its pthread_id. (Up to 3.12 a subinterpreter's state names the thread that created it, not the one that runs it.)
std::vector<std::vector<const ThreadState*>> assign_threads(const State& state, std::span<const NativeThread> threads);

// A frame of a merged stack: either native (index into the unwound stack) or Python.
struct MergedFrame {
  bool is_python = false;
  std::size_t native = 0;                   // index into UnwoundStack::frames
  std::uint32_t code = 0;                   // index into State::codes
  std::optional<int> line;
  std::uint32_t variables = kNoVariables;   // index into State::variables
  Address address = 0;                      // RawFrame::address
  FrameOrigin origin = FrameOrigin::kNormal;   // kSeparate: could not be placed
};

struct MergedStack {
  std::vector<MergedFrame> frames;          // innermost first
  std::vector<Problem> problems;            // a segment that could not be merged
  bool partial = false;                     // calls of the loop without their Python frames
};

// What symbols tell of a stack's native frames, by their index in UnwoundStack::frames; shorter vectors stand for false.
struct KnownFrames {
  std::vector<bool> eval_loop;              // the interpreter's C loop: used up to 3.9, and as a check above
  std::vector<bool> loop_border;            // what the loop calls before a frame is linked or after it was taken away; none of these runs Python code
  std::optional<std::size_t> greenlet;      // where a greenlet's part of the stack begins: from here outwards the frames belong to other greenlets
};

// Replaces each native frame of the interpreter's C loop by the Python frames that run in it. `threads` are all thread states of this OS
// thread (several with subinterpreters).
MergedStack merge(const State& state, std::span<const ThreadState* const> threads, const UnwoundStack& native, const KnownFrames& known);

}  // namespace rankstacks::python
