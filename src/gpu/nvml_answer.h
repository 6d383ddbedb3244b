// What NVML told of this machine's GPUs, and its form on the pipe from the helper process (nvml_query.h) to the tool: one "name value" a line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::gpu {

struct NvmlProcess {
  Pid pid = 0;                             // 0: the driver does not tell, as it is of another pid namespace
  std::optional<std::uint64_t> memory;     // bytes
  bool mps = false;                        // a client of the multi-process service
  bool operator==(const NvmlProcess&) const = default;
};

struct NvmlDevice {
  GpuSnapshot gpu;                         // identity and health; what depends on the asking process is empty
  std::optional<unsigned> minor;           // /dev/nvidia<minor>
  std::optional<bool> mig;
  std::optional<std::vector<NvmlProcess>> processes;   // with a compute context, ascending by pid; nothing: the list cannot be had
  bool operator==(const NvmlDevice&) const = default;
};

enum class NvmlOutcome {
  kNoDriver,       // no NVIDIA driver on this machine: nothing was started
  kNoLibrary,      // a driver, and no library
  kRefused,        // the library does not come up
  kAnswered,       // `devices` and `problems` tell
  kSilent,         // no answer in time
};

struct NvmlAnswer {
  NvmlOutcome outcome = NvmlOutcome::kNoDriver;
  std::string driver;                      // "580.159.04"; empty: unknown
  std::vector<NvmlDevice> devices;         // ascending by index
  std::vector<Problem> problems;           // why there is nothing, or of which devices
  bool operator==(const NvmlAnswer&) const = default;
};

// "0000:0a:00.0"
std::string full_pci_address(unsigned domain, unsigned bus, unsigned device);

// One finished device.
std::string device_text(const NvmlDevice& device);

// What the helper has written so far. `whole`: its last line was there. Lines that are none of these are passed over.
struct HelperText {
  bool whole = false;
  bool no_library = false;
  std::optional<int> refused;              // nvmlReturn_t of nvmlInit
  std::string reason;                      // of these two
  std::string driver;
  unsigned count = 0;                      // devices that there are
  std::vector<NvmlDevice> devices;         // those finished, ascending by index
  std::vector<std::pair<unsigned, int>> failed;        // index, nvmlReturn_t
  std::vector<std::pair<unsigned, std::string>> why;   // index, its text
  std::vector<std::pair<std::string, unsigned>> xids;  // "0000:0a:00", number
};
HelperText parse_helper_text(std::string_view text);

inline constexpr std::size_t kMaxHelperText = 4u << 20;
inline constexpr unsigned kMaxDevices = 256;

// `waited`: so long for it, in words ("2 s").
NvmlAnswer answer_of(HelperText text, std::string_view waited);

}  // namespace rankstacks::gpu
