#include "target/abort_message.h"

#include <elf.h>
#include <algorithm>

namespace rankstacks::target {
namespace {

constexpr std::size_t kMaxLibraries = 4;  // copies of the C library in one process: dlmopen

// Up to the first 0. The size is a whole number of pages, and the message is not longer than its mapping.
std::optional<std::string> message_at(const Target& target, Address at) {
  constexpr std::uint32_t kPage = 4096;
  const auto size = target.read_value<std::uint32_t>(at);
  if (!size || *size == 0 || *size % kPage != 0) return std::nullopt;
  std::string text(std::min<std::size_t>(*size - sizeof *size, kMaxAbortMessage), '\0');
  text.resize(target.read(at + sizeof *size, std::as_writable_bytes(std::span(text.data(), text.size()))));
  text.resize(std::min(text.find('\0'), text.size()));
  text.resize(text.find_last_not_of(" \t\r\n") + 1);
  if (text.empty()) return std::nullopt;
  return text;
}

}  // namespace

std::vector<Address> find_abort_messages(const ModuleMap& modules) {
  std::vector<Address> found;
  for (const Module& module : modules.all()) {
    if (!module.image || found.size() == kMaxLibraries) continue;
    const auto symbol = module.image->find_exported("__abort_msg");
    if (symbol && symbol->type == STT_OBJECT) found.push_back(module.to_address(symbol->value));
  }
  return found;
}

std::optional<std::string> read_abort_message(const Target& target, std::span<const Address> variables) {
  for (const Address variable : variables) {
    const auto at = target.read_value<Address>(variable);
    if (!at || *at == 0) continue;
    if (auto message = message_at(target, *at)) return message;
  }
  return std::nullopt;
}

}  // namespace rankstacks::target
