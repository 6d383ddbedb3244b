#include "versions/package_files.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "versions/version_texts.h"

namespace rankstacks::versions {
namespace {

constexpr std::size_t kMaxNames = 16384, kMaxLists = 4096;
constexpr std::size_t kLongestList = 16u << 20, kMaxBytes = 256u << 20;

using Wanted = std::map<std::string, std::string, std::less<>>;  // the path as a list names it -> the path

// What is read of all lists of one directory.
class Lists {
 public:
  explicit Lists(const RootDirectory& root) : root_(root) {}
  std::optional<std::string> read(const std::string& path) {
    if (lists_ == kMaxLists || bytes_ >= kMaxBytes) return std::nullopt;
    ++lists_;
    auto text = root_.read(path, kLongestList);
    if (text) bytes_ += text->size();
    return text;
  }

 private:
  const RootDirectory& root_;
  std::size_t lists_ = 0, bytes_ = 0;
};

// "torch-2.11.0+cu130.dist-info" -> "torch 2.11.0+cu130"
std::string wheel_of(std::string_view metadata) {
  constexpr std::string_view kEnding = ".dist-info";
  std::string name(metadata.substr(0, metadata.size() - kEnding.size()));
  if (const std::size_t dash = name.find('-'); dash != std::string::npos) name[dash] = ' ';
  return name;
}

// The directories above the path: "/opt/env/lib/libx.so" -> "/opt/env/lib", "/opt/env", "/opt".
std::vector<std::string> directories_above(std::string path) {
  constexpr std::size_t kMax = 32;
  std::vector<std::string> above;
  for (std::size_t slash = path.rfind('/'); slash != std::string::npos && slash > 0 && above.size() < kMax;
       slash = path.rfind('/'))
    path.resize(slash), above.push_back(path);
  return above;
}

}  // namespace

std::map<std::string, std::string> wheels_with(const RootDirectory& root, const std::set<std::string>& paths) {
  std::map<std::string, Wanted> by_site;
  for (const std::string& path : paths)
    if (const std::string site = site_directory(path); !site.empty())
      by_site[site].emplace(path.substr(site.size() + 1), path);
  std::map<std::string, std::string> packages;
  for (auto& [site, wanted] : by_site) {
    Lists lists(root);
    for (const std::string& name : root.names(site, kMaxNames)) {
      if (!name.ends_with(".dist-info")) continue;
      if (wanted.empty()) break;
      const auto record = lists.read(site + "/" + name + "/RECORD");
      if (!record) continue;
      for_each_recorded(*record, [&](std::string_view recorded) {
        const auto found = wanted.find(recorded);
        if (found == wanted.end()) return;
        packages.emplace(found->second, wheel_of(name));
        wanted.erase(found);
      });
    }
  }
  return packages;
}

std::map<std::string, std::string> conda_packages_with(const RootDirectory& root, const std::set<std::string>& paths) {
  std::map<std::string, std::vector<std::string>> metadata;  // by directory: the names in its conda-meta
  std::map<std::string, Wanted> by_environment;
  for (const std::string& path : paths)
    for (const std::string& directory : directories_above(path)) {
      const auto [known, is_new] = metadata.try_emplace(directory);
      if (is_new) known->second = root.names(directory + "/conda-meta", kMaxNames);
      if (known->second.empty()) continue;
      by_environment[directory].emplace(path.substr(directory.size() + 1), path);
      break;
    }
  std::map<std::string, std::string> packages;
  for (auto& [environment, wanted] : by_environment) {
    Lists lists(root);
    for (const std::string& name : metadata[environment]) {
      constexpr std::string_view kEnding = ".json";
      if (!name.ends_with(kEnding)) continue;
      if (wanted.empty()) break;
      const auto text = lists.read(environment + "/conda-meta/" + name);
      if (!text) continue;
      for_each_plain_text(*text, [&](std::string_view file) {
        const auto found = wanted.find(file);
        if (found == wanted.end()) return;
        packages.emplace(found->second, name.substr(0, name.size() - kEnding.size()));
        wanted.erase(found);
      });
    }
  }
  return packages;
}

}  // namespace rankstacks::versions
