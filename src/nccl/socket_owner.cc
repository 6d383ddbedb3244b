#include "nccl/socket_owner.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "base/directory_stream.h"

namespace rankstacks::nccl {
namespace {

constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr std::size_t kMaxFiles = 1u << 16;  // descriptors examined per process; ranks have hundreds
constexpr int kEstablished = 0x01, kSynSent = 0x02, kListening = 0x0a;  // include/net/tcp_states.h

SocketAddress from_bytes(const void* bytes, std::size_t size, std::uint16_t port) {
  SocketAddress address{.port = port};
  if (size == sizeof(in_addr)) std::copy(kMapped.begin(), kMapped.end(), address.address.begin());
  std::memcpy(address.address.data() + address.address.size() - size, bytes, size);
  return address;
}

template <class T>
bool take_hex(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return error == std::errc() && end == text.data() + text.size();
}

// "0100007F:6D7C": the address as 32-bit words, each in hex and in this machine's byte order; then the port.
std::optional<SocketAddress> parse_address(std::string_view text) {
  const std::size_t colon = text.find(':');
  std::array<std::uint32_t, 4> words{};
  std::uint16_t port = 0;
  if ((colon != 8 && colon != 32) || !take_hex(text.substr(colon + 1), port)) return std::nullopt;
  for (std::size_t i = 0; i < colon / 8; ++i)
    if (!take_hex(text.substr(8 * i, 8), words[i])) return std::nullopt;
  return from_bytes(words.data(), colon / 2, port);
}

std::optional<TcpSocket> parse_line(std::string_view line) {
  // sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode ...
  std::array<std::string_view, 10> fields;
  for (std::string_view& field : fields) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    field = line.substr(0, line.find(' '));
    if (field.empty()) return std::nullopt;
    line.remove_prefix(field.size());
  }
  const auto local = parse_address(fields[1]), peer = parse_address(fields[2]);
  int state = 0;
  TcpSocket socket;
  const auto [end, error] = std::from_chars(fields[9].data(), fields[9].data() + fields[9].size(), socket.inode);
  if (!local || !peer || !take_hex(fields[3], state) || error != std::errc() ||
      end != fields[9].data() + fields[9].size())
    return std::nullopt;
  socket.local = *local;
  socket.peer = *peer;
  socket.listens = state == kListening;
  socket.established = state == kEstablished;
  socket.connecting = state == kSynSent;
  return socket;
}

using NameOf = int (*)(int, sockaddr*, socklen_t*);

std::optional<SocketAddress> address_of(int descriptor, NameOf name_of) {
  sockaddr_storage where{};
  socklen_t size = sizeof where;
  if (name_of(descriptor, reinterpret_cast<sockaddr*>(&where), &size) != 0) return std::nullopt;
  if (where.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&where);
    return from_bytes(&v4->sin_addr, sizeof v4->sin_addr, ntohs(v4->sin_port));
  }
  if (where.ss_family != AF_INET6) return std::nullopt;
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&where);
  return from_bytes(&v6->sin6_addr, sizeof v6->sin6_addr, ntohs(v6->sin6_port));
}

bool has_open(Pid pid, const std::string& link) {
  const DirectoryStream directory(::opendir(fmt::format("/proc/{}/fd", pid).c_str()));
  if (!directory) return false;
  std::array<char, 64> target;
  std::size_t left = kMaxFiles;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (left-- == 0) return false;
    const ssize_t size = ::readlinkat(::dirfd(directory.get()), entry->d_name, target.data(), target.size());
    if (size > 0 && std::string_view(target.data(), static_cast<std::size_t>(size)) == link) return true;
  }
  return false;
}

}  // namespace

bool SocketAddress::is_any() const {
  const bool v4 = std::equal(kMapped.begin(), kMapped.end(), address.begin());
  return std::all_of(address.begin() + (v4 ? kMapped.size() : 0), address.end(),
                     [](std::uint8_t byte) { return byte == 0; });
}

std::string SocketAddress::text() const {
  const bool v4 = std::equal(kMapped.begin(), kMapped.end(), address.begin());
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(v4 ? AF_INET : AF_INET6, address.data() + (v4 ? kMapped.size() : 0), text, sizeof text);
  return text;
}

std::vector<TcpSocket> parse_tcp_sockets(std::string_view text) {
  std::vector<TcpSocket> sockets;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (const auto socket = parse_line(line)) sockets.push_back(*socket);
  }
  return sockets;
}

std::vector<TcpSocket> tcp_sockets_of(Pid pid, target::SocketTables& tables) {
  const target::SocketTables::Tcp texts = tables.tcp(pid);
  std::vector<TcpSocket> sockets = parse_tcp_sockets(*texts.v4);
  const auto more = parse_tcp_sockets(*texts.v6);
  sockets.insert(sockets.end(), more.begin(), more.end());
  return sockets;
}

std::vector<TcpSocket> tcp_sockets_of(Pid pid) {
  target::SocketTables now;
  return tcp_sockets_of(pid, now);
}

std::optional<Pid> owner_of_socket(std::uint64_t inode, std::span<const Pid> processes) {
  if (inode == 0) return std::nullopt;
  const std::string link = fmt::format("socket:[{}]", inode);
  const auto owner = std::find_if(processes.begin(), processes.end(), [&](Pid pid) { return has_open(pid, link); });
  return owner == processes.end() ? std::nullopt : std::optional(*owner);
}

std::uint64_t inode_of_other_end(int connected, Pid in_namespace_of) {
  const auto own = address_of(connected, ::getsockname), peer = address_of(connected, ::getpeername);
  if (!own || !peer) return 0;
  for (const TcpSocket& socket : tcp_sockets_of(in_namespace_of))
    if (!socket.listens && socket.local == *peer && socket.peer == *own) return socket.inode;
  return 0;
}

}  // namespace rankstacks::nccl
