#include "analyzers/activity_rules.h"

#include <string>

#include "analyzers/names.h"
#include "known/known_programs.h"

namespace rankstacks {
namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// "c10d::ProcessGroupGloo::allreduce(std::vector<...>&)" -> "allreduce"
std::string last_component(std::string_view function) {
  std::string name = short_function(function);
  if (const std::size_t bracket = name.rfind('('); bracket != std::string::npos && name.ends_with(')')) name.resize(bracket);
  if (const std::size_t angle = name.find('<'); angle != std::string::npos && name.ends_with("<...>")) name.resize(angle);
  const std::size_t colon = name.rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

bool holds(const ActivityRule& rule, const Frame& frame, const std::string& component) {
  switch (rule.match) {
    case ActivityMatch::kNative:
      return contains(*frame.function, rule.what);
    case ActivityMatch::kNativePrefix:
      return frame.function->starts_with(rule.what);
    case ActivityMatch::kNativeOp:
      return component == rule.what && contains(*frame.function, rule.file);
    case ActivityMatch::kPython:
      return frame.function == rule.what && contains(frame.file.value_or(""), rule.file);
    case ActivityMatch::kPythonFile:
      return contains(frame.file.value_or(""), rule.file);
  }
  return false;
}

}  // namespace

const ActivityRule* matching_activity_rule(const Frame& given) {
  if (!given.function) return nullptr;
  // MPI's profiling interface: PMPI_Recv is MPI_Recv.
  const bool profiling = given.kind == FrameKind::kNative && given.function->starts_with("PMPI_");
  Frame without_prefix;
  if (profiling) {
    without_prefix = given;
    without_prefix.function->erase(0, 1);
  }
  const Frame& frame = profiling ? without_prefix : given;
  const bool python = frame.kind == FrameKind::kPython;
  const std::string component = python ? std::string() : last_component(*frame.function);
  for (const ActivityRule& rule : known_programs().activities) {
    const bool python_rule = rule.match == ActivityMatch::kPython || rule.match == ActivityMatch::kPythonFile;
    if (python == python_rule && holds(rule, frame, component)) return &rule;
  }
  return nullptr;
}

const ActivityRule* activity_rule_of(const Frame& frame) {
  const ActivityRule* rule = matching_activity_rule(frame);
  return rule != nullptr && rule->activity != Activity::kUnknown ? rule : nullptr;
}

}  // namespace rankstacks
