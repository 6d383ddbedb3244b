#include "analyzers/handled.h"

#include <fmt/format.h>

#include "analyzers/names.h"
#include "analyzers/watchdog_reporters.h"
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

bool is_quoted(std::string_view text) {
  return text.size() > 1 && (text.front() == '\'' || text.front() == '"') && text.back() == text.front();
}

std::string name_of(const std::string& type, const std::optional<std::string>& message) {
  const std::string name = type.empty() ? "an exception" : type;
  if (!message) return name;
  const std::string text = beginning(*message);
  return is_quoted(text) ? fmt::format("{}({})", name, text) : fmt::format("{}(\"{}\")", name, text);
}

std::string describe(const JobSnapshot& job, const std::string& type, const std::optional<std::string>& message,
                     const std::optional<FrameId>& raised) {
  const std::string name = name_of(type, message);
  return raised ? fmt::format("{} raised in {}", name, describe_entry(job.frames[*raised])) : name;
}

bool is_python_failure(const ThreadSnapshot& thread) {
  return thread.handles && !known::is_ordinary_exception(thread.handles->type);
}

// If the frames of two are not both known, Python's counts: more is known of it.
bool is_cxx_innermost(const ThreadSnapshot& thread) {
  if (!thread.handles_cxx || !thread.handles) return thread.handles_cxx.has_value();
  return thread.handles_cxx->frame && thread.handles->frame && *thread.handles_cxx->frame < *thread.handles->frame;
}

}  // namespace

bool handles_exception(const ThreadSnapshot& thread) { return thread.handles || thread.handles_cxx; }

bool handles_failure(const ThreadSnapshot& thread) {
  return thread.raises_cxx || thread.handles_cxx || is_python_failure(thread);
}

std::string describe_innermost(const JobSnapshot& job, const ThreadSnapshot& thread, bool with_message) {
  if (is_cxx_innermost(thread))
    return with_message ? describe_exception(thread.handles_cxx->exception) : thread.handles_cxx->exception.type;
  return thread.handles ? describe_handled(job, *thread.handles, with_message) : "";
}

std::string describe_origin_of_innermost(const JobSnapshot& job, const ThreadSnapshot& thread, bool with_message) {
  return thread.handles && !is_cxx_innermost(thread) ? describe_origin(job, *thread.handles, with_message) : "";
}

std::string describe_failure(const JobSnapshot& job, const ThreadSnapshot& thread) {
  if (thread.raises_cxx) return "has raised " + describe_exception(thread.raises_cxx->exception);
  if (thread.handles_cxx && (is_cxx_innermost(thread) || !is_python_failure(thread)))
    return "handles " + describe_exception(thread.handles_cxx->exception);
  return is_python_failure(thread) ? "handles " + describe_with_origin(job, *thread.handles) : "";
}

std::string describe_handled(const JobSnapshot& job, const HandledException& handled, bool with_message) {
  return describe(job, handled.type, with_message ? handled.message : std::nullopt, handled.raised);
}

std::string describe_entry(const Frame& frame) {
  const std::string function = frame.qualname ? *frame.qualname : frame.function.value_or("?");
  const std::string text = fmt::format("{} at {}", function, base_name(frame.file.value_or("?")));
  return frame.line ? fmt::format("{}:{}", text, *frame.line) : text;
}

std::string describe_chained(const JobSnapshot& job, const ChainedException& chained) {
  const std::string what = describe(job, chained.type, chained.message, chained.raised);
  return chained.link == ExceptionLink::kCause ? fmt::format("raised from {}", what)
                                               : fmt::format("raised while {} was handled", what);
}

std::string describe_origin(const JobSnapshot& job, const HandledException& handled, bool with_message) {
  if (handled.chain.empty()) return "";
  const ChainedException& first = handled.chain.back();
  std::string what = describe(job, first.type, std::nullopt, first.raised);
  // At the end: a screen may have no room for it.
  if (with_message && first.message) what += ": " + beginning(*first.message);
  if (handled.chain.size() > 1) return fmt::format("raised after {} others, the first: {}", handled.chain.size(), what);
  return (first.link == ExceptionLink::kCause ? "raised from " : "raised while handling ") + what;
}

std::string describe_with_origin(const JobSnapshot& job, const HandledException& handled) {
  const std::string origin = describe_origin(job, handled);
  return describe_handled(job, handled) + (origin.empty() ? "" : ", " + origin);
}

}  // namespace rankstacks::analyzers
