#include "dumps/cuda_gdb.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <utility>

#include "base/text.h"
#include "dumps/cursor.h"
#include "dumps/draft.h"
#include "dumps/gdb_frame.h"
#include "model/gpu_exception.h"

namespace rankstacks::dumps {
namespace {

constexpr std::size_t kMaxKernels = 1 << 10, kMaxDevices = 1 << 8, kMaxExceptions = 1 << 8, kMaxColumns = 1 << 5;

// cuda-gdb's names of exceptions (include/gdb/signals.def of its source), by the driver's number.
constexpr std::array<std::pair<std::string_view, std::uint32_t>, 19> kExceptions = {
    {{"Lane Illegal Address", 1},
     {"Lane User Stack Overflow", 2},
     {"Device Hardware Stack Overflow", 3},
     {"Warp Illegal Instruction", 4},
     {"Warp Out-of-range Address", 5},
     {"Warp Misaligned Address", 6},
     {"Warp Invalid Address Space", 7},
     {"Warp Invalid PC", 8},
     {"Warp Hardware Stack Overflow", 9},
     {"Device Illegal Address", 10},
     {"Lane Misaligned Address", 11},
     {"Warp Assert", 12},
     {"Lane Syscall Error", 13},
     {"Warp Illegal Address", 14},
     {"Lane Non-migratable Atomic", 15},
     {"Lane Invalid Atomic", 16},
     {"Cluster Out-of-range Address", 17},
     {"Cluster Target Block Not Present", 18},
     {"Stack Canary", 19}}};

std::string lower(std::string_view text) {
  std::string small(text);
  for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return small;
}

// "illegal address" of "Warp Illegal Address", also of a name that the table does not have.
std::string kind_of(std::string_view name) {
  const std::string wanted = lower(name);
  for (const auto& [known, code] : kExceptions)
    if (lower(known) == wanted) return gpu_exception_kind(code);
  for (const std::string_view level : {"warp ", "lane ", "device "})
    if (wanted.starts_with(level)) return kept(std::string_view(wanted).substr(level.size()));
  return kept(wanted);
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (text = trimmed(text); !text.empty() && words.size() < kMaxColumns;) {
    const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
    words.push_back(text.substr(0, end));
    text = trimmed(text.substr(end));
  }
  return words;
}

std::optional<GpuDim> take_dim(Cursor& cursor) {
  if (!cursor.take("(")) return std::nullopt;
  const auto x = cursor.number<std::uint32_t>();
  if (!x) return std::nullopt;
  GpuDim dim{*x, 1, 1};
  for (std::uint32_t* part : {&dim.y, &dim.z}) {
    if (!cursor.take(",")) break;
    const auto value = cursor.number<std::uint32_t>();
    if (!value) return std::nullopt;
    *part = *value;
  }
  return cursor.take(")") ? std::optional(dim) : std::nullopt;
}

std::string_view take_word(Cursor& cursor) {
  cursor.blanks();
  const std::size_t end = std::min(cursor.rest().find_first_of(" \t"), cursor.rest().size());
  const std::string_view word = cursor.rest().substr(0, end);
  cursor.take(word);
  return word;
}

// What stands behind the word in a line of coordinates: "7" of "..., device 7, sm 3".
template <class T>
std::optional<T> coordinate(std::string_view line, std::string_view word) {
  const std::size_t at = line.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  Cursor cursor(line.substr(at + word.size()));
  if constexpr (std::is_same_v<T, GpuDim>) return take_dim(cursor);
  else {
    const std::string_view rest = cursor.rest();
    return number_of<T>(rest.substr(0, rest.find_first_of(",] ")));
  }
}

// The number of multiprocessors in a mask, "0x0550000000".
std::uint32_t bits_of(std::string_view mask) {
  Cursor cursor(mask);
  if (!cursor.take("0x")) return 0;
  std::uint32_t bits = 0;
  for (const char c : cursor.rest())
    if (const auto digit = number_of<unsigned>(std::string_view(&c, 1), 16))
      bits += static_cast<std::uint32_t>(std::popcount(*digit));
  return bits;
}

// Where arguments begin that were cut off: a bracket outside of template arguments; the end of the text if there is
// none.
std::size_t unended_arguments(std::string_view text) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>') --depth;
    if (text[i] == '(' && depth <= 0 && !text.substr(i).starts_with(kAnonymous)) return i;
  }
  return text.size();
}

// What stands before the first blank that is not within brackets: of "f<int, 2> n=1" the function.
std::string_view first_outside_brackets(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<' || text[i] == '(') ++depth;
    if (text[i] == '>' || text[i] == ')') --depth;
    if (text[i] == ' ' && depth <= 0 && text.substr(0, i) != "void") return text.substr(0, i);
  }
  return text;
}

// A kernel's name without what it returns (nothing) and what it takes: "spin" of "void spin(int*)", "spin(flag=0x7)".
// cuda-gdb's table and its backtraces name one kernel differently.
std::string kernel_name(std::string_view text) {
  text = trimmed(text);
  const std::string_view whole = text;
  text = without_arguments(text);
  if (text == whole) text = trimmed(text.substr(0, unended_arguments(text)));
  // The parameters' types, in the name of a function without debug information, stand before the arguments.
  if (text.ends_with(')')) text = without_arguments(text);
  if (text.starts_with("void ")) text.remove_prefix(5);
  return kept(trimmed(text));
}

constexpr std::string_view kLaunch = "<<<(";

}  // namespace

bool CudaGdb::is_launch(const Frame& frame) {
  return frame.function && contains(*frame.function, kLaunch) && frame.function->ends_with(")>>>");
}

bool CudaGdb::take(std::string_view line) {
  if (take_focus(line) || take_exception(line) || take_nothing(line)) return true;
  if (begin_table(line)) return true;
  if (table_ != Table::kNone && take_row(line)) return true;
  table_ = Table::kNone;
  // Where the debugger has stopped, which is said without a number.
  if (focus_ && !in_stack_ && line.starts_with("0x") && contains(line, kLaunch)) {
    begin_stack();
    add(gdb_frame_without_number(line));
    end_stack();
    return true;
  }
  return false;
}

bool CudaGdb::take_nothing(std::string_view line) {
  for (const std::string_view failed :
       {"Timed out waiting for the CUDA API", "The CUDA driver could not allocate", "Attaching not possible.",
        "Failed to attach.", "Attach failed due to", "This CUDA driver does not support attaching", "No CUDA devices.",
        "fatal:  The CUDA driver", "fatal: The CUDA driver", "The CUDA driver has hit"})
    if (line.starts_with(failed)) return could_not_attach_ = true;
  if (line.starts_with("Focus not set on any active CUDA kernel")) {
    leave_gpu();
    return true;
  }
  if (!line.starts_with("No CUDA ")) return false;
  if (line == "No CUDA kernels.") knows_kernels_ = true;
  end_stack();
  return true;
}

bool CudaGdb::begin_table(std::string_view line) {
  if (line.empty() || !contains("KDCBWLS", line.substr(0, 1))) return false;
  const std::vector<std::string_view> words = words_of(line);
  if (words.size() < 2) return false;
  const auto has = [&](std::string_view word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  Table table = Table::kNone;
  if (words[0] == "Kernel" && has("GridDim")) table = Table::kKernels;
  else if (words[0] == "Dev" && (has("Lanes/Warp") || has("SMs"))) table = Table::kDevices;
  else if (words[0] == "Context" && words[1] == "Dev") table = Table::kContexts;
  else if (words[0] == "BlockIdx" && !has("ThreadIdx") && has("State")) table = Table::kBlocks;
  else if ((words[0] == "BlockIdx" && has("ThreadIdx")) || (words[0] == "Wp" && has("Lanes")) ||
           (words[0] == "Ln" && words[1] == "State") || (words[0] == "SM" && has("Warps")) ||
           (words[0] == "Lvl" && words[1] == "Kernel"))
    table = Table::kOther;
  if (table == Table::kNone) return false;
  end_stack();
  table_ = table;
  if (table == Table::kKernels) {
    // A later table replaces an earlier one; where its kernels stood has been shown already.
    earlier_ = std::exchange(kernels_, {});
    marked_.reset();
    columns_.assign(words.begin(), words.end());
    knows_kernels_ = true;
  }
  blocks_of_.reset();
  return true;
}

bool CudaGdb::take_row(std::string_view line) {
  switch (table_) {
    case Table::kKernels: return take_kernel(line);
    case Table::kDevices: return take_device(line);
    case Table::kContexts: return take_context(line);
    case Table::kBlocks: return take_blocks(line);
    case Table::kOther: {
      Cursor cursor(line);
      if (cursor.take("*")) cursor.blanks();
      return cursor.take("(") || cursor.number<std::uint64_t>() || cursor.take("Device ") || cursor.take("Kernel ");
    }
    case Table::kNone: break;
  }
  return false;
}

// "*      0      -   0    1 Active 0x0550 (4,1,1) (64,1,1) spin()": each column by what its heading says it is.
bool CudaGdb::take_kernel(std::string_view line) {
  Cursor cursor(line);
  Kernel row;
  const bool marked = cursor.take("*");
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const std::string_view column = columns_[i];
    cursor.blanks();
    if (column == "Mask") continue;  // of "SMs Mask", which was taken
    if (column == "Invocation" || column == "Name") {
      const bool has_arguments = column == "Invocation";
      row.kernel.function = kernel_name(has_arguments ? cursor.rest() : first_outside_brackets(cursor.rest()));
      break;
    }
    if (column == "GridDim" || column == "BlockDim") {
      const auto dim = take_dim(cursor);
      if (!dim) return false;
      (column == "GridDim" ? row.kernel.grid : row.kernel.block) = *dim;
      continue;
    }
    const std::string_view word = take_word(cursor);
    if (word.empty()) break;  // cut off
    if (column == "Kernel") {
      row.number = number_of<std::uint64_t>(word);
      if (!row.number) return false;
    } else if (column == "Dev") {
      row.device = number_of<unsigned>(word);
      if (!row.device) return false;
    } else if (column == "Grid") {
      const auto grid = number_of<std::int64_t>(word);  // below zero: launched by another kernel
      if (!grid) return false;
      row.kernel.grid_id = static_cast<std::uint64_t>(*grid);
    } else if (column == "Status") {
      row.resident = word != "Pending" && word != "Terminated" && word != "Invalid";
      cursor.blanks();
      cursor.take("(preempted)");
    } else if (column == "SMs") {
      row.kernel.sms = bits_of(word);
    }
  }
  if (!row.number) return false;
  for (const Kernel& before : earlier_)
    if (before.device == row.device && before.kernel.grid_id == row.kernel.grid_id) {
      row.kernel.frames = before.kernel.frames;
      row.kernel.places = before.kernel.places;
    }
  if (row.kernel.function && row.kernel.function->empty()) row.kernel.function.reset();
  if (add_kernel(std::move(row)) != nullptr && marked) marked_ = kernels_.size() - 1;
  return true;
}

// "*   0        00:06.0 NVIDIA H200   GH100GL-A   sm_90 132       64  ...": the model stands before the chip and
// "sm_90".
bool CudaGdb::take_device(std::string_view line) {
  Cursor cursor(line);
  if (cursor.take("*")) cursor.blanks();
  const auto number = number_of<unsigned>(take_word(cursor));
  if (!number || (devices_.size() == kMaxDevices && !devices_.contains(*number))) return number.has_value();
  Device& device = devices_[*number];
  std::vector<std::string_view> words = words_of(cursor.rest());
  const auto is_pci = [](std::string_view word) { return contains(word, ":") && contains(word, "."); };
  if (!words.empty() && is_pci(words.front())) {
    device.pci = "0000:" + kept(words.front());
    words.erase(words.begin());
  }
  const auto chip = std::find_if(words.begin(), words.end(), [](std::string_view w) { return w.starts_with("sm_"); });
  if (chip == words.end() || chip == words.begin()) return true;
  const auto end = chip - words.begin() > 1 ? chip - 1 : chip;
  device.name.clear();
  for (auto word = words.begin(); word != end; ++word) device.name += (device.name.empty() ? "" : " ") + kept(*word);
  return true;
}

// "* 0x000055ccf7d39b60   0 active"
bool CudaGdb::take_context(std::string_view line) {
  Cursor cursor(line);
  if (cursor.take("*")) cursor.blanks();
  if (!cursor.hex()) return false;
  const auto number = number_of<unsigned>(take_word(cursor));
  if (number && (devices_.size() < kMaxDevices || devices_.contains(*number))) ++devices_[*number].contexts;
  return true;
}

// "Kernel 0", "*  (0,0,0)     (3,0,0)     4 running"; not coalesced: "*  (0,0,0) running   0   0".
bool CudaGdb::take_blocks(std::string_view line) {
  Cursor cursor(line);
  if (cursor.take("Kernel ")) return (blocks_of_ = cursor.number<std::uint64_t>()).has_value();
  if (cursor.take("*")) cursor.blanks();
  if (!take_dim(cursor)) return false;
  cursor.blanks();
  std::uint32_t count = 1;
  if (take_dim(cursor)) count = number_of<std::uint32_t>(take_word(cursor)).value_or(0);
  for (Kernel& kernel : kernels_)
    if (blocks_of_ && kernel.number == blocks_of_)
      kernel.kernel.blocks =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{kernel.kernel.blocks} + count, UINT32_MAX));
  return true;
}

bool CudaGdb::take_focus(std::string_view line) {
  if (line.starts_with("[Switching to Thread ") || line.starts_with("[Switching to thread ")) {
    leave_gpu();
    return false;
  }
  if (!line.starts_with("[Current focus set to CUDA ") && !line.starts_with("[Switching focus to CUDA ")) return false;
  end_stack();
  Focus focus;
  focus.kernel = coordinate<std::uint64_t>(line, "CUDA kernel ");
  focus.grid = coordinate<std::int64_t>(line, ", grid ");
  focus.device = coordinate<unsigned>(line, ", device ");
  focus.lane = coordinate<unsigned>(line, ", lane ");
  focus.block = coordinate<GpuDim>(line, ", block ");
  focus.thread = coordinate<GpuDim>(line, ", thread ");
  focus_ = focus;
  if (focus_may_follow_ && !exceptions_.empty()) exceptions_.back().focus = focus;
  focus_may_follow_ = false;
  return true;
}

void CudaGdb::begin_exception(std::string kind) {
  end_stack();
  focus_may_follow_ = true;
  // "CUDA Exception:" and "received signal CUDA_EXCEPTION_14" say the same, one after the other.
  if (!exceptions_.empty() &&
      (exceptions_.back().exception.kind == kind || exceptions_.back().exception.kind.empty())) {
    exceptions_.back().exception.kind = std::move(kind);
    return;
  }
  if (exceptions_.size() == kMaxExceptions) return;
  Exception& exception = exceptions_.emplace_back();
  exception.exception.kind = std::move(kind);
  exception.focus = focus_;
  if (focus_) exception.device = focus_->device;
}

bool CudaGdb::take_exception(std::string_view line) {
  Cursor cursor(line);
  if (cursor.take("CUDA Exception: ")) return begin_exception(kind_of(trimmed(cursor.rest()))), true;
  constexpr std::string_view kSignal = " signal CUDA_EXCEPTION_";
  if (const std::size_t at = line.find(kSignal); at != std::string_view::npos) {
    Cursor number(line.substr(at + kSignal.size()));
    const auto code = number.number<std::uint32_t>();
    if (code) begin_exception(gpu_exception_kind(*code));
    return code.has_value();
  }
  if (line == "Assertion failed." && focus_) return begin_exception(gpu_exception_kind(12)), true;
  if (cursor.take("The exception was triggered in device ")) {
    if (!exceptions_.empty()) exceptions_.back().device = cursor.number<unsigned>();
    return true;
  }
  if (!cursor.take("The exception was triggered at PC ")) return false;
  const auto address = cursor.hex();
  if (!address) return true;
  // Some kinds are named behind this line only.
  if (exceptions_.empty()) begin_exception("");
  Frame frame;
  frame.kind = FrameKind::kGpu;
  frame.address = *address;
  // "  illegal(int*)  (kernels.cu:49)": cuda-gdb sets these two off by two blanks.
  std::string_view rest = trimmed(cursor.rest());
  if (const std::size_t open = rest.rfind('('); open != std::string_view::npos && rest.ends_with(')')) {
    const std::string_view where = rest.substr(open + 1, rest.size() - open - 2);
    const std::size_t colon = where.find(':');
    const std::string_view line_and_more = colon == std::string_view::npos ? "" : where.substr(colon + 1);
    if (const auto number = number_of<int>(line_and_more.substr(0, line_and_more.find(' ')))) {
      frame.file = kept(where.substr(0, colon));
      frame.line = number;
      rest = trimmed(rest.substr(0, open));
    }
  }
  if (!rest.empty()) frame.function = kept(rest);
  exceptions_.back().exception.frame = frames_.intern(std::move(frame));
  return true;
}

void CudaGdb::leave_gpu() {
  end_stack();
  focus_.reset();
}

void CudaGdb::begin_stack() {
  end_stack();
  focus_may_follow_ = false;
  table_ = Table::kNone;
  in_stack_ = true;
}

// The launch's dimensions; the function's name is left without them.
std::optional<CudaGdb::Launch> CudaGdb::take_launch(Frame& frame) const {
  if (!is_launch(frame)) return std::nullopt;
  const std::size_t at = frame.function->find(kLaunch);
  Cursor cursor(std::string_view(*frame.function).substr(at + 3));
  const auto grid = take_dim(cursor);
  const bool comma = cursor.take(",");
  const auto block = take_dim(cursor);
  frame.function = kept(trimmed(std::string_view(*frame.function).substr(0, at)));
  if (!grid || !comma || !block) return std::nullopt;
  return Launch{*grid, *block};
}

void CudaGdb::add(Frame frame) {
  if (!in_stack_ || stack_.size() >= kMaxFrames) return;
  frame.kind = FrameKind::kGpu;
  const bool is_entry = is_launch(frame);
  const auto launch = take_launch(frame);
  if (is_entry) {
    launch_ = launch;
    launched_ = kernel_name(*frame.function);
  }
  // "inner(int*) [clone spin(int*)]": a kernel's own copy of a function.
  if (frame.function)
    if (const std::size_t clone = frame.function->find(" [clone "); clone != std::string::npos)
      frame.function->resize(clone);
  if (!frame.function && frame.address == 0) return;
  stack_.push_back(frames_.intern(std::move(frame)));
}

bool CudaGdb::place_last(std::string_view place) {
  if (stack_.empty() || frames_[stack_.back()].file) return false;
  Frame frame = frames_[stack_.back()];
  if (!gdb_place(place, frame)) return false;
  stack_.back() = frames_.intern(std::move(frame));
  return true;
}

CudaGdb::Kernel* CudaGdb::add_kernel(Kernel kernel) {
  if (kernels_.size() == kMaxKernels) return nullptr;
  return &kernels_.emplace_back(std::move(kernel));
}

CudaGdb::Kernel* CudaGdb::focused(const std::optional<Focus>& focus) {
  if (!focus) return marked_ ? &kernels_[*marked_] : nullptr;
  for (Kernel& kernel : kernels_) {
    if (focus->grid && kernel.device == focus->device &&
        kernel.kernel.grid_id == static_cast<std::uint64_t>(*focus->grid))
      return &kernel;
    if (focus->kernel && kernel.number == focus->kernel) return &kernel;
  }
  return nullptr;
}

void CudaGdb::end_stack() {
  if (!in_stack_) return;
  in_stack_ = false;
  const std::vector<FrameId> stack = std::exchange(stack_, {});
  const auto launch = std::exchange(launch_, std::nullopt);
  const auto launched = std::exchange(launched_, std::nullopt);
  if (stack.empty()) return;
  Kernel* kernel = focused(focus_);
  if (kernel == nullptr && (focus_ || launched)) {
    Kernel unlisted;
    if (focus_) {
      unlisted.number = focus_->kernel;
      unlisted.device = focus_->device;
      unlisted.kernel.grid_id = static_cast<std::uint64_t>(focus_->grid.value_or(0));
    }
    kernel = add_kernel(std::move(unlisted));
  }
  if (kernel == nullptr) return;
  if (launch) kernel->kernel.grid = launch->grid, kernel->kernel.block = launch->block;
  if (launched && !launched->empty()) kernel->kernel.function = launched;
  // Where the debugger has stopped is shown by one frame, before the whole stack.
  if (stack.size() < kernel->kernel.frames.size()) return;
  kernel->kernel.frames = stack;
  kernel->kernel.places = {{stack.front(), 0}};
}

bool CudaGdb::empty() const {
  return !knows_kernels_ && kernels_.empty() && exceptions_.empty() && !focus_ && devices_.empty() && !in_stack_;
}

void CudaGdb::give_to(RankSnapshot& rank) {
  end_stack();
  std::map<std::optional<unsigned>, GpuExecution> executions;
  for (Exception& exception : exceptions_) {
    GpuException& raised = exception.exception;
    if (raised.kind.empty()) raised.kind = gpu_exception_kind(0);
    if (const auto& focus = exception.focus) {
      if (!exception.device) exception.device = focus->device;
      if (focus->grid) raised.grid_id = static_cast<std::uint64_t>(*focus->grid);
      raised.block = focus->block;
      // Lane 0 may just be the first one of a warp that has raised it as a whole.
      if (focus->lane.value_or(0) != 0) raised.thread = focus->thread;
    }
    if (const Kernel* kernel = focused(exception.focus)) {
      raised.kernel = kernel->kernel.function;
      if (!exception.device) exception.device = kernel->device;
      if (!raised.frame && !kernel->kernel.frames.empty()) raised.frame = kernel->kernel.frames.front();
    }
    executions[exception.device].exceptions.push_back(std::move(raised));
  }
  for (Kernel& kernel : kernels_)
    if (kernel.resident) executions[kernel.device].kernels.push_back(std::move(kernel.kernel));
  // A device with a context, on which nothing runs; without the table of contexts it is not known which device that is.
  // It lists no kernel either if it has not got at the GPUs, but then no device.
  if (knows_kernels_ && !could_not_attach_ && !devices_.empty()) {
    for (const auto& [number, device] : devices_)
      if (device.contexts > 0) executions[number];
    if (executions.empty()) executions[devices_.size() == 1 ? std::optional(devices_.begin()->first) : std::nullopt];
  }
  if (executions.empty())
    rank.problems.push_back({could_not_attach_
                                 ? "cuda-gdb could not look at its GPUs"
                                 : "cuda-gdb lists no kernel, and no device: it may not have got at the GPUs",
                             "let it say `info cuda devices`, too, or use rankstacks attach --gpu", ProblemCode::kGpu});
  for (auto& [number, execution] : executions) {
    // Kernels that were launched earlier come first.
    std::stable_sort(execution.kernels.begin(), execution.kernels.end(),
                     [](const GpuKernel& a, const GpuKernel& b) { return a.grid_id < b.grid_id; });
    GpuSnapshot& gpu = rank.gpus.emplace_back();
    if (number)
      if (const auto device = devices_.find(*number); device != devices_.end()) {
        gpu.pci = device->second.pci;
        gpu.name = device->second.name;
        execution.contexts = device->second.contexts;
      }
    execution.source = is_core_ ? GpuSource::kCore : GpuSource::kDebugger;
    gpu.execution = std::move(execution);
  }
}

}  // namespace rankstacks::dumps
