// Modules whose inner frames say nothing about where a program stands.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace rankstacks {

enum class ModuleKind {
  kCLibrary,      // glibc and its parts before 2.34, musl, the dynamic loader, the vdso
  kCppLibrary,
  kRuntime,       // the CUDA driver, OpenMP runtimes, the kernel's old page of system calls
};

// A module whose base name starts with `prefix`.
struct ModuleRule {
  std::string_view prefix;
  ModuleKind kind;
  std::string_view source;
};

std::span<const ModuleRule> built_in_modules();

// Of a module's base name: "libc.so.6". Nothing: none of these.
std::optional<ModuleKind> module_kind(std::string_view name);

}  // namespace rankstacks
