#include "base/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>

#include "base/write_all.h"

namespace rankstacks {
inline namespace base {
int write_whole_file(const FileDescriptor& directory, const std::string& name, std::string_view bytes,
                     const std::optional<FileOwner>& owner) {
  const std::string temporary = fmt::format(".{}.{}", name, getpid());
  unlinkat(directory.get(), temporary.c_str(), 0);  // of an earlier process with this pid
  FileDescriptor file(openat(directory.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                             S_IRUSR | S_IWUSR));
  if (!file.is_open()) return errno;
  int why = write_all(file.get(), bytes);
  if (why == 0 && fsync(file.get()) != 0) why = errno;
  if (why == 0 && owner && fchown(file.get(), owner->user, owner->group) != 0) why = errno;
  if (const int at_close = file.close(); why == 0) why = at_close;
  if (why == 0 && renameat(directory.get(), temporary.c_str(), directory.get(), name.c_str()) != 0) why = errno;
  if (why == 0) fsync(directory.get());  // some file systems do not sync directories; the file itself is whole
  else unlinkat(directory.get(), temporary.c_str(), 0);
  return why;
}

}  // namespace base
}  // namespace rankstacks
