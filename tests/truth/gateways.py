"""`rankstacks job` through a tree of clush's: its gateways ask the nodes behind them and merge the answers."""
import os
import shutil
import subprocess

import cases
from many_nodes import AS_ANOTHER_USER, Ranks, ask, check_nothing_left, kill_tool, started_with_nodes, verdict_of
from nodes import Cluster, HungJob, enter_namespaces, needs, run
from processes import check, json_report, tool


class Tree(Cluster):
    """Nodes that the front end reaches by `routes` alone: it has no way to those that are behind gateways."""

    def __init__(self, directory, count, routes, behind):
        needs("clush")
        super().__init__(directory, count)
        configuration = os.path.join(directory, "clustershell")
        shutil.copytree("/etc/clustershell", configuration)
        with open(os.path.join(configuration, "topology.conf"), "w", encoding="ascii") as out:
            out.write("[routes]\n" + routes)
        run("mount", "--bind", configuration, "/etc/clustershell")
        for node in self.nodes:
            node.run("mount", "--bind", configuration, "/etc/clustershell")
            node.start_sshd()
            if node.number in behind:
                run("ip", "route", "add", "unreachable", node.address + "/32")


TWO_GATEWAYS = "front: node-[1-2]\nnode-[1-2]: node-[3-6]\n"


def faults_of(report):
    return {node["name"]: node["fault"] for node in report["nodes"] if node["fault"]}


def case_gateways_ask_the_nodes_behind_them(directory):
    with Tree(directory, 6, TWO_GATEWAYS, (3, 4, 5, 6)) as cluster:
        job = HungJob(cluster, 2, blocked_rank=9)
        expected = verdict_of(json_report("attach", "--pids", *map(str, job.pids())))
        check(expected == ("culprit", [(9, "data-loading")]), "one machine: %r" % (expected,))
        report, _ = ask("--hosts", cluster.names())
        check(verdict_of(report) == expected, "%r" % report["verdict"])
        check([rank["rank"] for rank in report["ranks"]] == list(range(12)), "its ranks")
        check([(node["name"], node["status"], node["engine"], node["ranks"]) for node in report["nodes"]] ==
              [("node-%d" % n, "answered", "clush", []) for n in range(1, 7)], "%r" % report["nodes"])
        check(all(abs(node["clock_offset_ms"]) <= node["clock_error_ms"] for node in report["nodes"]), "one clock: %r" % report["nodes"])
        check(all(node["late_ms"] is not None for node in report["nodes"]), "one start: %r" % report["nodes"])
        print("late: %r" % [node["late_ms"] for node in report["nodes"]])
        shown = subprocess.run([tool(), "job", "--hosts", cluster.names(), "--print"], stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()
        asked = [line for line in shown.splitlines() if " -w " in line and "gzip" not in line]
        check(len(asked) == 3 and "node-[1-2]" in asked[0] and "node-[3-4]" in asked[1] and "node-[5-6]" in asked[2], shown)
        job.check_unharmed()
        check_nothing_left(cluster)


def case_nodes_behind_gateways_are_named(directory):
    with Tree(directory, 6, TWO_GATEWAYS, (3, 4, 5, 6)) as cluster:
        job = HungJob(cluster, 1, blocked_rank=1)
        cluster.nodes[2].stop_sshd()
        cluster.nodes[5].run("ip", "link", "set", "eth0", "down")
        report, err = ask("--hosts", cluster.names(), "--connect-timeout", "5", expect=1)
        # As long as the gateway's kernel looks for its address, it is a timeout.
        check(faults_of(report) in [{"node-3": "connection-refused", "node-6": fault} for fault in ("no-route", "connect-timeout")], "%r" % report["nodes"])
        check([node["ranks"] for node in report["nodes"]] == [[], [], [2], [], [], [5]], "%r" % report["nodes"])
        check("node-3 (rank 2): clush: connection refused" in err, err)
        check(verdict_of(report) == ("culprit", [(1, "data-loading")]), "%r" % report["verdict"])
        cluster.nodes[5].run("ip", "link", "set", "eth0", "up")
        cluster.nodes[2].start_sshd()
        # A gateway that is gone: the other one asks for it as well.
        cluster.nodes[0].stop_sshd()
        report, _ = ask("--hosts", cluster.names(), expect=1)
        check(faults_of(report) == {"node-1": "connection-refused"} and report["nodes"][0]["ranks"] == [0], "%r" % report["nodes"])
        check([rank["rank"] for rank in report["ranks"] if rank["threads"]] == [1, 2, 3, 4, 5], "its ranks")
        check(verdict_of(report) == ("culprit", [(1, "data-loading")]), "%r" % report["verdict"])
        # Both: nobody can say anything of the nodes behind them, which are no suspects for that.
        cluster.nodes[1].stop_sshd()
        report, err = ask("--hosts", cluster.names(), "--connect-timeout", "5", expect=2)
        check(faults_of(report) == {"node-%d" % n: "connection-refused" for n in range(1, 7)}, "%r" % report["nodes"])
        check("its gateway node-1: " in report["nodes"][2]["message"], "%r" % report["nodes"])
        # From where they can be reached directly they are.
        run("ip", "route", "del", "unreachable", "10.77.0.5/32")
        report, err = ask("--hosts", cluster.names(), "--connect-timeout", "5", expect=1)
        check([rank["rank"] for rank in report["ranks"] if rank["threads"]] == [4], "its ranks: %s" % err)
        job.check_unharmed()
        check_nothing_left(cluster)


def case_nodes_behind_a_dead_gateway_are_no_suspects(directory):
    with Tree(directory, 5, "front: node-[1-2]\nnode-2: node-[3-5]\n", (3, 4, 5)) as cluster:
        job = HungJob(cluster, 1, blocked_rank=3)
        cluster.nodes[1].run("ip", "link", "set", "eth0", "down")
        report, _ = ask("--hosts", cluster.names(), "--connect-timeout", "4", expect=1)
        faults = faults_of(report)
        check(faults.pop("node-2") in ("no-route", "connect-timeout"), "%r" % report["nodes"])
        check(faults == {"node-%d" % n: "connection-lost" for n in (3, 4, 5)}, "%r" % report["nodes"])
        check(all(node["message"].startswith("its gateway node-2: ") for node in report["nodes"][2:]), "%r" % report["nodes"])
        check([node["ranks"] for node in report["nodes"]] == [[], [1], [2], [3], [4]], "%r" % report["nodes"])
        # The gateway's own rank may be the cause; of the others nothing is known.
        check({suspect["rank"] for suspect in report["verdict"]["suspects"]} <= {1}, "%r" % report["verdict"])
        job.check_unharmed()
        check_nothing_left(cluster)


def case_gateway_that_does_not_begin(directory):
    """It takes the connection and then nothing happens: the other one asks for it."""
    with Tree(directory, 6, TWO_GATEWAYS, (3, 4, 5, 6)) as cluster:
        ranks = Ranks(cluster)
        cluster.nodes[0].stop_sshd()
        cluster.nodes[0].start_sshd("ForceCommand sleep 100")
        report, _ = ask("--hosts", "node-[3-6]", "--connect-timeout", "3", "attach", "--samples", "1")
        check([rank["rank"] for rank in report["ranks"] if rank["threads"]] == [2, 3, 4, 5] and not faults_of(report), "%r" % report["nodes"])
        check(all(rank.poll() is None for rank in ranks.ranks), "a rank has ended")
        check_nothing_left(cluster)


def case_gateway_that_cannot_log_in(directory):
    """It runs as a user who does not know the nodes' keys: this machine asks those that it can reach itself."""
    with Tree(directory, 6, "front: node-1\nnode-1: node-[2-5]\n", (5,)) as cluster:
        ranks = Ranks(cluster)
        cluster.nodes[0].stop_sshd()
        cluster.nodes[0].start_sshd('ForceCommand exec %s sh -c "$SSH_ORIGINAL_COMMAND"' % AS_ANOTHER_USER)
        cluster.nodes[3].stop_sshd()
        report, _ = ask("--hosts", "node-[2-6]", "attach", "--samples", "1", expect=1)
        check([rank["rank"] for rank in report["ranks"] if rank["threads"]] == [1, 2, 5], "its ranks: %r" % report["nodes"])
        check(faults_of(report) == {"node-4": "connection-refused", "node-5": "host-key"}, "%r" % report["nodes"])
        check([node["engine"] for node in report["nodes"]] == ["ssh", "ssh", "clush", "clush", "clush"], "%r" % report["nodes"])
        late = [node["late_ms"] for node in report["nodes"] if node["status"] == "answered"]
        check(None not in late and min(late[:2]) > 500 and min(late[:2]) > late[2], "node-6 is asked by no gateway: %r" % report["nodes"])
        check(all(rank.poll() is None for rank in ranks.ranks), "a rank has ended")
        check_nothing_left(cluster)


def case_tool_is_taken_through_gateways(directory):
    """Three levels, and a tool that no node has."""
    with Tree(directory, 4, "front: node-1\nnode-1: node-2\nnode-2: node-[3-4]\n", (2, 3, 4)) as cluster:
        own = os.path.join(directory, "bin")
        os.mkdir(own)
        program = os.path.join(own, "rankstacks")
        run("strip", "-o", program, tool())
        for node in cluster.nodes:
            node.run("mount", "-t", "tmpfs", "tmpfs", own)
        ranks = Ranks(cluster)
        report, _ = ask("--hosts", "node-[2-4]", "attach", "--samples", "1", program=program)
        check([rank["rank"] for rank in report["ranks"]] == [1, 2, 3], "its ranks: %r" % report["nodes"])
        check([node["status"] for node in report["nodes"]] == ["answered"] * 3, "%r" % report["nodes"])
        check_nothing_left(cluster)
        report, _ = ask("--hosts", "node-[3-4]", "--no-copy", "attach", "--samples", "1", program=program, expect=2)
        check(faults_of(report).keys() == {"node-3", "node-4"}, "%r" % report["nodes"])
        check("its gateway node-1: " in report["nodes"][0]["message"], "%r" % report["nodes"])
        check_nothing_left(cluster)
        check(all(rank.poll() is None for rank in ranks.ranks), "a rank has ended")


def case_tool_that_is_killed_leaves_nothing_behind_gateways(directory):
    with Tree(directory, 4, "front: node-1\nnode-1: node-[2-4]\n", (2, 3, 4)) as cluster:
        ranks = Ranks(cluster)
        process = started_with_nodes(cluster, "--hosts", "node-[1-4]")
        kill_tool(process, cluster)
        check(all(rank.poll() is None for rank in ranks.ranks), "a rank has ended")


if __name__ == "__main__":
    enter_namespaces()
    cases.run(globals(), "gateways")
