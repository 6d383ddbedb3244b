// Files, lines and inlined functions, for each form of DWARF that the system's compilers write.
#include <array>
#include <regex>

#include "symbolizers/workshop.h"

namespace rankstacks::symbolizers {
namespace {

using testing::address_of;
using testing::alone;
using testing::Lines;
using testing::resolve_one;
using testing::Workshop;

constexpr const char* kInlines = R"(volatile int sink;
static inline __attribute__((always_inline)) void leaf(int x) {
  sink = x;
}
namespace deep {
struct Object {
  static inline __attribute__((always_inline)) void middle(int x) {
    leaf(x + 1);
  }
};
__attribute__((noinline)) void outer(int x) {
  deep::Object::middle(x);
  sink = 5;
}
}  // namespace deep
template <class T> __attribute__((noinline)) int work(T x) {
  auto local = [](int y) __attribute__((noinline)) {
    leaf(y);
    return y;
  };
  return local(static_cast<int>(x)) + 1;
}
int entry(int x) {
  deep::outer(x);
  return work(2.0) + work(x);
}
)";

// The lines that the addresses of the functions resolve to, duplicates removed.
std::vector<Lines> all_of(const elf::Image& image, const std::string& symbol) {
  const auto found = image.find_symbol(symbol);
  REQUIRE(found);
  std::vector<Vaddr> addresses;
  for (Vaddr a = found->value; a < found->value + found->size; ++a) addresses.push_back(a);
  const auto all = Symbolizer(alone()).resolve(image, addresses);
  CHECK(all.problems.empty());
  std::vector<Lines> seen;
  for (const auto& locations : all.locations) {
    const Lines lines = testing::shown(locations);
    if (std::find(seen.begin(), seen.end(), lines) == seen.end()) seen.push_back(lines);
  }
  return seen;
}

bool holds(const std::vector<Lines>& seen, const Lines& wanted) {
  return std::find(seen.begin(), seen.end(), wanted) != seen.end();
}

void check_inlines(const Workshop& shop, const std::string& compiler) {
  INFO(compiler);
  shop.write("i.cc", kInlines);
  shop.run(compiler + " -O1 -shared -fPIC i.cc -o i.so");
  const auto image = shop.open("i.so");
  const auto outer = all_of(*image, "_ZN4deep5outerEi");
  // In GCC's DWARF a static function has no linkage name; clang writes one.
  const Lines plain{"leaf i.cc:3 <inlined>", "deep::Object::middle(int) i.cc:8 <inlined>", "deep::outer(int) i.cc:12"};
  const Lines with_types{"leaf(int) i.cc:3 <inlined>", "deep::Object::middle(int) i.cc:8 <inlined>",
                         "deep::outer(int) i.cc:12"};
  const bool has_chain = holds(outer, plain) || holds(outer, with_types);
  CHECK(has_chain);
  CHECK(holds(outer, {"deep::outer(int) i.cc:13"}));
  CHECK(holds(all_of(*image, "_Z5entryi"), {"entry(int) i.cc:25"}));
  CHECK(holds(all_of(*image, "_Z4workIdEiT_"), {"int work<double>(double) i.cc:21"}));
  for (const Lines& lines : outer) CHECK(lines.back().starts_with("deep::outer(int) i.cc:1"));
}

}  // namespace

TEST_CASE("inlined functions, innermost first, with the lines of their calls") {
  const Workshop shop;
  for (const char* version :
       {"-gdwarf-2", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5", "-gdwarf-5 -gdwarf64", "-g -gz=zlib", "-g -gz=zlib-gnu",
        "-g -gno-as-loc-support", "-g -ffunction-sections -Wl,--gc-sections", "-g -flto"}) {
    check_inlines(shop, std::string("g++ ") + version);
  }
}

TEST_CASE("inlined functions as clang describes them, without .debug_aranges") {
  if (!Workshop::has_tool("clang++")) return;
  const Workshop shop;
  for (const char* version : {"-gdwarf-3", "-gdwarf-4", "-gdwarf-5"})
    check_inlines(shop, std::string("clang++ ") + version);
  CHECK(shop.open("i.so")->section(".debug_aranges") == nullptr);
}

TEST_CASE("a lambda of a template keeps its own frame") {
  const Workshop shop;
  shop.write("i.cc", kInlines);
  shop.run("g++ -O1 -g -shared -fPIC i.cc -o i.so");
  const auto image = shop.open("i.so");
  bool seen = false;
  for (std::size_t i = 0; i < image->static_symbols().size(); ++i) {
    const std::string name(image->static_symbols().name(image->static_symbols().at(i)));
    if (!name.starts_with("_ZZ4workIdEiT_")) continue;
    for (const Lines& lines : all_of(*image, name)) {
      INFO(lines.back());
      CHECK(lines.back().starts_with("work<double>(double)::{lambda(int)#1}::operator()(int) const"));
      seen = true;
    }
  }
  CHECK(seen);
}

TEST_CASE("C functions have their plain names, inlined too") {
  const Workshop shop;
  shop.write(
      "c.c",
      "volatile int sink;\nstatic inline void leaf(int x) {\n  sink = x;\n}\nvoid outer(int x) {\n  leaf(x);\n}\n");
  shop.run("gcc -O1 -g -shared -fPIC c.c -o c.so");
  const auto image = shop.open("c.so");
  CHECK(holds(all_of(*image, "outer"), {"leaf c.c:3 <inlined>", "outer c.c:6"}));
}

TEST_CASE("with inlines or lines disabled, the result has less") {
  const Workshop shop;
  shop.write("i.cc", kInlines);
  shop.run("g++ -O1 -g -shared -fPIC i.cc -o i.so");
  const auto image = shop.open("i.so");
  const auto found = image->find_symbol("_ZN4deep5outerEi");
  SymbolizerOptions no_inlines = alone();
  no_inlines.inlines = false;
  SymbolizerOptions names = no_inlines;
  names.lines = false;
  for (Vaddr a = found->value; a < found->value + found->size; ++a) {
    const auto lines = resolve_one(no_inlines, *image, a);
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].starts_with("deep::outer(int) i.cc:"));
    CHECK(resolve_one(names, *image, a) == Lines{"deep::outer(int)"});
  }
}

TEST_CASE("files have their full paths") {
  const Workshop shop;
  shop.write("f.c", "int f(int x) {\n  return x + 1;\n}\n");
  shop.run("mkdir -p sub && cp f.c sub/ && gcc -g -shared -fPIC sub/f.c -o f.so");
  const auto image = shop.open("f.so");
  const Vaddr address = address_of(*image, "f");
  const auto all = Symbolizer(alone()).resolve(*image, std::span(&address, 1));
  CHECK(all.locations[0][0].file == shop.path("sub/f.c"));
}

TEST_CASE("sections compressed with zstd are read") {
  const Workshop shop;
  shop.write("i.cc", kInlines);
  shop.run("g++ -O1 -g -shared -fPIC i.cc -o i.so");
  const std::string pack =
      "objcopy --compress-debug-sections=zstd " + shop.path("i.so") + " " + shop.path("z.so") + " 2>/dev/null";
  if (std::system(pack.c_str()) != 0) {
    WARN("skipped: this objcopy writes no zstd");
    return;
  }
  CHECK(all_of(*shop.open("z.so"), "_ZN4deep5outerEi") == all_of(*shop.open("i.so"), "_ZN4deep5outerEi"));
}

TEST_CASE("with broken debug information names remain, and a problem is reported") {
  const Workshop shop;
  shop.write("i.cc", kInlines);
  shop.run("g++ -O1 -g -gz=zlib -shared -fPIC i.cc -o i.so");
  const auto image = shop.open("i.so");
  const auto* info = image->section(".debug_info");
  REQUIRE(info != nullptr);
  const Vaddr address = address_of(*image, "_Z5entryi");
  const auto with_header = [&](std::uint32_t method, std::uint64_t size) {
    std::vector<std::byte> bytes(image->bytes().begin(), image->bytes().end());
    const Elf64_Chdr header{method, 0, size, 1};
    std::memcpy(bytes.data() + info->header.sh_offset, &header, sizeof header);
    auto broken = elf::Image::from_bytes(std::move(bytes), "i.so");
    REQUIRE(broken);
    const auto all = Symbolizer(alone()).resolve(**broken, std::span(&address, 1));
    CHECK(testing::shown(all.locations[0]) == Lines{"entry(int)"});
    return all.problems;
  };
  CHECK(with_header(77, 1000) ==
        Lines{"i.so: no lines or inlined functions: .debug_info is compressed by an unknown method (77)"});
  CHECK(with_header(1, ~std::uint64_t{0}) ==
        Lines{"i.so: no lines or inlined functions: .debug_info cannot unpack to 18446744073709551615 bytes"});
  CHECK(with_header(1, 5) == Lines{"i.so: no lines or inlined functions: .debug_info does not unpack"});
  CHECK(with_header(2, 5) == Lines{"i.so: no lines or inlined functions: .debug_info does not unpack"});
}

TEST_CASE("debug sections with random bytes changed neither crash nor hang") {
  const Workshop shop;
  shop.write("i.cc", kInlines);
  shop.run("g++ -O1 -g -shared -fPIC i.cc -o i.so");
  const auto image = shop.open("i.so");
  const auto entry = image->find_symbol("_Z5entryi");
  const auto outer = image->find_symbol("_ZN4deep5outerEi");
  REQUIRE(entry);
  REQUIRE(outer);
  std::vector<Vaddr> addresses;
  for (const auto& symbol : {*entry, *outer}) {
    for (Vaddr a = symbol.value; a < symbol.value + symbol.size; a += 3) addresses.push_back(a);
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  std::uint64_t random = 88172645463325252ULL;  // xorshift: the same bytes in each run
  const auto next = [&] {
    random ^= random << 13;
    random ^= random >> 7;
    return random ^= random << 17;
  };
  for (const char* name :
       {".debug_line", ".debug_info", ".debug_abbrev", ".debug_aranges", ".debug_rnglists", ".debug_str"}) {
    const auto* section = image->section(name);
    if (section == nullptr || section->header.sh_size == 0) continue;
    for (int round = 0; round < 150; ++round) {
      std::vector<std::byte> bytes(image->bytes().begin(), image->bytes().end());
      for (int change = 0; change < 4; ++change) {
        const std::uint64_t at = section->header.sh_offset + next() % section->header.sh_size;
        bytes[at] = static_cast<std::byte>(next());
      }
      auto broken = elf::Image::from_bytes(std::move(bytes), "i.so");
      REQUIRE(broken);
      const auto all = Symbolizer(alone()).resolve(**broken, addresses);
      REQUIRE(all.locations.size() == addresses.size());
      for (const auto& locations : all.locations) REQUIRE_FALSE(locations.empty());
    }
  }
}

}  // namespace rankstacks::symbolizers
