// OwnNote::kSymbols: functions, files and lines of the addresses that the stacks of a capture have, by module. They are
// used where that module's file, or its debug information, is not.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizers/symbolizer.h"
#include "target/modules.h"

namespace rankstacks::small_core {

// The identity of a module's file: its build-id in hex; without one, its path.
std::string symbol_key(const target::Module& module);

// Of one module, by address in its file.
using ModuleSymbols = std::map<Vaddr, std::vector<symbolizers::SourceLocation>>;

// By symbol_key().
using NotedSymbols = std::map<std::string, ModuleSymbols>;

std::vector<std::byte> write_symbols(const NotedSymbols& symbols);

// What is damaged is left out, and everything behind it.
NotedSymbols read_symbols(std::span<const std::byte> body);

// Whether what was noted says more than what was found here: a local file has fewer lines if only the other machine had
// debug information, and more if it is the other way round.
bool says_more(const std::vector<symbolizers::SourceLocation>& noted,
               const std::vector<symbolizers::SourceLocation>& found);

}  // namespace rankstacks::small_core
