// Reads versions out of texts that anybody may have written: names of files, METADATA, os-release, the read-only data
// of a library. Pure functions of bounded texts; what does not have the expected form is no version.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rankstacks::versions {

inline constexpr std::size_t kLongestVersion = 64;

// The version at the start of `text`: a digit, then letters, digits and "._+-~", at most kLongestVersion; without
// trailing punctuation. "" if there is none.
std::string version_at(std::string_view text);

// "libnccl.so.2.28.7" -> "2.28.7", "libcudart-a7b20f20.so.11.0" -> "11.0", "libc-2.31.so" -> "". A number alone
// ("libcudart.so.13") counts if `one_number`.
std::string version_of_file_name(std::string_view base_name, bool one_number);

// The parts of a path of a Python package's file: "/x/site-packages/nvidia/nccl/lib/libnccl.so.2" is in the directory
// "/x/site-packages" of packages. "" if it is in none.
std::string site_directory(std::string_view path);

// "nvidia_nccl_cu12-2.28.9.dist-info" and "torch-1.13.0a0.egg-info" belong to the packages "nvidia_nccl_cu12" and
// "torch"; "" if `name` is not such a directory or file. Names are lower-case, with '_' for '-' and '.'.
std::string package_of_metadata_name(std::string_view name);

// Whether a package named `package` is the one that a rule calls `wanted`: the same name, or that with the number of
// the CUDA version behind it, "nvidia_nccl_cu12" for "nvidia_nccl_cu", "nvidia_cuda_runtime_cu12" for
// "nvidia_cuda_runtime".
bool is_package(std::string_view package, std::string_view wanted);

// "Version: 2.28.9" in the headers of METADATA or PKG-INFO (PEP 566): up to the first empty line. "" if there is none.
std::string version_of_metadata(std::string_view text);

// A plain assignment of a string in torch/version.py: __version__ = '2.3.0+cu121', cuda: Optional[str] = '12.1'.
std::string assigned_text(std::string_view text, std::string_view name);

// PRETTY_NAME of os-release(5), else NAME and VERSION_ID; "" if there is neither. At most 200 bytes.
std::string distribution_of(std::string_view os_release);

// The version behind the first `marker` that is followed by one.
std::string version_after(std::string_view data, std::string_view marker);

// "GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36." -> "2.36-9+deb12u14";
// "GNU C Library (GNU libc) ..." -> "2.36".
std::string glibc_version(std::string_view data, std::string_view marker);

// The only text between two zero bytes that is `before`, then a version of three numbers. "" if there are none or
// several different ones.
std::string version_alone(std::string_view data, std::string_view before);

// The version in /proc/driver/nvidia/version: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  ...".
std::string driver_version(std::string_view text);

}  // namespace rankstacks::versions
