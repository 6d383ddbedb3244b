#include "target/unix_peers.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <cstring>

namespace rankstacks::target {
namespace {

template <class T>
std::optional<T> value_at(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  if (at > bytes.size() || bytes.size() - at < sizeof value) return std::nullopt;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

constexpr std::size_t aligned(std::size_t size) { return (size + 3) & ~std::size_t{3}; }  // NLMSG_ALIGN, RTA_ALIGN

}  // namespace

std::vector<std::byte> unix_diag_request(std::uint32_t inode) {
  struct {
    nlmsghdr header;
    unix_diag_req question;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.question.sdiag_family = AF_UNIX;
  request.question.udiag_states = ~0u;
  request.question.udiag_ino = inode;
  request.question.udiag_show = UDIAG_SHOW_PEER;
  // INET_DIAG_NOCOOKIE: any socket with this inode.
  request.question.udiag_cookie[0] = request.question.udiag_cookie[1] = ~0u;
  const auto bytes = std::as_bytes(std::span(&request, 1));
  return {bytes.begin(), bytes.end()};
}

std::optional<std::uint32_t> parse_unix_diag(std::span<const std::byte> answer, std::uint32_t inode) {
  const auto header = value_at<nlmsghdr>(answer, 0);
  if (!header || header->nlmsg_type != SOCK_DIAG_BY_FAMILY || header->nlmsg_len > answer.size()) return std::nullopt;
  answer = answer.first(header->nlmsg_len);
  const auto socket = value_at<unix_diag_msg>(answer, sizeof(nlmsghdr));
  if (!socket || socket->udiag_family != AF_UNIX || socket->udiag_ino != inode) return std::nullopt;
  for (std::size_t at = sizeof(nlmsghdr) + aligned(sizeof(unix_diag_msg)); at < answer.size();) {
    const auto attribute = value_at<rtattr>(answer, at);
    if (!attribute || attribute->rta_len < sizeof(rtattr) || attribute->rta_len > answer.size() - at)
      return std::nullopt;
    if (attribute->rta_type == UNIX_DIAG_PEER && attribute->rta_len >= sizeof(rtattr) + sizeof(std::uint32_t))
      return value_at<std::uint32_t>(answer, at + sizeof(rtattr));
    at += aligned(attribute->rta_len);
  }
  return 0;
}

std::optional<std::uint32_t> UnixPeers::peer_of(std::uint64_t inode) {
  if (inode == 0 || inode > UINT32_MAX) return std::nullopt;
  if (!std::exchange(tried_, true)) {
    socket_ = FileDescriptor(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    const timeval timeout{.tv_sec = 0, .tv_usec = 100'000};
    if (socket_.is_open()) ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  }
  if (!socket_.is_open()) return std::nullopt;
  const auto request = unix_diag_request(static_cast<std::uint32_t>(inode));
  const sockaddr_nl kernel{.nl_family = AF_NETLINK};
  if (::sendto(socket_.get(), request.data(), request.size(), 0, reinterpret_cast<const sockaddr*>(&kernel),
               sizeof kernel) < 0)
    return std::nullopt;
  std::vector<std::byte> answer(4096);
  const ssize_t size = ::recv(socket_.get(), answer.data(), answer.size(), 0);
  if (size <= 0) return std::nullopt;
  return parse_unix_diag(std::span(answer).first(static_cast<std::size_t>(size)), static_cast<std::uint32_t>(inode));
}

}  // namespace rankstacks::target
