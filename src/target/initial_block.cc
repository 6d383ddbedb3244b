#include "target/initial_block.h"

#include <elf.h>
#include <algorithm>
#include <cctype>
#include <cstring>
#include <string_view>

#include "elf/bytes.h"
#include "target/environment_block.h"

namespace rankstacks::target {
namespace {

// Arguments and environment take 6 MB at most, including pointers (Linux fs/exec.c, bprm_stack_limits()). Nothing is
// searched for at a greater depth.
constexpr std::size_t kDeepest = 16 << 20;
constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::size_t kMaxText = 8 << 20;  // of all strings together: all pointers may lead to the same one

class StackTop {
 public:
  StackTop(std::span<const std::byte> stack, Address start) : bytes_(stack), start_(start) {
    if (bytes_.size() <= kDeepest) return;
    start_ += bytes_.size() - kDeepest;
    bytes_ = bytes_.last(kDeepest);
  }

  InitialBlock read(const AuxiliaryVector& auxv) {
    InitialBlock block;
    if (const auto at = find_auxv(auxv); at && read_pointers(*at, block)) return block;
    block = {};
    if (const auto name = value_of(auxv, AT_EXECFN)) read_strings_below(*name, block);
    return block;
  }

 private:
  std::uint64_t word(std::size_t at) const { return *elf::load<std::uint64_t>(bytes_, at); }

  // The topmost copy: a program that reads its own vector has more copies further down.
  std::optional<std::size_t> find_auxv(const AuxiliaryVector& auxv) const {
    if (auxv.empty()) return std::nullopt;
    std::vector<std::uint64_t> wanted;
    for (const auto& [type, value] : auxv) wanted.insert(wanted.end(), {type, value});
    wanted.insert(wanted.end(), {AT_NULL, 0});
    const std::size_t size = wanted.size() * kWord;
    if (bytes_.size() < size) return std::nullopt;
    for (std::size_t at = (bytes_.size() - size) / kWord * kWord;; at -= kWord) {
      if (word(at) == wanted[0] && std::memcmp(bytes_.data() + at, wanted.data(), size) == 0) return at;
      if (at == 0) return std::nullopt;
    }
  }

  // Reads downwards from the vector: NULL, the variables, NULL, the arguments, argc.
  bool read_pointers(std::size_t auxv_at, InitialBlock& block) {
    std::size_t at = auxv_at;
    const auto take_array = [&](std::vector<std::uint64_t>& pointers) {
      if (at < kWord || word(at -= kWord) != 0) return false;
      while (at >= kWord && is_string(word(at - kWord), auxv_at)) pointers.push_back(word(at -= kWord));
      std::reverse(pointers.begin(), pointers.end());
      return true;
    };
    std::vector<std::uint64_t> variables, arguments;
    if (!take_array(variables)) return false;
    // argc is not a pointer into the stack, so it ends the array. There are no pointers below an argc of 0.
    if (!take_array(arguments)) return false;
    if (at < kWord || word(at - kWord) != arguments.size()) return false;
    for (const std::uint64_t pointer : arguments) block.command.emplace_back(text(pointer));
    for (const std::uint64_t pointer : variables) add_environment_entry(block.environment, text(pointer));
    return true;
  }

  bool is_string(std::uint64_t pointer, std::size_t auxv_at) const {
    return pointer >= start_ + auxv_at && pointer - start_ < bytes_.size();
  }

  std::string_view text(std::uint64_t pointer) {
    const auto rest = bytes_.subspan(pointer - start_);
    const auto* first = reinterpret_cast<const char*>(rest.data());
    const std::size_t size = strnlen(first, rest.size());
    if (size == rest.size() || size > budget_) return {};
    budget_ -= size;
    return {first, size};
  }

  // If the vector is missing (overwritten by prctl, or a core of a restored process): only the strings, from the last
  // variable downwards.
  void read_strings_below(Address name, InitialBlock& block) const {
    if (name < start_ || name - start_ > bytes_.size()) return;
    std::string_view strings(reinterpret_cast<const char*>(bytes_.data()), name - start_);
    std::vector<std::string_view> found;
    while (!strings.empty() && strings.back() == '\0') {
      strings.remove_suffix(1);
      const std::size_t before = strings.rfind('\0');
      if (before == std::string_view::npos) break;  // its start may be missing
      const std::string_view entry = strings.substr(before + 1);
      const std::size_t equals = entry.find('=');
      if (equals == std::string_view::npos || equals == 0) break;
      const std::string_view variable = entry.substr(0, equals);
      const auto is_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
      if (std::isdigit(static_cast<unsigned char>(variable[0])) != 0 ||
          !std::all_of(variable.begin(), variable.end(), is_name))
        break;
      found.push_back(entry);
      strings.remove_suffix(entry.size());
    }
    for (auto it = found.rbegin(); it != found.rend(); ++it) add_environment_entry(block.environment, *it);
  }

  std::span<const std::byte> bytes_;
  Address start_;
  std::size_t budget_ = kMaxText;
};

}  // namespace

std::optional<std::uint64_t> value_of(const AuxiliaryVector& auxv, std::uint64_t type) {
  for (const auto& [t, value] : auxv) {
    if (t == type) return value;
  }
  return std::nullopt;
}

InitialBlock read_initial_block(std::span<const std::byte> stack, Address start, const AuxiliaryVector& auxv) {
  return StackTop(stack, start).read(auxv);
}

}  // namespace rankstacks::target
