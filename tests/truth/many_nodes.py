"""`rankstacks job` on nodes in namespaces, by real engines: the verdict of one machine, and nodes that do not answer by name."""
import json
import os
import shutil
import subprocess
import sys

import cases
import schema
from nodes import Cluster, HungJob, enter_namespaces, needs
from processes import check, json_report, tool, wait_until


def ask(*arguments, expect=0, seconds=120, **options):
    """(report, stderr) of `rankstacks job`."""
    command = [tool(), "job"] + list(arguments) + ["--format", "json"]
    process = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds, check=False, **options)
    err = process.stderr.decode(errors="replace")
    check(process.returncode == expect, "exit status %d instead of %d of %s:\n%s" % (process.returncode, expect, " ".join(command), err))
    report = json.loads(process.stdout.decode("utf-8"))
    errors = schema.errors_in(report)
    check(not errors, "the report is not as docs/json.md describes it:\n  " + "\n  ".join(errors[:20]))
    return report, err


def verdict_of(report):
    verdict = report["verdict"]
    return verdict["status"], sorted((suspect["rank"], suspect["reason"]) for suspect in verdict["suspects"])


def check_nothing_left(cluster):
    """No process of the tool or of an engine is left on a node: those that end are waited for."""
    def left():
        words = ("--internal-node", "rankstacks", "sshd: root")
        return ["%s: %s" % (node.name, line) for node in cluster.nodes for line in node.processes().values() if any(word in line for word in words)]
    try:
        wait_until(lambda: not left(), "the end of what was started on the nodes", 20)
    finally:
        print("left on nodes: %s" % left())
    for place in ("/tmp", "/var/tmp", "/dev/shm"):
        found = [name for name in os.listdir(place) if name.startswith("rankstacks.")]
        check(not found, "left in %s: %s" % (place, found))


def case_every_engine_says_what_one_machine_does(directory):
    with Cluster(directory, 4) as cluster:
        for node in cluster.nodes:
            node.start_sshd()
        job = HungJob(cluster, 2, blocked_rank=5)
        expected = verdict_of(json_report("attach", "--pids", *map(str, job.pids())))
        check(expected == ("culprit", [(5, "data-loading")]), "one machine: %r" % (expected,))
        engines = [engine for engine in ("ssh", "clush", "pdsh", "mpirun") if shutil.which(engine)]
        environment = dict(os.environ, OMPI_MCA_btl_tcp_if_include="10.77.0.0/24", OMPI_MCA_oob_tcp_if_include="10.77.0.0/24")
        for engine in engines:
            report, _ = ask("--hosts", cluster.names(), "--via", engine, env=environment)
            check(verdict_of(report) == expected, "%s: %r" % (engine, report["verdict"]))
            check([rank["rank"] for rank in report["ranks"]] == list(range(8)), "%s: its ranks" % engine)
            check({rank["host"] for rank in report["ranks"]} == {node.name for node in cluster.nodes}, "%s: its hosts" % engine)
            check([node["status"] for node in report["nodes"]] == ["answered"] * 4, "%s: %r" % (engine, report["nodes"]))
            job.check_unharmed()
            check_nothing_left(cluster)
        print("engines: %s" % ", ".join(engines))


def case_nodes_that_do_not_answer_are_named(directory):
    with Cluster(directory, 6) as cluster:
        for node in cluster.nodes:
            node.start_sshd(*(["AllowUsers nobody"] if node.number == 5 else []))
        job = HungJob(cluster, 1, blocked_rank=0)
        stopped, frozen, _, unplugged = cluster.nodes[2:6]
        stopped.stop_sshd()
        frozen.freeze_sshd()
        unplugged.run("ip", "link", "set", "eth0", "down")
        expected = {"node-3": "connection-refused", "node-4": "connect-timeout", "node-5": "login-denied", "node-6": "no-route"}
        for engine in [engine for engine in ("ssh", "clush", "pdsh") if shutil.which(engine)]:
            report, err = ask("--hosts", cluster.names(), "--via", engine, "--connect-timeout", "4", "--timeout", "40", expect=1)
            check({node["name"]: node["fault"] for node in report["nodes"] if node["fault"]} == expected, "%s: %r" % (engine, report["nodes"]))
            check({node["name"]: node["ranks"] for node in report["nodes"] if node["fault"]} == {name: [int(name[-1]) - 1] for name in expected},
                  "%s: ranks of silent nodes: %r" % (engine, report["nodes"]))
            check(verdict_of(report) == ("culprit", [(0, "data-loading")]), "%s: %r" % (engine, report["verdict"]))
            check([(problem["code"], problem["nodes"]) for problem in report["problems"]] == [(code, [name]) for name, code in sorted(expected.items())],
                  "%s: %r" % (engine, report["problems"]))
            check(all(name in err for name in expected), "stderr: %s" % err)
        job.check_unharmed()


if __name__ == "__main__":
    enter_namespaces()
    cases.run(globals(), "many-nodes")
