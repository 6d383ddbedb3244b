#include <csetjmp>
#include <cstdlib>
#include <memory>

#include "symbolizers/rust_names.h"
#include "symbolizers/symbolizer.h"

// The demangler behind abi::__cxa_demangle (libstdc++, libiberty/cp-demangle.c), which returns its text piece by piece.
// Returns 0 if the name is not mangled.
extern "C" int __gcclibcxx_demangle_callback(const char* name, void (*piece)(const char*, std::size_t, void*),
                                             void* opaque);

namespace rankstacks::symbolizers {
namespace {

// A name of 200 characters can expand to a text of 2^60: each substitution is twice as long as the one before. torch's
// longest has 9,000.
constexpr std::size_t kMaxText = 64 << 10;

struct Output {
  char* text = nullptr;
  std::size_t size = 0;
  std::jmp_buf too_long;
};

void take_piece(const char* piece, std::size_t size, void* opaque) {
  auto& output = *static_cast<Output*>(opaque);
  // The demangler has no way to be stopped. It is C code, and only its stack has to be released.
  if (size > kMaxText - output.size) std::longjmp(output.too_long, 1);
  std::copy_n(piece, size, output.text + output.size);
  output.size += size;
}

// No object with a destructor may live in here: longjmp() skips it.
bool run_demangler(const char* name, Output& output) {
  if (setjmp(output.too_long) != 0) return false;
  return __gcclibcxx_demangle_callback(name, &take_piece, &output) == 0;
}

// The demangler refuses names longer than 1,024 characters (as c++filt does): they are shown mangled.
std::optional<std::string> demangle_cxx(const std::string& name) {
  const std::unique_ptr<char[]> text(new char[kMaxText]);
  Output output;
  output.text = text.get();
  if (!run_demangler(name.c_str(), output)) return std::nullopt;
  return std::string(output.text, output.size);
}

}  // namespace

std::string demangle(std::string_view name) {
  if (!name.starts_with("_Z") && !name.starts_with("_R")) return std::string(name);
  // "@VERSION" and "@@VERSION" of versioned symbols, and "@plt", are not part of the mangled name.
  const std::size_t version = name.find('@');
  const std::string tail(version == std::string_view::npos ? std::string_view{} : name.substr(version));
  const std::string mangled(name.substr(0, version));
  if (mangled.starts_with("_R")) {
    const auto text = demangle_rust_v0(mangled, kMaxText);
    return text ? *text + tail : std::string(name);
  }
  if (const auto text = demangle_rust_legacy(mangled, kMaxText)) return *text + tail;
  // The demangler knows the suffixes of GCC's and clang's clones: "foo(int) [clone .cold]".
  if (auto text = demangle_cxx(mangled)) return *text + tail;
  if (const std::size_t suffix = mangled.find('.'); suffix != std::string::npos) {
    if (auto text = demangle_cxx(mangled.substr(0, suffix)))
      return *text + " [clone " + mangled.substr(suffix) + "]" + tail;
  }
  return std::string(name);
}

}  // namespace rankstacks::symbolizers
