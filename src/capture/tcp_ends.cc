#include "capture/tcp_ends.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>

#include "target/proc.h"

namespace rankstacks::capture {
namespace {

// Of a table of addresses; a router's routing table is longer, and not useful here.
constexpr std::size_t kMaxText = 4u << 20;

std::string_view take_line(std::string_view& text) {
  std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ')));
  return line;
}

// The IPv4 address in host order, if it is one.
std::optional<std::uint32_t> v4_of(const nccl::SocketAddress& address) {
  constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (!std::equal(kMapped.begin(), kMapped.end(), address.address.begin())) return std::nullopt;
  std::uint32_t value = 0;
  std::memcpy(&value, address.address.data() + kMapped.size(), sizeof value);
  return ntohl(value);
}

bool is_in(std::uint32_t address, std::uint32_t network, int prefix) {
  return prefix == 0 || (address ^ network) >> (32 - prefix) == 0;
}

}  // namespace

OwnAddresses::OwnAddresses(std::string_view fib_trie, std::string_view if_inet6)
    : knows_v4_(!fib_trie.empty()), knows_v6_(!if_inet6.empty()) {
  //   |-- 127.0.0.0
  //      /8 host LOCAL
  std::optional<std::uint32_t> leaf;
  while (!fib_trie.empty()) {
    const std::string_view line = take_line(fib_trie);
    if (line.starts_with("|-- ")) {
      in_addr address{};
      leaf = inet_pton(AF_INET, std::string(line.substr(4)).c_str(), &address) == 1
                 ? std::optional(ntohl(address.s_addr))
                 : std::nullopt;
    } else if (leaf && line.starts_with('/') && line.ends_with(" host LOCAL")) {
      int prefix = -1;
      std::from_chars(line.data() + 1, line.data() + line.size(), prefix);
      // No interface has a larger network than class A
      if (prefix >= 8 && prefix <= 32) v4_.push_back({*leaf, prefix});
    }
  }
  // "fe8000000000000000fc00fffe000001 04 40 20 80     eth0"
  while (!if_inet6.empty()) {
    const std::string_view line = take_line(if_inet6);
    std::array<std::uint8_t, 16> address{};
    bool whole = line.size() > 32 && line[32] == ' ';
    for (std::size_t i = 0; whole && i < address.size(); ++i) {
      const auto [end, error] = std::from_chars(line.data() + 2 * i, line.data() + 2 * i + 2, address[i], 16);
      whole = error == std::errc() && end == line.data() + 2 * i + 2;
    }
    if (whole) v6_.push_back(address);
  }
}

std::optional<bool> OwnAddresses::has(const nccl::SocketAddress& address) const {
  if (const auto v4 = v4_of(address)) {
    constexpr std::uint32_t kLoopback = 0x7f000000;
    if (is_in(*v4, kLoopback, 8)) return true;
    if (!knows_v4_) return std::nullopt;
    return std::any_of(v4_.begin(), v4_.end(),
                       [&](const Network& network) { return is_in(*v4, network.address, network.prefix); });
  }
  if (!knows_v6_) return std::nullopt;
  return std::find(v6_.begin(), v6_.end(), address.address) != v6_.end();
}

std::size_t TcpEnds::Hash::operator()(const Ends& ends) const {
  const auto text = [](const nccl::SocketAddress& a) {
    return std::string_view(reinterpret_cast<const char*>(a.address.data()), a.address.size());
  };
  const std::size_t ports = static_cast<std::size_t>(ends.first.port) << 16 | ends.second.port;
  return std::hash<std::string_view>()(text(ends.first)) * 31 + std::hash<std::string_view>()(text(ends.second)) * 17 +
         std::hash<std::size_t>()(ports);
}

TcpEnds::TcpEnds(std::vector<nccl::TcpSocket> sockets, OwnAddresses own)
    : sockets_(std::move(sockets)), own_(std::move(own)) {
  for (std::size_t i = 0; i < sockets_.size(); ++i) {
    const nccl::TcpSocket& socket = sockets_[i];
    if (socket.listens) listening_.push_back(i);
    else by_ends_.emplace(Ends{socket.local, socket.peer}, i);
    if (socket.inode != 0) by_inode_.emplace(socket.inode, i);
  }
}

// The listener's inode; 0 if there is none, or if there are several (SO_REUSEPORT), of which the kernel has chosen one.
std::uint64_t TcpEnds::listener_at(const nccl::SocketAddress& address) const {
  std::uint64_t exact = 0, any = 0;
  std::size_t exact_count = 0, any_count = 0;
  for (const std::size_t i : listening_) {
    const nccl::TcpSocket& socket = sockets_[i];
    if (socket.local.port != address.port) continue;
    if (socket.local == address) exact = socket.inode, ++exact_count;
    else if (socket.local.is_any()) any = socket.inode, ++any_count;
  }
  if (exact_count > 0) return exact_count == 1 ? exact : 0;
  return any_count == 1 ? any : 0;
}

TcpEnds::End TcpEnds::of(std::uint64_t inode) const {
  const auto own = by_inode_.find(inode);
  if (inode == 0 || own == by_inode_.end()) return {};
  const nccl::TcpSocket& socket = sockets_[own->second];
  if (socket.listens) return {};
  if (const auto other = by_ends_.find({socket.peer, socket.local});
      other != by_ends_.end() && other->second != own->second) {
    const nccl::TcpSocket& end = sockets_[other->second];
    if (end.inode != 0) return {end.inode, {}};
    return {end.established ? listener_at(socket.peer) : 0, {}};
  }
  const auto here = own_.has(socket.peer);
  if (here == false) return {0, socket.peer.text()};
  // While connecting: a listener whose queue is full does not answer; if there were no listener, the connection would
  // be refused.
  return {here && socket.connecting ? listener_at(socket.peer) : 0, {}};
}

const nccl::TcpSocket* TcpEnds::find(std::uint64_t inode) const {
  const auto it = by_inode_.find(inode);
  return inode == 0 || it == by_inode_.end() ? nullptr : &sockets_[it->second];
}

TcpEnds tcp_ends_of(Pid pid, target::SocketTables& tables) {
  const auto table = [pid](const char* name) {
    auto text = target::proc::read_file(fmt::format("/proc/{}/net/{}", pid, name), kMaxText);
    return text && text->size() < kMaxText ? std::move(*text) : std::string();
  };
  return {nccl::tcp_sockets_of(pid, tables), OwnAddresses(table("fib_trie"), table("if_inet6"))};
}

}  // namespace rankstacks::capture
