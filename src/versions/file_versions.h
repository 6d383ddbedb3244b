// The version that a library's file states, and those that the metadata of Python packages state.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/root_directory.h"
#include "elf/image.h"
#include "known/components.h"
#include "model/environment.h"

namespace rankstacks::versions {

struct FileVersion {
  std::string version;  // "" if the file does not state it
  VersionFrom from = VersionFrom::kUnknown;
  std::string cuda;  // the CUDA toolkit that it was built with
};

// What the read-only data of the file says, by the rules for files of this name: `first` and those behind it. At most
// 32 MiB are searched. Touches the mapped file, and so may wait for a file system.
FileVersion version_in_file(const known::ComponentRule& first, const elf::Image& image);

// The packages in one directory of Python packages that some rule names.
struct Packages {
  std::map<std::string, std::string> versions;  // by name, from METADATA: {"nvidia_nccl_cu12", "2.28.9"}
  std::string torch, torch_cuda;                // from torch/version.py: "2.3.0+cu121", "12.1"
};

// Lists at most 16,384 names, and reads the beginnings of at most 64 files.
Packages read_packages(const RootDirectory& root, const std::string& site_directory);

// The version of the package to which a rule's file belongs; "" if none or several fit. `file_version` is what the
// file's name says: of packages for several CUDA versions the one with that major version is taken.
std::string package_version(const Packages& packages, const known::ComponentRule& rule, std::string_view file_version);

// All that is known of a file together: its own text first, then its package, then its name.
FileVersion version_of(const known::ComponentRule& rule, std::string_view base_name, const FileVersion& in_file,
                       const Packages* packages);

}  // namespace rankstacks::versions
