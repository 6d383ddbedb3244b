// Each rule of the tables has a source, and a stack that no earlier rule matches.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <string_view>

#include "analyzers/activity.h"
#include "analyzers/activity_rules.h"
#include "analyzers/names.h"
#include "analyzers/roles.h"
#include "known/known_programs.h"
#include "known/modules.h"
#include "known/places.h"
#include "known/starting_programs.h"
#include "known/watchdog_names.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::analyzers;
using namespace rankstacks::testing;

namespace {

const std::string kOwnModule = "/x/libown.so";

std::string text(std::string_view view) { return std::string(view); }

// A file that contains `part`: "torch/serialization.py", "/ffcv/", "-packages/wandb/", "/psycopg", "" of any file.
std::string file_with(std::string_view part) {
  std::string file = "/opt/x";
  if (!part.starts_with('/') && !part.starts_with('-')) file += '/';
  file += part;
  if (file.ends_with('/')) file += "some";
  return file.ends_with(".py") ? file : file + "x.py";
}

// A function that contains `part`, as a demangler writes it: "c10d::Store::" -> "c10d::Store::f(int)".
std::string function_with(std::string_view part) {
  std::string function = text(part);
  if (function.ends_with("::")) function += 'f';
  if (function.ends_with('<')) function += "int>::f";
  return function.find('(') == std::string::npos || function.ends_with(')') ||
                 function.find("(anonymous") != std::string::npos
             ? function + "(int)"
             : function + "::State&)";
}

Frame frame_of(const known::ActivityRule& rule) {
  switch (rule.match) {
    case known::ActivityMatch::kNative: return nat(function_with(rule.what), kOwnModule);
    case known::ActivityMatch::kNativePrefix: return nat(text(rule.what), kOwnModule);
    case known::ActivityMatch::kNativeOp:
      if (rule.file == "6mpi4py_3MPI_") return nat("__pyx_pw_6mpi4py_3MPI_4Comm_199" + text(rule.what), kOwnModule);
      return nat(text(rule.file) + text(rule.what) + "(int)", kOwnModule);
    case known::ActivityMatch::kPython:
    case known::ActivityMatch::kPythonWaits: return py(text(rule.what), file_with(rule.file), 7);
    case known::ActivityMatch::kPythonFile: return py("some_function", file_with(rule.file), 7);
  }
  return {};
}

const Stack kStart = {libc("start_thread"), libc("clone3")};
const Stack kPythonStart = {py("run", "/usr/lib/python3.11/threading.py", 975),
                            py("_bootstrap", "/usr/lib/python3.11/threading.py", 995)};

// A thread that only this rule, or a later one, matches: what the rule does not mention belongs to no known library.
Stack stack_of(const known::RoleRule& rule) {
  const Frame own = nat("some_function()", kOwnModule);
  switch (rule.match) {
    case known::RoleMatch::kFunction:
      return Stack{libc("pthread_cond_wait"), nat(function_with(rule.what), kOwnModule), own} + kStart;
    case known::RoleMatch::kEntry:
      return Stack{libc("pthread_cond_wait"), own, nat(function_with(rule.what), kOwnModule)} + kStart;
    case known::RoleMatch::kEntryModule:
      return Stack{libc("pthread_cond_wait"), own, unknown("/x/" + text(rule.what) + "1", 0x1234)} + kStart;
    case known::RoleMatch::kInnermost:
      return Stack{libc("pthread_cond_wait"), nat(function_with(rule.what), kOwnModule), own} + kStart;
    case known::RoleMatch::kPolls: return Stack{libc("poll"), unknown("/x/" + text(rule.what), 0x1234)} + kStart;
    case known::RoleMatch::kPython:
      return Stack{libc("read"), py(text(rule.what), file_with(rule.file), 7)} + kPythonStart;
    case known::RoleMatch::kPythonFile:
      return Stack{libc("read"), py("some_function", file_with(rule.file), 7), py("main", "/home/u/x.py", 3)} +
             kPythonStart;
    case known::RoleMatch::kPythonEntryFile:
      return Stack{libc("read"), py("inner", "/home/u/x.py", 3), py("some_function", file_with(rule.file), 7)} +
             kPythonStart;
    case known::RoleMatch::kPythonWaits:
      return Stack{libc("sem_wait"), py("wait", "/usr/lib/python3.11/threading.py", 324),
                   py(text(rule.what), file_with(rule.file), 7), py("main", "/home/u/x.py", 3)} +
             kPythonStart;
  }
  return {};
}

std::string call_of(known::Wait wait) {
  return wait == known::Wait::kPoll ? "poll" : wait == known::Wait::kAny ? "sched_yield" : "pthread_cond_wait";
}

Stack stack_of(const known::IdleRule& rule) {
  const Frame inner = libc(call_of(rule.wait)), own = nat("some_function()", kOwnModule);
  switch (rule.match) {
    case known::IdleMatch::kFunction: return Stack{inner, nat(function_with(rule.what), kOwnModule), own} + kStart;
    case known::IdleMatch::kModule: return Stack{inner, unknown("/x/" + text(rule.what) + "1", 0x1234), own} + kStart;
    case known::IdleMatch::kOnly:
      return Stack{inner, unknown("/x/" + text(rule.what) + "1", 0x1234),
                   unknown("/x/" + text(rule.what) + "1", 0x2345)} +
             kStart;
    case known::IdleMatch::kPython:
      return Stack{inner, py("wait", "/usr/lib/python3.11/threading.py", 324),
                   py(rule.what.empty() ? "some_function" : text(rule.what), file_with(rule.file), 7),
                   py("main", "/home/u/x.py", 3)} +
             kPythonStart;
  }
  return {};
}

const known::RoleRule* deciding_rule(const Stack& stack, bool child) {
  LiteralJob literal;
  if (child) {
    literal.child(1, stack);
    return role_rule_of(literal.job, 0, 0);
  }
  RankSnapshot& rank = literal.rank(0, 1, in_main(1));
  literal.thread(rank, 999, "python3", stack);
  return role_rule_of(literal.job, 0, 1);
}

void check_roles(const std::vector<known::RoleRule>& rules, bool child) {
  for (const known::RoleRule& rule : rules) {
    INFO((child ? "child: " : "thread: ") << rule.what << " " << rule.file);
    CHECK_FALSE((rule.what.empty() && rule.file.empty()));
    CHECK_FALSE(rule.source.empty());
    const known::RoleRule* found = deciding_rule(stack_of(rule), child);
    INFO("matched by: " << (found ? text(found->what) + " " + text(found->file) : "nothing"));
    CHECK(found == &rule);
  }
}

}  // namespace

TEST_CASE("each rule of activities has a source and a frame of its own") {
  for (const known::ActivityRule& rule : known::known_programs().activities) {
    INFO(rule.what << " in " << rule.file);
    CHECK_FALSE(rule.source.empty());
    CHECK(rule.activity != known::Activity::kUnknown);
    const known::ActivityRule* found = activity_rule_of(frame_of(rule));
    INFO("matched by: " << (found ? text(found->what) + " in " + text(found->file) : "nothing"));
    CHECK(found == &rule);
  }
}

TEST_CASE("an activity that is a verdict's reason has the reason's word") {
  std::size_t reasons = 0;
  for (const auto& [activity, word] : known::kActivityWords) {
    const Reason reason = reason_of(activity);
    if (reason == Reason::kNone) continue;
    CHECK(to_string(reason) == word);
    ++reasons;
  }
  CHECK(reasons == 13);
}

TEST_CASE("each rule of roles has a source and a stack of its own") {
  check_roles(known::known_programs().thread_roles, false);
  check_roles(known::known_programs().child_roles, true);
}

TEST_CASE("each name of a thread has a source, fits into the kernel's 15 bytes, and is not matched by an earlier one") {
  for (const known::NameRule& rule : known::known_programs().thread_names) {
    INFO(rule.prefix);
    CHECK_FALSE(rule.source.empty());
    CHECK(rule.prefix.size() <= 15);
    const auto& rules = known::known_programs().thread_names;
    CHECK(&*std::find_if(rules.begin(), rules.end(),
                         [&](const known::NameRule& r) { return rule.prefix.starts_with(r.prefix); }) == &rule);
    LiteralJob literal;
    RankSnapshot& rank = literal.rank(0, 1, in_main(1));
    literal.thread(rank, 999, text(rule.prefix), Stack{libc("poll"), unknown(kOwnModule, 0x1234)} + kStart);
    CHECK(assign_roles(literal.job)[0][1] == rule.role);
  }
}

TEST_CASE("each rule of idle threads has a source and a stack that only this one calls idle") {
  for (const known::IdleRule& rule : known::known_programs().idle) {
    INFO(known::to_string(rule.role) << ": " << rule.what << " " << rule.file);
    CHECK_FALSE(rule.source.empty());
    LiteralJob literal;
    RankSnapshot& rank = literal.rank(0, 1, in_main(1));
    const ThreadSnapshot& thread = literal.thread(rank, 999, "python3", stack_of(rule));
    const known::IdleRule* found = idle_rule_of(literal.job, thread, rule.role);
    INFO("matched by: " << (found ? text(found->what) + " " + text(found->file) : "nothing"));
    CHECK(found == &rule);
    CHECK(is_idle(literal.job, thread, rule.role));
    // The same thread with work: its innermost function is of another program and calls none of the above.
    LiteralJob busy;
    RankSnapshot& other = busy.rank(0, 1, in_main(1));
    CHECK_FALSE(is_idle(
        busy.job, busy.thread(other, 999, "python3", Stack{libc("memcpy"), nat("work()", kOwnModule)} + stack_of(rule)),
        rule.role));
  }
}

TEST_CASE("each rule of files has a source and a file of its own") {
  for (const known::FileRule& rule : known::known_programs().files) {
    INFO(rule.file);
    CHECK_FALSE(rule.source.empty());
    CHECK(known::is_library_file("/opt" + text(rule.file) + "x.py") == rule.library);
  }
}

TEST_CASE("each place has a source and a function that no other rule of this place has") {
  const auto& rules = known::known_programs().places;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const known::PlaceRule& rule = rules[i];
    INFO(rule.what << " in " << rule.file);
    CHECK_FALSE(rule.source.empty());
    const std::string file = rule.file.starts_with('<') ? text(rule.file) : file_with(rule.file),
                      function = rule.what.empty() ? "some_function" : text(rule.what);
    CHECK(known::is_place(rule.place, function, file));
    CHECK(known::is_file_of(rule.place, file));
    CHECK(is_place(py(function, file, 7), rule.place));
    CHECK_FALSE(is_place(nat(function), rule.place));
    if (!rule.what.empty()) CHECK_FALSE(known::is_place(rule.place, "some_function", file));
    for (std::size_t k = 0; k < rules.size(); ++k) {
      const bool same_function = rules[k].what.empty() || rules[k].what == rule.what;
      CHECK_FALSE(
          (k != i && rules[k].place == rule.place && same_function && file.find(rules[k].file) != std::string::npos));
    }
  }
  for (std::size_t place = 0; place < known::kPlaces; ++place)
    CHECK(std::any_of(rules.begin(), rules.end(),
                      [&](const known::PlaceRule& r) { return r.place == static_cast<known::Place>(place); }));
  CHECK_FALSE(known::is_place(known::Place::kWait, "get", "/home/u/myqueue.py"));
}

TEST_CASE("each rule of modules has a source and a module of its own") {
  const auto& rules = known::known_programs().modules;
  for (const known::ModuleRule& rule : rules) {
    INFO(rule.prefix);
    CHECK_FALSE(rule.source.empty());
    const auto first = std::find_if(rules.begin(), rules.end(),
                                    [&](const known::ModuleRule& r) { return rule.prefix.starts_with(r.prefix); });
    CHECK(&*first == &rule);
    const std::string module = "/x/" + text(rule.prefix) + "1";
    CHECK(is_opaque(module));
    CHECK(is_c_library(module) == (rule.kind == known::ModuleKind::kCLibrary));
    CHECK(is_cpp_library(module) == (rule.kind == known::ModuleKind::kCppLibrary));
  }
  CHECK_FALSE(is_opaque("/x/libtorch_cpu.so"));
}

TEST_CASE("programs that are no rank, by the name of their process or their command") {
  using known::ProgramKind;
  CHECK(known::kind_of_program("bash", "bash") == ProgramKind::kStarter);
  CHECK(known::kind_of_program("train.sh", "/bin/bash") == ProgramKind::kStarter);
  CHECK(known::kind_of_program("other", "-zsh") == ProgramKind::kStarter);
  CHECK(known::kind_of_program("sleep", "/usr/bin/coreutils") == ProgramKind::kUtility);
  CHECK(known::kind_of_program("perl", "/usr/bin/perl") == ProgramKind::kOther);
  CHECK(known::kind_of_program("", "") == ProgramKind::kOther);
  std::set<std::string_view> names;
  for (const known::ProgramRule& rule : known::program_rules()) {
    CAPTURE(rule.name);
    CHECK(names.insert(rule.name).second);
    CHECK(rule.name.size() <= 15);
    CHECK(known::kind_of_program(rule.name, "") == rule.kind);
  }
}

TEST_CASE("what watchdogs of programs are called") {
  for (const std::string_view word : known::watchdog_words()) CHECK(known::is_watchdog_name(word));
  for (const char* name : {"collective_watchdog", "HangDetector::run(int)", "heartbeat-mon", "no_progress_check"})
    CHECK(known::is_watchdog_name(name));
  for (const char* name : {"prefetch", "exchange_halo", "Installer::run()", "writer(Watchdog&)", ""})
    CHECK_FALSE(known::is_watchdog_name(name));
}
