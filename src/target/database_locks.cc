#include "target/database_locks.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "target/descriptor_info.h"
#include "target/holders.h"
#include "target/proc.h"

namespace rankstacks::target {
namespace {

constexpr std::uint64_t kFirstOfDatabase = 0x40000000, kLastOfDatabase = 0x400001ff;  // PENDING to SHARED
constexpr std::uint64_t kFirstOfMemory = 120, kLastOfMemory = 127;                    // WRITE to READ(4)
constexpr std::string_view kMemorySuffix = "-shm";

bool is_companion_of_a_database(std::string_view path) {
  constexpr std::array<std::string_view, 3> kSuffixes = {kMemorySuffix, "-wal", "-journal"};
  return std::any_of(kSuffixes.begin(), kSuffixes.end(),
                     [&](std::string_view suffix) { return path.ends_with(suffix); });
}

bool is_of(const FileLock& lock, const OpenFile& file) {
  return file.file.empty() ? inode_of(lock) == file.inode : lock.file == file.file;
}

// Only the two kinds of fcntl(2): a flock(2) lock on the whole file does not affect SQLite.
bool locks_bytes(const FileLock& lock, const OpenFile& file, std::uint64_t first, std::uint64_t last) {
  return !lock.waits && lock.exclusive && lock.kind != FileLock::Kind::kFlock && lock.first <= last &&
         first <= lock.last && is_of(lock, file);
}

// The file of the database that this lock keeps other processes out of; nullptr if it does not.
const OpenFile* locked_file(const FileLock& lock, const OpenDatabase& database) {
  if (locks_bytes(lock, database.database, kFirstOfDatabase, kLastOfDatabase)) return &database.database;
  if (database.shared_memory && locks_bytes(lock, *database.shared_memory, kFirstOfMemory, kLastOfMemory))
    return &*database.shared_memory;
  return nullptr;
}

bool is_one_process(const DatabaseLocks& locks) {
  const FileLock& first = locks.held.front().second;
  return first.kind == FileLock::Kind::kRecord && first.pid > 0 &&
         std::all_of(locks.held.begin(), locks.held.end(),
                     [&](const auto& held) { return held.second.kind == first.kind && held.second.pid == first.pid; });
}

}  // namespace

std::vector<OpenDatabase> databases_among(const std::vector<OpenFile>& files) {
  std::vector<OpenDatabase> databases;
  for (const OpenFile& file : files) {
    if (is_companion_of_a_database(file.path)) continue;
    const auto same = [&](const OpenDatabase& known) {
      return known.database.path == file.path && known.database.inode == file.inode;
    };
    const auto known = std::find_if(databases.begin(), databases.end(), same);
    if (known == databases.end()) databases.push_back({file, std::nullopt});
    else if (known->database.file.empty()) known->database.file = file.file;  // one of its descriptors shows its locks
  }
  for (OpenDatabase& database : databases)
    for (const OpenFile& file : files)
      if (file.path == database.database.path + std::string(kMemorySuffix) &&
          (!database.shared_memory || database.shared_memory->file.empty()))
        database.shared_memory = file;
  return databases;
}

DatabaseLocks awaited_database_locks(const std::vector<FileLock>& all, Pid own, const std::vector<OpenDatabase>& open) {
  DatabaseLocks found;
  std::size_t locked = 0;
  bool own_alone = false;  // `own` has locked a database that nobody else has locked
  for (const OpenDatabase& database : open) {
    bool by_own = false, by_others = false;
    for (const FileLock& lock : all) {
      const OpenFile* const file = locked_file(lock, database);
      if (file == nullptr) continue;
      if (lock.kind == FileLock::Kind::kRecord && lock.pid == own) {
        by_own = true;
        continue;
      }
      by_others = true;
      found.held.emplace_back(std::string(name_in(file->path)), lock);
    }
    if (by_others) {
      ++locked;
      found.path = database.database.path;
    }
    own_alone |= by_own && !by_others;
  }
  if (own_alone || (locked > 1 && !is_one_process(found))) return {};
  if (locked > 1) found.path.clear();
  return found;
}

std::optional<std::vector<OpenFile>> open_files(Pid pid) {
  constexpr std::size_t kMax = 4096;
  std::vector<OpenFile> files;
  for (const int fd : proc::descriptors_of(pid)) {
    auto link = proc::read_link(fmt::format("/proc/{}/fd/{}", pid, fd));
    if (!link || !link->starts_with('/') || link->starts_with("/dev/") || link->starts_with("/proc/")) continue;
    const auto info = descriptor_info(pid, fd);
    if (!info) continue;  // closed meanwhile
    if (!info->inode || files.size() == kMax) return std::nullopt;
    files.push_back({std::move(*link), *info->inode, info->locks.empty() ? "" : info->locks.front().file});
  }
  return files;
}

}  // namespace rankstacks::target
