#include "known/nccl_results.h"

#include <algorithm>
#include <array>

namespace rankstacks::known {
namespace {

struct Row {
  int result;
  std::string_view name, meaning;
};

// nccl.h of NCCL 2.28 and 2.29. The thread that moves the data (ncclProxyProgress) keeps the result of what it does:
// ncclInvalidUsage is that of net_socket.cc where a message is longer than the receive that was posted for it ("message
// truncated"), and ncclRemoteError that of socket.cc where the other end has closed the connection.
constexpr std::array<Row, 7> kRows = {{
    {1, "ncclUnhandledCudaError", "a call of CUDA has failed"},
    {2, "ncclSystemError", "a call of the system has failed"},
    {3, "ncclInternalError", "an error within NCCL"},
    {4, "ncclInvalidArgument", "a call with an invalid argument"},
    {kNcclInvalidUsage, "ncclInvalidUsage",
     "over sockets: a peer has sent more than the call takes, so that the calls do not fit each other"},
    {kNcclRemoteError, "ncclRemoteError", "a connection to a peer has ended, or the network has failed"},
    {8, "ncclTimeout", "a time has run out"},
}};

const Row* row_of(int result) {
  const auto found = std::find_if(kRows.begin(), kRows.end(), [&](const Row& row) { return row.result == result; });
  return found == kRows.end() ? nullptr : &*found;
}

}  // namespace

bool is_nccl_error(int result) { return result != kNcclSuccess && result != kNcclInProgress; }

std::string_view nccl_result_name(int result) {
  const Row* row = row_of(result);
  return row == nullptr ? "" : row->name;
}

std::string_view nccl_result_meaning(int result) {
  const Row* row = row_of(result);
  return row == nullptr ? "" : row->meaning;
}

}  // namespace rankstacks::known
