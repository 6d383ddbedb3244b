#include "nccl/ras.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "nccl/local_addresses.h"
#include "nccl/ras_answer.h"

namespace rankstacks::nccl {
namespace {

constexpr std::size_t kMaxLine = 4096;
constexpr std::size_t kMaxAddresses = 64;

// Milliseconds for poll(), rounded up: with 0 it would spin until the deadline has passed.
int poll_timeout(const Deadline& deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      std::min<Deadline::Clock::duration>(deadline.left(), std::chrono::hours(1)));
  return static_cast<int>(left.count());
}

// Returns false if the deadline passed first.
bool wait_for(int fd, short events, const Deadline& deadline) {
  while (true) {
    pollfd one{fd, events, 0};
    const int ready = ::poll(&one, 1, poll_timeout(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the next call on it reports what is wrong
    if (deadline.passed()) return false;
  }
}

// A connection to one RAS thread; no operation waits beyond its deadline.
class Connection {
 public:
  // std::nullopt if nobody listens there.
  static Result<std::optional<Connection>> open(const std::string& address, std::uint16_t port,
                                                const Deadline& deadline) {
    sockaddr_storage where{};
    socklen_t size = 0;
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&where);
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&where);
    if (inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
      where.ss_family = AF_INET;
      v4->sin_port = htons(port);
      size = sizeof *v4;
    } else if (inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
      where.ss_family = AF_INET6;
      v6->sin6_port = htons(port);
      size = sizeof *v6;
    } else {
      return std::nullopt;
    }
    Connection connection;
    connection.subject_ =
        fmt::format("NCCL's RAS at {}:{}", where.ss_family == AF_INET ? address : "[" + address + "]", port);
    connection.socket_ = FileDescriptor(::socket(where.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!connection.socket_.is_open()) return std::nullopt;  // no IPv6 in this kernel
    const int fd = connection.socket_.get();
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&where), size) != 0) {
      if (errno != EINPROGRESS && errno != EINTR) return std::nullopt;
      if (!wait_for(fd, POLLOUT, deadline))
        return connection.error(ErrorCode::kTimeout, "does not take the connection");
      int problem = 0;
      socklen_t length = sizeof problem;
      if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &length) != 0 || problem != 0) return std::nullopt;
    }
    return std::optional<Connection>(std::move(connection));
  }

  Result<void> say(std::string_view line, const Deadline& deadline) {
    const std::string text = std::string(line) + "\n";
    std::size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t n = ::send(socket_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n > 0) {
        sent += static_cast<std::size_t>(n);
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (!wait_for(socket_.get(), POLLOUT, deadline))
          return error(ErrorCode::kTimeout, fmt::format("does not take {}", line));
      } else if (errno != EINTR) {
        return error(ErrorCode::kGone, fmt::format("the connection broke before {}", line), errno);
      }
    }
    return {};
  }

  // Receives the next line; returns it without its end.
  Result<std::string> hear(std::string_view after, const Deadline& deadline) {
    while (true) {
      const std::size_t end = pending_.find('\n');
      if (end != std::string::npos) {
        std::string line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        if (line.ends_with('\r')) line.pop_back();
        return line;
      }
      if (pending_.size() > kMaxLine)
        return error(ErrorCode::kUnsupported,
                     fmt::format("its answer to {} is no line: another program may listen there", after));
      const auto more = receive(after, deadline);
      if (!more) return fail(more.error());
      if (!*more) return error(ErrorCode::kGone, fmt::format("it hung up after {}", after));
    }
  }

  // Receives everything up to the end of the stream.
  Result<std::string> hear_all(std::string_view after, const Deadline& deadline) {
    while (true) {
      if (pending_.size() > kMaxRasAnswer)
        return error(ErrorCode::kLimit, fmt::format("its answer has more than {} MiB", kMaxRasAnswer >> 20));
      const auto more = receive(after, deadline);
      if (!more) return fail(more.error());
      if (!*more) return std::move(pending_);
    }
  }

  tl::unexpected<Error> error(ErrorCode code, std::string what, int os_errno = 0) const {
    return fail({.code = code, .subject = subject_, .what = std::move(what), .os_errno = os_errno});
  }
  const std::string& subject() const { return subject_; }
  int descriptor() const { return socket_.get(); }

 private:
  // Returns false at the end of the stream.
  Result<bool> receive(std::string_view after, const Deadline& deadline) {
    char buffer[1 << 16];
    while (true) {
      if (deadline.passed()) return error(ErrorCode::kTimeout, fmt::format("no whole answer to {} in time", after));
      const ssize_t n = ::recv(socket_.get(), buffer, sizeof buffer, 0);
      if (n > 0) return pending_.append(buffer, static_cast<std::size_t>(n)), true;
      if (n == 0) return false;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        wait_for(socket_.get(), POLLIN, deadline);
      } else if (errno != EINTR) {
        return error(ErrorCode::kGone, fmt::format("the connection broke after {}", after), errno);
      }
    }
  }

  std::string subject_;
  FileDescriptor socket_;
  std::string pending_;
};

// "ERROR: Invalid format json", made fit for a message: the other side may have written anything.
std::string quoted(const std::string& line) {
  std::string text = line.substr(0, 80);
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e; }, '?');
  return "\"" + text + "\"";
}

Result<NcclStatus> converse(Connection& ras, const Deadline& deadline, const RasVerifier& believed) {
  // A live RAS thread answers the greeting within microseconds. If several share the address, one may be stopped: this
  // leaves time to try another.
  const Deadline greeting = Deadline::after(deadline.left() / 3);
  constexpr std::string_view kProtocol = "SERVER PROTOCOL ";
  if (auto said = ras.say("CLIENT PROTOCOL 2", greeting); !said) return fail(said.error());
  const auto greeted = ras.hear("CLIENT PROTOCOL 2", greeting);
  if (!greeted) return fail(greeted.error());
  // Only now, as a connection that was not accepted has no owner.
  if (!believed(ras.descriptor()))
    return ras.error(ErrorCode::kPermission, "is answered by a process that is not looked at");
  if (!greeted->starts_with(kProtocol))
    return ras.error(ErrorCode::kUnsupported,
                     fmt::format("its greeting is {}: another program may listen there", quoted(*greeted)));
  if (greeted->substr(kProtocol.size()) != "2")
    return ras.error(ErrorCode::kUnsupported,
                     fmt::format("speaks {}; this program speaks protocol 2", quoted(*greeted)));

  // How long RAS waits for the other processes; those that have not answered by then are missing. Whole seconds up to
  // 2.28.
  if (auto said = ras.say("TIMEOUT 1", deadline); !said) return fail(said.error());
  const auto timeout = ras.hear("TIMEOUT", deadline);
  if (!timeout) return fail(timeout.error());
  if (*timeout != "OK")
    return ras.error(ErrorCode::kUnsupported, fmt::format("its answer to TIMEOUT is {}", quoted(*timeout)));

  if (auto said = ras.say("SET FORMAT json", deadline); !said) return fail(said.error());
  const auto format = ras.hear("SET FORMAT", deadline);
  if (!format) return fail(format.error());
  if (*format != "OK")
    return ras.error(ErrorCode::kUnsupported,
                     fmt::format("gives no JSON, which NCCL does from 2.28.7 on: {}", quoted(*format)));

  if (auto said = ras.say("VERBOSE STATUS", deadline); !said) return fail(said.error());
  const auto answer = ras.hear_all("VERBOSE STATUS", deadline);
  if (!answer) return fail(answer.error());
  if (answer->starts_with("ERROR:"))
    return ras.error(ErrorCode::kUnsupported,
                     fmt::format("its answer to VERBOSE STATUS is {}", quoted(answer->substr(0, answer->find('\n')))));
  return parse_ras_answer(*answer, ras.subject());
}

// The addresses to try. A name is not resolved, which may take many seconds: RAS listens at an address of this machine.
std::vector<std::string> addresses_of(const std::string& host) {
  std::vector<std::string> all = {"127.0.0.1", "::1"};
  if (host == "localhost") return all;
  in_addr v4{};
  in6_addr v6{};
  const bool number = inet_pton(AF_INET, host.c_str(), &v4) == 1 || inet_pton(AF_INET6, host.c_str(), &v6) == 1;
  if (number && host != "0.0.0.0" && host != "::")
    return is_local_address(host) ? std::vector<std::string>{host} : std::vector<std::string>{};
  for (std::string& address : local_addresses())
    if (all.size() < kMaxAddresses && std::find(all.begin(), all.end(), address) == all.end())
      all.push_back(std::move(address));
  return all;
}

}  // namespace

std::optional<RasAddress> parse_ras_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[')) {
    if (!host.ends_with(']')) return std::nullopt;
    host = host.substr(1, host.size() - 2);
  } else if (contains(host, ':')) {
    return std::nullopt;
  }
  const std::string_view digits = text.substr(colon + 1);
  RasAddress address;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
  if (host.empty() || error != std::errc{} || stop != digits.data() + digits.size() || address.port == 0)
    return std::nullopt;
  address.host = host;
  return address;
}

Result<NcclStatus> query_ras(const std::string& host, std::uint16_t port, const Deadline& deadline,
                             const RasVerifier& believed) {
  for (const std::string& address : addresses_of(host)) {
    auto connection = Connection::open(address, port, deadline);
    if (!connection) return fail(connection.error());
    if (*connection) return converse(**connection, deadline, believed);
  }
  return fail({.code = ErrorCode::kNotFound,
               .subject = fmt::format("NCCL's RAS at {}:{}", host, port),
               .what = "nobody listens there"});
}

}  // namespace rankstacks::nccl
