// Step 1: finds the modules of a target that hold an interpreter, and its version, from their files alone.

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "base/text.h"
#include "python/faulthandler.h"
#include "python/layouts.h"

namespace rankstacks::python {
namespace {

using elf::Image;

// How much of a file is searched for strings: the largest interpreter seen, one linked with all of its modules, has 60
// MB. A hostile file can claim any length without containing anything.
constexpr std::size_t kMaxText = 256 << 20;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Py_Version: a const unsigned long in .rodata, from 3.11.
std::optional<Version> version_by_symbol(const Image& image) {
  const auto symbol = image.find_symbol("Py_Version");
  if (!symbol) return std::nullopt;
  const auto bytes = image.at(symbol->value);
  std::uint64_t hex = 0;
  if (bytes.size() < sizeof hex) return std::nullopt;
  std::memcpy(&hex, bytes.data(), sizeof hex);
  return version_from_hex(hex);
}

// "/usr/lib/libpython3.9.so.1.0", "python3.13t", "libpython3.7m.so": the minor version.
std::optional<int> minor_in_name(std::string_view path) {
  path.remove_prefix(path.rfind('/') == path.npos ? 0 : path.rfind('/') + 1);
  const std::size_t at = path.find("python3.");
  if (at == path.npos) return std::nullopt;
  const std::string_view digits = path.substr(at + 8);
  int minor = 0;
  std::size_t n = 0;
  for (; n < digits.size() && n < 2 && digits[n] >= '0' && digits[n] <= '9'; ++n)
    minor = minor * 10 + (digits[n] - '0');
  return n ? std::optional(minor) : std::nullopt;
}

// sys.implementation.cache_tag, the literal "cpython-39": it contains the minor version, whatever the name of the file.
std::optional<int> minor_by_cache_tag(std::string_view text) {
  constexpr std::string_view kTag = "cpython-3";
  for (std::size_t at = text.find(kTag); at != text.npos; at = text.find(kTag, at + 1)) {
    int minor = 0;
    std::size_t n = at + kTag.size();
    const std::size_t begin = n;
    for (; n < text.size() && n - begin < 2 && text[n] >= '0' && text[n] <= '9'; ++n)
      minor = minor * 10 + (text[n] - '0');
    // The tag is the whole string ("cpython-39") or the start of the ABI's name ("cpython-37m-x86_64-linux-gnu").
    if (n > begin && n < text.size() && (text[n] == '\0' || text[n] == 'm' || text[n] == 'd' || text[n] == '-'))
      return minor;
  }
  return std::nullopt;
}

// The literal PY_VERSION, "3.9.18", of the given minor version. The linker may have merged it into the tail of a longer
// string.
std::optional<Version> version_literal(std::string_view text, int minor) {
  const std::string prefix = "3." + std::to_string(minor) + ".";
  for (std::size_t at = text.find(prefix); at != text.npos; at = text.find(prefix, at + 1)) {
    if (at > 0 && (text[at - 1] == '.' || (text[at - 1] >= '0' && text[at - 1] <= '9'))) continue;
    const std::string_view rest = text.substr(at, 32);
    const std::size_t length = rest.find('\0');
    if (length == rest.npos) continue;
    const auto version = parse_version(rest);
    if (version && version->to_string().size() == length) return version;
  }
  return std::nullopt;
}

// Up to 3.10 only strings contain the version.
std::optional<Version> version_by_strings(const Image& image, const std::string& path) {
  const std::string_view text = as_text(image.bytes().first(std::min(image.bytes().size(), kMaxText)));
  auto minor = minor_by_cache_tag(text);
  if (!minor) minor = minor_in_name(path);
  if (!minor) return std::nullopt;
  if (auto version = version_literal(text, *minor)) return version;
  // The structures of 3.7 depend on the patch level. For the other versions any patch level will do, and the report
  // shows "3.9.0+": at least that.
  if (*minor == 7) return std::nullopt;
  return Version{3, *minor, 0, "+"};
}

// 3.6 keeps the list of interpreters in a static variable, which has no symbol in a stripped file.
// PyInterpreterState_Head() only returns it: [endbr64] mov interp_head(%rip),%rax; ret.
std::optional<Vaddr> interp_head_by_code(const Image& image) {
  const auto symbol = image.find_symbol("PyInterpreterState_Head");
  if (!symbol) return std::nullopt;
  auto code = image.at(symbol->value);
  Vaddr at = symbol->value;
  constexpr std::array<unsigned char, 4> kEndbr64 = {0xf3, 0x0f, 0x1e, 0xfa};
  if (code.size() >= 4 && std::memcmp(code.data(), kEndbr64.data(), 4) == 0) {
    code = code.subspan(4);
    at += 4;
  }
  constexpr std::array<unsigned char, 3> kMovRipRax = {0x48, 0x8b, 0x05};
  constexpr std::size_t kMovSize = 7;
  constexpr auto kRet = std::byte{0xc3};
  if (code.size() < kMovSize + 1 || std::memcmp(code.data(), kMovRipRax.data(), 3) != 0 || code[kMovSize] != kRet)
    return std::nullopt;
  std::int32_t displacement = 0;
  std::memcpy(&displacement, code.data() + 3, sizeof displacement);
  return at + kMovSize + static_cast<std::int64_t>(displacement);
}

// A process may map one file many times; the strings of each file are searched once.
class VersionsByStrings {
 public:
  std::optional<Version> operator()(const target::Module& module) {
    const auto [known, fresh] = known_.try_emplace(module.image.get());
    if (fresh) known->second = version_by_strings(*module.image, module.path);
    return known->second;
  }

 private:
  std::map<const Image*, std::optional<Version>> known_;
};

std::optional<RuntimeCandidate> candidate_of_3_6(const target::Module& module, VersionsByStrings& by_strings) {
  const Image& image = *module.image;
  const auto current = image.find_symbol("_PyThreadState_Current");
  if (!current) return std::nullopt;
  RuntimeCandidate candidate{.module = module.path, .how = "symbol interp_head"};
  if (const auto head = image.find_symbol("interp_head")) {
    candidate.runtime = module.to_address(head->value);
  } else if (const auto found = interp_head_by_code(image)) {
    candidate.runtime = module.to_address(*found);
    candidate.how = "code of PyInterpreterState_Head";
  } else {
    return std::nullopt;
  }
  candidate.tstate_current = module.to_address(current->value);
  if (const auto secret = image.find_symbol("_Py_HashSecret")) candidate.hash_secret = module.to_address(secret->value);
  if (const auto handlers = find_faulthandler(image)) candidate.faulthandler = module.to_address(*handlers);
  candidate.version = by_strings(module);
  return candidate;
}

}  // namespace

std::vector<RuntimeCandidate> find_python_runtime(const target::Target& target) {
  // A program with plug-ins may hold several interpreters.
  constexpr std::size_t kMaxCandidates = 64;
  std::vector<RuntimeCandidate> found;
  VersionsByStrings by_strings;
  for (const target::Module& module : target.modules().all()) {
    if (found.size() == kMaxCandidates) break;
    if (!module.image) continue;
    const Image& image = *module.image;
    RuntimeCandidate candidate{.module = module.path};
    Vaddr runtime = 0;
    // Interpreters export their runtime. The whole .symtab (620,000 symbols in a libtorch_cpu) is only worth searching
    // in an executable, or in a library whose name says that it is an interpreter; libtorch_python's is not, as it
    // takes None from an interpreter elsewhere.
    const bool executable = image.has_interpreter() || image.type() == ET_EXEC;
    const bool search_all = executable || (contains(module.path.substr(module.path.rfind('/') + 1), "python") &&
                                           !image.imports("_Py_NoneStruct"));
    const auto find = [&](std::string_view name) {
      return search_all ? image.find_symbol(name) : image.find_exported(name);
    };
    if (const auto symbol = find("_PyRuntime")) {
      runtime = symbol->value;
      candidate.how = "symbol _PyRuntime";
    } else if (const elf::Section* section = image.section(".PyRuntime"); section && section->header.sh_addr != 0) {
      runtime = section->header.sh_addr;
      candidate.how = "section .PyRuntime";
    } else {
      if (!find("_PyThreadState_Current")) continue;
      if (auto old = candidate_of_3_6(module, by_strings)) found.push_back(std::move(*old));
      continue;
    }
    candidate.runtime = module.to_address(runtime);
    if (const auto secret = find("_Py_HashSecret")) candidate.hash_secret = module.to_address(secret->value);
    if (const auto handlers = find_faulthandler(image)) candidate.faulthandler = module.to_address(*handlers);
    candidate.version = version_by_symbol(image);
    if (!candidate.version) {
      if (const auto header = decode_debug_offsets_header(image.at(runtime))) candidate.version = header->version;
    }
    if (!candidate.version) candidate.version = by_strings(module);
    found.push_back(std::move(candidate));
  }
  return found;
}

}  // namespace rankstacks::python
