#include "versions/stated_in_frames.h"

#include <catch2/catch.hpp>
#include <map>

using namespace rankstacks;
using namespace rankstacks::versions;

namespace {

// A rank with a frame in each of these modules, and a Python frame in each of these files.
RankSnapshot& add_rank(JobSnapshot& job, const std::vector<std::string>& modules,
                       const std::vector<std::string>& files = {}) {
  RankSnapshot& rank = job.ranks.emplace_back();
  ThreadSnapshot& thread = rank.threads.emplace_back();
  for (const std::string& module : modules) {
    Frame frame;
    frame.module = module;
    thread.frames.push_back(job.frames.intern(frame));
  }
  for (const std::string& file : files) {
    Frame frame;
    frame.kind = FrameKind::kPython;
    frame.file = file;
    thread.frames.push_back(job.frames.intern(frame));
  }
  return rank;
}

std::map<std::string, std::string> stated(const std::vector<std::string>& modules,
                                          const std::vector<std::string>& files = {}) {
  JobSnapshot job;
  add_rank(job, modules, files);
  add_modules_of_frames(job);
  std::map<std::string, std::string> versions;
  for (const LoadedModule& module : job.ranks[0].modules) {
    CHECK(module.from == VersionFrom::kFileName);
    versions[module.component] = module.version + " " + module.path;
  }
  return versions;
}

using Versions = std::map<std::string, std::string>;

}  // namespace

TEST_CASE("versions that the names of modules state") {
  CHECK(stated({"/usr/lib/x86_64-linux-gnu/libtorch_cpu.so.1.13", "/opt/libnccl.so.2.27.3", "libcudart.so.12.4.127",
                "/usr/lib/libcuda.so.580.95.05", "/usr/bin/python3.11"}) ==
        Versions{{"CUDA driver", "580.95.05 /usr/lib/libcuda.so.580.95.05"},
                 {"CUDA runtime", "12.4.127 libcudart.so.12.4.127"},
                 {"NCCL", "2.27.3 /opt/libnccl.so.2.27.3"},
                 {"Python", "3.11 /usr/bin/python3.11"},
                 {"torch", "1.13 /usr/lib/x86_64-linux-gnu/libtorch_cpu.so.1.13"}});
  CHECK(stated({"/lib/libpython3.12.so.1.0"}) == Versions{{"Python", "3.12 /lib/libpython3.12.so.1.0"}});
  // Names of an interface, not of a release; names without a number; other files.
  CHECK(stated({"/x/nvidia/nccl/lib/libnccl.so.2", "libcuda.so.1", "libtorch_cpu.so", "libc.so.6", "libmpi.so.40.30.4",
                "python3", "/usr/bin/python3.", "python3.1234", "/srv/python3.11/train", "", "[vdso]",
                "libnccl.so.2.27.3 (deleted)"})
            .empty());
}

TEST_CASE("Python's version in the paths of sources") {
  CHECK(stated({}, {"/usr/lib/python3/dist-packages/torch/nn.py", "/usr/lib/python3.11/threading.py"}) ==
        Versions{{"Python", "3.11 /usr/lib/python3.11"}});
  CHECK(stated({}, {"/v/lib/python3.9/site-packages/torch/nn.py"}) == Versions{{"Python", "3.9 /v/lib/python3.9"}});
  CHECK(stated({}, {"/srv/python3.11/train.py", "/lib/python3.11", "/lib/python3.x/a.py", "/lib/python3.111/a.py",
                    "threading.py"})
            .empty());
  CHECK(stated({"/usr/bin/python3.12"}, {"/usr/lib/python3.11/threading.py"}).empty());
}

TEST_CASE("versions on which frames do not agree are not known") {
  CHECK(
      stated({"/a/libnccl.so.2.27.3", "/b/libnccl.so.2.28.9", "/a/libnccl.so.2.27.3", "/c/libtorch.so.1.13"}).empty());
  CHECK(stated({"libtorch_cpu.so.1.13", "libtorch_python.so.1.13.0", "libtorch_cpu.so.1.13"}) ==
        Versions{{"torch", "1.13.0 libtorch_python.so.1.13.0"}});
  CHECK(stated({"libtorch_cpu.so.1.1", "libtorch_cpu.so.1.13"}).empty());
}

TEST_CASE("a rank of which more is known than its frames") {
  JobSnapshot job;
  add_rank(job, {"libnccl.so.2.27.3"}).environment.emplace();
  add_rank(job, {"libnccl.so.2.27.3"}).modules = {{"NCCL", "/v/libnccl.so.2", "", "2.28.9", VersionFrom::kText, ""}};
  add_rank(job, {"libnccl.so.2.27.3"});
  add_modules_of_frames(job);
  CHECK(job.ranks[0].modules.empty());
  REQUIRE(job.ranks[1].modules.size() == 1);
  CHECK(job.ranks[1].modules[0].version == "2.28.9");
  REQUIRE(job.ranks[2].modules.size() == 1);
  CHECK(job.ranks[2].modules[0].version == "2.27.3");
}
