// gdb's backtraces (gdb/stack.c, print_frame; gdb/thread.c):
//
//     Attaching to process 4711
//     Thread 2 (Thread 0x7efd61f4b6c0 (LWP 4712) "python3"):
//     #0  futex_wait (private=0, op=137) at ./nptl/futex-internal.c:57
//             err = <optimized out>                                           bt full
//     #1  0x00007efd7ad1decf in gloo::transport::tcp::Loop::run() () from /lib/libgloo.so.0
//     #2  0x0000000000547b96 in ?? ()
//     Backtrace stopped: previous frame inner to this frame (corrupt stack?)
//     [Inferior 1 (process 4711) detached]
//
// cuda-gdb prints the same, and what it says of GPUs (cuda_gdb.h) before, between and behind it.
#include <optional>
#include <utility>

#include "base/text.h"
#include "dumps/cuda_gdb.h"
#include "dumps/gdb_frame.h"
#include "dumps/native_frame.h"
#include "dumps/readers.h"

namespace rankstacks::dumps {
namespace {

std::optional<Tid> number_after(std::string_view line, std::string_view word) {
  const std::size_t at = line.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  return Cursor(line.substr(at + word.size())).number<Tid>();
}

// What a session that was not in batch mode has before its lines: prompts, and questions whether to go on.
std::string_view without_prompts(std::string_view line) {
  constexpr std::string_view kPager = "--Type <RET> for more, q to quit, c to continue without paging--";
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prompt : {std::string_view("(cuda-gdb) "), std::string_view("(gdb) "), kPager})
      if (line.starts_with(prompt)) line.remove_prefix(prompt.size()), again = true;
  }
  return line;
}

class Reader {
 public:
  explicit Reader(Draft& draft) : draft_(draft), gpus_(std::in_place, draft.frames()) {}

  void read(std::string_view line) {
    line = without_prompts(line);
    const std::string_view bare = trimmed(line);
    if (bare.empty() || begin_thread(bare) || note_process(bare) || end_stack(bare) || gpus_->take(bare)) return;
    if (read_frame(line)) return;
    // Before the first backtrace gdb shows the frame in which it has stopped; below a frame, its variables.
    if (continue_frame(line) || draft_.thread() == nullptr || draft_.last() != nullptr || is_noise(bare)) return;
    draft_.not_understood();
  }

  // What is known about GPUs becomes the process's.
  void end_process() {
    if (!gpus_->empty()) {
      begin_after_detached();
      gpus_->give_to(draft_.process());
    }
    gpus_.emplace(draft_.frames());
  }

 private:
  // What follows the end of a session is of another process.
  void begin_after_detached() {
    if (std::exchange(detached_, false)) draft_.begin_process(0);
  }

  // "Thread 2 (Thread 0x7efd61f4b6c0 (LWP 4712) "python3" (Exiting)):", "Thread 1 (LWP 4711):", "Thread 1 (process
  // 4711):"
  bool begin_thread(std::string_view line) {
    Cursor cursor(line);
    if (!cursor.take("Thread ") || !cursor.number<int>() || !cursor.take(" (") || !line.ends_with(':')) return false;
    auto tid = number_after(line, "LWP ");
    if (!tid) tid = number_after(line, "process ");
    std::string_view name;
    if (const std::size_t open = line.find('"'), close = line.rfind('"'); open < close)
      name = line.substr(open + 1, close - open - 1);
    gpus_->leave_gpu();
    begin_after_detached();
    draft_.begin_thread(tid.value_or(0), name);
    has_heading_ = true;
    return true;
  }

  bool read_frame(std::string_view line) {
    Cursor cursor(line);
    const auto number = take_frame_number(cursor);
    if (!number) return false;
    // A plain `bt` has no line for its thread.
    if (*number == 0 && (draft_.thread() == nullptr || draft_.last() != nullptr || gpus_->in_stack())) begin_stack();
    Frame frame = *gdb_frame(line);
    if (!gpus_->in_stack() && CudaGdb::is_launch(frame)) turn_into_gpu_stack();
    if (gpus_->in_stack()) gpus_->add(std::move(frame));
    else if (frame.address == 0 && !frame.function) draft_.drop_empty_thread();  // "<unavailable> in ?? ()": no thread
    else if (!draft_.add(std::move(frame))) draft_.not_understood();
    return true;
  }

  void begin_stack() {
    if (gpus_->on_gpu()) return gpus_->begin_stack();
    gpus_->leave_gpu();
    begin_after_detached();
    draft_.begin_thread(0);
    has_heading_ = false;
  }

  // The outermost frame shows that the stack so far is a kernel's.
  void turn_into_gpu_stack() {
    gpus_->begin_stack();
    if (draft_.thread() == nullptr) return;
    for (const FrameId id : draft_.take_frames()) gpus_->add(draft_.frames()[id]);
    if (!has_heading_) draft_.drop_empty_thread();
  }

  // A terminal that is narrow puts the rest of the arguments and the place of a frame into a line of its own.
  bool continue_frame(std::string_view line) {
    if (!line.starts_with("    ")) return false;
    std::string_view place = trimmed(line);
    for (const std::string_view mark : {") at ", ") from "})
      if (const std::size_t end = place.rfind(mark); end != std::string_view::npos) place = place.substr(end + 2);
    if (gpus_->in_stack()) return gpus_->place_last(place);
    if (draft_.last() == nullptr) return false;
    Frame frame = *draft_.last();
    if (!frame.module.empty() || frame.file || !gdb_place(place, frame)) return false;
    draft_.replace_last(std::move(frame));
    return true;
  }

  bool end_stack(std::string_view line) {
    if (!line.starts_with("Backtrace stopped: ") && !line.starts_with("(More stack frames follow")) return false;
    if (gpus_->in_stack()) return true;
    if (draft_.thread() != nullptr) draft_.thread()->stack_end = StackEnd::kNoUnwindInfo;
    draft_.end_thread();
    return true;
  }

  // What says which process it is stands before the backtraces ("Attaching to"), or behind them ("[Inferior 1").
  bool note_process(std::string_view line) {
    if (line.starts_with("Attaching to ")) {
      const auto pid = number_after(line, "process ");
      if (pid) {
        end_process();
        detached_ = false;
        draft_.begin_process(*pid);
      }
      return true;
    }
    if (line.starts_with("[Inferior ") && line.ends_with("detached]")) {
      const auto pid = number_after(line, "(process ");
      end_process();
      if (pid && draft_.has_process() && draft_.process().pid == 0) draft_.process().pid = *pid;
      detached_ = draft_.has_process();
      return true;
    }
    constexpr std::string_view kGpuCore = "Opening GPU coredump: ";
    if (line.starts_with(kGpuCore)) {
      begin_gpu_core(trimmed(line.substr(kGpuCore.size())));
      return true;
    }
    constexpr std::string_view kCore = "Core was generated by `";
    if (!line.starts_with(kCore)) return false;
    if (draft_.has_process() && !draft_.process().threads.empty()) {
      end_process();
      draft_.begin_process(0);
    }
    draft_.process().command = {kept(line.substr(kCore.size(), line.rfind('\'') - kCore.size()))};
    return true;
  }

  // "core_1795296990_node-a_583.nvcudmp": as the driver names it by default.
  void begin_gpu_core(std::string_view path) {
    const bool has_more = !gpus_->empty() || (draft_.has_process() && !draft_.process().threads.empty());
    if (has_more) {
      end_process();
      draft_.begin_process(0);
      detached_ = false;
    }
    gpus_->read_from_core();
    std::string_view name = path.substr(path.rfind('/') + 1);
    constexpr std::string_view kEnding = ".nvcudmp";
    if (!name.starts_with("core_") || !name.ends_with(kEnding)) return;
    name.remove_suffix(kEnding.size());
    name.remove_prefix(5);
    const std::size_t host = name.find('_'), pid = name.rfind('_');
    const Pid number = pid == std::string_view::npos ? 0 : number_of<Pid>(name.substr(pid + 1)).value_or(0);
    RankSnapshot& rank = draft_.process();
    if (number <= 0 || rank.pid != 0) return;
    rank.pid = number;
    if (host < pid && host + 1 < pid) rank.host = kept(name.substr(host + 1, pid - host - 1));
  }

  static bool is_noise(std::string_view line) {
    for (const std::string_view begin :
         {"[", "Using host", "warning: ", "Reading symbols", "(no debugging", "No locals", "No symbol table",
          "Download", "This GDB", "Debuginfod", "Enable debuginfod", "Program terminated", "Detaching from",
          "The current source language"})
      if (line.starts_with(begin)) return true;
    return is_digit(line.front());  // a line of the source
  }

  Draft& draft_;
  std::optional<CudaGdb> gpus_;
  bool detached_ = false;
  bool has_heading_ = false;  // the thread that the draft is in
};

}  // namespace

void read_gdb(std::string_view text, Draft& draft) {
  Reader reader(draft);
  each_line(text, [&](std::string_view line) { reader.read(line); });
  reader.end_process();
}

}  // namespace rankstacks::dumps
