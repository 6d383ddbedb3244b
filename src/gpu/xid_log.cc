#include "gpu/xid_log.h"

#include <fcntl.h>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>

#include "base/file_descriptor.h"

namespace rankstacks::gpu {
namespace {

constexpr std::string_view kMark = "NVRM: Xid (PCI:";
constexpr std::size_t kMaxLog = 8u << 20;

}  // namespace

std::vector<std::pair<std::string, unsigned>> parse_xids(std::string_view log) {
  std::vector<std::pair<std::string, unsigned>> found;
  for (std::size_t at = log.find(kMark); at != std::string_view::npos; at = log.find(kMark, at)) {
    at += kMark.size();
    const std::string_view line = log.substr(at, std::min(log.find('\n', at), log.size()) - at);
    // An instance may follow the address: "0000:0a:00 GPU-I:05): 31,".
    const std::size_t address_end = line.find_first_of(") "), end = line.find("): ");
    if (address_end == std::string_view::npos || end == std::string_view::npos) continue;
    std::string address(line.substr(0, address_end));
    std::transform(address.begin(), address.end(), address.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    unsigned number = 0;
    const auto [rest, error] = std::from_chars(line.data() + end + 3, line.data() + line.size(), number);
    if (error == std::errc()) found.emplace_back(std::move(address), number);
  }
  return found;
}

std::vector<std::pair<std::string, unsigned>> read_xids(const std::string& path) {
  const FileDescriptor log(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string text;
  if (!log.is_open()) return {};
  // Each read returns one record, whole or not at all; the kernel does not write records longer than this.
  char record[16384];
  while (text.size() < kMaxLog) {
    const ssize_t n = ::read(log.get(), record, sizeof record);
    if (n > 0) text.append(record, static_cast<std::size_t>(n));
    else if (n < 0 && (errno == EPIPE || errno == EINTR))
      continue;  // EPIPE: overwritten meanwhile, the next one is there
    else break;
  }
  return parse_xids(text);
}

}  // namespace rankstacks::gpu
