#include "capture/flight_records.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "base/file_descriptor.h"
#include "base/regular_file.h"
#include "base/unattended.h"
#include "dumps/headings.h"
#include "flight_recorder/document.h"
#include "flight_recorder/dump.h"
#include "target/proc.h"

namespace rankstacks::capture {
namespace {

using WallClock = std::chrono::system_clock;

constexpr std::size_t kMaxFiles = 1 << 14;  // of the directories that are named
constexpr const char* kNameFiles =
    "the number at the end of a dump's name is its rank; TORCH_FR_DUMP_TEMP_FILE is the name without it";

struct DumpFile {
  std::string bytes;
  WallClock::time_point written{};
};

WallClock::time_point time_of(const timespec& at) {
  return WallClock::time_point(std::chrono::duration_cast<WallClock::duration>(std::chrono::seconds(at.tv_sec) +
                                                                               std::chrono::nanoseconds(at.tv_nsec)));
}

Result<DumpFile> read_opened(const RegularFile& file, const std::string& path) {
  const auto failed = [&](ErrorCode code, std::string what, int why = 0) {
    return fail({.code = code, .subject = path, .what = std::move(what), .os_errno = why});
  };
  if (file.status.st_size > static_cast<off_t>(flight_recorder::kMaxBytes))
    return failed(ErrorCode::kLimit, fmt::format("a dump of more than {} bytes", flight_recorder::kMaxBytes));
  DumpFile dump{.bytes = {}, .written = time_of(file.status.st_mtim)};
  dump.bytes.resize(static_cast<std::size_t>(file.status.st_size));
  std::size_t have = 0;
  while (have < dump.bytes.size()) {
    const ssize_t n =
        ::pread(file.descriptor.get(), dump.bytes.data() + have, dump.bytes.size() - have, static_cast<off_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(ErrorCode::kUnreadable, "cannot be read", errno);
    if (n == 0) break;  // it became shorter
    have += static_cast<std::size_t>(n);
  }
  dump.bytes.resize(have);
  return dump;
}

Result<FlightRecord> with_times(Result<FlightRecord> record, WallClock::time_point written,
                                WallClock::time_point captured) {
  if (record) {
    record->age_ms = std::chrono::duration<double, std::milli>(captured - written).count();
    take_time_of_last_call(*record, written);
  }
  return record;
}

Result<FlightRecord> read_record(const RegularFile& file, const std::string& path, WallClock::time_point captured) {
  const auto dump = read_opened(file, path);
  if (!dump) return fail(dump.error());
  return with_times(flight_recorder::read_dump(dump->bytes, path), dump->written, captured);
}

std::vector<NamedRecord> read_named(const std::string& path, WallClock::time_point captured) {
  const auto one = [&](Result<FlightRecord> record) {
    std::vector<NamedRecord> records;
    records.push_back({path, rank_of_dump(path), std::move(record)});
    return records;
  };
  const auto file = open_regular_file(path);
  if (!file)
    return one(fail(
        {.code = ErrorCode::kUnreadable,
         .subject = path,
         .what = file.error().kind.empty() ? "cannot be opened" : "a file was expected, found " + file.error().kind,
         .os_errno = file.error().os_errno,
         .hint = file.error().hint}));
  const auto dump = read_opened(*file, path);
  if (!dump) return one(fail(dump.error()));
  if (auto records = records_of_page(dump->bytes, path); !records.empty()) {
    for (NamedRecord& named : records) named.record = with_times(std::move(named.record), dump->written, captured);
    return records;
  }
  return one(with_times(flight_recorder::read_dump(dump->bytes, path), dump->written, captured));
}

// The files that `named` leads to, those of a directory in order.
std::vector<std::string> files_of(const std::vector<std::string>& named) {
  std::vector<std::string> files;
  for (const std::string& path : named) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    std::set<std::string> of_directory;
    for (auto it = std::filesystem::directory_iterator(path, error);
         !error && it != std::filesystem::directory_iterator() && of_directory.size() < kMaxFiles; it.increment(error))
      if (it->is_regular_file(error) && rank_of_dump(it->path())) of_directory.insert(it->path());
    files.insert(files.end(), of_directory.begin(), of_directory.end());
  }
  return files;
}

// When the process began; std::nullopt if the clocks cannot be read.
std::optional<WallClock::time_point> began(std::uint64_t start_ticks) {
  const long ticks = sysconf(_SC_CLK_TCK);
  timespec since_boot{};
  if (start_ticks == 0 || ticks <= 0 || clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) return std::nullopt;
  const double age = static_cast<double>(since_boot.tv_sec) + static_cast<double>(since_boot.tv_nsec) / 1e9 -
                     static_cast<double>(start_ticks) / static_cast<double>(ticks);
  return WallClock::now() - std::chrono::duration_cast<WallClock::duration>(std::chrono::duration<double>(age));
}

bool names_thread_of(const FlightRecord& record, const RankSnapshot& rank) {
  return std::any_of(rank.threads.begin(), rank.threads.end(), [&](const ThreadSnapshot& thread) {
    return thread.thread_pointer != 0 && record.thread_ids.contains(thread.thread_pointer);
  });
}

}  // namespace

std::vector<NamedRecord> records_of_page(std::string_view text, const std::string& path) {
  std::vector<NamedRecord> records;
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  constexpr char kPickle = '\x80';
  if (begin == std::string_view::npos || text[begin] == '{' || text[begin] == kPickle) return records;
  for (const auto& [rank, answer] : dumps::split_by_heading(text).of_rank) {
    if (answer.error) {
      records.push_back(
          {path, rank,
           fail({.code = ErrorCode::kNotFound,
                 .subject = path,
                 .what = fmt::format("rank {} did not answer torch's debug server ({})", rank, *answer.error)})});
      continue;
    }
    // Behind the last answer stands the end of the page.
    const std::size_t first = std::min(answer.text.find('{'), answer.text.size());
    const std::size_t last = answer.text.rfind('}');
    const std::size_t size = last == std::string::npos || last < first ? 0 : last + 1 - first;
    auto record = flight_recorder::read_dump(std::string_view(answer.text).substr(first, size),
                                             fmt::format("{}, rank {}", path, rank));
    if (record) record->path = path;
    records.push_back({path, rank, std::move(record)});
  }
  return records;
}

FileDescriptor find_below(const FileDescriptor& root, const std::string& path) {
  open_how how{};
  how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  return FileDescriptor(static_cast<int>(syscall(SYS_openat2, root.get(), path.c_str(), &how, sizeof how)));
}

bool may_be_of(const FlightRecord& record, const RankSnapshot& rank) {
  if (record.thread_ids.empty()) return true;
  const auto known = [](const ThreadSnapshot& thread) { return thread.thread_pointer != 0; };
  if (std::none_of(rank.threads.begin(), rank.threads.end(), known)) return true;
  return names_thread_of(record, rank);
}

std::optional<Result<FlightRecord>> read_dump_at(const DumpPlace& place, WallClock::time_point captured) {
  const FileDescriptor root(::open(place.root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (const std::string& path : place.paths) {
    const FileDescriptor found = find_below(root, path);
    struct stat link {};
    if (found.get() < 0 || fstat(found.get(), &link) != 0 || !S_ISREG(link.st_mode)) continue;
    const auto file = open_regular_file(fmt::format("/proc/self/fd/{}", found.get()));
    if (!file || file->status.st_uid != place.owner || time_of(file->status.st_mtim) < place.after) continue;
    return read_record(*file, path, captured);
  }
  return std::nullopt;
}

std::optional<int> rank_of_dump(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  for (const char* ending : {".json", ".pickle", ".pkl"})
    if (name.ends_with(ending)) name.resize(name.size() - std::string_view(ending).size());
  std::size_t at = name.size();
  while (at > 0 && std::isdigit(static_cast<unsigned char>(name[at - 1]))) --at;
  int rank = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + at, end, rank);
  return error == std::errc() && stop == end ? std::optional(rank) : std::nullopt;
}

std::vector<std::string> dump_paths(const std::map<std::string, std::string>& environment, int rank) {
  const auto value = [&](const char* name) {
    const auto it = environment.find(name);
    return it == environment.end() ? std::string() : it->second;
  };
  std::vector<std::string> prefixes;
  for (const char* name : {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"})
    if (prefixes.empty() && !value(name).empty()) prefixes.push_back(value(name));
  if (prefixes.empty()) {
    const std::string cache = value("XDG_CACHE_HOME"), home = value("HOME");
    prefixes.push_back((!cache.empty() ? cache : (home.empty() ? "/tmp" : home) + "/.cache") +
                       "/torch/comm_lib_trace_rank_");
    prefixes.emplace_back("/tmp/nccl_trace_rank_");
  }
  std::vector<std::string> paths;
  for (const std::string& prefix : prefixes)
    if (prefix.starts_with('/')) paths.push_back(prefix + std::to_string(rank));
  return paths;
}

void take_time_of_last_call(FlightRecord& record, WallClock::time_point at) {
  if (!record.last_call_ns) return;
  const auto called = WallClock::duration(
      std::chrono::duration_cast<WallClock::duration>(std::chrono::nanoseconds(*record.last_call_ns)));
  const double ago = std::chrono::duration<double, std::milli>(at.time_since_epoch() - called).count();
  if (ago >= 0) record.last_call_ms = ago;
}

std::optional<DumpPlace> dump_place_of(const RankSnapshot& rank,
                                       const std::map<std::string, std::string>& environment) {
  const auto start = began(rank.start_ticks);
  // Its real user: /proc/PID belongs to root for a process that may not be traced.
  const auto owner = target::proc::status_number(rank.pid, "Uid");
  if (!rank.rank || !start || !owner) return std::nullopt;
  DumpPlace place{.root = fmt::format("/proc/{}/root", rank.pid),
                  .paths = {},
                  .owner = static_cast<uid_t>(*owner),
                  .after = *start};
  for (const std::string& path : dump_paths(environment, *rank.rank)) place.paths.push_back(path);
  return place;
}

namespace {

bool has_any_dump(const DumpPlace& place) {
  const FileDescriptor root(::open(place.root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  return std::any_of(place.paths.begin(), place.paths.end(),
                     [&](const std::string& path) { return find_below(root, path).is_open(); });
}

}  // namespace

void add_found_dumps(std::vector<RankSnapshot>& ranks,
                     const std::function<std::optional<DumpPlace>(const RankSnapshot&)>& place,
                     WallClock::time_point captured, Limit limit) {
  struct Work {
    std::vector<DumpPlace> places;
    std::vector<char> has_any;
  };
  const auto work = std::make_shared<Work>();
  std::vector<std::size_t> of;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].flight_record) continue;
    auto there = place(ranks[i]);
    if (!there || there->paths.empty()) continue;
    of.push_back(i);
    work->places.push_back(std::move(*there));
  }
  work->has_any.resize(of.size());
  limit = std::max<Limit>(limit, kMinTimeout);
  // Mostly there is none.
  const auto outcomes =
      Unattended{[work](std::size_t n) { work->has_any[n] = has_any_dump(work->places[n]); }, limit}.run(of.size());
  for (std::size_t n = 0; n < of.size(); ++n) {
    if (!outcomes[n].came_back || work->has_any[n] == 0) continue;
    auto found = unattended<std::optional<Result<FlightRecord>>>(
        [place = work->places[n], captured] { return read_dump_at(place, captured); }, limit);
    if (!found || !*found) continue;
    RankSnapshot& rank = ranks[of[n]];
    Result<FlightRecord>& record = **found;
    if (!record) rank.problems.push_back(problem_of(record.error()));
    else if (may_be_of(*record, rank)) rank.flight_record = std::move(*record);
  }
}

void add_dump_of_core(RankSnapshot& rank, const CoreDumpPlace& place, const std::string& sysroot,
                      WallClock::time_point written, Limit limit) {
  // A dump of that moment has the operations' stacks, too.
  if ((rank.flight_record && !rank.flight_record->from_memory) || place.paths.empty()) return;
  constexpr double kLongestAfterMs = 60 * 1000, kLongestBeforeMs = 15 * 60 * 1000;
  auto found = unattended<std::vector<FlightRecord>>(
      [place, sysroot, written] {
        std::vector<FlightRecord> records;
        struct stat core {};
        if (!place.core.empty() && stat(place.core.c_str(), &core) != 0) return records;
        const bool is_believed = place.core.empty() || core.st_uid == 0 || core.st_uid == geteuid();
        const FileDescriptor root(::open(sysroot.empty() ? "/" : sysroot.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        for (const std::string& path : place.paths) {
          const FileDescriptor found_there = find_below(root, path);
          if (found_there.get() < 0) continue;
          const auto file = open_regular_file(found_there);
          if (!file) continue;
          const uid_t owner = file->status.st_uid;
          if (is_believed ? owner != place.user.value_or(core.st_uid) : owner != core.st_uid) continue;
          if (auto record = read_record(*file, path, written)) records.push_back(std::move(*record));
        }
        return records;
      },
      std::max<Limit>(limit, kMinTimeout));
  if (!found) return;
  for (FlightRecord& record : *found)
    if (names_thread_of(record, rank) && *record.age_ms <= kLongestBeforeMs && *record.age_ms >= -kLongestAfterMs) {
      rank.flight_record = std::move(record);
      return;
    }
}

void add_named_dumps(std::vector<RankSnapshot>& ranks, const std::vector<std::string>& named,
                     WallClock::time_point captured, Limit limit) {
  if (named.empty() || ranks.empty()) return;
  using Read = std::vector<NamedRecord>;
  auto read = unattended<Read>(
      [named, captured] {
        Read records;
        for (const std::string& path : files_of(named))
          for (NamedRecord& record : read_named(path, captured)) records.push_back(std::move(record));
        return records;
      },
      std::max<Limit>(limit, kMinTimeout));
  const auto problem = [&](Error error) { ranks.front().problems.push_back(problem_of(error)); };
  if (!read)
    return problem({.code = ErrorCode::kTimeout,
                    .subject = named.front(),
                    .what = "reading the Flight Recorder's dumps was given up",
                    .hint = "the server of that file system (NFS, FUSE) is gone or slow"});
  for (auto& [path, number, record] : *read) {
    if (!record) {
      problem(record.error());
      continue;
    }
    const auto rank = std::find_if(ranks.begin(), ranks.end(), [&wanted = number](const RankSnapshot& one) {
      return one.kind == RankKind::kRank && wanted && one.rank == wanted;
    });
    if (rank == ranks.end())
      problem(
          {.code = ErrorCode::kNotFound, .subject = path, .what = "a dump of none of these ranks", .hint = kNameFiles});
    else if (!may_be_of(*record, *rank))
      problem({.code = ErrorCode::kNotFound,
               .subject = path,
               .what = fmt::format("a dump of another process than rank {}'s: it has none of the threads named there",
                                   *rank->rank),
               .hint = "processes that were started again, and other jobs, write to the same place"});
    else if (!rank->flight_record || rank->flight_record->from_memory) rank->flight_record = std::move(*record);
  }
}

}  // namespace rankstacks::capture
