#include "known/ordinary_exceptions.h"

#include <algorithm>
#include <array>

namespace rankstacks::known {

bool is_ordinary_exception(std::string_view type) {
  // Python Library Reference, "Built-in Exceptions", "queue".
  constexpr std::array<std::string_view, 5> kOrdinary = {"StopIteration", "StopAsyncIteration", "GeneratorExit",
                                                         "Empty", "Full"};
  return std::find(kOrdinary.begin(), kOrdinary.end(), type.substr(type.rfind('.') + 1)) != kOrdinary.end();
}

bool is_lost_connection(std::string_view type) {
  // Python Library Reference, "OS exceptions"; multiprocessing.connection raises EOFError where the other end is gone.
  constexpr std::array<std::string_view, 4> kLost = {"BrokenPipeError", "ConnectionAbortedError",
                                                     "ConnectionResetError", "EOFError"};
  return std::find(kLost.begin(), kLost.end(), type.substr(type.rfind('.') + 1)) != kLost.end();
}

}  // namespace rankstacks::known
