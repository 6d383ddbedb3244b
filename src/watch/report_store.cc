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

#include "base/directory_stream.h"
#include "base/whole_file.h"

namespace rankstacks::watch {
namespace {

constexpr std::string_view kPrefix = "rankstacks-";
// A temporary file that was not renamed by then is of a look that was killed. In seconds.
constexpr time_t kOldTemporary = 3600;

constexpr std::string_view kCapture = ".core.zst";

// Of "...-20260131T120000Z-hang-1.rank-0": where ".rank-0" begins. The time is the last part of that form, as a host's
// name is before it; the event and the number behind it have no dot.
std::size_t end_of_look(std::string_view name) {
  constexpr std::string_view kForm = "-00000000T000000Z-";
  for (std::size_t at = 0; at + kForm.size() <= name.size(); ++at) {
    bool fits = true;
    for (std::size_t i = 0; i < kForm.size() && fits; ++i)
      fits = kForm[i] == '0' ? std::isdigit(static_cast<unsigned char>(name[at + i])) != 0 : kForm[i] == name[at + i];
    if (fits) return std::min(name.find('.', at + kForm.size()), name.size());
  }
  return 0;
}

// A host's name as a part of a file's name.
std::string plain(std::string host) {
  std::replace_if(
      host.begin(), host.end(), [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '_'; }, '_');
  return host;
}

}  // namespace

std::string_view event_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return {};
  std::string_view look = name;
  for (const std::string_view ending : {".json.zst", ".txt", ".core.zst"})
    if (look.ends_with(ending)) {
      look.remove_suffix(ending.size());
      // A capture's name has the process behind the look's number, which has no dot.
      if (ending == kCapture) look = look.substr(0, end_of_look(look));
      const std::size_t end = look.rfind('-');
      return end != std::string_view::npos && end >= kPrefix.size() ? look.substr(0, end) : std::string_view();
    }
  return {};
}

std::vector<std::string> beyond_quota(std::vector<StoredFile> files, const Quota& quota) {
  struct Event {
    std::uint64_t bytes = 0;
    std::vector<std::string> names;
  };
  std::map<std::string, Event> events;  // by name, and thus by time
  std::uint64_t bytes = 0, freed = 0;
  for (StoredFile& file : files) {
    const std::string event = file.event.empty() ? std::string(event_of(file.name)) : file.event;
    if (event.empty()) continue;
    bytes += file.bytes;
    events[event].bytes += file.bytes;
    if (!file.name.empty()) events[event].names.push_back(std::move(file.name));
  }
  std::vector<std::string> removed;
  std::size_t left = events.size();
  constexpr std::size_t kAlwaysKept = 2;
  for (auto event = events.begin();
       left > kAlwaysKept && (left > quota.keep || bytes > quota.max_bytes || freed < quota.to_free);) {
    if (event == events.begin()) ++event;
    bytes -= event->second.bytes;
    freed += event->second.bytes;
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

void ReportStore::remove_all(const std::string& name) const {
  const int again = openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const DirectoryStream directory(again < 0 ? nullptr : fdopendir(again));
  std::vector<std::string> found;
  while (const dirent* entry = directory ? readdir(directory.get()) : nullptr)
    if (std::string_view(entry->d_name).starts_with(name + '.') && !event_of(entry->d_name).empty())
      found.emplace_back(entry->d_name);
  for (const std::string& file : found) remove(file);
}

void ReportStore::clean() const {
  const int again = openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const DirectoryStream directory(again < 0 ? nullptr : fdopendir(again));
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
