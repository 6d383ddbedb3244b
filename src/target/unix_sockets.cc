#include "target/unix_sockets.h"

#include <sys/socket.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "target/socket_tables.h"

namespace rankstacks::target {
namespace {

constexpr unsigned kAcceptsConnections = 1u << 16;  // __SO_ACCEPTCON, include/linux/net.h

template <class T>
std::optional<T> number_of(std::string_view text, int base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

std::optional<std::pair<std::uint64_t, UnixSocket>> parse_line(std::string_view line) {
  // Num RefCount Protocol Flags Type St Inode Path
  std::array<std::string_view, 7> fields;
  for (std::string_view& field : fields) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    field = line.substr(0, line.find(' '));
    line.remove_prefix(field.size());
  }
  const auto flags = number_of<unsigned>(fields[3], 16), type = number_of<unsigned>(fields[4], 16);
  const auto inode = number_of<std::uint64_t>(fields[6], 10);
  if (!flags || !inode || *inode == 0 || (type != SOCK_STREAM && type != SOCK_SEQPACKET)) return std::nullopt;
  if (!line.empty()) line.remove_prefix(1);
  return std::pair(*inode, UnixSocket{(*flags & kAcceptsConnections) != 0, std::string(line)});
}

}  // namespace

std::map<std::uint64_t, UnixSocket> parse_unix_sockets(std::string_view text) {
  std::map<std::uint64_t, UnixSocket> sockets;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (auto socket = parse_line(line)) sockets.insert(std::move(*socket));
  }
  return sockets;
}

std::map<std::uint64_t, UnixSocket> unix_sockets_of(Pid pid) {
  return parse_unix_sockets(read_socket_table(pid, "unix").value_or(""));
}

}  // namespace rankstacks::target
