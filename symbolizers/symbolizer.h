// Maps addresses inside an ELF file to functions, files and lines, in batches: one pass per file for all ranks.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "elf/debuginfod.h"
#include "elf/image.h"

namespace rankstacks::symbolizers {

struct SourceLocation {
  std::optional<std::string> function;  // demangled; std::nullopt: no symbol covers the address
  std::optional<std::string> file;      // needs debug information
  std::optional<int> line;
  bool inlined = false;  // inlined into the next location
};

struct SymbolizerOptions {
  bool lines = true;                                                // file and line from DWARF, if there is any
  bool inlines = true;                                              // inlined frames too (implies lines)
  std::vector<std::string> debug_directories = {"/usr/lib/debug"};  // searched by build-id and .gnu_debuglink
  std::string sysroot;                                              // also tried as a prefix of the above
  // Directories of the user's with whatever there is: also searched as debug directories, as roots of other machines
  // with a /usr/lib/debug, and for debug files by name.
  std::vector<std::string> search = {};
  std::shared_ptr<elf::Debuginfod> debuginfod = nullptr;  // asked last; nullptr: not at all
};

struct SymbolizedImage {
  // Parallel to the requested addresses; innermost first, at least one each.
  std::vector<std::vector<SourceLocation>> locations;
  std::vector<std::string> problems;  // a debug file that was found and refused, and why
  bool gave_up = false;
};

// Thread-safe: different images may be resolved in parallel.
class Symbolizer {
 public:
  explicit Symbolizer(SymbolizerOptions options);
  ~Symbolizer();

  // `addresses` are in the file's address space, sorted and unique; return addresses are already reduced to pc-1. When
  // the deadline passes, the result contains what is known by then, and `gave_up` is set.
  SymbolizedImage resolve(const elf::Image& image, std::span<const Vaddr> addresses,
                          const Deadline& deadline = Deadline::never()) const;

 private:
  SymbolizerOptions options_;
};

// "foo(int)" for _Z3fooi, "std::thread::sleep" for Rust's _RNvNtC3std6thread5sleep; the name itself if it is not
// mangled (or not C++/Rust).
std::string demangle(std::string_view name);

}  // namespace rankstacks::symbolizers
