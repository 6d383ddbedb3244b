#include "capture/parallel_layout.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <vector>

#include "known/group_axes.h"

namespace rankstacks::capture {
namespace {

constexpr int kMaxRanks = 10'000'000;  // as in rank_identity
constexpr std::size_t kMaxWords = 1 << 16;

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The options of a command line by their names, in one spelling: "--tensor-model-parallel-size 2",
// "--parallelism.tensor_parallel_degree=2" and "++model.tensor_model_parallel_size=2" -> "tensor_model_parallel_size",
// "parallelism.tensor_parallel_degree", ...
class Options {
 public:
  explicit Options(std::span<const std::string> command) {
    for (std::size_t i = 0; i < std::min(command.size(), kMaxWords); ++i) {
      const std::string_view word = command[i];
      const std::size_t equals = word.find('=');
      // A setting without -- is one of hydra's, with =
      if (!word.starts_with("--") && (equals == std::string_view::npos || word.starts_with('-'))) continue;
      std::string name(word.substr(0, equals));
      name.erase(0, name.find_first_not_of("-+"));
      std::replace(name.begin(), name.end(), '-', '_');
      std::string value;
      if (equals != std::string_view::npos) value = word.substr(equals + 1);
      else if (i + 1 < command.size()) value = command[i + 1];
      if (!name.empty()) values_[std::move(name)] = std::move(value);  // the last one counts
    }
  }

  bool has(const std::string& name) const { return values_.contains(name); }
  // The option itself.
  const std::string* plain(const std::string& name) const {
    const auto it = values_.find(name);
    return it == values_.end() ? nullptr : &it->second;
  }
  // The option, or a nested setting of that name: "model.tensor_model_parallel_size".
  const std::string* nested(std::string_view name) const {
    for (const auto& [full, value] : values_)
      if (full.size() > name.size() && full.ends_with(name) && full[full.size() - name.size() - 1] == '.')
        return &value;
    return nullptr;
  }

 private:
  std::map<std::string, std::string> values_;
};

struct Axis {
  std::string name;
  std::optional<int> size;  // std::nullopt: not given
  bool rest = false;        // whether its size is what the other axes leave
};

// Places a rank on the axes, the slowest first. Axes whose place is not known are left out; std::nullopt if the sizes
// do not fit.
std::optional<std::vector<std::pair<std::string, int>>> place(std::vector<Axis> axes, int rank, int world) {
  std::int64_t given = 1;
  std::size_t unknown = 0;
  for (const Axis& axis : axes) {
    if (axis.size && (*axis.size < 1 || *axis.size > world)) return std::nullopt;
    given *= axis.size.value_or(1);
    unknown += !axis.size;
    if (given > world || world % given != 0) return std::nullopt;
  }
  if (unknown == 0 && given != world) return std::nullopt;
  if (unknown == 1)
    for (Axis& axis : axes)
      if (!axis.size && axis.rest) axis.size = static_cast<int>(world / given), unknown = 0;

  std::vector<std::optional<int>> coordinates(axes.size());
  int block = world;  // number of ranks that have the same place on all axes so far
  for (std::size_t i = 0; i < axes.size() && axes[i].size; ++i) {
    coordinates[i] = rank % block / (block / *axes[i].size);
    block /= *axes[i].size;
  }
  int step = 1;
  for (std::size_t i = axes.size(); i-- > 0 && axes[i].size;) {
    coordinates[i] = rank / step % *axes[i].size;
    step *= *axes[i].size;
  }
  std::vector<std::pair<std::string, int>> placed;
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (coordinates[i]) placed.emplace_back(axes[i].name, *coordinates[i]);
  if (placed.empty()) return std::nullopt;
  return placed;
}

// Reads sizes. A malformed size means that the command line is not understood.
struct Sizes {
  bool broken = false, any = false;
  std::optional<int> read(const std::string* text, std::optional<int> otherwise) {
    if (text == nullptr) return otherwise;
    const auto value = number(*text);
    if (!value || *value < 1) broken = true;
    any = true;
    return value;
  }
};

void drop_axis_of_one(std::vector<std::pair<std::string, int>>& axes, std::string_view name, std::optional<int> size) {
  if (size == 1) std::erase_if(axes, [&](const auto& axis) { return axis.first == name; });
}

// tp, pp, cp and ep as in Megatron's options. `partial`: more sizes may be given elsewhere.
std::optional<Coordinates> megatron(const std::string* tp_text, const std::string* pp_text, const std::string* cp_text,
                                    const std::string* ep_text, const std::string* etp_text, bool pp_before_dp,
                                    bool partial, int rank, int world, std::string from) {
  const std::optional<int> otherwise = partial ? std::nullopt : std::optional(1);
  Sizes sizes;
  const auto tp = sizes.read(tp_text, otherwise), pp = sizes.read(pp_text, otherwise),
             cp = sizes.read(cp_text, otherwise);
  const auto ep = sizes.read(ep_text, otherwise), etp = sizes.read(etp_text, tp);
  if (sizes.broken || !sizes.any) return std::nullopt;
  std::vector<Axis> axes = {{"pp", pp}, {"dp", std::nullopt, true}, {"cp", cp}, {"tp", tp}};
  if (pp_before_dp) std::swap(axes[0], axes[1]);
  auto placed = place(axes, rank, world);
  if (!placed) return std::nullopt;
  drop_axis_of_one(*placed, "cp", cp);
  // Expert parallel ranks are adjacent: within a stage, across the ranks that form dp and cp for other layers.
  if (ep && *ep > 1 && etp && pp) {
    const std::int64_t stage = world / *pp, experts = std::int64_t{*ep} * *etp;
    if (stage % experts != 0) return std::nullopt;
    // Megatron itself refuses that.
    if (pp_before_dp && experts != std::int64_t{tp.value_or(1)} * cp.value_or(1)) return std::nullopt;
    placed->emplace_back("ep", rank / *etp % *ep);
  }
  Coordinates coordinates{std::move(from), std::move(*placed)};
  sort_axes(coordinates);
  return coordinates;
}

std::optional<Coordinates> of_megatron(const Options& options, int rank, int world) {
  const bool checkpoint = options.has("use_checkpoint_args") || options.has("use_mp_args_from_checkpoint_args");
  const std::string* encoders[] = {options.plain("encoder_tensor_model_parallel_size"),
                                   options.plain("encoder_pipeline_model_parallel_size"),
                                   options.plain("ds_sequence_parallel_size")};
  if (checkpoint || std::any_of(std::begin(encoders), std::end(encoders), [](const std::string* text) {
        return text != nullptr && *text != "0" && *text != "1";
      }))
    return std::nullopt;
  const bool tp_pp_dp = options.has("use_tp_pp_dp_mapping");
  const auto all = [&](auto option, bool partial, const char* from) {
    return megatron(option("tensor_model_parallel_size"), option("pipeline_model_parallel_size"),
                    option("context_parallel_size"), option("expert_model_parallel_size"),
                    option("expert_tensor_parallel_size"), tp_pp_dp, partial, rank, world, from);
  };
  if (options.plain("tensor_model_parallel_size") || options.plain("pipeline_model_parallel_size"))
    return all([&](const char* name) { return options.plain(name); }, options.has("yaml_cfg"),
               "Megatron, from the command line");
  if (options.nested("tensor_model_parallel_size") || options.nested("pipeline_model_parallel_size"))
    return all([&](const char* name) { return options.nested(name); }, true, "NeMo, from the command line");
  return std::nullopt;
}

std::optional<Coordinates> of_torchtitan(const Options& options, int rank, int world) {
  bool any = false;
  const auto option = [&](const std::string& name) {
    const std::string* text = options.plain("parallelism." + name);
    if (text == nullptr) text = options.plain("training." + name);  // before 2025
    if (text == nullptr) text = options.plain("experimental." + name);
    any |= text != nullptr;
    return text;
  };
  const std::string *pp_text = option("pipeline_parallel_degree"),
                    *replicate_text = option("data_parallel_replicate_degree"),
                    *shard_text = option("data_parallel_shard_degree"), *cp_text = option("context_parallel_degree"),
                    *tp_text = option("tensor_parallel_degree");
  if (!any) return std::nullopt;
  const bool file =
      options.has("job.config_file") || options.has("config_file") || options.has("module") || options.has("config");
  const std::optional<int> otherwise = file ? std::nullopt : std::optional(1);
  Sizes sizes;
  const auto pp = sizes.read(pp_text, otherwise), replicate = sizes.read(replicate_text, otherwise),
             cp = sizes.read(cp_text, otherwise), tp = sizes.read(tp_text, otherwise);
  std::optional<int> shard;
  bool shard_is_rest = shard_text == nullptr ? !file : *shard_text == "-1";
  if (shard_text != nullptr && !shard_is_rest) shard = sizes.read(shard_text, std::nullopt);
  if (sizes.broken) return std::nullopt;
  auto placed =
      place({{"pp", pp}, {"dp_replicate", replicate}, {"dp_shard", shard, shard_is_rest}, {"cp", cp}, {"tp", tp}}, rank,
            world);
  if (!placed) return std::nullopt;
  drop_axis_of_one(*placed, "dp_replicate", replicate);
  drop_axis_of_one(*placed, "cp", cp);
  return Coordinates{"torchtitan, from the command line", std::move(*placed)};
}

std::optional<Coordinates> of_deepspeed(const Options& options, int rank, int world) {
  const std::string* pp_text = options.plain("pipe_parallel_size");
  const bool deepspeed = pp_text != nullptr || options.has("deepspeed") || options.has("deepspeed_config");
  if (!deepspeed) return std::nullopt;
  if (pp_text == nullptr) pp_text = options.plain("pipeline_parallel_size");
  Sizes sizes;
  const auto pp = sizes.read(pp_text, 1), tp = sizes.read(options.plain("model_parallel_size"), 1);
  if (sizes.broken || !sizes.any) return std::nullopt;
  auto placed = place({{"pp", pp}, {"dp", std::nullopt, true}, {"tp", tp}}, rank, world);
  if (!placed) return std::nullopt;
  return Coordinates{"DeepSpeed, from the command line", std::move(*placed)};
}

// What the process groups in memory say. An axis of size 1 is left out as the command line's: all but pp, dp and tp.
std::optional<Coordinates> of_memory(const std::map<std::string, std::string>& environment) {
  const auto framework = environment.find(std::string(known::kLayoutFramework));
  if (framework == environment.end()) return std::nullopt;
  Coordinates coordinates{.from = framework->second + ", from memory", .axes = {}};
  for (auto it = environment.lower_bound(std::string(known::kLayoutAxis)); it != environment.end(); ++it) {
    const auto& [name, value] = *it;
    if (!name.starts_with(known::kLayoutAxis)) break;
    const std::size_t slash = std::min(value.find('/'), value.size());
    const auto place = number(std::string_view(value).substr(0, slash));
    const std::string axis = name.substr(known::kLayoutAxis.size());
    const bool counts = axis == "pp" || axis == "dp" || axis == "tp" || value.substr(slash) != "/1";
    if (place && counts) coordinates.axes.emplace_back(axis, *place);
  }
  sort_axes(coordinates);
  return coordinates.axes.empty() ? std::nullopt : std::optional(coordinates);
}

std::optional<Coordinates> of_accelerate(const std::map<std::string, std::string>& environment, int rank, int world) {
  const auto variable = [&](const char* name) {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : &it->second;
  };
  const std::string* use = variable("ACCELERATE_USE_MEGATRON_LM");
  if (use == nullptr || *use != "true") return std::nullopt;
  return megatron(variable("MEGATRON_LM_TP_DEGREE"), variable("MEGATRON_LM_PP_DEGREE"), nullptr, nullptr, nullptr,
                  false, false, rank, world, "Megatron by Accelerate, from the environment");
}

}  // namespace

std::optional<Coordinates> coordinates_of(std::span<const std::string> command,
                                          const std::map<std::string, std::string>& environment,
                                          std::optional<int> rank, std::optional<int> world_size) {
  if (auto found = of_memory(environment)) return found;
  if (!rank || !world_size || *rank < 0 || *rank >= *world_size || *world_size > kMaxRanks) return std::nullopt;
  const Options options(command);
  for (const auto& framework : {of_megatron, of_torchtitan, of_deepspeed})
    if (auto found = framework(options, *rank, *world_size)) return found;
  return of_accelerate(environment, *rank, *world_size);
}

}  // namespace rankstacks::capture
