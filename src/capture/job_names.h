// What the environment of a rank says of its job: the names that launchers, schedulers and rendezvous give to jobs.
//
// No single one of them is enough. A name may be missing in some ranks of a job (a rank that has changed its own
// environment), or may be the same in two jobs (two jobs in one allocation of Slurm's). job_groups.h combines them.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>

#include "capture/rank_identity.h"

namespace rankstacks::capture {

// In the order in which they name a job to a person.
enum class JobName {
  kSlurmStep,     // "slurm:4711.0"
  kSlurmJob,      // "slurm:4711"
  kFlux,          // "flux:f2gR5u"
  kPbs,           // "pbs:77.head"
  kLsf,           // "lsf:88"
  kRay,           // "ray:02000000"
  kTorchelastic,  // "torchelastic:RUN_ID"
  kMeeting,       // "10.0.0.1:29500": where the ranks meet
  kPmix,          // "pmix:NAMESPACE"
  kOpenMpi,       // "ompi:JOBID"
  kPmi,           // "pmi:JOBID"
  kKubernetes,    // "kubernetes:JOB", an indexed job
};
inline constexpr std::size_t kJobNames = 12;

struct JobNames {
  // The values as they are in the environment (kMeeting: "host:port"); empty: there is none.
  std::array<std::string, kJobNames> of;
  // The ranks meet at a loopback address, which means another place in each network namespace.
  bool meets_locally = false;
  // For such a rank: its host's name with the same port, which is how ranks of other containers name the same place.
  std::string meeting_from_elsewhere;
  std::string restart;  // TORCHELASTIC_RESTART_COUNT

  const std::string& operator[](JobName name) const { return of[static_cast<std::size_t>(name)]; }
  std::string& operator[](JobName name) { return of[static_cast<std::size_t>(name)]; }
};

JobNames job_names_of(const std::map<std::string, std::string>& environment, const RankIdentity& identity);

// The name as it is shown and typed: "slurm:4711.0". The value comes from a process, so it is cut to 64 characters, of
// which none is special to a terminal or a shell; what this changes has a hash of the whole value at its end, so that
// two values never look alike. Empty if there is no value, or if it could be taken for another form of --job.
std::string shown_job_name(JobName name, const std::string& value);

}  // namespace rankstacks::capture
