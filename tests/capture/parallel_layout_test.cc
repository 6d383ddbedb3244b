// Coordinates from literal command lines.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "capture/parallel_layout.h"

using namespace rankstacks;
using namespace rankstacks::capture;

namespace {

std::vector<std::string> words(const std::string& line) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    if (end > at) found.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return found;
}

// "pp 1, dp 0, tp 1"; "" if there are no coordinates.
std::string place(const std::string& command, int rank, int world,
                  const std::map<std::string, std::string>& environment = {}) {
  const auto coordinates = coordinates_of(words(command), environment, rank, world);
  std::string text;
  if (coordinates)
    for (const auto& [axis, n] : coordinates->axes) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axis, n);
  return text;
}

}  // namespace

TEST_CASE("Megatron") {
  const std::string command =
      "/usr/bin/python3 -u pretrain_gpt.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
      "--num-layers 24";
  CHECK(place(command, 0, 8) == "pp 0, dp 0, tp 0");
  CHECK(place(command, 1, 8) == "pp 0, dp 0, tp 1");
  CHECK(place(command, 2, 8) == "pp 0, dp 1, tp 0");
  CHECK(place(command, 4, 8) == "pp 1, dp 0, tp 0");
  CHECK(place(command, 7, 8) == "pp 1, dp 1, tp 1");
  CHECK(coordinates_of(words(command), {}, 5, 8)->from == "Megatron, from the command line");
  SECTION("spelled with =, and with underscores") {
    CHECK(place("python3 x.py --tensor-model-parallel-size=2 --pipeline-model-parallel-size=4", 7, 8) ==
          "pp 3, dp 0, tp 1");
    CHECK(place("python3 x.py --tensor_model_parallel_size 2", 3, 4) == "pp 0, dp 1, tp 1");
  }
  SECTION("the last one counts") {
    CHECK(place(command + " --tensor-model-parallel-size 4", 5, 8) == "pp 1, dp 0, tp 1");
  }
  SECTION("tp, pp, dp") {
    CHECK(place(command + " --use-tp-pp-dp-mapping", 2, 8) == "pp 1, dp 0, tp 0");
    CHECK(place(command + " --use-tp-pp-dp-mapping", 4, 8) == "pp 0, dp 1, tp 0");
  }
  SECTION("context parallel ranks lie between tensor and data parallel ones") {
    CHECK(place(command + " --context-parallel-size 2", 2, 16) == "pp 0, dp 0, cp 1, tp 0");
    CHECK(place(command + " --context-parallel-size 2", 5, 16) == "pp 0, dp 1, cp 0, tp 1");
    CHECK(place(command + " --context-parallel-size 2", 15, 16) == "pp 1, dp 1, cp 1, tp 1");
  }
  SECTION("experts") {
    CHECK(place(command + " --expert-model-parallel-size 2", 2, 8) == "pp 0, dp 1, ep 1, tp 0");
    CHECK(place(command + " --expert-model-parallel-size 2 --expert-tensor-parallel-size 1", 3, 8) ==
          "pp 0, dp 1, ep 1, tp 1");
    CHECK(place(command + " --expert-model-parallel-size 4", 0, 8) ==
          "");  // a stage has 4 ranks, and the experts would need 8
  }
  SECTION("sizes that do not fit the world size, or are no numbers") {
    CHECK(place(command, 0, 6) == "");
    CHECK(place(command, 0, 2) == "");
    CHECK(place("python3 x.py --tensor-model-parallel-size 0", 0, 8) == "");
    CHECK(place("python3 x.py --tensor-model-parallel-size -2", 0, 8) == "");
    CHECK(place("python3 x.py --tensor-model-parallel-size two", 0, 8) == "");
    CHECK(place("python3 x.py --tensor-model-parallel-size 99999999999999999999", 0, 8) == "");
    CHECK(place("python3 x.py --tensor-model-parallel-size 2147483647 --pipeline-model-parallel-size 2147483647", 0,
                8) == "");
    CHECK(place("python3 x.py --pipeline-model-parallel-size 2 --tensor-model-parallel-size", 0, 8) == "");
  }
  SECTION("where a checkpoint or an encoder has sizes of its own") {
    CHECK(place(command + " --use-checkpoint-args", 0, 8) == "");
    CHECK(place(command + " --encoder-tensor-model-parallel-size 1 --encoder-pipeline-model-parallel-size 2", 0, 8) ==
          "");
  }
}

TEST_CASE("NeMo's settings on the command line may be incomplete: only coordinates that they determine are given") {
  CHECK(place("python3 train.py ++model.tensor_model_parallel_size=2 model.pipeline_model_parallel_size=2", 5, 8) ==
        "pp 1, tp 1");
  CHECK(place("python3 train.py model.tensor_model_parallel_size=2", 5, 8) == "tp 1");
  CHECK(place("python3 train.py model.tensor_model_parallel_size=3", 5, 8) == "");
}

TEST_CASE("torchtitan") {
  const std::string command =
      "python3 -m torchtitan.train --parallelism.tensor_parallel_degree=2 --parallelism.pipeline_parallel_degree 2";
  CHECK(place(command, 5, 8) == "pp 1, dp_shard 0, tp 1");
  CHECK(place(command + " --parallelism.data_parallel_replicate_degree 2", 5, 8) ==
        "pp 1, dp_replicate 0, dp_shard 0, tp 1");
  CHECK(place(command + " --parallelism.data_parallel_shard_degree -1 --parallelism.context_parallel_degree 2", 3, 8) ==
        "pp 0, dp_shard 0, cp 1, tp 1");
  CHECK(place(command + " --parallelism.data_parallel_shard_degree 4", 5, 8) == "");  // 16 ranks
  CHECK(place("python3 train.py --parallelism.data-parallel-shard-degree 4 --parallelism.tensor-parallel-degree 2", 6,
              8) == "pp 0, dp_shard 3, tp 0");
  SECTION("with a settings file, only the coordinates that are determined from one end") {
    const std::string file = command + " --job.config_file llama3_8b.toml";
    CHECK(place(file, 5, 8) == "pp 1, tp 1");
    CHECK(place("python3 train.py --job.config_file x.toml --parallelism.context_parallel_degree 2", 5, 8) == "");
  }
}

TEST_CASE("DeepSpeed") {
  CHECK(place("python3 train.py --deepspeed --pipe-parallel-size 2 --model-parallel-size 2", 6, 8) ==
        "pp 1, dp 1, tp 0");
  CHECK(place("python3 train.py --deepspeed_config ds.json --pipeline-parallel-size=4", 5, 8) == "pp 2, dp 1, tp 0");
  CHECK(place("python3 -m vllm.entrypoints.openai.api_server --pipeline-parallel-size 2 --tensor-parallel-size 2", 2,
              4) == "");  // another order
  CHECK(place("python3 train.py --pipe-parallel-size 3", 0, 8) == "");
}

TEST_CASE("Accelerate's environment") {
  const std::map<std::string, std::string> environment = {
      {"ACCELERATE_USE_MEGATRON_LM", "true"}, {"MEGATRON_LM_TP_DEGREE", "2"}, {"MEGATRON_LM_PP_DEGREE", "2"}};
  CHECK(place("python3 train.py", 3, 4, environment) == "pp 1, dp 0, tp 1");
  CHECK(coordinates_of({}, environment, 3, 4)->from == "Megatron by Accelerate, from the environment");
  CHECK(place("python3 train.py", 3, 4, {{"MEGATRON_LM_TP_DEGREE", "2"}}) == "");
}

TEST_CASE("no coordinates without a rank number, or without sizes") {
  const std::vector<std::string> command = words("python3 x.py --tensor-model-parallel-size 2");
  CHECK(!coordinates_of(command, {}, std::nullopt, 8));
  CHECK(!coordinates_of(command, {}, 1, std::nullopt));
  CHECK(!coordinates_of(command, {}, 8, 8));
  CHECK(!coordinates_of(command, {}, -1, 8));
  CHECK(place("python3 train.py --lr 0.1", 0, 8) == "");
  CHECK(place("", 0, 8) == "");
}

TEST_CASE("the groups in memory have precedence") {
  const std::string command = "python3 pretrain_gpt.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2";
  const auto coordinates = [&](std::map<std::string, std::string> values) {
    values.emplace("torch:layout", "DeepSpeed");
    return coordinates_of(words(command), values, 5, 8);
  };
  const auto found = coordinates(
      {{"torch:axis:tp", "1/2"}, {"torch:axis:pp", "3/4"}, {"torch:axis:dp", "0/1"}, {"torch:axis:ep", "0/1"}});
  REQUIRE(found.has_value());
  CHECK(found->from == "DeepSpeed, from memory");
  CHECK(found->axes == std::vector<std::pair<std::string, int>>{{"pp", 3}, {"dp", 0}, {"tp", 1}});
  // Nothing that could be used: the command line says it.
  CHECK(coordinates({{"torch:axis:ep", "0/1"}})->from == "Megatron, from the command line");
  CHECK(coordinates({{"torch:axis:tp", "first"}})->from == "Megatron, from the command line");
}
