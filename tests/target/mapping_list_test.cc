// The mappings of a process, by both ways in which the kernel tells them.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "support/child_process.h"
#include "support/temporary_directory.h"
#include "target/mapping_list.h"

using namespace rankstacks;
using namespace rankstacks::target;
using namespace rankstacks::testing;

namespace {

constexpr std::size_t kPage = 4096;

// Text names the page of vsyscalls as well, which belongs to no process.
std::vector<Mapping> without_vsyscall(std::vector<Mapping> mappings) {
  std::erase_if(mappings, [](const Mapping& m) { return m.path == "[vsyscall]"; });
  return mappings;
}

std::string line_of(const Mapping& m) {
  std::string line = std::to_string(m.range.start) + "-" + std::to_string(m.range.end);
  for (const bool flag : {m.readable, m.writable, m.executable, m.deleted}) line += flag ? '+' : '-';
  return line + " " + std::to_string(m.file_offset) + " " + std::to_string(m.device) + ":" + std::to_string(m.inode) +
         " " + m.path;
}

std::vector<std::string> lines_of(const std::vector<Mapping>& mappings) {
  std::vector<std::string> lines;
  for (const Mapping& m : mappings) lines.push_back(line_of(m));
  return lines;
}

}  // namespace

TEST_CASE("a question for each mapping and the text tell the same") {
  const TemporaryDirectory directory;
  const auto map_file = [&](const std::string& name, std::size_t pages) {
    const int file = open((directory.path() + "/" + name).c_str(), O_RDWR | O_CREAT, 0600);
    void* const at = ftruncate(file, static_cast<off_t>(pages * kPage)) == 0
                         ? mmap(nullptr, pages * kPage, PROT_READ, MAP_PRIVATE, file, 0)
                         : MAP_FAILED;
    close(file);
    if (at == MAP_FAILED) _exit(1);
    return static_cast<char*>(at);
  };
  const ChildProcess child([&](const auto& ready) {
    char* const parts = map_file("a file in parts", 4);
    mprotect(parts + kPage, kPage, PROT_READ | PROT_EXEC);
    mprotect(parts + 2 * kPage, kPage, PROT_READ | PROT_WRITE);
    map_file("deleted", 2);
    unlink((directory.path() + "/deleted").c_str());
    map_file("with\na newline", 1);
    mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // The same part of a file twice, one after the other.
    char* const twice = map_file("twice", 2);
    const int file = open((directory.path() + "/twice").c_str(), O_RDONLY);
    mmap(twice + kPage, kPage, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
    ready();
    pause();
  });
  REQUIRE(child.ready());
  const std::string path = "/proc/" + std::to_string(child.pid()) + "/maps";
  const auto text = read_mappings_text(path);
  REQUIRE(text);
  const auto has = [&](const std::string& name, bool deleted) {
    return std::count_if(text->begin(), text->end(), [&](const Mapping& m) {
      return m.path == directory.path() + "/" + name && m.deleted == deleted;
    });
  };
  CHECK(has("a file in parts", false) == 4);
  CHECK(has("deleted", true) == 1);
  CHECK(has("with\na newline", false) == 1);
  CHECK(has("twice", false) == 2);
  const auto both = mappings_in("/proc/" + std::to_string(child.pid()));
  REQUIRE(both);
  CHECK(lines_of(without_vsyscall(*both)) == lines_of(without_vsyscall(*text)));
  const auto asked = ask_for_mappings(path);
  if (!asked) {
    WARN("skipped: this kernel has no PROCMAP_QUERY (Linux 6.11)");
    return;
  }
  CHECK(lines_of(*asked) == lines_of(without_vsyscall(*text)));
}

TEST_CASE("a process that is not there has no mappings") {
  CHECK_FALSE(ask_for_mappings("/proc/0/maps"));
  CHECK_FALSE(mappings_in("/proc/0"));
}
