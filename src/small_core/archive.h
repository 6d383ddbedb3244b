// Archives of small cores: ustar (POSIX.1-1988), which tar, bsdtar and Python read. Only what a capture needs: regular
// files without directories, names of up to 100 bytes.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rankstacks::small_core {

inline constexpr std::size_t kTarBlock = 512;
inline constexpr std::size_t kLongestMemberName = 100;

// The header of a file, and the end of an archive. The bytes of the file follow its header, up to a whole block.
std::vector<std::byte> tar_header(std::string_view name, std::uint64_t size, std::time_t time);
std::vector<std::byte> tar_end();
std::size_t tar_padding(std::uint64_t size);

// Whether these are the first bytes of an archive.
bool is_tar(std::span<const std::byte> first_bytes);

struct TarMember {
  std::string name;  // without directories
  std::span<const std::byte> bytes;
};

// The regular files of an archive, of which there may be `most`. The input is untrusted: a name counts from its last
// slash on; links, devices and directories are left out. Errors: kMalformed, at the offset where it is damaged; kLimit.
Result<std::vector<TarMember>> read_tar(std::span<const std::byte> archive, const std::string& subject,
                                        std::size_t most);

}  // namespace rankstacks::small_core
