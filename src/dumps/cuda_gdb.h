// What cuda-gdb says of the GPUs of a process, between what gdb says of its threads.
//
//     info cuda kernels, devices, contexts, blocks     tables; their columns differ between versions of CUDA
//     [Current focus set to CUDA kernel 0, grid 1, block (1,0,0), thread (32,0,0), device 0, sm 126, warp 1, lane 0]
//     CUDA Exception: Warp Illegal Address
//     The exception was triggered at PC 0x7ff67b7a00f0  illegal(int*)  (kernels.cu:49)
//     #1  0x00007f211b7a0050 in spin<<<(4,1,1),(64,1,1)>>> () at kernels.cu:35
//
// The frames of a backtrace are the GPU's while the debugger's focus is on a kernel, or if the outermost of them has
// the launch's <<<...>>>.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::dumps {

class CudaGdb {
 public:
  explicit CudaGdb(FrameTable& frames) : frames_(frames) {}

  // Whether the line is about GPUs; false: it is gdb's. `line` has no blanks at its ends.
  bool take(std::string_view line);

  // Whether a backtrace that begins now is of a kernel.
  bool on_gpu() const { return focus_.has_value(); }
  // A backtrace begins, whose frames follow.
  void begin_stack();
  bool in_stack() const { return in_stack_; }
  void add(Frame frame);
  // Where the last frame is, in a line of its own: "at kernels.cu:36".
  bool place_last(std::string_view place);
  // The debugger reads a GPU core, not a live process.
  void read_from_core() { is_core_ = true; }
  // A frame of a thread of the process (gdb's "Thread 3"): the focus is not on a GPU.
  void leave_gpu();
  // The entry of a kernel: its function has the launch's <<<...>>>.
  static bool is_launch(const Frame& frame);

  // Whether anything is known about GPUs.
  bool empty() const;
  // Gives what is known to the process; call this once.
  void give_to(RankSnapshot& rank);

 private:
  enum class Table { kNone, kKernels, kDevices, kContexts, kBlocks, kOther };
  // Where the debugger looks at.
  struct Focus {
    std::optional<std::uint64_t> kernel;  // cuda-gdb's own number
    std::optional<std::int64_t> grid;
    std::optional<unsigned> device, lane;
    std::optional<GpuDim> block, thread;
  };
  struct Kernel {
    std::optional<std::uint64_t> number;
    std::optional<unsigned> device;
    bool resident = true;
    GpuKernel kernel;
  };
  struct Device {
    std::string pci, name;
    std::uint32_t contexts = 0;
  };
  struct Exception {
    GpuException exception;
    std::optional<unsigned> device;
    std::optional<Focus> focus;
  };
  struct Launch {
    GpuDim grid, block;
  };

  bool begin_table(std::string_view line);
  bool take_row(std::string_view line);
  bool take_kernel(std::string_view line);
  bool take_device(std::string_view line);
  bool take_context(std::string_view line);
  bool take_blocks(std::string_view line);
  bool take_focus(std::string_view line);
  bool take_exception(std::string_view line);
  bool take_nothing(std::string_view line);
  void begin_exception(std::string kind);
  void end_stack();
  std::optional<Launch> take_launch(Frame& frame) const;
  // The kernel that the focus is on, or the one in which the table marks it; nullptr: it is not listed.
  Kernel* focused(const std::optional<Focus>& focus);
  Kernel* add_kernel(Kernel kernel);

  FrameTable& frames_;
  Table table_ = Table::kNone;
  std::vector<std::string> columns_;  // of the table of kernels
  std::optional<std::uint64_t> blocks_of_;
  std::map<unsigned, Device> devices_;
  std::vector<Kernel> kernels_, earlier_;
  std::optional<std::size_t> marked_;  // the kernel with the asterisk
  std::vector<Exception> exceptions_;
  std::optional<Focus> focus_;
  std::vector<FrameId> stack_;
  std::optional<Launch> launch_;
  std::optional<std::string> launched_;  // the function of launch_
  bool is_core_ = false, in_stack_ = false;
  bool focus_may_follow_ = false;  // of the last exception
  bool knows_kernels_ = false;     // they were listed, or it was said that there are none
  bool could_not_attach_ = false;
};

}  // namespace rankstacks::dumps
