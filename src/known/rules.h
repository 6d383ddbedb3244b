// What is known of other people's programs: one line a rule, each with its source. The tables are data alone; analyzers/ matches them with frames.
//
//   role_rules.cc        what threads are there for: by their frames, by their names
//   idle_rules.cc        how threads stand that have nothing to do
//   wait_rules.cc        which frames wait for other ranks
//   activity_rules.cc    what other frames say of their thread: data loading, compiling, a prompt, ...
//   file_rules.cc        which Python files are a library's
//   places.cc            Python functions that decisions ask for by what they are
//   modules.cc           modules whose inner frames say nothing about where a program stands
//
// tests/analyzers/known_rules_test.cc holds a stack for each rule that only this rule tells.
// A user's own rules come before them (known_programs.h).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "known/kinds.h"

namespace rankstacks {

// "Own" frames are those outside of the C and C++ libraries, and of what Abseil and nsync wait with.
enum class RoleMatch {
  kFunction,          // a native function, anywhere in the stack, contains `what`
  kEntry,             // the outermost native function that is no thread start contains `what`
  kEntryModule,       // no Python frame, and the outermost native frame that is no thread start lies in a module whose base name starts with `what`
  kInnermost,         // no Python frame, and the innermost own frame's function contains `what`
  kPolls,             // no Python frame; the only own frame has no name, lies in a module whose base name starts with `what`, and waits for descriptors
  kPython,            // a Python function named `what`, in a file that ends with `file`
  kPythonFile,        // any Python frame of a file that contains `file`
  kPythonEntryFile,   // the thread's target, its outermost Python frame that starts no thread, is of a file that contains `file`
  kPythonWaits,       // the innermost Python frame, leaving out the standard library's waits, is `what` (empty: any) in a file that contains `file`
};

struct RoleRule {
  RoleMatch match;
  std::string_view what;
  std::string_view file;
  Role role;
  std::string_view source;   // project, its file, versions
};

// Where no frame tells: the kernel's name (15 bytes) starts with `prefix`.
struct NameRule {
  std::string_view prefix;
  Role role;
  std::string_view source;
};

enum class IdleMatch {
  kFunction,   // the innermost own frame's function contains `what`
  kModule,     // the innermost own frame lies in a module whose base name starts with `what`
  kOnly,       // all own frames lie in modules whose base names start with `what`
  kPython,     // as RoleMatch::kPythonWaits
};

enum class Wait {
  kAny,         // spinning too: pools spin before they sleep
  kCondition,   // on a condition variable, a semaphore, a futex; not for a mutex
  kPoll,        // for descriptors: poll, epoll, accept, a read
  kBlocks,      // either, or a sleep
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
  kNativePrefix,  // it starts with `what`
  kNativeOp,      // it contains `file`, and its last component (without arguments) is `what`
  kPython,        // a Python function `what` of a file that contains `file`
  kPythonFile,    // any Python function of a file that contains `file`
};

// What stands in the frame, where the function's own name is not what the library's interface or a person calls it.
struct NamedOperation {
  std::string_view call = {};                    // Operation::call; empty: the function's own name
  std::string_view name = {};                    // Operation::name; empty: `call`
  Collective collective = Collective::kUnknown;  // kUnknown: by `call`
  OperationKind kind = OperationKind::kNone;     // kNone: by the activity
  bool generic = false;                          // many operations share it: a native frame further out names the operation better

  bool operator==(const NamedOperation&) const = default;
};

struct ActivityRule {
  ActivityMatch match;
  std::string_view what;
  std::string_view file;
  Activity activity;
  std::string_view source;
  NamedOperation operation = {};
  bool over_transport = false;   // of a wait for other ranks: it is made of sockets, pipes or child processes, whose own rules tell nothing inside of it
};

enum class FileMatch {
  kContains,
  kSuffix,
};

// A Python file whose name fulfils this is a library's, or the user's own.
struct FileRule {
  FileMatch match;
  std::string_view file;
  bool library;
  std::string_view source;
};

std::span<const RoleRule> built_in_thread_roles();   // threads that are not their process's main thread; the first that holds
std::span<const RoleRule> built_in_child_roles();    // main threads of child processes; a rank's is always `main`
std::span<const NameRule> built_in_thread_names();   // the first that holds
std::span<const IdleRule> built_in_idle();           // any that holds
std::span<const ActivityRule> built_in_waits();      // the first that holds; before built_in_activities()
std::span<const ActivityRule> built_in_activities();
std::span<const FileRule> built_in_files();          // the first that holds

}  // namespace rankstacks
