#include "target/debian_packages.h"

#include <dirent.h>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>

#include "base/directory_stream.h"
#include "target/proc.h"

namespace rankstacks::target {
namespace {

constexpr const char* kLists = "/var/lib/dpkg/info";
constexpr std::uint64_t kMaxBytes = 256 << 20;  // of all lists; those of 3,000 packages have 20 MB
constexpr std::uint64_t kMaxList = 16 << 20;

// Most packages name files by /lib, which is a link to /usr/lib.
std::string_view without_usr(std::string_view path) {
  return path.starts_with("/usr/") ? path.substr(std::string_view("/usr").size()) : path;
}

void search(const std::string& root, std::set<std::string, std::less<>> wanted,
            std::map<std::string, std::string, std::less<>>& found) {
  const std::string directory = root + kLists;
  const DirectoryStream stream(opendir(directory.c_str()));
  std::uint64_t bytes = 0;
  while (const dirent* entry = stream && !wanted.empty() && bytes < kMaxBytes ? readdir(stream.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    constexpr std::string_view kEnding = ".list";
    if (!name.ends_with(kEnding)) continue;
    const auto file = proc::read_file(directory + "/" + entry->d_name, kMaxList);
    if (!file) continue;
    const std::string_view text(*file);
    bytes += text.size();
    for (std::size_t at = 0; at < text.size() && !wanted.empty();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      if (const auto it = wanted.find(without_usr(text.substr(at, end - at))); it != wanted.end()) {
        found.emplace(*it, name.substr(0, name.size() - kEnding.size()));
        wanted.erase(it);
      }
      at = end + 1;
    }
  }
}

struct Known {
  std::mutex mutex;
  // By root and path without /usr; an empty package: none has it.
  std::map<std::string, std::map<std::string, std::string, std::less<>>> roots;
};

}  // namespace

std::map<std::string, std::string> debian_packages_of(const std::vector<std::string>& paths, const std::string& root) {
  static Known known;
  const std::lock_guard lock(known.mutex);
  std::map<std::string, std::string> packages;
  for (const std::string& of : root.empty() ? std::vector<std::string>{""} : std::vector<std::string>{root, ""}) {
    auto& remembered = known.roots[of];
    std::set<std::string, std::less<>> wanted;
    for (const std::string& path : paths)
      if (const std::string_view plain = without_usr(path); !plain.empty() && !remembered.contains(plain))
        wanted.emplace(plain);
    search(of, wanted, remembered);
    for (const std::string& path : wanted) remembered.try_emplace(path, "");
    for (const std::string& path : paths)
      if (const auto it = remembered.find(without_usr(path)); it != remembered.end() && !it->second.empty())
        packages.try_emplace(path, it->second);
  }
  return packages;
}

}  // namespace rankstacks::target
