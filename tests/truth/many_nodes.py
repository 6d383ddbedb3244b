"""`rankstacks job` on nodes in namespaces, by real engines: the verdict of one machine, and nodes that do not answer by name."""
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import cases
import debugger
import schema
from nodes import Cluster, HungJob, Slurm, SlurmJob, enter_namespaces, needs, run
from processes import check, json_report, run_tool, state_of, tool, wait_until


def ask(*arguments, expect=0, seconds=120, program=None, **options):
    """(report, stderr) of `rankstacks job`."""
    command = [program or tool(), "job"] + list(arguments) + ["--format", "json"]
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


def left_on(cluster):
    """The processes of the tool or of an engine on the nodes."""
    words = ("--internal-node", "rankstacks", "sshd: root")
    return ["%s: %s" % (node.name, line) for node in cluster.nodes for line in node.processes().values() if any(word in line for word in words)]


def check_nothing_left(cluster):
    """No process of the tool or of an engine is left on a node: those that end are waited for."""
    try:
        wait_until(lambda: not left_on(cluster), "the end of what was started on the nodes", 20)
    finally:
        print("left on nodes: %s" % left_on(cluster))
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


def mpich_environment(directory):
    """One in which `mpirun` is MPICH's: Debian's is Open MPI's where both are installed. Hydra looks for its proxy on the nodes at its own path."""
    needs("mpiexec.hydra")
    own = os.path.join(directory, "mpich")
    os.mkdir(own)
    with open(os.path.join(own, "mpirun"), "w", encoding="ascii") as out:
        out.write('#!/bin/sh\nexec %s "$@"\n' % os.path.realpath(shutil.which("mpiexec.hydra")))
    os.chmod(out.name, 0o755)
    return dict(os.environ, PATH=own + ":" + os.environ["PATH"])


def kill_tool(process, cluster):
    """Kills the tool while it asks nodes: nothing that it has started stays, here or there."""
    engines = children_of(process.pid)
    check(engines, "no engine runs")
    process.kill()
    process.communicate()
    wait_until(lambda: all(state_of(pid) in ("gone", "Z") for pid in engines), "the end of its processes here")
    check_nothing_left(cluster)


def case_mpich_says_what_one_machine_does(directory):
    with Cluster(directory, 4) as cluster:
        environment = mpich_environment(directory)
        for node in cluster.nodes:
            node.start_sshd()
        job = HungJob(cluster, 2, blocked_rank=5)
        report, _ = ask("--hosts", cluster.names(), "--via", "mpirun", env=environment)
        check(verdict_of(report) == ("culprit", [(5, "data-loading")]), "%r" % report["verdict"])
        check([rank["rank"] for rank in report["ranks"]] == list(range(8)), "its ranks")
        check([node["status"] for node in report["nodes"]] == ["answered"] * 4, "%r" % report["nodes"])
        check_nothing_left(cluster)
        # hydra waits for ever for the proxy of a node that cannot be reached: the others have answered before.
        cluster.nodes[1].stop_sshd()
        begin = time.monotonic()
        report, err = ask("--hosts", cluster.names(), "--via", "mpirun", env=environment, expect=1)
        seconds = time.monotonic() - begin
        check(seconds < 40, "%.1f s" % seconds)
        check({node["name"]: node["fault"] for node in report["nodes"] if node["fault"]} == {"node-2": "connection-refused"}, "%r" % report["nodes"])
        check(report["nodes"][1]["ranks"] == [2, 3] and verdict_of(report) == ("culprit", [(5, "data-loading")]), "%r %r" % (report["nodes"][1], report["verdict"]))
        check("node-2 (ranks 2-3): mpirun: connection refused" in err, err)
        check_nothing_left(cluster)
        # The tool that is killed while nodes sample.
        cluster.nodes[1].start_sshd()
        process = started_with_nodes(cluster, "--hosts", cluster.names(), "--via", "mpirun", env=environment)
        kill_tool(process, cluster)
        job.check_unharmed()


def case_mpich_that_the_nodes_lack(directory):
    with Cluster(directory, 2) as cluster:
        environment = mpich_environment(directory)
        for node in cluster.nodes:
            node.start_sshd()
        # Hydra's own directory is the one in which it was called.
        own = os.path.join(directory, "elsewhere")
        os.mkdir(own)
        os.symlink(shutil.which("mpiexec.hydra"), os.path.join(own, "mpirun"))
        environment["PATH"] = own + ":" + environment["PATH"]
        report, _ = ask("--hosts", cluster.names(), "--via", "mpirun", "--node-timeout", "3", "--connect-timeout", "1", env=environment, expect=2)
        check([node["fault"] for node in report["nodes"]] == ["no-engine"] * 2, "%r" % report["nodes"])
        check_nothing_left(cluster)


def case_slurm_says_what_one_machine_does(directory):
    with Cluster(directory, 4) as cluster, Slurm(cluster) as slurm:
        job = SlurmJob(cluster, slurm, 2, blocked_rank=5)
        environment = slurm.environment
        report, _ = ask("--slurm", job.number, env=environment)
        check([node["engine"] for node in report["nodes"]] == ["srun"] * 4, "%r" % report["nodes"])
        check(verdict_of(report) == ("culprit", [(5, "data-loading")]), "%r" % report["verdict"])
        check([rank["rank"] for rank in report["ranks"]] == list(range(8)), "its ranks")
        wait_until(lambda: slurm.steps(job.number) == ["%s.0" % job.number], "the end of the tool's step")
        # A node whose slurmd is gone is named, and the verdict of the rest stands.
        slurm.stop_slurmd(cluster.nodes[0])
        report, _ = ask("--slurm", job.number, "--timeout", "50", "--node-timeout", "20", env=environment, expect=1)
        check([(node["name"], node["status"]) for node in report["nodes"]] == [("node-1", "silent")] + [("node-%d" % n, "answered") for n in (2, 3, 4)],
              "%r" % report["nodes"])
        check(report["nodes"][0]["ranks"] == [0, 1] and verdict_of(report) == ("culprit", [(5, "data-loading")]), "%r %r" % (report["nodes"][0], report["verdict"]))
        print("node-1: %s: %s" % (report["nodes"][0]["fault"], report["nodes"][0]["message"]))
        refused = subprocess.run([tool(), "job", "--slurm", "99999"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
        check(refused.returncode == 2 and refused.stdout == b"" and b"Invalid job id" in refused.stderr, "%r" % refused)


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


WITHOUT_PTRACE = "setpriv --inh-caps=-sys_ptrace --bounding-set=-sys_ptrace"
AS_ANOTHER_USER = "setpriv --reuid=65534 --regid=65534 --clear-groups"


def case_nodes_that_deny_the_look(directory):
    """Ranks that may not be traced on some nodes, and are another user's on others: a line for each kind, and the verdict of the rest."""
    with Cluster(directory, 6) as cluster:
        for node in cluster.nodes:
            denies = WITHOUT_PTRACE if node.number in (2, 3) else AS_ANOTHER_USER if node.number in (4, 5) else None
            node.start_sshd(*(['ForceCommand exec %s sh -c "$SSH_ORIGINAL_COMMAND"' % denies] if denies else []))
        job = HungJob(cluster, 1, blocked_rank=0)
        for engine in [engine for engine in ("ssh", "clush", "pdsh") if shutil.which(engine)]:
            report, err = ask("--hosts", cluster.names(), "--via", engine, expect=1)
            check({node["name"]: (node["fault"], node["ranks"]) for node in report["nodes"] if node["fault"]} ==
                  {"node-4": ("not-permitted", [3]), "node-5": ("not-permitted", [4])}, "%s: %r" % (engine, report["nodes"]))
            check({rank["rank"]: rank["status"] for rank in report["ranks"]} == {0: "complete", 1: "failed", 2: "failed", 5: "complete"}, "%r" % report["ranks"])
            check(verdict_of(report) == ("culprit", [(0, "data-loading")]), "%s: %r" % (engine, report["verdict"]))
            check(err.count("rankstacks: ") == 2 and "2 nodes, node-[4-5] (ranks 3-4)" in err and
                  "ranks 1-2 on 2 nodes, node-[2-3]: cannot be attached to" in err, "%s: %s" % (engine, err))
        job.check_unharmed()


def case_rank_that_dies_while_it_is_looked_at(directory):
    with Cluster(directory, 3) as cluster:
        for node in cluster.nodes:
            node.start_sshd()
        ranks = Ranks(cluster)
        victim = children_of(ranks.ranks[1].pid)[0]
        command = [tool(), "job", "--hosts", cluster.names(), "--via", "ssh", "--format", "json", "--start-in", "0", "attach", "--samples", "6", "--interval", "1"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: any("--for-node" in line and "--internal-node" not in line for line in cluster.nodes[1].processes().values()), "the tool on node-2")
        time.sleep(1.5)
        os.kill(victim, signal.SIGKILL)
        out, err = process.communicate(timeout=100)
        report = json.loads(out.decode())
        check(process.returncode == 1, "status %d: %s" % (process.returncode, err))
        check([node["fault"] for node in report["nodes"]] == [None] * 3, "%r" % report["nodes"])
        status = {rank["rank"]: rank["status"] for rank in report["ranks"]}
        check(status[0] == status[2] == "complete" and status[1] in ("partial", "failed"), "%r" % status)
        check("rank 1 on node-2: it ended while it was looked at" in err.decode(), "%r" % err)
        check(all(rank.poll() is None for rank in (ranks.ranks[0], ranks.ranks[2])), "a rank has ended")


def case_no_room_for_the_tool(directory):
    """A node that lacks the tool, and whose disks are full: it is named, and the verdict of the rest stands."""
    with Cluster(directory, 3) as cluster:
        own = os.path.join(directory, "bin")
        os.mkdir(own)
        program = os.path.join(own, "rankstacks")
        run("strip", "-o", program, tool())
        for node in cluster.nodes:
            node.start_sshd()
        job = HungJob(cluster, 1, blocked_rank=0)
        for place in (own, "/tmp", "/var/tmp", "/dev/shm", "/root"):
            cluster.nodes[1].run("mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", place)
        command = [program, "job", "--hosts", cluster.names(), "--via", "ssh", "--format", "json"]
        process = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
        report = json.loads(process.stdout.decode())
        check(process.returncode == 1, "status %d: %s" % (process.returncode, process.stderr))
        check([(node["fault"], node["ranks"]) for node in report["nodes"]] == [(None, []), ("cannot-copy", [1]), (None, [])], "%r" % report["nodes"])
        check("KiB of room" in report["nodes"][1]["message"], "%r" % report["nodes"])
        check(verdict_of(report) == ("culprit", [(0, "data-loading")]), "%r" % report["verdict"])
        check_nothing_left(cluster)
        job.check_unharmed()


def case_all_nodes_look_at_one_moment(directory):
    with Cluster(directory, 3) as cluster:
        for node in cluster.nodes:
            node.start_sshd(*(['ForceCommand sleep 4; eval "$SSH_ORIGINAL_COMMAND"'] if node.number == 2 else []))
        ranks = Ranks(cluster)
        called = time.time()
        report, _ = ask("--hosts", cluster.names(), "--via", "ssh", "--start-in", "1.5")
        first = datetime.datetime.fromisoformat(report["captured_at"].replace("Z", "+00:00")).timestamp()
        moments = {rank["rank"]: first + rank["captured_offset_ms"] / 1000 - called for rank in report["ranks"]}
        print("ranks were looked at %r s after the call" % moments)
        # A report has its moments in ms.
        check(len(moments) == 3 and all(moment >= 1.499 for moment in moments.values()), "before the start: %r" % moments)
        late = {node["name"]: node["late_ms"] for node in report["nodes"]}
        print("late: %r" % late)
        check(all(ms is not None for ms in late.values()) and late["node-2"] >= 2400, "%r" % late)
        said = subprocess.run([tool(), "report", "-"], input=json.dumps(report).encode(), stdout=subprocess.PIPE, check=False).stdout.decode()
        check("of 3 nodes began up to" in " ".join(said.split()), said)
        report, _ = ask("--hosts", cluster.names(), "--via", "ssh", "--start-in", "0")
        check([node["late_ms"] for node in report["nodes"]] == [None] * 3, "%r" % report["nodes"])
        check(all(rank.poll() is None for rank in ranks.ranks), "a rank has ended")


def case_nodes_of_very_large_jobs_send_no_addresses(directory):
    for world, dropped in ((16384, False), (16385, True)):
        variables = dict(os.environ, RANK="0", WORLD_SIZE=str(world))
        process = subprocess.Popen([os.path.join(os.environ["RANKSTACKS_FIXTURES"], "chain")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables)
        try:
            check(b'"ready":true' in process.stdout.readline(), "the program has not started")
            status, out, err = run_tool("attach", "--for-node", "--format", "json", "--pids", process.pid)
            check(status == 0, err)
            answer = json.loads(out)
            frames = [frame for frame in answer["ranks"][0]["threads"][0]["frames"] if frame["kind"] == "native"]
            check(answer["clusters"] == [], "clusters, which are made of all answers: %r" % answer["clusters"])
            check([frame["function"] for frame in frames if frame["function"] in ("inner", "outer", "main")] == ["inner", "outer", "main"], "%r" % frames)
            check({frame["address"] == "0x0" for frame in frames if frame["offset"]} == {dropped}, "%d ranks: %r" % (world, frames))
        finally:
            process.kill()
            process.communicate()


def case_report_without_any_rank(directory):
    """No node can be asked: the report of the nodes is made all the same, and can be read again."""
    needs("ssh")
    report, err = ask("--hosts", "no-such-host.invalid", "--via", "ssh", expect=2)
    check([(node["name"], node["fault"], node["ranks"]) for node in report["nodes"]] == [("no-such-host.invalid", "unknown-host", [])], "%r" % report["nodes"])
    check("no-such-host.invalid: ssh: no host of that name is known" in err, err)
    saved = os.path.join(directory, "saved.json")
    with open(saved, "w", encoding="utf-8") as out:
        json.dump(report, out)
    check(json_report("report", saved, expect=2)["nodes"] == report["nodes"], "the report read again")


def children_of(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as children:
        return [int(child) for child in children.read().split()]


class Ranks:
    """A program with the variables of a rank on each node: enough where no verdict is asked for."""

    def __init__(self, cluster):
        self.ranks = []
        for rank, node in enumerate(cluster.nodes):
            variables = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(len(cluster.nodes)), LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR="10.77.0.1", MASTER_PORT="29500")
            self.ranks.append(subprocess.Popen(node.command("sh", "-c", "echo ready; exec sleep 100000"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=variables))
        for rank in self.ranks:
            check(rank.stdout.readline() == b"ready\n", "a rank does not start")


def started_with_nodes(cluster, *arguments, **options):
    """The tool, which asks the nodes for a long answer; returns when every node has begun."""
    command = [tool(), "job", "--format", "json", "--timeout", "300", "--node-timeout", "300"] + list(arguments) + ["attach", "--samples", "1000", "--interval", "3"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    wait_until(lambda: all(any("--internal-node" in line and "sh -c" not in line for line in node.processes().values()) for node in cluster.nodes),
               "the tool on all nodes")
    return process


def case_tool_that_is_killed_leaves_nothing(directory):
    with Cluster(directory, 3) as cluster:
        for node in cluster.nodes:
            node.start_sshd()
        ranks = Ranks(cluster)
        for engine in [engine for engine in ("ssh", "clush", "pdsh", "mpirun") if shutil.which(engine)]:
            process = started_with_nodes(cluster, "--hosts", cluster.names(), "--via", engine)
            print(engine)
            kill_tool(process, cluster)
        check(all(rank.poll() is None for rank in ranks.ranks), "a rank has ended")


def case_tool_that_is_killed_ends_its_step_of_slurm(directory):
    with Cluster(directory, 2) as cluster, Slurm(cluster) as slurm:
        step = ["srun", "--nodes=2", "--ntasks-per-node=1", "sh", "-c", "export RANK=$SLURM_PROCID WORLD_SIZE=2; exec sleep 100000"]
        ranks = subprocess.Popen(step, stdin=subprocess.DEVNULL, env=slurm.environment)
        wait_until(lambda: all(any(line == "sleep 100000" for pid, line in node.processes().items() if pid != node.init) for node in cluster.nodes), "the ranks")
        number = slurm.control("squeue", "--noheader", "--format=%i").strip()
        process = started_with_nodes(cluster, "--slurm", number, env=slurm.environment)
        process.kill()
        process.communicate()
        check_nothing_left(cluster)
        wait_until(lambda: slurm.steps(number) == ["%s.0" % number], "the end of the tool's step")
        check(ranks.poll() is None, "the ranks have ended")
        ranks.kill()
        ranks.wait()


def case_interrupt_makes_the_report_of_what_is_there(directory):
    with Cluster(directory, 3) as cluster:
        for node in cluster.nodes:
            node.start_sshd()
        ranks = Ranks(cluster)
        cluster.nodes[2].freeze_sshd()
        command = [tool(), "job", "--hosts", cluster.names(), "--via", "ssh", "--format", "json", "--timeout", "300", "--node-timeout", "300", "--connect-timeout", "200",
                   "attach", "--samples", "1"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # Two nodes have answered when only the call of the frozen one is left, which has been there from the start.
        wait_until(lambda: len(children_of(process.pid)) == 3, "the calls")
        wait_until(lambda: len(children_of(process.pid)) == 1, "two answers")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        report = json.loads(out.decode())
        check(process.returncode == 1, "status %d: %s" % (process.returncode, err))
        check([(node["name"], node["fault"]) for node in report["nodes"]] == [("node-1", None), ("node-2", None), ("node-3", "interrupted")], "%r" % report["nodes"])
        check([rank["rank"] for rank in report["ranks"]] == [0, 1], "the ranks of the nodes that had answered")
        check(all(rank.poll() is None for rank in ranks.ranks), "a rank has ended")


def case_tool_is_taken_along(directory):
    """Nodes without the tool, with another build of it, with a temporary directory that is full or that starts no programs."""
    with Cluster(directory, 4) as cluster:
        own = os.path.join(directory, "bin")
        os.mkdir(own)
        program = os.path.join(own, "rankstacks")
        run("strip", "-o", program, tool())      # without its debug information it is packed in a moment
        ranks = Ranks(cluster)
        for node, options in zip(cluster.nodes, ("", "", "size=1m", "noexec")):
            node.start_sshd()
            if node.number > 1:
                node.run("mount", "-t", "tmpfs", "tmpfs", own)
            if options:
                node.run("mount", "-t", "tmpfs", "-o", options, "tmpfs", "/tmp")
        cluster.nodes[1].run("sh", "-c", "printf '#!/bin/sh\\nexit 3\\n' >%s && chmod 755 %s" % (program, program))
        for engine in [engine for engine in ("ssh", "clush", "pdsh") if shutil.which(engine)]:
            command = [program, "job", "--hosts", cluster.names(), "--via", engine, "--format", "json"]
            refused = subprocess.run(command + ["--no-copy", "attach", "--samples", "1"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
            check([node["fault"] for node in json.loads(refused.stdout.decode())["nodes"]] == [None] + ["cannot-copy"] * 3, "%s without copies" % engine)
            process = subprocess.run(command + ["attach", "--samples", "1"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
            report = json.loads(process.stdout.decode())
            check(process.returncode == 0, "%s: status %d: %s" % (engine, process.returncode, process.stderr.decode()))
            check([rank["rank"] for rank in report["ranks"]] == [0, 1, 2, 3], "%s: the ranks" % engine)
            check_nothing_left(cluster)
            for node in cluster.nodes:
                names = node.run("sh", "-c", "ls -d /tmp/rankstacks.* /var/tmp/rankstacks.* /dev/shm/rankstacks.* 2>/dev/null || true").split()
                check(not names, "%s: left on %s: %s" % (engine, node.name, names))
        check(all(rank.poll() is None for rank in ranks.ranks), "a rank has ended")


def case_cores_stay_where_they_are(directory):
    """Each node has its cores in a directory that only it has; a node without any is named."""
    with Cluster(directory, 3) as cluster:
        for node in cluster.nodes:
            node.start_sshd()
        ranks = Ranks(cluster)
        for node, rank in zip(cluster.nodes[:2], ranks.ranks):
            node.run("mount", "-t", "tmpfs", "tmpfs", "/mnt")
            core = os.path.join(directory, "core." + node.name)
            debugger.write_core(children_of(rank.pid)[0], core)
            node.run("mkdir", "/mnt/cores of rank")
            node.run("mv", core, "/mnt/cores of rank/core.1")
        report, _ = ask("--hosts", cluster.names(), "--via", "ssh", "core", "/mnt/cores*/core.*", expect=1)
        check([(rank["rank"], rank["source"], rank["path"]) for rank in report["ranks"]] == [(n, "core", "/mnt/cores of rank/core.1") for n in (0, 1)], "%r" % report["ranks"])
        check([(node["name"], node["fault"]) for node in report["nodes"]] == [("node-1", None), ("node-2", None), ("node-3", "no-ranks")], "%r" % report["nodes"])


def case_doctor_groups_nodes_that_differ(directory):
    with Cluster(directory, 3) as cluster:
        for node in cluster.nodes:
            node.start_sshd()
        cluster.nodes[2].stop_sshd()
        command = [tool(), "job", "--hosts", cluster.names(), "--via", "ssh", "doctor"]
        process = subprocess.run(command + ["--format", "json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
        answer = json.loads(process.stdout.decode())
        check(process.returncode == 1 and answer["ok"] is False, "status %d: %r" % (process.returncode, process.stderr))
        check([(node["name"], node["fault"]) for node in answer["nodes"]] == [("node-1", None), ("node-2", None), ("node-3", "connection-refused")], "%r" % answer["nodes"])
        ptrace = [finding for finding in answer["findings"] if finding["check"] == "ptrace"]
        check([finding["nodes"] for finding in ptrace] == [["node-1", "node-2"]], "%r" % ptrace)
        text = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=120, check=False).stdout.decode()
        check(text.startswith("2 of 3 nodes have answered") and "node-3: ssh: connection refused" in text, text)


def case_node_without_network_is_the_culprit(directory):
    """All ranks that can be seen wait for one that is on a node that cannot be reached."""
    with Cluster(directory, 3) as cluster:
        for node in cluster.nodes:
            node.start_sshd()
        job = HungJob(cluster, 1, blocked_rank=2)
        cluster.nodes[2].run("ip", "link", "set", "eth0", "down")
        report, err = ask("--hosts", cluster.names(), "--via", "ssh", "--connect-timeout", "5", expect=1)
        check(verdict_of(report) == ("culprit", [(2, "missing")]), "%r" % report["verdict"])
        check("node-3 (rank 2): ssh: no route to host" in report["problems"][0]["message"], "%r" % report["problems"])
        saved = os.path.join(directory, "saved.json")
        with open(saved, "w", encoding="utf-8") as out:
            json.dump(report, out)
        again = json_report("report", saved, expect=1)
        check((again["nodes"], again["problems"], again["verdict"]) == (report["nodes"], report["problems"], report["verdict"]), "the report read again")
        for form in ("text", "markdown", "html"):
            text = subprocess.run([tool(), "report", saved, "--format", form, "--no-redact"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, timeout=60, check=False).stdout.decode()
            check("node-3 (rank 2): ssh: no route to host" in " ".join(text.split()), "%s: %s" % (form, text))
        redacted = subprocess.run([tool(), "report", saved, "--format", "json", "--redact"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, timeout=60, check=False).stdout.decode()
        check("node-3" not in redacted and "10.77.0." not in redacted, "names of nodes in a redacted report: %s" % redacted)
        job.check_unharmed()


if __name__ == "__main__":
    enter_namespaces()
    cases.run(globals(), "many-nodes")
