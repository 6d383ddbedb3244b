#include "report/py_spy_form.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace rankstacks::report {
namespace {

Frame python(const char* function, const char* qualname, std::optional<int> line) {
  Frame frame{.kind = FrameKind::kPython, .function = function, .module = {}, .file = "/x/pkg/train.py", .line = line};
  if (qualname != nullptr) frame.qualname = qualname;
  return frame;
}

Frame native(std::optional<std::string> function, std::optional<std::string> file = {}, std::optional<int> line = {}) {
  return {.function = std::move(function),
          .module = "/lib/libc.so.6",
          .file = std::move(file),
          .line = line,
          .address = 0xab};
}

// A rank with one Python thread, which calls native code that calls Python again, and one thread of C code.
struct Example {
  explicit Example(const char* version) {
    RankSnapshot rank;
    rank.pid = 7;
    rank.command = {"python3", "train.py"};
    rank.executable = "/usr/bin/python3";
    rank.python_version = version;
    ThreadSnapshot main;
    main.tid = 7;
    main.state = 'R';
    main.gil = Gil::kHolds;
    main.python_thread = PythonThread{0x7f00, "MainThread"};
    for (Frame& frame : frames()) main.frames.push_back(job.frames.intern(frame));
    const PythonValue four{.kind = PythonValue::Kind::kWord, .text = "4", .items = {}};
    const PythonValue text{.kind = PythonValue::Kind::kString, .text = "it's\n", .items = {}};
    main.locals.push_back({.frame = 3,
                           .variables = {{.name = "self", .address = 16, .is_argument = true, .value = text},
                                         {.name = "step", .address = 32, .is_argument = false, .value = four}}});
    ThreadSnapshot other;
    other.tid = 8;
    other.name = "nccl";
    other.state = 'S';
    other.frames = {job.frames.intern(native("poll"))};
    rank.threads = {main, other};
    job.ranks.push_back(rank);
  }
  static std::vector<Frame> frames() {
    return {native("read@@GLIBC_2.2.5"), python("inner", "A.inner", 3),      native("call", "/src/call.c", 9),
            python("step", "A.step", 5), python("<module>", "<module>", {}), native(std::nullopt)};
  }
  const RankSnapshot& rank() const { return job.ranks[0]; }
  JobSnapshot job;
};

std::string base_name(const std::string& file) { return file.substr(file.rfind('/') + 1); }

TEST_CASE("the text is py-spy's") {
  const Example example("3.12.1");
  CHECK(py_spy_text(example.job, example.rank(), {.short_name = base_name}) ==
        "Process 7: python3 train.py\nPython v3.12.1 (/usr/bin/python3)\n\n"
        "Thread 7 (active+gil): \"MainThread\"\n    A.inner (train.py:3)\n    A.step (train.py:5)\n    <module> "
        "(train.py)\n");
  CHECK(
      py_spy_text(example.job, example.rank(), {.native = true, .locals = 128}) ==
      "Process 7: python3 train.py\nPython v3.12.1 (/usr/bin/python3)\n\n"
      "Thread 7 (active+gil): \"MainThread\"\n    read (/lib/libc.so.6)\n    A.inner (/x/pkg/train.py:3)\n"
      "    call (/src/call.c:9)\n    A.step (/x/pkg/train.py:5)\n        Arguments:\n            self: \"it\\\"s\\n\"\n"
      "        Locals:\n            step: 4\n"
      "    <module> (/x/pkg/train.py)\n    0xab (/lib/libc.so.6)\n");
}

TEST_CASE("a process without Python shows its threads' native frames under the kernel's names") {
  Example example("3.12.1");
  example.job.ranks[0].python_version.reset();
  for (ThreadSnapshot& thread : example.job.ranks[0].threads) thread.python_thread.reset();
  const std::string text = py_spy_text(example.job, example.rank(), {.short_name = base_name}, &example.rank());
  CHECK(text.starts_with("Process 7: python3 train.py\nParent Process 7: python3 train.py\n\nThread 7 (active+gil)\n"));
  CHECK(text.ends_with("Thread 8 (idle): \"nccl\"\n    poll (libc.so.6)\n"));
}

TEST_CASE("the JSON has py-spy's members in its order, the marks of entry frames by version") {
  struct Marks {
    const char* version;
    std::vector<bool> entry, shim;  // of A.inner, A.step, <module>
  };
  for (const auto& [version, entry, shim] : {Marks{"3.10.4", {true, true, true}, {false, false, true}},
                                             Marks{"3.11.2", {true, false, true}, {false, false, true}},
                                             Marks{"3.12.0", {false, false, false}, {true, false, true}}}) {
    const Example example(version);
    const auto threads = nlohmann::ordered_json::parse(py_spy_json(example.job, example.rank(), {}));
    REQUIRE(threads.size() == 1);
    std::vector<std::string> members;
    for (const auto& [name, value] : threads[0].items()) members.push_back(name);
    CHECK(members == std::vector<std::string>{"pid", "thread_id", "thread_name", "os_thread_id", "active", "owns_gil",
                                              "frames", "process_info"});
    CHECK(threads[0]["thread_id"] == 0x7f00);
    const auto& frames = threads[0]["frames"];
    REQUIRE(frames.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(frames[i]["is_entry"] == bool(entry[i]));
      CHECK(frames[i]["is_shim_entry"] == bool(shim[i]));
      CHECK(frames[i]["locals"].is_null());
    }
    CHECK(frames[2]["line"] == 0);
  }
}

TEST_CASE("the newest thread is the first of the JSON, and native frames have their module") {
  Example example("3.11.2");
  example.job.ranks[0].threads[1].python_thread = PythonThread{0x7f01, std::nullopt};
  const auto threads = nlohmann::json::parse(py_spy_json(example.job, example.rank(), {.native = true, .locals = 128}));
  REQUIRE(threads.size() == 2);
  CHECK(threads[0]["os_thread_id"] == 8);
  CHECK(threads[0]["thread_name"].is_null());
  CHECK(threads[1]["frames"][0]["module"] == "/lib/libc.so.6");
  CHECK(threads[1]["frames"][0]["name"] == "read");
  CHECK(threads[1]["frames"][3]["locals"] ==
        nlohmann::json::parse(R"([{"name": "self", "addr": 16, "arg": true, "repr": "\"it\\\"s\\n\""},
                                  {"name": "step", "addr": 32, "arg": false, "repr": "4"}])"));
  CHECK(threads[1]["frames"][1]["locals"].empty());
}

TEST_CASE("a C++ function is shown without its parameters, as py-spy names it") {
  struct Names {
    const char *demangled, *shown;
  };
  for (const auto& [demangled, shown] :
       {Names{"c10d::ProcessGroupNCCL::watchdogHandler()", "c10d::ProcessGroupNCCL::watchdogHandler"},
        Names{"void ns::f<int, std::vector<long> >(int, (anonymous namespace)::T*) const",
              "ns::f<int, std::vector<long> >"},
        Names{"(anonymous namespace)::run(std::function<void (int)>)", "(anonymous namespace)::run"},
        Names{"std::function<void (int)>::operator()(int) const", "std::function<void (int)>::operator()"},
        Names{"f(int)::{lambda(char)#1}::operator()(char) const", "f(int)::{lambda(char)#1}::operator()"},
        Names{"operator new(unsigned long)", "operator new"},
        Names{"A::operator unsigned long() const", "A::operator unsigned long"},
        Names{"std::ostream& operator<< <char>(std::ostream&, char)", "operator<< <char>"},
        Names{"ns::operator()", "ns::operator()"},
        Names{"core::ops::function::FnOnce::call_once", "core::ops::function::FnOnce::call_once"},
        Names{"__select@@GLIBC_2.2.5", "__select"}, Names{")(", ")("}, Names{"f(", "f("}, Names{")", ")"}}) {
    Example example("3.11.2");
    example.job.ranks[0].threads[0].frames = {example.job.frames.intern(native(demangled))};
    CHECK(py_spy_text(example.job, example.rank(), {.native = true})
              .ends_with(std::string("\n    ") + shown + " (/lib/libc.so.6)\n"));
  }
}

TEST_CASE("a hostile name neither moves the cursor nor breaks the JSON") {
  Example example("3.11.2");
  example.job.ranks[0].threads[0].python_thread->name = "\x1b[2J\"\n\xff";
  const std::string text = py_spy_text(example.job, example.rank(), {});
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("Thread 7 (active+gil): \"\\x1b[2J\"\\n\\xff\"\n") != std::string::npos);
  CHECK(nlohmann::json::accept(py_spy_json(example.job, example.rank(), {})));
}

}  // namespace
}  // namespace rankstacks::report
