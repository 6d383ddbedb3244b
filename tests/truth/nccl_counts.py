"""NCCL's own counts in the report: ranks that have a libnccl loaded, and a server that plays their RAS threads."""
import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading

import cases
from command_line import SOURCE
from processes import Fixture, Skip, check, json_report
from truth_python import only_rank

PROGRAM = os.path.join(SOURCE, "fixtures", "nccl", "ras_rank.py")


def a_libnccl(directory):
    path = os.path.join(directory, "libnccl.so.2")
    shutil.copy(os.path.join(os.environ["RANKSTACKS_FIXTURES"], "libreplaced_one.so"), path)
    return path


class Ras:
    """The answers to VERBOSE STATUS of the first rank, which plays NCCL's RAS thread as well: one document after the
    other; the last one again and again."""

    def __init__(self, directory, *documents, set_format="OK\n"):
        self.set_format = set_format
        self.path = os.path.join(directory, "answers-%d.json" % len(os.listdir(directory)))
        self.answer(*documents)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]

    def answer(self, *documents):
        texts = [text.decode("latin-1") if isinstance(text, bytes) else json.dumps(text) for text in documents]
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump({"set_format": self.set_format, "documents": texts}, file)

    @property
    def asked(self):
        try:
            with open(self.path + ".asked", encoding="utf-8") as file:
                return int(file.read())
        except FileNotFoundError:
            return 0


class Unrelated:
    """A program that is no rank, at the address of RAS: it answers as RAS does, and keeps the lines that it receives."""

    def __init__(self, document):
        self.document = json.dumps(document).encode()
        self.connections, self.lines = 0, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection, contextlib.suppress(OSError), connection.makefile("rwb") as stream:
                for line in stream:
                    self.lines.append(line)
                    last = line == b"VERBOSE STATUS\n"
                    greeting = line.startswith(b"CLIENT PROTOCOL ")
                    stream.write(self.document if last else b"SERVER PROTOCOL 2\n" if greeting else b"OK\n")
                    stream.flush()
                    if last:
                        break


@contextlib.contextmanager
def two_ranks(directory, address, answers=None, listener=None):
    """Two ranks, the first of which has the listener, and accepts connections where there are answers to give."""
    library = a_libnccl(directory)
    with contextlib.ExitStack() as stack:
        ranks = []
        for rank in (0, 1):
            plays = [answers, str(listener.fileno())] if rank == 0 and answers else []
            keeps = [listener.fileno()] if rank == 0 and listener else []
            variables = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", NCCL_RAS_ADDR=address)
            command = ["/usr/bin/python3", PROGRAM, library] + plays
            ranks.append(stack.enter_context(Fixture(command, pass_fds=keeps, env=variables)))
        yield ranks


@contextlib.contextmanager
def ranks_with(directory, ras):
    with two_ranks(directory, ras.address, ras.path, ras.listener) as ranks:
        ras.listener.close()          # only the rank has it from now on
        yield ranks


def member(rank, pid, count, host="127.0.0.1"):
    return {"rank": rank, "host": host, "pid": pid, "cuda_dev": rank, "nvml_dev": rank,
            "status": {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False},
            "collective_counts": {"Broadcast": 0, "AllReduce": count}}


def document(*members, missing=()):
    return {"nccl_version": "2.28.9", "communicators": [{"hash": "0xafc", "secondary_hash": "0x1:0x2", "size": len(members) + len(missing), "ranks": list(members),
                                                         "missing_ranks": list(missing)}]}


def attach(ranks, *arguments, **options):
    return json_report("attach", "--pids", ",".join(str(rank.pid) for rank in ranks), *arguments, **options)


def case_counts_of_two_ranks(directory):
    ras = Ras(directory, b"")
    with ranks_with(directory, ras) as ranks:
        pids = [rank.pid for rank in ranks]
        lost = {"rank": 2, "host": "192.0.2.7", "pid": 5, "status": {"unresponsive": True, "considered_dead": False}}
        ras.answer(*[document(member(0, pids[0], 4), member(1, pids[1], count), missing=[lost]) for count in (3, 5)])
        report = attach(ranks, "--samples", "2")
        check(ras.asked == 2, "it was asked %d times" % ras.asked)
        nccl = report["nccl"]
        check((nccl["version"], nccl["answers"]) == ("2.28.9", 2), "%r" % nccl)
        (communicator,) = nccl["communicators"]
        check((communicator["hash"], communicator["secondary_hash"], communicator["size"]) == ("0xafc", "0x1:0x2", 3), "%r" % communicator)
        for rank, (pid, count) in enumerate(zip(pids, (4, 3))):
            found = communicator["members"][rank]
            process = only_rank(report, pid)
            identity = {name: process["identity"][name] for name in ("boot_id", "pid_namespace")}
            check(found == {"rank": rank, "host": "127.0.0.1", "pid": pid, "process": {"host": process["host"], "pid": pid, "identity": identity}, "aborted": False, "finalized": False, "async_error": 0,
                            "launched": {"AllReduce": count, "Broadcast": 0}, "counts_move": rank == 1}, "member %d: %r" % (rank, found))
        check(communicator["missing"] == [{"rank": 2, "host": "192.0.2.7", "pid": 5, "process": None, "unresponsive": True, "dead": False}], "%r" % communicator["missing"])
        check(not any(rank["problems"] for rank in report["ranks"]), "problems: %r" % [rank["problems"] for rank in report["ranks"]])
        path = os.path.join(directory, "report.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file)
        check(json_report("report", path)["nccl"] == nccl, "saved and shown again it is another")
        for rank in ranks:
            rank.check_unharmed()


def case_one_sample_asks_once(directory):
    ras = Ras(directory, b"")
    with ranks_with(directory, ras) as ranks:
        ras.answer(document(member(0, ranks[0].pid, 4)))
        report = attach(ranks, "--samples", "1")
        check(ras.asked == 1 and report["nccl"]["answers"] == 1, "asked %d times: %r" % (ras.asked, report.get("nccl")))


def case_ras_of_another_job(directory):
    """A RAS thread that reports only other processes."""
    ras = Ras(directory, document(member(0, 1, 4, host="192.0.2.7"), member(1, 2, 4, host="192.0.2.7")))
    with ranks_with(directory, ras) as ranks:
        report = attach(ranks)
        check(ras.asked > 0, "it was not asked")
        check("nccl" not in report and not any(rank["problems"] for rank in report["ranks"]), "%r" % report.get("nccl"))


def case_an_unrelated_process_is_not_asked(directory):
    """A process that listens at RAS's address, and is no rank, is not even connected to; what it would say of the ranks
    is not in the report."""
    with Unrelated(document(member(0, 1, 4))) as unrelated, two_ranks(directory, unrelated.address) as ranks:
        unrelated.document = json.dumps(document(member(0, ranks[0].pid, 4), member(1, ranks[1].pid, 3))).encode()
        report = attach(ranks)
        check(unrelated.connections == 0, "it was connected to %d times" % unrelated.connections)
        check("nccl" not in report, "believed: %r" % report.get("nccl"))
        check(not any(rank["problems"] for rank in report["ranks"]), "problems: %r" % report["ranks"])


def case_an_unrelated_process_that_answers_for_a_rank(directory):
    """A rank listens, and another process accepts the connection: the socket belongs to no rank, and nothing is asked."""
    with Unrelated(document(member(0, 1, 4))) as unrelated, \
            two_ranks(directory, unrelated.address, listener=unrelated.listener) as ranks:
        unrelated.document = json.dumps(document(member(0, ranks[0].pid, 4), member(1, ranks[1].pid, 3))).encode()
        report = attach(ranks)
        check(unrelated.connections > 0, "nobody connected")
        check(set(unrelated.lines) == {b"CLIENT PROTOCOL 2\n"}, "it received %r" % unrelated.lines)
        check("nccl" not in report, "believed: %r" % report.get("nccl"))
        check(not any(rank["problems"] for rank in report["ranks"]), "problems: %r" % report["ranks"])


def case_answers_that_contradict_the_machine(directory):
    """A rank reports processes that do not exist, processes without NCCL, and impossible ranks: that is a problem, and
    nothing of it is used."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    for wrong, said in ((member(1, gone.pid, 4), "pid %d on this machine, which no process has" % gone.pid),
                        (member(1, os.getpid(), 4), "pid %d on this machine, which has no NCCL loaded" % os.getpid()),
                        (member(5, 1, 4, host="192.0.2.7"), "rank 5 of communicator 0xafc, which has 2 ranks"),
                        (member(0, 1, 4, host="192.0.2.7"), "rank 0 of communicator 0xafc twice")):
        ras = Ras(directory, b"")
        with ranks_with(directory, ras) as ranks:
            ras.answer(document(member(0, ranks[0].pid, 4), wrong))
            report = attach(ranks)
            problems = [rank["problems"] for rank in report["ranks"]]
            check("nccl" not in report, "believed: %r" % report.get("nccl"))
            message = "NCCL's RAS at %s: its answer is not believed: it names %s" % (ras.address, said)
            check([problem["message"] for problem in problems[0]] == [message] and problems[1] == [], "%r" % problems)
            check(problems[0][0]["hint"], "no hint")
            check(all(rank["status"] == "complete" for rank in report["ranks"]), "the ranks: %r" % report["ranks"])


def case_only_the_ranks_of_the_chosen_job_are_asked(directory):
    """`--job` with two jobs on the machine, each with a RAS thread of its own."""
    with contextlib.ExitStack() as stack:
        jobs = []
        for port in ("29500", "29501"):
            place = os.path.join(directory, port)
            os.mkdir(place)
            ras = Ras(place, b"")
            os.environ["MASTER_PORT"] = port
            jobs.append((ras, stack.enter_context(ranks_with(place, ras))))
        for ras, ranks in jobs:
            ras.answer(document(*(member(number, rank.pid, 4) for number, rank in enumerate(ranks))))
        (asked, chosen), (other, _) = jobs
        report = json_report("attach", "--job", "pid:%d" % chosen[1].pid, "--samples", "1")
        check([rank["pid"] for rank in report["ranks"]] == [rank.pid for rank in chosen], "the ranks: %r" % report["ranks"])
        check(asked.asked == 1 and "nccl" in report, "the job's RAS was asked %d times" % asked.asked)
        check(other.asked == 0, "the other job's RAS was asked %d times" % other.asked)


def case_nobody_listens(directory):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "127.0.0.1:%d" % listener.getsockname()[1]
    for place in (address, "nonsense", "192.0.2.1:28028"):
        with two_ranks(directory, place) as ranks:
            report = attach(ranks)
            check("nccl" not in report and not any(rank["problems"] for rank in report["ranks"]), "%s: %r" % (place, report["ranks"][0]["problems"]))


def case_a_rank_without_nccl_is_not_asked(directory):
    chain = os.path.join(os.environ["RANKSTACKS_FIXTURES"], "chain")
    with Unrelated(document(member(0, 1, 4))) as unrelated, \
            Fixture([chain], pass_fds=[unrelated.listener.fileno()],
                    env={"RANK": "0", "NCCL_RAS_ADDR": unrelated.address}) as rank:
        attach([rank])
        check(unrelated.connections == 0, "it was asked")


def case_old_ras_is_a_problem_of_the_first_rank(directory):
    ras = Ras(directory, b"", set_format="ERROR: Unknown command SET FORMAT json\n")
    with ranks_with(directory, ras) as ranks:
        report = attach(ranks)
        problems = [rank["problems"] for rank in report["ranks"]]
        check(len(problems[0]) == 1 and problems[1] == [], "problems: %r" % problems)
        check("2.28.7" in problems[0][0]["message"] and ras.address in problems[0][0]["message"] and problems[0][0]["hint"], "%r" % problems[0])
        check("nccl" not in report and all(rank["status"] == "complete" for rank in report["ranks"]), "the report: %r" % report.get("nccl"))


def case_hostile_ras(directory):
    for answer in (b"[" * 100000, b'{"communicators": [{"hash": "a", "ranks": [{}]}]}', b"\xff\xfe", b'{"communicators"', b""):
        ras = Ras(directory, answer)
        with ranks_with(directory, ras) as ranks:
            report = attach(ranks)
            check("nccl" not in report and len(report["ranks"][0]["problems"]) == 1, "%r: %r" % (answer[:40], report["ranks"][0]["problems"]))


def case_container_with_a_network_of_its_own(directory):
    """RAS listens inside of the rank's network namespace, and its pids are those of the rank's pid namespace."""
    unshare = ["unshare", "--fork", "--pid", "--net"]
    if os.geteuid() != 0 or not shutil.which("unshare"):
        raise Skip("namespaces need root and unshare")
    if subprocess.run(unshare + ["true"], stderr=subprocess.DEVNULL).returncode != 0:
        raise Skip("this machine refuses new namespaces")
    template = os.path.join(directory, "answer.json")
    with open(template, "w", encoding="utf-8") as file:
        json.dump({"set_format": "OK\n", "documents": [json.dumps(document(member(0, "PID", 7)))]}, file)
    environment = {name: value for name, value in os.environ.items() if name != "NCCL_RAS_ADDR"}
    process = subprocess.Popen(unshare + ["/usr/bin/python3", PROGRAM, a_libnccl(directory), template], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    try:
        inner = json.loads(process.stdout.readline())["pid"]
        with open("/proc/%d/task/%d/children" % (process.pid, process.pid), encoding="utf-8") as children:
            outer = int(children.read().split()[0])
        check(inner != outer, "the namespace changes no pid")
        (found,) = json_report("attach", "--pids", outer)["nccl"]["communicators"][0]["members"]
        check((found["pid"], found["process"]["pid"], found["launched"]["AllReduce"]) == (inner, outer, 7), "%r" % found)
    finally:
        process.stdin.close()
        process.wait(timeout=20)
        process.stdout.close()


if __name__ == "__main__":
    cases.run(globals(), "nccl")
