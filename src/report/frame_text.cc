#include "report/frame_text.h"

#include <fmt/format.h>

#include "analyzers/names.h"
#include "report/sanitize.h"

namespace rankstacks::report {
namespace {

std::string unknown_name(const Frame& frame) {
  if (frame.kind == FrameKind::kPython) return "?";
  if (frame.module.empty()) return fmt::format("{:#x}", frame.address);
  if (!frame.offset) return fmt::format("{} {:#x}", sanitize(analyzers::base_name(frame.module)), frame.address);
  return fmt::format("{}+{:#x}", sanitize(analyzers::base_name(frame.module)), *frame.offset);
}

std::string with_line(std::string file, const std::optional<int>& line) {
  return line ? fmt::format("{}:{}", file, *line) : file;
}

// ".../site-packages/torch/_tensor.py" -> "…/torch/_tensor.py", "/usr/lib/python3.11/threading.py" -> "…/threading.py"
std::string short_library_path(const std::string& file) {
  for (const std::string_view root : {"/site-packages/", "/dist-packages/"})
    if (const std::size_t at = file.rfind(root); at != std::string::npos) return "…/" + file.substr(at + root.size());
  const std::size_t lib = file.rfind("/python3");
  const std::size_t slash = lib == std::string::npos ? lib : file.find('/', lib + 1);
  if (!file.starts_with('<') && slash != std::string::npos) return "…" + file.substr(slash);
  return file;
}

}  // namespace

std::string frame_name(const Frame& frame) {
  if (frame.kind == FrameKind::kPython) {
    if (frame.qualname) return sanitize(*frame.qualname);
    return frame.function ? sanitize(*frame.function) : unknown_name(frame);
  }
  if (!frame.function) return unknown_name(frame);
  return sanitize(analyzers::is_c_library(frame.module) ? analyzers::public_libc_name(*frame.function)
                                                        : analyzers::short_function(*frame.function));
}

std::string brief_frame_name(const Frame& frame) {
  if (frame.kind == FrameKind::kPython || !frame.function) return frame_name(frame);
  std::string name = frame_name(frame);
  if (const std::size_t open = name.rfind('(');
      name.ends_with(')') && open != std::string::npos && open > 0 && name[open - 1] != ':')
    name.resize(open);
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  for (std::size_t at = name.find(kAnonymous); at != std::string::npos; at = name.find(kAnonymous))
    name.erase(at, kAnonymous.size());
  // The class and the function; template arguments and lambdas have been cut already.
  const std::size_t last = name.rfind("::");
  const std::size_t before = last == std::string::npos || last == 0 ? last : name.rfind("::", last - 1);
  return before == std::string::npos || before == last ? name : name.substr(before + 2);
}

std::string full_frame_name(const Frame& frame) {
  if (frame.kind == FrameKind::kPython || !frame.function) return frame_name(frame);
  return sanitize(*frame.function);
}

std::string frame_place(const Frame& frame) {
  if (frame.kind == FrameKind::kPython) {
    const std::string file = frame.file.value_or("?");
    return sanitize(with_line(known::is_library_file(file) ? short_library_path(file) : file, frame.line));
  }
  if (frame.file) return sanitize(with_line(std::string(analyzers::base_name(*frame.file)), frame.line));
  return frame.function ? sanitize(analyzers::base_name(frame.module)) : "";
}

std::string full_frame_place(const Frame& frame) {
  if (frame.file) return sanitize(with_line(*frame.file, frame.line));
  if (frame.kind == FrameKind::kPython || frame.module.empty()) return "";
  return frame.offset ? fmt::format("{}+{:#x}", sanitize(frame.module), *frame.offset) : sanitize(frame.module);
}

std::string fit_place(const std::string& place, std::size_t width) {
  if (columns_of(place) <= width) return place;
  for (std::size_t slash = place.find('/', 1); slash != std::string::npos; slash = place.find('/', slash + 1)) {
    std::string candidate = "…" + place.substr(slash);
    if (columns_of(candidate) <= width) return candidate;
  }
  return cut_start(place, width);
}

}  // namespace rankstacks::report
