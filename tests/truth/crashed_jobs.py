"""Real torch jobs of four ranks of which one crashes, with the cores that they leave: the first to end is named, not those that lost their connections to it."""
import os
import resource
import socket
import subprocess

import cases
from command_line import SOURCE
from processes import Skip, check, json_report, need_torch, run_tool, wait_until

RANKS, CRASHES = 4, 2


def cores_of(directory, way, end):
    """{rank: its core}; ranks that leave none are not in it."""
    with open("/proc/sys/kernel/core_pattern", encoding="ascii") as stream:
        pattern = stream.read().strip()
    if pattern.startswith("|") or "/" in pattern:
        raise Skip("this machine's cores go to %r" % pattern)
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY and os.geteuid() != 0:
        raise Skip("the limit on the size of cores cannot be raised")
    need_torch()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    places = [os.path.join(directory, "%s-%s" % (way, end), str(rank)) for rank in range(RANKS)]
    try:
        for rank, place in enumerate(places):
            os.makedirs(place)
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
            ranks.append(subprocess.Popen(["/usr/bin/python3", os.path.join(SOURCE, "fixtures", "jobs", "crashes.py"), way, end], cwd=place, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        wait_until(lambda: all(rank.poll() is not None for rank in ranks), "all ranks have ended", seconds=200)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    check(all(rank.returncode < 0 for rank in ranks), "not all died of a signal: %r" % [rank.returncode for rank in ranks])
    found = {rank: [os.path.join(place, name) for name in os.listdir(place) if name.startswith("core")] for rank, place in enumerate(places)}
    if not any(found.values()):
        raise Skip("the kernel has written no cores here")
    return {rank: cores[0] for rank, cores in found.items() if cores}


def check_crash(directory, way, end, reason, said):
    cores = cores_of(directory, way, end)
    check(sorted(cores) == [rank for rank in range(RANKS) if way != "kill" or rank != CRASHES], "the cores: %r" % cores)
    saved = os.path.join(directory, "%s-%s.json" % (way, end))
    report = json_report("core", *cores.values())
    verdict = report["verdict"]
    named = [(suspect["rank"], suspect["reason"]) for suspect in verdict["suspects"]]
    check(verdict["status"] == "culprit" and named == [(CRASHES, reason)], "%s, %s: %s: %r" % (way, end, verdict["summary"], named))
    check(said in verdict["summary"] and "ranks 0-1,3 lost their connections" in verdict["summary"], "%s, %s: %s" % (way, end, verdict["summary"]))
    for rank in report["ranks"]:
        if rank["rank"] == CRASHES:
            continue
        main = rank["threads"][0]
        check(main["handles"].get("cause") == "peer", "rank %d: %r" % (rank["rank"], main["handles"]))
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


if __name__ == "__main__":
    cases.run(globals(), "crashed-jobs")
