#include "capture/build_threads.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <iterator>
#include <set>

#include "base/text.h"
#include "capture/exception_cause.h"
#include "capture/rank_problems.h"
#include "known/modules.h"
#include "target/syscalls.h"

namespace rankstacks::capture {
namespace {

// Recognises the interpreter's eval loop by its symbol: CPython 3.6 to 3.15, with the suffixes of compiler clones, and
// the opcode functions of the tail-call interpreter (3.14 and newer).
bool is_eval_loop(const std::string& function) {
  return function.starts_with("_PyEval_EvalFrameDefault") || function.starts_with("_TAIL_CALL_");
}

// Whether a greenlet's part of the C stack, and its chain of Python frames, begin here. The frames outside of it belong
// to other greenlets: these may have been switched away from since, and the stack contents there may be stale.
bool is_greenlet_start(const std::string& function) { return contains(function, "g_initialstub"); }

// Functions that the loop calls before it links a frame, or after it has unlinked one; none of them runs Python code.
// CPython 3.6 to 3.9, Python/ceval.c.
bool is_loop_border(const std::string& function) {
  return function.starts_with("_Py_CheckFunctionResult") || function.starts_with("_Py_CheckRecursiveCall");
}

// Collects problems, to report one line for all threads with the same problem.
class ThreadTroubles {
 public:
  void add(const std::string& what, Tid tid) { tids_[what].push_back(tid); }
  void report(RankSnapshot& snapshot) const {
    for (const auto& [what, tids] : tids_) {
      std::string who = fmt::format("tid {}", tids.front());
      for (std::size_t i = 1; i < std::min<std::size_t>(tids.size(), 4); ++i) who += fmt::format(", {}", tids[i]);
      if (tids.size() > 4) who += fmt::format(" and {} more", tids.size() - 4);
      snapshot.problems.push_back({fmt::format("{}: {}", who, what), std::nullopt});
    }
  }

 private:
  std::map<std::string, std::vector<Tid>> tids_;
};

Frame native_frame(const unwind::UnwoundFrame& unwound, const target::Module* module) {
  Frame frame;
  frame.kind = FrameKind::kNative;
  frame.address = unwound.pc;
  frame.origin = unwound.origin;
  if (module != nullptr) {
    frame.module = module->path;
    if (module->image) frame.offset = module->to_vaddr(unwound.pc);
    // Without program headers: the offset from the start of the file's mapping.
    else frame.offset = unwound.pc - module->range.start;
  }
  return frame;
}

// Appends the locations of one unwound frame as frames, innermost first.
void append_native(const target::Target& target, const unwind::UnwoundFrame& unwound, const SymbolBatch& symbols,
                   FrameTable& table, std::vector<FrameId>& out) {
  const target::Module* module = target.modules().find(unwound.lookup_pc());
  const Frame base = native_frame(unwound, module);
  const std::vector<symbolizers::SourceLocation>* locations =
      module != nullptr && module->image ? symbols.find(*module, module->to_vaddr(unwound.lookup_pc())) : nullptr;
  if (locations == nullptr || locations->empty()) {
    out.push_back(table.intern(base));
    return;
  }
  for (const symbolizers::SourceLocation& location : *locations) {
    Frame frame = base;
    frame.function = location.function;
    frame.file = location.file;
    frame.line = location.line;
    frame.inlined = location.inlined;
    out.push_back(table.intern(std::move(frame)));
  }
}

Frame python_frame(std::string function, std::optional<std::string> qualname, std::string file,
                   std::optional<int> line) {
  Frame frame;
  frame.kind = FrameKind::kPython;
  frame.function = std::move(function);
  frame.qualname = std::move(qualname);
  frame.file = std::move(file);
  frame.line = line;
  return frame;
}

FrameId intern_python(const python::State& state, const python::MergedFrame& merged, FrameTable& table) {
  const python::Code& code = state.codes[merged.code];
  Frame frame = python_frame(code.name, code.qualname, code.file, merged.line);
  frame.origin = merged.origin;
  return table.intern(std::move(frame));
}

FrameId intern_place(const python::Handled::Place& place, FrameTable& table) {
  return table.intern(python_frame(place.function, place.qualname, place.file, place.line));
}

using PythonFrames = std::vector<std::pair<Address, std::size_t>>;  // the frame's address in the process, its index in
                                                                    // the thread's frames

HandledException handled_exception(const python::Handled& handled, const PythonFrames& python_frames,
                                   FrameTable& table) {
  HandledException exception{
      .type = handled.type, .message = handled.message, .frame = {}, .handler = {}, .raised = {}};
  const auto at = std::find_if(python_frames.begin(), python_frames.end(),
                               [&](const auto& f) { return handled.frame != 0 && f.first == handled.frame; });
  if (at != python_frames.end()) exception.frame = at->second;
  if (handled.handler) exception.handler = intern_place(*handled.handler, table);
  if (handled.raised) exception.raised = intern_place(*handled.raised, table);
  for (const python::Handled::Place& place : handled.traceback)
    exception.traceback.push_back(intern_place(place, table));
  exception.traceback_omitted = handled.traceback_omitted;
  const auto in_model = [&](const python::Handled::Chained& chained) {
    ChainedException one{chained.link, chained.type, chained.message};
    if (chained.raised) one.raised = intern_place(*chained.raised, table);
    return one;
  };
  std::vector<ChainedException> hidden;
  std::transform(handled.chain.begin(), handled.chain.end(), std::back_inserter(exception.chain), in_model);
  std::transform(handled.hidden.begin(), handled.hidden.end(), std::back_inserter(hidden), in_model);
  exception.cause = cause_of(exception, hidden);
  return exception;
}

// Whether the C library's function on top of the stack is one of these.
template <std::size_t N>
bool is_in(const FrameTable& table, const std::vector<FrameId>& frames,
           const std::array<std::string_view, N>& functions) {
  constexpr std::size_t kNearTop = 4;  // the wait itself is one or two functions further inside
  for (std::size_t i = 0; i < std::min(frames.size(), kNearTop); ++i) {
    const auto& function = table[frames[i]].function;
    if (function && std::any_of(functions.begin(), functions.end(),
                                [&](std::string_view name) { return contains(*function, name); }))
      return true;
  }
  return false;
}

constexpr std::array<std::string_view, 3> kLocksMutex = {"pthread_mutex_lock", "pthread_mutex_timedlock",
                                                         "pthread_mutex_clocklock"};
constexpr std::array<std::string_view, 6> kLocksRwlock = {"pthread_rwlock_rdlock",      "pthread_rwlock_wrlock",
                                                          "pthread_rwlock_timedrdlock", "pthread_rwlock_timedwrlock",
                                                          "pthread_rwlock_clockrdlock", "pthread_rwlock_clockwrlock"};

void find_owner(const FrameTable& table, const FutexMemory& memory, ThreadSnapshot& thread) {
  if (memory.mutex_owner != 0 && is_in(table, thread.frames, kLocksMutex)) thread.lock_owner = memory.mutex_owner;
  else if (memory.rwlock_writer != 0 && is_in(table, thread.frames, kLocksRwlock))
    thread.lock_owner = memory.rwlock_writer;
  else if (memory.joined != 0) thread.joins = memory.joined;
}

bool is_in_library(const Frame& frame, known::ModuleKind kind) {
  return known::module_kind(std::string_view(frame.module).substr(frame.module.rfind('/') + 1)) == kind;
}

// Functions of libc++abi that end the process themselves if an exception has no handler. What they call for that,
// std::__terminate(), has no name in a library without symbols, so that abort() has to show that they do. While they
// look for a handler, their thread holds an exception in flight, which is not read (LLVM, libcxxabi/src/
// cxa_exception.cpp, cxa_personality.cpp).
constexpr std::array<std::string_view, 4> kTerminateThemselves = {"__cxa_throw", "__cxa_rethrow",
                                                                  "__cxa_call_terminate", "__gxx_personality_v0"};

// Whether the C++ library is terminating the process; then the exception that the thread holds is the reason.
bool terminates(const FrameTable& table, const std::vector<FrameId>& frames) {
  bool aborts = false;
  for (const FrameId id : frames) {
    const Frame& frame = table[id];
    if (frame.kind != FrameKind::kNative || !frame.function) continue;
    const std::string& function = *frame.function;
    if (function.starts_with("std::terminate(") || function.starts_with("std::__terminate(") ||
        function.starts_with("__gnu_cxx::__verbose_terminate_handler("))
      return true;
    if ((function == "abort" || function == "__GI_abort") && is_in_library(frame, known::ModuleKind::kCLibrary))
      aborts = true;
    if (aborts &&
        std::find(kTerminateThemselves.begin(), kTerminateThemselves.end(), function) != kTerminateThemselves.end() &&
        is_in_library(frame, known::ModuleKind::kCppLibrary))
      return true;
  }
  return false;
}

// Whether the unwinder looks for the handler of an exception.
bool looks_for_handler(const FrameTable& table, const std::vector<FrameId>& frames) {
  return std::any_of(frames.begin(), frames.end(), [&](FrameId id) {
    const auto& function = table[id].function;
    return function && (*function == "_Unwind_RaiseException" || *function == "_Unwind_Resume_or_Rethrow");
  });
}

// The frame whose part of the stack has that address: the one whose function the unwinder has found a handler in.
std::optional<std::size_t> frame_with(const unwind::UnwoundStack& stack, Address sp) {
  std::optional<std::size_t> found;
  for (std::size_t f = 0; f < stack.frames.size(); ++f) {
    const unwind::UnwoundFrame& frame = stack.frames[f];
    if (frame.sp > sp || (frame.cfa <= sp && frame.sp != sp)) continue;
    // A handler of a signal may run on a stack of its own, and then its frame's end is on another one.
    if (!found || frame.sp > stack.frames[*found].sp) found = f;
  }
  return found;
}

// "N3c1016DistBackendErrorE" -> "c10::DistBackendError"
std::string type_name(const std::string& mangled) {
  constexpr std::string_view kBefore = "typeinfo name for ";
  const std::string text = symbolizers::demangle("_ZTS" + mangled);
  return text.starts_with(kBefore) ? text.substr(kBefore.size()) : mangled;
}

// The function that a frame of the stack is in, not an inlined one; nullptr if there is no symbol.
const std::string* physical_function(const target::Target& target, const unwind::UnwoundFrame& frame,
                                     const SymbolBatch& symbols) {
  const target::Module* module = target.modules().find(frame.lookup_pc());
  if (module == nullptr || !module->image) return nullptr;
  const auto* locations = symbols.find(*module, module->to_vaddr(frame.lookup_pc()));
  // The outermost location is the physical function; the others are inlined into it.
  return locations == nullptr || locations->empty() || !locations->back().function ? nullptr
                                                                                   : &*locations->back().function;
}

python::KnownFrames known_frames(const target::Target& target, const unwind::UnwoundStack& stack,
                                 const SymbolBatch& symbols, const std::string& interpreter) {
  python::KnownFrames known{.eval_loop = std::vector<bool>(stack.frames.size()),
                            .loop_border = std::vector<bool>(stack.frames.size()),
                            .greenlet = std::nullopt,
                            .nameless = std::vector<bool>(stack.frames.size())};
  for (std::size_t f = 0; f < stack.frames.size(); ++f) {
    const std::string* function = physical_function(target, stack.frames[f], symbols);
    if (function == nullptr) {
      const target::Module* module = target.modules().find(stack.frames[f].lookup_pc());
      known.nameless[f] = module == nullptr || !module->image || module->path == interpreter;
      continue;
    }
    known.eval_loop[f] = is_eval_loop(*function);
    known.loop_border[f] = is_loop_border(*function);
    if (is_greenlet_start(*function)) {
      known.greenlet = f;
      break;
    }
  }
  return known;
}

// Whether each thread state can be assigned to its thread: up to 3.9 the state of a subinterpreter names the thread
// that created it.
bool names_threads(const python::State& state) {
  constexpr int kFirstWithAnchors = 10;
  return state.version.minor >= kFirstWithAnchors ||
         std::all_of(state.threads.begin(), state.threads.end(), [&](const python::ThreadState& t) {
           return t.interpreter_id == state.threads.front().interpreter_id;
         });
}

// Whether the interpreter is being finalized: from some point on, other threads have no state and stay in the loop
// forever.
bool is_finalizing(const target::Target& target, const std::vector<unwind::UnwoundStack>& stacks,
                   const SymbolBatch& symbols) {
  return std::any_of(stacks.begin(), stacks.end(), [&](const unwind::UnwoundStack& stack) {
    return std::any_of(stack.frames.begin(), stack.frames.end(), [&](const unwind::UnwoundFrame& frame) {
      const std::string* function = physical_function(target, frame, symbols);
      return function != nullptr && (function->starts_with("Py_Finalize") || function->starts_with("_Py_Finalize") ||
                                     function->starts_with("Py_EndInterpreter"));
    });
  });
}

// Whether a thread without a thread state is in a call of the loop that runs code. A thread that waits for the GIL may
// have lost its state for good: a daemon thread after the interpreter has been finalized.
bool runs_unknown_loop(const target::Target& target, const unwind::UnwoundStack& stack, const SymbolBatch& symbols) {
  for (std::size_t f = 0; f < stack.frames.size(); ++f) {
    const std::string* function = physical_function(target, stack.frames[f], symbols);
    if (function == nullptr) continue;
    if (is_eval_loop(*function)) return f > 1;
    if (is_loop_border(*function) || is_greenlet_start(*function) || function->starts_with("take_gil") ||
        contains(*function, "hang_thread"))
      return false;
  }
  return false;
}

// Whether the frames show that the thread is taking the GIL. Its functions stay on the stack while it waits, also in
// the moments in which it is in no futex call: the wait has a time limit, after which it asks the holder to let go.
// PyEval_RestoreThread and PyEval_AcquireThread are exported, so that stripped interpreters have their names, too.
bool takes_gil(const FrameTable& table, const std::vector<FrameId>& frames) {
  for (const FrameId id : frames) {
    const Frame& frame = table[id];
    if (frame.kind != FrameKind::kNative) return false;
    if (!frame.function) continue;
    const std::string& function = *frame.function;
    // A thread that outlives the interpreter ends there, or hangs.
    if (contains(function, "hang_thread") || function.starts_with("PyThread_exit_thread") || function == "pause" ||
        is_eval_loop(function))
      return false;
    if (function.starts_with("take_gil") || function.starts_with("PyEval_RestoreThread") ||
        function.starts_with("PyEval_AcquireThread"))
      return true;
  }
  return false;
}

// Builds the threads of one rank's snapshot from its capture.
class ThreadBuilder {
 public:
  ThreadBuilder(RankStacks& rank, const SymbolBatch& symbols, FrameTable& table)
      : rank_(rank), snapshot_(rank.snapshot), target_(*rank.target), symbols_(symbols), table_(table) {}

  void build() {
    const auto infos = target_.threads();
    std::vector<ThreadStates> states(infos.size());
    if (rank_.python) states = assign_python(infos);
    for (std::size_t i = 0; i < infos.size(); ++i) add_thread(i, infos[i], states[i]);
    add_module_problems();
    for (Problem& p : target_.damage()) {
      snapshot_.problems.push_back(std::move(p));
      worsen(snapshot_, Status::kPartial);
    }
    std::stable_partition(snapshot_.threads.begin(), snapshot_.threads.end(),
                          [&](const ThreadSnapshot& t) { return t.tid == snapshot_.pid; });
    troubles_.report(snapshot_);
  }

 private:
  using ThreadStates = std::vector<const python::ThreadState*>;

  std::vector<ThreadStates> assign_python(std::span<const target::ThreadInfo> infos) {
    snapshot_.python_version = rank_.python->version.to_string();
    snapshot_.faulthandler = rank_.python->faulthandler;
    std::vector<python::NativeThread> native;
    for (std::size_t i = 0; i < infos.size(); ++i)
      native.push_back(
          {infos[i].registers ? infos[i].registers->fs_base : 0, &rank_.stacks[i], infos[i].tid == snapshot_.pid});
    auto states = python::assign_threads(*rank_.python, native);
    known_.resize(infos.size());
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (states[i].empty()) continue;
      known_[i] = known_frames(target_, rank_.stacks[i], symbols_, rank_.python->module);
      states[i] = python::states_on_stack(*rank_.python, native[i], states[i], known_[i]);
    }
    add_ended(native, states);
    snapshot_.problems.insert(snapshot_.problems.end(), rank_.python->problems.begin(), rank_.python->problems.end());
    if (rank_.python->partial) worsen(snapshot_, Status::kPartial);
    return states;
  }

  // Names the states with frames whose threads have ended. A thread that leaves Python in order removes its own.
  void add_ended(std::span<const python::NativeThread> threads, std::span<const ThreadStates> assigned) {
    std::set<const python::ThreadState*> owned;
    for (const ThreadStates& states : assigned) owned.insert(states.begin(), states.end());
    std::set<std::uint64_t> living;
    for (const python::NativeThread& thread : threads) living.insert(thread.pthread_id);
    constexpr std::size_t kNamed = 4;
    std::size_t count = 0, with_place = 0;
    std::string where;
    for (const python::ThreadState& state : rank_.python->threads) {
      if (state.runs.empty() || owned.contains(&state) || !state.descriptor_tid) continue;
      const bool is_used_again = living.contains(state.pthread_id);
      if (*state.descriptor_tid != 0 && !is_used_again) continue;  // it may just have begun
      ++count;
      // In 3.11 and 3.12 the way to a state's frames leads through the stack, which is another thread's now.
      if (is_used_again || ++with_place > kNamed) continue;
      const python::RawFrame& frame = state.runs.front().frames.front();
      const python::Code& code = rank_.python->codes[frame.code];
      where += fmt::format("{}{} at {}", where.empty() ? " (" : ", ", code.name, code.file);
      if (const auto line = python::line_of(*rank_.python, frame)) where += fmt::format(":{}", *line);
    }
    if (count == 0) return;
    if (with_place > kNamed) where += fmt::format(" and {} more", with_place - kNamed);
    if (!where.empty()) where += ")";
    constexpr const char* kOne =
        "a thread state of the interpreter belongs to no living thread{}: its thread ended below Python, or is one of "
        "the process that this one was forked from";
    constexpr const char* kSeveral =
        "{} thread states of the interpreter belong to no living thread{}: their threads ended below Python, or are "
        "those of the process that this one was forked from";
    snapshot_.problems.push_back(
        {count == 1 ? fmt::format(kOne, where) : fmt::format(kSeveral, count, where), std::nullopt});
  }

  void add_thread(std::size_t i, const target::ThreadInfo& info, const ThreadStates& states) {
    const unwind::UnwoundStack& stack = rank_.stacks[i];
    ThreadSnapshot thread = snapshot_without_frames(i, info, stack);
    frame_of_unwound_.assign(stack.frames.size(), std::nullopt);
    add_troubles(info, stack, thread.syscall ? &*thread.syscall : nullptr);
    if (states.empty()) {
      add_native_frames(info, stack, thread);
    } else {
      add_merged_frames(info, stack, known_[i], states, thread);
    }
    add_exception(i, stack, thread);
    add_waits(i, info, thread);
    snapshot_.threads.push_back(std::move(thread));
  }

  ThreadSnapshot snapshot_without_frames(std::size_t i, const target::ThreadInfo& info,
                                         const unwind::UnwoundStack& stack) const {
    ThreadSnapshot thread;
    if (info.registers) thread.thread_pointer = info.registers->fs_base;
    thread.tid = info.tid;
    thread.name = info.name;
    if (info.state != 0) thread.state = info.state;
    thread.cpu_ms = info.cpu_ms;
    if (!info.wchan.empty() || !info.kernel_stack.empty())
      thread.kernel_place = KernelPlace{info.wchan, info.kernel_stack};
    thread.stack_end = stack.end;
    thread.omitted = stack.omitted;
    if (i < rank_.syscalls.size()) thread.syscall = rank_.syscalls[i];
    return thread;
  }

  // Reports what could not be read of the thread.
  void add_troubles(const target::ThreadInfo& info, const unwind::UnwoundStack& stack, const SyscallInfo* call) {
    if (!info.problem.empty()) {
      troubles_.add(info.problem, info.tid);
      // A main thread that has ended cannot be read. If any other thread was not read, the rank is incomplete.
      if (info.state != 'Z' && info.state != 'X') worsen(snapshot_, Status::kPartial);
    }
    if (!stack.note.empty()) troubles_.add(stack.note, info.tid);
    if (stack.end == StackEnd::kRegistersUnknown) {
      constexpr const char* kMissing =
          "its callers are missing: to find them needs registers that the kernel tells only of a stopped thread";
      const bool is_spared = call != nullptr && target::is_spoiled_by_stop(call->number);
      troubles_.add(
          is_spared ? fmt::format("{}, and a stop would end its {} (--stop always shows them)", kMissing, call->name)
                    : kMissing,
          info.tid);
      worsen(snapshot_, Status::kPartial);
    }
    // If a stack ends in a module whose file is missing, or was refused, its callers are missing; the problems of the
    // images say which file it is.
    if (snapshot_.source == Source::kCore && stack.end == StackEnd::kNoUnwindInfo && !stack.frames.empty()) {
      const target::Module* last = target_.modules().find(stack.frames.back().lookup_pc());
      if (last != nullptr && !last->image) worsen(snapshot_, Status::kPartial);
    }
  }

  // For a thread without a thread state of the interpreter.
  void add_native_frames(const target::ThreadInfo& info, const unwind::UnwoundStack& stack, ThreadSnapshot& thread) {
    for (std::size_t f = 0; f < stack.frames.size(); ++f) append_unwound(stack, f, thread);
    if (rank_.python && names_threads(*rank_.python) && runs_unknown_loop(target_, stack, symbols_) && !finalizes()) {
      troubles_.add(
          "it is in the interpreter's loop, and no thread state of the interpreter is its own: its Python frames are "
          "missing",
          info.tid);
      worsen(snapshot_, Status::kPartial);
    }
  }

  void add_merged_frames(const target::ThreadInfo& info, const unwind::UnwoundStack& stack,
                         const python::KnownFrames& known, const ThreadStates& states, ThreadSnapshot& thread) {
    const python::MergedStack merged = python::merge(*rank_.python, states, stack, known);
    std::optional<OmittedFrames> omitted;
    PythonFrames python_frames;
    for (const python::MergedFrame& frame : merged.frames) {
      if (stack.omitted && !omitted && !frame.is_python && frame.native >= stack.omitted->at)
        omitted = OmittedFrames{thread.frames.size(), stack.omitted->count};
      if (frame.is_python && frame.variables < rank_.python->variables.size()) {
        FrameVariables variables = rank_.python->variables[frame.variables];
        variables.frame = thread.frames.size();
        thread.variables.push_back(std::move(variables));
      }
      if (const auto locals = rank_.python->locals.find(frame.address);
          frame.is_python && locals != rank_.python->locals.end())
        thread.locals.push_back({thread.frames.size(), locals->second});
      if (frame.is_python) python_frames.emplace_back(frame.address, thread.frames.size());
      if (frame.is_python) thread.frames.push_back(intern_python(*rank_.python, frame, table_));
      else append_unwound(stack, frame.native, thread);
    }
    if (stack.omitted) thread.omitted = omitted ? omitted : OmittedFrames{thread.frames.size(), stack.omitted->count};
    for (const Problem& p : merged.problems) troubles_.add(p.message, info.tid);
    if (merged.partial) worsen(snapshot_, Status::kPartial);
    for (const python::ThreadState* state : states) add_python_state(info, *state, python_frames, thread);
  }

  void add_python_state(const target::ThreadInfo& info, const python::ThreadState& state,
                        const PythonFrames& python_frames, ThreadSnapshot& thread) {
    // Up to 3.12 a subinterpreter's state has the number of the thread that created it.
    const bool is_own = thread.thread_pointer == 0 || state.pthread_id == thread.thread_pointer;
    if (is_own) thread.python_thread = PythonThread{state.pthread_id, state.name};
    else if (!thread.python_thread) thread.python_thread = PythonThread{thread.thread_pointer, std::nullopt};
    if (state.holds_gil) thread.gil = Gil::kHolds;
    // While a finalizer waits, another thread may hold the GIL. The thread that collects is recognised by native frames
    // inside of its innermost Python frame: the collector is C code.
    constexpr std::size_t kLeastOfCollector = 2;
    const auto python_at = std::find_if(thread.frames.begin(), thread.frames.end(),
                                        [&](FrameId id) { return table_[id].kind == FrameKind::kPython; });
    thread.collecting |=
        state.collects && static_cast<std::size_t>(python_at - thread.frames.begin()) >= kLeastOfCollector;
    // If several interpreters are active in one thread, the innermost one that handles an exception is shown.
    if (state.handles) {
      HandledException handled = handled_exception(*state.handles, python_frames, table_);
      if (!thread.handles || (handled.frame && (!thread.handles->frame || *handled.frame < *thread.handles->frame)))
        thread.handles = std::move(handled);
    }
    if (state.raises && !thread.raises) thread.raises = handled_exception(*state.raises, python_frames, table_);
    if (state.lock) thread.python_lock = state.lock;
    if (state.joins) thread.joins = state.joins;
    if (!state.problems.empty()) worsen(snapshot_, Status::kPartial);
    for (const Problem& p : state.problems) troubles_.add(p.message, info.tid);
  }

  void append_unwound(const unwind::UnwoundStack& stack, std::size_t f, ThreadSnapshot& thread) {
    append_native(target_, stack.frames[f], symbols_, table_, thread.frames.edit());
    frame_of_unwound_[f] = thread.frames.size() - 1;
  }

  // Adds the C++ exception with which it ends the process, or that it handles.
  void add_exception(std::size_t i, const unwind::UnwoundStack& stack, ThreadSnapshot& thread) const {
    if (i >= rank_.exceptions.handled.size()) return;
    const auto& handled = rank_.exceptions.handled[i];
    const auto& raised = rank_.exceptions.raised[i];
    if (!handled && !raised) return;
    if (terminates(table_, thread.frames)) {
      if (handled && handled->alone) thread.exception = in_model(*handled);
      return;
    }
    if (handled) thread.handles_cxx = with_handler(*handled, stack);
    if (!raised) return;
    // Before a handler is found, only the unwinder's frames show that the exception is on its way.
    if (raised->handler_sp != 0) thread.raises_cxx = with_handler(*raised, stack);
    else if (looks_for_handler(table_, thread.frames)) thread.raises_cxx = HandledCxxException{in_model(*raised)};
  }

  static CxxException in_model(const target::HeldException& held) {
    return {type_name(held.type), held.what, held.what ? cause_of(*held.what) : std::nullopt};
  }

  // With its handler's frame. std::nullopt: that is not on this stack; a program that has several stacks to a thread
  // may have left it on another one.
  std::optional<HandledCxxException> with_handler(const target::HeldException& held,
                                                  const unwind::UnwoundStack& stack) const {
    const auto handler = frame_with(stack, held.handler_sp);
    if (!handler && stack.end == StackEnd::kComplete && !stack.omitted) return std::nullopt;
    HandledCxxException handled{in_model(held)};
    if (handler) handled.frame = frame_of_unwound_[*handler];
    return handled;
  }

  // Adds which thread it waits for, and whether it waits for the GIL.
  void add_waits(std::size_t i, const target::ThreadInfo& info, ThreadSnapshot& thread) const {
    if (i < rank_.futex_memory.size() && rank_.futex_memory[i]) find_owner(table_, *rank_.futex_memory[i], thread);
    if (rank_.python && info.registers) {
      const auto futex = i < rank_.futexes.size() ? rank_.futexes[i] : std::nullopt;
      const bool on_gil = futex && std::any_of(rank_.python->gil_ranges.begin(), rank_.python->gil_ranges.end(),
                                               [&](const Range& r) { return r.contains(*futex); });
      const bool is_taking = !thread.gil && !rank_.python->gil_ranges.empty() && takes_gil(table_, thread.frames);
      if (on_gil || is_taking) thread.gil = Gil::kWaits;
    }
  }

  void add_module_problems() {
    for (const target::Module& module : target_.modules().all()) {
      if (symbols_.gave_up(module))
        give_up(snapshot_, fmt::format("{}: looking up its functions and lines", module.path));
      if (!module.image || !module.image->has_lost_pages()) continue;
      snapshot_.problems.push_back(
          {fmt::format("{}: it became shorter, or its disk failed, while it was read: frames and names may be missing",
                       module.path),
           std::nullopt, ProblemCode::kUnreadable});
      worsen(snapshot_, Status::kPartial);
    }
  }

  bool finalizes() {
    if (!finalizing_) finalizing_ = is_finalizing(target_, rank_.stacks, symbols_);
    return *finalizing_;
  }

  RankStacks& rank_;
  RankSnapshot& snapshot_;
  const target::Target& target_;
  const SymbolBatch& symbols_;
  FrameTable& table_;
  std::vector<python::KnownFrames> known_;                    // by thread, of those with thread states
  std::vector<std::optional<std::size_t>> frame_of_unwound_;  // of the current thread: the outermost of each one's
  ThreadTroubles troubles_;
  std::optional<bool> finalizing_;  // determined once, from all stacks
};

}  // namespace

void build_threads(RankStacks& rank, const SymbolBatch& symbols, FrameTable& table) {
  if (rank.target) ThreadBuilder(rank, symbols, table).build();
}

}  // namespace rankstacks::capture
