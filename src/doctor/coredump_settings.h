// What systemd-coredump is set up to keep: coredump.conf(5). The defaults and rules are those of systemd's
// src/coredump/coredump.c (from 258 on coredump-config.c, coredump-submit.c) and coredump-vacuum.c.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/system.h"

namespace rankstacks::doctor {

struct CoredumpSettings {
  enum class Storage { kNone, kExternal, kJournal };
  static constexpr std::uint64_t kInfinity = ~std::uint64_t{0};

  Storage storage = Storage::kExternal;
  bool compress = true;
  std::uint64_t process_size_max = 0, external_size_max = 0, journal_size_max = 0;  // bytes
  std::optional<std::uint64_t> max_use, keep_free;  // 0: no limit; std::nullopt: a share of the file system
  std::optional<int> version;                       // of systemd, by the name of its shared library
  std::vector<std::string> files;                   // those that were read, in this order

  // How much of a core is taken in at all; what comes behind is cut off.
  std::uint64_t taken() const;
  std::string taken_by() const;  // the name of the setting
  // How large a core may be, packed if it is packed, to be kept.
  std::uint64_t kept() const;
  std::string kept_by() const;
  // MaxUse= and KeepFree= in force on a file system of this size; 0: no limit.
  std::uint64_t max_use_of(std::uint64_t file_system) const;
  std::uint64_t keep_free_of(std::uint64_t file_system) const;
};

// `root`: the machine's root directory, as "/host" in a container; "" for this one's.
CoredumpSettings read_coredump_settings(const System& system, const std::string& root);

// "2G", "1.5T", "4G 512M", "512": systemd's parse_size with base 1024.
std::optional<std::uint64_t> parse_coredump_size(std::string_view text);

}  // namespace rankstacks::doctor
