#include "report/json_gpu.h"

namespace rankstacks::report {
namespace {

constexpr std::size_t kMaxGpus = 1 << 10;     // of one process; machines have 16
constexpr std::size_t kMaxKernels = 1 << 12;  // of one device; hardware runs 128 grids at once
constexpr std::size_t kMaxEntries = 1 << 16;  // places, exceptions, processes, links
constexpr std::size_t kMaxFrames = 1 << 17;   // the same limit as for a thread

using FrameText = std::function<const std::string&(FrameId)>;
using ReadFrame = std::function<FrameId(const Node&)>;

// Writes members that are left out if they are not known.
class Known {
 public:
  explicit Known(JsonText& json) : json_(json) {}
  void operator()(std::string_view name, const std::string& value) {
    if (!value.empty()) json_.field(name, value);
  }
  template <class T>
  void operator()(std::string_view name, const std::optional<T>& value) {
    if (value) json_.field(name, value);
  }
  void operator()(std::string_view name, bool value) {
    if (value) json_.key(name), json_.boolean(true);
  }
  void operator()(std::string_view name, const std::vector<std::string>& values) {
    list(name, values, [&](const std::string& value) { json_.string(value); });
  }
  template <std::integral T>
  void operator()(std::string_view name, const std::vector<T>& values) {
    list(name, values, [&](T value) { json_.number(value); });
  }

 private:
  template <class T, class F>
  void list(std::string_view name, const std::vector<T>& values, F&& write) {
    if (values.empty()) return;
    json_.key(name);
    json_.open('[');
    for (const T& value : values) write(value);
    json_.close();
  }

  JsonText& json_;
};

void write_dim(JsonText& json, std::string_view name, const GpuDim& dim) {
  json.key(name);
  json.open('{');
  json.key("x"), json.number(dim.x);
  json.key("y"), json.number(dim.y);
  json.key("z"), json.number(dim.z);
  json.close();
}

void write_health(JsonText& json, const GpuHealth& health) {
  Known known(json);
  json.key("health");
  json.open('{');
  known("utilization_mean", health.utilization_mean);
  known("utilization_variance", health.utilization_variance);
  known("memory_utilization_mean", health.memory_utilization_mean);
  known("memory_used", health.memory_used);
  known("memory_total", health.memory_total);
  known("process_memory", health.process_memory);
  known("sm_clock", health.sm_clock);
  known("sm_clock_max", health.sm_clock_max);
  known("memory_clock", health.memory_clock);
  known("memory_clock_max", health.memory_clock_max);
  known("throttle", health.throttle);
  known("power_w", health.power_w);
  known("power_mean_w", health.power_mean_w);
  known("power_limit_w", health.power_limit_w);
  known("temperature_c", health.temperature_c);
  known("ecc_corrected", health.ecc_corrected);
  known("ecc_uncorrected", health.ecc_uncorrected);
  known("remapped_rows", health.remapped_rows);
  known("remap_pending", health.remap_pending);
  known("remap_failed", health.remap_failed);
  known("nvlinks", health.nvlinks);
  known("nvlinks_up", health.nvlinks_up);
  known("nvlinks_down", health.nvlinks_down);
  known("nvlink_errors", health.nvlink_errors);
  known("pcie_width", health.pcie_width);
  known("pcie_width_max", health.pcie_width_max);
  known("pcie_generation", health.pcie_generation);
  known("pcie_generation_max", health.pcie_generation_max);
  known("xids", health.xids);
  known("other_processes", health.other_processes);
  known("driver", health.driver);
  json.close();
}

void write_kernel(JsonText& json, const GpuKernel& kernel, const FrameText& frame_text) {
  json.open('{', true);
  json.key("grid_id"), json.number(kernel.grid_id);
  json.field("function", kernel.function);
  if (kernel.entry) json.key("entry"), json.hex(*kernel.entry);
  write_dim(json, "grid", kernel.grid);
  write_dim(json, "block", kernel.block);
  json.key("blocks"), json.number(kernel.blocks);
  json.key("sms"), json.number(kernel.sms);
  json.key("warps"), json.number(kernel.warps);
  json.key("lanes"), json.number(kernel.lanes);
  json.key("places");
  json.open('[', true);
  for (const GpuPlace& place : kernel.places) {
    json.open('{');
    json.key("warps"), json.number(place.warps);
    json.key("frame"), json.raw(frame_text(place.frame));
    json.close();
  }
  json.close();
  if (kernel.more_places > 0) json.key("more_places"), json.number(kernel.more_places);
  json.key("frames");
  json.open('[', true);
  for (const FrameId id : kernel.frames) json.raw(frame_text(id));
  json.close();
  json.close();
}

void write_exception(JsonText& json, const GpuException& exception, const FrameText& frame_text) {
  json.open('{');
  json.field("kind", exception.kind);
  if (exception.kernel) json.field("kernel", *exception.kernel);
  if (exception.grid_id) json.key("grid_id"), json.number(*exception.grid_id);
  if (exception.block) write_dim(json, "block", *exception.block);
  if (exception.thread) write_dim(json, "thread", *exception.thread);
  json.key("warps"), json.number(exception.warps);
  if (exception.frame) json.key("frame"), json.raw(frame_text(*exception.frame));
  json.close();
}

void write_execution(JsonText& json, const GpuExecution& execution, const FrameText& frame_text) {
  json.key("execution");
  json.open('{', true);
  json.field("source", std::string(word_of(kGpuSourceWords, execution.source)));
  if (execution.path) json.field("path", *execution.path);
  if (execution.held_ms) json.field("held_ms", execution.held_ms);
  json.key("contexts"), json.number(execution.contexts);
  if (execution.moved) json.field("moved", execution.moved);
  json.key("kernels");
  json.open('[', true);
  for (const GpuKernel& kernel : execution.kernels) write_kernel(json, kernel, frame_text);
  json.close();
  json.key("exceptions");
  json.open('[', true);
  for (const GpuException& exception : execution.exceptions) write_exception(json, exception, frame_text);
  json.close();
  json.close();
}

void read(const Node& node, std::string& value) { value = node.text(); }
void read(const Node& node, double& value) { value = node.real(); }
void read(const Node& node, bool& value) { value = node.boolean(); }
void read(const Node& node, unsigned& value) { value = node.uint32(); }
void read(const Node& node, std::uint64_t& value) { value = node.unsigned64(); }
void read(const Node& node, Pid& value) { value = node.int32(0); }
template <class T>
void read(const Node& node, std::vector<T>& values) {
  node.each(kMaxEntries, [&](const Node& n) { read(n, values.emplace_back()); });
}
template <class T>
void read(const Node& node, std::optional<T>& value) {
  read(node, value.emplace());
}

GpuDim read_dim(const Node& node) {
  node.require_object();
  GpuDim dim;
  node.required("x", [&](const Node& n) { dim.x = n.uint32(); });
  node.required("y", [&](const Node& n) { dim.y = n.uint32(); });
  node.required("z", [&](const Node& n) { dim.z = n.uint32(); });
  return dim;
}

GpuHealth read_health(const Node& node) {
  node.require_object();
  GpuHealth health;
  const auto member = [&](JsonKey name, auto& value) { node.optional(name, [&](const Node& n) { read(n, value); }); };
  member("utilization_mean", health.utilization_mean);
  member("utilization_variance", health.utilization_variance);
  member("memory_utilization_mean", health.memory_utilization_mean);
  member("memory_used", health.memory_used);
  member("memory_total", health.memory_total);
  member("process_memory", health.process_memory);
  member("sm_clock", health.sm_clock);
  member("sm_clock_max", health.sm_clock_max);
  member("memory_clock", health.memory_clock);
  member("memory_clock_max", health.memory_clock_max);
  member("throttle", health.throttle);
  member("power_w", health.power_w);
  member("power_mean_w", health.power_mean_w);
  member("power_limit_w", health.power_limit_w);
  member("temperature_c", health.temperature_c);
  member("ecc_corrected", health.ecc_corrected);
  member("ecc_uncorrected", health.ecc_uncorrected);
  member("remapped_rows", health.remapped_rows);
  member("remap_pending", health.remap_pending);
  member("remap_failed", health.remap_failed);
  member("nvlinks", health.nvlinks);
  member("nvlinks_up", health.nvlinks_up);
  member("nvlinks_down", health.nvlinks_down);
  member("nvlink_errors", health.nvlink_errors);
  member("pcie_width", health.pcie_width);
  member("pcie_width_max", health.pcie_width_max);
  member("pcie_generation", health.pcie_generation);
  member("pcie_generation_max", health.pcie_generation_max);
  member("xids", health.xids);
  member("other_processes", health.other_processes);
  member("driver", health.driver);
  return health;
}

GpuKernel read_kernel(const Node& node, const ReadFrame& read_frame) {
  node.require_object();
  GpuKernel kernel;
  node.optional("grid_id", [&](const Node& n) { kernel.grid_id = n.unsigned64(); });
  node.optional("function", [&](const Node& n) { kernel.function = n.text(); });
  node.optional("entry", [&](const Node& n) { kernel.entry = n.hex(); });
  node.optional("grid", [&](const Node& n) { kernel.grid = read_dim(n); });
  node.optional("block", [&](const Node& n) { kernel.block = read_dim(n); });
  node.optional("blocks", [&](const Node& n) { kernel.blocks = n.uint32(); });
  node.optional("sms", [&](const Node& n) { kernel.sms = n.uint32(); });
  node.optional("warps", [&](const Node& n) { kernel.warps = n.uint32(); });
  node.optional("lanes", [&](const Node& n) { kernel.lanes = n.uint32(); });
  node.optional("places", [&](const Node& list) {
    list.each(kMaxEntries, [&](const Node& n) {
      n.require_object();
      GpuPlace place;
      n.required("frame", [&](const Node& v) { place.frame = read_frame(v); });
      n.optional("warps", [&](const Node& v) { place.warps = v.uint32(); });
      kernel.places.push_back(place);
    });
  });
  node.optional("more_places", [&](const Node& n) { kernel.more_places = n.uint32(); });
  node.optional("frames", [&](const Node& list) {
    list.each(kMaxFrames, [&](const Node& n) { kernel.frames.push_back(read_frame(n)); });
  });
  return kernel;
}

GpuException read_exception(const Node& node, const ReadFrame& read_frame) {
  node.require_object();
  GpuException exception;
  node.required("kind", [&](const Node& n) { exception.kind = n.text(); });
  node.optional("kernel", [&](const Node& n) { exception.kernel = n.text(); });
  node.optional("grid_id", [&](const Node& n) { exception.grid_id = n.unsigned64(); });
  node.optional("block", [&](const Node& n) { exception.block = read_dim(n); });
  node.optional("thread", [&](const Node& n) { exception.thread = read_dim(n); });
  node.optional("warps", [&](const Node& n) { exception.warps = n.uint32(); });
  node.optional("frame", [&](const Node& n) { exception.frame = read_frame(n); });
  return exception;
}

GpuExecution read_execution(const Node& node, const ReadFrame& read_frame) {
  node.require_object();
  GpuExecution execution;
  node.required("source", [&](const Node& n) { execution.source = n.word(kGpuSourceWords); });
  node.optional("path", [&](const Node& n) { execution.path = n.text(); });
  node.optional("held_ms", [&](const Node& n) { execution.held_ms = n.real(); });
  node.optional("contexts", [&](const Node& n) { execution.contexts = n.uint32(); });
  node.optional("moved", [&](const Node& n) { execution.moved = n.boolean(); });
  node.required("kernels", [&](const Node& list) {
    list.each(kMaxKernels, [&](const Node& n) { execution.kernels.push_back(read_kernel(n, read_frame)); });
  });
  node.optional("exceptions", [&](const Node& list) {
    list.each(kMaxEntries, [&](const Node& n) { execution.exceptions.push_back(read_exception(n, read_frame)); });
  });
  return execution;
}

}  // namespace

void write_gpus(JsonText& json, const std::vector<GpuSnapshot>& gpus, const FrameText& frame_text) {
  json.key("gpus");
  json.open('[', true);
  for (const GpuSnapshot& gpu : gpus) {
    Known known(json);
    json.open('{', true);
    known("pci", gpu.pci);
    known("index", gpu.index);
    known("uuid", gpu.uuid);
    known("name", gpu.name);
    if (gpu.health) write_health(json, *gpu.health);
    if (gpu.execution) write_execution(json, *gpu.execution, frame_text);
    json.close();
  }
  json.close();
}

void write_gpu_clusters(JsonText& json, const std::vector<analyzers::GpuCluster>& clusters,
                        const std::function<void(std::size_t)>& label) {
  constexpr WordTable<analyzers::GpuActivity, 5> kWords = {{{analyzers::GpuActivity::kUnknown, "unknown"},
                                                            {analyzers::GpuActivity::kIdle, "idle"},
                                                            {analyzers::GpuActivity::kCollective, "collective"},
                                                            {analyzers::GpuActivity::kKernel, "kernel"},
                                                            {analyzers::GpuActivity::kException, "exception"}}};
  json.key("gpu_clusters");
  json.open('[', true);
  for (const analyzers::GpuCluster& cluster : clusters) {
    json.open('{');
    json.field("state", std::string(word_of(kWords, cluster.state.activity)));
    std::vector<std::string> named;
    for (const known::Collective collective : cluster.state.collectives)
      if (collective != known::Collective::kUnknown) named.emplace_back(known::to_string(collective));
    Known known(json);
    known("collectives", named);
    if (cluster.state.kernel && cluster.state.activity != analyzers::GpuActivity::kException)
      known("kernel", cluster.state.kernel->function);
    if (cluster.state.exception) known("exception", cluster.state.exception->kind);
    json.key("ranks");
    json.open('[');
    for (const std::size_t rank : cluster.ranks) label(rank);
    json.close();
    json.close();
  }
  json.close();
}

std::vector<GpuSnapshot> read_gpus(const Node& list, const ReadFrame& read_frame) {
  std::vector<GpuSnapshot> gpus;
  list.each(kMaxGpus, [&](const Node& node) {
    node.require_object();
    GpuSnapshot& gpu = gpus.emplace_back();
    const auto member = [&](JsonKey name, auto& value) { node.optional(name, [&](const Node& n) { read(n, value); }); };
    member("pci", gpu.pci);
    member("index", gpu.index);
    member("uuid", gpu.uuid);
    member("name", gpu.name);
    node.optional("health", [&](const Node& n) { gpu.health = read_health(n); });
    node.optional("execution", [&](const Node& n) { gpu.execution = read_execution(n, read_frame); });
  });
  return gpus;
}

}  // namespace rankstacks::report
