// The names under which a report shows what is private: "host-1", "ip-2", "~". The same original has the same name
// everywhere; names are numbered in the order in which the originals are met.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace rankstacks::redact {

class Pseudonyms {
 public:
  // "host-1" for the first original of the kind "host".
  std::string of(std::string_view kind, std::string_view original);
  // The same, with a name that the caller has made: "~", or "/file-3.pt" by `suffix`.
  std::string of(std::string_view kind, std::string_view original, std::string_view suffix);
  // The home directory of a user: "~" for the first user met, "~user-2" for others.
  std::string home_of(std::string_view user);

  // (name, original without secrets), in the order in which they were met.
  const std::vector<std::pair<std::string, std::string>>& all() const { return all_; }

 private:
  std::map<std::pair<std::string, std::string>, std::string, std::less<>> names_;  // by kind and original
  std::map<std::string, std::size_t, std::less<>> count_;                          // by kind
  std::vector<std::pair<std::string, std::string>> all_;
};

// Writes what was what, as JSON, for the owner of the data: a new file that its owner alone can read. Secrets are not
// in it. kUsage, with a hint, if there is a file of this name already, since a map of another report may be in it.
Result<void> write_map(const std::string& path, const Pseudonyms& names);

}  // namespace rankstacks::redact
