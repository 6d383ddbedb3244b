#include "capture/missing_files.h"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "support/temporary_directory.h"

using namespace rankstacks;
using namespace rankstacks::capture;

namespace {

namespace fs = std::filesystem;
constexpr std::chrono::seconds kLimit{10};

Frame in_file(const std::string& path, Address address) {
  Frame frame;
  frame.module = path;
  frame.address = address;
  return frame;
}

// A core whose threads lead through these files, one frame each.
JobSnapshot core_with(const std::vector<std::string>& modules, const std::string& path = "core.7") {
  JobSnapshot job;
  RankSnapshot& rank = job.ranks.emplace_back();
  rank.source = Source::kCore;
  rank.path = path;
  rank.problems = {{"partial", std::nullopt, ProblemCode::kIncomplete},
                   {"files", "give them", ProblemCode::kFileMissing}};
  std::vector<FrameId> frames;
  for (const std::string& module : modules)
    frames.push_back(job.frames.intern(in_file(module, 0x1000 + frames.size())));
  rank.threads.emplace_back().frames = frames;
  return job;
}

void put(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("the missing files that most frames are in come first, and a dozen of them are named") {
  std::vector<MissingFile> files;
  for (int i = 0; i < 30; ++i) files.push_back({.path = fmt::format("/x/lib{:02}.so", i), .build_id = "ab"});
  JobSnapshot job = core_with({"/x/lib29.so", "/x/lib17.so", "/x/lib29.so", "/x/here.so"});
  describe_missing_files(job, {{"core.7", files}, {"core.8", files}}, "", kLimit);
  REQUIRE(job.ranks[0].problems.size() == 2);
  const Problem& problem = job.ranks[0].problems[1];
  CHECK(problem.code == ProblemCode::kFileMissing);
  CHECK(problem.message ==
        "30 files of the process missing on this machine: /x/lib29.so (build-id ab), /x/lib17.so (build-id ab), "
        "/x/lib00.so (build-id ab), /x/lib01.so (build-id ab), /x/lib02.so (build-id ab), /x/lib03.so (build-id ab), "
        "/x/lib04.so (build-id ab), /x/lib05.so (build-id ab), /x/lib06.so (build-id ab), /x/lib07.so (build-id ab), "
        "/x/lib08.so (build-id ab), /x/lib09.so (build-id ab) and 18 more files");
  CHECK(problem.hint == "give them with --sysroot or --search, or open the core on the machine where it was taken");
  CHECK(job.ranks[0].problems[0].message == "partial");
  REQUIRE(job.ranks[0].missing_files.size() == 30);
  CHECK(job.ranks[0].missing_files[0] == MissingFile{.path = "/x/lib29.so", .build_id = "ab", .frames = 2});
  CHECK(job.ranks[0].missing_files[29] == MissingFile{.path = "/x/lib28.so", .build_id = "ab"});
}

TEST_CASE("missing files are named with the packages that have them") {
  const testing::TemporaryDirectory directory;
  const std::string root = directory.path();
  const std::string site = "/opt/env/lib/python3.12/site-packages";
  put(root + site + "/torch-2.11.0+cu130.dist-info/RECORD",
      "torch/__init__.py,sha256=x,1\n\"a,b.py\",,\ntorch/lib/libtorch_cpu.so,sha256=y,400000000\n");
  put(root + site + "/numpy-2.2.0.dist-info/RECORD", "numpy/core.so,,\n");
  put(root + "/opt/env/conda-meta/libstdcxx-14.2.0-h8f9b012_2.json",
      R"({"name": "libst\"dcxx", "files": ["lib/libstdc++.so.6", "lib/libstdc++.so.6.0.33"]})");
  put(root + "/opt/env/conda-meta/history", "nothing");
  const std::string torch = site + "/torch/lib/libtorch_cpu.so", standard = "/opt/env/lib/libstdc++.so.6.0.33";
  put(root + "/var/lib/dpkg/info/libfixture1:amd64.list", "/.\n/lib/libfixture.so\n");
  JobSnapshot job = core_with({torch});
  describe_missing_files(job,
                         {{"core.7",
                           {{.path = "/opt/env/lib/libnone.so", .build_id = ""},
                            {.path = "/usr/lib/libfixture.so", .build_id = ""},
                            {.path = standard, .build_id = ""},
                            {.path = torch, .build_id = "cd"}}}},
                         root, kLimit);
  const Problem& problem = job.ranks[0].problems[1];
  CHECK(problem.message == "4 files of the process missing on this machine: " + torch +
                               " (build-id cd, of torch 2.11.0+cu130), /opt/env/lib/libnone.so, /usr/lib/libfixture.so "
                               "(of libfixture1:amd64), " +
                               standard + " (of libstdcxx-14.2.0-h8f9b012_2)");
  REQUIRE(problem.hint);
  CHECK(problem.hint->ends_with(
      "; they are of the packages torch 2.11.0+cu130, libfixture1:amd64, libstdcxx-14.2.0-h8f9b012_2"));
  CHECK(job.ranks[0].missing_files ==
        std::vector<MissingFile>{{torch, "cd", "torch 2.11.0+cu130", PackageFrom::kWheel, 1},
                                 {"/opt/env/lib/libnone.so", "", "", PackageFrom::kUnknown, 0},
                                 {"/usr/lib/libfixture.so", "", "libfixture1:amd64", PackageFrom::kDpkg, 0},
                                 {standard, "", "libstdcxx-14.2.0-h8f9b012_2", PackageFrom::kConda, 0}});
}
