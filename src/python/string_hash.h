// The hash of a str as CPython computes it: SipHash, keyed by the process's own secret, _Py_HashSecret.
#pragma once

#include <cstdint>
#include <string_view>

namespace rankstacks::python {

struct HashSecret {
  std::uint64_t k0 = 0, k1 = 0;
};

// SipHash-2-4 up to 3.10, SipHash-1-3 since; builds may choose. The hash of a str of characters below U+0080, over its
// bytes as stored.
enum class StringHash { kSip13, kSip24 };

std::uint64_t hash_of(std::string_view text, const HashSecret& secret, StringHash algorithm);

}  // namespace rankstacks::python
