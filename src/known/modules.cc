#include "known/modules.h"

#include "base/text.h"
#include "known/known_programs.h"

namespace rankstacks::known {
namespace {

using K = ModuleKind;

// clang-format off
constexpr ModuleRule kRules[] = {
    {"libc.so", K::kCLibrary, "glibc"},
    {"libc-2.", K::kCLibrary, "glibc -2.33"},
    {"libpthread.so", K::kCLibrary, "glibc"},
    {"libpthread-2.", K::kCLibrary, "glibc -2.33"},
    {"ld-linux", K::kCLibrary, "glibc elf/rtld.c"},
    {"ld-2.", K::kCLibrary, "glibc -2.33"},
    {"libc.musl-", K::kCLibrary, "musl, as Alpine names it"},
    {"ld-musl-", K::kCLibrary, "musl"},
    {"librt.so", K::kCLibrary, "glibc"},
    {"librt-2.", K::kCLibrary, "glibc -2.33"},
    {"[vdso]", K::kCLibrary, "linux, in /proc/PID/maps"},
    {"linux-vdso.so", K::kCLibrary, "linux, the vdso's own name"},
    {"linux-gate.so", K::kCLibrary, "linux, the vdso's own name on i386"},
    {"libstdc++.so", K::kCppLibrary, "gcc"},
    {"libc++", K::kCppLibrary, "llvm: libc++, libc++abi"},
    {"libcuda.so", K::kRuntime, "cuda driver"},
    {"libgomp", K::kRuntime, "gcc; the copies in wheels: libgomp-a34b3233.so.1"},
    {"libiomp5.so", K::kRuntime, "intel"},
    {"libomp.so", K::kRuntime, "llvm"},
    {"libomp-", K::kRuntime, "llvm, the copies in wheels"},
    {"[vsyscall]", K::kRuntime, "linux, in /proc/PID/maps"},
};
// clang-format on

}  // namespace

std::span<const ModuleRule> built_in_modules() { return kRules; }

std::optional<ModuleKind> module_kind(std::string_view name) {
  for (const ModuleRule& rule : known_programs().modules)
    if (name.starts_with(rule.prefix)) return rule.kind;
  return std::nullopt;
}

bool is_sqlite(std::string_view name) { return contains(name, "sqlite"); }

}  // namespace rankstacks::known
