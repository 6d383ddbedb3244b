#include "analyzers/role_stack.h"

#include <string_view>
#include <unordered_map>

#include "analyzers/names.h"
#include "base/text.h"
#include "known/places.h"

namespace rankstacks::analyzers {
namespace {

bool is_library(std::string_view module) { return is_c_library(module) || is_cpp_library(module); }

bool is_wait_of_library(std::string_view function) {
  const std::string_view name = function.substr(0, function.find('('));
  if (name.starts_with("absl::"))
    return contains(name, "synchronization_internal") || contains(name, "::CondVar::") || contains(name, "::Mutex::");
  return name.starts_with("nsync::") || name.starts_with("std::this_thread::sleep") ||
         name.starts_with("void std::this_thread::sleep") || contains(name, "std::condition_variable::");
}

FrameTrait trait_in(const Frame& frame, bool in_library) {
  FrameTrait trait;
  if (frame.kind == FrameKind::kPython) {
    trait.python = true;
    trait.waits = is_place(frame, known::Place::kWait);
    trait.enters = is_place(frame, known::Place::kThreadEntry);
    return trait;
  }
  trait.starts = in_library || is_thread_start(frame);
  trait.foreign = trait.starts || (frame.function && is_wait_of_library(*frame.function));
  return trait;
}

}  // namespace

bool is_foreign(const Frame& frame) { return trait_in(frame, is_library(frame.module)).foreign; }

// Ranks share their modules, so the rules for each module are evaluated once.
FrameTraits::FrameTraits(const FrameTable& frames) {
  std::unordered_map<std::string_view, bool> libraries;
  traits_.reserve(frames.size());
  for (FrameId id = 0; id < frames.size(); ++id) {
    const auto [module, is_new] = libraries.try_emplace(frames[id].module);
    if (is_new) module->second = is_library(frames[id].module);
    traits_.push_back(trait_in(frames[id], module->second));
  }
}

RoleStack::RoleStack(const JobSnapshot& j, const ThreadSnapshot& t) : job(j), thread(t) {
  for (const FrameId id : t.frames) add(id, trait_in(j.frames[id], is_library(j.frames[id].module)));
}

RoleStack::RoleStack(const JobSnapshot& j, const ThreadSnapshot& t, const FrameTraits& traits) : job(j), thread(t) {
  for (const FrameId id : t.frames) add(id, traits[id]);
}

void RoleStack::add(FrameId id, const FrameTrait& trait) {
  if (trait.python) {
    has_python = true;
    if (!python_place && !trait.waits) python_place = id;
    if (!trait.enters) python_entry = id;
    return;
  }
  if (trait.starts) return;
  entry = id;
  if (job.frames[id].function) entry_function = id;
  if (trait.foreign) return;
  if (!innermost_own) innermost_own = id;
  ++own_frames;
}

}  // namespace rankstacks::analyzers
