// Modules whose innermost frames do not show what a program is doing.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace rankstacks::known {

enum class ModuleKind {
  kCLibrary,  // glibc and its parts before 2.34, musl, the dynamic loader, the vdso
  kCppLibrary,
  kRuntime,  // the CUDA driver, OpenMP runtimes, the kernel's old page of system calls
};

// A module whose base name starts with `prefix`.
struct ModuleRule {
  std::string_view prefix;
  ModuleKind kind;
  std::string_view source;
};

std::span<const ModuleRule> built_in_modules();

// The kind of a module, by its base name, such as "libc.so.6". std::nullopt if it is none of these.
std::optional<ModuleKind> module_kind(std::string_view name);

// Whether the module is SQLite, or contains a copy of it: libsqlite3.so.0 (sqlite's own name),
// _sqlite3.cpython-311-x86_64-linux-gnu.so (cpython Modules/_sqlite). If its functions sleep, they sleep in its busy
// handler, between two attempts to get a lock that another connection holds (sqlite src/os_unix.c: unixSleep).
bool is_sqlite(std::string_view name);

}  // namespace rankstacks::known
