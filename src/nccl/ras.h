// Asks NCCL's RAS thread, which every process of NCCL 2.24 and later has, for the state of the job's communicators.
//
//     CLIENT PROTOCOL 2   ->  SERVER PROTOCOL 2
//     TIMEOUT 1           ->  OK
//     SET FORMAT json     ->  OK                     from 2.28.7; ERROR: ... before
//     VERBOSE STATUS      ->  one JSON document, to the end of the stream
//
// The RAS threads of one machine listen together at one address (SO_REUSEPORT): the kernel picks which of them answers,
// and each collects the state of the whole job. Any other program that listens there may answer anything:
// nccl/socket_owner.h identifies the process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/result.h"
#include "model/snapshot.h"

namespace rankstacks::nccl {

struct RasAddress {
  std::string host = "localhost";
  std::uint16_t port = 28028;
};

// Parses the value of NCCL_RAS_ADDR: "host:port", "[::1]:28028". std::nullopt if it is no such value; NCCL does not
// listen then either.
std::optional<RasAddress> parse_ras_address(std::string_view text);

// Whether to believe the process at the other end of this connection; called once the greetings were exchanged.
using RasVerifier = std::function<bool(int connected)>;

// Asks once, at an address of this machine (of the calling thread's network namespace), in clear text and within the
// deadline. After the greeting nothing is sent to, nor read from, a process that `believed` refuses. Errors:
//
//   kNotFound     nobody listens: RAS is off (NCCL_RAS_ENABLE=0), or NCCL is older than 2.24
//   kPermission   the process that listens is not believed
//   kTimeout      the process that listens says nothing, or is not done by the deadline
//   kUnsupported  it speaks another protocol, or gives no JSON (before 2.28.7)
//   kGone         the answer breaks off
//   kMalformed    the answer is no such document
//   kLimit        the answer is larger than kMaxRasAnswer
Result<NcclStatus> query_ras(const std::string& host, std::uint16_t port, const Deadline& deadline,
                             const RasVerifier& believed);

// A job of 10,000 processes in 8 communicators each makes about 45 MB.
inline constexpr std::size_t kMaxRasAnswer = 64u << 20;

}  // namespace rankstacks::nccl
