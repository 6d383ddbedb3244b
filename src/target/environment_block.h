// The present environment of a process, as opposed to the one it was started with: it changes by setenv(),
// os.environ[...] = ..., and when setproctitle moves the block.
//
//     libc's variable `environ`  ->  char*[]: pointers, the last one NULL  ->  "RANK=3", "WORLD_SIZE=8", ...
//
// Works on any Target. Every count and length is bounded, as the target may have written anything there.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/types.h"
#include "target/modules.h"
#include "target/target.h"

namespace rankstacks::target {

// The address of `environ`: in the main program if that has the symbol itself (a copy relocation, which libc uses too,
// or a static program), else in libc.
std::optional<Address> find_environ_variable(const ModuleMap& modules);

// The variables found there: at most 4,096, each at most 32 KB. Entries that cannot be read or have no '=' are left
// out; of several entries with one name the first counts, as in getenv().
std::map<std::string, std::string> read_current_environment(const Target& target, Address environ_variable);

// Adds "NAME=value" to `environment` unless that has the name already or the text does not have this form.
void add_environment_entry(std::map<std::string, std::string>& environment, std::string_view entry);

}  // namespace rankstacks::target
