"""A rank that ends while it is looked at: what was seen of it before is in the report, and that it has ended."""
import os
import signal
import subprocess

import cases
from processes import Fixture, check, json, tool, wait_until

RANK = """
import json, os, sys
print(json.dumps({"pid": os.getpid()}), flush=True)
sys.stdin.read()
"""


def rank_of_two(number):
    return Fixture(["/usr/bin/python3", "-c", RANK], env=dict(os.environ, RANK=str(number), WORLD_SIZE="2"))


def sleeps(pid):
    """Whether it waits for the time of its next sample."""
    with open("/proc/%d/syscall" % pid, encoding="utf-8") as call:
        return call.read().split()[0] == "230"                   # clock_nanosleep


def report_of_killed(*options, reap=False):
    with rank_of_two(0) as steady, rank_of_two(1) as victim:
        looking = subprocess.Popen([tool(), "attach", "--pids", "%d,%d" % (steady.pid, victim.pid), "--format", "json"] + list(options),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: sleeps(looking.pid), "the tool to wait for the next sample")
        os.kill(victim.pid, signal.SIGKILL)
        if reap:
            victim.process.wait()
        out, err = looking.communicate(timeout=120)
        check(looking.returncode == 1, "status %d: %r" % (looking.returncode, err))
        report = json.loads(out)
        ranks = {rank["rank"]: rank for rank in report["ranks"]}
        check(ranks[0]["status"] == "complete" and not ranks[0]["problems"], "rank 0: %s, %r" % (ranks[0]["status"], ranks[0]["problems"]))
        check(ranks[1]["status"] == "partial" and ranks[1]["threads"], "rank 1: %s, %r" % (ranks[1]["status"], ranks[1]["problems"]))
        said = [problem["message"] for problem in ranks[1]["problems"] if problem["code"] == "ended"]
        check(len(said) == 1, "rank 1: %r" % ranks[1]["problems"])
        check(report["verdict"]["summary"].endswith("; rank 1 ended while it was looked at"), report["verdict"]["summary"])
        return said[0]


def case_killed_between_samples(directory):
    said = report_of_killed("--samples", "3", "--interval", "1")
    check(said == "it ended while it was looked at, killed by SIGKILL", said)


def case_killed_and_reaped_between_samples(directory):
    said = report_of_killed("--samples", "3", "--interval", "1", reap=True)
    check(said == "it ended while it was looked at", said)


def case_killed_while_the_tool_decides_how_often_to_sample(directory):
    report_of_killed(reap=True)


if __name__ == "__main__":
    cases.run(globals(), "ended ranks")
