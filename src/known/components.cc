#include "known/components.h"

#include <algorithm>
#include <utility>

namespace rankstacks::known {
namespace {

using W = VersionText;

// clang-format off
constexpr ComponentRule kRules[] = {
    {.component = kPython, .file = "libpython3", .source = "cpython, --enable-shared"},
    {.component = kPython, .file = "python3", .source = "cpython"},
    {.component = kTorch, .file = "libtorch_cpu.so", .package = "torch", .named_by_release = true, .source = "torch; Debian's libtorch_cpu.so.1.13.0"},
    {.component = kTorch, .file = "libtorch_cuda.so", .package = "torch", .named_by_release = true, .source = "torch"},
    {.component = kTorch, .file = "libtorch_hip.so", .package = "torch", .named_by_release = true, .source = "torch"},
    {.component = kTorch, .file = "libtorch_python.so", .package = "torch", .named_by_release = true, .source = "torch"},
    {.component = kNccl, .file = "libnccl.so", .package = "nvidia_nccl_cu", .named_by_release = true, .where = W::kAfter, .text = "NCCL version ", .source = "nccl src/init.cc: VERSION_STRING"},
    {.component = "RCCL", .file = "librccl.so", .where = W::kAfter, .text = "RCCL version ", .source = "rccl src/init.cc"},
    {.component = kCudaRuntime, .file = "libcudart.so", .package = "nvidia_cuda_runtime", .named_by_release = true, .names_major = true, .source = "cuda; the copies in wheels have the major version alone"},
    {.component = kCudaRuntime, .file = "libcudart-", .named_by_release = true, .source = "torch -1.13, a copy: libcudart-a7b20f20.so.11.0"},
    {.component = kCudaDriver, .file = "libcuda.so", .named_by_release = true, .source = "nvidia driver: libcuda.so.580.95.05"},
    {.component = "NVML", .file = "libnvidia-ml.so", .named_by_release = true, .source = "nvidia driver"},
    {.component = "cuDNN", .file = "libcudnn.so", .package = "nvidia_cudnn_cu", .named_by_release = true, .names_major = true, .source = "cudnn: libcudnn.so.9.1.0"},
    {.component = "cuBLAS", .file = "libcublas.so", .package = "nvidia_cublas", .named_by_release = true, .names_major = true, .source = "cuda: libcublas.so.12.6.4.1"},
    {.component = "NVSHMEM", .file = "libnvshmem_host.so", .package = "nvidia_nvshmem_cu", .named_by_release = true, .names_major = true, .source = "nvshmem"},
    {.component = "gloo", .file = "libgloo.so", .source = "gloo, where torch does not contain it"},
    {.component = "MPI", .file = "libmpi.so", .where = W::kAlone, .text = "v", .prefix = "Open MPI ", .source = "openmpi ompi/mpi/c/get_library_version.c"},
    {.component = "MPI", .file = "libmpi.so", .where = W::kSymbol, .text = "MPII_Version_string", .prefix = "MPICH ", .source = "mpich src/mpi/init/init_util.c; libraries of its ABI"},
    {.component = "MPI", .file = "libmpich.so", .where = W::kSymbol, .text = "MPII_Version_string", .prefix = "MPICH ", .source = "mpich"},
    {.component = "UCX", .file = "libucp.so", .source = "ucx"},
    {.component = "UCX", .file = "libucs.so", .source = "ucx"},
    {.component = "libfabric", .file = "libfabric.so", .where = W::kAlone, .source = "libfabric src/fabric.c: PACKAGE_VERSION"},
    {.component = "NCCL network plugin", .file = "libnccl-net", .where = W::kAfter, .text = "aws-ofi-nccl ", .prefix = "aws-ofi-nccl ", .source = "aws-ofi-nccl src/nccl_ofi_net.c: PACKAGE_STRING; plugins of others have no version"},
    {.component = "NCCL network plugin", .file = "libnccl-ofi", .where = W::kAfter, .text = "aws-ofi-nccl ", .prefix = "aws-ofi-nccl ", .source = "aws-ofi-nccl"},
    {.component = "NCCL tuner plugin", .file = "libnccl-tuner", .source = "nccl plugins/tuner"},
    {.component = "RDMA verbs", .file = "libibverbs.so", .named_by_release = true, .source = "rdma-core: libibverbs.so.1.14.44.0"},
    {.component = "glibc", .file = "libc.so.6", .where = W::kGlibc, .text = "GNU C Library (", .source = "glibc csu/version.c: banner"},
    {.component = "glibc", .file = "libc-2.", .where = W::kGlibc, .text = "GNU C Library (", .source = "glibc -2.33"},
    {.component = "libstdc++", .file = "libstdc++.so", .named_by_release = true, .source = "gcc: libstdc++.so.6.0.30"},
    {.component = "OpenMP runtime", .file = "libgomp", .source = "gcc; the copies in wheels: libgomp-a34b3233.so.1"},
    {.component = "OpenMP runtime", .file = "libiomp5.so", .source = "intel"},
    {.component = "OpenMP runtime", .file = "libomp", .source = "llvm"},
    {.component = "triton", .file = "libtriton.so", .package = "triton", .source = "triton"},
    {.component = "flash-attn", .file = "flash_attn_2_cuda", .package = "flash_attn", .source = "flash-attention"},
    {.component = "transformer-engine", .file = "libtransformer_engine.so", .package = "transformer_engine", .source = "TransformerEngine"},
    {.component = "jaxlib", .file = "libjax_common.so", .package = "jaxlib", .source = "jax 0.5-"},
    {.component = "jaxlib", .file = "xla_extension.so", .package = "jaxlib", .source = "jax -0.4"},
    {.component = "tensorflow", .file = "libtensorflow_framework.so", .package = "tensorflow", .source = "tensorflow"},
};
// clang-format on

// The toolkits' release notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor Version Compatibility",
// and https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, table 1 (11.x: >= 450, with a
// footnote for 450.80.02; 12.x: >= 525; 13.x: >= 580). CUDA 10.x and earlier need a driver for each minor version, and
// are not in this table.
struct LeastDriver {
  int cuda;
  std::string_view driver;
};
constexpr LeastDriver kLeastDrivers[] = {{11, "450.80.02"}, {12, "525.60.13"}, {13, "580"}};

constexpr std::string_view kForCommunication[] = {
    kTorch, kNccl, "RCCL",      kCudaRuntime,          kCudaDriver,         "NVSHMEM",    "gloo",
    "MPI",  "UCX", "libfabric", "NCCL network plugin", "NCCL tuner plugin", "RDMA verbs", "jaxlib"};

}  // namespace

std::span<const ComponentRule> component_rules() { return kRules; }

const ComponentRule* component_of(std::string_view base_name) {
  for (const ComponentRule& rule : kRules)
    if (base_name.starts_with(rule.file)) return &rule;
  return nullptr;
}

std::span<const ComponentRule> rules_of_file(const ComponentRule& first) {
  const auto* end =
      std::find_if(&first, std::end(kRules), [&](const ComponentRule& r) { return r.file != first.file; });
  return {&first, static_cast<std::size_t>(end - &first)};
}

bool may_be_same_version(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  return b.starts_with(a) && (a.size() == b.size() || b[a.size()] == '.' || b[a.size()] == '+' || b[a.size()] == '-');
}

bool is_for_communication(std::string_view component) {
  return std::find(std::begin(kForCommunication), std::end(kForCommunication), component) !=
         std::end(kForCommunication);
}

std::optional<std::string_view> least_driver_of(int cuda_major) {
  for (const LeastDriver& one : kLeastDrivers)
    if (one.cuda == cuda_major) return one.driver;
  return std::nullopt;
}

}  // namespace rankstacks::known
