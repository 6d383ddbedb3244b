#include "python/string_hash.h"

#include <bit>
#include <cstring>

namespace rankstacks::python {
namespace {

struct SipState {
  std::uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1, v1 = std::rotl(v1, 13), v1 ^= v0, v0 = std::rotl(v0, 32);
    v2 += v3, v3 = std::rotl(v3, 16), v3 ^= v2;
    v0 += v3, v3 = std::rotl(v3, 21), v3 ^= v0;
    v2 += v1, v1 = std::rotl(v1, 17), v1 ^= v2, v2 = std::rotl(v2, 32);
  }
  void take(std::uint64_t word, int rounds) {
    v3 ^= word;
    for (int i = 0; i < rounds; ++i) round();
    v0 ^= word;
  }
};

}  // namespace

std::uint64_t hash_of(std::string_view text, const HashSecret& secret, StringHash algorithm) {
  if (text.empty()) return 0;
  const int rounds = algorithm == StringHash::kSip13 ? 1 : 2, last_rounds = algorithm == StringHash::kSip13 ? 3 : 4;
  SipState state{secret.k0 ^ 0x736f6d6570736575, secret.k1 ^ 0x646f72616e646f6d, secret.k0 ^ 0x6c7967656e657261,
                 secret.k1 ^ 0x7465646279746573};
  std::uint64_t word = 0;
  std::string_view rest = text;
  for (; rest.size() >= sizeof word; rest.remove_prefix(sizeof word)) {
    std::memcpy(&word, rest.data(), sizeof word);
    state.take(word, rounds);
  }
  word = 0;
  if (!rest.empty()) std::memcpy(&word, rest.data(), rest.size());
  state.take(word | std::uint64_t{text.size()} << 56, rounds);
  state.v2 ^= 0xff;
  for (int i = 0; i < last_rounds; ++i) state.round();
  const std::uint64_t hash = state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
  return hash == ~std::uint64_t{0} ? hash - 1 : hash;  // -1 signals an error in C
}

}  // namespace rankstacks::python
