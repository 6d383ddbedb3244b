"""`rankstacks job --kubectl` by the real kubectl, against an API server of the test's own (kubernetes.py): the verdict of one machine, and pods that
do not answer by name."""
import json
import os
import re
import signal
import subprocess
import threading

import cases
from kubernetes import ApiServer, Pod, forbidden
from many_nodes import Ranks, ask, check_nothing_left, kill_tool, verdict_of
from nodes import Cluster, HungJob, enter_namespaces
from processes import Skip, check, json_report, tool, wait_until

# kubectl 1.31 and newer speak WebSocket unless this is said; older ones speak SPDY.
PROTOCOLS = ({}, {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false"})


def case_refusals_name_the_rule(directory):
    pods = [Pod("worker-%d" % number, message=forbidden("pods/exec", "worker-%d" % number)) for number in (0, 1)]
    with ApiServer(directory, pods) as server:
        def run(*words):
            process = subprocess.run([tool(), "job", "--kubectl"] + list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     env=server.environment, timeout=100, check=False)
            return process.returncode, process.stdout.decode(), process.stderr.decode()

        status, out, err = run("app=train", "-n", "train", "--format", "json")
        check(status == 2, "status %d: %s" % (status, err))
        nodes = json.loads(out)["nodes"]
        check([(node["name"], node["engine"], node["fault"]) for node in nodes] == [("worker-0", "kubectl", "not-permitted"), ("worker-1", "kubectl", "not-permitted")], "%r" % nodes)
        check('resources: ["pods/exec"], verbs: ["create", "get"]' in nodes[0]["hint"], "%r" % nodes)
        check(err.count("not permitted") == 1 and "2 nodes, worker-[0-1]" in err, "one line for both: %s" % err)
        check(any("labelSelector=app%3Dtrain" in path for _, path in server.asked), "%r" % server.asked)
        status, out, err = run("app=train", "-n", "closed")
        check(status == 2 and out == "" and 'resources: ["pods"], verbs: ["get", "list"]' in err, "%d %r %s" % (status, out, err))
        status, out, err = run("app=other", "-n", "train")
        check(status == 2 and out == "" and "no pod of namespace train has the labels app=other" in err, "%d %r %s" % (status, out, err))
        status, out, err = run("app=train", "-n", "train", "--print")
        check(status == 0 and out.startswith("kubectl exec -i -n train worker-0 -- sh -c "), "%d %s %s" % (status, out, err))


def case_pods_say_what_one_machine_does(directory):
    """By both protocols; then the tool is copied into the pods, through the API server."""
    with Cluster(directory, 4) as cluster, ApiServer(directory, [Pod(node.name, node) for node in cluster.nodes]) as server:
        job = HungJob(cluster, 1, blocked_rank=2)
        expected = verdict_of(json_report("attach", "--pids", *map(str, job.pids())))
        check(expected == ("culprit", [(2, "data-loading")]), "one machine: %r" % (expected,))
        for protocol in PROTOCOLS:
            server.server.spoken.clear()
            report, _ = ask("--kubectl", "app=train", "-n", "train", env=dict(server.environment, **protocol))
            check(verdict_of(report) == expected, "%r" % report["verdict"])
            check([rank["rank"] for rank in report["ranks"]] == list(range(4)), "its ranks")
            check([(node["name"], node["status"]) for node in report["nodes"]] == [(node.name, "answered") for node in cluster.nodes], "%r" % report["nodes"])
            check(not protocol or server.server.spoken == {"Spdy"}, "%r" % server.server.spoken)
            print("by %s" % " and ".join(sorted(server.server.spoken)))
            check_nothing_left(cluster)
        # Without the tool in the pods.
        program = program_that_pods_lack(directory, cluster)
        for protocol in PROTOCOLS:
            process = subprocess.run([program, "job", "--kubectl", "app=train", "-n", "train", "--format", "json"], env=dict(server.environment, **protocol),
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
            check(process.returncode == 0, "status %d: %s" % (process.returncode, process.stderr.decode()))
            check(verdict_of(json.loads(process.stdout.decode())) == expected, "with the tool copied")
            check_nothing_left(cluster)
        job.check_unharmed()


def case_pods_at_fault_are_named(directory):
    with Cluster(directory, 6) as cluster:
        pods = [Pod(node.name, node) for node in cluster.nodes]
        pods[1].phase = "Pending"
        pods[2].message = forbidden("pods/exec", pods[2].name)
        pods[3].wrapper = ["setpriv", "--inh-caps=-sys_ptrace", "--bounding-set=-sys_ptrace"]
        pods[5].phase = "Succeeded"
        job = HungJob(cluster, 1, blocked_rank=0)
        with ApiServer(directory, pods) as server:
            for protocol in PROTOCOLS:
                report, err = ask("--kubectl", "app=train", "-n", "train", env=dict(server.environment, **protocol), expect=1)
                print(err)
                check({node["name"]: node["fault"] for node in report["nodes"] if node["fault"]} ==
                      {"node-2": "no-target", "node-3": "not-permitted", "node-6": "no-target"}, "%r" % report["nodes"])
                status = {rank["rank"]: rank["status"] for rank in report["ranks"]}
                check(status == {0: "complete", 3: "failed", 4: "complete"}, "%r" % status)
                check(verdict_of(report) == ("culprit", [(0, "data-loading")]), "%r" % report["verdict"])
            job.check_unharmed()


def case_pods_without_ranks(directory):
    """A launcher's pod, and one of an earlier attempt: nothing is missing if all ranks have been seen."""
    with Cluster(directory, 3) as cluster:
        for node in cluster.nodes[1:]:
            node.name = "worker-%d" % (node.number - 2)
        launcher, *workers = cluster.nodes
        pods = [Pod("launcher", launcher), Pod("worker-old", phase="Failed")] + [Pod(node.name, node) for node in workers]
        cluster.nodes = workers
        ranks = Ranks(cluster)
        cluster.nodes = [launcher] + workers
        with ApiServer(directory, pods) as server:
            report, err = ask("--kubectl", "app=train", "-n", "train", env=server.environment)
            check({node["name"]: node["fault"] for node in report["nodes"] if node["fault"]} == {"launcher": "no-ranks", "worker-old": "no-target"}, "%r" % report["nodes"])
            check(report["problems"] == [] and err == "", "%r %s" % (report["problems"], err))
            check([rank["rank"] for rank in report["ranks"]] == [0, 1], "its ranks")
            # With a rank less they are named.
            for pid, line in workers[1].processes().items():
                if line == "sleep 100000" and pid != workers[1].init:
                    os.kill(pid, signal.SIGKILL)
            report, err = ask("--kubectl", "app=train", "-n", "train", env=server.environment, expect=1)
            check([(problem["code"], problem["nodes"]) for problem in report["problems"]] == [("no-ranks", ["launcher", "worker-1"]), ("no-target", ["worker-old"])],
                  "%r" % report["problems"])


def case_pod_that_dies_while_it_is_asked(directory):
    with Cluster(directory, 4) as cluster:
        ranks = Ranks(cluster)
        pods = [Pod(node.name, node) for node in cluster.nodes]
        for protocol in PROTOCOLS:
            last = cluster.nodes[len(pods) - 1]
            pods[-1].on_exec = lambda init=last.init: threading.Timer(1, lambda: os.kill(init, signal.SIGKILL)).start()
            with ApiServer(directory, pods) as server:
                report, err = ask("--kubectl", "app=train", "-n", "train", "--start-in", "5", env=dict(server.environment, **protocol), expect=1)
                print(err)
                check({node["name"]: node["fault"] for node in report["nodes"] if node["fault"]} == {last.name: "connection-lost"}, "%r" % report["nodes"])
                check([rank["rank"] for rank in report["ranks"]] == list(range(len(pods) - 1)), "its ranks")
            pods.pop()
            check(all(rank.poll() is None for rank in ranks.ranks[:len(pods)]), "a rank has ended")


def case_tool_that_is_killed_in_a_pod(directory):
    """As the kernel does when the container's memory is used up: the ranks live, and the verdict of the others stands."""
    with Cluster(directory, 3) as cluster:
        job = HungJob(cluster, 1, blocked_rank=0)
        pods = [Pod(node.name, node) for node in cluster.nodes]
        with ApiServer(directory, pods) as server:
            for protocol in PROTOCOLS:
                def kill_tool():
                    for pid, line in cluster.nodes[2].processes().items():
                        if "--internal-node" in line:
                            os.kill(pid, signal.SIGKILL)
                pods[2].on_exec = lambda: threading.Timer(1.5, kill_tool).start()
                report, _ = ask("--kubectl", "app=train", "-n", "train", "--start-in", "5", env=dict(server.environment, **protocol), expect=1)
                check({node["name"]: (node["fault"], node["ranks"]) for node in report["nodes"] if node["fault"]} == {"node-3": ("connection-lost", [2])}, "%r" % report["nodes"])
                check(verdict_of(report) == ("culprit", [(0, "data-loading")]), "%r" % report["verdict"])
                check_nothing_left(cluster)
        job.check_unharmed()


def case_tool_that_is_killed_leaves_nothing(directory):
    with Cluster(directory, 2) as cluster, ApiServer(directory, [Pod(node.name, node) for node in cluster.nodes]) as server:
        job = HungJob(cluster, 1)
        for protocol in PROTOCOLS:
            command = [tool(), "job", "--kubectl", "app=train", "-n", "train", "--timeout", "300", "--node-timeout", "300", "attach", "--samples", "1000", "--interval", "3"]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(server.environment, **protocol))
            wait_until(lambda: all(any("--internal-node" in line and "sh -c" not in line for line in node.processes().values()) for node in cluster.nodes), "the tool in all pods")
            kill_tool(process, cluster)
        job.check_unharmed()


def program_that_pods_lack(directory, cluster):
    """The tool in a directory that is empty in the pods."""
    own = os.path.join(directory, "bin")
    os.mkdir(own)
    program = os.path.join(own, "rankstacks")
    subprocess.run(["strip", "-o", program, tool()], check=True)
    for node in cluster.nodes:
        node.run("mount", "-t", "tmpfs", "tmpfs", own)
    return program


def needs_profiles():
    version = subprocess.run(["kubectl", "version", "--client"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout.decode()
    found = re.search(r"v1\.(\d+)", version)
    if not found or int(found.group(1)) < 27:
        raise Skip("this kubectl has no profiles: 1.27 and newer have")


def case_ephemeral_containers(directory):
    """Where a pod's own container may not trace: one container for each pod, which gets the tool, and nothing that it says is lost."""
    with Cluster(directory, 3) as cluster:
        pods = [Pod(node.name, node, message=forbidden("pods/exec", node.name)) for node in cluster.nodes]
        pods[2].message = forbidden("pods/ephemeralcontainers", pods[2].name, "patch")
        with ApiServer(directory, pods) as server:
            needs_profiles()
            for pod in pods[:2]:
                pod.message = None
            program = program_that_pods_lack(directory, cluster)
            job = HungJob(cluster, 1, blocked_rank=1)
            command = [program, "job", "--kubectl", "app=train", "-n", "train", "--container", "main", "--debug-image", "tools:1"]
            for protocol in PROTOCOLS:
                process = subprocess.run(command + ["--format", "json"], env=dict(server.environment, **protocol), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, timeout=120, check=False)
                report = json.loads(process.stdout.decode())
                check(process.returncode == 1, "status %d: %s" % (process.returncode, process.stderr.decode()))
                check([(node["engine"], node["fault"]) for node in report["nodes"]] == [("kubectl debug", None)] * 2 + [("kubectl debug", "not-permitted")], "%r" % report["nodes"])
                check('resources: ["pods/ephemeralcontainers"], verbs: ["patch"]' in report["nodes"][2]["hint"], "%r" % report["nodes"])
                check(verdict_of(report) == ("culprit", [(1, "data-loading")]), "%r" % report["verdict"])
                for pod in pods[:2]:
                    (container,) = pod.added
                    check((container["image"], container["targetContainerName"], container["stdin"]) == ("tools:1", "main", True), "%r" % container)
                    check(container["securityContext"] == {"capabilities": {"add": ["SYS_PTRACE"]}}, "%r" % container)
                    pod.added = []
                check_nothing_left(cluster)
            job.check_unharmed()
            printed = subprocess.run(command + ["--print"], env=server.environment, stdout=subprocess.PIPE, timeout=60, check=True).stdout.decode()
            check(printed.startswith("kubectl debug -i --quiet -n train --image=tools:1 --target=main --profile=general node-1 -- timeout -s KILL 105 sh -c "), printed)
            refused = subprocess.run(command[:6] + ["--debug-image", "x"], env=server.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
            check(refused.returncode == 2 and b"needs --container NAME" in refused.stderr, "%r" % refused)


def case_kubectl_without_profiles(directory):
    with ApiServer(directory, []) as server:
        script = os.path.join(directory, "kubectl")
        with open(script, "w", encoding="ascii") as out:
            out.write("#!/bin/sh\ncase $1 in\nversion) echo 'Client Version: version.Info{Major:\"1\", Minor:\"20+\", GitVersion:\"v1.20.2\"}' ;;\n*) echo pod/a ;;\nesac\n")
        os.chmod(script, 0o755)
        environment = dict(server.environment, PATH=directory + ":" + os.environ["PATH"])
        refused = subprocess.run([tool(), "job", "--kubectl", "a=b", "--container", "c", "--debug-image", "x"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 timeout=60, check=False)
        check(refused.returncode == 2 and b"kubectl 1.20 has no `kubectl debug --profile`" in refused.stderr, "%r" % refused)


if __name__ == "__main__":
    enter_namespaces()
    cases.run(globals(), "kubectl")
