// Functions, inlined functions and lines of a large library compared with binutils' addr2line, at the start and in the
// middle of functions.
#include <map>
#include <regex>
#include <sstream>

#include "symbolizers/workshop.h"

namespace rankstacks::symbolizers {
namespace {

namespace fs = std::filesystem;
using testing::Lines;
using testing::Workshop;

// Libraries with debug information: what pyenv has built, or those named in RANKSTACKS_LIBRARIES (separated by ':').
std::vector<std::string> libraries() {
  std::vector<std::string> found;
  if (const char* named = std::getenv("RANKSTACKS_LIBRARIES")) {
    std::istringstream paths(named);
    for (std::string path; std::getline(paths, path, ':');) found.push_back(path);
    return found;
  }
  const char* home = std::getenv("HOME");
  const char* root = std::getenv("PYENV_ROOT");
  const fs::path versions =
      (root != nullptr ? fs::path(root) : fs::path(home != nullptr ? home : "/") / ".pyenv") / "versions";
  std::error_code ignored;
  for (const auto& version : fs::directory_iterator(versions, ignored)) {
    for (const auto& file : fs::directory_iterator(version.path() / "lib", ignored)) {
      const std::string name = file.path().filename().string();
      if (name.starts_with("libpython3.") && name.ends_with(".so.1.0")) found.push_back(file.path().string());
    }
  }
  return found;
}

// GCC splits a function into parts: addr2line names a part by the function in DWARF, this tool by the part's symbol,
// whose suffix is removed here.
std::string without_clone(std::string name) {
  return std::regex_replace(name, std::regex(R"(\.(cold|part|constprop|isra)(\.\d+)*)"), "");
}

struct Place {
  std::string function;
  std::string file;  // without its directory
  int line = 0;
};

std::map<Vaddr, std::vector<Place>> ask_addr2line(const Workshop& shop, const std::string& library,
                                                  const std::vector<Vaddr>& addresses) {
  std::ostringstream input;
  for (const Vaddr a : addresses) input << std::hex << "0x" << a << "\n";
  shop.write("addresses", input.str());
  shop.run("addr2line -afiC -e '" + library + "' < addresses > answers");
  std::istringstream answers(shop.read("answers"));
  std::map<Vaddr, std::vector<Place>> places;
  std::vector<Place>* current = nullptr;
  for (std::string line, where; std::getline(answers, line);) {
    if (line.starts_with("0x") && line.size() == 18) {
      current = &places[std::stoull(line, nullptr, 16)];
      continue;
    }
    REQUIRE(current != nullptr);
    REQUIRE(std::getline(answers, where));
    const std::size_t colon = where.rfind(':');
    REQUIRE(colon != std::string::npos);
    current->push_back({without_clone(line), fs::path(where.substr(0, colon)).filename().string(),
                        std::atoi(where.c_str() + colon + 1)});
  }
  return places;
}

}  // namespace

TEST_CASE("a libpython's functions and lines are those addr2line gives") {
  const auto all = libraries();
  if (all.empty() || !Workshop::has_tool("addr2line")) {
    WARN("skipped: no libpython with debug information here (RANKSTACKS_LIBRARIES names others)");
    return;
  }
  const Workshop shop;
  for (const std::string& library : all) {
    INFO(library);
    auto image = elf::Image::open(library, library);
    REQUIRE(image);
    std::vector<Vaddr> addresses;
    const auto& symbols = (*image)->static_symbols();
    for (std::size_t i = 1; i < symbols.size(); ++i) {
      const Elf64_Sym symbol = symbols.at(i);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_size == 0 || i % 8 != 0) continue;
      addresses.push_back(symbol.st_value);
      addresses.push_back(symbol.st_value + symbol.st_size / 2);
    }
    std::sort(addresses.begin(), addresses.end());
    addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
    REQUIRE(addresses.size() > 500);
    const auto expected = ask_addr2line(shop, library, addresses);
    const auto ours = Symbolizer(testing::alone()).resolve(**image, addresses);
    CHECK(ours.problems.empty());
    std::size_t compared = 0;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      INFO("address " << std::hex << addresses[i]);
      const auto& mine = ours.locations[i];
      const auto& theirs = expected.at(addresses[i]);
      REQUIRE(mine.size() == theirs.size());
      for (std::size_t f = 0; f < mine.size(); ++f) {
        CHECK(without_clone(mine[f].function.value_or("??")) == theirs[f].function);
        CHECK(mine[f].line.value_or(0) == theirs[f].line);
        const std::string file = mine[f].file ? fs::path(*mine[f].file).filename().string() : "";
        // For a function that is written in a header, binutils 2.40 prints the file of its unit with the line in the
        // header.
        if (mine[f].line && !file.ends_with(".h")) CHECK(file == theirs[f].file);
        CHECK(mine[f].inlined == (f + 1 < mine.size()));
        compared += mine[f].line ? 1 : 0;
      }
    }
    CHECK(compared > 500);
  }
}

}  // namespace rankstacks::symbolizers
