#include "capture/user_names.h"

#include <charconv>
#include <utility>

#include "target/proc.h"

namespace rankstacks::capture {
namespace {

std::optional<long> number(std::string_view text) {
  long value = 0;
  const auto [p, e] = std::from_chars(text.data(), text.data() + text.size(), value);
  return e == std::errc() && p == text.data() + text.size() && value >= 0 ? std::optional(value) : std::nullopt;
}

// Takes what is before the next separator off the text.
std::string_view take(std::string_view& text, char separator) {
  const std::string_view field = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), field.size() + 1));
  return field;
}

// A line of passwd(5): NAME:PASSWORD:UID:...
std::pair<std::string_view, std::optional<long>> user_in(std::string_view line) {
  const std::string_view name = take(line, ':');
  take(line, ':');
  return {name, number(take(line, ':'))};
}

}  // namespace

UserNames UserNames::of_this_machine() {
  const auto text = target::proc::read_file("/etc/passwd", 16u << 20);
  return UserNames(text ? *text : std::string());
}

std::string UserNames::name_of(long uid) const {
  for (std::string_view rest = passwd_; !rest.empty();)
    if (const auto [name, of] = user_in(take(rest, '\n')); of == uid && !name.empty()) return std::string(name);
  return std::to_string(uid);
}

std::optional<long> UserNames::uid_of(std::string_view wanted) const {
  for (std::string_view rest = passwd_; !rest.empty();)
    if (const auto [name, uid] = user_in(take(rest, '\n')); uid && name == wanted) return uid;
  return number(wanted);
}

}  // namespace rankstacks::capture
