// What the client of a GPU session asks of its broker: the two processes of a session helper (session_helper.h).
//
//     client   has the driver's library loaded and the rights of the process that is looked at: none to trace it
//     broker   may trace that process and runs no code but the tool's own; does for the client what stands here, to that process alone
//
// A request is one packet of a socket pair, a reply another. The client is not trusted: whatever it sends, the broker reads and writes the driver's words, calls the
// driver's two functions and asks through its descriptor, all in the process that the client has the rights of anyway.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/result.h"
#include "gpu/attach_point.h"
#include "gpu/inferior_call.h"
#include "gpu/session_phase.h"

namespace rankstacks::gpu {

// The client's side. Errors are the broker's; kGone where it has ended.
class TargetProxy {
 public:
  explicit TargetProxy(int socket) : socket_(socket) {}

  Result<std::optional<std::uint32_t>> read(Word word) const;
  Result<bool> write(Word word, std::uint32_t value) const;
  // Calls the driver's function in a thread of the process; kUnsupported where the driver has none.
  Result<InferiorCall> call(EntryPoint function) const;
  Result<bool> ask_by_descriptor() const;
  // A GPU core was written into the memory file that the broker has given: it puts it where the tool was told to.
  Result<void> keep_core() const;
  // A call into the driver does not come back: the broker ends this process, and sees to it that the other one is freed. No reply.
  void hangs_in(Phase phase) const;
  // The broker has ended.
  bool is_alone() const;

 private:
  int socket_;
};

// The broker's side, for one client.
struct ClientEnd {
  std::optional<Phase> hung;               // it asked to be ended; else it has ended
};
struct BrokerDuties {
  std::function<Result<void>()> keep_core;
  std::function<void()> asked;             // the driver in the process is about to be asked to let the client in: from here on the process may wait for it
};
// Answers requests until the client has ended or hangs. A client that has ended is not let in any more.
ClientEnd serve(int socket, const AttachPoint& point, const BrokerDuties& duties);

}  // namespace rankstacks::gpu
