// Real interpreters, unwound and merged: no Python frame is lost, doubled or out of order, and no call of the eval loop
// is left over.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>
#include <thread>

#include "python/python.h"
#include "stopped_python.h"
#include "target/live_target.h"
#include "unwind/unwinder.h"

using namespace rankstacks;
using namespace rankstacks::testing;

namespace {

struct Captured {
  std::unique_ptr<target::LiveTarget> target;
  python::State state;
  std::vector<unwind::UnwoundStack> stacks;  // parallel to target->threads()
};

Captured capture(Pid pid, target::LiveImages& images) {
  Captured captured;
  auto target = target::LiveTarget::prepare(pid, images);
  if (!target) FAIL(target.error().message());
  captured.target = std::move(*target);
  const auto candidates = python::find_python_runtime(*captured.target);
  Result<python::State> state = fail({});
  Result<void> done;
  std::thread([&] {
    done = captured.target->capture([&] { state = python::read_python_state(*captured.target, candidates); });
  }).join();
  if (!done) FAIL(done.error().message());
  if (!state) FAIL(state.error().message());
  captured.state = std::move(*state);
  const auto unwinder = unwind::make_libunwind_unwinder(*captured.target);
  for (const target::ThreadInfo& thread : captured.target->threads()) {
    REQUIRE(thread.registers.has_value());
    captured.stacks.push_back(unwinder->unwind(*thread.registers));
  }
  return captured;
}

using Symbols = std::map<std::pair<const elf::Image*, std::string>, std::optional<elf::Symbol>>;

bool is_eval_loop(const target::Target& target, const unwind::UnwoundFrame& frame, Symbols& known) {
  const target::Module* module = target.modules().find(frame.lookup_pc());
  if (!module || !module->image) return false;
  const Vaddr at = module->to_vaddr(frame.lookup_pc());
  for (const char* name : {"_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault.cold"}) {
    auto [it, is_new] = known.try_emplace({module->image.get(), name});
    if (is_new) it->second = module->image->find_symbol(name);
    if (it->second && at >= it->second->value && at < it->second->value + it->second->size) return true;
  }
  return false;
}

std::string messages(const std::vector<Problem>& problems) {
  std::string all;
  for (const Problem& p : problems) all += p.message + "\n";
  return all;
}

}  // namespace

TEST_CASE("merged stacks of real interpreters", "[real]") {
  target::LiveImages images;
  Symbols symbols;
  // Other programs are compared with the tool's reports (tests/truth/truth_python.py).
  const std::string name = GENERATE("generators", "callbacks", "class_body", "importing", "coroutines", "threads",
                                    "recursion", "exceptions", "hooks", "profiling", "signals", "interpreter");
  for (const InstalledPython& interpreter : installed_pythons()) {
    INFO(interpreter.name() << " truth.py " << name);
    StoppedPython process(interpreter, name);
    if (process.skipped()) {
      std::cerr << "skipped: " << process.version() << " " << name << ": " << *process.skipped() << "\n";
      continue;
    }
    REQUIRE(process.stopped());
    const Captured captured = capture(process.pid(), images);

    // The stacks of one thread, several with subinterpreters: the inner one reported last.
    std::map<std::uint64_t, std::vector<TrueFrame>> expected;
    for (const auto& [ident, frames] : process.stacks()) {
      auto& all = expected[ident];
      all.insert(all.begin(), frames.begin(), frames.end());
    }
    std::vector<python::NativeThread> native;
    const auto threads = captured.target->threads();
    for (std::size_t i = 0; i < threads.size(); ++i)
      native.push_back({threads[i].registers->fs_base, &captured.stacks[i]});
    const auto assigned = python::assign_threads(captured.state, native);

    std::size_t seen = 0;
    for (std::size_t i = 0; i < threads.size(); ++i) {
      INFO("tid " << threads[i].tid);
      const unwind::UnwoundStack& stack = captured.stacks[i];
      REQUIRE(stack.end == StackEnd::kComplete);
      std::vector<bool> loops;
      for (const unwind::UnwoundFrame& frame : stack.frames)
        loops.push_back(is_eval_loop(*captured.target, frame, symbols));
      const python::MergedStack merged =
          python::merge(captured.state, assigned[i], stack, {.eval_loop = loops, .loop_border = {}, .greenlet = {}});
      CHECK(messages(merged.problems) == "");

      std::vector<TrueFrame> actual;
      std::vector<std::size_t> kept;
      for (const python::MergedFrame& frame : merged.frames) {
        CHECK(frame.origin == (frame.is_python ? FrameOrigin::kNormal : stack.frames[frame.native].origin));
        if (frame.is_python) {
          const python::Code& code = captured.state.codes[frame.code];
          actual.push_back({code.name, code.file, frame.line, code.qualname});
        } else {
          kept.push_back(frame.native);
          CHECK_FALSE(loops[frame.native]);
        }
      }
      CHECK(std::is_sorted(kept.begin(), kept.end()));
      // Each run replaced one native frame. (The loop does not always have a symbol: a stripped file has none for the
      // loop's cold part.)
      std::size_t runs = 0;
      for (const python::ThreadState* thread : assigned[i]) runs += thread->runs.size();
      CHECK(stack.frames.size() - kept.size() == runs);
      CHECK(actual == expected[threads[i].registers->fs_base]);
      if (!actual.empty()) ++seen;
      // The process stopped inside of a system call, which C code has made that Python called.
      REQUIRE_FALSE(merged.frames.empty());
      CHECK_FALSE(merged.frames.front().is_python);
      CHECK_FALSE(merged.frames.back().is_python);
    }
    CHECK(seen == expected.size());
  }
}

TEST_CASE("interpreters stopped at any instruction", "[real]") {
  // RANKSTACKS_STOPS: how often each is stopped; a larger number searches more thoroughly for moments in which a chain
  // is being changed.
  const char* more = std::getenv("RANKSTACKS_STOPS");
  const int stops = more ? std::atoi(more) : 20;
  const std::set<std::pair<std::string, std::string>> callers = {{"leaf", "gen"},
                                                                 {"leaf", "rec"},
                                                                 {"leaf", "work"},
                                                                 {"leaf", "__init__"},
                                                                 {"gen", "key"},
                                                                 {"rec", "rec"},
                                                                 {"rec", "key"},
                                                                 {"key", "work"},
                                                                 {"fail", "work"},
                                                                 {"__init__", "work"},
                                                                 {"work", "run"},
                                                                 {"work", "busy"},
                                                                 {"busy", "<module>"},
                                                                 {"run", "_bootstrap_inner"},
                                                                 {"_bootstrap_inner", "_bootstrap"},
                                                                 {"<module>", ""},
                                                                 {"_bootstrap", ""}};
  target::LiveImages images;
  Symbols symbols;
  // With a JIT compiler as well: the loop calls its code, which takes over the frames of calls that it has inlined.
  std::vector<InstalledPython> interpreters = installed_pythons();
  for (InstalledPython& with_jit : pythons_with_jit()) interpreters.push_back(std::move(with_jit));
  for (const InstalledPython& interpreter : interpreters) {
    StoppedPython process(interpreter, "busy");
    REQUIRE(process.stopped());
    REQUIRE(::kill(process.pid(), SIGCONT) == 0);
    int samples = 0, separate = 0;
    for (int stop = 0; stop < stops; ++stop) {
      INFO(interpreter.name() << " stop " << stop);
      const Captured captured = capture(process.pid(), images);
      CHECK(messages(captured.state.problems) == "");
      std::vector<python::NativeThread> native;
      const auto threads = captured.target->threads();
      for (std::size_t i = 0; i < threads.size(); ++i)
        native.push_back({threads[i].registers->fs_base, &captured.stacks[i]});
      const auto assigned = python::assign_threads(captured.state, native);
      for (std::size_t i = 0; i < threads.size(); ++i) {
        REQUIRE(assigned[i].size() == 1);
        CHECK(messages(assigned[i][0]->problems) == "");
        const unwind::UnwoundStack& stack = captured.stacks[i];
        std::vector<bool> loops;
        for (const unwind::UnwoundFrame& frame : stack.frames)
          loops.push_back(is_eval_loop(*captured.target, frame, symbols));
        const python::MergedStack merged =
            python::merge(captured.state, assigned[i], stack, {.eval_loop = loops, .loop_border = {}, .greenlet = {}});
        const bool by_count = captured.state.version.key() < 31000;
        ++samples;
        // Where frames are placed by their count, a call of the loop that begins or ends several native functions deep
        // makes one too many: then all Python frames are listed separately and marked, rather than placed wrongly.
        const bool all_separate = by_count && !merged.problems.empty();
        // JIT-compiled code has no unwind information in a file: the frames outside of it are listed separately, and a
        // problem says so.
        const bool in_compiled_code =
            interpreter.has_jit && !interpreter.environment.empty() && stack.end == StackEnd::kNoUnwindInfo;
        if (all_separate) ++separate;
        else if (in_compiled_code)
          CHECK(messages(merged.problems).find("outside the native stack") != std::string::npos);
        else CHECK(messages(merged.problems) == "");
        std::vector<std::string> names;
        for (const python::MergedFrame& frame : merged.frames) {
          if (!frame.is_python) continue;
          names.push_back(captured.state.codes[frame.code].name);
          if (!in_compiled_code) CHECK(frame.origin == (all_separate ? FrameOrigin::kSeparate : FrameOrigin::kNormal));
        }
        REQUIRE_FALSE(names.empty());
        for (std::size_t n = 0; n < names.size(); ++n) {
          const std::pair<std::string, std::string> link{names[n], n + 1 < names.size() ? names[n + 1] : ""};
          INFO(link.first << " called by " << link.second);
          CHECK(callers.count(link) == 1);
        }
      }
    }
    CHECK(separate <= samples / 5);
  }
}
