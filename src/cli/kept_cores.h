// What `rankstacks core-handler` keeps in its directory: so many processes' cores, of so many bytes, and so much free
// space in addition to them. The oldest cores are removed, but never the first one and the newest.
//
// Only files that the handler has written are removed. A list in the directory (kListName) has their inodes and names,
// the oldest first; its lock makes one handler after the other remove and add. What another program or a user has put
// there is neither counted nor touched, whatever its name is.
//
// Cores are written without that lock, so that none waits for another: while several are written at once they may
// exceed the limits, and the last handler to be ready removes what is too much.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/result.h"

namespace rankstacks::cli {

struct KeepLimits {
  std::size_t keep = 64;                   // processes
  std::optional<std::uint64_t> max_bytes;  // std::nullopt: a tenth of the file system
  std::optional<std::uint64_t> keep_free;  // std::nullopt: a twentieth of it, at most 4 GB
};

class KeptCores {
 public:
  static constexpr const char* kListName = ".rankstacks-core-handler";

  // Borrows `directory`, which messages call `called`.
  KeptCores(const FileDescriptor& directory, std::string called, const KeepLimits& limits);

  // A full core leaves `keep_free`; a small one, which is worth more, is written if it fits.
  enum class Size { kSmall, kFull };
  // Before a core of the process `base` (the name of its files without their ending) takes this many bytes more. An
  // error of the code kLimit: there is no room, even without the older cores. Other errors: nothing could be removed.
  Result<void> make_room(const std::string& base, std::uint64_t bytes, Size size) const;
  // A file was written under this name; removes what is too much now.
  Result<void> add(const std::string& base, const std::string& name) const;

 private:
  struct File {
    std::uint64_t inode = 0;
    std::string base, name;
    std::uint64_t bytes = 0;
  };
  class List;

  struct Space {
    std::uint64_t available = 0, total = 0;
  };
  Space space() const;
  void remove_beyond(List& list, const std::string& base, std::uint64_t bytes) const;
  std::uint64_t missing(std::uint64_t bytes) const;  // of free space

  const FileDescriptor& directory_;
  std::string called_;
  KeepLimits limits_;
};

}  // namespace rankstacks::cli
