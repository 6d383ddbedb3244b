#include "versions/file_versions.h"

#include <sys/stat.h>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "support/temporary_directory.h"

using namespace rankstacks;
using namespace rankstacks::versions;
using namespace rankstacks::testing;

namespace {

FileVersion in_file(const std::string& path) {
  const auto image = elf::Image::open(path, path);
  REQUIRE(image);
  const auto* rule = known::component_of(path.substr(path.rfind('/') + 1));
  REQUIRE(rule != nullptr);
  return version_in_file(*rule, **image);
}

// Compiles a library of that name; the compiler is there, as it has compiled this test.
std::string library(const TemporaryDirectory& directory, const std::string& name, const std::string& source) {
  const std::string path = directory / name, code = directory / "source.c";
  std::ofstream(code) << source;
  const std::string command = "cc -shared -fPIC -o '" + path + "' '" + code + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  return path;
}

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("NCCL's version and its CUDA toolkit, from its read-only data") {
  TemporaryDirectory directory;
  const FileVersion found =
      in_file(library(directory, "libnccl.so.2", "const char* f(void) { return \"NCCL version 2.27.3+cuda12.9\"; }"));
  CHECK(found.version == "2.27.3");
  CHECK(found.cuda == "12.9");
  CHECK(found.from == VersionFrom::kText);
  CHECK(in_file(library(directory, "libnccl.so.3", "int f(void) { return 1; }")).version.empty());
}

TEST_CASE("MPI of both families, and a network plugin") {
  TemporaryDirectory directory;
  CHECK(in_file(library(directory, "libmpi.so.40.30.4", "const char* f(void) { return \"v4.1.4\"; }")).version ==
        "Open MPI 4.1.4");
  CHECK(in_file(library(directory, "libmpi.so.12.2.2", "const char MPII_Version_string[] = \"4.0.2\";")).version ==
        "MPICH 4.0.2");
  CHECK(in_file(library(directory, "libnccl-net.so",
                        "const char* f(void) { return \"NET/OFI Initializing aws-ofi-nccl 1.13.2-aws\"; }"))
            .version == "aws-ofi-nccl 1.13.2-aws");
}

TEST_CASE("the C library of this machine") {
  for (const char* path : {"/usr/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"}) {
    if (!std::filesystem::exists(path)) continue;
    CHECK(in_file(path).version.starts_with("2."));
    return;
  }
  WARN("skipped: no libc.so.6 at the usual places");
}

TEST_CASE("packages, by METADATA, PKG-INFO and a file alone") {
  TemporaryDirectory directory;
  const std::string site = directory / "root/v/site-packages";
  write(site + "/nvidia_nccl_cu12-2.28.9.dist-info/METADATA", "Name: nvidia-nccl-cu12\nVersion: 2.28.9\n\nlong\n");
  write(site + "/nvidia_cuda_runtime_cu11-11.8.89.dist-info/METADATA", "Version: 11.8.89\n");
  write(site + "/nvidia_cuda_runtime_cu12-12.9.79.dist-info/METADATA", "Version: 12.9.79\n");
  write(site + "/triton-3.1.egg-info", "Version: 3.1\n");
  write(site + "/torch-2.3.0.dist-info/METADATA", "Version: 2.3.0\n");
  write(site + "/torch/version.py", "__version__ = '2.3.0+cu121'\ncuda: Optional[str] = '12.1'\n");
  write(site + "/unrelated-9.dist-info/METADATA", "Version: 9\n");
  const auto root = RootDirectory::open(directory / "root");
  REQUIRE(root);
  const Packages packages = read_packages(*root, "/v/site-packages");
  CHECK(packages.versions == std::map<std::string, std::string>{{"nvidia_cuda_runtime_cu11", "11.8.89"},
                                                                {"nvidia_cuda_runtime_cu12", "12.9.79"},
                                                                {"nvidia_nccl_cu12", "2.28.9"},
                                                                {"torch", "2.3.0"},
                                                                {"triton", "3.1"}});
  const auto known = [&](const char* name) { return version_of(*known::component_of(name), name, {}, &packages); };
  CHECK(known("libnccl.so.2").version == "2.28.9");
  CHECK(known("libnccl.so.2").from == VersionFrom::kMetadata);
  CHECK(known("libcudart.so.12").version == "12.9.79");
  CHECK(known("libcudart.so.13").version == "13");
  CHECK(known("libcudart.so.13").from == VersionFrom::kFileName);
  CHECK(known("libtorch_cpu.so").version == "2.3.0+cu121");
  CHECK(known("libtorch_cpu.so").cuda == "12.1");
  CHECK(version_of(*known::component_of("libtorch_cpu.so.1.13.0"), "libtorch_cpu.so.1.13.0", {}, nullptr).version ==
        "1.13.0");
}

TEST_CASE("metadata that is no regular file, that is damaged or leads out of the root is no version") {
  TemporaryDirectory directory;
  const std::string site = directory / "root/site-packages";
  write(directory / "outside", "Version: 6.6.6\n");
  std::filesystem::create_directories(site + "/torch-1.dist-info");
  std::filesystem::create_directories(site + "/triton-1.dist-info");
  std::filesystem::create_directories(site + "/jaxlib-1.dist-info");
  std::filesystem::create_directories(site + "/tensorflow-1.dist-info/METADATA");
  REQUIRE(mkfifo((site + "/torch-1.dist-info/METADATA").c_str(), 0600) == 0);
  std::filesystem::create_symlink(directory / "outside", site + "/triton-1.dist-info/METADATA");
  write(site + "/jaxlib-1.dist-info/METADATA", std::string("Version: \x7f\x80\0\n", 13) + std::string(1 << 20, 'x'));
  const auto root = RootDirectory::open(directory / "root");
  REQUIRE(root);
  CHECK(read_packages(*root, "/site-packages").versions.empty());
  CHECK(read_packages(*root, "/nowhere").versions.empty());
}
