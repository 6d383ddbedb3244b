// Every installed CPython, running a program that reports its own stacks: what is read of its memory must be the same.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <iostream>
#include <sstream>

#include "proc_target.h"
#include "python/python.h"
#include "stopped_python.h"

using namespace rankstacks;
using namespace rankstacks::testing;

namespace {

using Stacks = std::vector<std::pair<std::uint64_t, std::vector<TrueFrame>>>;

Stacks stacks_of(const python::State& state) {
  Stacks stacks;
  for (const python::ThreadState& thread : state.threads) {
    std::vector<TrueFrame> frames;
    for (const python::Run& run : thread.runs) {
      for (const python::RawFrame& frame : run.frames) {
        const python::Code& code = state.codes[frame.code];
        TrueFrame read{code.name, code.file, python::line_of(state, frame), code.qualname,
                       std::map<std::string, std::int64_t>{}};
        if (frame.variables < state.variables.size()) {
          for (const auto& [name, value] : state.variables[frame.variables].numbers) read.numbers->emplace(name, value);
        }
        frames.push_back(std::move(read));
      }
    }
    // An interpreter that was created and does not run has a thread state without frames, like threads that are just
    // starting.
    if (!frames.empty()) stacks.emplace_back(thread.pthread_id, std::move(frames));
  }
  return stacks;
}

std::string messages(const std::vector<Problem>& problems) {
  std::string all;
  for (const Problem& p : problems) all += p.message + "\n";
  return all;
}

void sort(Stacks& stacks) {
  std::sort(stacks.begin(), stacks.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second.size()) < std::pair(b.first, b.second.size());
  });
}

python::State read_state(const ProcTarget& target) {
  const auto candidates = python::find_python_runtime(target);
  REQUIRE(!candidates.empty());
  auto state = python::read_python_state(target, candidates);
  if (!state) FAIL(state.error().message());
  CHECK(messages(state->problems) == "");
  for (const python::ThreadState& thread : state->threads) CHECK(messages(thread.problems) == "");
  return *state;
}

void skip(const std::string& why) {
  std::cerr << "skipped: " << why << "\n";
  SUCCEED(why);
}

// The counters of each frame, if the program reports them.
void check_numbers(const Stacks& actual, const Stacks& expected) {
  std::size_t frames = 0;
  for (std::size_t s = 0; s < expected.size(); ++s) {
    for (std::size_t f = 0; f < expected[s].second.size(); ++f) {
      const TrueFrame& truth = expected[s].second[f];
      INFO(truth);
      if (truth.numbers) CHECK(actual[s].second[f].numbers == truth.numbers);
      frames += truth.numbers && !truth.numbers->empty();
    }
  }
  CHECK(frames >= (expected[0].second.size() > 64
                       ? 0
                       : 1));  // the module has some in any case; only the innermost 64 frames are read
}

int minor_of(const std::string& version) { return std::stoi(version.substr(2)); }

}  // namespace

TEST_CASE("each thread's Python frames are what sys._current_frames() says", "[real]") {
  const auto& pythons = installed_pythons();
  if (pythons.empty()) return skip("no CPython found");
  // Other programs are compared with the tool's reports (tests/truth/truth_python.py).
  const std::string name = GENERATE("plain", "callbacks", "threads", "unicode_names", "recursion", "odd_file_names",
                                    "no_lines", "long_lines", "loops", "counted", "interpreter");
  for (const InstalledPython& interpreter : pythons) {
    INFO(interpreter.name() << " truth.py " << name);
    StoppedPython process(interpreter, name);
    if (process.skipped()) {
      skip(process.version() + " " + name + ": " + *process.skipped());
      continue;
    }
    INFO(process.output());
    REQUIRE(process.stopped());
    const ProcTarget target(process.pid());
    const python::State state = read_state(target);
    CHECK(state.version.to_string() == process.version());
    Stacks expected = process.stacks(), actual = stacks_of(state);
    sort(expected);
    sort(actual);
    CHECK(actual == expected);
    if (actual == expected && name != "interpreter") check_numbers(actual, expected);
    CHECK_FALSE(target.inverted_ranges());

    // From 3.10 on each run is tied to the C stack of the thread that runs it: here that of the main thread.
    if (minor_of(process.version()) < 10) continue;
    std::ifstream maps("/proc/" + std::to_string(process.pid()) + "/maps");
    std::stringstream text;
    text << maps.rdbuf();
    const auto mappings = target::proc::parse_maps(text.str());
    for (const python::ThreadState& thread : state.threads) {
      Address previous = 0;
      for (const python::Run& run : thread.runs) {
        REQUIRE(run.anchor.has_value());
        CHECK(*run.anchor > previous);
        previous = *run.anchor;
        if (static_cast<pid_t>(thread.native_id) != process.pid()) continue;
        const auto stack = std::find_if(mappings.begin(), mappings.end(),
                                        [](const target::Mapping& m) { return m.path == "[stack]"; });
        REQUIRE(stack != mappings.end());
        CHECK(stack->range.contains(*run.anchor));
      }
    }
  }
}

TEST_CASE("the thread that holds the GIL", "[real]") {
  for (const InstalledPython& interpreter : installed_pythons()) {
    INFO(interpreter.name());
    StoppedPython process(interpreter, "gil_holder");
    INFO(process.output());
    REQUIRE(process.stopped());
    const ProcTarget target(process.pid());
    const python::State state = read_state(target);
    REQUIRE(state.threads.size() == 2);
    for (const python::ThreadState& thread : state.threads) {
      const bool is_main = state.codes[thread.runs.back().frames.back().code].name == "<module>";
      CHECK(thread.holds_gil == is_main);
    }
    if (minor_of(process.version()) == 6) continue;  // its GIL consists of static variables without symbols
    REQUIRE(state.gil_ranges.size() == 1);
    CHECK(state.gil_ranges[0].size() >= 100);
    CHECK(state.gil_ranges[0].size() < 1024);
  }
}

TEST_CASE("a process that waits in a system call holds no GIL", "[real]") {
  for (const InstalledPython& interpreter : installed_pythons()) {
    INFO(interpreter.name());
    StoppedPython process(interpreter, "threads");
    REQUIRE(process.stopped());
    const ProcTarget target(process.pid());
    const python::State state = read_state(target);
    // The main thread is stopped in kill(), which CPython calls with the GIL held; the workers wait for locks without
    // the GIL.
    CHECK(std::count_if(state.threads.begin(), state.threads.end(),
                        [](const python::ThreadState& t) { return t.holds_gil; }) == 1);
  }
}

TEST_CASE("from 3.13 on the interpreter is found in memory without its file", "[real]") {
  for (const InstalledPython& interpreter : installed_pythons()) {
    INFO(interpreter.name());
    StoppedPython process(interpreter, "plain");
    REQUIRE(process.stopped());
    ProcTarget target(process.pid());
    std::vector<target::Module> modules = target.modules().all();
    for (target::Module& m : modules) m.image = nullptr;
    target.modules_ = target::ModuleMap(std::move(modules));
    CHECK(python::find_python_runtime(target).empty());
    const auto state = python::read_python_state(target, {});
    if (minor_of(process.version()) < 13) {
      REQUIRE_FALSE(state.has_value());
      CHECK(state.error().message() == target.subject() + ": no Python interpreter is in it");
      continue;
    }
    if (!state) FAIL(state.error().message());
    CHECK(state->version.to_string() == process.version());
    CHECK(stacks_of(*state) == process.stacks());
  }
}

TEST_CASE("the number of batches does not grow with the number of frames", "[real]") {
  for (const InstalledPython& interpreter : installed_pythons()) {
    INFO(interpreter.name());
    StoppedPython shallow(interpreter, "plain"), deep(interpreter, "recursion");
    REQUIRE(shallow.stopped());
    REQUIRE(deep.stopped());
    const ProcTarget few(shallow.pid()), many(deep.pid());
    read_state(few);
    read_state(many);
    if (minor_of(shallow.version()) >= 11) CHECK(many.batches() < few.batches() + 60);
    // Some 30 for the threads and their frames, some 20 for the names of threads, which are a few objects away.
    CHECK(few.batches() < 60);
  }
}
