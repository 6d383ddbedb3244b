// The libraries and programs whose versions decide whether ranks fit together: how their files are called, and where
// each of them says which version it is.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace rankstacks::known {

// Where a version can be found, in addition to the name of the file and the metadata of the Python package.
enum class VersionText {
  kNone,
  kAfter,   // behind `text` in the file's read-only data
  kGlibc,   // in glibc's banner
  kAlone,   // a text of its own in the read-only data, "1.17.0" or, after `text`, "v4.1.4"; the only one of that form
  kSymbol,  // the text at the exported symbol `text`
};

struct ComponentRule {
  std::string_view component;  // as reports name it
  std::string_view file;       // the base name starts with this text
  // Of the Python package's metadata, the name up to its last part: "nvidia_nccl_cu" of nvidia_nccl_cu12.
  std::string_view package;
  // The numbers in the name of the file are the release's: libnccl.so.2.28.7, not libmpi.so.40.30.4.
  bool named_by_release = false;
  bool names_major = false;  // one number is enough: libcudart.so.13
  VersionText where = VersionText::kNone;
  std::string_view text;
  std::string_view prefix;  // put before a version that was found by `where`: "Open MPI "
  std::string_view source;
};

std::span<const ComponentRule> component_rules();

// The component with which the versions of an interpreter, and of the kernel's driver, are compared.
inline constexpr std::string_view kPython = "Python", kTorch = "torch", kNccl = "NCCL", kCudaRuntime = "CUDA runtime",
                                  kCudaDriver = "CUDA driver";

// The first rule that fits the base name of a mapped file; nullptr: it is of no interest. Several rules of one file
// name stand one after the other: rules_of_file() has all of them.
const ComponentRule* component_of(std::string_view base_name);
std::span<const ComponentRule> rules_of_file(const ComponentRule& first);

// "13" and "13.0.88" do not contradict each other: the one says less.
bool may_be_same_version(std::string_view a, std::string_view b);

// Whether ranks with different versions of it may fail to understand each other, or may hang in a collective: a
// difference in it is mentioned in the verdict.
bool is_for_communication(std::string_view component);

// The least version of the kernel's driver with which programs of this CUDA toolkit run, by its major version;
// std::nullopt: not known.
std::optional<std::string_view> least_driver_of(int cuda_major);

}  // namespace rankstacks::known
