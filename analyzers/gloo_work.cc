#include "analyzers/gloo_work.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/text.h"

namespace rankstacks::analyzers {
namespace {

// "allgather" of "gloo::allgather(gloo::AllgatherOptions&)"; std::nullopt for what gloo does inside of one, which is in
// namespaces and classes of its own.
std::optional<std::string> collective_of(const Frame& frame) {
  constexpr std::string_view kNamespace = "gloo::";
  if (frame.kind != FrameKind::kNative || !frame.function || !frame.function->starts_with(kNamespace))
    return std::nullopt;
  const std::string_view rest = std::string_view(*frame.function).substr(kNamespace.size());
  const std::size_t end = rest.find('(');
  if (end == std::string_view::npos || end == 0 || rest.substr(0, end).find_first_of(":<") != std::string_view::npos)
    return std::nullopt;
  return std::string(rest.substr(0, end));
}

bool has_function_with(const FrameTable& frames, const std::vector<FrameId>& stack, std::string_view part) {
  return std::any_of(stack.begin(), stack.end(), [&](FrameId id) {
    const Frame& frame = frames[id];
    return frame.kind == FrameKind::kNative && frame.function && contains(*frame.function, part);
  });
}

}  // namespace

std::vector<std::string> collectives_in_gloo(const FrameTable& frames, const RankSnapshot& rank,
                                             const std::vector<known::Role>& roles) {
  std::vector<std::string> found;
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    if (roles[t] != known::Role::kGlooWorker) continue;
    const std::vector<FrameId>& stack = rank.threads[t].frames;
    for (auto id = stack.rbegin(); id != stack.rend(); ++id)
      if (auto collective = collective_of(frames[*id])) {
        found.push_back(std::move(*collective));
        break;
      }
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool gloo_moves_data(const FrameTable& frames, const RankSnapshot& rank, const std::vector<known::Role>& roles) {
  for (std::size_t t = 0; t < rank.threads.size(); ++t) {
    const std::vector<FrameId>& stack = rank.threads[t].frames;
    if (roles[t] == known::Role::kGlooLoop && has_function_with(frames, stack, "::Pair::")) return true;
    if (roles[t] == known::Role::kGlooWorker && !has_function_with(frames, stack, "Buffer::wait") &&
        std::any_of(stack.begin(), stack.end(), [&](FrameId id) { return collective_of(frames[id]).has_value(); }))
      return true;
  }
  return false;
}

}  // namespace rankstacks::analyzers
