// The dynamic loader's list of libraries, /etc/ld.so.cache, which ldconfig writes.
//
//     "glibc-ld.so.cache1.1" | count u32 | length of the strings u32 | 20 bytes | count entries of 24 bytes | strings
//
//     an entry: flags i32 | name u32 | path u32 | 12 bytes; offsets are from the start of this header
//
// Before glibc 2.32 an older table may come in front of it. Source: glibc, sysdeps/generic/dl-cache.h.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rankstacks::gpu {

// The x86-64 libraries of that name, in the order of the cache; empty for a damaged cache.
std::vector<std::string> paths_in_loader_cache(std::span<const std::byte> cache, std::string_view name);

}  // namespace rankstacks::gpu
