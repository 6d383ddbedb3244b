// NCCL's results (ncclResult_t), as a communicator keeps one for what fails in its threads (ncclCommGetAsyncError).
#pragma once

#include <string_view>

namespace rankstacks::known {

enum NcclResult : int { kNcclSuccess = 0, kNcclInvalidUsage = 5, kNcclRemoteError = 6, kNcclInProgress = 7 };

// Neither success nor a call that has not ended yet.
bool is_nccl_error(int result);

// "ncclInvalidUsage"; "" if there is no such result.
std::string_view nccl_result_name(int result);

// What it says of a communicator: "a connection to a peer has ended, or the network has failed"; "" as above.
std::string_view nccl_result_meaning(int result);

}  // namespace rankstacks::known
