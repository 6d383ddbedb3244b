#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <thread>

#include "report/report_file.h"
#include "support/temporary_directory.h"

using namespace rankstacks;
using namespace rankstacks::report;

namespace {

std::string error_of(const std::string& path, std::size_t limit = kMaxReportBytes) {
  const auto text = read_report_file(path, limit);
  return text ? "it was read" : text.error().message();
}

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

}  // namespace

TEST_CASE("a saved report is read to its end") {
  const testing::TemporaryDirectory directory;
  const std::string text(1'000'000, 'x');
  write(directory / "file", text);
  CHECK(read_report_file(directory / "file") == text);
  write(directory / "empty", "");
  CHECK(read_report_file(directory / "empty") == std::string());
}

TEST_CASE("a pipe is waited for") {
  const testing::TemporaryDirectory directory;
  const std::string fifo = directory / "pipe";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  const std::string text(1'000'000, 'x');
  std::thread writer([&] {
    const int fd = open(fifo.c_str(), O_WRONLY);
    // More than a pipe holds: it blocks until it is read.
    for (std::size_t at = 0; at < text.size();)
      at += static_cast<std::size_t>(::write(fd, text.data() + at, text.size() - at));
    close(fd);
  });
  CHECK(read_report_file(fifo) == text);
  writer.join();
}

TEST_CASE("a report that is too large is said to be") {
  const testing::TemporaryDirectory directory;
  const std::string file = directory / "file", fifo = directory / "pipe";
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
  const testing::TemporaryDirectory directory;
  CHECK(error_of(directory.path()) == directory.path() + ": a directory, not a saved report");
  CHECK(error_of("/dev/zero") == "/dev/zero: a terminal or another device, not a saved report");
  CHECK(error_of(directory / "absent") == directory / "absent" + ": cannot open: No such file or directory");
  write(directory / "packed", "\x1f\x8b\x08");
  CHECK(error_of(directory / "packed") == directory / "packed" + ": the gzip data is damaged: it ends too early");
}
