#include "versions/file_versions.h"

#include <algorithm>
#include <set>
#include <vector>

#include "versions/version_texts.h"

namespace rankstacks::versions {
namespace {

constexpr std::size_t kMaxSearched = std::size_t{32} << 20;
constexpr std::size_t kLongestText = 64u << 10;  // of METADATA: its headers come first, long descriptions follow

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kMaxSearched)};
}

// The read-only data: .rodata, or, without section headers (a file read back from memory), the segments that can be
// read only.
std::vector<std::string_view> read_only_data(const elf::Image& image) {
  if (const elf::Section* section = image.section(".rodata")) return {text_of(image.contents(*section))};
  std::vector<std::string_view> data;
  for (const Elf64_Phdr& load : image.loads())
    if ((load.p_flags & (PF_W | PF_X)) == 0) data.push_back(text_of(image.at(load.p_vaddr)));
  return data;
}

std::string text_at_symbol(const elf::Image& image, std::string_view name) {
  const auto symbol = image.find_exported(name);
  if (!symbol) return "";
  const std::string_view text = text_of(image.at(symbol->value));
  return version_at(text.substr(0, std::min(text.find('\0'), kLongestVersion + 1)));
}

std::string found_by(const known::ComponentRule& rule, const elf::Image& image) {
  if (rule.where == known::VersionText::kNone) return "";
  if (rule.where == known::VersionText::kSymbol) return text_at_symbol(image, rule.text);
  for (const std::string_view data : read_only_data(image)) {
    std::string version;
    switch (rule.where) {
      case known::VersionText::kAfter: version = version_after(data, rule.text); break;
      case known::VersionText::kGlibc: version = glibc_version(data, rule.text); break;
      case known::VersionText::kAlone: version = version_alone(data, rule.text); break;
      default: break;
    }
    if (!version.empty()) return version;
  }
  return "";
}

// "2.28.9+cuda13.0" names the CUDA toolkit, too.
void split_cuda(FileVersion& found) {
  constexpr std::string_view kCuda = "+cuda";
  const std::size_t at = found.version.find(kCuda);
  if (at == std::string::npos) return;
  found.cuda = found.version.substr(at + kCuda.size());
  found.version.resize(at);
}

std::string_view major_of(std::string_view version) { return version.substr(0, version.find('.')); }

bool is_wanted(std::string_view package) {
  const auto rules = known::component_rules();
  return std::any_of(rules.begin(), rules.end(),
                     [&](const known::ComponentRule& rule) { return is_package(package, rule.package); });
}

}  // namespace

FileVersion version_in_file(const known::ComponentRule& first, const elf::Image& image) {
  for (const known::ComponentRule& rule : known::rules_of_file(first)) {
    FileVersion found{.version = found_by(rule, image)};
    if (found.version.empty()) continue;
    found.from = VersionFrom::kText;
    split_cuda(found);
    found.version.insert(0, rule.prefix);
    return found;
  }
  return {};
}

Packages read_packages(const RootDirectory& root, const std::string& site_directory) {
  constexpr std::size_t kMaxNames = 16384, kMaxFiles = 64;
  Packages packages;
  std::size_t files = 0;
  for (const std::string& name : root.names(site_directory, kMaxNames)) {
    const std::string package = package_of_metadata_name(name);
    if (package.empty() || !is_wanted(package) || ++files > kMaxFiles) continue;
    const std::string path = site_directory + "/" + name;
    std::optional<std::string> text = root.read(path + "/METADATA", kLongestText);
    if (!text) text = root.read(path + "/PKG-INFO", kLongestText);
    if (!text) text = root.read(path, kLongestText);  // an egg-info that is a file
    if (!text) continue;
    if (std::string version = version_of_metadata(*text); !version.empty())
      packages.versions.emplace(package, std::move(version));
  }
  if (const auto text = root.read(site_directory + "/torch/version.py", kLongestText)) {
    packages.torch = assigned_text(*text, "__version__");
    packages.torch_cuda = assigned_text(*text, "cuda");
  }
  return packages;
}

std::string package_version(const Packages& packages, const known::ComponentRule& rule, std::string_view file_version) {
  std::set<std::string> all, of_major;
  for (const auto& [package, version] : packages.versions) {
    if (!is_package(package, rule.package)) continue;
    all.insert(version);
    if (!file_version.empty() && major_of(version) == major_of(file_version)) of_major.insert(version);
  }
  if (all.size() == 1) return *all.begin();
  return of_major.size() == 1 ? *of_major.begin() : "";
}

FileVersion version_of(const known::ComponentRule& rule, std::string_view base_name, const FileVersion& in_file,
                       const Packages* packages) {
  FileVersion found = in_file;
  const bool is_torch = rule.component == known::kTorch;
  if (packages != nullptr && is_torch && found.cuda.empty()) found.cuda = packages->torch_cuda;
  if (!found.version.empty()) return found;
  const std::string of_name = rule.named_by_release ? version_of_file_name(base_name, rule.names_major) : std::string();
  if (packages != nullptr && !rule.package.empty()) {
    found.version = package_version(*packages, rule, of_name);
    // The metadata of torch's wheels may lack the part behind the '+', which says which of its builds it is.
    if (is_torch && !packages->torch.empty() && packages->torch.starts_with(found.version))
      found.version = packages->torch;
    if (!found.version.empty()) {
      found.from = VersionFrom::kMetadata;
      return found;
    }
  }
  found.version = of_name;
  if (!of_name.empty()) found.from = VersionFrom::kFileName;
  return found;
}

}  // namespace rankstacks::versions
