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

}  // namespace rankstacks::known
