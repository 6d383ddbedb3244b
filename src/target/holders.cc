#include "target/holders.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/directory_stream.h"
#include "target/descriptor_info.h"

namespace rankstacks::target {
namespace {

constexpr std::size_t kMaxOfProcess = 1u << 16;  // descriptors; ranks have hundreds

}  // namespace

std::optional<FileIdentity> identity_of(Pid pid, int fd) {
  struct statx file {};
  const std::string link = fmt::format("/proc/{}/fd/{}", pid, fd);
  // The bare system call: glibc has had the function only since 2.28, and the packaged binary runs with older ones.
  // Linux before 4.11 has no such call: then the result is std::nullopt.
  if (::syscall(SYS_statx, AT_FDCWD, link.c_str(), AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO,
                &file) != 0)
    return std::nullopt;
  return FileIdentity{makedev(file.stx_dev_major, file.stx_dev_minor), file.stx_ino, S_ISFIFO(file.stx_mode)};
}

std::string_view name_in(std::string_view link) { return link.substr(link.rfind('/') + 1); }

Holders::Question Holders::who_has_socket(std::uint64_t inode) {
  return ask({.kind = Kind::kSocket, .key = fmt::format("socket:[{}]", inode)});
}

Holders::Question Holders::who_opened_fifo(std::string name, const FileIdentity& file, bool writing) {
  return ask({.kind = Kind::kFifo, .key = std::move(name), .writing = writing, .file = file});
}

Holders::Question Holders::who_has_lock(std::string name, const FileLock& lock) {
  return ask({.kind = Kind::kLock, .key = std::move(name), .lock = lock});
}

Holders::Question Holders::ask(Asked asked) {
  std::vector<Question>& same_key = by_key_[asked.key];
  for (const Question question : same_key) {
    const Asked& other = asked_[question];
    if (other.kind == asked.kind && other.writing == asked.writing && other.file.device == asked.file.device &&
        other.file.inode == asked.file.inode && other.lock == asked.lock)
      return question;
  }
  same_key.push_back(asked_.size());
  asked_.push_back(std::move(asked));
  return same_key.back();
}

bool Holders::any_open() const {
  return std::any_of(asked_.begin(), asked_.end(), [](const Asked& asked) { return asked.open; });
}

bool Holders::has(const Asked& asked, Pid pid, int fd) {
  if (asked.kind == Kind::kSocket) return true;
  if (asked.kind == Kind::kFifo) {
    const auto file = identity_of(pid, fd);
    if (!file || !file->is_fifo || file->device != asked.file.device || file->inode != asked.file.inode) return false;
  }
  const auto info = descriptor_info(pid, fd);
  if (!info) return false;
  if (asked.kind == Kind::kLock)
    return std::find(info->locks.begin(), info->locks.end(), asked.lock) != info->locks.end();
  // Another descriptor may have its number by now.
  if (asked.kind == Kind::kPipe && info->inode && asked.key != fmt::format("pipe:[{}]", *info->inode)) return false;
  return asked.writing ? info->writes() : info->reads();
}

void Holders::compare(Pid pid, int fd, std::string_view link) {
  const auto found = by_key_.find(std::string(link.starts_with('/') ? name_in(link) : link));
  if (found == by_key_.end()) return;
  for (const Question question : found->second) {
    Asked& asked = asked_[question];
    const bool by_name = asked.kind == Kind::kFifo || asked.kind == Kind::kLock;
    if (asked.open && by_name == link.starts_with('/') && !asked.holders.contains(pid) && has(asked, pid, fd))
      asked.holders.insert(pid);
  }
}

void Holders::look_through(Pid pid, Budget& budget) {
  if (budget.processes == 0 || budget.descriptors == 0 || budget.time.passed()) {
    budget.over = true;
    return;
  }
  const DirectoryStream directory(::opendir(fmt::format("/proc/{}/fd", pid).c_str()));
  if (!directory) {
    if (errno == EACCES || errno == EPERM) refused_.insert(pid);
    return;
  }
  std::array<char, 4096> text;
  std::size_t seen = 0;
  while (const dirent* entry = ::readdir(directory.get())) {
    int fd = -1;
    const char* const end = entry->d_name + std::strlen(entry->d_name);
    if (const auto [stop, error] = std::from_chars(entry->d_name, end, fd); error != std::errc() || stop != end)
      continue;
    if (seen++ == 0) --budget.processes;
    if (seen > kMaxOfProcess || budget.descriptors == 0 || budget.time.passed()) {
      budget.over = true;
      return;
    }
    --budget.descriptors;
    const ssize_t size = ::readlinkat(::dirfd(directory.get()), entry->d_name, text.data(), text.size());
    if (size < 0 && errno == EACCES) {
      refused_.insert(pid);  // it runs another user's program by now
      return;
    }
    if (size > 0) compare(pid, fd, {text.data(), static_cast<std::size_t>(size)});
  }
}

}  // namespace rankstacks::target
