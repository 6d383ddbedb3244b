#include "analyzers/standing.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "analyzers/children.h"
#include "analyzers/gpu_waits.h"
#include "analyzers/names.h"
#include "analyzers/own_threads.h"
#include "analyzers/pace.h"
#include "analyzers/peer_waits.h"
#include "analyzers/roles.h"
#include "analyzers/thread_waits.h"
#include "analyzers/training_threads.h"

namespace rankstacks {
namespace {

const ThreadSnapshot* main_thread(const RankSnapshot& rank) {
  const auto main = thread_with(rank, rank.pid);
  return main ? &rank.threads[*main] : nullptr;
}

// By its own threads alone.
std::vector<Standing> own_standings(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles, Activities& activities) {
  std::vector<Standing> standings;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankSnapshot& rank = job.ranks[r];
    if (rank.kind != RankKind::kRank) continue;
    Standing standing;
    standing.rank = r;
    standing.ended = is_dead(rank);
    standing.readable = !standing.ended && main_thread(rank) != nullptr;
    if (standing.readable) {
      standing.doing = activities.of_rank(r);
      if (auto awaited = of_awaited_thread(job, activities, r, standing.doing)) standing.doing = std::move(*awaited);
      else if (auto called = of_called_library(job, roles, activities, r, standing.doing)) standing.doing = std::move(*called);
    }
    standings.push_back(std::move(standing));
  }
  return standings;
}

// Where most processes have a rank's number and the world's size, those that have none are not of the job. Where none has, those that run another
// program than the others.
void find_strangers(const JobSnapshot& job, std::vector<Standing>& standings) {
  const auto numbered = [&](const Standing& s) { return job.ranks[s.rank].rank && job.ranks[s.rank].world_size; };
  const auto count = static_cast<std::size_t>(std::count_if(standings.begin(), standings.end(), numbered));
  if (count >= 2) {
    for (Standing& s : standings) s.stranger = !numbered(s) && !job.ranks[s.rank].rank && s.readable;
    return;
  }
  if (count != 0) return;
  std::map<std::string, std::size_t> programs;
  for (const Standing& s : standings)
    if (s.readable) ++programs[job.ranks[s.rank].executable.value_or("")];
  for (Standing& s : standings) {
    const std::size_t alike = s.readable ? programs[job.ranks[s.rank].executable.value_or("")] : 0;
    s.stranger = s.readable && alike * 4 <= standings.size() && standings.size() > 2;
  }
  if (std::none_of(standings.begin(), standings.end(), [](const Standing& s) { return s.readable && !s.stranger; }))
    for (Standing& s : standings) s.stranger = false;
}

std::optional<int> number_of(const FrameVariables& variables, std::string_view name) {
  for (const auto& [n, value] : variables.numbers)
    if (n == name && value >= 0 && value <= INT32_MAX) return static_cast<int>(value);
  return std::nullopt;
}

// What the arguments of c10d's functions tell: src and dst are ranks of the job, group_src and group_dst places in the group.
void tell_partners(const JobSnapshot& job, Standing& standing) {
  if (!waits_for_ranks(standing.doing.activity)) return;
  const ThreadSnapshot& thread = job.ranks[standing.rank].threads[standing.doing.thread];
  for (const FrameVariables& variables : thread.variables) {
    if (!standing.group && variables.group) standing.group = variables.group;
    if (standing.doing.activity != Activity::kPointToPoint || standing.peer) continue;
    for (const std::string_view name : {"src", "dst"}) {
      if (const auto peer = number_of(variables, name)) standing.peer = peer;
      const auto place = number_of(variables, name == "src" ? "group_src" : "group_dst");
      if (!standing.peer && place && variables.group && static_cast<std::size_t>(*place) < variables.group->ranks.size()) standing.peer = variables.group->ranks[static_cast<std::size_t>(*place)];
    }
  }
}

void tell_path(const JobSnapshot& job, Standing& standing) {
  const RankSnapshot& rank = job.ranks[standing.rank];
  const ThreadSnapshot* main = leading_thread(job, standing);
  if (main == nullptr) return;
  const std::string executable = rank.executable.value_or("");
  const std::string_view program = base_name(executable);
  for (std::size_t i = main->frames.size(); i-- > 0;) {
    const Frame& frame = job.frames[main->frames[i]];
    const bool of_user = frame.kind == FrameKind::kPython ? !is_library_file(frame.file.value_or("<unknown>"))
                                                           : frame.function && frame.line && base_name(frame.module) == program && !is_interpreter(frame.module) && !is_thread_start(frame);
    if (!of_user) continue;
    CodePlace place{frame.function.value_or(""), frame.file.value_or(""), frame.line.value_or(-1), {}, 0};
    for (const FrameVariables& variables : main->variables)
      if (variables.frame == i) place.numbers = variables.numbers, place.loops = variables.loops;
    standing.path.push_back(std::move(place));
  }
}

}  // namespace

std::vector<Standing> standings_of(const JobSnapshot& job, const std::vector<std::vector<Role>>& roles, const std::vector<Cluster>& clusters) {
  Activities activities(job, roles);
  std::vector<Standing> standings = own_standings(job, roles, activities);
  find_strangers(job, standings);
  tell_by_training_threads(job, roles, activities, standings);
  for (Standing& s : standings) s.gpu_wait_may_be_collective = s.readable && s.doing.activity == Activity::kGpuWait && has_nccl(roles[s.rank]);
  look_at_children(job, roles, standings);
  find_peer_waits(job, standings);
  tell_by_classes(job, clusters, activities, standings);
  tell_by_other_ends(job, standings);
  for (Standing& standing : standings) {
    if (!standing.readable) continue;
    tell_pace(job, roles, standing);
    tell_partners(job, standing);
    tell_path(job, standing);
  }
  tell_by_gpus(job, standings);
  return standings;
}

const ThreadSnapshot* leading_thread(const JobSnapshot& job, const Standing& standing) {
  const RankSnapshot& rank = job.ranks[standing.rank];
  return standing.by_own_thread ? &rank.threads[standing.doing.thread] : main_thread(rank);
}

std::string place_key(const JobSnapshot& job, const Standing& standing) {
  if (standing.named_by_gpu) return "on the GPU|" + standing.doing.operation.key();   // the CPU may be further on
  std::string key = standing.doing.operation.key();
  if (const ThreadSnapshot* leading = leading_thread(job, standing)) {
    const ThreadSnapshot& thread = *leading;
    bool user_code = false;
    for (const FrameId id : thread.frames) {
      const Frame& frame = job.frames[id];
      if (frame.kind != FrameKind::kPython || is_library_file(frame.file.value_or("<unknown>"))) continue;
      key += fmt::format("|{}|{}|{}", frame.function.value_or(""), *frame.file, frame.line.value_or(-1));
      user_code = true;
    }
    const auto index = telling_frame(job, thread);
    if (user_code || !index) return key;
    const Frame& frame = job.frames[thread.frames[*index]];
    key += fmt::format("|{}|{}|{}", frame.function.value_or(""), frame.file.value_or(""), frame.kind == FrameKind::kPython ? frame.line.value_or(-1) : -1);
  }
  return key;
}

}  // namespace rankstacks
