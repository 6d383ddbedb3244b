// Writes a file so that nobody ever sees a part of it, also after a full disk or the end of the machine: under a
// temporary name, synced, and then renamed.
#pragma once

#include <sys/types.h>
#include <optional>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"

namespace rankstacks {
inline namespace base {

struct FileOwner {
  uid_t user = 0;
  gid_t group = 0;
};

// `name` is that of a file in `directory`, which is replaced if it exists. The file can be read by its owner alone.
// Returns 0, or the errno of the call that failed; then nothing is left of it.
int write_whole_file(const FileDescriptor& directory, const std::string& name, std::string_view bytes,
                     const std::optional<FileOwner>& owner = std::nullopt);

}  // namespace base
}  // namespace rankstacks
