#include "target/thread_pointer.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rankstacks::target {
namespace {

// struct pthread of glibc: `tid`, `robust_prev` at 728, then the head.
constexpr Address kHeadInDescriptor = kTidInDescriptor + 16;
constexpr std::size_t kTcb = 0, kSelf = 2;  // words

}  // namespace

std::optional<Address> supposed_thread_pointer(Tid tid) {
  Address head = 0;
  std::size_t size = 0;
  if (syscall(SYS_get_robust_list, tid, &head, &size) != 0 || size != sizeof(robust_list_head) ||
      head <= kHeadInDescriptor)
    return std::nullopt;
  return head - kHeadInDescriptor;
}

bool is_thread_descriptor(Address at, const DescriptorHead& head) { return head[kTcb] == at && head[kSelf] == at; }

}  // namespace rankstacks::target
