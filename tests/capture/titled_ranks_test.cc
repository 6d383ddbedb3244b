#include <catch2/catch.hpp>

#include "capture/titled_ranks.h"

using namespace rankstacks;
using namespace rankstacks::capture;

namespace {

// "0/4 1/4 -": rank and world size of each, or -.
std::string ranks_of(const std::vector<std::string>& texts) {
  std::vector<known::Title> titles;
  for (const std::string& text : texts) titles.push_back(*known::title_of(text));
  std::string shown;
  for (const RankIdentity& identity : ranks_of_titles(titles)) {
    if (!shown.empty()) shown += ' ';
    shown += identity.rank ? std::to_string(*identity.rank) + '/' + std::to_string(*identity.world_size) : "-";
  }
  return shown;
}

}  // namespace

TEST_CASE("titles of servers' processes") {
  using known::Title;
  using known::title_of;
  using known::TitlePart;
  CHECK(title_of("VLLM::Worker_DP1_PP0_TP3_EP7") ==
        Title{TitlePart::kWorker, "VLLM", {{"DP", 1}, {"PP", 0}, {"TP", 3}, {"EP", 7}}});
  CHECK(title_of("VLLM::Worker") == Title{TitlePart::kWorker, "VLLM", {}});
  CHECK(title_of("VLLM::EngineCore_DP0") == Title{TitlePart::kDirector, "VLLM", {}});
  CHECK(title_of("sglang::scheduler_TP1") == Title{TitlePart::kWorker, "sglang", {{"TP", 1}}});
  CHECK(title_of("sglang::detokenizer") == Title{TitlePart::kDirector, "sglang", {}});
  CHECK(title_of("ray::Trainer.train") == Title{TitlePart::kActor, "ray", {}});
  CHECK(title_of("ray::IDLE")->part == TitlePart::kSpare);
  CHECK_FALSE(title_of("python3"));
  CHECK_FALSE(title_of(""));
  CHECK(title_of("VLLM::Worker_TP99999999999_TPx_0_")->axes.empty());
}

TEST_CASE("a server's workers are ranks by their titles") {
  CHECK(ranks_of({"VLLM::EngineCore", "VLLM::Worker_TP0", "VLLM::Worker_TP1"}) == "- 0/2 1/2");
  CHECK(ranks_of({"VLLM::Worker_PP1_TP0", "VLLM::Worker_PP0_TP1", "VLLM::Worker_PP1_TP1", "VLLM::Worker_PP0_TP0"}) ==
        "2/4 1/4 3/4 0/4");
  // Replicas have their own numbers on the other axes.
  CHECK(ranks_of({"VLLM::Worker_DP0_TP0", "VLLM::Worker_DP0_TP1", "VLLM::Worker_DP1_TP0", "VLLM::Worker_DP1_TP1"}) ==
        "0/4 1/4 2/4 3/4");
  CHECK(ranks_of({"VLLM::Worker_DP0", "VLLM::Worker_DP1"}) == "0/2 1/2");
  // SGLang's DP attention numbers the tensor parallel ranks through all replicas.
  CHECK(ranks_of({"sglang::scheduler_DP0_TP0", "sglang::scheduler_DP0_TP1", "sglang::scheduler_DP1_TP2",
                  "sglang::scheduler_DP1_TP3"}) == "0/4 1/4 2/4 3/4");
  CHECK(ranks_of({"sglang::scheduler", "sglang::detokenizer"}) == "0/1 -");
  // One of them has ended.
  CHECK(ranks_of({"VLLM::Worker_TP0", "VLLM::Worker_TP3"}) == "0/4 3/4");
}

TEST_CASE("a server on several machines: the number of ranks on this one is not known") {
  const auto here = [](const std::string& first, const std::string& second) {
    return ranks_of_titles({*known::title_of(first), *known::title_of(second)})[0].local_world_size;
  };
  CHECK(here("sglang::scheduler_TP0", "sglang::scheduler_TP1") == 2);
  CHECK_FALSE(here("sglang::scheduler_TP2", "sglang::scheduler_TP3"));
}
