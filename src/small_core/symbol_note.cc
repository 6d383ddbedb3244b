#include "small_core/symbol_note.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "small_core/note_bytes.h"

namespace rankstacks::small_core {
namespace {

constexpr std::uint32_t kNoText = ~std::uint32_t{0};
constexpr std::int32_t kNoLine = std::numeric_limits<std::int32_t>::min();
constexpr std::size_t kModuleBytes = 8, kAddressBytes = 12, kLocationBytes = 13;
// What addresses refer to is copied, and a damaged note may refer to a long text over and over.
constexpr std::size_t kMaxText = 64u << 20, kLongestText = 64u << 10, kMaxInlined = 256;

// Every text once, by its number.
class Texts {
 public:
  std::uint32_t number_of(const std::optional<std::string>& text) {
    if (!text) return kNoText;
    const auto [known, is_new] = numbers_.try_emplace(*text, static_cast<std::uint32_t>(texts_.size()));
    if (is_new) texts_.push_back(*text);
    return known->second;
  }
  void write(NoteWriter& to) const {
    to.put(static_cast<std::uint32_t>(texts_.size()));
    for (const std::string& text : texts_) to.put_text(text);
  }

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<std::string> texts_;
};

void write_locations(const std::vector<symbolizers::SourceLocation>& locations, Texts& texts, NoteWriter& to) {
  to.put(static_cast<std::uint32_t>(locations.size()));
  for (const symbolizers::SourceLocation& location : locations) {
    to.put(texts.number_of(location.function));
    to.put(texts.number_of(location.file));
    to.put(static_cast<std::int32_t>(location.line.value_or(kNoLine)));
    to.put(std::uint8_t{location.inlined});
  }
}

std::optional<std::string> text_of(std::uint32_t number, const std::vector<std::string>& texts) {
  return number < texts.size() && texts[number].size() <= kLongestText ? std::optional(texts[number]) : std::nullopt;
}

std::vector<symbolizers::SourceLocation> read_locations(NoteReader& from, const std::vector<std::string>& texts) {
  const std::size_t count = from.get_count(kLocationBytes);
  std::vector<symbolizers::SourceLocation> locations(std::min(count, kMaxInlined));
  for (symbolizers::SourceLocation& location : locations) {
    location.function = text_of(from.get<std::uint32_t>(), texts);
    location.file = text_of(from.get<std::uint32_t>(), texts);
    if (const auto line = from.get<std::int32_t>(); line != kNoLine) location.line = line;
    location.inlined = from.get<std::uint8_t>() != 0;
  }
  for (std::size_t i = locations.size(); i < count; ++i) from.skip(kLocationBytes);
  return locations;
}

}  // namespace

std::string symbol_key(const target::Module& module) {
  return module.build_id.empty() ? module.path : elf::to_string(module.build_id);
}

// The texts come last in the making and first in the note, so the modules are a body of their own.
std::vector<std::byte> write_symbols(const NotedSymbols& symbols) {
  Texts texts;
  NoteWriter modules;
  modules.put(static_cast<std::uint32_t>(symbols.size()));
  for (const auto& [key, of_module] : symbols) {
    modules.put(texts.number_of(key));
    modules.put(static_cast<std::uint32_t>(of_module.size()));
    for (const auto& [vaddr, locations] : of_module) {
      modules.put(vaddr);
      write_locations(locations, texts, modules);
    }
  }
  NoteWriter note;
  texts.write(note);
  std::vector<std::byte> body = note.take();
  const std::vector<std::byte> rest = modules.take();
  body.insert(body.end(), rest.begin(), rest.end());
  return body;
}

NotedSymbols read_symbols(std::span<const std::byte> body) {
  NotedSymbols symbols;
  NoteReader note(body);
  std::vector<std::string> texts(note.get_count(sizeof(std::uint32_t)));
  for (std::string& text : texts) text = note.get_text();
  const std::uint32_t modules = note.get_count(kModuleBytes);
  std::size_t text_bytes = 0;
  for (std::uint32_t m = 0; m < modules && note.is_sound(); ++m) {
    const auto key = text_of(note.get<std::uint32_t>(), texts);
    const std::uint32_t addresses = note.get_count(kAddressBytes);
    if (!key) break;
    ModuleSymbols& of_module = symbols[*key];
    for (std::uint32_t a = 0; a < addresses; ++a) {
      const auto vaddr = note.get<Vaddr>();
      auto locations = read_locations(note, texts);
      for (const auto& location : locations)
        text_bytes += location.function.value_or("").size() + location.file.value_or("").size();
      if (!note.is_sound() || text_bytes > kMaxText) return symbols;
      if (!locations.empty()) of_module.try_emplace(vaddr, std::move(locations));
    }
  }
  return symbols;
}

bool says_more(const std::vector<symbolizers::SourceLocation>& noted,
               const std::vector<symbolizers::SourceLocation>& found) {
  const auto has_lines = [](const std::vector<symbolizers::SourceLocation>& locations) {
    return std::any_of(locations.begin(), locations.end(), [](const auto& l) { return l.line.has_value(); });
  };
  if (has_lines(noted) != has_lines(found)) return has_lines(noted);
  const auto is_named = [](const std::vector<symbolizers::SourceLocation>& locations) {
    return std::any_of(locations.begin(), locations.end(), [](const auto& l) { return l.function.has_value(); });
  };
  return is_named(noted);
}

}  // namespace rankstacks::small_core
