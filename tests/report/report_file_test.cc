#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "report/report_file.h"
#include "support/temporary_folder.h"

using namespace rankstacks;

namespace {

std::string error_of(const std::string& path, std::size_t limit = kMaxReportBytes) {
  const auto text = read_report_file(path, limit);
  return text ? "it was read" : text.error().message();
}

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

}  // namespace

TEST_CASE("a saved report is read to its end") {
  const testing::TemporaryFolder folder;
  const std::string text(1'000'000, 'x');
  write(folder / "file", text);
  CHECK(read_report_file(folder / "file") == text);
  write(folder / "empty", "");
  CHECK(read_report_file(folder / "empty") == std::string());
}

TEST_CASE("a pipe is waited for") {
  const testing::TemporaryFolder folder;
  const std::string fifo = folder / "pipe";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  const std::string text(1'000'000, 'x');
  std::thread writer([&] {
    const int fd = open(fifo.c_str(), O_WRONLY);
    // More than a pipe holds: it blocks until it is read.
    for (std::size_t at = 0; at < text.size();) at += static_cast<std::size_t>(::write(fd, text.data() + at, text.size() - at));
    close(fd);
  });
  CHECK(read_report_file(fifo) == text);
  writer.join();
}

TEST_CASE("a report that is too large is said to be") {
  const testing::TemporaryFolder folder;
  const std::string file = folder / "file", fifo = folder / "pipe";
  write(file, "12345");
  CHECK(error_of(file, 5) == "it was read");
  CHECK(error_of(file, 4) == file + ": too large: 5 bytes, a saved report has at most 4");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  const auto through_pipe = [&](std::size_t limit) {
    std::thread writer([&] {
      const int fd = open(fifo.c_str(), O_WRONLY);
      CHECK(::write(fd, "12345", 5) == 5);
      close(fd);
    });
    const std::string error = error_of(fifo, limit);
    writer.join();
    return error;
  };
  CHECK(through_pipe(5) == "it was read");
  CHECK(through_pipe(4) == fifo + ": too large: more than 4 bytes, a saved report has at most 4");
}

TEST_CASE("what is no saved report, by its kind") {
  const testing::TemporaryFolder folder;
  CHECK(error_of(folder.path()) == folder.path() + ": a folder, not a saved report");
  CHECK(error_of("/dev/zero") == "/dev/zero: a terminal or another device, not a saved report");
  CHECK(error_of(folder / "absent") == folder / "absent" + ": cannot open: No such file or directory");
  write(folder / "packed", "\x1f\x8b\x08");
  CHECK(error_of(folder / "packed") == folder / "packed" + ": compressed (gzip), not a JSON report");
}
