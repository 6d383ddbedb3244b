// Step 2: copies the interpreter's state while the target is paused. Reads memory only, in as few batches as the chains
// allow.

#include <fmt/format.h>
#include <algorithm>
#include <unordered_set>

#include "python/frames.h"
#include "python/gil.h"
#include "python/handled.h"
#include "python/layouts.h"
#include "python/locks.h"
#include "python/objects.h"
#include "python/variables.h"

namespace rankstacks::python {
namespace {

constexpr std::size_t kMaxInterpreters = 4096;
constexpr std::size_t kMaxThreadStates = 65536;
constexpr std::size_t kMaxScan = 256u << 20;  // bytes of writable data that are searched for the cookie

constexpr std::string_view kNotRunning = "no interpreter is running in it";

struct Runtime {
  RuntimeCandidate candidate;
  Version version;
  Layout layout;
};

std::string name_of(const RuntimeCandidate& c) { return fmt::format("{} ({} at {:#x})", c.module, c.how, c.runtime); }

// Checks that the list of interpreters leads to an interpreter whose first thread state points back to it, which no
// other memory does. Returns an empty string if so, else what is wrong. The newest interpreter is listed first, and an
// interpreter that nothing runs in may have no thread: from 3.13 on an idle subinterpreter has none.
std::string one_hop(const target::Target& target, const Runtime& r) {
  auto interpreter = target.read_value<Address>(r.candidate.runtime + r.layout.runtime_interpreters_head);
  if (!interpreter) return "its list of interpreters cannot be read";
  if (*interpreter == 0) return std::string(kNotRunning);
  for (std::size_t n = 0; n < kMaxInterpreters && interpreter && *interpreter != 0; ++n) {
    const auto thread = target.read_value<Address>(*interpreter + r.layout.interp_threads_head);
    if (!thread) return fmt::format("its interpreter at {:#x} cannot be read", *interpreter);
    if (*thread != 0) {
      const auto back = target.read_value<Address>(*thread + r.layout.thread_interp);
      if (!back) return fmt::format("its thread state at {:#x} cannot be read", *thread);
      if (*back != *interpreter)
        return fmt::format("its thread state at {:#x} belongs to another interpreter than the one that lists it",
                           *thread);
      return {};
    }
    interpreter = target.read_value<Address>(*interpreter + r.layout.interp_next);
  }
  return "its interpreter has no threads";
}

// Determines version and layout of a candidate and checks it; the error says why it is rejected.
Result<Runtime> examine(const target::Target& target, const RuntimeCandidate& candidate,
                        std::span<const RuntimeCandidate> all) {
  const auto reject = [&](ErrorCode code, std::string why, std::string hint = {}) {
    return fail({.code = code,
                 .subject = target.subject(),
                 .what = fmt::format("{}: {}", name_of(candidate), why),
                 .hint = std::move(hint)});
  };
  constexpr int kFirstWithDebugOffsets = 13;
  std::array<std::byte, kDebugOffsetsHeader> head;
  if (!target.read_exact(candidate.runtime, head)) return reject(ErrorCode::kUnreadable, "its memory cannot be read");
  if (const auto header = decode_debug_offsets_header(head)) {
    if (candidate.version &&
        (candidate.version->minor != header->version.minor || candidate.version->micro != header->version.micro)) {
      return reject(ErrorCode::kMismatch, fmt::format("its file is of CPython {}, its memory of {}",
                                                      candidate.version->to_string(), header->version.to_string()));
    }
    const std::size_t size = debug_offsets_size(header->version);
    std::vector<std::byte> table(std::max(size, head.size()));
    if (!target.read_exact(candidate.runtime, table))
      return reject(ErrorCode::kUnreadable, "its debug offsets cannot be read");
    auto layout = decode_debug_offsets(table);
    if (!layout) return reject(layout.error().code, layout.error().what);
    Runtime r{candidate, header->version, *layout};
    if (auto wrong = one_hop(target, r); !wrong.empty())
      return reject(wrong == kNotRunning ? ErrorCode::kNotFound : ErrorCode::kMalformed, wrong);
    return r;
  }

  // An executable may hold a copy of libpython's _PyRuntime (a copy relocation) and no information about the version:
  // then the version of libpython is used.
  std::vector<Version> versions;
  if (candidate.version) {
    versions.push_back(*candidate.version);
  } else {
    for (const RuntimeCandidate& other : all) {
      if (other.version) versions.push_back(*other.version);
    }
  }
  if (versions.empty()) {
    return reject(ErrorCode::kUnsupported, "its version is not known",
                  "its file shows it: of a core, give it with --exe, --sysroot or --search; where a running program's "
                  "was deleted, root can read it");
  }
  std::string why;
  for (const Version& version : versions) {
    const auto layout = find_layout(version, false);
    if (version.minor >= kFirstWithDebugOffsets) {
      why = fmt::format("CPython {} begins with the cookie xdebugpy, and that is not there", version.to_string());
    } else if (!layout) {
      why = fmt::format("the structures of CPython {} are not known", version.to_string());
    } else {
      Runtime r{candidate, version, *layout};
      why = one_hop(target, r);
      if (why.empty()) return r;
    }
  }
  return reject(why == kNotRunning ? ErrorCode::kNotFound : ErrorCode::kMalformed, why);
}

// 3.13+, if no file identifies the interpreter: searches for the cookie in the writable data of modules that have no
// file, or a file without section headers.
std::vector<RuntimeCandidate> scan_for_cookie(const target::Target& target) {
  constexpr std::size_t kChunk = 1u << 20;
  std::vector<RuntimeCandidate> found;
  std::size_t scanned = 0;
  std::vector<std::byte> buffer;
  for (const target::Mapping& mapping : target.mappings()) {
    if (!mapping.writable || mapping.path.empty() || mapping.path[0] != '/') continue;
    const target::Module* module = target.modules().find(mapping.range.start);
    if (!module || (module->image && !module->image->sections().empty())) continue;
    for (Address at = mapping.range.start; at < mapping.range.end && scanned < kMaxScan; at += kChunk) {
      // Chunks overlap by the size of a header, so that no header is cut in two.
      const auto size =
          static_cast<std::size_t>(std::min<std::uint64_t>(mapping.range.end - at, kChunk + kDebugOffsetsHeader));
      buffer.resize(size);
      scanned += size;
      const Range range{at, at + size};
      target.prefetch(std::span(&range, 1));
      const std::size_t n = target.read(at, buffer);
      for (std::size_t i = 0; i < kChunk && i + kDebugOffsetsHeader <= n; i += sizeof(std::uint64_t)) {
        if (!decode_debug_offsets_header(std::span(buffer).subspan(i, kDebugOffsetsHeader))) continue;
        found.push_back({.module = mapping.path, .runtime = at + i, .how = "cookie in memory"});
      }
    }
  }
  return found;
}

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
      ends.push_back(copy.get<Address>(layout_.thread_on_delete_data));
      at = copy.get<Address>(layout_.thread_next);
    }
  }

  const target::Target& target_;
  const Layout& layout_;
  std::unordered_set<Address> seen_;
};

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

Result<Runtime> choose(const target::Target& target, std::span<const RuntimeCandidate> candidates,
                       std::vector<Problem>& rejected) {
  std::optional<Runtime> chosen;
  ErrorCode code = ErrorCode::kNotFound;
  std::string hint;
  for (const RuntimeCandidate& candidate : candidates) {
    auto runtime = examine(target, candidate, candidates);
    if (!runtime) {
      rejected.push_back({"not the running interpreter: " + runtime.error().what, std::nullopt});
      if (code == ErrorCode::kNotFound) code = runtime.error().code;
      if (hint.empty()) hint = runtime.error().hint;
    } else if (!chosen) {
      chosen = std::move(*runtime);
    } else {
      rejected.push_back({fmt::format("a second interpreter is not shown: {}", name_of(candidate)), std::nullopt});
    }
  }
  if (chosen) return *chosen;
  std::string why;
  for (const Problem& p : rejected) why += (why.empty() ? "" : "; ") + p.message;
  if (candidates.empty()) why = "no Python interpreter is in it";
  return fail({.code = code, .subject = target.subject(), .what = why, .hint = hint});
}

// Chooses among the candidates, and if none of them is the running interpreter, among what a scan finds.
Result<Runtime> choose_or_scan(const target::Target& target, std::span<const RuntimeCandidate> candidates,
                               std::vector<Problem>& problems) {
  auto runtime = choose(target, candidates, problems);
  if (runtime) return runtime;
  const auto scanned = scan_for_cookie(target);
  if (scanned.empty()) return runtime;
  problems.clear();
  return choose(target, scanned, problems);
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

Result<State> read_python_state(const target::Target& target, std::span<const RuntimeCandidate> candidates) {
  std::vector<Problem> problems;
  const auto runtime = choose_or_scan(target, candidates, problems);
  if (!runtime) return tl::unexpected(runtime.error());
  const Layout& layout = runtime->layout;

  ThreadReader threads(target, *runtime);
  const GilState gil = read_gil(target, layout, runtime->candidate, threads.interpreters);
  const std::vector<Chain> chains = walk_chains(target, layout, threads.starts);

  CodeReader codes(target, layout);
  for (const Chain& chain : chains) {
    for (const ChainRun& run : chain.runs) {
      for (const ChainFrame& frame : run.frames) codes.add(frame.code, frame.tlbc_index);
    }
  }
  codes.read_all();

  State state;
  state.version = runtime->version;
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
  read_locks(target, layout, threads.ends, codes, state);
  state.codes = std::move(codes.codes());
  return state;
}

std::optional<int> line_of(const State& state, const RawFrame& frame) {
  if (frame.code >= state.codes.size() || frame.instruction == kUnknownInstruction) return std::nullopt;
  return line_in(state.codes[frame.code], state.version.minor, frame.instruction);
}

}  // namespace rankstacks::python
