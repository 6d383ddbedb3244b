#include "cli/handler_slots.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <thread>

namespace rankstacks::cli {

Result<FileDescriptor> take_slot(const FileDescriptor& directory, const std::string& called, const Deadline& deadline) {
  constexpr std::chrono::milliseconds kPause{20};
  const auto refuse = [&](ErrorCode code, std::string what, int why) {
    return fail({.code = code, .subject = called, .what = std::move(what), .os_errno = why});
  };
  while (true) {
    for (int slot = 0; slot < kHandlerSlots; ++slot) {
      const std::string name = fmt::format(".rankstacks-core-handler.slot-{}", slot);
      FileDescriptor file(openat(directory.get(), name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
                                 S_IRUSR | S_IWUSR));
      struct stat found {};
      if (!file.is_open() || fstat(file.get(), &found) != 0)
        return refuse(ErrorCode::kPermission, name + " cannot be opened", errno);
      if (!S_ISREG(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return refuse(ErrorCode::kPermission, name + " is no file of this user's alone", 0);
      if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
    }
    if (deadline.passed())
      return refuse(ErrorCode::kTimeout, fmt::format("{} other handlers are at work", kHandlerSlots), 0);
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace rankstacks::cli
