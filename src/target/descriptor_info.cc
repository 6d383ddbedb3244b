#include "target/descriptor_info.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <algorithm>
#include <charconv>

#include "target/proc.h"

namespace rankstacks::target {
namespace {

constexpr std::string_view kBlanks = " \t";

// The number that the text begins with; leading blanks are skipped.
template <class T>
std::optional<T> number_in(std::string_view text, int base = 10) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(kBlanks)));
  T value{};
  return std::from_chars(text.data(), text.data() + text.size(), value, base).ec == std::errc() ? std::optional(value)
                                                                                                : std::nullopt;
}

// "        4 events:       19 data:                4  pos:0 ino:ecfd sdev:f"
std::optional<DescriptorInfo::Watched> parse_watched(std::string_view text) {
  constexpr std::string_view kEvents = "events:";
  const std::size_t at = text.find(kEvents);
  if (at == std::string_view::npos) return std::nullopt;
  const auto fd = number_in<int>(text);
  const auto events = number_in<std::uint32_t>(text.substr(at + kEvents.size()), 16);
  constexpr std::string_view kInode = " ino:";
  const std::size_t inode_at = text.find(kInode);
  const auto inode = inode_at == std::string_view::npos
                         ? std::nullopt
                         : number_in<std::uint64_t>(text.substr(inode_at + kInode.size()), 16);
  return fd && events ? std::optional(DescriptorInfo::Watched{*fd, *events, inode}) : std::nullopt;
}

}  // namespace

bool DescriptorInfo::reads() const { return access == O_RDONLY || access == O_RDWR; }
bool DescriptorInfo::writes() const { return access == O_WRONLY || access == O_RDWR; }

DescriptorInfo parse_descriptor_info(std::string_view text) {
  DescriptorInfo info;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, colon);
    std::string_view value = line.substr(colon + 1);
    value.remove_prefix(std::min(value.size(), value.find_first_not_of(kBlanks)));
    if (name == "flags") {
      if (const auto flags = number_in<std::uint64_t>(value, 8)) info.access = static_cast<int>(*flags & O_ACCMODE);
    } else if (name == "ino") {
      info.inode = number_in<std::uint64_t>(value);
    } else if (name == "lock") {
      if (auto lock = parse_file_lock(value)) info.locks.push_back(std::move(*lock));
    } else if (name == "tfd") {
      if (const auto watched = parse_watched(value)) info.watched.push_back(*watched);
    } else if (name == "Pid") {
      if (const auto pid = number_in<Pid>(value); pid && *pid > 0) info.process = pid;
    }
  }
  return info;
}

std::optional<DescriptorInfo> descriptor_info(Pid pid, int fd) {
  // An epoll descriptor has a line for each one that it watches, a file has one for each of its locks.
  constexpr std::size_t kMax = 64u << 10;
  const auto text = proc::read_file(fmt::format("/proc/{}/fdinfo/{}", pid, fd), kMax);
  return text ? std::optional(parse_descriptor_info(*text)) : std::nullopt;
}

}  // namespace rankstacks::target
