#include "analyzers/handled.h"

#include <fmt/format.h>

#include "analyzers/names.h"
#include "known/ordinary_exceptions.h"

namespace rankstacks::analyzers {
namespace {

std::string beginning(const std::string& message) {
  constexpr std::size_t kMax = 80;
  std::string text = message.substr(0, message.find_first_of("\r\n"));
  const bool is_cut = text.size() < message.size();
  if (text.size() <= kMax) return is_cut ? text + "…" : text;
  std::size_t end = kMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // between characters
  return text.substr(0, end) + "…";
}

std::string name_of(const std::string& type, const std::optional<std::string>& message) {
  const std::string name = type.empty() ? "an exception" : type;
  return message ? fmt::format("{}(\"{}\")", name, beginning(*message)) : name;
}

}  // namespace

bool handles_exception(const ThreadSnapshot& thread) { return thread.handles.has_value(); }

bool handles_failure(const ThreadSnapshot& thread) {
  return thread.handles && !known::is_ordinary_exception(thread.handles->type);
}

std::string describe_handled(const JobSnapshot& job, const HandledException& handled, bool with_message) {
  std::string text = name_of(handled.type, with_message ? handled.message : std::nullopt);
  if (!handled.raised) return text;
  const Frame& raised = job.frames[*handled.raised];
  const std::string function = raised.qualname ? *raised.qualname : raised.function.value_or("?");
  text += fmt::format(" raised in {} at {}", function, base_name(raised.file.value_or("?")));
  return raised.line ? fmt::format("{}:{}", text, *raised.line) : text;
}

std::string describe_chained(const ChainedException& chained) {
  const std::string name = name_of(chained.type, chained.message);
  return chained.link == ExceptionLink::kCause ? fmt::format("raised from {}", name)
                                               : fmt::format("raised while {} was handled", name);
}

}  // namespace rankstacks::analyzers
