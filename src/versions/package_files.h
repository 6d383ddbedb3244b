// In which package of Python's a file is, by the lists of files that installers keep. The file itself may be gone.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/root_directory.h"

namespace rankstacks::versions {

// By path: "torch 2.11.0", from RECORD in *.dist-info next to the package (PEP 627). Files of other packages are left
// out, and those beyond 4,096 packages or 256 MiB of lists.
std::map<std::string, std::string> wheels_with(const RootDirectory& root, const std::set<std::string>& paths);

// By path: "libstdcxx-14.2.0-h8f9b012_2", from the files in conda-meta of the environment that the path is in.
std::map<std::string, std::string> conda_packages_with(const RootDirectory& root, const std::set<std::string>& paths);

// Calls `found(path)` with the path of each line of RECORD: "torch/lib/libtorch_cpu.so,sha256=...,123". Paths in
// quotes, which are those with a comma, are left out.
template <class Found>
void for_each_recorded(std::string_view record, Found&& found) {
  for (std::size_t at = 0; at < record.size();) {
    const std::size_t end = std::min(record.find('\n', at), record.size());
    const std::string_view line = record.substr(at, end - at);
    if (const std::size_t comma = line.find(','); comma != std::string_view::npos && !line.starts_with('"'))
      found(line.substr(0, comma));
    at = end + 1;
  }
}

// Calls `found(text)` with each text of a JSON document that has no backslash in it.
template <class Found>
void for_each_plain_text(std::string_view json, Found&& found) {
  for (std::size_t at = json.find('"'); at != std::string_view::npos; at = json.find('"', at)) {
    std::size_t end = ++at;
    bool plain = true;
    for (; end < json.size() && json[end] != '"'; ++end)
      if (json[end] == '\\') plain = false, ++end;
    if (end >= json.size()) return;
    if (plain) found(json.substr(at, end - at));
    at = end + 1;
  }
}

}  // namespace rankstacks::versions
