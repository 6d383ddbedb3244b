#include "nodes/engine_call.h"

#include <fmt/format.h>
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
