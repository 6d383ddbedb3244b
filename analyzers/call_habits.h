// In which order a rank calls the collectives of its groups, step by step, as PyTorch's Flight Recorder has it: of two
// ranks that wait for each other in two groups, the one that did otherwise than in all the steps before is the odd one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "model/flight_record.h"

namespace rankstacks::analyzers {

enum class Habit : std::uint8_t {
  kKept,
  kLess,  // fewer calls than ever before
  kMore,
};

// How often the rank has called collectives of group `counted` between its last two of group `between`, as compared
// with the times before (indices into FlightRecord::groups). std::nullopt: these differ, or are fewer than two, or it
// had called none.
std::optional<Habit> habit_of(const FlightRecord& record, std::size_t between, std::size_t counted);

}  // namespace rankstacks::analyzers
