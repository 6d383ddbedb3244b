#include "watch/report_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <ctime>
#include <map>
#include <memory>

#include "base/whole_file.h"

namespace rankstacks::watch {
namespace {

constexpr std::string_view kPrefix = "rankstacks-";
// A temporary file that was not renamed by then is of a look that was killed. In seconds.
constexpr time_t kOldTemporary = 3600;

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

// A host's name as a part of a file's name.
std::string plain(std::string host) {
  std::replace_if(
      host.begin(), host.end(), [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '_'; }, '_');
  return host;
}

}  // namespace

std::string_view event_of(std::string_view name) {
  const std::size_t end = name.rfind('-');
  const bool is_report = name.starts_with(kPrefix) && (name.ends_with(".json.zst") || name.ends_with(".txt"));
  return is_report && end >= kPrefix.size() ? name.substr(0, end) : std::string_view();
}

std::vector<std::string> beyond_quota(std::vector<StoredFile> files, const Quota& quota) {
  struct Event {
    std::uint64_t bytes = 0;
    std::vector<std::string> names;
  };
  std::map<std::string, Event> events;  // by name, and thus by time
  std::uint64_t bytes = 0;
  for (StoredFile& file : files) {
    const std::string event(event_of(file.name));
    if (event.empty()) continue;
    bytes += file.bytes;
    events[event].bytes += file.bytes;
    events[event].names.push_back(std::move(file.name));
  }
  std::vector<std::string> removed;
  std::size_t left = events.size();
  constexpr std::size_t kAlwaysKept = 2;
  for (auto event = events.begin(); left > kAlwaysKept && (left > quota.keep || bytes > quota.max_bytes);) {
    if (event == events.begin()) ++event;
    bytes -= event->second.bytes;
    --left;
    std::sort(event->second.names.begin(), event->second.names.end());
    removed.insert(removed.end(), event->second.names.begin(), event->second.names.end());
    ++event;
  }
  return removed;
}

Result<ReportStore> ReportStore::open(const std::string& path, std::string host, const Quota& quota) {
  if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return fail({.code = ErrorCode::kPermission, .subject = path, .what = "cannot be made", .os_errno = errno});
  FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open())
    return fail({.code = ErrorCode::kPermission, .subject = path, .what = "cannot be opened", .os_errno = errno});
  if (faccessat(directory.get(), ".", W_OK | X_OK, AT_EACCESS) != 0)
    return fail({.code = ErrorCode::kPermission, .subject = path, .what = "cannot be written to", .os_errno = errno});
  return ReportStore(path, plain(std::move(host)), quota, std::move(directory));
}

std::string ReportStore::event(std::chrono::system_clock::time_point time, std::string_view kind) const {
  return fmt::format("{}{}-{:%Y%m%dT%H%M%S}Z-{}", kPrefix, host_,
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)), kind);
}

int ReportStore::write(const std::string& name, std::string_view bytes) const {
  return write_whole_file(directory_, name, bytes);
}

void ReportStore::remove(const std::string& name) const { unlinkat(directory_.get(), name.c_str(), 0); }

void ReportStore::clean() const {
  const int again = openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, CloseDirectory> directory(again < 0 ? nullptr : fdopendir(again));
  std::vector<StoredFile> files;
  const std::string own = fmt::format("{}{}-", kPrefix, host_);
  while (directory) {
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    const bool is_temporary = name.starts_with('.') && name.substr(1).starts_with(own);
    struct stat status {};
    if ((!is_temporary && !name.starts_with(own)) ||
        fstatat(directory_.get(), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode))
      continue;
    if (!is_temporary) files.push_back({entry->d_name, static_cast<std::uint64_t>(status.st_size)});
    else if (status.st_mtime < time(nullptr) - kOldTemporary) remove(entry->d_name);
  }
  for (const std::string& name : beyond_quota(std::move(files), quota_)) remove(name);
}

}  // namespace rankstacks::watch
