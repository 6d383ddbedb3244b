#include "nodes/engine_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <catch2/catch.hpp>

#include "nodes/choose_engine.h"
#include "nodes/node_script.h"

namespace rankstacks::nodes {
namespace {

using known::Engine;

std::string call(Engine engine, std::vector<std::string> hosts, bool with_input = false) {
  EngineSettings settings;
  settings.engine = engine;
  settings.job = "4711";
  settings.space = "train";
  settings.options = {"--own", "a b"};
  return shown_call(engine_call(settings, hosts, {"sh", "-c", "echo $1", "it's"}, with_input));
}

TEST_CASE("the calls of engines") {
  CHECK(call(Engine::kSsh, {"n1"}) ==
        "ssh -x -a -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3 -n --own "
        "'a b' n1 'sh -c '\\''echo $1'\\'' '\\''it'\\''\\'\\'''\\''s'\\'''");
  CHECK(call(Engine::kClush, {"n1", "n2", "n4"})
            .starts_with("clush --color=never -f 64 -t 10 -u 45 --nostdin --own 'a b' "
                         "-w 'n[1-2,4]' "));
  CHECK(call(Engine::kClush, {"n1"}, true).starts_with("clush --color=never -f 64 -t 10 -u 45 --own 'a b' -w n1 "));
  CHECK(call(Engine::kPdsh, {"n1", "n2"}).starts_with("pdsh -R ssh -f 64 -t 10 -u 45 --own 'a b' -w 'n[1-2]' "));
  CHECK(
      call(Engine::kSrun, {"n1", "n2"}) ==
      "srun --jobid=4711 --overlap --gres=none --mem=0 --cpu-bind=none --mpi=none --nodes=2 --ntasks=2 "
      "--ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 --input=none --own 'a b' '--nodelist=n[1-2]' sh -c 'echo $1' "
      "'it'\\''s'");
  CHECK(call(Engine::kMpirun, {"n1", "n2"})
            .starts_with(
                "mpirun --host n1:1,n2:1 -np 2 --map-by ppr:1:node --bind-to none --oversubscribe --own 'a b' sh "));
  CHECK(call(Engine::kMpich, {"n1", "n2"}).starts_with("mpirun -hosts n1,n2 -ppn 1 -n 2 --own 'a b' sh "));
  CHECK(call(Engine::kFlux, {"n1"}).starts_with("flux exec -r all --noinput --own 'a b' sh "));
  CHECK(call(Engine::kKubectl, {"pod-0"}, true).starts_with("kubectl exec -i -n train --own 'a b' pod-0 -- sh "));
  CHECK(call(Engine::kDocker, {"train-0"}, true).starts_with("docker exec -i --own 'a b' train-0 sh -c "));
  CHECK(call(Engine::kPodman, {"train-0"}, true).starts_with("podman exec -i --own 'a b' train-0 sh -c "));
}

TEST_CASE("what runs on a node fits into one word of any shell") {
  for (const auto& words : {find_and_run({"/t", "00", 1}, {"n", std::chrono::seconds(5), {}, {"attach"}}),
                            copy_and_run({"/t", "00", 1}, {"n", std::chrono::seconds(5), {}, {"attach"}})}) {
    CHECK(words[0] == "sh");
    CHECK(words[2].find_first_of("'\\!%\n") == std::string::npos);
    CHECK(words.back() == "attach");
  }
}

TEST_CASE("versions of Slurm") {
  CHECK(knows_overlap("slurm-wlm 22.05.8"));
  CHECK(knows_overlap("slurm 20.11.0"));
  CHECK_FALSE(knows_overlap("slurm 20.02.7"));
  CHECK_FALSE(knows_overlap("slurm 19.05"));
  CHECK(knows_overlap("slurm"));
  CHECK(kubectl_minor("Client Version: v1.32.4-dispatcher\nKustomize Version: v5.5.0\n") == 32);
  CHECK(kubectl_minor(R"(Client Version: version.Info{Major:"1", Minor:"20+", GitVersion:"v1.20.2"})") == 20);
  CHECK_FALSE(kubectl_minor("Client Version: v1."));
  CHECK_FALSE(kubectl_minor(""));
}

TEST_CASE("the containers of a filter") {
  CHECK(shown_call(containers_command(known::rule_of(Engine::kPodman), "label=job=4711")) ==
        "podman ps --filter=label=job=4711 '--format={{.Names}}'");
  const auto names = [](std::string_view text) {
    const auto found = parse_containers(text, "label=a");
    return found ? fmt::format("{}", fmt::join(*found, " ")) : found.error().message();
  };
  CHECK(names("train-10\ntrain-9\nother\ntrain-2,other/alias\n") == "other train-2 train-9 train-10");
  CHECK(names("").starts_with("label=a: no container that runs fits this filter"));
  CHECK(names("--privileged\n") == "host list: \"--privileged\" is no name of a host");
}

// Each line as an engine has printed it, or as its source has it.
TEST_CASE("what engines of containers refuse") {
  const auto fault = [](std::string_view line) {
    const known::RefusalRule* rule = known::refusal_in(line);
    return rule == nullptr ? NodeFault::kNone : rule->fault;
  };
  const std::string id = "6c42a90334267bae3de414fa5e6c7e2004e4e0b6646baa093fdf047003a1e797";
  CHECK(fault("Error: no container with name or ID \"t7\" found: no such container") == NodeFault::kNoTarget);
  CHECK(fault("Error: can only create exec sessions on running containers: container state improper") ==
        NodeFault::kNodeDown);
  CHECK(fault("Error: crun: executable file `sh` not found in $PATH: No such file or directory: OCI runtime attempted "
              "to invoke a command that was not found") == NodeFault::kCannotRun);
  CHECK(fault("Error: unable to connect to Podman socket: dial unix /run/podman/podman.sock: connect: no such file") ==
        NodeFault::kNoEngine);
  CHECK(fault("Error response from daemon: No such container: d9") == NodeFault::kNoTarget);
  CHECK(fault("Error response from daemon: Container " + id + " is not running") == NodeFault::kNodeDown);
  CHECK(fault("Error response from daemon: container " + id + " is not running") == NodeFault::kNodeDown);
  CHECK(known::refusal_in("Error response from daemon: Container d0 is paused, unpause the container before exec")
            ->hint.starts_with("`docker unpause`"));
  CHECK(known::refusal_in("Error response from daemon: Container " + id +
                          " is restarting, wait until the container is running")
            ->hint.starts_with("its first process ends"));
  CHECK(fault("OCI runtime exec failed: exec failed: unable to start container process: exec: \"sh\": executable file "
              "not found in $PATH: unknown") == NodeFault::kCannotRun);
  CHECK(fault("Got permission denied while trying to connect to the Docker daemon socket at unix:///run/docker.sock") ==
        NodeFault::kNotPermitted);
  CHECK(fault("permission denied while trying to connect to the docker API at unix:///var/run/docker.sock") ==
        NodeFault::kNotPermitted);
  CHECK(fault("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?") ==
        NodeFault::kNoEngine);
}

TEST_CASE("what squeue says") {
  const auto nodes = [](std::string_view text) {
    const auto steps = parse_squeue(text, "12");
    if (!steps) return steps.error().message();
    std::string all;
    for (const SlurmStep& step : *steps) all += fmt::format("{}:{} ", step.id, step.hosts.size());
    return all;
  };
  CHECK(nodes("12|12|RUNNING|n[1-3]\n") == "12:3 ");
  CHECK(nodes("12+0|12|RUNNING|n1\n12+1|13|RUNNING|n[2-3]\n") == "12:1 13:2 ");
  CHECK(nodes("12_3|15|RUNNING|n1\n") == "15:1 ");
  CHECK(nodes("12_3|15|RUNNING|n1\n12_4|16|RUNNING|n2\n") ==
        "Slurm's job 12: an array, of which several tasks run: 12_3, 12_4");
  CHECK(nodes("12|12|PENDING|\n") == "Slurm's job 12: does not run: PENDING");
  CHECK(nodes("") == "Slurm's job 12: squeue lists no such job");
  CHECK(nodes("12|12|RUNNING|n[1-\n") == "host list: \"n[1-\": a bracket is not closed");
}

}  // namespace
}  // namespace rankstacks::nodes
