#include "symbolizers/symbolizer.h"

#include <fmt/format.h>
#include <unordered_map>

#include "symbolizers/debug_file.h"
#include "symbolizers/dwarf_lines.h"
#include "symbolizers/plt.h"
#include "symbolizers/symbol_lookup.h"

namespace rankstacks {
namespace {

// Demangles each name once, however many addresses it covers: the name of a template takes 20 us.
class Demangler {
 public:
  const std::string& operator()(std::string_view name) {
    auto [known, fresh] = names_.try_emplace(name);
    if (fresh) known->second = demangle(name);
    return known->second;
  }

 private:
  std::unordered_map<std::string_view, std::string> names_;
};

SourceLocation to_location(DwarfFrame&& frame, bool inlined) {
  return {.function = std::move(frame.function), .file = std::move(frame.file), .line = frame.line, .inlined = inlined};
}

}  // namespace

Symbolizer::Symbolizer(SymbolizerOptions options) : options_(std::move(options)) {}
Symbolizer::~Symbolizer() = default;

SymbolizedImage Symbolizer::resolve(const elf::Image& image, std::span<const Vaddr> addresses, const Deadline& until) const {
  SymbolizedImage result;
  result.locations.resize(addresses.size());
  if (addresses.empty()) return result;
  DeadlineCheck deadline(until);

  // The images that symbol names point into: they live until the end.
  DebugFiles files(options_, result.problems, until);
  const bool image_has_dwarf = has_dwarf(image);
  const bool wants_dwarf = options_.lines || options_.inlines;
  std::shared_ptr<const elf::Image> debug;
  std::shared_ptr<const elf::Image> mini;
  if (image.static_symbols().size() == 0 || (wants_dwarf && !image_has_dwarf)) debug = files.separate_file(image);

  // Tables of more worth first. A file that was stripped holds what the next one lacks: .dynsym names what .gnu_debugdata leaves out.
  SymbolLookup symbols(image, addresses);
  if (debug) {
    symbols.add(*debug, debug->static_symbols(), deadline);
    symbols.settle();
  }
  if (!symbols.all_covered()) {
    symbols.add(image, image.static_symbols(), deadline);
    symbols.settle();
  }
  if (!symbols.all_covered()) {
    if (!debug && image.static_symbols().size() == 0) mini = files.mini_debug_info(image);
    if (mini) symbols.add(*mini, mini->static_symbols(), deadline);
    symbols.add(image, image.dynamic_symbols(), deadline);
  }
  if (symbols.exhausted()) {
    result.problems.push_back(fmt::format("{}: too many of its symbols overlap: not all were looked at", image.name()));
  }

  std::vector<std::vector<DwarfFrame>> dwarf_frames(addresses.size());
  const elf::Image* dwarf_image = debug && has_dwarf(*debug) ? debug.get() : image_has_dwarf ? &image : nullptr;
  if (wants_dwarf && dwarf_image != nullptr && !until.passed()) {
    const bool needs_alt = dwarf_image->section(".gnu_debugaltlink") != nullptr;
    const auto alt = needs_alt ? files.alt_file(*dwarf_image) : nullptr;
    if (alt || !needs_alt) {
      SplitFiles split(files, *dwarf_image, image);
      const auto dwarf = DwarfLines::open(*dwarf_image, alt.get(), &split);
      // Names that the symbols lack are worth the walk too.
      if (dwarf) {
        bool too_much_text = false;
        dwarf_frames = (*dwarf)->resolve(addresses, options_.inlines || !symbols.all_covered(), deadline, too_much_text);
        if (too_much_text) result.problems.push_back(fmt::format("{}: names and paths of more than 256 MiB: some lines are left out", image.name()));
        split.tell_missing();
      } else {
        const Error& error = dwarf.error();
        result.problems.push_back(fmt::format("{}: no lines or inlined functions: {}", error.subject, error.what));
      }
    }
  }

  std::vector<std::optional<std::string_view>> plt_names;
  Demangler demangled;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    std::vector<DwarfFrame>& frames = dwarf_frames[i];
    std::optional<std::string> function;
    if (const auto name = symbols.sized(i)) {
      function = demangled(*name);
    } else if (!frames.empty() && frames.back().function) {
      function = frames.back().function;
    } else {
      if (plt_names.empty()) plt_names = name_plt_entries(image, addresses);
      if (plt_names[i]) {
        function = demangled(*plt_names[i]) + "@plt";
      } else if (const auto label = symbols.sizeless(i)) {
        function = demangled(*label);
      }
    }
    auto& locations = result.locations[i];
    if (!options_.inlines && frames.size() > 1) frames.erase(frames.begin() + 1, frames.end());
    for (std::size_t f = 0; f < frames.size(); ++f) locations.push_back(to_location(std::move(frames[f]), f + 1 < frames.size()));
    if (locations.empty()) locations.emplace_back();
    locations.back().function = std::move(function);
  }
  result.gave_up = deadline.gave_up() || until.passed();
  return result;
}

}  // namespace rankstacks
