#include "python/faulthandler.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

#include "base/signal_name.h"

namespace rankstacks::python {
namespace {

struct Handler {
  std::int32_t signal, enabled;
  std::uint64_t name;
  std::array<std::byte, 160> rest;  // struct sigaction, and an int
};
static_assert(sizeof(Handler) == 176);

constexpr std::array<int, 5> kSignals = {SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSEGV};
using Handlers = std::array<Handler, kSignals.size()>;

// As the file has it: nothing is enabled, and no handler was there before.
bool is_first_state(std::span<const std::byte> bytes) {
  Handlers handlers;
  if (bytes.size() < sizeof handlers) return false;
  std::memcpy(&handlers, bytes.data(), sizeof handlers);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    const Handler& handler = handlers[i];
    if (handler.signal != kSignals[i] || handler.enabled != 0) return false;
    if (std::any_of(handler.rest.begin(), handler.rest.end(), [](std::byte b) { return b != std::byte{0}; }))
      return false;
  }
  return true;
}

// The descriptor in fatal_error of _PyRuntime, pycore_faulthandler.h, 3.12-3.15: int enabled; PyObject* file; int fd;
// int all_threads; PyInterpreterState* interp.
std::optional<int> descriptor_of(const target::Target& target, const Layout& layout, const RuntimeCandidate& runtime,
                                 std::span<const Address> interpreters) {
  struct FatalError {
    std::int32_t enabled, padding;
    std::uint64_t file;
    std::int32_t descriptor, all_threads;
    std::uint64_t interpreter;
  };
  constexpr std::int32_t kMaxAllThreads = 2;  // FT_IGNORE_ALL_THREADS, 3.14
  if (layout.runtime_faulthandler == kAbsent) return std::nullopt;
  const auto found = target.read_value<FatalError>(runtime.runtime + layout.runtime_faulthandler);
  if (!found || found->enabled != 1 || found->descriptor < 0 || found->all_threads < 0 ||
      found->all_threads > kMaxAllThreads)
    return std::nullopt;
  const bool is_of_process = std::count(interpreters.begin(), interpreters.end(), found->interpreter) > 0;
  return is_of_process ? std::optional<int>(found->descriptor) : std::nullopt;
}

}  // namespace

std::optional<Vaddr> find_faulthandler(const elf::Image& image) {
  constexpr std::size_t kMaxData = 64 << 20;  // of a segment; an interpreter linked with many modules has 10 MB
  std::optional<Vaddr> found;
  for (const Elf64_Phdr& load : image.loads()) {
    if ((load.p_flags & PF_W) == 0) continue;
    auto data = image.at(load.p_vaddr);
    data = data.first(std::min(data.size(), kMaxData));
    for (std::size_t at = (8 - load.p_vaddr % 8) % 8; at + sizeof(Handlers) <= data.size(); at += 8) {
      std::int32_t signal;
      std::memcpy(&signal, data.data() + at, sizeof signal);
      if (signal != kSignals.front() || !is_first_state(data.subspan(at))) continue;
      if (found) return std::nullopt;
      found = load.p_vaddr + at;
    }
  }
  return found;
}

std::optional<Faulthandler> read_faulthandler(const target::Target& target, const Layout& layout,
                                              const RuntimeCandidate& runtime, std::span<const Address> interpreters) {
  if (runtime.faulthandler == 0) return std::nullopt;
  const auto handlers = target.read_value<Handlers>(runtime.faulthandler);
  if (!handlers) return std::nullopt;
  Faulthandler faulthandler;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    const Handler& handler = (*handlers)[i];
    if (handler.signal != kSignals[i] || (handler.enabled != 0 && handler.enabled != 1)) return std::nullopt;
    (handler.enabled ? faulthandler.signals : faulthandler.called).push_back(signal_name(handler.signal));
  }
  if (faulthandler.signals.empty()) return Faulthandler();  // not enabled: none was called
  faulthandler.descriptor = descriptor_of(target, layout, runtime, interpreters);
  return faulthandler;
}

}  // namespace rankstacks::python
