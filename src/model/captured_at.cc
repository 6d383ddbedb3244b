#include "model/captured_at.h"

#include <cstdint>
#include <cstdio>

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace rankstacks {
inline namespace model {
namespace {

// Days since 1970-01-01 of a date of the Gregorian calendar.
std::int64_t days_from_civil(std::int64_t year, int month, int day) {
  year -= month <= 2;
  const std::int64_t era = (year >= 0 ? year : year - 399) / 400;
  const std::int64_t year_of_era = year - era * 400;
  const std::int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

}  // namespace

std::string captured_at_text(std::chrono::system_clock::time_point time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
}

std::optional<double> captured_at_ms(const std::string& captured_at) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, used = 0;
  double second = 0;
  if (std::sscanf(captured_at.c_str(), "%4d-%2d-%2dT%2d:%2d:%lfZ%n", &year, &month, &day, &hour, &minute, &second,
                  &used) != 6)
    return std::nullopt;
  if (used == 0 || static_cast<std::size_t>(used) != captured_at.size()) return std::nullopt;
  if (month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 || hour > 23 || minute < 0 || minute > 59 ||
      !(second >= 0 && second < 61))
    return std::nullopt;
  const std::int64_t minutes = (days_from_civil(year, month, day) * 24 + hour) * 60 + minute;
  return static_cast<double>(minutes) * 60'000 + second * 1'000;
}

}  // namespace model
}  // namespace rankstacks
