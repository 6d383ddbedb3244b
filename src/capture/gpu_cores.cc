#include "capture/gpu_cores.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string_view>

#include "base/text.h"
#include "capture/rank_identity.h"
#include "gpu/summarize.h"

namespace rankstacks::capture {
namespace {

constexpr std::uint64_t kHighestPid = 1u << 22;  // PID_MAX_LIMIT, include/linux/threads.h: a higher number is a time

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// The file's name without the suffixes for the type of the file.
std::string stem_of(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  constexpr std::array<std::string_view, 9> kEndings = {".gz",      ".zst",      ".xz",   ".lz4", ".nvcudmp",
                                                        ".gpucore", ".cudacore", ".core", ".dmp"};
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view ending : kEndings) {
      if (name.size() <= ending.size() || !lower(name).ends_with(ending)) continue;
      name.resize(name.size() - ending.size());
      again = true;
    }
  }
  return name;
}

struct Number {
  std::size_t at = 0, end = 0;
  std::uint64_t value = 0;
};

// The last whole number, not above the highest pid, that stands alone or follows "pid" or "p"; not the number after
// "rank".
std::optional<Number> last_pid(const std::string& stem) {
  for (std::size_t end = stem.size(); end > 0; --end) {
    if (!is_digit(stem[end - 1]) || (end < stem.size() && std::isalnum(static_cast<unsigned char>(stem[end]))))
      continue;
    std::size_t at = end;
    while (at > 0 && is_digit(stem[at - 1])) --at;
    Number number{at, end, 0};
    const auto [digits_end, error] = std::from_chars(stem.data() + at, stem.data() + end, number.value);
    std::size_t word = at;
    while (word > 0 && std::isalpha(static_cast<unsigned char>(stem[word - 1]))) --word;
    const std::string before = lower(stem.substr(word, at - word));
    std::size_t earlier = at > 0 && !std::isalnum(static_cast<unsigned char>(stem[at - 1])) ? at - 1 : 0;
    const bool behind_rank =
        before == "rank" || (word == at && earlier >= 4 && lower(stem.substr(earlier - 4, 4)) == "rank");
    const bool is_alone = before.empty() || before == "pid" || before == "p";
    if (error == std::errc() && !behind_rank && is_alone && number.value > 0 && number.value <= kHighestPid)
      return number;
    end = at + 1;
    if (at == 0) break;
  }
  return std::nullopt;
}

// "node-a" in core_1795297016_node-a_1293 and in gpucore.node-a.1293: the text that remains between a usual prefix of
// such files and the pid.
std::string host_between(const std::string& stem, std::size_t pid_at) {
  std::string_view left(stem.data(), pid_at);
  const auto is_separator = [](char c) { return c == '_' || c == '.'; };
  while (!left.empty() && (is_separator(left.back()) || left.back() == '-')) left.remove_suffix(1);
  const std::size_t first = left.find_first_of("_.");
  if (first == std::string_view::npos) return {};
  const std::string word = lower(std::string(left.substr(0, first)));
  if (word != "core" && word != "gpucore" && word != "cudacore" && word != "cuda" && word != "gpu") return {};
  left.remove_prefix(first + 1);
  std::size_t digits = 0;
  while (digits < left.size() && is_digit(left[digits])) ++digits;
  if (digits != 0 && digits < left.size() && is_separator(left[digits])) left.remove_prefix(digits + 1);  // the time
  const bool has_letter = std::any_of(left.begin(), left.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
  if (!has_letter || contains(lower(std::string(left)), "rank")) return {};
  return std::string(left);
}

// "node-a" and "node-a.cluster.local" are the same machine.
bool may_be_host(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty() || a == "unknown" || b == "unknown") return true;
  const std::string x = lower(a), y = lower(b);
  return x == y || x.substr(0, x.find('.')) == y.substr(0, y.find('.'));
}

}  // namespace

GpuCoreName read_gpu_core_name(const std::string& path) {
  GpuCoreName name;
  name.rank = rank_from_file_name(path);
  const std::string stem = stem_of(path);
  if (const auto pid = last_pid(stem)) {
    name.pid = static_cast<Pid>(pid->value);
    name.host = host_between(stem, pid->at);
  }
  return name;
}

std::optional<std::size_t> rank_of_gpu_core(const OpenedGpuCore& gpu_core,
                                            const std::vector<const RankSnapshot*>& ranks,
                                            const std::vector<std::vector<Tid>>& threads) {
  const GpuCoreName name = read_gpu_core_name(gpu_core.path);
  const auto only = [&](auto&& fits) {
    std::optional<std::size_t> found;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const RankSnapshot& rank = *ranks[i];
      if (rank.status == Status::kFailed || !may_be_host(name.host, rank.host)) continue;
      if (name.rank && rank.rank && *name.rank != *rank.rank) continue;
      if (!fits(i)) continue;
      if (found) return std::optional<std::size_t>();
      found = i;
    }
    return found;
  };
  if (name.pid) {
    // The number in a name may not be the pid, but if a process has that pid, it is hardly an accident.
    if (const auto found = only([&](std::size_t i) { return ranks[i]->pid == *name.pid; })) return found;
  }
  if (name.rank) {
    if (const auto found =
            only([&](std::size_t i) { return ranks[i]->rank == name.rank && ranks[i]->kind == RankKind::kRank; })) {
      if (!name.pid || ranks[*found]->pid == *name.pid) return found;
    }
  }
  if (!gpu_core.core || gpu_core.core->threads.empty()) return std::nullopt;
  return only([&](std::size_t i) {
    // The driver's own name states the process.
    if (name.pid && !name.host.empty() && ranks[i]->pid != *name.pid) return false;
    return std::any_of(gpu_core.core->threads.begin(), gpu_core.core->threads.end(), [&](Tid tid) {
      return std::find(threads[i].begin(), threads[i].end(), tid) != threads[i].end();
    });
  });
}

RankSnapshot rank_of_gpu_core_alone(const OpenedGpuCore& gpu_core) {
  const GpuCoreName name = read_gpu_core_name(gpu_core.path);
  RankSnapshot rank;
  rank.source = Source::kCore;
  rank.path = gpu_core.path;
  rank.rank = name.rank;
  rank.pid = name.pid.value_or(0);
  rank.host = name.host.empty() ? "unknown" : name.host;
  return rank;
}

void add_gpus(const OpenedGpuCore& gpu_core, RankSnapshot& rank, FrameTable& frames) {
  const bool is_own = rank.path == gpu_core.path;
  const auto add_problem = [&](Problem problem) {
    if (!is_own) problem.message = gpu_core.path + ": " + problem.message;
    rank.problems.push_back(std::move(problem));
  };
  if (!gpu_core.core) {
    const Error& error = gpu_core.core.error();
    rank.problems.push_back(problem_of(error));
    rank.status = is_own ? Status::kFailed : std::max(rank.status, Status::kPartial);
    return;
  }
  std::vector<Problem> problems = gpu_core.core->problems;
  const std::size_t of_reading = problems.size();
  for (const gpu::DeviceState& device : gpu_core.core->devices) {
    GpuSnapshot gpu = gpu::summarize(device, frames, &problems);
    gpu.execution->source = GpuSource::kCore;
    gpu.execution->path = gpu_core.path;
    rank.gpus.push_back(std::move(gpu));
  }
  std::stable_sort(rank.gpus.begin(), rank.gpus.end(),
                   [](const GpuSnapshot& a, const GpuSnapshot& b) { return a.pci < b.pci; });
  if (gpu_core.core->partial || problems.size() > of_reading) rank.status = std::max(rank.status, Status::kPartial);
  for (Problem& problem : problems) add_problem(std::move(problem));
}

std::optional<std::chrono::system_clock::time_point> GpuCoresOfJob::written_at(const std::string& path) const {
  for (const auto& [rank_path, core] : cores_)
    if (core.path == path && core.core) return core.core->written;
  return std::nullopt;
}

void GpuCoresOfJob::add_to(JobSnapshot& job) const {
  for (const auto& [rank_path, core] : cores_) {
    const auto it = std::find_if(job.ranks.begin(), job.ranks.end(),
                                 [&path = rank_path](const RankSnapshot& rank) { return rank.path == path; });
    if (it != job.ranks.end()) add_gpus(core, *it, job.frames);
  }
}

GpuCoresOfJob join_gpu_cores(std::vector<RankStacks>& ranks, std::vector<std::optional<OpenedGpuCore>> gpu_cores) {
  std::vector<RankStacks> kept;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (!gpu_cores[i]) kept.push_back(std::move(ranks[i]));
  std::vector<const RankSnapshot*> of_hosts;
  std::vector<std::vector<Tid>> threads;
  for (const RankStacks& rank : kept) {
    of_hosts.push_back(&rank.snapshot);
    std::vector<Tid>& tids = threads.emplace_back();
    if (rank.target)
      for (const target::ThreadInfo& thread : rank.target->threads()) tids.push_back(thread.tid);
  }
  GpuCoresOfJob job;
  std::vector<RankStacks> alone;
  for (auto& core : gpu_cores) {
    if (!core) continue;
    std::string rank_path = core->path;
    if (const auto rank = rank_of_gpu_core(*core, of_hosts, threads)) {
      rank_path = *of_hosts[*rank]->path;
    } else {
      alone.emplace_back().snapshot = rank_of_gpu_core_alone(*core);
    }
    job.put(std::move(rank_path), std::move(*core));
  }
  for (RankStacks& rank : alone) kept.push_back(std::move(rank));
  ranks = std::move(kept);
  return job;
}

}  // namespace rankstacks::capture
