// The kernel's drivers of GPUs: which files their calls go through, and how the kernel names their code.
#pragma once

#include <string_view>

namespace rankstacks::known {

// A device file of a driver of GPUs: "/dev/nvidiactl", "/dev/nvidia-uvm".
bool is_gpu_driver_file(std::string_view path);

// Whether a native function waits for what a GPU runs, and for nothing else: "cuStreamSynchronize".
bool waits_for_gpu_alone(std::string_view function);

// Whether a line of a kernel stack is in a driver of GPUs: "os_acquire_rwlock_write+0x35/0x60 [nvidia]".
bool is_in_gpu_driver(std::string_view kernel_frame);

}  // namespace rankstacks::known
