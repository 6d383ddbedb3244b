#include "gpu/cubin.h"

#include <catch2/catch.hpp>

#include "gpu_core_writer.h"

namespace rankstacks::gpu {
namespace {

using namespace testing;

// "function+0x10 in kernel+0x110", or "nothing".
std::string at(const Bytes& cubin, Address address) {
  const Address addresses[] = {address};
  const auto found = find_functions(cubin, addresses);
  if (!found) return found.error().message();
  if (!found->front()) return "nothing";
  const CubinPlace& place = *found->front();
  const auto text = [&](const CubinFunction& f) {
    return std::string(f.name) + "+" + std::to_string(address - f.start);
  };
  return text(place.function) + (place.kernel ? " in " + text(*place.kernel) : "");
}

std::string error_of(CubinWriter cubin) { return at(cubin.write(), kSpinCode); }

TEST_CASE("functions of a cubin: the innermost, and the kernel around it") {
  const Bytes cubin = spin_cubin().write();
  CHECK(at(cubin, kSpinCode) == "_Z4spinPi+0 in _Z4spinPi+0");
  CHECK(at(cubin, kSpinCode + 0xff) == "_Z4spinPi+255 in _Z4spinPi+255");
  CHECK(at(cubin, kSpinCode + 0x100) == "_Z5inneri+0 in _Z4spinPi+256");
  CHECK(at(cubin, kSpinCode + 0x17f) == "_Z5inneri+127 in _Z4spinPi+383");
  CHECK(at(cubin, kSpinCode + 0x180) == "_Z4spinPi+384 in _Z4spinPi+384");
  CHECK(at(cubin, kSpinCode + 0x3ff) == "_Z4spinPi+1023 in _Z4spinPi+1023");
  CHECK(at(cubin, kSpinCode + 0x400) == "nothing");
  CHECK(at(cubin, kSpinCode - 1) == "nothing");
}

TEST_CASE("what is not loaded has no address, what was loaded later counts from its section") {
  CubinWriter cubin = spin_cubin();
  cubin.code.push_back({"_Z5laterv", 0, 0x200, {{"_Z5laterv", 0, 0x200, true}}});
  cubin.code.push_back({"_Z4lazyv", 0x7100'0000, 0x200, {{"_Z4lazyv", 0x40, 0x100, false}}, true});
  CHECK(at(cubin.write(), 0x10) == "nothing");
  CHECK(at(cubin.write(), 0x7100'0000) == "nothing");
  CHECK(at(cubin.write(), 0x7100'0048) == "_Z4lazyv+8");
}

TEST_CASE("of two names for one code the global one, and internal names without what makes them unique") {
  CubinWriter cubin;
  cubin.code = {
      {"f",
       kSpinCode,
       0x100,
       {{"local", 0, 0x100, false, false}, {"shared", 0, 0x100, false, true}, {"local2", 0, 0x100, false, false}}},
      {"g", kSpinCode + 0x1000, 0x100, {{"__nv_static_8__abcdef0__Z1gv", 0, 0x100}}},
      {"h", kSpinCode + 0x2000, 0x100, {{"__nv_static_99__abc", 0, 0x100}}}};
  CHECK(at(cubin.write(), kSpinCode) == "shared+0");
  CHECK(at(cubin.write(), kSpinCode + 0x1000) == "_Z1gv+0");
  CHECK(at(cubin.write(), kSpinCode + 0x2000) == "__nv_static_99__abc+0");
}

TEST_CASE("a cubin of more sections than its header can count") {
  CubinWriter cubin = spin_cubin();
  cubin.padding_sections = 70'000;
  CHECK(at(cubin.write(), kSpinCode + 0x110) == "_Z5inneri+16 in _Z4spinPi+272");
}

TEST_CASE("whether code is at an address") {
  const Bytes cubin = spin_cubin().write();
  const auto has = [&](std::vector<Address> addresses) { return has_code_at(cubin, addresses); };
  CHECK(has({1, kSpinCode}));
  CHECK(has({kSpinCode + 0x3ff}));
  CHECK_FALSE(has({1, kSpinCode - 1, kSpinCode + 0x400}));
  CHECK_FALSE(has({}));
  CHECK_FALSE(has_code_at({}, std::vector<Address>{kSpinCode}));
}

TEST_CASE("damaged cubins") {
  CHECK(at({}, 1) == "cubin: no ELF file");
  CubinWriter cubin = spin_cubin();
  cubin.change_header = [](Elf64_Ehdr& h) { h.e_machine = EM_X86_64; };
  CHECK(error_of(cubin) == "cubin: an ELF file of machine 62 where 190 (CUDA) is expected (at 0x12)");
  cubin.change_header = [](Elf64_Ehdr& h) { h.e_shoff = 0; };
  CHECK(error_of(cubin) == "cubin: it has no sections (at 0x28)");
  cubin.change_header = [](Elf64_Ehdr& h) { h.e_shentsize = 65; };
  CHECK(error_of(cubin) == "cubin: section headers of 65 bytes where 64 are expected (at 0x3a)");
  cubin.change_header = [](Elf64_Ehdr& h) { h.e_shoff = ~std::uint64_t{0}; };
  CHECK(error_of(cubin) == "cubin: the section headers lie outside the file (at 0xffffffffffffffff)");
  cubin.change_header = [](Elf64_Ehdr& h) { h.e_shnum = 100; };
  CHECK(error_of(cubin).starts_with("cubin: 95 of 100 section headers are missing (at 0x"));
  cubin.change_header = {};

  const auto with = [&](auto change) {
    cubin.change_sections = [change](std::vector<CubinSection>& s) { change(s); };
    return error_of(cubin);
  };
  CHECK(with([](auto& s) { s[0].header.sh_addr = ~std::uint64_t{0} - 8; }) ==
        "nothing");                                                        // its end lies beyond all addresses
  CHECK(with([](auto& s) { s[0].header.sh_flags = 0; }) == "nothing");     // no code
  CHECK(with([](auto& s) { s[0].header.sh_size = 0x3ff; }) == "nothing");  // shorter than its function
  CHECK(with([](auto& s) { s[1].header.sh_link = 77; }) == "nothing");     // no names
  CHECK(with([](auto& s) { s[1].header.sh_offset = ~std::uint64_t{0}; }) == "nothing");  // no symbols
  CHECK(with([](auto& s) { s[1].header.sh_type = SHT_NOBITS; }) == "nothing");
}

TEST_CASE("a cubin of overlapping functions alone ends in time") {
  CubinWriter cubin;
  cubin.code = {{"f", kSpinCode, 0x10'0000, {}}};
  for (int i = 0; i < 20'000; ++i) cubin.code[0].functions.push_back({"f", 0, 0x10'0000});
  std::vector<Address> addresses;
  for (Address a = 0; a < 20'000; ++a) addresses.push_back(kSpinCode + a);
  const auto found = find_functions(cubin.write(), addresses);
  REQUIRE(found);
  CHECK(found->front());
  CHECK(found->back());
}

}  // namespace
}  // namespace rankstacks::gpu
