// Function names from symbol tables: which symbol covers an address.
#include <algorithm>
#include <thread>

#include "symbolizers/workshop.h"

namespace rankstacks::symbolizers {
namespace {

using testing::address_of;
using testing::alone;
using testing::Lines;
using testing::resolve_one;
using testing::Workshop;

// Sections and symbols are placed as written here: functions with sizes, labels without a size, a gap that nothing
// covers.
constexpr const char* kAssembly = R"(
    .text
    .globl first, outer, inner, alias_global, _alias_under, strong, weak_one, label, after_label
    .weak weak_one
    .type first, @function
first:
    .fill 16, 1, 0x90
    .size first, 16
gap:                       # made local to the file below and stripped of its symbol
    .fill 16, 1, 0x90
    .type outer, @function
outer:
    .fill 8, 1, 0x90
    .type inner, @function
inner:
    .fill 8, 1, 0x90
    .size inner, 8
    .fill 8, 1, 0x90
    .size outer, 24
    .type label, @notype
label:                     # sizeless
    .fill 16, 1, 0x90
    .type after_label, @function
after_label:
    .fill 8, 1, 0x90
    .size after_label, 8
after_end:
    .fill 8, 1, 0x90
    .type _alias_under, @function
    .type alias_global, @function
    .type weak_one, @function
    .type local_one, @function
local_one:
_alias_under:
alias_global:
weak_one:
    .fill 8, 1, 0x90
    .size local_one, 8
    .size _alias_under, 8
    .size alias_global, 8
    .size weak_one, 8
    .type strong, @function
strong:
    .fill 8, 1, 0x90
    .size strong, 8
    .section .other, "ax"
    .globl other_end
other_end:
    .fill 16, 1, 0x90
    .data
    .globl object
    .type object, @object
object:
    .fill 64, 1, 0
    .size object, 64
)";

std::shared_ptr<const elf::Image> assemble(const Workshop& shop) {
  shop.write("a.S", kAssembly);
  shop.run(
      "gcc -shared -nostdlib -Wl,--build-id -o all.so a.S && objcopy --strip-symbol=gap --strip-symbol=after_end "
      "all.so a.so");
  return shop.open("a.so");
}

}  // namespace

TEST_CASE("a symbol with a size covers its bytes only") {
  const Workshop shop;
  const auto image = assemble(shop);
  const Vaddr first = address_of(*image, "first");
  CHECK(resolve_one(alone(), *image, first) == Lines{"first"});
  CHECK(resolve_one(alone(), *image, first + 15) == Lines{"first"});
  CHECK(resolve_one(alone(), *image, first + 16) == Lines{"?"});  // the gap: never the nearest symbol before it
  CHECK(resolve_one(alone(), *image, first + 31) == Lines{"?"});
}

TEST_CASE("of nested symbols the inner one is chosen, and the outer one continues after it") {
  const Workshop shop;
  const auto image = assemble(shop);
  const Vaddr outer = address_of(*image, "outer");
  CHECK(resolve_one(alone(), *image, outer) == Lines{"outer"});
  CHECK(resolve_one(alone(), *image, outer + 8) == Lines{"inner"});
  CHECK(resolve_one(alone(), *image, outer + 16) == Lines{"outer"});
}

TEST_CASE("a label without a size extends to the next function, but not beyond its section") {
  const Workshop shop;
  const auto image = assemble(shop);
  const Vaddr label = address_of(*image, "label");
  CHECK(resolve_one(alone(), *image, label) == Lines{"label"});
  CHECK(resolve_one(alone(), *image, label + 15) == Lines{"label"});
  CHECK(resolve_one(alone(), *image, label + 16) == Lines{"after_label"});
  CHECK(resolve_one(alone(), *image, label + 24) == Lines{"?"});  // a function with a size is in between
  const Vaddr other = address_of(*image, "other_end");
  CHECK(resolve_one(alone(), *image, other + 4) == Lines{"other_end"});
  const auto* section = image->section(".other");
  REQUIRE(section != nullptr);
  CHECK(resolve_one(alone(), *image, section->header.sh_addr + section->header.sh_size) == Lines{"?"});
}

TEST_CASE("a batch of addresses gives the same results as single addresses") {
  const Workshop shop;
  const auto image = assemble(shop);
  std::vector<Vaddr> addresses;
  const Vaddr start = address_of(*image, "first") - 64;
  for (Vaddr a = start; a < start + 512; ++a) addresses.push_back(a);
  addresses.insert(addresses.begin(), 0);
  addresses.push_back(~Vaddr{0});
  const auto all = Symbolizer(alone()).resolve(*image, addresses);
  REQUIRE(all.locations.size() == addresses.size());
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    INFO(std::hex << addresses[i]);
    CHECK(testing::shown(all.locations[i]) == resolve_one(alone(), *image, addresses[i]));
  }
  CHECK(Symbolizer(alone()).resolve(*image, {}).locations.empty());
}

TEST_CASE("of aliases the global one without underscores is shown") {
  const Workshop shop;
  const auto image = assemble(shop);
  CHECK(resolve_one(alone(), *image, address_of(*image, "_alias_under")) == Lines{"alias_global"});
}

TEST_CASE("data is no function") {
  const Workshop shop;
  const auto image = assemble(shop);
  CHECK(resolve_one(alone(), *image, address_of(*image, "object")) == Lines{"?"});
}

TEST_CASE("an export without a size does not cover the stripped functions after it") {
  const Workshop shop;
  shop.write("a.S", R"(
    .text
    .globl exported
exported:
    .cfi_startproc
    .fill 16, 1, 0x90
    .cfi_endproc
hidden_function:
    .cfi_startproc
    .fill 16, 1, 0x90
    .cfi_endproc
)");
  shop.run("gcc -shared -nostdlib -o a.so a.S && strip a.so");
  const auto image = shop.open("a.so");
  const Vaddr exported = address_of(*image, "exported");
  CHECK(resolve_one(alone(), *image, exported + 15) == Lines{"exported"});
  CHECK(resolve_one(alone(), *image, exported + 16) == Lines{"?"});
}

TEST_CASE("PLT entries are named by what they jump to") {
  const Workshop shop;
  shop.write("p.cc", R"(
#include <cstdlib>
void throw_it(const char*);
int main() { throw_it(std::getenv("HOME")); return std::atexit([] {}); }
)");
  shop.write("t.cc",
             "#include <stdexcept>\nvoid throw_it(const char* s) { if (*s == 0) throw std::runtime_error(s); }\n");
  shop.run("g++ -O1 -fPIC -shared t.cc -o libt.so");
  const std::string ibt = "-fcf-protection -Wl,-z,ibtplt ";
  for (const std::string& flags :
       {std::string("-Wl,-z,lazy"), std::string("-Wl,-z,now"), ibt + "-Wl,-z,lazy", ibt + "-Wl,-z,now"}) {
    INFO(flags);
    shop.run("g++ -O1 -pie -fPIE p.cc -L. -lt -o p " + flags);
    const auto image = shop.open("p");
    std::vector<std::string> names;
    for (const char* section_name : {".plt", ".plt.sec", ".plt.got"}) {
      const auto* section = image->section(section_name);
      if (section == nullptr) continue;
      for (Vaddr a = 0; a < section->header.sh_size; a += 8) {
        for (const std::string& name : resolve_one(alone(), *image, section->header.sh_addr + a)) names.push_back(name);
      }
    }
    CHECK(std::count(names.begin(), names.end(), "getenv@plt") > 0);
    CHECK(std::count(names.begin(), names.end(), "throw_it(char const*)@plt") > 0);
    CHECK(std::count_if(names.begin(), names.end(),
                        [](const std::string& n) { return n != "?" && !n.ends_with("@plt"); }) == 0);
  }
}

TEST_CASE("an image in memory has the names of its dynamic symbols") {
  const Workshop shop;
  const auto file = assemble(shop);
  const auto read = [&](Vaddr v, std::span<std::byte> into) {
    const auto there = file->at(v);
    if (there.size() < into.size()) return false;
    std::copy_n(there.begin(), into.size(), into.begin());
    return true;
  };
  auto memory = elf::Image::from_memory(read, 0, "gone.so");
  REQUIRE(memory);
  const Vaddr first = address_of(**memory, "first");
  CHECK(resolve_one(alone(), **memory, first + 3) == Lines{"first"});
  CHECK(resolve_one(alone(), **memory, first + 16) == Lines{"?"});
}

TEST_CASE("resolving in a symbol table whose symbols all overlap ends, and a problem says so") {
  const Workshop shop;
  const auto image = assemble(shop);
  // The same file, with its .symtab replaced by 30,000 copies of a symbol that covers the whole address space.
  const auto bytes = image->bytes();
  std::vector<std::byte> file(bytes.begin(), bytes.end());
  const std::uint64_t at = (file.size() + 7) / 8 * 8;
  std::vector<Elf64_Sym> symbols(30'000);
  std::uint32_t name = 0;
  for (std::size_t i = 1; i < image->static_symbols().size(); ++i) {
    if (image->static_symbols().name(image->static_symbols().at(i)) == "first")
      name = image->static_symbols().at(i).st_name;
  }
  for (Elf64_Sym& s : symbols) s = {name, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0, 1, 1, ~std::uint64_t{0}};
  file.resize(at + symbols.size() * sizeof(Elf64_Sym));
  std::memcpy(file.data() + at, symbols.data(), symbols.size() * sizeof(Elf64_Sym));
  const auto& header = *reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  for (std::size_t i = 0; i < image->sections().size(); ++i) {
    if (image->sections()[i].header.sh_type != SHT_SYMTAB) continue;
    auto* section = reinterpret_cast<Elf64_Shdr*>(file.data() + header.e_shoff) + i;
    section->sh_offset = at;
    section->sh_size = symbols.size() * sizeof(Elf64_Sym);
  }
  auto hostile = elf::Image::from_bytes(std::move(file), "hostile.so");
  REQUIRE(hostile);
  std::vector<Vaddr> addresses(5000);
  for (std::size_t i = 0; i < addresses.size(); ++i) addresses[i] = 0x1000 + i;
  const auto all = Symbolizer(alone()).resolve(**hostile, addresses);
  CHECK(all.problems ==
        std::vector<std::string>{"hostile.so: too many of its symbols overlap: not all were looked at"});
}

TEST_CASE("images are resolved in parallel") {
  const Workshop shop;
  shop.write("i.cc", "int leaf(int x) { return x * 3; }\nint outer(int x) { return leaf(x) + 1; }\n");
  shop.run("g++ -O0 -g -shared -fPIC i.cc -o i.so && g++ -O0 -g -gz -shared -fPIC i.cc -o z.so");
  const Symbolizer symbolizer(alone());
  std::vector<std::string> wrong(8);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < wrong.size(); ++t) {
      threads.emplace_back([&, t] {
        auto image = elf::Image::open(shop.path(t % 2 == 0 ? "i.so" : "z.so"), "i.so");
        const Vaddr address = (*image)->find_symbol("_Z5outeri")->value + 1;
        for (int round = 0; round < 50; ++round) {
          const auto lines = testing::shown(symbolizer.resolve(**image, std::span(&address, 1)).locations[0]);
          if (lines != Lines{"outer(int) i.cc:2"}) wrong[t] = lines.at(0);
        }
      });
    }
  }
  CHECK(wrong == std::vector<std::string>(8));
}

}  // namespace rankstacks::symbolizers
