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

template <class T>
std::optional<T> number_at(std::string_view text) {
  T value{};
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc() ? std::optional(value)
                                                                                          : std::nullopt;
}

// Of the record's prefix "4,1201,98765432,-;".
std::optional<double> time_of(std::string_view prefix) {
  std::size_t at = 0;
  for (int field = 0; field < 2; ++field) {
    at = prefix.find(',', at);
    if (at == std::string_view::npos) return std::nullopt;
    ++at;
  }
  constexpr double kMicroseconds = 1e6;
  const auto time = number_at<std::uint64_t>(prefix.substr(at));
  return time ? std::optional(static_cast<double>(*time) / kMicroseconds) : std::nullopt;
}

}  // namespace

std::vector<XidEvent> parse_xids(std::string_view log) {
  std::vector<XidEvent> found;
  for (std::size_t mark = log.find(kMark); mark != std::string_view::npos; mark = log.find(kMark, mark)) {
    const std::size_t begin = mark == 0 ? 0 : log.rfind('\n', mark - 1) + 1;
    const std::string_view prefix = log.substr(begin, mark - begin);
    mark += kMark.size();
    const std::string_view line = log.substr(mark, std::min(log.find('\n', mark), log.size()) - mark);
    // An instance may follow the address: "0000:0a:00 GPU-I:05): 31,".
    const std::size_t address_end = line.find_first_of(") "), end = line.find("): ");
    if (address_end == std::string_view::npos || end == std::string_view::npos) continue;
    const auto number = number_at<unsigned>(line.substr(end + 3));
    if (!number) continue;
    XidEvent& event = found.emplace_back();
    event.pci = line.substr(0, address_end);
    std::transform(event.pci.begin(), event.pci.end(), event.pci.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    event.number = *number;
    event.seconds = time_of(prefix);
    constexpr std::string_view kPid = " pid=";
    if (const std::size_t pid = line.find(kPid, end); pid != std::string_view::npos)
      event.pid =
          number_at<Pid>(line.substr(pid + kPid.size() + (line.substr(pid + kPid.size()).starts_with('\'') ? 1 : 0)));
  }
  return found;
}

std::vector<XidEvent> read_xids(const std::string& path) {
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
