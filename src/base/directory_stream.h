// opendir's stream, closed at the end of its scope.
#pragma once

#include <dirent.h>
#include <memory>

namespace rankstacks {
inline namespace base {

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};
using DirectoryStream = std::unique_ptr<DIR, CloseDirectory>;

}  // namespace base
}  // namespace rankstacks
