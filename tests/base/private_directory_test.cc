#include "base/private_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/whole_file.h"
#include "support/temporary_directory.h"

namespace rankstacks {
namespace {

TEST_CASE("a directory is made for its user alone") {
  const testing::TemporaryDirectory parent;
  const auto directory = PrivateDirectory::open(parent / "own");
  REQUIRE(directory);
  struct stat status {};
  REQUIRE(stat((parent / "own").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0700);
  CHECK(PrivateDirectory::open(parent / "own"));
}

TEST_CASE("what others may enter, or have put there, is refused") {
  const testing::TemporaryDirectory parent;
  REQUIRE(mkdir((parent / "open").c_str(), 0700) == 0);
  REQUIRE(chmod((parent / "open").c_str(), 0750) == 0);
  std::ofstream(parent / "file") << "x";
  REQUIRE(symlink("open", (parent / "link").c_str()) == 0);
  for (const char* name : {"open", "file", "link", "no/parent"}) {
    const auto directory = PrivateDirectory::open(parent / name);
    REQUIRE_FALSE(directory);
    CHECK(directory.error().code == ErrorCode::kPermission);
  }
}

TEST_CASE("a file appears whole, and is only read if it is the user's own regular file") {
  const testing::TemporaryDirectory parent;
  const auto directory = PrivateDirectory::open(parent / "own");
  REQUIRE(directory);
  CHECK(directory->write("answer", "42") == 0);
  CHECK(directory->write("answer", "43") == 0);
  CHECK(directory->read("answer", 2) == "43");
  CHECK_FALSE(directory->read("answer", 1));
  std::ofstream(parent / "secret") << "x";
  REQUIRE(symlink("../secret", (parent / "own/link").c_str()) == 0);
  REQUIRE(mkfifo((parent / "own/fifo").c_str(), 0600) == 0);
  CHECK_FALSE(directory->read("link", 100));
  CHECK_FALSE(directory->read("fifo", 100));
  CHECK_FALSE(directory->read("none", 100));
  CHECK(directory->names() == std::vector<std::string>{"answer"});
  directory->remove("answer");
  CHECK(directory->names().empty());
}

TEST_CASE("a lock is one process's, and is not opened through a link") {
  const testing::TemporaryDirectory parent;
  const auto directory = PrivateDirectory::open(parent / "own");
  REQUIRE(directory);
  {
    const auto lock = directory->lock("lock", Deadline::never());
    REQUIRE(lock);
    const auto other = directory->lock("lock", Deadline::after(std::chrono::milliseconds(20)));
    REQUIRE_FALSE(other);
    CHECK(other.error().code == ErrorCode::kTimeout);
  }
  CHECK(directory->lock("lock", Deadline::after(std::chrono::milliseconds(20))));
  REQUIRE(symlink("../elsewhere", (parent / "own/link").c_str()) == 0);
  CHECK_FALSE(directory->lock("link", Deadline::never()));
  CHECK_FALSE(std::filesystem::exists(parent / "elsewhere"));
}

TEST_CASE("a file that cannot be written leaves nothing") {
  const testing::TemporaryDirectory parent;
  REQUIRE(mkdir((parent / "name").c_str(), 0700) == 0);
  std::ofstream(parent / "name/x") << "x";
  const FileDescriptor directory(open(parent.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(directory.is_open());
  CHECK(write_whole_file(directory, "name", "text") == EISDIR);  // a directory of that name is in the way
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(parent.path())) ++entries;
  CHECK(entries == 1);
}

}  // namespace
}  // namespace rankstacks
