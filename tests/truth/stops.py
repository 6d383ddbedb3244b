"""Targets that delay a tool that stops them, or that never end: the tool ends within its limits, reports what is missing, and releases
them."""
import contextlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import time

import cases
from command_line import native
from harmless import check_let_go
from odd_targets import problems_of
from processes import DEADLINE, Fixture, Skip, check, json_report, run_tool, state_of, task_states, tool, wait_until
from truth_python import only_rank


def sample(pid, *arguments, seconds=60):
    """The rank in a report, whatever its status; the tool must end within that many seconds."""
    begin = time.monotonic()
    process = subprocess.Popen([tool(), "attach", "--pids", str(pid), "--format", "json"] + [str(argument) for argument in arguments],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    check(process.returncode in (0, 1, 2) and out, "status %d after %.1f s: %r" % (process.returncode, time.monotonic() - begin, err[-500:]))
    rank = only_rank(json.loads(out), pid)
    if rank["status"] != "complete":
        check(rank["problems"] or any(thread.get("problem") for thread in rank["threads"]), "%s, and nothing says why" % rank["status"])
    return rank


def check_executes_on(execs):
    """It answers, and its number grows: it is not stopped, and waits for no other process."""
    def programs():
        execs.write(b"how many?\n")
        word, number = execs._line().split()
        check(word == b"alive", "it answered %r" % word)
        return int(number)
    before = programs()
    wait_until(lambda: programs() > before, "it to go on")


def execs(by, runs):
    with native("execs", by, "20") as fixture:
        for _ in range(runs):
            sample(fixture.pid, "--samples", 40, "--interval", 0.01)
            check_let_go(fixture.pid, "after forty samples")
        check_executes_on(fixture)


def case_main_thread_executes_again_and_again(directory):
    execs("main", 3)


def case_other_thread_executes_again_and_again(directory):
    execs("thread", 8)


def case_exec_of_a_file_that_does_not_answer(directory):
    with Stuck("exec") as fixture:
        rank = sample(fixture.pid, "--samples", 1, "--stop", "always")
        check(rank["status"] == "failed", "the rank is %s" % rank["status"])
        check("exec" in problems_of(rank) and any(problem["hint"] for problem in rank["problems"]), "problems: %r" % rank["problems"])
        fixture.check_unharmed()


class Stuck:
    """fixtures/native/stuck.c, with a directory to mount on."""

    def __init__(self, mode):
        self.directory = tempfile.mkdtemp(prefix="rankstacks-test-")
        self.fixture = native("stuck", mode, self.directory)

    def __enter__(self):
        return self.fixture

    def __exit__(self, *exception):
        self.fixture.end()
        shutil.rmtree(self.directory, ignore_errors=True)


def memory_does_not_answer(mode):
    with Stuck(mode) as fixture:
        for _ in range(2):
            rank = sample(fixture.pid, "--samples", 1)
            check(rank["status"] == "partial", "the rank is %s: %r" % (rank["status"], rank["problems"]))
            check("does not answer" in problems_of(rank), "problems: %r" % rank["problems"])
            check(rank["stopped_ms"] < 10000, "it was stopped for %r ms" % rank["stopped_ms"])
            for thread in rank["threads"]:
                check(thread["frames"], "a thread without frames: %r" % thread)
                if thread["tid"] != fixture.ready["stuck"]:     # one thread does not affect the others
                    check(thread["stack_end"] == "complete", "thread %d: %s" % (thread["tid"], thread["stack_end"]))
            check({thread["tid"] for thread in rank["threads"]} >= {thread["tid"] for thread in fixture.ready["threads"]}, "threads are missing")
            check_let_go(fixture.pid, mode)
            fixture.check_unharmed()


def case_memory_of_a_userfaultfd_that_nobody_serves(directory):
    memory_does_not_answer("userfaultfd")


def case_memory_of_a_file_system_that_does_not_answer(directory):
    memory_does_not_answer("file")


def case_two_thousand_large_stacks(directory):
    """125 GiB of stacks: the report has the innermost frames of all threads, within the memory that the tool was given."""
    if "ASAN_OPTIONS" in os.environ:
        raise Skip("a sanitizer's own memory counts")
    megabytes = 512
    with native("big_stacks", "2000", "64") as fixture:
        begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        process = subprocess.Popen([tool(), "attach", "--pids", str(fixture.pid), "--samples", "1", "--memory", "%dM" % megabytes, "--format", "json",
                                    "-o", os.path.join(directory, "report.json")], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        err = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stderr.close()
        check(process.returncode == 1, "status %d: %r" % (process.returncode, err[-500:]))
        check(usage.ru_maxrss <= megabytes * 1024, "the tool took %d MiB of %d" % (usage.ru_maxrss // 1024, megabytes))
        with open(os.path.join(directory, "report.json"), encoding="utf-8") as stream:
            rank = only_rank(json.load(stream), fixture.pid)
        check(rank["status"] == "partial" and "--memory" in problems_of(rank), "the rank: %s, %r" % (rank["status"], rank["problems"]))
        threads = [thread for thread in rank["threads"] if any("blocks" == (frame.get("function") or "") for frame in thread["frames"])]
        check(len(threads) == 2000, "%d threads have frames" % len(threads))
        check(all(any("leaves_room" == (frame.get("function") or "") for frame in thread["frames"]) for thread in threads), "callers on the same page are missing")
        check_let_go(fixture.pid, "after the sample")
        fixture.check_unharmed()


def case_too_little_memory(directory):
    """The limit holds from the start, and if it does not suffice, the report says so."""
    with native("threads") as fixture:
        status, _, err = run_tool("attach", "--pids", fixture.pid, "--memory", "1M")
        check(status == 2 and b"--memory" in err, "status %d: %r" % (status, err))
        status, _, err = run_tool("attach", "--pids", fixture.pid, "--memory", "much")
        check(status == 2 and b"expected a size" in err, "status %d: %r" % (status, err))
        status, _, err = run_tool("attach", "--pids", fixture.pid, "--memory", "256M")
        check(status == 0, "status %d: %r" % (status, err))
        fixture.check_unharmed()


def groups():
    """Directories in which a freezer control group can be made: (version, directory)."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8") as stream:
        for line in stream:
            words = line.split()
            kind = words[words.index("-") + 1]
            if kind == "cgroup2":
                found.append((2, words[4]))
            elif kind == "cgroup" and "freezer" in words[-1].split(","):
                found.append((1, words[4]))
    return found


class Frozen:
    def __init__(self, version, parent, pid):
        self.directory = os.path.join(parent, "rankstacks-test-%d" % pid)
        self.file = os.path.join(self.directory, "cgroup.freeze" if version == 2 else "freezer.state")
        self.parent, self.pid, self.version = parent, pid, version

    def __enter__(self):
        try:
            os.mkdir(self.directory)
            self.put(os.path.join(self.directory, "cgroup.procs"), self.pid)
            self.put(self.file, "1" if self.version == 2 else "FROZEN")
            wait_until(self.is_frozen, "the group to be frozen")
        except OSError as error:
            self.__exit__()
            raise Skip("no control group can be made here: %s" % error)
        return self

    @staticmethod
    def put(path, text):
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(str(text))

    def is_frozen(self):
        with open(self.file if self.version == 1 else os.path.join(self.directory, "cgroup.events"), encoding="utf-8") as stream:
            return stream.read().strip().endswith("FROZEN" if self.version == 1 else "frozen 1")

    def thaw(self):
        self.put(self.file, "0" if self.version == 2 else "THAWED")

    def __exit__(self, *exception):
        if os.path.exists(self.file):
            self.thaw()
            self.put(os.path.join(self.parent, "cgroup.procs"), self.pid)
        if os.path.isdir(self.directory):
            wait_until(lambda: not open(os.path.join(self.directory, "cgroup.procs"), encoding="utf-8").read(), "the group to be empty")
            os.rmdir(self.directory)


def a_group(version):
    """A directory in which a group of this version can be made."""
    directories = [directory for kind, directory in groups() if kind == version]
    if not directories:
        raise Skip("no freezer of control groups, version %d, is mounted here" % version)
    return directories[0]


def check_frozen(rank, group, where):
    """The report says that it is frozen, by which group, and how to thaw it; and nothing of it is missing."""
    check({thread["state"] for thread in rank["threads"]} == {"F"}, "%s: states %r" % (where, [thread["state"] for thread in rank["threads"]]))
    said = [problem for problem in rank["problems"] if group.directory in problem["message"]]
    check(len(said) == 1 and len(rank["problems"]) == 1 and "frozen" in said[0]["message"], "%s: problems %r" % (where, rank["problems"]))
    check(group.file in said[0]["hint"], "%s: the hint is %r" % (where, said[0]["hint"]))
    check(rank["status"] == "complete" and all(thread["stack_end"] == "complete" for thread in rank["threads"]), "%s: %s" % (where, rank["status"]))


def frozen(version, is_stopped):
    parent = a_group(version)
    with native("threads") as fixture:
        if is_stopped:
            os.kill(fixture.pid, signal.SIGSTOP)
            wait_until(lambda: all(state == "T" for state, _, _ in task_states(fixture.pid).values()), "all threads to be stopped")
        with Frozen(version, parent, fixture.pid) as group:
            for stop in ("auto", "never", "always"):
                rank = sample(fixture.pid, "--samples", 1, "--stop", stop)
                check_frozen(rank, group, "--stop %s" % stop)
                check(len(rank["threads"]) == 18, "%d threads" % len(rank["threads"]))
                check(version == 2 or rank["threads_stopped"] == 0, "%r threads were stopped" % rank["threads_stopped"])
                wait_until(lambda: state_of(fixture.pid) not in "t", "the fixture to be let go")
            group.thaw()
            if is_stopped:
                wait_until(lambda: all(state == "T" for state, _, _ in task_states(fixture.pid).values()), "all threads to be stopped as before")
                os.kill(fixture.pid, signal.SIGCONT)
            wait_until(lambda: state_of(fixture.pid) == "S", "the fixture to go on")
            check("F" not in {thread["state"] for thread in sample(fixture.pid, "--samples", 1)["threads"]}, "it is frozen no more")
            fixture.check_unharmed()


def case_frozen_by_version_1(directory):
    frozen(1, False)


def case_frozen_by_version_2(directory):
    frozen(2, False)


def case_stopped_and_frozen_by_version_1(directory):
    frozen(1, True)


def case_stopped_and_frozen_by_version_2(directory):
    frozen(2, True)


SPINS = """
import json, os
print(json.dumps({"ready": True, "pid": os.getpid(), "runs": True}), flush=True)
def spins():
    while True:
        pass
spins()
"""


def frozen_in_its_own_code(version):
    """A thread that the freezer has caught while it ran, and the verdict on its rank among ranks that go on."""
    parent = a_group(version)
    with contextlib.ExitStack() as stack:
        ranks = [stack.enter_context(Fixture(["/usr/bin/python3", "-c", SPINS], env=dict(os.environ, RANK=str(rank), WORLD_SIZE="3"))) for rank in range(3)]
        with Frozen(version, parent, ranks[1].pid) as group:
            report = json_report("attach", "--pids", ",".join(str(rank.pid) for rank in ranks))
            rank = only_rank(dict(report, ranks=[rank for rank in report["ranks"] if rank["rank"] == 1]), ranks[1].pid)
            check_frozen(rank, group, "it")
            check("spins" in [frame.get("function") for frame in rank["threads"][0]["frames"]], "its frames: %r" % rank["threads"][0]["frames"])
            suspects = [(suspect["rank"], suspect["reason"]) for suspect in report["verdict"]["suspects"]]
            check(suspects == [(1, "stopped")], "suspects: %r" % suspects)
            check("rank 1 is frozen" in report["verdict"]["summary"], report["verdict"]["summary"])


def case_frozen_in_its_own_code_by_version_1(directory):
    frozen_in_its_own_code(1)


def case_frozen_in_its_own_code_by_version_2(directory):
    frozen_in_its_own_code(2)


DUMPS = """
import os, resource, sys, threading
resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for _ in range(8):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
memory = os.urandom(1 << 20) * 200
print("ready", flush=True)
sys.stdin.readline()
os.abort()
"""


def case_a_core_is_being_written(directory):
    """From before the begin of the dump to after its end, again and again: the core is whole, and every sample ends."""
    with open("/proc/sys/kernel/core_pattern", encoding="utf-8") as stream:
        pattern = stream.read().strip()
    if "/" in pattern or pattern.startswith("|"):
        raise Skip("cores of this machine go to %s" % pattern)
    for turn in range(3):
        victim = subprocess.Popen(["/usr/bin/python3", "-c", DUMPS], cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            check(victim.stdout.readline() == b"ready\n", "it did not start")
            tools = [subprocess.Popen([tool(), "attach", "--pids", str(victim.pid), "--samples", "30", "--interval", "0.01", "--format", "json"],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
            if turn > 0:
                select.select([], [], [], 0.1 * turn)     # at another moment of the dump each time
            victim.stdin.write(b"now\n")
            victim.stdin.close()
            for process in tools:
                _, err = process.communicate(timeout=DEADLINE)
                check(process.returncode in (0, 1, 2), "status %d: %r" % (process.returncode, err))
            check(victim.wait(timeout=DEADLINE) == -signal.SIGABRT, "its status: %r" % victim.returncode)
        finally:
            victim.kill()
            victim.wait()
            victim.stdout.close()
        cores = [name for name in os.listdir(directory) if name.startswith("core")]
        check(len(cores) == 1, "cores: %r" % cores)
        status, _, err = run_tool("core", os.path.join(directory, cores[0]))
        check(status in (0, 1) and b"cut off" not in err, "the core: status %d: %r" % (status, err))
        os.unlink(os.path.join(directory, cores[0]))


def case_threads_without_end(directory):
    """Threads begin and end all the time: a sample ends, and shows the threads that stay."""
    with native("short_lived") as fixture:
        for _ in range(10):
            rank = sample(fixture.pid, "--samples", 3, "--interval", 0.01)
            check(rank["status"] != "failed", "the rank: %r" % rank["problems"])
            check_let_go(fixture.pid, "after a sample")
        fixture.check_unharmed()


FORKS = """
import os, sys, threading
def forks():
    while True:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
for _ in range(4):
    threading.Thread(target=forks, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    print("alive", flush=True)
"""


def case_processes_without_end(directory):
    """Children begin and end all the time, and none is left traced."""
    process = subprocess.Popen(["/usr/bin/python3", "-W", "ignore", "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        check(process.stdout.readline() == b"ready\n", "it did not start")
        for _ in range(5):
            check(sample(process.pid, "--samples", 3, "--interval", 0.01)["status"] != "failed", "it failed")
            check_let_go(process.pid, "after a sample")
        process.stdin.write(b"are you there?\n")
        process.stdin.flush()
        check(process.stdout.readline() == b"alive\n", "it does not go on")
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


if __name__ == "__main__":
    cases.run(globals(), "stops")
