// Real cores of a small program with three threads and a library of its own, made when a test first asks for them.
//
// The program prints the truth about itself (tids, thread pointers, addresses); tests compare that with what the core
// contains.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "support/temporary_directory.h"

namespace rankstacks::testing {

struct FixtureThread {
  Tid tid = 0;
  Address thread_pointer = 0;  // pthread_self()
  Address local = 0;           // of a variable on its stack
};

struct FixtureFacts {
  Pid pid = 0;
  std::vector<FixtureThread> threads;        // the main one first
  std::map<std::string, Address> addresses;  // written, constant, big, library_function, library_constant
};

struct FixtureCore {
  std::string path;
  FixtureFacts facts;
};

// The directory with the program `fixture` and `libfixture.so`, which exists until the tests end; std::nullopt, and
// why, without a compiler.
struct BuiltFixture {
  TemporaryDirectory directory;
  std::string program() const { return directory / "fixture"; }
  std::string library() const { return directory / "libfixture.so"; }
};
const BuiltFixture* built_fixture(std::string& why_not);

// Each core is made once. nullptr, and why, if this machine cannot make it (no gdb, core_pattern is a pipe, ...).
const FixtureCore* gcore_core(std::string& why_not);
const FixtureCore* kernel_core(const std::string& how, std::string& why_not);  // how: "abort" or "fault"

// The arguments that the program is started with.
inline const std::vector<std::string> kFixtureArguments{"two words", "", "--last=1"};

// Whether the command's exit status is 0.
bool run_command(const std::string& shell_command);
bool has_command(const std::string& name);

}  // namespace rankstacks::testing
