#include "analyzers/activity_rules.h"

#include <string>
#include <string_view>

#include "analyzers/names.h"
#include "base/text.h"
#include "known/known_programs.h"

namespace rankstacks::analyzers {
namespace {

// "c10d::ProcessGroupGloo::allreduce(std::vector<...>&)" -> "allreduce"
std::string last_component(std::string_view function) {
  std::string name = short_function(function);
  if (const std::size_t bracket = name.rfind('('); bracket != std::string::npos && name.ends_with(')'))
    name.resize(bracket);
  if (const std::size_t angle = name.find('<'); angle != std::string::npos && name.ends_with("<...>"))
    name.resize(angle);
  // Cython: "__pyx_pw_6mpi4py_3MPI_4Comm_199allreduce", the method and its number in the module
  if (name.starts_with("__pyx_pw_") || name.starts_with("__pyx_pf_"))
    if (const std::size_t digit = name.find_last_of("0123456789"); digit != std::string::npos)
      return name.substr(digit + 1);
  const std::size_t colon = name.rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

bool holds(const known::ActivityRule& rule, std::string_view function, std::string_view file,
           std::string_view component) {
  switch (rule.match) {
    case known::ActivityMatch::kNative: return contains(function, rule.what);
    case known::ActivityMatch::kNativePrefix: return function.starts_with(rule.what);
    case known::ActivityMatch::kNativeOp: return component == rule.what && contains(function, rule.file);
    case known::ActivityMatch::kPython:
    case known::ActivityMatch::kPythonWaits: return function == rule.what && contains(file, rule.file);
    case known::ActivityMatch::kPythonFile: return contains(file, rule.file);
  }
  return false;
}

// The first rule that holds, whatever it says; nullptr if there is none.
const known::ActivityRule* matching_rule(const Frame& frame) {
  if (!frame.function) return nullptr;
  const bool python = frame.kind == FrameKind::kPython;
  std::string_view function = *frame.function;
  const std::string_view file = frame.file ? std::string_view(*frame.file) : std::string_view();
  if (!python && function.starts_with("PMPI_"))
    function.remove_prefix(1);  // MPI's profiling interface: PMPI_Recv is MPI_Recv
  const std::string component = python ? std::string() : last_component(function);
  for (const known::ActivityRule& rule : known::known_programs().activities) {
    const bool python_rule = rule.match == known::ActivityMatch::kPython ||
                             rule.match == known::ActivityMatch::kPythonFile ||
                             rule.match == known::ActivityMatch::kPythonWaits;
    if (python == python_rule && holds(rule, function, file, component)) return &rule;
  }
  return nullptr;
}

}  // namespace

const known::ActivityRule* activity_rule_of(const Frame& frame) {
  const known::ActivityRule* rule = matching_rule(frame);
  return rule != nullptr && rule->activity != known::Activity::kUnknown ? rule : nullptr;
}

}  // namespace rankstacks::analyzers
