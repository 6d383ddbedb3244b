// A directory in which a test compiles programs with the system's tools and examines them. It is kept if the test
// fails.
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "elf/image.h"
#include "symbolizers/symbolizer.h"

namespace rankstacks::testing {

class Workshop {
 public:
  Workshop() {
    unsetenv("DEBUGINFOD_URLS");
    std::string name = (std::filesystem::temp_directory_path() / "rankstacks-symbols-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    directory_ = std::filesystem::canonical(name);
  }
  ~Workshop() {
    if (std::uncaught_exceptions() > 0) {
      std::cerr << "kept: " << directory_ << "\n";
    } else {
      std::filesystem::remove_all(directory_);
    }
  }
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;

  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }

  // Runs a shell command in the directory; if it fails, the test fails with its output.
  void run(const std::string& command) const {
    const std::string all = "cd '" + directory_.string() + "' && ( " + command + " ) > log 2>&1";
    if (std::system(all.c_str()) != 0) FAIL(command << "\n" << read("log"));
  }
  std::string read(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::shared_ptr<const elf::Image> open(const std::string& name) const {
    auto image = elf::Image::open(path(name), path(name));
    if (!image) FAIL(image.error().message());
    return *image;
  }

  static bool has_tool(const std::string& name) {
    if (std::system(("command -v " + name + " > /dev/null 2>&1").c_str()) == 0) return true;
    WARN("skipped: no " << name << " here");
    return false;
  }

 private:
  std::filesystem::path directory_;
};

// Options with which no debug file of this machine is searched.
inline symbolizers::SymbolizerOptions alone() {
  symbolizers::SymbolizerOptions options;
  options.debug_directories.clear();
  return options;
}

inline Vaddr address_of(const elf::Image& image, const std::string& symbol) {
  const auto found = image.find_symbol(symbol);
  if (!found) FAIL("no symbol " << symbol);
  return found->value;
}

// One line per location, innermost first: "leaf file.c:3 <inlined>", with "?" for what is unknown; files without their
// directory.
inline std::vector<std::string> shown(const std::vector<symbolizers::SourceLocation>& locations) {
  std::vector<std::string> lines;
  for (const symbolizers::SourceLocation& l : locations) {
    std::string line = l.function.value_or("?");
    if (l.file) line += " " + std::filesystem::path(*l.file).filename().string();
    if (l.line) line += ":" + std::to_string(*l.line);
    lines.push_back(line + (l.inlined ? " <inlined>" : ""));
  }
  return lines;
}

inline std::vector<std::string> resolve_one(const symbolizers::SymbolizerOptions& options, const elf::Image& image,
                                            Vaddr address) {
  const symbolizers::SymbolizedImage all = symbolizers::Symbolizer(options).resolve(image, std::span(&address, 1));
  REQUIRE(all.locations.size() == 1);
  return shown(all.locations[0]);
}

using Lines = std::vector<std::string>;

}  // namespace rankstacks::testing
