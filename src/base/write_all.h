// All of some bytes into a file. write(2) writes a part without an error, as where a disk becomes full: the call after
// it says why.
#pragma once

#include <cstdint>
#include <string_view>

namespace rankstacks {
inline namespace base {

// At the file's position. Returns 0, or the errno of the call that failed.
int write_all(int descriptor, std::string_view bytes);

// From `offset` on, which does not move the file's position.
int write_all_at(int descriptor, std::string_view bytes, std::uint64_t offset);

}  // namespace base
}  // namespace rankstacks
