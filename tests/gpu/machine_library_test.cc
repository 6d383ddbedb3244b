// Which libraries count as the machine's own: those that only root can have written.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "gpu/loader_cache.h"
#include "gpu/machine_library.h"
#include "support/temporary_directory.h"
#include "target/proc.h"

namespace rankstacks::gpu {
namespace {

using testing::TemporaryDirectory;

// A directory that belongs to root, in one that everybody may write: only the directory itself counts for its files.
struct Place {
  Place() {
    std::filesystem::create_directory(directory / "lib");
    chmod((directory / "lib").c_str(), 0755);
    testing::write_file(library, std::string_view("a library"));
    chmod(library.c_str(), 0644);
  }
  std::string refused() const {
    const auto opened = open_machine_library(library, directory.path());
    return opened ? "" : opened.error().message();
  }
  TemporaryDirectory directory;
  std::string library = directory / "lib/libx.so.1";
};

std::string word(std::uint32_t value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); }

struct Entry {
  std::uint32_t flags;
  std::string name, path;
};
std::string cache_of(const std::vector<Entry>& entries) {
  std::string strings, table;
  const std::size_t start = 48 + 24 * entries.size();
  for (const Entry& entry : entries) {
    table += word(entry.flags) + word(static_cast<std::uint32_t>(start + strings.size()));
    strings += entry.name + '\0';
    table += word(static_cast<std::uint32_t>(start + strings.size())) + word(0) + word(0) + word(0);
    strings += entry.path + '\0';
  }
  return "glibc-ld.so.cache1.1" + word(static_cast<std::uint32_t>(entries.size())) +
         word(static_cast<std::uint32_t>(strings.size())) + std::string(20, '\0') + table + strings;
}
std::vector<std::string> found(const std::string& cache, std::string_view name) {
  return paths_in_loader_cache(std::as_bytes(std::span(cache)), name);
}

}  // namespace

TEST_CASE("a library of root's in directories of root's is opened") {
  const auto maps = target::proc::read_file("/proc/self/maps");
  std::string libc;
  for (const target::Mapping& mapping : target::proc::parse_maps(*maps))
    if (mapping.path.ends_with("/libc.so.6")) libc = mapping.path;
  if (libc.empty()) WARN("this program has no libc.so.6 of the machine");
  else {
    const auto opened = open_machine_library(libc);
    REQUIRE(opened);
    struct stat file {};
    REQUIRE(stat(libc.c_str(), &file) == 0);
    CHECK(opened->inode == file.st_ino);
    CHECK(opened->device == file.st_dev);
    CHECK(find_machine_libraries("libc.so.6", Machine{}).has_value());
  }
}

TEST_CASE("what somebody else could have written is not the machine's") {
  if (geteuid() != 0) {
    WARN("skipped: files of another owner need root");
    return;
  }
  Place place;
  CHECK(place.refused().empty());
  SECTION("the file of another owner") {
    REQUIRE(chown(place.library.c_str(), 1000, 0) == 0);
    CHECK(place.refused() == place.library + ": is not loaded: it belongs to uid 1000");
  }
  SECTION("the file of another group that may write it") {
    REQUIRE(chown(place.library.c_str(), 0, 1000) == 0);
    CHECK(place.refused().empty());
    chmod(place.library.c_str(), 0664);
    CHECK(place.refused() == place.library + ": is not loaded: it may be written by gid 1000");
    REQUIRE(chown(place.library.c_str(), 0, 0) == 0);
    CHECK(place.refused() == place.library + ": is not loaded: it may be written by gid 0");
  }
  SECTION("a file that everybody may write") {
    chmod(place.library.c_str(), 0666);
    CHECK(place.refused() == place.library + ": is not loaded: it may be written by everybody");
  }
  SECTION("a directory that everybody may write, sticky or not") {
    chmod((place.directory / "lib").c_str(), 01777);
    CHECK(place.refused() == fmt::format("{0}: is not loaded: its directory {1}/lib may be written by everybody",
                                         place.library, place.directory.path()));
  }
  SECTION("a directory of another owner") {
    REQUIRE(chown((place.directory / "lib").c_str(), 1000, 1000) == 0);
    CHECK(place.refused() == fmt::format("{0}: is not loaded: its directory {1}/lib belongs to uid 1000", place.library,
                                         place.directory.path()));
  }
  SECTION("a link in a directory of root's that leads to such a one") {
    std::filesystem::create_directory(place.directory / "safe");
    chmod((place.directory / "safe").c_str(), 0755);
    std::filesystem::create_symlink(place.library, place.directory / "safe/libx.so.1");
    CHECK(open_machine_library(place.directory / "safe/libx.so.1", place.directory.path()));
    chmod((place.directory / "lib").c_str(), 0777);
    const auto linked = open_machine_library(place.directory / "safe/libx.so.1", place.directory.path());
    REQUIRE_FALSE(linked);
    CHECK(linked.error().what.find("/lib may be written by everybody") != std::string::npos);
  }
  SECTION("no regular file") {
    std::filesystem::remove(place.library);
    REQUIRE(mkfifo(place.library.c_str(), 0644) == 0);  // to open it would wait for a writer
    CHECK(place.refused() == place.library + ": is not loaded: it is no regular file");
  }
  SECTION("none") {
    std::filesystem::remove(place.library);
    CHECK(open_machine_library(place.library, place.directory.path()).error().code == ErrorCode::kNotFound);
  }
}

TEST_CASE("a played machine has what lies in its directory, and nothing else") {
  const TemporaryDirectory directory;
  CHECK(find_machine_libraries("libc.so.6", Machine{directory.path()}).error().code == ErrorCode::kNotFound);
  testing::write_file(directory / "libc.so.6", std::string_view("a library"));
  const auto libraries = find_machine_libraries("libc.so.6", Machine{directory.path()});
  REQUIRE(libraries);
  CHECK(libraries->front().path == directory / "libc.so.6");
  CHECK(load(libraries->front()).error().message().find("cannot be loaded") != std::string::npos);
}

TEST_CASE("the loader's cache") {
  const std::string cache = cache_of({{0x0303, "libcuda.so.1", "/opt/a/libcuda.so.1"},
                                      {0x0003, "libcuda.so.1", "/i386/libcuda.so.1"},
                                      {0x0303, "libcuda.so", "/opt/a/libcuda.so"},
                                      {0x0303, "libcuda.so.1", "/opt/b/libcuda.so.1"}});
  CHECK(found(cache, "libcuda.so.1") == std::vector<std::string>{"/opt/a/libcuda.so.1", "/opt/b/libcuda.so.1"});
  CHECK(found(cache, "libcuda.so") == std::vector<std::string>{"/opt/a/libcuda.so"});
  CHECK(found("ld.so-1.7.0" + std::string(37, 'x') + cache, "libcuda.so") ==
        std::vector<std::string>{"/opt/a/libcuda.so"});
  CHECK(found(cache, "libc").empty());
  // Truncated anywhere, or with nonsense counts and offsets, the cache yields nothing that is not in it.
  for (std::size_t length = 0; length < cache.size(); ++length)
    for (const std::string& path : found(cache.substr(0, length), "libcuda.so.1")) CHECK(path.starts_with("/opt/"));
  for (std::size_t at = 20; at + 4 <= 48 + 24 * 4; at += 4) {
    std::string bad = cache;
    std::memset(bad.data() + at, 0xff, 4);
    CHECK(found(bad, "libcuda.so.1").size() <= 3);
  }
}

}  // namespace rankstacks::gpu
