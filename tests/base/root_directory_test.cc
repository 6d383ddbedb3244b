#include "base/root_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "support/temporary_directory.h"

using namespace rankstacks;
using namespace rankstacks::testing;
namespace fs = std::filesystem;

TEST_CASE("links are resolved below the root") {
  TemporaryDirectory directory;
  const std::string root_path = directory / "root";
  fs::create_directories(root_path + "/etc");
  fs::create_directories(root_path + "/usr/lib");
  std::ofstream(root_path + "/usr/lib/os-release") << "inside";
  std::ofstream(directory / "secret") << "outside";
  fs::create_symlink("/usr/lib/os-release", root_path + "/etc/os-release");
  fs::create_symlink("../../../secret", root_path + "/etc/up");
  fs::create_symlink(directory / "secret", root_path + "/etc/absolute");
  const auto root = RootDirectory::open(root_path);
  REQUIRE(root);
  CHECK(root->read("/etc/os-release", 100) == "inside");
  CHECK(root->read("/etc/os-release", 3) == "ins");
  CHECK(root->read("/etc/up", 100) == std::nullopt);
  CHECK(root->read("/etc/absolute", 100) == std::nullopt);
  CHECK(root->has("/usr/lib"));
  CHECK_FALSE(root->has("/secret"));
  CHECK(root->names("/usr", 10).size() == 3);  // ".", "..", "lib"
  CHECK(root->names("/usr", 2).size() == 2);
  CHECK(root->names("/usr/lib/os-release", 10).empty());
  CHECK_FALSE(RootDirectory::open(directory / "nowhere"));
  CHECK_FALSE(RootDirectory::open(directory / "secret"));
}

TEST_CASE("without openat2(), links are followed below the root as well") {
  TemporaryDirectory directory;
  const std::string root_path = directory / "root";
  fs::create_directories(root_path + "/usr/lib");
  std::ofstream(root_path + "/usr/lib/file") << "inside";
  std::ofstream(directory / "secret") << "outside";
  std::ofstream(root_path + "/secret") << "the root's own";
  fs::create_directory_symlink("/usr/lib", root_path + "/lib");
  fs::create_symlink("../../../secret", root_path + "/usr/up");
  fs::create_symlink("/secret", root_path + "/usr/absolute");
  fs::create_symlink("loop", root_path + "/loop");
  const FileDescriptor root(open(root_path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const auto root_directory = RootDirectory::open(root_path);
  REQUIRE(root_directory);
  const auto identity = [](const FileDescriptor& place) {
    struct stat status {};
    return place.is_open() && fstat(place.get(), &status) == 0 ? status.st_ino : 0;
  };
  // As the kernel does it.
  for (const char* path : {"/usr/lib/file", "usr/lib/file", "/lib/file", "//lib/./file", "/usr/up", "/usr/absolute",
                           "/", "", "..", "/../../usr", "/usr/lib/../../secret", "/loop", "/loop/x", "/usr/lib/file/x",
                           "/usr/lib/file/..", "/nothing", "/nothing/../secret", "/lib/.."}) {
    INFO(path);
    if (*path != '\0') CHECK(identity(walk_below(root, path)) == identity(root_directory->place(path)));
  }
  CHECK(identity(walk_below(root, "/usr/up")) == identity(walk_below(root, "/secret")));
  CHECK_FALSE(walk_below(root, "/loop").is_open());
  CHECK_FALSE(walk_below(root, "/usr/lib/file/..").is_open());
}

TEST_CASE("pipes, directories and files of the kernel are not read") {
  TemporaryDirectory directory;
  REQUIRE(mkfifo((directory / "pipe").c_str(), 0600) == 0);
  const auto root = RootDirectory::open(directory.path());
  REQUIRE(root);
  CHECK(root->read("/pipe", 10) == std::nullopt);
  CHECK(root->read("/", 10) == std::nullopt);
  const auto machine = RootDirectory::open("/");
  REQUIRE(machine);
  CHECK(machine->read("/proc/self/maps", 10) == std::nullopt);
  CHECK(machine->read("/dev/zero", 10) == std::nullopt);
}

TEST_CASE("roots are distinguished") {
  TemporaryDirectory directory;
  const auto one = RootDirectory::open(directory.path()), again = RootDirectory::open(directory.path()),
             other = RootDirectory::open("/");
  REQUIRE((one && again && other));
  CHECK(one->identity() == again->identity());
  CHECK(one->identity() != other->identity());
}
