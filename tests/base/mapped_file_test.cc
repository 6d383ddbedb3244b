#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <csignal>
#include <vector>

#include "base/mapped_file.h"

namespace rankstacks {
namespace {

constexpr std::size_t kPage = 4096;

struct Scratch {
  explicit Scratch(std::size_t pages) : fd(memfd_create("mapped", MFD_CLOEXEC)) {
    const std::vector<char> bytes(pages * kPage, 'A');
    REQUIRE(pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }
  ~Scratch() { close(fd); }
  int fd;
};

std::byte at(const MappedFile& file, std::size_t offset) {
  return *const_cast<const volatile std::byte*>(&file.bytes()[offset]);
}

TEST_CASE("a file that is truncated while it is mapped reads as zeros past its end, and the mapping says so") {
  const Scratch scratch(3);
  const auto file = MappedFile::map(scratch.fd, 3 * kPage);
  REQUIRE(file);
  CHECK(at(*file, 2 * kPage) == std::byte{'A'});
  CHECK_FALSE(file->has_lost_pages());
  REQUIRE(ftruncate(scratch.fd, kPage) == 0);
  CHECK(at(*file, kPage - 1) == std::byte{'A'});
  CHECK_FALSE(file->has_lost_pages());
  CHECK(file->first_lost() == 3 * kPage);
  CHECK(at(*file, 2 * kPage + 5) == std::byte{0});
  CHECK(file->has_lost_pages());
  CHECK(file->first_lost() == 2 * kPage);
  CHECK(at(*file, kPage) == std::byte{0});
  CHECK(file->first_lost() == kPage);
}

TEST_CASE("each mapping knows only its own losses, and a destroyed one has none") {
  const Scratch cut(2), whole(2);
  auto first = MappedFile::map(cut.fd, 2 * kPage);
  const auto second = MappedFile::map(whole.fd, 2 * kPage);
  REQUIRE(ftruncate(cut.fd, 0) == 0);
  MappedFile moved = std::move(*first);
  CHECK(at(moved, 0) == std::byte{0});
  CHECK(moved.has_lost_pages());
  CHECK_FALSE(second->has_lost_pages());
  CHECK_FALSE(first->has_lost_pages());
  moved = MappedFile();
  first.reset();
  const auto third = MappedFile::map(whole.fd, 2 * kPage);  // takes the place of a destroyed one
  CHECK_FALSE(third->has_lost_pages());
  CHECK(at(*third, kPage) == std::byte{'A'});
}

TEST_CASE("a bus error elsewhere still ends the process") {
  const Scratch scratch(1);
  const auto watched = MappedFile::map(scratch.fd, kPage);  // so that the handler is installed
  REQUIRE(watched);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGALRM, SIG_DFL);
    alarm(60);  // in case the fault is repeated for ever
    const Scratch other(2);
    void* mapped = mmap(nullptr, 2 * kPage, PROT_READ, MAP_PRIVATE, other.fd, 0);
    if (mapped == MAP_FAILED || ftruncate(other.fd, 0) != 0) _exit(3);
    _exit(*static_cast<volatile char*>(mapped) == 0 ? 4 : 5);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  // Under AddressSanitizer its own handler reports and exits.
  CHECK(((WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) || (WIFEXITED(status) && WEXITSTATUS(status) == 1)));
}

}  // namespace
}  // namespace rankstacks
