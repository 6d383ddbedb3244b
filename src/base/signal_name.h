// Names of signals. sigabbrev_np() would be glibc's 2.32, and strsignal() gives a description in the locale's language.
#pragma once

#include <string>

namespace rankstacks {
inline namespace base {

// "SIGKILL"; "signal 40" for one without a name of its own. Numbers are those of Linux on x86-64 (signal(7)).
std::string signal_name(int number);

}  // namespace base
}  // namespace rankstacks
