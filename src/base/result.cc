#include "base/result.h"

#include <fmt/format.h>
#include <cstring>

namespace rankstacks {
inline namespace base {

std::string Error::message() const {
  std::string text = subject.empty() ? what : subject + ": " + what;
  if (where) text += fmt::format(" (at {:#x})", *where);
  if (os_errno != 0) text += fmt::format(": {}", std::strerror(os_errno));
  return text;
}

}  // namespace base
}  // namespace rankstacks
