// Split debug information: the functions, inlined functions and lines of a program with .dwo files or a .dwp are
// compared with those that addr2line gives for the same program built without split debug information; and which files
// a program's debug information may refer to.
#include <sys/stat.h>
#include <unistd.h>
#include <map>
#include <sstream>

#include "symbolizers/split_file.h"
#include "symbolizers/workshop.h"

namespace rankstacks::symbolizers {
namespace {

using testing::address_of;
using testing::alone;
using testing::Lines;
using testing::resolve_one;
using testing::shown;
using testing::Workshop;

constexpr const char* kHeader = R"(#pragma once
extern volatile int sink;
namespace shapes {
template <class T> inline __attribute__((always_inline)) T twice(T x) {
  sink = static_cast<int>(x);
  return x * 2 + sink;
}
}
)";

constexpr const char* kFirst = R"(#include "shared/twice.h"
volatile int sink;
static inline __attribute__((always_inline)) int leaf(int x) {
  sink = x;
  return x * 3 + sink;
}
static inline __attribute__((always_inline)) int middle(int x) {
  return leaf(x + 1) + shapes::twice(x) + leaf(x * 2);
}
struct Box {
  int v;
  inline __attribute__((always_inline)) int get(int q) {
    if (q > 3) {
      int z = middle(q);
      sink = z;
      return z + v;
    }
    return v;
  }
};
__attribute__((noinline)) int entry(int x) {
  Box box{x};
  return box.get(x) + middle(x);
}
__attribute__((noinline, section(".text.elsewhere"))) int apart(int x) {
  return x > 0 ? middle(x) : leaf(x);
}
)";

constexpr const char* kSecond = R"(#include "shared/twice.h"
int entry(int);
int apart(int);
namespace {
inline __attribute__((always_inline)) int tiny(int x) {
  sink = x;
  return sink + 1;
}
}
__attribute__((noinline)) int other(int x) {
  return tiny(x) + entry(x) + shapes::twice(x);
}
int main(int argc, char**) {
  return tiny(argc) + other(argc) + apart(argc);
}
)";

struct Compiler {
  std::string name;   // "g++"
  int version = 5;    // of DWARF
  std::string truth;  // the tool that resolves the program built without split debug information; binutils 2.40 misses
                      // copies that clang's DWARF 5 refers to by index
  std::string packs;  // the tool that packs the units into a package; "" if no tool of Debian 12 can
};

// binutils 2.40's dwp crashes on DWARF 5, and llvm-dwp 14 on the tables of gcc's.
const std::vector<Compiler> kCompilers = {{"g++", 4, "addr2line", "dwp"},
                                          {"g++", 5, "addr2line", ""},
                                          {"clang++", 4, "llvm-addr2line", "llvm-dwp"},
                                          {"clang++", 5, "llvm-addr2line", "llvm-dwp"}};
const Compiler& kGcc4 = kCompilers[0];
const Compiler& kGcc5 = kCompilers[1];

// `prog` with split debug information in a directory named obj, `plain` without; both have the same code.
void build(const Workshop& shop, const Compiler& compiler, const std::string& more = "") {
  shop.run("mkdir -p shared obj plain_obj");
  shop.write("shared/twice.h", kHeader);
  shop.write("first.cc", kFirst);
  shop.write("second.cc", kSecond);
  const std::string flags = compiler.name + " -O2 -g -gdwarf-" + std::to_string(compiler.version) + " -fno-pie " + more;
  for (const std::string file : {"first", "second"}) {
    shop.run(flags + " -gsplit-dwarf -c " + file + ".cc -o obj/" + file + ".o && " + flags + " -c " + file +
             ".cc -o plain_obj/" + file + ".o");
  }
  shop.run(compiler.name + " -no-pie obj/first.o obj/second.o -o prog && " + compiler.name +
           " -no-pie plain_obj/first.o plain_obj/second.o -o plain");
  shop.run("test -s obj/first.dwo && ! test -e plain_obj/first.dwo");
}

const std::vector<std::string> kFunctions = {"_Z5entryi", "_Z5aparti", "_Z5otheri", "main"};

std::vector<Vaddr> addresses_of(const elf::Image& image) {
  std::vector<Vaddr> all;
  for (const std::string& name : kFunctions) {
    const auto symbol = image.find_symbol(name);
    REQUIRE(symbol);
    for (Vaddr a = symbol->value; a < symbol->value + symbol->size; ++a) all.push_back(a);
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::map<Vaddr, Lines> ask_addr2line(const Workshop& shop, const std::string& tool, const std::string& program,
                                     const std::vector<Vaddr>& addresses) {
  std::ostringstream input;
  for (const Vaddr a : addresses) input << std::hex << "0x" << a << "\n";
  shop.write("addresses", input.str());
  shop.run(tool + " -afiC -e " + program + " < addresses > answers");
  std::istringstream answers(shop.read("answers"));
  std::map<Vaddr, Lines> places;
  Lines* current = nullptr;
  for (std::string line, where; std::getline(answers, line);) {
    if (line.starts_with("0x") && line.find(' ') == line.npos) {
      current = &places[std::stoull(line, nullptr, 16)];
      continue;
    }
    REQUIRE(current != nullptr);
    REQUIRE(std::getline(answers, where));
    where = where.substr(0, where.find(" (discriminator"));
    const std::size_t colon = where.rfind(':');
    const int number = std::atoi(where.c_str() + colon + 1);
    current->push_back(line + " " + std::filesystem::path(where.substr(0, colon)).filename().string() +
                       (number > 0 ? ":" + std::to_string(number) : ""));
  }
  for (auto& [address, lines] : places) {
    for (std::size_t i = 0; i + 1 < lines.size(); ++i) lines[i] += " <inlined>";
  }
  return places;
}

std::size_t longest(const SymbolizedImage& all) {
  std::size_t most = 0;
  for (const auto& locations : all.locations) most = std::max(most, locations.size());
  return most;
}

// Of "entry(int) first.cc:24 <inlined>": the function, and ":24 <inlined>".
std::string function_of(const std::string& line) {
  const auto file = std::min(line.find(".cc"), line.find(".h"));
  return line.substr(0, line.rfind(' ', file));
}

std::string place_of(const std::string& line) {
  const auto at = line.rfind(':');
  return at == line.npos ? "" : line.substr(at);
}

// Compares the lines at every address of the program with those that addr2line gives for its twin.
void compare(const Workshop& shop, const Compiler& compiler, const Lines& problems = {}) {
  const auto plain = shop.open("plain");
  const auto addresses = addresses_of(*plain);
  const auto image = shop.open("prog");
  REQUIRE(addresses_of(*image) == addresses);
  const auto ours = Symbolizer(alone()).resolve(*image, addresses);
  const auto twin = Symbolizer(alone()).resolve(*plain, addresses);
  CHECK(ours.problems == problems);
  CHECK(longest(ours) == 4);  // entry, Box::get, middle, leaf
  const auto expected = ask_addr2line(shop, compiler.truth, "plain", addresses);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    INFO("address " << std::hex << addresses[i]);
    CHECK(shown(ours.locations[i]) == shown(twin.locations[i]));
    // For a template's function binutils 2.40 gives the file of its unit: the file is compared by other tests, with the
    // lines that this tool gives for the twin.
    const Lines& theirs = expected.at(addresses[i]);
    const Lines mine = shown(ours.locations[i]);
    REQUIRE(mine.size() == theirs.size());
    for (std::size_t f = 0; f < mine.size(); ++f) {
      CHECK(place_of(mine[f]) == place_of(theirs[f]));
      // Where a copy begins, binutils 2.40 gives the innermost function the name of the symbol.
      if (f == 0 && function_of(theirs[0]) == function_of(theirs.back())) continue;
      CHECK(function_of(mine[f]) == function_of(theirs[f]));
    }
  }
}

bool has_all(const Compiler& compiler) {
  return Workshop::has_tool(compiler.name) && Workshop::has_tool(compiler.truth);
}

std::vector<std::string> problems_of(const elf::Image& image, const std::string& function = "_Z5entryi") {
  const Vaddr address = address_of(image, function) + 1;
  return Symbolizer(alone()).resolve(image, std::span(&address, 1)).problems;
}

}  // namespace

TEST_CASE("inlined functions of .dwo files are those of the program built without") {
  for (const Compiler& compiler : kCompilers) {
    INFO(compiler.name << " DWARF " << compiler.version);
    if (!has_all(compiler)) continue;
    const Workshop shop;
    build(shop, compiler);
    compare(shop, compiler);
    // All in one directory, as installed.
    shop.run("mv obj/*.dwo .");
    compare(shop, compiler);
  }
}

TEST_CASE("functions in sections of their own, with .dwo files") {
  for (const Compiler& compiler : kCompilers) {
    INFO(compiler.name << " DWARF " << compiler.version);
    if (!has_all(compiler)) continue;
    const Workshop shop;
    build(shop, compiler, "-ffunction-sections");
    compare(shop, compiler);
  }
}

TEST_CASE("compressed .dwo files are read") {
  for (const Compiler& compiler : kCompilers) {
    INFO(compiler.name << " DWARF " << compiler.version);
    if (!has_all(compiler)) continue;
    const Workshop shop;
    build(shop, compiler);
    shop.run(
        "objcopy --compress-debug-sections=zlib obj/first.dwo && objcopy --compress-debug-sections=zlib "
        "obj/second.dwo");
    compare(shop, compiler);
  }
}

TEST_CASE("inlined functions of a .dwp package are those of the program built without") {
  for (const Compiler& compiler : kCompilers) {
    INFO(compiler.name << " DWARF " << compiler.version);
    if (compiler.packs.empty() || !has_all(compiler) || !Workshop::has_tool(compiler.packs)) continue;
    const Workshop shop;
    build(shop, compiler);
    shop.run(compiler.packs + " -e prog -o prog.dwp && rm obj/*.dwo");
    compare(shop, compiler);
  }
}

TEST_CASE("a package of DWARF 5, as clang 14 and llvm-dwp made it") {
  // A fuzzer's seed: the program's length, the program, its package. The expected lines are what llvm-symbolizer
  // prints.
  std::ifstream in(RANKSTACKS_FIXTURES "/fuzz/split_dwarf/clang5-dwp", std::ios::binary);
  const std::string both{std::istreambuf_iterator<char>(in), {}};
  std::uint32_t length = 0;
  REQUIRE(both.size() > sizeof length);
  std::memcpy(&length, both.data(), sizeof length);
  const Workshop shop;
  shop.write("program", both.substr(sizeof length, length));
  shop.write("program.dwp", both.substr(sizeof length + length));
  const auto image = shop.open("program");
  CHECK(resolve_one(alone(), *image, 0x484) == Lines{"shapes::walk(int) shapes.cc:6"});
  CHECK(resolve_one(alone(), *image, 0x488) == Lines{"outside(int) shapes.cc:13 <inlined>",
                                                     "shapes::twice(int) shapes.cc:5 <inlined>",
                                                     "shapes::walk(int) shapes.cc:6"});
  CHECK(resolve_one(alone(), *image, 0x48c) ==
        Lines{"shapes::twice(int) shapes.cc:5 <inlined>", "shapes::walk(int) shapes.cc:6"});
}

TEST_CASE("a stripped program has its package in its own directory, and its skeleton units in a debug file") {
  const Compiler& compiler = kGcc4;
  if (!has_all(compiler) || !Workshop::has_tool("dwp")) return;
  const Workshop shop;
  build(shop, compiler, "-Wl,--build-id");
  shop.run(
      "dwp -e prog -o prog.dwp && rm obj/*.dwo && objcopy --only-keep-debug prog prog.debug && strip prog && objcopy "
      "--add-gnu-debuglink=prog.debug prog");
  const auto plain = shop.open("plain");
  const auto addresses = addresses_of(*plain);
  const auto ours = Symbolizer(alone()).resolve(*shop.open("prog"), addresses);
  CHECK(ours.problems.empty());
  CHECK(longest(ours) == 4);
}

TEST_CASE("without its .dwo files a program still has names and lines, and one problem is reported") {
  const Workshop shop;
  build(shop, kGcc5);
  shop.run("rm -r obj");
  const auto image = shop.open("prog");
  const auto addresses = addresses_of(*image);
  const auto ours = Symbolizer(alone()).resolve(*image, addresses);
  CHECK(longest(ours) == 1);
  CHECK(ours.problems ==
        Lines{shop.path("prog") +
              ": no inlined functions of 2 of its compilation units: their split debug information is not there "
              "(neither prog.dwp nor obj/first.dwo)"});
  SymbolizerOptions no_inlines = alone();
  no_inlines.inlines = false;
  CHECK(Symbolizer(no_inlines).resolve(*image, addresses).problems.empty());
}

TEST_CASE("a .dwo of another build is refused; the message has its id") {
  for (const Compiler& compiler : kCompilers) {
    if (!has_all(compiler)) continue;
    INFO(compiler.name << " DWARF " << compiler.version);
    const Workshop shop;
    build(shop, compiler);
    shop.run("cp obj/second.dwo obj/first.dwo");
    const auto problems = problems_of(*shop.open("prog"));
    REQUIRE(problems.size() == 2);
    const std::string refused = shop.path("obj/first.dwo") + ": refused as split debug information of " +
                                shop.path("prog") + ": it has no unit with the id ";
    CHECK(problems[0].starts_with(refused));
    CHECK(problems[0].size() == refused.size() + 16);
    CHECK(resolve_one(alone(), *shop.open("prog"), address_of(*shop.open("prog"), "_Z5entryi")).size() == 1);
  }
}

TEST_CASE(
    "a .dwo in another directory, which is found only by its path, is accepted only from the owner of the program") {
  const Workshop shop;
  build(shop, kGcc5);
  shop.run("mkdir installed && cp prog installed/");
  const auto image = shop.open("installed/prog");
  const auto addresses = addresses_of(*image);
  CHECK(longest(Symbolizer(alone()).resolve(*image, addresses)) == 4);
  if (geteuid() != 0) {
    WARN("skipped: only root can give a file to another user");
    return;
  }
  shop.run("chown 12345 installed/prog");
  const auto of_another = shop.open("installed/prog");
  CHECK(longest(Symbolizer(alone()).resolve(*of_another, addresses)) == 1);
  const auto problems = problems_of(*of_another);
  REQUIRE(problems.size() == 2);
  CHECK(problems[0] == shop.path("obj/first.dwo") + ": refused as split debug information of " +
                           shop.path("installed/prog") +
                           ": the two have different owners, and this path is only named in the file");
}

TEST_CASE("a FIFO, a device or another file in a .dwo's place neither blocks nor is accepted") {
  const Workshop shop;
  build(shop, kGcc5);
  const std::string at = shop.path("obj/first.dwo");
  const auto with = [&](const std::string& command) {
    shop.run("rm -f obj/first.dwo && " + command);
    const auto problems = problems_of(*shop.open("prog"));
    REQUIRE(problems.size() == 2);
    return problems[0];
  };
  CHECK(with("mkfifo obj/first.dwo") == at + ": a pipe, not a regular file");
  CHECK(with("ln -s /dev/zero obj/first.dwo") == at + ": a device, not a regular file");
  CHECK(with("cp first.cc obj/first.dwo").starts_with(at + ": "));
  CHECK(with("cp plain obj/first.dwo") == at + ": no .debug_info.dwo in it");
}

TEST_CASE("split debug information with random bytes changed neither crashes nor hangs") {
  std::uint64_t random = 88172645463325252ULL;  // xorshift: the same bytes in each run
  const auto next = [&] {
    random ^= random << 13;
    random ^= random >> 7;
    return random ^= random << 17;
  };
  for (const Compiler& compiler : kCompilers) {
    if (!has_all(compiler)) continue;
    INFO(compiler.name << " DWARF " << compiler.version);
    const Workshop shop;
    build(shop, compiler);
    std::string file = "obj/first.dwo";
    if (!compiler.packs.empty() && Workshop::has_tool(compiler.packs)) {
      shop.run(compiler.packs + " -e prog -o prog.dwp");
      file = "prog.dwp";
    }
    const auto whole = shop.open(file);
    const auto image = shop.open("prog");
    const auto addresses = addresses_of(*image);
    const std::string sound = shop.read(file);
    const std::string program = shop.read("prog");
    const auto round = [&](const std::string& name, const std::string& bytes, const elf::Section& section) {
      std::string broken = bytes;
      for (int change = 0; change < 4; ++change)
        broken[section.header.sh_offset + next() % section.header.sh_size] = static_cast<char>(next());
      shop.write(name, broken);
      const auto all = Symbolizer(alone()).resolve(*shop.open("prog"), addresses);
      for (const auto& locations : all.locations) REQUIRE_FALSE(locations.empty());
    };
    for (const char* name :
         {".debug_info.dwo", ".debug_abbrev.dwo", ".debug_str_offsets.dwo", ".debug_rnglists.dwo", ".debug_cu_index"}) {
      const auto* section = whole->section(name);
      if (section == nullptr || section->header.sh_size == 0) continue;
      for (int i = 0; i < 60; ++i) round(file, sound, *section);
    }
    shop.write(file, sound);
    for (const char* name : {".debug_addr", ".debug_ranges", ".debug_rnglists", ".debug_info", ".debug_abbrev"}) {
      const auto* section = image->section(name);
      if (section == nullptr || section->header.sh_size == 0) continue;
      for (int i = 0; i < 60; ++i) round("prog", program, *section);
    }
  }
}

}  // namespace rankstacks::symbolizers
