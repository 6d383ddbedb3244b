// Checks of an option's value while the command line is parsed, and the conversion of seconds.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>

namespace rankstacks::cli {

// CLI::Range accepts NaN, because every comparison with it is false.
CLI::Validator a_number();

// Checks a file or directory that the user names for cores. Without this check, the only sign of a misspelt path would
// be missing function names.
CLI::Validator is_there(bool directory);

// A file or a directory.
CLI::Validator exists();

// Bytes, as 512M. With less memory than the tool itself needs with a few threads, it would end at once.
CLI::Validator a_size();

// The name of a file to write.
CLI::Validator not_empty();

std::chrono::steady_clock::duration of_seconds(double seconds);

}  // namespace rankstacks::cli
