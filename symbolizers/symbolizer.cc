#include "symbolizers/symbolizer.h"

#include <fmt/format.h>
#include <unordered_map>

#include "symbolizers/debug_file.h"
#include "symbolizers/dwarf_lines.h"
#include "symbolizers/plt.h"
#include "symbolizers/symbol_lookup.h"

namespace rankstacks::symbolizers {
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

// Finds the addresses' symbols, in the most complete symbol table first. Of a stripped file two tables are needed:
// .dynsym has the names that .gnu_debugdata leaves out. Returns the image of .gnu_debugdata if it was used, as names
// point into it.
std::shared_ptr<const elf::Image> find_symbols(SymbolLookup& symbols, const elf::Image& image, const elf::Image* debug,
                                               DebugFiles& files, DeadlineCheck& deadline) {
  std::shared_ptr<const elf::Image> mini;
  if (debug != nullptr) {
    symbols.add(*debug, debug->static_symbols(), deadline);
    symbols.settle();
  }
  if (!symbols.all_covered()) {
    symbols.add(image, image.static_symbols(), deadline);
    symbols.settle();
  }
  if (!symbols.all_covered()) {
    if (debug == nullptr && image.static_symbols().size() == 0) mini = files.mini_debug_info(image);
    if (mini) symbols.add(*mini, mini->static_symbols(), deadline);
    symbols.add(image, image.dynamic_symbols(), deadline);
  }
  return mini;
}

// The frames at each address, according to the DWARF of `dwarf_image`, which is the image or its debug file. Empty if
// the DWARF cannot be read; `problems` then has the reason.
std::vector<std::vector<DwarfFrame>> find_dwarf_frames(const elf::Image& image, const elf::Image& dwarf_image,
                                                       std::span<const Vaddr> addresses, bool inlines,
                                                       DebugFiles& files, DeadlineCheck& deadline,
                                                       std::vector<std::string>& problems) {
  std::vector<std::vector<DwarfFrame>> frames;
  const bool needs_alt = dwarf_image.section(".gnu_debugaltlink") != nullptr;
  const auto alt = needs_alt ? files.alt_file(dwarf_image) : nullptr;
  if (needs_alt && !alt) return frames;
  SplitFiles split(files, dwarf_image, image);
  const auto dwarf = DwarfLines::open(dwarf_image, alt.get(), &split);
  if (!dwarf) {
    const Error& error = dwarf.error();
    problems.push_back(fmt::format("{}: no lines or inlined functions: {}", error.subject, error.what));
    return frames;
  }
  bool too_much_text = false;
  frames = (*dwarf)->resolve(addresses, inlines, deadline, too_much_text);
  if (too_much_text)
    problems.push_back(fmt::format("{}: names and paths of more than 256 MiB: some lines are left out", image.name()));
  split.report_missing();
  return frames;
}

// Chooses the name of the physical function at each address.
class FunctionNames {
 public:
  FunctionNames(const elf::Image& image, std::span<const Vaddr> addresses, SymbolLookup& symbols)
      : image_(image), addresses_(addresses), symbols_(symbols) {}

  // `frames`: what DWARF has at addresses[i].
  std::optional<std::string> of(std::size_t i, const std::vector<DwarfFrame>& frames) {
    if (const auto name = symbols_.sized(i)) return demangled_(*name);
    if (!frames.empty() && frames.back().function) return frames.back().function;
    if (plt_names_.empty()) plt_names_ = name_plt_entries(image_, addresses_);
    if (plt_names_[i]) return demangled_(*plt_names_[i]) + "@plt";
    if (const auto label = symbols_.sizeless(i)) return demangled_(*label);
    return std::nullopt;
  }

 private:
  const elf::Image& image_;
  std::span<const Vaddr> addresses_;
  SymbolLookup& symbols_;
  std::vector<std::optional<std::string_view>> plt_names_;  // filled in when the first is needed
  Demangler demangled_;
};

}  // namespace

Symbolizer::Symbolizer(SymbolizerOptions options) : options_(std::move(options)) {}
Symbolizer::~Symbolizer() = default;

SymbolizedImage Symbolizer::resolve(const elf::Image& image, std::span<const Vaddr> addresses,
                                    const Deadline& until) const {
  SymbolizedImage result;
  result.locations.resize(addresses.size());
  if (addresses.empty()) return result;
  DeadlineCheck deadline(until);

  // Symbol names point into these images, so they live until the end of this function.
  DebugFiles files(options_, result.problems, until);
  const bool image_has_dwarf = has_dwarf(image);
  const bool wants_dwarf = options_.lines || options_.inlines;
  std::shared_ptr<const elf::Image> debug;
  if (image.static_symbols().size() == 0 || (wants_dwarf && !image_has_dwarf)) debug = files.separate_file(image);
  SymbolLookup symbols(image, addresses);
  const auto mini = find_symbols(symbols, image, debug.get(), files, deadline);
  if (symbols.exhausted()) {
    result.problems.push_back(fmt::format("{}: too many of its symbols overlap: not all were looked at", image.name()));
  }

  std::vector<std::vector<DwarfFrame>> dwarf_frames;
  const elf::Image* dwarf_image = debug && has_dwarf(*debug) ? debug.get() : image_has_dwarf ? &image : nullptr;
  // The walk for inlined functions is also made if symbols are missing, as it finds the names of those functions.
  if (wants_dwarf && dwarf_image != nullptr && !until.passed())
    dwarf_frames = find_dwarf_frames(image, *dwarf_image, addresses, options_.inlines || !symbols.all_covered(), files,
                                     deadline, result.problems);
  dwarf_frames.resize(addresses.size());

  FunctionNames names(image, addresses, symbols);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    std::vector<DwarfFrame>& frames = dwarf_frames[i];
    std::optional<std::string> function = names.of(i, frames);
    auto& locations = result.locations[i];
    if (!options_.inlines && frames.size() > 1) frames.erase(frames.begin() + 1, frames.end());
    for (std::size_t f = 0; f < frames.size(); ++f)
      locations.push_back(to_location(std::move(frames[f]), f + 1 < frames.size()));
    if (locations.empty()) locations.emplace_back();
    locations.back().function = std::move(function);
  }
  result.gave_up = deadline.gave_up() || until.passed();
  return result;
}

}  // namespace rankstacks::symbolizers
