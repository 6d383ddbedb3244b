#include "capture/symbol_batch.h"

#include <fmt/format.h>
#include <algorithm>

#include "base/unattended.h"
#include "known/modules.h"

namespace rankstacks::capture {
namespace {

bool is_c_library(const elf::Image& image) {
  const std::string_view name = image.name();
  return known::module_kind(name.substr(name.rfind('/') + 1)) == known::ModuleKind::kCLibrary;
}

}  // namespace

std::string SymbolBatch::key(const elf::Image& image) {
  if (!image.build_id().empty()) return elf::to_string(image.build_id());
  return fmt::format("{}@{}", image.name(), static_cast<const void*>(&image));
}

void SymbolBatch::add(const RankStacks& rank) {
  if (!rank.target) return;
  const target::Module* last = nullptr;
  File* file = nullptr;
  for (const unwind::UnwoundStack& stack : rank.stacks) {
    for (const unwind::UnwoundFrame& frame : stack.frames) {
      const target::Module* module = last != nullptr && last->range.contains(frame.lookup_pc())
                                         ? last
                                         : rank.target->modules().find(frame.lookup_pc());
      if (module == nullptr || !module->image) continue;
      if (module != last) {
        const auto [known, is_new] = by_image_.try_emplace(module->image.get(), nullptr);
        if (is_new) known->second = &files_[key(*module->image)];
        file = known->second;
        if (const auto noted = rank.noted_symbols.find(small_core::symbol_key(*module));
            noted != rank.noted_symbols.end() &&
            std::find(file->noted.begin(), file->noted.end(), &noted->second) == file->noted.end())
          file->noted.push_back(&noted->second);
        // Of two images of one build, the one with sections has more names than the one read back from memory.
        if (!file->image || (file->image->sections().empty() && !module->image->sections().empty()))
          file->image = module->image;
        last = module;
      }
      file->addresses.push_back(module->to_vaddr(frame.lookup_pc()));
    }
  }
}

// What a capture notes of an address is used where the file here says less. Each capture notes the addresses of its own
// stacks only.
void SymbolBatch::add_noted(File& file) {
  for (const small_core::ModuleSymbols* symbols : file.noted) {
    for (std::size_t i = 0; i < file.addresses.size(); ++i) {
      const auto noted = symbols->find(file.addresses[i]);
      if (noted != symbols->end() && small_core::says_more(noted->second, file.symbols.locations[i]))
        file.symbols.locations[i] = noted->second;
    }
  }
}

void SymbolBatch::resolve(const symbolizers::SymbolizerOptions& options, bool libc_lines,
                          Deadline::Clock::duration timeout) {
  const auto symbolizer = std::make_shared<const symbolizers::Symbolizer>(options);
  symbolizers::SymbolizerOptions names_alone = options;
  names_alone.lines = names_alone.inlines = false;
  const auto of_c_library =
      libc_lines ? symbolizer : std::make_shared<const symbolizers::Symbolizer>(std::move(names_alone));
  std::vector<File*> files;
  const auto work = std::make_shared<std::vector<File>>();
  for (auto& [name, file] : files_) {
    std::sort(file.addresses.begin(), file.addresses.end());
    file.addresses.erase(std::unique(file.addresses.begin(), file.addresses.end()), file.addresses.end());
    files.push_back(&file);
  }
  // The largest first: each of the others ends while it is searched.
  std::stable_sort(files.begin(), files.end(), [](const File* a, const File* b) {
    return a->image->static_symbols().size() > b->image->static_symbols().size();
  });
  for (const File* file : files) work->push_back(*file);
  // The lookup checks the deadline itself, and returns what it has so far; while it waits for a file, it does not
  // return by itself.
  const auto outcomes = Unattended{[work, symbolizer, of_c_library, timeout](std::size_t i) {
                                     File& file = (*work)[i];
                                     reading_now(file.image->name());
                                     const auto& with = is_c_library(*file.image) ? of_c_library : symbolizer;
                                     file.symbols =
                                         with->resolve(*file.image, file.addresses, Deadline::after(timeout));
                                   },
                                   Unattended::beyond(timeout)}
                            .run(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    File& file = *files[i];
    if (outcomes[i].came_back) {
      file.symbols = std::move((*work)[i].symbols);
    } else {
      file.symbols.locations.resize(file.addresses.size());
      file.symbols.gave_up = true;
      file.symbols.problems.push_back(
          fmt::format("{}: no functions of it: {} does not answer", file.image->name(), outcomes[i].file));
    }
    add_noted(file);
    problems_.insert(problems_.end(), file.symbols.problems.begin(), file.symbols.problems.end());
  }
  if (const std::string given_up = options.debuginfod ? options.debuginfod->given_up() : ""; !given_up.empty())
    problems_.push_back(given_up + ": --debuginfod-time gives them more");
}

bool SymbolBatch::gave_up(const target::Module& module) const {
  const auto it = by_image_.find(module.image.get());
  return it != by_image_.end() && it->second->symbols.gave_up;
}

const std::vector<symbolizers::SourceLocation>* SymbolBatch::find(const target::Module& module, Vaddr vaddr) const {
  const auto it = by_image_.find(module.image.get());
  if (it == by_image_.end()) return nullptr;
  const File& file = *it->second;
  const auto at = std::lower_bound(file.addresses.begin(), file.addresses.end(), vaddr);
  if (at == file.addresses.end() || *at != vaddr) return nullptr;
  return &file.symbols.locations[static_cast<std::size_t>(at - file.addresses.begin())];
}

}  // namespace rankstacks::capture
