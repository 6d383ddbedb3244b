#include "known/settings.h"

#include <algorithm>

#include <cctype>

namespace rankstacks::known {
namespace {

constexpr std::string_view kFamilies[] = {"NCCL_", "TORCH_", "CUDA_", "OMP_", "GLOO_", "UCX_", "FI_", "PYTHON"};
// torch's settings of NCCL begin with TORCH_NCCL_, in 2.1 and before with NCCL_; those of gloo with TORCH_GLOO_.
constexpr std::string_view kOfCommunication[] = {"NCCL_", "TORCH_NCCL_", "TORCH_GLOO_", "GLOO_", "UCX_", "FI_"};

// clang-format off
constexpr OwnValueRule kOwnValues[] = {
    {"CUDA_VISIBLE_DEVICES", "a launcher that hides the GPUs of other ranks sets it for each local rank"},
    {"CUDA_MPS_PIPE_DIRECTORY", "a directory for each MPS server"},
    {"CUDA_MPS_LOG_DIRECTORY", "a directory for each MPS server"},
    {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "the share of each client of an MPS server"},
    {"CUDA_CACHE_PATH", "a directory of the host or of the rank, so that ranks do not wait for each other's lock"},
    {"CUDA_COREDUMP_FILE", "a file for each process"},
    {"CUDA_COREDUMP_PIPE", "a pipe for each process"},
    {"NCCL_DEBUG_FILE", "a file for each rank"},
    {"NCCL_TOPO_DUMP_FILE", "often set on one rank alone: only this one writes it"},
    {"NCCL_GRAPH_DUMP_FILE", "often set on one rank alone: only this one writes it"},
    {"NCCL_HOSTID", "the name of the host, where several containers share one"},
    {"NCCL_PROFILER_PLUGIN", "a profiler is often loaded on one rank alone"},
    {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "the beginning of a file's name, for each rank"},
    {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "a pipe for each rank"},
    {"TORCH_FR_DUMP_TEMP_FILE", "the beginning of a file's name, for each rank"},
    {"TORCH_EXTENSIONS_DIR", "a directory of the host or of the rank"},
    {"TORCH_LOGS_OUT", "a file for each rank"},
    {"TORCH_TRACE", "a directory for each rank"},
    {"OMP_PLACES", "the processors of each local rank"},
    {"UCX_NET_DEVICES", "the network adapter next to each local rank's GPU"},
    {"UCX_LOG_FILE", "a file for each rank"},
    {"FI_LOG_PREFIX", "a prefix for each rank"},
    {"PYTHON_EGG_CACHE", "a directory of the rank"},
    {"PYTHONPYCACHEPREFIX", "a directory of the host or of the rank"},
};
// clang-format on

struct SettingWords {
  std::string_view words;  // separated by blanks
  std::string_view source;
};
// clang-format off
constexpr SettingWords kSettingWords[] = {
    {"VERSION WARN INFO ABORT TRACE", "NCCL_DEBUG"},
    {"INIT COLL P2P SHM NET GRAPH TUNING ENV ALLOC CALL PROXY NVLS BOOTSTRAP REG PROFILE RAS ALL", "NCCL_DEBUG_SUBSYS"},
    {"Ring Tree CollnetDirect CollnetChain NVLS NVLSTree PAT", "NCCL_ALGO"},
    {"LL LL128 Simple", "NCCL_PROTO"},
    {"LOC NVL PIX PXB PHB SYS", "NCCL_P2P_LEVEL, NCCL_NET_GDR_LEVEL"},
    {"IB Socket OFI AWS", "NCCL_NET"},
    {"OFF DETAIL DEBUG ERROR WARNING", "TORCH_DISTRIBUTED_DEBUG, TORCH_CPP_LOG_LEVEL"},
    {"TRUE FALSE PASSIVE ACTIVE close spread master cores threads sockets static dynamic guided", "OMP_PROC_BIND, OMP_PLACES, OMP_WAIT_POLICY, OMP_SCHEDULE"},
    {"PCI_BUS_ID FASTEST_FIRST LAZY EAGER", "CUDA_DEVICE_ORDER, CUDA_MODULE_LOADING"},
    {"efa tcp verbs shm psm2 psm3 cxi opx udp", "FI_PROVIDER"},
    {"all rc ud dc rc_x dc_x ud_x self sm cuda_copy cuda_ipc gdr_copy info warn debug trace", "UCX_TLS, UCX_LOG_LEVEL"},
    {"utf-8 utf8 UTF-8 random malloc default strict ignore replace", "PYTHONIOENCODING, PYTHONHASHSEED, PYTHONMALLOC, PYTHONWARNINGS"},
};
// clang-format on
// systemd's predictable names, and those of the drivers of network adapters.
constexpr std::string_view kInterfaces[] = {"eth", "ens", "eno", "enp", "ib", "bond", "hsn", "mlx5_", "docker", "lo"};

template <std::size_t N>
bool begins_with_one_of(std::string_view name, const std::string_view (&prefixes)[N]) {
  return std::any_of(std::begin(prefixes), std::end(prefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

bool is_setting(std::string_view name) {
  return begins_with_one_of(name, kFamilies) && std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return c < 0x80 && (std::isalnum(c) != 0 || c == '_');
         });
}

std::span<const OwnValueRule> own_value_rules() { return kOwnValues; }

const OwnValueRule* own_value_rule(std::string_view name) {
  const auto* found = std::find_if(std::begin(kOwnValues), std::end(kOwnValues),
                                   [&](const OwnValueRule& rule) { return rule.name == name; });
  return found == std::end(kOwnValues) ? nullptr : found;
}

bool is_communication_setting(std::string_view name) { return begins_with_one_of(name, kOfCommunication); }

bool is_setting_word(std::string_view value) {
  for (const SettingWords& of_library : kSettingWords)
    for (std::string_view rest = of_library.words; !rest.empty();) {
      const std::string_view word = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), word.size() + 1));
      if (word == value) return true;
    }
  return std::any_of(std::begin(kInterfaces), std::end(kInterfaces), [&](std::string_view prefix) {
    return value.starts_with(prefix) && std::all_of(value.begin() + static_cast<std::ptrdiff_t>(prefix.size()),
                                                    value.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  });
}

}  // namespace rankstacks::known
