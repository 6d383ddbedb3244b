// Saved reports of real hangs whose true cause is known, and how good a verdict on one of them is.
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zlib.h>
#include <nlohmann/json.hpp>

#include "report/report.h"

namespace rankstacks::testing {

using Accused = std::map<std::string, std::string>;  // reasons by rank

struct SavedReport {
  std::string name;
  JobSnapshot job;
  std::string status;
  Accused suspects;
};

inline std::string unpacked(const std::filesystem::path& path) {
  std::string text;
  const gzFile file = gzopen(path.c_str(), "rb");
  REQUIRE(file != nullptr);
  std::array<char, 1 << 16> buffer;
  for (int count; (count = gzread(file, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(count));
  gzclose(file);
  return text;
}

inline nlohmann::json json_of(const std::filesystem::path& path) { return nlohmann::json::parse(std::ifstream(path)); }

// By the file's name: from the verdicts.json of its directory, or from a file of its own. Without those of healthy jobs
// on GPUs: that long steps are no hang is known by the power that GPUs draw alone.
inline std::map<std::filesystem::path, nlohmann::json> truths(const std::filesystem::path& fixtures) {
  std::map<std::filesystem::path, nlohmann::json> found;
  for (const char* directory : {"verdicts", "gpu_verdicts", "gpu_jobs"}) {
    const nlohmann::json verdicts = json_of(fixtures / directory / "verdicts.json");
    for (const auto& [name, truth] : verdicts.items()) {
      if (directory == std::string_view("gpu_jobs") && truth.at("status") == "healthy") continue;
      found[fixtures / directory / (name + ".json.gz")] = truth;
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(fixtures / "nccl"))
    if (const std::string name = entry.path().filename(); name.ends_with(".truth.json"))
      found[fixtures / "nccl" / (name.substr(0, name.size() - 11) + ".json.gz")] = json_of(entry.path());
  return found;
}

inline SavedReport read_saved(const std::filesystem::path& path, const nlohmann::json& truth) {
  auto job = report::read_json_report(unpacked(path), path.filename());
  REQUIRE(job);
  return {path.filename(), std::move(*job), truth.at("status"), truth.at("suspects")};
}

inline Accused accused_of(const JobSnapshot& job, const analyzers::Verdict& verdict) {
  Accused accused;
  for (const analyzers::Suspect& s : verdict.suspects)
    accused[s.rank == SIZE_MAX ? std::to_string(s.missing_rank) : rank_label(job.ranks[s.rank])] =
        analyzers::to_string(s.reason);
  return accused;
}

enum class Quality { kInnocentAccused, kOpen, kRight };

// The right ranks for a wrong reason are no better than none: that was luck.
inline Quality quality_of(const SavedReport& saved, const JobSnapshot& job, const analyzers::Verdict& verdict) {
  const Accused accused = accused_of(job, verdict);
  if (std::any_of(accused.begin(), accused.end(), [&](const auto& one) { return !saved.suspects.contains(one.first); }))
    return Quality::kInnocentAccused;
  return analyzers::to_string(verdict.status) == saved.status && accused == saved.suspects ? Quality::kRight
                                                                                           : Quality::kOpen;
}

}  // namespace rankstacks::testing
