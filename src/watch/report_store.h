// The directory into which the reports of events are written, within a quota.
//
//     rankstacks-HOST-20260131T120000Z-hang-1.json.zst     an event: what is before the last "-"
//     rankstacks-HOST-20260131T120000Z-hang-1.txt
//     rankstacks-HOST-20260131T120000Z-hang-1.rank-0.core.zst     a capture
//
// Several machines may write into one directory: each has its own quota.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "base/result.h"

namespace rankstacks::watch {

struct StoredFile {
  std::string name;  // empty: a file that is still to be written, which only counts
  std::uint64_t bytes = 0;
  // Which event it is of, in the order of time; empty: as event_of() its name says, and none if that says none.
  std::string event = {};
};

struct Quota {
  std::size_t keep = 8;         // events
  std::uint64_t max_bytes = 0;  // of all of them
  std::uint64_t to_free = 0;    // that has to be removed at least, because the disk is full
};

// The part of a report's name that names its event; empty: it is no report.
std::string_view event_of(std::string_view name);

// Those that are to be removed, the oldest first. The first and the newest event always stay.
std::vector<std::string> beyond_quota(std::vector<StoredFile> files, const Quota& quota);

class ReportStore {
 public:
  // Makes the directory if it is not there; its parent has to be.
  static Result<ReportStore> open(const std::string& path, std::string host, const Quota& quota);

  // The name of an event of this machine: "rankstacks-HOST-TIME-KIND".
  std::string event(std::chrono::system_clock::time_point time, std::string_view kind) const;
  std::string path_of(const std::string& name) const { return path_ + '/' + name; }

  // Whole or not at all. Returns 0 or an errno.
  int write(const std::string& name, std::string_view bytes) const;
  void remove(const std::string& name) const;
  // The reports and captures of one look: NAME.txt, NAME.json.zst, NAME.rank-0.core.zst.
  void remove_all(const std::string& name) const;
  // Removes what is beyond the quota, and what was half written long ago.
  void clean() const;

 private:
  ReportStore(std::string path, std::string host, const Quota& quota, FileDescriptor directory)
      : path_(std::move(path)), host_(std::move(host)), quota_(quota), directory_(std::move(directory)) {}

  std::string path_, host_;
  Quota quota_;
  FileDescriptor directory_;
};

}  // namespace rankstacks::watch
