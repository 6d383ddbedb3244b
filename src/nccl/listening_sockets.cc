#include "nccl/listening_sockets.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/file_descriptor.h"

namespace rankstacks::nccl {
namespace {

constexpr std::uint8_t kListening = 10;  // TCP_LISTEN, include/net/tcp_states.h

SocketAddress address_of(std::uint8_t family, const __be32 (&words)[4], __be16 port) {
  SocketAddress address{.port = ntohs(port)};
  if (family == AF_INET) {
    address.address[10] = address.address[11] = 0xff;
    std::memcpy(address.address.data() + 12, words, sizeof words[0]);
  } else {
    std::memcpy(address.address.data(), words, sizeof words);
  }
  return address;
}

bool send_question(const FileDescriptor& socket, std::uint8_t family) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 question;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.question.sdiag_family = family;
  request.question.sdiag_protocol = IPPROTO_TCP;
  request.question.idiag_states = 1u << kListening;
  const sockaddr_nl kernel{.nl_family = AF_NETLINK};
  return ::sendto(socket.get(), &request, sizeof request, 0, reinterpret_cast<const sockaddr*>(&kernel),
                  sizeof kernel) == sizeof request;
}

}  // namespace

std::optional<bool> parse_listening(std::span<const std::byte> answer, std::vector<TcpSocket>& sockets) {
  while (answer.size() >= sizeof(nlmsghdr)) {
    nlmsghdr header;
    std::memcpy(&header, answer.data(), sizeof header);
    // The errors of an answer in parts are at its end (netlink_dump, net/netlink/af_netlink.c).
    if (std::int32_t error = 0; header.nlmsg_type == NLMSG_DONE) {
      if (answer.size() >= sizeof header + sizeof error)
        std::memcpy(&error, answer.data() + sizeof header, sizeof error);
      return error < 0 ? std::nullopt : std::optional(true);
    }
    if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || header.nlmsg_len < sizeof header + sizeof(inet_diag_msg) ||
        header.nlmsg_len > answer.size())
      return std::nullopt;
    inet_diag_msg socket;
    std::memcpy(&socket, answer.data() + sizeof header, sizeof socket);
    if (socket.idiag_state == kListening)
      sockets.push_back({.local = address_of(socket.idiag_family, socket.id.idiag_src, socket.id.idiag_sport),
                         .peer = {},
                         .listens = true,
                         .inode = socket.idiag_inode});
    answer = answer.subspan(std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), answer.size()));
  }
  return false;
}

std::optional<std::vector<TcpSocket>> listening_sockets() {
  constexpr std::size_t kMaxParts = 4096;
  const FileDescriptor socket(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  const timeval timeout{.tv_sec = 0, .tv_usec = 100'000};
  if (!socket.is_open() || ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) != 0)
    return std::nullopt;
  std::vector<TcpSocket> sockets;
  std::vector<std::byte> answer(std::size_t{32} << 10);  // the kernel's parts are not larger
  for (const std::uint8_t family : {std::uint8_t{AF_INET}, std::uint8_t{AF_INET6}}) {
    if (!send_question(socket, family)) return std::nullopt;
    bool is_whole = false;
    for (std::size_t parts = 0; !is_whole; ++parts) {
      const ssize_t size = ::recv(socket.get(), answer.data(), answer.size(), 0);
      const auto parsed = size > 0 && parts < kMaxParts
                              ? parse_listening(std::span(answer).first(static_cast<std::size_t>(size)), sockets)
                              : std::nullopt;
      if (!parsed) return std::nullopt;
      is_whole = *parsed;
    }
  }
  return sockets;
}

}  // namespace rankstacks::nccl
