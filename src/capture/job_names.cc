#include "capture/job_names.h"

#include <fmt/format.h>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "capture/tensorflow_cluster.h"

namespace rankstacks::capture {
namespace {

using Environment = std::map<std::string, std::string>;

struct NamingVariable {
  JobName name;
  const char* variable;
  const char* no_value;  // a value that means that there is none
};

// The first of several variables for one name decides.
constexpr NamingVariable kNaming[] = {
    {JobName::kSlurmJob, "SLURM_HET_JOB_ID", ""},  // srun(1): the components of a heterogeneous job have own ids
    {JobName::kSlurmJob, "SLURM_JOB_ID", ""},
    {JobName::kSlurmJob, "SLURM_JOBID", ""},                  // before Slurm 17
    {JobName::kFlux, "FLUX_JOB_ID", ""},                      // flux-environment(7)
    {JobName::kPbs, "PBS_JOBID", ""},                         // qsub(1B)
    {JobName::kLsf, "LSB_JOBID", ""},                         // bsub(1)
    {JobName::kRay, "RAY_JOB_ID", ""},                        // ray src/ray/raylet/worker_pool.cc
    {JobName::kTorchelastic, "TORCHELASTIC_RUN_ID", "none"},  // torch/distributed/run.py: --rdzv-id, "none" by default
    {JobName::kPmix, "PMIX_NAMESPACE", ""},                   // PMIx: PMIx_server_setup_fork
    {JobName::kOpenMpi, "OMPI_MCA_ess_base_jobid", ""},       // Open MPI 2 to 4, orte/mca/schizo/ompi
    {JobName::kPmi, "PMI_JOBID", ""},                         // PMI-1 and PMI-2 of Slurm and MVAPICH2
};

// Where ranks meet. `precedence` is that of the variables for ranks (rank_identity.cc) to which a line belongs; a line
// of the rank's own framework or launcher goes before the others.
struct MeetingVariables {
  int precedence;
  const char *address, *port;  // port nullptr: the address contains it
};
constexpr int kEnvironment = RankIdentity::kFirstOfEnvironment;
constexpr MeetingVariables kMeetings[] = {
    {0, "jax:coordinator_address", nullptr},       // what jax has in memory (known/rank_values.cc)
    {kEnvironment, "MASTER_ADDR", "MASTER_PORT"},  // torch/distributed/rendezvous.py: env://
    {kEnvironment + 6, "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"},  // horovod/runner/gloo_run.py
    {kEnvironment + 7, "JAX_COORDINATOR_ADDRESS", nullptr},                              // jax/_src/distributed.py
    {kEnvironment + 7, "COORDINATOR_ADDRESS", nullptr},
    {kEnvironment + 8, "PADDLE_MASTER", nullptr},  // paddle/distributed/launch/controllers/collective.py
    {-1, "NCCL_COMM_ID", nullptr},                 // nccl src/bootstrap.cc
};
constexpr int kIndexedJob = kEnvironment + 9;  // JOB_COMPLETION_INDEX

std::string value_of(const Environment& environment, const char* name) {
  const auto it = environment.find(name);
  return it == environment.end() ? std::string() : it->second;
}

bool is_loopback(const std::string& host) {
  return host.empty() || host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.");
}

bool is_port(std::string_view text) {
  unsigned port = 0;
  const auto [p, e] = std::from_chars(text.data(), text.data() + text.size(), port);
  return e == std::errc() && p == text.data() + text.size() && port > 0 && port <= 65535;
}

struct Meeting {
  std::string host, port;
};

// A port without an address is one of this machine: torch's own default for the address.
std::optional<Meeting> meeting_at(std::string address, std::optional<std::string> port) {
  Meeting meeting{std::move(address), ""};
  if (port) {
    meeting.port = *std::move(port);
  } else {
    const std::size_t colon = meeting.host.rfind(':');
    if (colon == std::string::npos) return std::nullopt;
    meeting.port = meeting.host.substr(colon + 1);
    meeting.host.erase(colon);
  }
  if (!is_port(meeting.port)) return std::nullopt;
  for (char& c : meeting.host) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (contains(meeting.host, ':') && !meeting.host.starts_with('[')) meeting.host = "[" + meeting.host + "]";
  return meeting;
}

std::optional<Meeting> meeting_in(const Environment& environment, const MeetingVariables& variables) {
  const auto port = variables.port == nullptr ? std::nullopt : std::optional(value_of(environment, variables.port));
  return meeting_at(value_of(environment, variables.address), port);
}

// TensorFlow's ranks meet at the first one's address.
std::optional<Meeting> meeting_of_tf_config(const Environment& environment) {
  const auto task = task_of_tf_config(value_of(environment, "TF_CONFIG"));
  return task ? meeting_at(task->first_address, std::nullopt) : std::nullopt;
}

void find_meeting(const Environment& environment, int precedence, JobNames& names) {
  std::optional<Meeting> meeting;
  if (precedence == RankIdentity::kTensorflow) meeting = meeting_of_tf_config(environment);
  for (const bool own : {true, false})
    for (const MeetingVariables& variables : kMeetings)
      if (!meeting && (variables.precedence == precedence) == own) meeting = meeting_in(environment, variables);
  if (!meeting) return;
  names.meets_locally = is_loopback(meeting->host);
  if (!names.meets_locally) {
    names[JobName::kMeeting] = meeting->host + ":" + meeting->port;
    return;
  }
  names[JobName::kMeeting] = "localhost:" + meeting->port;
  // Kubeflow's master has MASTER_ADDR=localhost, and its workers have the name of the master's host.
  if (const std::string host = value_of(environment, "HOSTNAME"); !host.empty())
    names.meeting_from_elsewhere = host + ":" + meeting->port;
}

// The pod of an indexed job is called JOB-INDEX (Kubernetes, "Jobs": completion mode).
std::string indexed_job(const Environment& environment) {
  const std::string host = value_of(environment, "HOSTNAME");
  const std::string end = "-" + value_of(environment, "JOB_COMPLETION_INDEX");
  return host.size() > end.size() && host.ends_with(end) ? host.substr(0, host.size() - end.size()) : std::string();
}

constexpr std::array<const char*, kJobNames> kPrefixes = {
    "slurm:", "slurm:", "flux:", "pbs:", "lsf:", "ray:", "torchelastic:", "", "pmix:", "ompi:", "pmi:", "kubernetes:"};

// Brackets belong to the address of a meeting point alone ("[::2]:29500"): shells take them for patterns.
bool is_plain(char c, bool is_address) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || contains("._:@%+,-/", c) ||
         (is_address && (c == '[' || c == ']'));
}

// FNV-1a. Two values with one hash only make a name that two jobs have, which is shown for neither.
std::uint32_t hash_of(std::string_view text) {
  std::uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

}  // namespace

JobNames job_names_of(const Environment& environment, const RankIdentity& identity) {
  JobNames names;
  for (const NamingVariable& naming : kNaming) {
    if (!names[naming.name].empty()) continue;
    std::string value = value_of(environment, naming.variable);
    if (value != naming.no_value) names[naming.name] = std::move(value);
  }
  std::string step = value_of(environment, "SLURM_STEP_ID");
  if (step.empty()) step = value_of(environment, "SLURM_STEPID");
  if (!names[JobName::kSlurmJob].empty() && !step.empty())
    names[JobName::kSlurmStep] = names[JobName::kSlurmJob] + "." + step;
  find_meeting(environment, identity.precedence, names);
  if (identity.precedence == kIndexedJob) names[JobName::kKubernetes] = indexed_job(environment);
  names.restart = value_of(environment, "TORCHELASTIC_RESTART_COUNT");
  return names;
}

std::string shown_job_name(JobName name, const std::string& value) {
  constexpr std::size_t kLongest = 64, kKept = 48;
  if (value.empty()) return {};
  if (name == JobName::kMeeting) {
    const std::string host = value.substr(0, value.rfind(':'));
    if (host.starts_with('-') || host == "pid" || host == "user" || host == "cgroup") return {};
  }
  std::string text = value.substr(0, kLongest);
  std::replace_if(
      text.begin(), text.end(), [&](char c) { return !is_plain(c, name == JobName::kMeeting); }, '_');
  if (text != value) text = fmt::format("{}~{:08x}", text.substr(0, kKept), hash_of(value));
  return kPrefixes[static_cast<std::size_t>(name)] + text;
}

}  // namespace rankstacks::capture
