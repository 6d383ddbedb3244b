// What NVML reports about this machine's GPUs, and the messages (helper_messages.h) in which the helper process that
// calls NVML (nvml_helper.h) sends it to the tool.
//
//     x   Xid events in the kernel's log       MessagePack: an array of [PCI address, number, pid or nil, seconds since boot or nil]
//     l   the library cannot be loaded         MessagePack: {code, words}
//     r   NVML does not start                  the same; code: nvmlReturn_t
//     n   how many GPUs there are              MessagePack: {driver, count}
//     g   a GPU that has been read             MessagePack of NvmlDevice
//     f   a GPU that cannot be read            MessagePack: {index, code, words}
//     d   the answer is complete               empty
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/helper_messages.h"
#include "gpu/xid_log.h"
#include "model/snapshot.h"

namespace rankstacks::gpu {

struct NvmlProcess {
  Pid pid = 0;                          // 0: not reported, as the process is in another pid namespace
  std::optional<std::uint64_t> memory;  // bytes
  bool mps = false;                     // a client of the multi-process service
  bool operator==(const NvmlProcess&) const = default;
};

struct NvmlDevice {
  GpuSnapshot gpu;                // identity and health; fields that depend on the target process are empty
  std::optional<unsigned> minor;  // /dev/nvidia<minor>
  std::optional<bool> mig;
  // Those with a compute context, ascending by pid; std::nullopt: the driver does not give the list.
  std::optional<std::vector<NvmlProcess>> processes;
  std::vector<XidEvent> xids;  // its events in the kernel's log
  bool operator==(const NvmlDevice&) const = default;
};

enum class NvmlOutcome {
  kNoDriver,   // no NVIDIA driver on this machine: no helper was started
  kNoLibrary,  // a driver, but no library
  kRefused,    // the library does not start
  kAnswered,   // the answer is in `devices` and `problems`
  kSilent,     // no answer in time
};

struct NvmlAnswer {
  NvmlOutcome outcome = NvmlOutcome::kNoDriver;
  std::string driver;               // "580.159.04"; empty: unknown
  std::vector<NvmlDevice> devices;  // ascending by index
  std::vector<Problem> problems;    // why the answer is missing, or which devices are missing
  bool operator==(const NvmlAnswer&) const = default;
};

// "0000:0a:00.0"
std::string full_pci_address(unsigned domain, unsigned bus, unsigned device);

// These make the bodies of the messages.
std::vector<std::uint8_t> pack_xids(const std::vector<XidEvent>& xids);
std::vector<std::uint8_t> pack_failure(int code, std::string_view words, std::optional<unsigned> index = {});
std::vector<std::uint8_t> pack_count(std::string_view driver, unsigned count);
std::vector<std::uint8_t> pack(const NvmlDevice& device);

inline constexpr std::uint32_t kMaxNvmlMessage = 4u << 20;
inline constexpr std::size_t kMaxNvmlBytes = 4u << 20;  // of all messages together
inline constexpr unsigned kMaxDevices = 256, kMaxDeviceProcesses = 1u << 14;

// What the helper has written so far. Its messages are untrusted: a message that does not have the form listed above is
// ignored, and a field of a device whose value is invalid stays empty.
struct NvmlMessages {
  bool whole = false;  // whether the last message (d) has arrived
  bool no_library = false;
  std::optional<int> refused;  // nvmlReturn_t of nvmlInit
  std::string reason;          // for no_library or refused
  std::string driver;
  unsigned count = 0;               // number of devices on the machine
  std::vector<NvmlDevice> devices;  // those read, in the order of their messages
  struct Failed {
    unsigned index = 0;
    int code = 0;  // nvmlReturn_t
    std::string words;
  };
  std::vector<Failed> failed;
  std::vector<XidEvent> xids;

  void add(const Message& message);
};

// `waited`: how long the tool has waited for the answer, in words ("2 s").
NvmlAnswer answer_of(NvmlMessages messages, std::string_view waited);

}  // namespace rankstacks::gpu
