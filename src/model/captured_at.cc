#include "model/captured_at.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace rankstacks {
inline namespace model {

std::string captured_at_text(std::chrono::system_clock::time_point time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
}

}  // namespace model
}  // namespace rankstacks
