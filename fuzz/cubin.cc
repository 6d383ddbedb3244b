// A cubin: looks up the functions at the addresses that it contains, and at those in the input's first bytes.
#include <elf.h>
#include <algorithm>

#include "gpu/cubin.h"
#include "input.h"
#include "symbolizers/symbolizer.h"

using namespace rankstacks;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  std::vector<Address> addresses = {0, 1, ~Address{0}, 0x7000'0000, 0x7000'0110, 0x7000'0400};
  for (int i = 0; i < 4; ++i) addresses.push_back(input.take<std::uint64_t>());
  const auto bytes = std::as_bytes(std::span(data, size));
  // Every eighth word is tried as the address of a section or a symbol.
  for (std::size_t at = 0; at + 8 <= bytes.size() && addresses.size() < 256; at += 64) {
    Address a;
    std::memcpy(&a, bytes.data() + at, sizeof a);
    addresses.push_back(a);
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  const auto found = gpu::find_functions(bytes, addresses);
  if (!found) {
    fuzz::require(!found.error().what.empty(), "an error says what is wrong");
    fuzz::require(!gpu::has_code_at(bytes, addresses), "a broken cubin has no code");
    return 0;
  }
  fuzz::require(found->size() == addresses.size(), "an answer for each address");
  bool any = false;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto& place = (*found)[i];
    if (!place) continue;
    any = true;
    fuzz::require(place->function.start <= addresses[i] && !place->function.name.empty(),
                  "a function begins before what it covers");
    fuzz::require(!place->kernel || place->kernel->start <= place->function.start, "a kernel is around its functions");
    symbolizers::demangle(place->function.name);
  }
  fuzz::require(!any || gpu::has_code_at(bytes, addresses), "where a function is there is code");
  return 0;
}
