// The fields of /proc/PID/fdinfo/N that are used here. Format: proc(5), Documentation/filesystems/proc.rst 3.8.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "target/file_locks.h"

namespace rankstacks::target {

struct DescriptorInfo {
  // A descriptor that an epoll descriptor watches.
  struct Watched {
    int fd = -1;
    std::uint32_t events = 0;
    // Of the file that was added to the epoll descriptor; the number may mean another file by now.
    std::optional<std::uint64_t> inode = {};
    bool operator==(const Watched&) const = default;
  };
  std::optional<int> access;           // O_RDONLY, O_WRONLY, O_RDWR
  std::optional<std::uint64_t> inode;  // Linux 5.14 and later
  std::vector<FileLock> locks;         // held through this descriptor
  std::vector<Watched> watched;
  std::optional<Pid> process;  // of a pidfd; std::nullopt: it has ended

  bool reads() const;
  bool writes() const;
};

DescriptorInfo parse_descriptor_info(std::string_view text);

// std::nullopt if the process may not be inspected, or has no such descriptor.
std::optional<DescriptorInfo> descriptor_info(Pid pid, int fd);

}  // namespace rankstacks::target
