#include "gpu/session_requests.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <vector>

#include "gpu/session_answer.h"

namespace rankstacks::gpu {
namespace {

constexpr std::chrono::milliseconds kCallLimit{10'000};
constexpr std::size_t kMaxError = 16 * 1024;

enum class Kind : std::uint8_t { kRead, kWrite, kCall, kAskByDescriptor, kKeepCore, kHangs };

struct Request {
  Kind kind{};
  std::uint8_t which = 0;  // Word, EntryPoint or Phase
  std::uint8_t padding[2]{};
  std::uint32_t value = 0;
};

struct Reply {
  std::uint8_t failed = 0;  // 1: an Error follows, packed
  std::uint8_t there = 0;   // whether there is a value; the bool of a reply
  std::uint8_t padding[2]{};
  std::uint32_t value = 0;
  double held_ms = 0;
};

bool send_packet(int socket, std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  ssize_t n = 0;
  do n = sendmsg(socket, &message, MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  return n >= 0;
}

// The packet's length; 0: the other side has ended. The kernel closes descriptors that come along, as there is no room
// for them.
std::size_t receive_packet(int socket, std::span<std::byte> into) {
  ssize_t n = 0;
  do n = recv(socket, into.data(), into.size(), 0);
  while (n < 0 && errno == EINTR);
  return n <= 0 ? 0 : static_cast<std::size_t>(n);
}

// Whether the other side has closed its end of the pair, as the end of a process does.
bool has_ended(int socket) {
  pollfd end{socket, POLLIN, 0};
  return poll(&end, 1, 0) == 1 && (end.revents & (POLLHUP | POLLERR)) != 0;
}

Result<Reply> ask(int socket, const Request& request) {
  const auto gone = [] {
    return fail({.code = ErrorCode::kGone,
                 .subject = "GPU session",
                 .what = "its broker has ended",
                 .where = {},
                 .os_errno = 0,
                 .hint = {}});
  };
  const iovec part{const_cast<Request*>(&request), sizeof request};
  if (!send_packet(socket, std::span(&part, 1))) return gone();
  std::vector<std::byte> packet(sizeof(Reply) + kMaxError);
  const std::size_t n = receive_packet(socket, packet);
  if (n < sizeof(Reply)) return gone();
  Reply reply;
  std::memcpy(&reply, packet.data(), sizeof reply);
  if (reply.failed == 0) return reply;
  const auto error =
      unpack_error({reinterpret_cast<const std::uint8_t*>(packet.data()) + sizeof reply, n - sizeof reply});
  if (!error) return gone();
  return fail(*error);
}

void answer(int socket, const Result<Reply>& result) {
  Reply reply = result.value_or(Reply{.failed = 1});
  std::vector<std::uint8_t> error;
  if (!result) {
    Error shortened = result.error();
    for (std::string* text : {&shortened.subject, &shortened.what, &shortened.hint})
      text->resize(std::min(text->size(), kMaxError / 4));
    error = pack(shortened);
  }
  const std::array parts{iovec{&reply, sizeof reply}, iovec{error.data(), error.size()}};
  (void)send_packet(socket, parts);  // a client that has gone is noticed by the next request
}

Result<Reply> carry_out(int socket, const Request& request, const AttachPoint& point, const BrokerDuties& duties) {
  const auto refuse = [](ErrorCode code, const char* what) {
    return fail({.code = code, .subject = "GPU session", .what = what, .where = {}, .os_errno = 0, .hint = {}});
  };
  switch (request.kind) {
    case Kind::kRead: {
      if (request.which >= kWords) break;
      const auto value = point.read(static_cast<Word>(request.which));
      if (!value) return fail(value.error());
      return Reply{.there = value->has_value(), .value = value->value_or(0)};
    }
    case Kind::kWrite: {
      if (request.which >= kWords) break;
      const auto written = point.write(static_cast<Word>(request.which), request.value);
      if (!written) return fail(written.error());
      return Reply{.there = *written};
    }
    case Kind::kCall: {
      if (request.which >= kEntryPoints) break;
      const auto function = point.address(static_cast<EntryPoint>(request.which));
      if (!function) return refuse(ErrorCode::kUnsupported, "the driver has no such function");
      const auto about_to_call = [&] {
        if (has_ended(socket) || !point.is_still_mapped()) return false;
        if (static_cast<EntryPoint>(request.which) == EntryPoint::kAttach) duties.asked();
        return true;
      };
      const auto called = make_inferior_call(point.process(), *function, kCallLimit, about_to_call);
      if (!called) return fail(called.error());
      return Reply{.there = 1, .held_ms = called->held_ms};
    }
    case Kind::kAskByDescriptor: {
      if (has_ended(socket)) break;
      duties.asked();
      const auto asked = point.ask_by_descriptor();
      if (!asked) return fail(asked.error());
      return Reply{.there = *asked};
    }
    case Kind::kKeepCore: {
      if (auto kept = duties.keep_core(); !kept) return fail(kept.error());
      return Reply{.there = 1};
    }
    case Kind::kHangs: break;
  }
  return refuse(ErrorCode::kMalformed, "a request that is none");
}

}  // namespace

Result<std::optional<std::uint32_t>> TargetProxy::read(Word word) const {
  const auto reply = ask(socket_, {.kind = Kind::kRead, .which = static_cast<std::uint8_t>(word)});
  if (!reply) return fail(reply.error());
  return reply->there != 0 ? std::optional(reply->value) : std::nullopt;
}

Result<bool> TargetProxy::write(Word word, std::uint32_t value) const {
  const auto reply = ask(socket_, {.kind = Kind::kWrite, .which = static_cast<std::uint8_t>(word), .value = value});
  if (!reply) return fail(reply.error());
  return reply->there != 0;
}

Result<InferiorCall> TargetProxy::call(EntryPoint function) const {
  const auto reply = ask(socket_, {.kind = Kind::kCall, .which = static_cast<std::uint8_t>(function)});
  if (!reply) return fail(reply.error());
  return InferiorCall{.held_ms = reply->held_ms};
}

Result<bool> TargetProxy::ask_by_descriptor() const {
  const auto reply = ask(socket_, {.kind = Kind::kAskByDescriptor});
  if (!reply) return fail(reply.error());
  return reply->there != 0;
}

Result<void> TargetProxy::keep_core() const {
  const auto reply = ask(socket_, {.kind = Kind::kKeepCore});
  if (!reply) return fail(reply.error());
  return {};
}

void TargetProxy::hangs_in(Phase phase) const {
  const Request request{.kind = Kind::kHangs, .which = static_cast<std::uint8_t>(phase)};
  const iovec part{const_cast<Request*>(&request), sizeof request};
  (void)send_packet(socket_, std::span(&part, 1));
}

bool TargetProxy::is_alone() const { return has_ended(socket_); }

ClientEnd serve(int socket, const AttachPoint& point, const BrokerDuties& duties) {
  while (true) {
    Request request;
    const std::size_t n = receive_packet(socket, std::as_writable_bytes(std::span(&request, 1)));
    if (n == 0) return {};
    if (n != sizeof request) request = {.kind = Kind::kHangs, .which = 0xff};
    if (request.kind == Kind::kHangs && request.which <= static_cast<std::uint8_t>(Phase::kReleased))
      return {static_cast<Phase>(request.which)};
    answer(socket, carry_out(socket, request, point, duties));
  }
}

}  // namespace rankstacks::gpu
