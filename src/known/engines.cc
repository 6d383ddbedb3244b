#include "known/engines.h"

#include <array>

#include "base/text.h"

namespace rankstacks::known {
namespace {

using enum Engine;
using F = NodeFault;

// clang-format off
constexpr EngineRule kEngines[] = {
    {kSsh, "ssh", "ssh", Calls::kOneForEach, true, "-n", true,
     "-x -a -T -o BatchMode=yes -o ConnectTimeout={connect} -o ServerAliveInterval=5 -o ServerAliveCountMax=3 {options} {host}",
     "-V", "", "OpenSSH ssh(1), ssh_config(5); 9.2"},
    {kClush, "clush", "clush", Calls::kOneForAll, true, "--nostdin", true,
     "--color=never -f {fanout} -t {connect} -u {limit} {options} -w {hosts}",
     "--version", "", "ClusterShell clush(1); 1.9.1"},
    {kPdsh, "pdsh", "pdsh", Calls::kOneForAll, false, "", true,
     "-R ssh -f {fanout} -t {connect} -u {limit} {options} -w {hosts}",
     "-V", "", "pdsh(1); 2.34"},
    {kSrun, "srun", "srun", Calls::kOneForAll, true, "--input=none", false,
     "--jobid={job} {overlap} --gres=none --mem=0 --cpu-bind=none --mpi=none --nodes={count} --ntasks={count} --ntasks-per-node=1 "
     "--kill-on-bad-exit=0 --wait=0 {options} --nodelist={hosts}",
     "--version", "slurm", "Slurm srun(1); 22.05"},
    {kMpirun, "mpirun", "mpirun", Calls::kOneForAll, false, "", false,
     "--host {slots} -np {count} --map-by ppr:1:node --bind-to none --oversubscribe {root} {options}",
     "--version", "Open MPI", "Open MPI mpirun(1); 4.1"},
    {kMpich, "mpirun", "mpirun", Calls::kOneForAll, false, "", false,
     "-hosts {list} -ppn 1 -n {count} {options}",
     "--version", "HYDRA", "MPICH hydra, mpiexec(1); 4.0"},
    {kFlux, "flux", "flux", Calls::kOneForAll, true, "--noinput", false,
     "exec -r all {options}",
     "getattr rank", "", "flux-core flux-exec(1)"},
    {kKubectl, "kubectl", "kubectl", Calls::kOneForEach, true, "", false,
     "exec -i -n {namespace} {options} {host} {container} --",
     "version --client", "", "Kubernetes kubectl exec; 1.20-1.33"},
    {kKubectlDebug, "kubectl debug", "kubectl", Calls::kOneForEach, true, "", false,
     "debug -i --quiet -n {namespace} --image={image} --target={target} --profile=general {options} {host} --",
     "version --client", "", "Kubernetes kubectl debug; 1.27-1.33"},
    {kDocker, "docker", "docker", Calls::kOneForEach, true, "", false,
     "exec -i {options} {host}",
     "--version", "", "Docker CLI, docker exec"},
    {kPodman, "podman", "podman", Calls::kOneForEach, true, "", false,
     "exec -i {options} {host}",
     "--version", "", "podman-exec(1); 4.3"},
};

constexpr std::string_view kStrerror = "glibc sysdeps/gnu/errlist.h; OpenSSH sshconnect.c, ssh_connect_direct()";
constexpr std::string_view kSlurmErrors = "Slurm src/common/slurm_errno.c";
constexpr std::string_view kKubernetes = "Kubernetes apimachinery pkg/api/errors; kubectl cmd/util/helpers.go";

constexpr RefusalRule kRefusals[] = {
    {"Could not resolve hostname", F::kUnknownHost, "is it spelt as the nodes' names are? `getent hosts NAME` shows what is known", "OpenSSH misc.c, sshconnect.c"},
    {"Name or service not known", F::kUnknownHost, "is it spelt as the nodes' names are? `getent hosts NAME` shows what is known", "glibc sysdeps/posix/gai_strerror"},
    {"Temporary failure in name resolution", F::kUnknownHost, "the name server does not answer", "glibc sysdeps/posix/gai_strerror"},
    {"No route to host", F::kNoRoute, "the node is down, or its network is", kStrerror},
    {"Network is unreachable", F::kNoRoute, "this machine has no route to that network", kStrerror},
    {"timed out during banner exchange", F::kConnectTimeout, "its kernel takes the connection and its sshd says nothing: the node is overloaded or frozen", "OpenSSH kex.c, kex_exchange_identification()"},
    {"banner line contains invalid", F::kConnectionLost, "another program listens at sshd's port", "OpenSSH kex.c"},
    {"Connection timed out", F::kConnectTimeout, "the node is down, or a firewall drops the connection", kStrerror},
    {"Operation timed out", F::kConnectTimeout, "the node is down, or a firewall drops the connection", kStrerror},
    {"Connection refused", F::kRefused, "the node runs, and no sshd listens there: start it, or name its port with --engine-option=-p --engine-option=PORT", kStrerror},
    {"REMOTE HOST IDENTIFICATION HAS CHANGED", F::kHostKey, "the node was installed anew, or it is another one: see known_hosts", "OpenSSH sshconnect.c"},
    {"Host key verification failed", F::kHostKey, "log in there once by hand, or add its key to known_hosts (ssh-keyscan)", "OpenSSH sshconnect.c"},
    {"Access denied by pam_slurm_adopt", F::kLogin, "Slurm lets those in who have a job there: use --slurm JOBID", "Slurm contribs/pam_slurm_adopt"},
    {"Too many authentication failures", F::kLogin, "the agent offers too many keys: --engine-option=-i --engine-option=KEY", "OpenSSH auth2.c"},
    {"Permission denied (", F::kLogin, "a key that this user's authorized_keys has there is needed: no password is asked for", "OpenSSH sshconnect2.c, userauth()"},
    {"This account is currently not available", F::kLogin, "the user has no shell there", "shadow src/nologin.c"},
    {"not responding", F::kConnectionLost, "the node stopped answering while it was asked", "OpenSSH clientloop.c, server_alive_check()"},
    {"Connection closed by", F::kConnectionLost, "the node's sshd ended the connection: its log says why (MaxStartups, access rules)", "OpenSSH packet.c"},
    {"Connection reset by", F::kConnectionLost, "the node's sshd ended the connection: its log says why (MaxStartups, access rules)", "OpenSSH packet.c"},
    {"closed by remote host", F::kConnectionLost, "", "OpenSSH packet.c"},
    {"command timeout", F::kTimeout, "", "ClusterShell Worker/Popen; pdsh src/pdsh/dsh.c"},
    {"connect timeout", F::kConnectTimeout, "the node is down, or a firewall drops the connection", "pdsh src/pdsh/dsh.c"},

    {"hydra_pmi_proxy: ", F::kNoEngine, "MPICH has to be at the same path there as here", "MPICH hydra, tools/bootstrap; the message is the shell's"},

    {"Invalid job id specified", F::kNoTarget, "`squeue --me` lists the jobs that run", kSlurmErrors},
    {"already completing or completed", F::kNoTarget, "the job has ended", kSlurmErrors},
    {"Job is pending execution", F::kNoTarget, "the job has not started yet", kSlurmErrors},
    {"Access/permission denied", F::kNotPermitted, "a step can only be added to a job of one's own: run it as the job's user", kSlurmErrors},
    {"Invalid user for SlurmUser", F::kNoEngine, "", "Slurm src/common/read_config.c"},
    {"Unable to contact slurm controller", F::kNoEngine, "slurmctld does not answer; --hosts with ssh, clush or pdsh needs no slurmctld", kSlurmErrors},
    {"Could not establish a configuration source", F::kNoEngine, "this machine has no slurm.conf", "Slurm src/common/read_config.c"},
    {"down, drained or reserved", F::kNodeDown, "`sinfo -R` says why Slurm does not use the node", kSlurmErrors},
    {"Requested nodes are busy", F::kBusy, "older Slurm has no --overlap: --via ssh needs no room in the allocation", kSlurmErrors},
    {"Step creation temporarily disabled", F::kBusy, "older Slurm has no --overlap: --via ssh needs no room in the allocation", "Slurm src/srun/libsrun/launch.c"},
    {"Memory required by task is not available", F::kBusy, "--via ssh needs no room in the allocation", kSlurmErrors},
    {"Requested node configuration is not available", F::kNoTarget, "the node is not one of the job's: `squeue -j JOBID -o %N` lists them", kSlurmErrors},
    {"Invalid node name specified", F::kNoTarget, "the node is not one of the job's: `squeue -j JOBID -o %N` lists them", kSlurmErrors},
    {"Communication connection failure", F::kNoRoute, "slurmd does not answer on the node", kSlurmErrors},
    {"Socket timed out on send/recv operation", F::kTimeout, "slurmd or slurmctld does not answer", kSlurmErrors},
    {"Unable to create step", F::kBusy, "--via ssh needs no step", "Slurm src/srun/libsrun/launch.c"},

    {"The connection to the server", F::kNoEngine, "is there a kubeconfig (KUBECONFIG, ~/.kube/config)? `kubectl cluster-info` tries the same", kKubernetes},
    {"Unable to connect to the server", F::kNoEngine, "`kubectl cluster-info` tries the same", kKubernetes},
    {"resource \"pods/exec\"", F::kNotPermitted, "a Role of the namespace has to permit it: apiGroups: [\"\"], resources: [\"pods/exec\"], verbs: [\"create\", \"get\"]", kKubernetes},
    {"resource \"pods/ephemeralcontainers\"", F::kNotPermitted, "a Role of the namespace has to permit it: apiGroups: [\"\"], resources: [\"pods/ephemeralcontainers\"], verbs: [\"patch\"]", kKubernetes},
    {"resource \"pods/attach\"", F::kNotPermitted, "a Role of the namespace has to permit it: apiGroups: [\"\"], resources: [\"pods/attach\"], verbs: [\"create\", \"get\"]", kKubernetes},
    {"cannot watch resource \"pods\"", F::kNotPermitted, "a Role of the namespace has to permit it: apiGroups: [\"\"], resources: [\"pods\"], verbs: [\"get\", \"list\", \"watch\"]", kKubernetes},
    {"violates PodSecurity", F::kNotPermitted, "the namespace's Pod Security Standard has to permit SYS_PTRACE: `privileged`", "Kubernetes pod-security-admission"},
    {"cannot list resource \"pods\"", F::kNotPermitted, "a Role of the namespace has to permit it: apiGroups: [\"\"], resources: [\"pods\"], verbs: [\"get\", \"list\"]", kKubernetes},
    {"is forbidden", F::kNotPermitted, "a Role of the namespace has to permit what the message names", kKubernetes},
    {"Error from server (NotFound)", F::kNoTarget, "the pod has ended, or is in another namespace (-n)", kKubernetes},
    {"cannot exec into a container in a completed pod", F::kNoTarget, "the pod has ended", "kubectl cmd/exec/exec.go"},
    {"does not have a host assigned", F::kNoTarget, "the pod waits for a node: `kubectl describe pod` says for what", "Kubernetes pkg/registry/core/pod"},
    {"command terminated with exit code 137", F::kConnectionLost, "the container was killed while it was asked, or the tool in it for its memory: `kubectl describe pod` says", "kubectl cmd/exec/exec.go; 128 and SIGKILL"},
    {"closed all streams", F::kConnectionLost, "kubectl lost the answer of a command that had ended at once: ask again, or set KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "client-go tools/remotecommand/websocket.go; 1.32"},
    {"container not found", F::kNoTarget, "the container has ended, or --container names another one", "Kubernetes pkg/kubelet/server"},
    {"error dialing backend", F::kNoRoute, "the API server does not reach the kubelet of the pod's node", "Kubernetes apiserver proxy"},
    {"executable file not found", F::kCannotRun, "the container has no shell: the tool can run on its node, as root", "runc libcontainer"},
    {"command that was not found", F::kCannotRun, "the container has no shell: the tool can run on its node, as root", "podman libpod/define/errors.go, ErrOCIRuntimeNotFound; 4.3"},
    {"No such container", F::kNoTarget, "`docker ps` lists those that run", "Docker daemon/errors.go"},
    {"no such container", F::kNoTarget, "`podman ps` lists those that run: root's own for root, a user's own for that user", "podman libpod/define/errors.go; 4.3"},
    {"can only create exec sessions on running containers", F::kNodeDown, "`podman ps -a` shows its state, `podman logs` what it has printed", "podman libpod/container_exec.go; 4.3"},
    {"is paused, unpause the container", F::kNodeDown, "`docker unpause` lets its processes go on", "Docker daemon/errors.go, errExecPaused(); 20.10-"},
    {"is restarting, wait until", F::kNodeDown, "its first process ends again and again: `docker logs` shows what it has printed", "Docker daemon/errors.go, containerIsRestarting; 20.10-"},
    {"Error response from daemon: Container", F::kNodeDown, "`docker ps -a` shows its state, `docker logs` what it has printed", "Docker daemon/errors.go, errNotRunning(); 20.10-24"},
    {"Error response from daemon: container", F::kNodeDown, "`docker ps -a` shows its state, `docker logs` what it has printed", "Docker daemon/errors.go, errNotRunning(); 25-"},
    {"permission denied while trying to connect to the", F::kNotPermitted, "this user may not use Docker's socket: sudo, or a user of the group docker, which has root's rights", "Docker client/request.go; 20.10-"},
    {"Cannot connect to the Docker daemon", F::kNoEngine, "dockerd does not run, or DOCKER_HOST names another one", "Docker client/errors.go; -28"},
    {"failed to connect to the docker API", F::kNoEngine, "dockerd does not run, or DOCKER_HOST names another one", "Docker client/errors.go; 28-"},
    {"unable to connect to Podman", F::kNoEngine, "`podman system connection list` shows which service CONTAINER_HOST or the default names", "podman pkg/bindings/connection.go; 4-"},
    {"Cannot connect to Podman", F::kNoEngine, "`podman system connection list` shows which service CONTAINER_HOST or the default names", "podman cmd/podman/registry; 4-"},
};
// clang-format on

}  // namespace

std::span<const EngineRule> engine_rules() { return kEngines; }

const EngineRule& rule_of(Engine engine) {
  for (const EngineRule& rule : kEngines)
    if (rule.engine == engine) return rule;
  return kEngines[0];
}

std::span<const RefusalRule> refusal_rules() { return kRefusals; }

const RefusalRule* refusal_in(std::string_view line) {
  for (const RefusalRule& rule : kRefusals)
    if (contains(line, rule.text)) return &rule;
  return nullptr;
}

}  // namespace rankstacks::known
