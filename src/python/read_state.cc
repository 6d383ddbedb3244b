// Step 2: copies the interpreter's state while the target is paused. Reads memory only, in as few batches as the chains
// allow.

#include <fmt/format.h>
#include <algorithm>
#include <unordered_set>

#include "python/faulthandler.h"
#include "python/frames.h"
#include "python/gil.h"
#include "python/handled.h"
#include "python/layouts.h"
#include "python/locals.h"
#include "python/locks.h"
#include "python/objects.h"
#include "python/other_readers.h"
#include "python/running.h"
#include "python/thread_names.h"
#include "python/variables.h"
#include "target/thread_pointer.h"

namespace rankstacks::python {
namespace {

constexpr std::size_t kMaxThreadStates = 65536;

// Reads the thread states of all interpreters, as far as the lists are intact.
class ThreadReader {
 public:
  ThreadReader(const target::Target& target, const Runtime& runtime) : target_(target), layout_(runtime.layout) {
    std::unordered_set<Address> seen;
    const auto first = target.read_value<Address>(runtime.candidate.runtime + layout_.runtime_interpreters_head);
    for (Address at = first.value_or(0); at != 0;) {
      if (!seen.insert(at).second || interpreters.size() >= kMaxInterpreters) {
        problem(fmt::format("the list of interpreters does not end (at {:#x})", at));
        break;
      }
      const auto next = target.read_value<Address>(at + layout_.interp_next);
      if (!next) {
        problem(fmt::format("the interpreter at {:#x} cannot be read", at));
        break;
      }
      interpreters.push_back(at);
      const std::size_t before = states.size();
      read_threads(at, read_id(at));
      collecting.resize(states.size(), states.size() > before && is_collecting(at));
      at = *next;
    }
  }

  std::vector<Address> interpreters;
  std::vector<ThreadState> states;
  std::vector<ChainStart> starts;  // parallel to states
  // Parallel to states: where the exceptions that a thread handles are kept; 0: not known.
  std::vector<Address> exc_items;
  std::vector<Raised> raised;    // parallel to states
  std::vector<Address> ends;     // parallel to states: the field thread_on_delete_data; 0: none
  std::vector<bool> collecting;  // parallel to states: whether the collector of its interpreter is running
  std::vector<Problem> problems;

 private:
  void problem(std::string message) { problems.push_back({std::move(message), std::nullopt}); }

  bool is_collecting(Address interpreter) const {
    return layout_.interp_collecting != kAbsent &&
           target_.read_value<std::int32_t>(interpreter + layout_.interp_collecting) == 1;
  }

  std::uint64_t read_id(Address interpreter) const {
    if (layout_.interp_id == kAbsent) return 0;
    return target_.read_value<std::uint64_t>(interpreter + layout_.interp_id).value_or(0);
  }

  void read_threads(Address interpreter, std::uint64_t id) {
    const std::size_t size =
        span_of({layout_.thread_next, layout_.thread_interp, layout_.thread_id, layout_.thread_native_id,
                 layout_.thread_frame, layout_.thread_cframe, layout_.thread_exc_info, layout_.thread_on_delete_data});
    StructCopy copy;
    for (Address at = target_.read_value<Address>(interpreter + layout_.interp_threads_head).value_or(0); at != 0;) {
      if (states.size() >= kMaxThreadStates || !seen_.insert(at).second) {
        return problem(
            fmt::format("the list of threads of the interpreter at {:#x} does not end (at {:#x})", interpreter, at));
      }
      const Range range{at, at + size};
      target_.prefetch(std::span(&range, 1));
      if (!copy.read(target_, at, size)) return problem(fmt::format("the thread state at {:#x} cannot be read", at));
      if (copy.get<Address>(layout_.thread_interp) != interpreter) {
        return problem(fmt::format("the thread state at {:#x} does not belong to the interpreter that lists it", at));
      }
      ThreadState state;
      state.pthread_id = copy.get<std::uint64_t>(layout_.thread_id);
      state.native_id = copy.get<std::int64_t>(layout_.thread_native_id);
      state.interpreter_id = id;
      states.push_back(std::move(state));
      starts.push_back({at, copy.get<Address>(layout_.thread_frame), copy.get<Address>(layout_.thread_cframe)});
      exc_items.push_back(layout_.thread_exc_info == kAbsent ? at : copy.get<Address>(layout_.thread_exc_info));
      raised.push_back(raised_in(layout_, copy));
      ends.push_back(copy.get<Address>(layout_.thread_on_delete_data));
      at = copy.get<Address>(layout_.thread_next);
    }
  }

  const target::Target& target_;
  const Layout& layout_;
  std::unordered_set<Address> seen_;
};

// Fills in ThreadState::descriptor_tid.
void read_descriptors(const target::Target& target, std::vector<ThreadState>& states) {
  std::vector<Range> ranges;
  for (const ThreadState& state : states) {
    if (state.pthread_id == 0) continue;
    ranges.push_back(range_of(state.pthread_id, sizeof(target::DescriptorHead)));
    ranges.push_back(range_of(state.pthread_id + target::kTidInDescriptor, sizeof(std::int32_t)));
  }
  target.prefetch(ranges);
  for (ThreadState& state : states) {
    if (state.pthread_id == 0) continue;
    const auto head = target.read_value<target::DescriptorHead>(state.pthread_id);
    if (head && target::is_thread_descriptor(state.pthread_id, *head))
      state.descriptor_tid = target.read_value<std::int32_t>(state.pthread_id + target::kTidInDescriptor);
  }
}

// Converts the instruction that a frame states into an offset into its code.
std::int64_t instruction_of(const Layout& layout, const ChainFrame& frame, CodeReader& codes, std::uint32_t index) {
  if (layout.frame_owner == kAbsent) {
    constexpr int kFirstInCodeUnits = 10;
    const auto last = static_cast<std::int64_t>(frame.instruction);
    return last < 0 ? kNotStarted : layout.minor >= kFirstInCodeUnits ? last * kCodeUnit : last;
  }
  const auto offset = codes.offset_of(frame.instruction, index, frame.tlbc_index);
  if (!offset) return kUnknownInstruction;
  return *offset < 0 ? kNotStarted : *offset;  // 3.11, 3.12: the code unit before the first
}

// Whether a frame is still being set up (its cells, or the generator it will become): CPython does not show such
// frames.
bool is_incomplete(const Layout& layout, const ChainFrame& frame, const CodeReader::Body& body,
                   std::int64_t instruction) {
  constexpr std::uint8_t kOwnerGenerator = 1;
  if (layout.code_first_traceable == kAbsent || frame.owner == kOwnerGenerator || instruction == kUnknownInstruction)
    return false;
  return instruction < body.first_traceable;
}

std::string describe(const ThreadState& state) {
  return state.native_id != 0 ? fmt::format("Python thread {}", state.native_id)
                              : fmt::format("Python thread {:#x}", state.pthread_id);
}

// Fills in the frames with their code; a chain is cut at the first frame whose code is not a code object.
void fill_runs(const Layout& layout, const Chain& chain, CodeReader& codes, ThreadState& state) {
  const auto damaged = [&](std::string_view what) {
    state.problems.push_back({fmt::format("{}: its frames are incomplete: {}", describe(state), what), std::nullopt});
  };
  std::size_t outside = 0;
  Address first_outside = 0;
  std::optional<std::string> cut;
  for (const ChainRun& raw : chain.runs) {
    Run run{.anchor = raw.anchor};
    for (const ChainFrame& frame : raw.frames) {
      const std::uint32_t index = codes.add(frame.code, frame.tlbc_index);
      const CodeReader::Body& body = codes.body(index);
      if (body.kind == CodeReader::Kind::kNone) continue;
      if (body.kind == CodeReader::Kind::kOther) {
        cut = fmt::format("the frame at {:#x} has no code", frame.address);
        break;
      }
      RawFrame out{index, kUnknownInstruction, frame.address};
      if (body.kind == CodeReader::Kind::kCode) {
        out.instruction = instruction_of(layout, frame, codes, index);
        if (is_incomplete(layout, frame, body, out.instruction)) continue;
        if (out.instruction == kUnknownInstruction && outside++ == 0) first_outside = frame.address;
      }
      run.frames.push_back(out);
    }
    if (cut) run.anchor.reset();
    if (!run.frames.empty()) state.runs.push_back(std::move(run));
    else if (run.anchor) state.empty_calls.push_back(*run.anchor);
    if (cut) break;
  }
  // One message for all of them: a damaged chain may have as many of them as it has frames.
  if (outside == 1) damaged(fmt::format("the instruction of the frame at {:#x} is outside its code", first_outside));
  else if (outside > 1)
    damaged(fmt::format("the instructions of the frame at {:#x} and of {} more are outside their code", first_outside,
                        outside - 1));
  if (cut) return damaged(*cut);
  if (!chain.damage.empty()) damaged(chain.damage);
}

// Names, files and lines that are missing in the code that was read.
void report_missing(const CodeReader& codes, State& state) {
  const auto report = [&](std::string message) {
    state.problems.push_back({std::move(message), std::nullopt});
    state.partial = true;
  };
  if (codes.cut_strings() > 0)
    report(fmt::format("names of Python code cut at {} bytes: {}", kMaxString, codes.cut_strings()));
  if (codes.text_exhausted())
    report(fmt::format("names and line tables of Python code beyond {} MiB are left out", kMaxText >> 20));
  else if (const std::size_t nameless = codes.damaged(); nameless > 0)
    report(fmt::format(
        "{} of {} Python code objects cannot be read in full: names, files or lines of their frames are missing",
        nameless, codes.codes().size()));
}

}  // namespace

Result<State> read_python_state(const target::Target& target, std::span<const RuntimeCandidate> candidates,
                                std::size_t locals) {
  std::vector<Problem> problems;
  const auto runtime = find_running(target, candidates, problems);
  if (!runtime) return tl::unexpected(runtime.error());
  const Layout& layout = runtime->layout;

  ThreadReader threads(target, *runtime);
  const GilState gil = read_gil(target, layout, runtime->candidate, threads.interpreters);
  const std::vector<Chain> chains = walk_chains(target, layout, threads.starts);
  read_descriptors(target, threads.states);

  CodeReader codes(target, layout);
  for (const Chain& chain : chains) {
    for (const ChainRun& run : chain.runs) {
      for (const ChainFrame& frame : run.frames) codes.add(frame.code, frame.tlbc_index);
    }
  }
  codes.read_all();

  State state;
  state.version = runtime->version;
  state.module = runtime->candidate.module;
  state.gil_ranges = gil.ranges;
  state.problems = std::move(problems);
  for (const std::string& p : gil.problems) state.problems.push_back({p, std::nullopt});
  state.partial = !threads.problems.empty();
  for (Problem& p : threads.problems) state.problems.push_back(std::move(p));
  state.threads = std::move(threads.states);
  for (std::size_t i = 0; i < state.threads.size(); ++i) {
    state.threads[i].holds_gil = gil.holders.count(threads.starts[i].thread_state) != 0;
    state.threads[i].collects = state.threads[i].holds_gil && threads.collecting[i];
    state.threads[i].left_out_innermost = chains[i].left_out_innermost;
    state.threads[i].empty_calls = chains[i].empty_calls;
    fill_runs(layout, chains[i], codes, state.threads[i]);
  }
  report_missing(codes, state);
  read_variables(target, layout, runtime->candidate, codes, state);
  read_handled_exceptions(target, layout, threads.exc_items, state);
  read_raised_exceptions(target, layout, threads.raised, state);
  read_last_exception(target, *runtime, codes.codes(), state);
  read_locks(target, layout, threads.ends, codes, state);
  read_thread_names(target, *runtime, state);
  state.faulthandler = read_faulthandler(target, layout, runtime->candidate, threads.interpreters);
  if (locals > 0) read_locals(target, layout, locals, codes, state);
  if (target.is_recorded()) read_for_other_readers(target, *runtime, codes, state.threads);
  state.codes = std::move(codes.codes());
  return state;
}

std::optional<int> line_of(const State& state, const RawFrame& frame) {
  if (frame.code >= state.codes.size() || frame.instruction == kUnknownInstruction) return std::nullopt;
  return line_in(state.codes[frame.code], state.version.minor, frame.instruction);
}

}  // namespace rankstacks::python
