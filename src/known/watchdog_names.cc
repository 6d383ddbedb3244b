#include "known/watchdog_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "base/text.h"

namespace rankstacks::known {
namespace {

// clang-format off
constexpr std::array<std::string_view, 9> kWords{{
    "watchdog",      // the common word: pytorch's and systemd's are called so
    "heartbeat",     // pytorch's HeartbeatMonitor
    "monitor",       // megatron-lm, nvidia-resiliency-ext: monitor threads and processes
    "hang",          // hang_detector; deepspeed and megatron-lm speak of hangs
    "stall",         // horovod's stall inspector
    "deadlock",
    "liveness",
    "timeout",
    "noprogress",
}};
// clang-format on

}  // namespace

std::span<const std::string_view> watchdog_words() { return kWords; }

bool is_watchdog_name(std::string_view name) {
  std::string letters;
  for (const unsigned char c : name.substr(0, name.find('(')))
    if (std::isalnum(c)) letters += static_cast<char>(std::tolower(c));
  if (contains(letters, "change") || contains(letters, "install")) return false;  // "exchange", "install"
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view word) { return contains(letters, word); });
}

}  // namespace rankstacks::known
