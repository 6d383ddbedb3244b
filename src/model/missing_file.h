// A file that a process had loaded and that is not on this machine. Cores only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/problem.h"

namespace rankstacks {
inline namespace model {

// Where it is known from which package a file is of.
enum class PackageFrom : std::uint8_t {
  kUnknown,
  kDpkg,   // its lists of files
  kWheel,  // RECORD, in the metadata of a Python package
  kConda,  // conda-meta of an environment
};

struct MissingFile {
  std::string path;      // as the process names it
  std::string build_id;  // lower-case hex; "": it has none, or it is not known
  std::string package;   // "libc6:amd64", "torch 2.11.0", "libstdcxx-14.2.0-h8f9b012_2"; "": not known
  PackageFrom from = PackageFrom::kUnknown;
  std::size_t frames = 0;  // of the process's threads that are in it
  bool operator==(const MissingFile&) const = default;
};

// Of a process, in a report: those that most frames are in come first.
inline constexpr std::size_t kMaxMissingFiles = 4096;

// All of them in one sentence, which names the first dozen, and the packages to which they belong. `files`: not empty.
Problem missing_files_problem(const std::vector<MissingFile>& files);

}  // namespace model
}  // namespace rankstacks
