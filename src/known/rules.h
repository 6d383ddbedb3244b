// Knowledge about other projects' programs: one rule a line, each with its source. The tables are data alone;
// analyzers/ matches them with frames.
//
//   role_rules.cc        the purpose of threads: by their frames, by their names
//   idle_rules.cc        the stacks of threads that have nothing to do
//   wait_rules.cc        frames that wait for other ranks
//   activity_rules.cc    what other frames say about their thread: data loading, compiling, a prompt, ...
//   file_rules.cc        which Python files belong to a library
//   places.cc            Python functions that the analysis asks for by their purpose
//   modules.cc           modules whose innermost frames do not show what a program is doing
//
// For each rule, tests/analyzers/known_rules_test.cc holds a stack that no other rule matches. A user's own rules come
// before these (known_programs.h).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "known/kinds.h"

namespace rankstacks::known {

// "Own" frames are all frames outside of the C and C++ libraries, and outside of the functions with which Abseil and
// nsync wait.
enum class RoleMatch {
  kFunction,  // a native function, anywhere in the stack, contains `what`
  kEntry,     // the outermost native function that is not a thread start contains `what`
  // No Python frame, and the outermost native frame that is not a thread start is in a module whose base name starts
  // with `what`.
  kEntryModule,
  kInnermost,  // no Python frame, and the innermost own frame's function contains `what`
  // No Python frame; the only own frame has no name, is in a module whose base name starts with `what`, and waits for
  // descriptors.
  kPolls,
  kPython,      // a Python function named `what`, in a file whose name ends with `file`
  kPythonFile,  // any Python frame of a file whose name contains `file`
  // The thread's target (its outermost Python frame, not counting those that start threads) is in a file whose name
  // contains `file`.
  kPythonEntryFile,
  // The innermost Python frame, not counting the standard library's waits, is `what` (empty: any) in a file whose name
  // contains `file`.
  kPythonWaits,
};

struct RoleRule {
  RoleMatch match;
  std::string_view what;
  std::string_view file;
  Role role;
  std::string_view source;  // project, its file, versions
};

// Used if no frame identifies the role: the kernel's name of the thread (15 bytes) starts with `prefix`.
struct NameRule {
  std::string_view prefix;
  Role role;
  std::string_view source;
};

enum class IdleMatch {
  kFunction,  // the innermost own frame's function contains `what`
  kModule,    // the innermost own frame is in a module whose base name starts with `what`
  kOnly,      // all own frames are in modules whose base names start with `what`
  kPython,    // as RoleMatch::kPythonWaits
};

enum class Wait {
  kAny,        // any wait, and spinning too: pools spin before they sleep
  kCondition,  // on a condition variable, a semaphore, a futex; not for a mutex
  kPoll,       // for descriptors: poll, epoll, accept, a read
  kBlocks,     // either of these, or a sleep
};

struct IdleRule {
  Role role;
  IdleMatch match;
  std::string_view what;
  std::string_view file;
  Wait wait;
  std::string_view source;
};

enum class ActivityMatch {
  kNative,        // the native function contains `what`
  kNativePrefix,  // the native function starts with `what`
  kNativeOp,      // the native function contains `file`, and its last component (without arguments) is `what`
  kPython,        // a Python function `what` in a file whose name contains `file`
  kPythonFile,    // any Python function in a file whose name contains `file`
  // As kPython, and it is the thread's innermost Python function, not counting the standard library's waits: it waits
  // itself, and runs nothing.
  kPythonWaits,
};

// The operation that a frame carries out, for functions whose own name is not the name that the library's API or a
// person uses for it.
struct NamedOperation {
  std::string_view call = {};                    // Operation::call; empty: the function's own name
  std::string_view name = {};                    // Operation::name; empty: `call`
  Collective collective = Collective::kUnknown;  // kUnknown: by `call`
  OperationKind kind = OperationKind::kNone;     // kNone: by the activity
  bool generic = false;  // many operations share it: a native frame further out identifies the operation better

  bool operator==(const NamedOperation&) const = default;
};

struct ActivityRule {
  ActivityMatch match;
  std::string_view what;
  std::string_view file;
  Activity activity;
  std::string_view source;
  NamedOperation operation = {};
  // For waits for other ranks: the wait consists of sockets, pipes, child processes or another library's operations,
  // whose own rules do not apply inside of it.
  bool over_transport = false;
};

enum class FileMatch {
  kContains,
  kSuffix,
};

// A Python file whose name matches belongs to a library (`library`), or is the user's own.
struct FileRule {
  FileMatch match;
  std::string_view file;
  bool library;
  std::string_view source;
};

// For threads that are not their process's main thread; the first matching rule decides.
std::span<const RoleRule> built_in_thread_roles();
// For main threads of child processes; a rank's main thread is always `main`.
std::span<const RoleRule> built_in_child_roles();
std::span<const NameRule> built_in_thread_names();  // the first matching rule decides
std::span<const IdleRule> built_in_idle();          // one matching rule is enough
std::span<const ActivityRule> built_in_waits();     // the first matching rule decides; before built_in_activities()
std::span<const ActivityRule> built_in_activities();
std::span<const FileRule> built_in_files();  // the first matching rule decides

}  // namespace rankstacks::known
