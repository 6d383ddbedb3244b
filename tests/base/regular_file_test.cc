#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>

#include "base/regular_file.h"
#include "base/workers.h"
#include "support/temporary_directory.h"

namespace rankstacks {
namespace {

// Counts how often the file at the path was opened since; an open with O_PATH does not count.
class Watch {
 public:
  explicit Watch(const std::string& path) : events_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    REQUIRE(inotify_add_watch(events_.get(), path.c_str(), IN_OPEN) >= 0);
  }
  bool was_opened() const {
    char buffer[4096];
    return read(events_.get(), buffer, sizeof buffer) > 0;
  }

 private:
  FileDescriptor events_;
};

std::string refused_as(const std::string& path) {
  const auto file = open_regular_file(path);
  return file                        ? "opened"
         : file.error().kind.empty() ? "errno " + std::to_string(file.error().os_errno)
                                     : file.error().kind;
}

}  // namespace

TEST_CASE("a regular file is opened for reading, through links too") {
  const testing::TemporaryDirectory directory;
  testing::write_file(directory / "file", "text");
  REQUIRE(symlink("file", (directory / "link").c_str()) == 0);
  for (const char* name : {"file", "link"}) {
    const auto file = open_regular_file(directory / name);
    REQUIRE(file);
    CHECK(file->status.st_size == 4);
    char text[5] = "";
    CHECK(pread(file->descriptor.get(), text, 4, 0) == 4);
    CHECK(std::string(text) == "text");
    const int flags = fcntl(file->descriptor.get(), F_GETFL);
    CHECK((flags & O_ACCMODE) == O_RDONLY);
    CHECK((flags & O_NONBLOCK) != 0);
    CHECK((fcntl(file->descriptor.get(), F_GETFD) & FD_CLOEXEC) != 0);
  }
  // Without a name: a memory file, like one that was deleted while it is mapped.
  const FileDescriptor memory(memfd_create("m", MFD_CLOEXEC));
  CHECK(refused_as("/proc/self/fd/" + std::to_string(memory.get())) == "opened");
  CHECK(refused_as("/proc/self/exe") == "opened");
}

TEST_CASE("no other kind of file is opened, nor a file that the kernel generates") {
  const testing::TemporaryDirectory directory;
  const std::string fifo = directory / "fifo", socket_path = directory / "socket";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  const FileDescriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket_path.copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(symlink("/proc/sys/kernel/ostype", (directory / "to-proc").c_str()) == 0);
  struct Case {
    std::string path, kind;
  };
  for (const Case& c : {Case{fifo, "a pipe"}, Case{socket_path, "a socket"}, Case{directory.path(), "a directory"},
                        Case{"/dev/null", "a device"}, Case{"/proc/version", "a file of procfs"},
                        Case{"/proc/self/mem", "a file of procfs"}, Case{directory / "to-proc", "a file of procfs"},
                        Case{"/sys/kernel/uevent_seqnum", "a file of sysfs"}}) {
    CAPTURE(c.path);
    if (access(c.path.c_str(), F_OK) != 0) {
      WARN("not on this machine: " << c.path);
      continue;
    }
    const Watch watch(c.path);
    CHECK(refused_as(c.path) == c.kind);
    CHECK_FALSE(watch.was_opened());
    const FileDescriptor opened(open(c.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    CHECK(opened.is_open() == watch.was_opened());  // the watch does see an open of a regular file
  }
}

TEST_CASE("a name of no file, and a lease that is not waited for") {
  const testing::TemporaryDirectory directory;
  CHECK(refused_as(directory / "gone") == "errno " + std::to_string(ENOENT));
  testing::write_file(directory / "file", "text");
  CHECK(refused_as(directory / "file/below") == "errno " + std::to_string(ENOTDIR));
  const FileDescriptor holder(open((directory / "file").c_str(), O_RDWR | O_CLOEXEC));
  if (fcntl(holder.get(), F_SETLEASE, F_WRLCK) != 0) {
    WARN("no lease to be had here: errno " << errno);
    return;
  }
  // The kernel notifies the lease holder by SIGIO, which would end this process.
  const auto before = signal(SIGIO, SIG_IGN);
  CHECK(refused_as(directory / "file") == "errno " + std::to_string(EWOULDBLOCK));
  fcntl(holder.get(), F_SETLEASE, F_UNLCK);
  signal(SIGIO, before);
}

TEST_CASE("the number of concurrent workers follows from the limit of open files") {
  CHECK(workers_by_open_files(RLIM_INFINITY) >= 4096);
  CHECK(workers_by_open_files(1024) == 124);
  CHECK(workers_by_open_files(128) == 12);
  CHECK(workers_by_open_files(40) == 1);
  CHECK(workers_by_open_files(39) == 1);
  CHECK(workers_by_open_files(0) == 1);
}

}  // namespace rankstacks
