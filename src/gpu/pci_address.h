// "0000:0a:00.0" for the bus and device numbers by which the debugger API and GPU cores name a device.
#pragma once

#include <cstdint>
#include <string>

namespace rankstacks::gpu {

// The numbers leave out the domain: it is taken from the devices that the driver lists (/proc/driver/nvidia/gpus), if
// exactly one of them has these numbers; else it is 0.
std::string pci_address(std::uint32_t bus, std::uint32_t device,
                        const std::string& listing = "/proc/driver/nvidia/gpus");

}  // namespace rankstacks::gpu
