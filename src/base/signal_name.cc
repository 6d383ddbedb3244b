#include "base/signal_name.h"

#include <array>

namespace rankstacks {
inline namespace base {

std::string signal_name(int number) {
  static constexpr std::array<const char*, 32> kNames = {
      nullptr, "HUP",  "INT",  "QUIT", "ILL",    "TRAP",   "ABRT",  "BUS",  "FPE",  "KILL", "USR1",
      "SEGV",  "USR2", "PIPE", "ALRM", "TERM",   "STKFLT", "CHLD",  "CONT", "STOP", "TSTP", "TTIN",
      "TTOU",  "URG",  "XCPU", "XFSZ", "VTALRM", "PROF",   "WINCH", "IO",   "PWR",  "SYS"};
  if (number <= 0 || number >= static_cast<int>(kNames.size())) return "signal " + std::to_string(number);
  return std::string("SIG") + kNames[static_cast<std::size_t>(number)];
}

}  // namespace base
}  // namespace rankstacks
