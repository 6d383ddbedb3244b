// What NVML says of this machine's GPUs, and the messages (helper_messages.h) by which its helper process
// (nvml_helper.h) hands it to the tool.
//
//     x   Xid events of the kernel's log       MessagePack: an array of [PCI address, number]
//     l   the library cannot be loaded         MessagePack: {code, words}
//     r   NVML does not start                  the same; code: nvmlReturn_t
//     n   how many GPUs there are              MessagePack: {driver, count}
//     g   a GPU that has been read             MessagePack of NvmlDevice
//     f   a GPU that cannot be read            MessagePack: {index, code, words}
//     d   done                                 nothing
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/helper_messages.h"
#include "model/snapshot.h"

namespace rankstacks::gpu {

using Xids = std::vector<std::pair<std::string, unsigned>>;  // "0000:0a:00", number

struct NvmlProcess {
  Pid pid = 0;                          // 0: the driver does not tell, as it is of another pid namespace
  std::optional<std::uint64_t> memory;  // bytes
  bool mps = false;                     // a client of the multi-process service
  bool operator==(const NvmlProcess&) const = default;
};

struct NvmlDevice {
  GpuSnapshot gpu;                // identity and health; what depends on the asking process is empty
  std::optional<unsigned> minor;  // /dev/nvidia<minor>
  std::optional<bool> mig;
  std::optional<std::vector<NvmlProcess>>
      processes;  // with a compute context, ascending by pid; nothing: the list cannot be had
  bool operator==(const NvmlDevice&) const = default;
};

enum class NvmlOutcome {
  kNoDriver,   // no NVIDIA driver on this machine: nothing was started
  kNoLibrary,  // a driver, and no library
  kRefused,    // the library does not come up
  kAnswered,   // `devices` and `problems` tell
  kSilent,     // no answer in time
};

struct NvmlAnswer {
  NvmlOutcome outcome = NvmlOutcome::kNoDriver;
  std::string driver;               // "580.159.04"; empty: unknown
  std::vector<NvmlDevice> devices;  // ascending by index
  std::vector<Problem> problems;    // why there is nothing, or of which devices
  bool operator==(const NvmlAnswer&) const = default;
};

// "0000:0a:00.0"
std::string full_pci_address(unsigned domain, unsigned bus, unsigned device);

// The messages' bodies.
std::vector<std::uint8_t> pack_xids(const Xids& xids);
std::vector<std::uint8_t> pack_failure(int code, std::string_view words, std::optional<unsigned> index = {});
std::vector<std::uint8_t> pack_count(std::string_view driver, unsigned count);
std::vector<std::uint8_t> pack(const NvmlDevice& device);

inline constexpr std::uint32_t kMaxNvmlMessage = 4u << 20;
inline constexpr std::size_t kMaxNvmlBytes = 4u << 20;  // of all messages
inline constexpr unsigned kMaxDevices = 256, kMaxDeviceProcesses = 1u << 14;

// What the helper has written so far. Its messages are untrusted: one that is not as listed above is passed over, and a
// member of a device that is not as it should be stays empty.
struct NvmlMessages {
  bool whole = false;  // the last one was there
  bool no_library = false;
  std::optional<int> refused;  // nvmlReturn_t of nvmlInit
  std::string reason;          // of these two
  std::string driver;
  unsigned count = 0;               // devices that there are
  std::vector<NvmlDevice> devices;  // those finished, in the order of their messages
  struct Failed {
    unsigned index = 0;
    int code = 0;  // nvmlReturn_t
    std::string words;
  };
  std::vector<Failed> failed;
  Xids xids;

  void add(const Message& message);
};

// `waited`: so long for it, in words ("2 s").
NvmlAnswer answer_of(NvmlMessages messages, std::string_view waited);

}  // namespace rankstacks::gpu
