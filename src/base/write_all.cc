#include "base/write_all.h"

#include <unistd.h>
#include <cerrno>

namespace rankstacks {
inline namespace base {
namespace {

template <class Write>
int all_of(std::string_view bytes, Write&& write) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(bytes.substr(done), done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : ENOSPC;
    done += static_cast<std::size_t>(n);
  }
  return 0;
}

}  // namespace

int write_all(int descriptor, std::string_view bytes) {
  return all_of(bytes,
                [&](std::string_view rest, std::size_t) { return ::write(descriptor, rest.data(), rest.size()); });
}

int write_all_at(int descriptor, std::string_view bytes, std::uint64_t offset) {
  return all_of(bytes, [&](std::string_view rest, std::size_t done) {
    return ::pwrite(descriptor, rest.data(), rest.size(), static_cast<off_t>(offset + done));
  });
}

}  // namespace base
}  // namespace rankstacks
