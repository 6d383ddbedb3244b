// Merging on literal stacks. Native frames are written outermost last, in the order of the unwinder; each has 0x100
// bytes of stack.
#include <catch2/catch.hpp>

#include "python/python.h"

using namespace rankstacks;
using namespace rankstacks::python;

namespace {

constexpr Address kBase = 0x1000, kSize = 0x100;

// "read loop call loop main": a native stack; the names only say which frames are the eval loop.
struct Native {
  std::vector<std::string> names;
  unwind::UnwoundStack stack;
  std::vector<bool> loops, borders;
  std::optional<std::size_t> greenlet;

  explicit Native(std::vector<std::string> frame_names, StackEnd end = StackEnd::kComplete)
      : names(std::move(frame_names)) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      stack.frames.push_back({.pc = 0x400000 + i, .sp = kBase + i * kSize, .cfa = kBase + (i + 1) * kSize});
      loops.push_back(names[i] == "loop");
      borders.push_back(names[i] == "check");
      if (names[i] == "greenlet" && !greenlet) greenlet = i;
    }
    stack.end = end;
  }
  KnownFrames known() const { return {loops, borders, greenlet}; }
  Address inside(std::size_t i) const { return stack.frames[i].sp + 0x80; }
};

struct Python {
  State state;
  explicit Python(int minor) { state.version = {3, minor, 0, ""}; }

  Run run(const std::vector<std::string>& names, std::optional<Address> anchor = std::nullopt) {
    Run r{.anchor = anchor};
    for (const std::string& name : names) {
      r.frames.push_back({static_cast<std::uint32_t>(state.codes.size()), 0});
      state.codes.push_back({.name = name});
    }
    return r;
  }
};

// "read f() g() main"; "~" precedes a frame that could not be placed.
std::string merged_threads(const Python& python, const std::vector<const ThreadState*>& threads, const Native& native,
                           std::string* problem = nullptr) {
  const MergedStack result = merge(python.state, threads, native.stack, native.known());
  std::string text;
  for (const MergedFrame& f : result.frames) {
    text += (text.empty() ? "" : " ") + std::string(f.origin == FrameOrigin::kSeparate ? "~" : "");
    text += f.is_python ? python.state.codes[f.code].name + "()" : native.names[f.native];
  }
  if (problem) *problem = result.problems.empty() ? "" : result.problems[0].message;
  else CHECK(result.problems.empty());
  return text;
}

std::string merged(const Python& python, std::vector<Run> runs, const Native& native, std::string* problem = nullptr) {
  ThreadState thread;
  thread.runs = std::move(runs);
  return merged_threads(python, {&thread}, native, problem);
}

constexpr const char* kOutside =
    "some Python frames lie outside the native stack as far as it could be unwound: shown next to it";

}  // namespace

TEST_CASE("runs replace the frame that holds their anchor") {
  Python p(12);
  const Native n({"read", "loop", "call", "loop", "main"});
  CHECK(merged(p, {p.run({"h", "g"}, n.inside(1)), p.run({"f", "module"}, n.inside(3))}, n) ==
        "read h() g() call f() module() main");
}

TEST_CASE("the bounds of a frame's part of the stack") {
  Python p(12);
  const Native n({"a", "loop", "b"});
  CHECK(merged(p, {p.run({"f"}, n.stack.frames[1].sp)}, n) == "a f() b");
  CHECK(merged(p, {p.run({"f"}, n.stack.frames[1].cfa - 1)}, n) == "a f() b");
}

TEST_CASE("a call of the loop without a run stays native") {
  Python p(12);
  const Native n({"loop", "call", "loop", "main"});
  CHECK(merged(p, {p.run({"f"}, n.inside(2))}, n) == "loop call f() main");
}

TEST_CASE("no Python frames, no native frames") {
  Python p(12);
  const Native n({"read", "loop", "main"});
  CHECK(merged(p, std::vector<Run>{}, n) == "read loop main");
  CHECK(merged_threads(p, {}, n) == "read loop main");
  const Native none({});
  CHECK(merged(p, {p.run({"g"}, 0x5000), p.run({"f"})}, none) == "g() f()");
  CHECK(merged(p, std::vector<Run>{}, none) == "");
}

TEST_CASE("a call of the loop that executes code, but is unknown to the thread's state, has lost its Python frames") {
  const std::string lost =
      "a call of the interpreter's loop has no Python frames in the thread's state: they are missing";
  const Native n({"futex", "lock", "loop", "call", "loop", "main"});
  std::string problem;
  Python p(12);
  SECTION("no frame at all") {
    CHECK(merged(p, std::vector<Run>{}, n, &problem) == "futex lock loop call loop main");
    CHECK(problem == lost);
    ThreadState thread;
    CHECK(merge(p.state, std::vector<const ThreadState*>{&thread}, n.stack, n.known()).partial);
  }
  SECTION("the innermost call was taken for a call that had just begun") {
    ThreadState thread;
    thread.left_out_innermost = true;
    thread.runs.push_back(p.run({"f"}, n.inside(4)));
    CHECK(merged_threads(p, {&thread}, n, &problem) == "futex lock loop call f() main");
    CHECK(problem == lost);
  }
  SECTION("it had really just begun") {
    const Native begun({"loop", "call", "loop", "main"});
    ThreadState thread;
    thread.left_out_innermost = true;
    thread.runs.push_back(p.run({"f"}, begun.inside(2)));
    CHECK(merged_threads(p, {&thread}, begun) == "loop call f() main");
  }
  SECTION("its last frame was removed, and the frame's references are being released") {
    const Native ending({"close", "dealloc", "clear", "loop", "main"});
    ThreadState thread;
    thread.empty_calls = {ending.inside(3)};
    CHECK(merged_threads(p, {&thread}, ending) == "close dealloc clear loop main");
  }
}

TEST_CASE("the loop without a name: the anchor is enough") {
  Python p(12);
  Native n({"read", "part", "call", "loop", "main"});
  SECTION("none has one") {
    n.loops[3] = false;
    CHECK(merged(p, {p.run({"g"}, n.inside(1)), p.run({"f"}, n.inside(3))}, n) == "read g() call f() main");
  }
  SECTION("some have") {
    CHECK(merged(p, {p.run({"g"}, n.inside(1)), p.run({"f"}, n.inside(3))}, n) == "read g() call f() main");
  }
}

TEST_CASE("a frame whose extent comes from frame pointers and that is not the loop stays") {
  Python p(12);
  Native n({"read", "other", "call", "loop", "main"});
  n.stack.frames[2].origin = FrameOrigin::kFramePointer;
  std::string problem;
  SECTION("and its anchor is elsewhere than in known calls of the loop") {
    CHECK(merged(p, {p.run({"g"}, n.inside(1) + 8), p.run({"f"}, n.inside(3))}, n, &problem) ==
          "read other g() call f() main");
    CHECK(problem == "Python frames belong to a native frame that is not the interpreter's loop: both are shown");
  }
  SECTION("unless its anchor is as far from its CFA as in a known call") {
    CHECK(merged(p, {p.run({"g"}, n.inside(1)), p.run({"f"}, n.inside(3))}, n, &problem) == "read g() call f() main");
    CHECK(problem == "");
  }
}

TEST_CASE("the native stack ends early") {
  Python p(12);
  const Native n({"read", "loop", "call"}, StackEnd::kNoUnwindInfo);
  std::string problem;
  CHECK(merged(p, {p.run({"g"}, n.inside(1)), p.run({"f"}, 0x9000), p.run({"module"}, 0xa000)}, n, &problem) ==
        "read g() call ~f() ~module()");
  CHECK(problem == kOutside);
}

TEST_CASE("the outermost frame has no known end") {
  Python p(12);
  std::string problem;
  SECTION("it is the loop") {
    Native n({"read", "loop"}, StackEnd::kNoUnwindInfo);
    n.stack.frames[1].cfa = 0;
    CHECK(merged(p, {p.run({"f"}, n.inside(1) + 0x1000)}, n) == "read f()");
  }
  SECTION("it is not") {
    Native n({"read", "call"}, StackEnd::kNoUnwindInfo);
    n.stack.frames[1].cfa = 0;
    CHECK(merged(p, {p.run({"f"}, n.inside(1) + 0x1000)}, n, &problem) == "read call ~f()");
    CHECK(problem == kOutside);
  }
}

TEST_CASE("an anchor below the stack, or out of order") {
  Python p(12);
  const Native n({"read", "loop", "call", "loop", "main"});
  std::string problem;
  CHECK(merged(p, {p.run({"h"}, 0x10), p.run({"g"}, n.inside(1)), p.run({"f"}, n.inside(3))}, n, &problem) ==
        "read ~h() g() call f() main");
  CHECK(problem == kOutside);
  CHECK(merged(p, {p.run({"g"}, n.inside(3)), p.run({"f"}, n.inside(1))}, n, &problem) ==
        "read loop call g() ~f() main");
  CHECK(problem == kOutside);
}

TEST_CASE("a signal handler on another stack does not swallow what it interrupted") {
  Python p(12);
  // handler and trampoline on a low alternate stack; the trampoline's CFA is the interrupted frame's sp.
  Native n({"handler", "trampoline", "loop", "main"});
  n.stack.frames[0] = {.sp = 0x100, .cfa = 0x180};
  n.stack.frames[1] = {.sp = 0x180, .cfa = 0x5000};
  n.stack.frames[2] = {.sp = 0x4000, .cfa = 0x4100};
  n.stack.frames[3] = {.sp = 0x4100, .cfa = 0x4200};
  CHECK(merged(p, {p.run({"f"}, 0x4080)}, n) == "handler trampoline f() main");
}

TEST_CASE("runs in the part of a deep stack that was left out") {
  Python p(12);
  Native n({"read", "loop", "loop", "main"});
  for (std::size_t i : {2, 3}) {
    n.stack.frames[i].sp += 0x10000;
    n.stack.frames[i].cfa += 0x10000;
  }
  n.stack.omitted = OmittedFrames{2, 500};
  SECTION("by anchor") {
    CHECK(merged(p, {p.run({"h"}, n.inside(1)), p.run({"g"}, 0x5000), p.run({"f"}, n.inside(2))}, n) ==
          "read h() g() f() main");
  }
  SECTION("by count") {
    CHECK(merged(p, {p.run({"h"}), p.run({"g2"}), p.run({"g1"}), p.run({"f"})}, n) == "read h() g2() g1() f() main");
  }
}

TEST_CASE("up to 3.9: by count") {
  Python p(9);
  const Native n({"read", "loop", "call", "loop", "loop", "main"});
  std::string problem;
  SECTION("as many") {
    CHECK(merged(p, {p.run({"h"}), p.run({"g"}), p.run({"f"})}, n) == "read h() call g() f() main");
  }
  SECTION("a call that has no frame yet") {
    CHECK(merged(p, {p.run({"g"}), p.run({"f"})}, n) == "read loop call g() f() main");
  }
  SECTION("one too few, and the innermost call does more than begin or end") {
    const Native busy({"read", "call", "loop", "call", "loop", "loop", "main"});
    CHECK(merged(p, {p.run({"g"}), p.run({"f"})}, busy, &problem) == "read call ~g() ~f() loop call loop loop main");
  }
  SECTION("too few: listed separately, no frame is lost") {
    CHECK(merged(p, {p.run({"f"})}, n, &problem) == "read ~f() loop call loop loop main");
    CHECK(problem == "1 Python frames do not match 3 calls of the interpreter's loop: shown next to the native frames");
  }
  SECTION("too many") {
    CHECK(merged(p, {p.run({"d"}), p.run({"c"}), p.run({"b"}), p.run({"a"})}, n, &problem) ==
          "read ~d() ~c() ~b() ~a() loop call loop loop main");
    CHECK(problem == "4 Python frames do not match 3 calls of the interpreter's loop: shown next to the native frames");
  }
  SECTION("the chain of frames is damaged at its outer end") {
    ThreadState thread;
    thread.runs = {p.run({"h"})};
    thread.problems.push_back({"damaged", std::nullopt});
    CHECK(merged_threads(p, {&thread}, n) == "read h() call loop loop main");
  }
  SECTION("the native stack ends early") {
    const Native cut({"read", "loop", "call", "loop"}, StackEnd::kMemoryUnavailable);
    CHECK(merged(p, {p.run({"h"}), p.run({"g"}), p.run({"f"})}, cut, &problem) == "read h() call g() ~f()");
    CHECK(problem == kOutside);
  }
  SECTION("no loop has a name") {
    const Native unnamed({"read", "x", "main"});
    CHECK(merged(p, {p.run({"g"}), p.run({"f"})}, unnamed, &problem) == "read x main ~g() ~f()");
    CHECK(problem == "2 Python frames do not match 0 calls of the interpreter's loop: shown next to the native frames");
  }
}

TEST_CASE("counting between placed neighbours") {
  Python p(10);
  const Native n({"read", "loop", "a", "loop", "b", "loop", "main"});
  std::string problem;
  CHECK(merged(p, {p.run({"h"}), p.run({"g"}, n.inside(3)), p.run({"f"})}, n) == "read h() a g() b f() main");
  // Only the segment that does not match is listed separately from the native frames.
  CHECK(merged(p, {p.run({"h"}, n.inside(1)), p.run({"x"}), p.run({"g"}, n.inside(3)), p.run({"f"})}, n, &problem) ==
        "read h() a ~x() g() b f() main");
  CHECK(problem == "1 Python frames do not match 0 calls of the interpreter's loop: shown next to the native frames");
}

TEST_CASE("several interpreters on one C stack") {
  const Native n({"read", "loop", "exec", "loop", "main"});
  SECTION("by anchor, whatever the order of their thread states") {
    Python p(12);
    ThreadState outer, inner;
    outer.runs = {p.run({"f"}, n.inside(3))};
    inner.runs = {p.run({"g"}, n.inside(1))};
    inner.interpreter_id = 1;
    CHECK(merged_threads(p, {&outer, &inner}, n) == "read g() exec f() main");
    CHECK(merged_threads(p, {&inner, &outer}, n) == "read g() exec f() main");
  }
  SECTION("interleaved") {
    Python p(12);
    const Native deep({"read", "loop", "a", "loop", "b", "loop", "main"});
    ThreadState one, two;
    one.runs = {p.run({"h"}, deep.inside(1)), p.run({"f"}, deep.inside(5))};
    two.runs = {p.run({"g"}, deep.inside(3))};
    CHECK(merged_threads(p, {&two, &one}, deep) == "read h() a g() b f() main");
  }
  SECTION("up to 3.9 the later one is the inner one, or the one that holds the GIL") {
    Python p(9);
    ThreadState first, second;
    first.runs = {p.run({"f"})};
    second.runs = {p.run({"g"})};
    second.interpreter_id = 1;
    CHECK(merged_threads(p, {&first, &second}, n) == "read g() exec f() main");
    first.holds_gil = true;
    CHECK(merged_threads(p, {&first, &second}, n) == "read f() exec g() main");
  }
}

TEST_CASE("3.14 with tail calls: the functions that execute bytecode go with the loop that called them") {
  Native n({"read", "loop", "loop", "call", "main"});  // read, _TAIL_CALL_CALL, _PyEval_EvalFrameDefault, ...
  Python p(14);
  CHECK(merged(p, {p.run({"f"}, n.inside(2))}, n) == "read f() call main");
  Python older(12);
  CHECK(merged(older, {older.run({"f"}, n.inside(2))}, n) == "read loop f() call main");
}

TEST_CASE("thread states belong to the stack that contains their anchors") {
  const Native a({"read", "loop", "main"});
  Native b({"read", "loop", "main"});
  for (unwind::UnwoundFrame& f : b.stack.frames) {
    f.sp += 0x100000;
    f.cfa += 0x100000;
  }
  b.stack.frames.back().cfa = 0;
  const std::vector<NativeThread> threads{{11, &a.stack}, {22, &b.stack}};
  Python p(11);
  ThreadState home, guest, idle, unrelated;
  home.pthread_id = 11;
  home.runs = {p.run({"f"}, a.inside(1))};
  guest.pthread_id = 11;  // created by thread 11, run by thread 22
  guest.runs = {p.run({"g"}, b.inside(1))};
  idle.pthread_id = 22;
  unrelated.pthread_id = 33;
  p.state.threads = {home, guest, idle, unrelated};
  ThreadState beyond;  // its anchor is where no stack could be unwound to
  beyond.pthread_id = 11;
  beyond.runs = {p.run({"h"}, b.stack.frames.back().sp + 0x100000)};
  p.state.threads.push_back(beyond);
  const auto assigned = assign_threads(p.state, threads);
  REQUIRE(assigned.size() == 2);
  CHECK(assigned[0] == std::vector<const ThreadState*>{&p.state.threads[0], &p.state.threads[4]});
  CHECK(assigned[1] == std::vector<const ThreadState*>{&p.state.threads[1], &p.state.threads[2]});
}

TEST_CASE("the state of a thread that has ended belongs to none, whoever uses its memory") {
  Native worker({"read", "work", "clone"});
  worker.stack.frames.back().cfa = 0;
  Python p(11);
  ThreadState state;
  state.pthread_id = 33;
  state.native_id = 300;
  SECTION("nothing is called from Python where a complete stack ends") {
    state.runs = {p.run({"f"}, kBase + 0x100000)};  // of a stack above this one
    p.state.threads = {state};
    CHECK(assign_threads(p.state, std::vector<NativeThread>{{11, &worker.stack}})[0].empty());
    worker.stack.end = StackEnd::kNoUnwindInfo;
    CHECK(assign_threads(p.state, std::vector<NativeThread>{{11, &worker.stack}})[0].size() == 1);
  }
  SECTION("a descriptor with another thread's number is that thread's, unless this one called fork()") {
    state.descriptor_tid = 301;
    state.runs = {p.run({"f"}, worker.inside(1))};
    p.state.threads = {state};
    CHECK(assign_threads(p.state, std::vector<NativeThread>{{33, &worker.stack}})[0].empty());
    CHECK(assign_threads(p.state, std::vector<NativeThread>{{33, &worker.stack, true}})[0].size() == 1);
    p.state.threads[0].descriptor_tid = 300;
    CHECK(assign_threads(p.state, std::vector<NativeThread>{{33, &worker.stack}})[0].size() == 1);
  }
}

TEST_CASE("a stack that is known completely has no frames of states that no call of the loop is left for") {
  const auto kept = [](const Python& p, const std::vector<ThreadState>& states, const Native& n,
                       std::vector<bool> nameless = {}) {
    std::vector<const ThreadState*> all;
    for (const ThreadState& s : states) all.push_back(&s);
    KnownFrames known = n.known();
    known.nameless = std::move(nameless);
    std::string which;
    for (const ThreadState* s : states_on_stack(p.state, {33, &n.stack}, all, known))
      which += std::to_string(s - states.data());
    return which;
  };
  const Native without({"pause", "start_thread", "clone"});
  Python p(9);
  ThreadState newer, older, idle;
  newer.pthread_id = older.pthread_id = idle.pthread_id = 33;
  newer.runs = {p.run({"f"}), p.run({"module"})};
  older.runs = {p.run({"g"})};
  CHECK(kept(p, {older, idle}, without) == "1");
  CHECK(kept(p, {older}, without, {false, true, false}) == "0");
  CHECK(kept(p, {older}, Native({"pause", "start_thread"}, StackEnd::kNoUnwindInfo)) == "0");
  CHECK(kept(p, {older}, Native({"pause", "greenlet"})) == "0");
  CHECK(kept(p, {newer, older}, Native({"read", "loop", "call", "loop", "clone"})) == "0");
  CHECK(kept(p, {newer, older}, Native({"read", "loop", "loop", "call", "loop", "clone"})) == "01");
  older.interpreter_id = 1;
  CHECK(kept(p, {newer, older}, Native({"read", "loop", "call", "loop", "clone"})) == "01");
  older.native_id = 300;  // its numbers are those of this thread: another stack may have its frames
  older.descriptor_tid = 300;
  CHECK(kept(p, {older}, without) == "0");
}

TEST_CASE("a call of the loop that is about to return has no frame, whatever the check of its result calls") {
  Python p(8);
  CHECK(merged(p, {p.run({"f"}), p.run({"module"})},
               Native({"PyErr_Occurred", "check", "loop", "loop", "call", "loop", "main"})) ==
        "PyErr_Occurred check loop f() call module() main");
  std::string problem;
  CHECK(merged(p, {p.run({"f"}), p.run({"module"})}, Native({"read", "call", "loop", "loop", "call", "loop", "main"}),
               &problem) == "read call ~f() ~module() loop loop call loop main");
  CHECK(problem == "2 Python frames do not match 3 calls of the interpreter's loop: shown next to the native frames");
}

TEST_CASE(
    "3.10, a greenlet: the CFrame of its own where it begins shifts all anchors; its frames are placed by their count "
    "instead") {
  Native n({"sleep", "loop", "map", "loop", "greenlet", "call", "loop", "main"});
  n.loops[6] = false;  // of another greenlet: not looked for
  Python p(10);
  CHECK(merged(p, {p.run({"lambda"}, n.inside(3)), p.run({"f"}, n.inside(4))}, n) ==
        "sleep lambda() map f() greenlet call loop main");
  Python later(11);  // anchors that do not depend on a count are right
  CHECK(merged(later, {later.run({"lambda"}, n.inside(1)), later.run({"f"}, n.inside(3))}, n) ==
        "sleep lambda() map f() greenlet call loop main");
}
