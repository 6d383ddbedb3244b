#include "target/coredump_attributes.h"

#include <sys/xattr.h>
#include <array>

namespace rankstacks::target {
namespace {

std::string attribute(const std::string& path, const char* name) {
  std::array<char, 256> value{};
  const ssize_t n = getxattr(path.c_str(), name, value.data(), value.size());
  return n > 0 ? std::string(value.data(), static_cast<std::size_t>(n)) : std::string();
}

}  // namespace

CoredumpAttributes read_coredump_attributes(const std::string& path) {
  return {attribute(path, "user.coredump.truncated") == "1", attribute(path, "user.coredump.hostname")};
}

}  // namespace rankstacks::target
