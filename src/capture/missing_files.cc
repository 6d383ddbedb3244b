#include "capture/missing_files.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/unattended.h"
#include "target/debian_packages.h"
#include "versions/package_files.h"

namespace rankstacks::capture {
namespace {

using Package = std::pair<std::string, PackageFrom>;
using Packages = std::map<std::string, Package>;  // by path

Packages packages_of(const std::vector<std::string>& paths, const std::string& sysroot) {
  Packages packages;
  for (auto& [path, package] : target::debian_packages_of(paths, sysroot))
    packages.emplace(path, Package(std::move(package), PackageFrom::kDpkg));
  std::set<std::string> rest;
  for (const std::string& path : paths)
    if (!packages.contains(path)) rest.insert(path);
  for (const std::string& root :
       sysroot.empty() ? std::vector<std::string>{"/"} : std::vector{sysroot, std::string("/")}) {
    const auto opened = RootDirectory::open(root);
    if (!opened) continue;
    for (const auto& [find, from] : {std::pair(&versions::wheels_with, PackageFrom::kWheel),
                                     std::pair(&versions::conda_packages_with, PackageFrom::kConda)})
      for (auto& [path, package] : find(*opened, rest)) {
        packages.emplace(path, Package(std::move(package), from));
        rest.erase(path);
      }
  }
  return packages;
}

void count_frames(const RankSnapshot& rank, const FrameTable& frames, std::vector<MissingFile>& files) {
  std::unordered_map<std::string_view, std::size_t> of_module;
  for (const ThreadSnapshot& thread : rank.threads)
    for (const FrameId id : thread.frames)
      if (const Frame& frame = frames[id]; frame.kind == FrameKind::kNative) ++of_module[frame.module];
  for (MissingFile& file : files)
    if (const auto found = of_module.find(file.path); found != of_module.end()) file.frames = found->second;
  std::stable_sort(files.begin(), files.end(),
                   [](const MissingFile& a, const MissingFile& b) { return a.frames > b.frames; });
}

}  // namespace

void describe_missing_files(JobSnapshot& job, MissingFiles missing, const std::string& sysroot,
                            std::chrono::steady_clock::duration limit) {
  std::set<std::string> all;
  for (const auto& [core, files] : missing)
    for (const MissingFile& file : files) all.insert(file.path);
  if (all.empty()) return;
  const std::vector<std::string> paths(all.begin(), all.end());
  const Packages packages = unattended<Packages>([paths, sysroot] { return packages_of(paths, sysroot); },
                                                 std::max<Unattended::Duration>(limit, kMinTimeout))
                                .value_or(Packages());
  for (RankSnapshot& rank : job.ranks) {
    const auto of_core = rank.path ? missing.find(*rank.path) : missing.end();
    if (of_core == missing.end()) continue;
    std::vector<MissingFile>& files = of_core->second;
    count_frames(rank, job.frames, files);
    for (MissingFile& file : files)
      if (const auto found = packages.find(file.path); found != packages.end())
        std::tie(file.package, file.from) = found->second;
    for (Problem& problem : rank.problems)
      if (problem.code == ProblemCode::kFileMissing) problem = missing_files_problem(files);
    if (files.size() > kMaxMissingFiles) files.resize(kMaxMissingFiles);
    rank.missing_files = std::move(files);
  }
}

}  // namespace rankstacks::capture
