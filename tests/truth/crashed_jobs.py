"""Real torch jobs of four ranks of which one crashes, with the cores that they leave: the first to end is named, not those that lost their connections to it."""
import os
import resource
import signal
import socket
import subprocess

import cases
from command_line import SOURCE
from processes import Skip, check, json_report, need_torch, run_tool, wait_until

RANKS, CRASHES = 4, 2


def start(directory, way, end, **variables):
    """The ranks as processes, and their directories."""
    need_torch()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    places = [os.path.join(directory, "%s-%s" % (way, end), str(rank)) for rank in range(RANKS)]
    for rank, place in enumerate(places):
        os.makedirs(place)
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1", **variables)
        with open(os.path.join(place, "said"), "wb") as said:
            ranks.append(subprocess.Popen(["/usr/bin/python3", os.path.join(SOURCE, "fixtures", "jobs", "crashes.py"), way, end], cwd=place, env=environment, stdout=said, stderr=subprocess.DEVNULL))
    return ranks, places


def end_all(ranks):
    for rank in ranks:
        rank.kill()
        rank.wait()


def cores_of(directory, way, end):
    """{rank: its core}; ranks that leave none are not in it."""
    with open("/proc/sys/kernel/core_pattern", encoding="ascii") as stream:
        pattern = stream.read().strip()
    if pattern.startswith("|") or "/" in pattern:
        raise Skip("this machine's cores go to %r" % pattern)
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY and os.geteuid() != 0:
        raise Skip("the limit on the size of cores cannot be raised")
    ranks, places = start(directory, way, end)
    try:
        alone = lambda: all(rank.poll() is not None for number, rank in enumerate(ranks) if number != CRASHES)
        if way == "hang":
            wait_until(alone, "the others have ended", seconds=200)
            ranks[CRASHES].send_signal(signal.SIGABRT)         # as who wants to know where it hangs
        wait_until(lambda: all(rank.poll() is not None for rank in ranks), "all ranks have ended", seconds=200)
    finally:
        end_all(ranks)
    check(all(rank.returncode < 0 for rank in ranks), "not all died of a signal: %r" % [rank.returncode for rank in ranks])
    found = {rank: [os.path.join(place, name) for name in os.listdir(place) if name.startswith("core")] for rank, place in enumerate(places)}
    if not any(found.values()):
        raise Skip("the kernel has written no cores here")
    return {rank: cores[0] for rank, cores in found.items() if cores}


def check_crash(directory, way, end, reason, said, others="ranks 0-1,3 lost their connections", cause="peer"):
    cores = cores_of(directory, way, end)
    check(sorted(cores) == [rank for rank in range(RANKS) if way != "kill" or rank != CRASHES], "the cores: %r" % cores)
    saved = os.path.join(directory, "%s-%s.json" % (way, end))
    report = json_report("core", *cores.values())
    verdict = report["verdict"]
    named = [(suspect["rank"], suspect["reason"]) for suspect in verdict["suspects"]]
    check(verdict["status"] == "culprit" and named == [(CRASHES, reason)], "%s, %s: %s: %r" % (way, end, verdict["summary"], named))
    check(said in verdict["summary"] and others in verdict["summary"], "%s, %s: %s" % (way, end, verdict["summary"]))
    for rank in report["ranks"]:
        if rank["rank"] == CRASHES:
            continue
        main = rank["threads"][0]
        causes = [main.get("handles", {}).get("cause")]
        check(causes == ["peer"] if cause == "peer" else causes[0] in cause, "rank %d: %r" % (rank["rank"], main.get("handles")))
    # Redaction takes the words of the exceptions, and the report as it was saved is read back: the verdict stays.
    status, _, err = run_tool("core", *cores.values(), "--format", "json", "--redact", "-o", saved)
    check(status == 0, "%d %r" % (status, err))
    again = json_report("report", saved)["verdict"]
    check([(suspect["rank"], suspect["reason"]) for suspect in again["suspects"]] == named, "redacted: %r" % again)


def case_an_exception(directory):
    check_crash(directory, "raise", "abort", "crashed", 'handles ValueError("label 17 is out of range") raised in fail at crashes.py')


def case_a_fault(directory):
    check_crash(directory, "fault", "wrapped", "crashed", "crashed with SIGSEGV at 0x0, a null pointer")


def case_a_failed_assertion_and_a_fault_that_follows(directory):
    """Rank 1 dies of a SIGSEGV, in what it cleans up after the loss of its connection."""
    check_crash(directory, "assert", "fault", "crashed", "Assertion `loss == loss' failed")


def case_a_rank_that_was_killed(directory):
    """As the kernel does for lack of memory: it leaves no core."""
    check_crash(directory, "kill", "fault", "missing", "rank 2 is not there")


def case_an_exception_that_nothing_catches(directory):
    """sys.excepthook aborts: the exception is sys.last_value alone."""
    check_crash(directory, "raise", "hook", "crashed", 'handles ValueError("label 17 is out of range") raised in fail at crashes.py')


def case_without_a_core_and_nothing_catches(directory):
    check_crash(directory, "kill", "hook", "missing", "rank 2 is not there")


def case_an_exception_that_hides_the_first(directory):
    check_crash(directory, "raise", "hidden", "crashed", 'handles RuntimeError("training has failed")')


def case_cores_that_say_nothing(directory):
    """The exceptions are gone when the ranks abort; one rank has left no core."""
    check_crash(directory, "kill", "later", "missing", "rank 2 is not there", others="the others have ended", cause=(None,))


def case_a_rank_that_hangs_until_the_others_time_out(directory):
    """And is ended from outside. The first to time out closes its connections, which the others may notice before their own time is over."""
    check_crash(directory, "hang", "abort", "user-code", "blocked in read", others="timed out", cause=("timeout", "peer"))


def check_live(directory, way, **variables):
    """Ranks that live in the handlers of their exceptions, or have not noticed anything: the one that is gone is the first cause."""
    ranks, places = start(directory, way, "linger", **variables)
    try:
        wait_until(lambda: ranks[CRASHES].poll() is not None, "rank 2 has ended", seconds=200)
        lingers = lambda place: os.path.getsize(os.path.join(place, "said")) > 0
        wait_until(lambda: any(lingers(place) for place in places), "a rank handles the end of its connection", seconds=200)
        alive = [rank for number, rank in enumerate(ranks) if number != CRASHES]
        check(all(rank.poll() is None for rank in alive), "%r" % [rank.returncode for rank in ranks])
        status = ranks[CRASHES].returncode
        report = json_report("attach", "--pids", ",".join(str(rank.pid) for rank in alive))
        verdict = report["verdict"]
        check([(one["rank"], one["reason"]) for one in verdict["suspects"]] == [(CRASHES, "missing")], "%s: %r" % (verdict["summary"], verdict["suspects"]))
        check("lost" in verdict["summary"], verdict["summary"])
        return status, report, ranks[CRASHES].pid
    finally:
        end_all(ranks)


def case_live_ranks_after_the_end_of_one(directory):
    check_live(directory, "kill")


def case_killed_for_lack_of_memory(directory):
    """A real kill by the kernel, in a control group of its own; its log says so, where it can be read."""
    base = next((path for path in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup") if os.path.exists(os.path.join(path, "cgroup.procs"))), "/nowhere")
    group = os.path.join(base, "rankstacks-test-%d" % os.getpid())
    limit = os.path.join(group, "memory.limit_in_bytes" if base.endswith("memory") else "memory.max")
    try:
        os.mkdir(group)
    except OSError as error:
        raise Skip("no control group can be made: %s" % error) from error
    try:
        try:
            with open(limit, "w", encoding="ascii") as out:
                out.write(str(128 << 20))
        except OSError as error:
            raise Skip("no limit of memory can be set: %s" % error) from error
        status, report, _ = check_live(directory, "memory", GROUP=group)
        check(status == -signal.SIGKILL, "rank 2: status %r" % status)
        try:
            os.close(os.open("/dev/kmsg", os.O_RDONLY))
        except OSError as error:
            print("the kernel's log cannot be read here: %s" % error)
            return
        check("was killed for lack of memory" in report["verdict"]["summary"], report["verdict"]["summary"])
    finally:
        os.rmdir(group)


if __name__ == "__main__":
    cases.run(globals(), "crashed-jobs")
