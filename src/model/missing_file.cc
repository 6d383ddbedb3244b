#include "model/missing_file.h"

#include <fmt/format.h>
#include <algorithm>

#include "base/text.h"

namespace rankstacks {
inline namespace model {
namespace {

constexpr std::size_t kMaxNames = 12;

std::string described(const MissingFile& file) {
  std::vector<std::string> facts;
  if (!file.build_id.empty()) facts.push_back("build-id " + file.build_id);
  if (!file.package.empty()) facts.push_back("of " + file.package);
  return facts.empty() ? file.path : fmt::format("{} ({})", file.path, joined(facts));
}

}  // namespace

Problem missing_files_problem(const std::vector<MissingFile>& files) {
  std::vector<std::string> names, packages;
  for (const MissingFile& file : files) {
    names.push_back(described(file));
    if (!file.package.empty() && std::find(packages.begin(), packages.end(), file.package) == packages.end())
      packages.push_back(file.package);
  }
  return {fmt::format("{} file{} of the process missing on this machine: {}{}", files.size(), plural(files.size()),
                      joined(names, ", ", kMaxNames), names.size() > kMaxNames ? " files" : ""),
          fmt::format("give them with --sysroot or --search, or open the core on the machine where it was taken{}{}",
                      packages.empty() ? "" : "; they are of the packages ", joined(packages, ", ", kMaxNames)),
          ProblemCode::kFileMissing};
}

}  // namespace model
}  // namespace rankstacks
