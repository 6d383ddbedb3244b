#include "gpu/pci_address.h"

#include <fmt/format.h>
#include <filesystem>
#include <system_error>

namespace rankstacks::gpu {

std::string pci_address(std::uint32_t bus, std::uint32_t device, const std::string& listing) {
  const std::string tail = fmt::format(":{:02x}:{:02x}.0", bus, device);
  std::string found;
  int count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(listing, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.ends_with(tail)) continue;
    found = name;
    ++count;
  }
  return count == 1 ? found : "0000" + tail;
}

}  // namespace rankstacks::gpu
