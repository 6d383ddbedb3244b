// What the client of a GPU session asks of its broker; these are the two processes of a session helper
// (session_helper.h).
//
//     client   has the driver's library loaded and the rights of the target process: none to trace it
//     broker   may trace that process and runs no code but the tool's own; does what is declared here for the client,
//              to that process alone
//
// A request is one packet of a socket pair, and so is a reply. The client is untrusted: whatever it sends, the broker
// only reads and writes the driver's words, calls the driver's two functions and asks through its descriptor, all in
// the process whose rights the client has anyway.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/result.h"
#include "gpu/attach_point.h"
#include "gpu/inferior_call.h"
#include "gpu/session_phase.h"

namespace rankstacks::gpu {

// The client's side. Errors come from the broker; kGone if the broker has ended.
class TargetProxy {
 public:
  explicit TargetProxy(int socket) : socket_(socket) {}

  Result<std::optional<std::uint32_t>> read(Word word) const;
  Result<bool> write(Word word, std::uint32_t value) const;
  // Makes an inferior call of the driver's function in the process; kUnsupported if the driver has none.
  Result<InferiorCall> call(EntryPoint function) const;
  Result<bool> ask_by_descriptor() const;
  // A GPU core was written into the memory file that the broker has given: the broker copies it to the path that was
  // asked for.
  Result<void> keep_core() const;
  // A call into the driver does not return: the broker ends this process and has the target process freed. No reply.
  void hangs_in(Phase phase) const;
  // Whether the broker has ended.
  bool is_alone() const;

 private:
  int socket_;
};

// The broker's side, for one client.
struct ClientEnd {
  std::optional<Phase> hung;  // where, if it asked to be ended; std::nullopt: it has ended
};
struct BrokerDuties {
  std::function<Result<void>()> keep_core;
  // Called when the driver in the process is about to be asked to let the client in: from here on the process may wait
  // for it.
  std::function<void()> asked;
};
// Answers requests until the client has ended or hangs. A client that has ended is no longer let in.
ClientEnd serve(int socket, const AttachPoint& point, const BrokerDuties& duties);

}  // namespace rankstacks::gpu
