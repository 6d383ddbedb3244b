// Files by build-id from the servers in DEBUGINFOD_URLS, by calling `debuginfod-find`, which has a cache of its own.
//
// Only if the user asks for it: the servers learn which builds somebody looks at. Nothing but build-ids is sent. What
// comes back is checked as any other file is: by its build-id.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/types.h"

namespace rankstacks::elf {

class Debuginfod {
 public:
  enum class Kind { kExecutable, kDebugInfo };

  // `limit`: for all files together, from the first one on. Errors: there is no such command, or no server is named.
  static Result<std::shared_ptr<Debuginfod>> open(std::chrono::steady_clock::duration limit);

  // The path of the file in the command's cache; std::nullopt: no server has it, or the time is over. May be called by
  // several threads, also by workers that are given up.
  std::optional<std::string> find(Kind kind, const BuildId& id);

  // Why some files were not asked for, or not waited for; "" if all were.
  std::string given_up() const;

 private:
  explicit Debuginfod(std::chrono::steady_clock::duration limit) : limit_(limit) {}

  std::chrono::steady_clock::duration limit_;
  // Held for moments, never while a command runs.
  mutable std::mutex mutex_;
  std::optional<std::chrono::steady_clock::time_point> end_;
  std::map<std::pair<Kind, BuildId>, std::optional<std::string>> known_;
  std::size_t given_up_ = 0;
};

}  // namespace rankstacks::elf
