// What a file is that the command line names, by its first bytes: cores, archives of captures and saved reports may be
// given together.
#pragma once

#include <chrono>
#include <string>

namespace rankstacks::cli {

enum class FileKind {
  kCore,     // an ELF file
  kArchive,  // of captures: tar
  kJson,     // begins as an object of JSON does
  kOther,    // anything else, pipes, and what cannot be read
};

// Also of packed files (zstd, gzip; an xz or lz4 file is a core). A file that does not answer within `limit` is kOther.
FileKind kind_of_file(const std::string& path, std::chrono::steady_clock::duration limit);

}  // namespace rankstacks::cli
