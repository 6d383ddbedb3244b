"""For how long a job is sampled if neither --samples nor --interval is given: until it is known whether the job makes progress."""
import json
import os
import subprocess
import sys
import time

import cases
from command_line import SOURCE
from processes import Fixture, check, tool
from truth_python import only_rank

SPIN = os.path.join(SOURCE, "fixtures", "jobs", "spin.py")


def rank(number):
    return Fixture([sys.executable, SPIN], env=dict(os.environ, RANK=str(number), WORLD_SIZE="2", PYTHONDONTWRITEBYTECODE="1"))


def start_attach(*fixtures, max_wait):
    command = [tool(), "attach", "--pids", ",".join(str(fixture.pid) for fixture in fixtures), "--max-wait", str(max_wait), "--format", "json"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def report_of(attach):
    out, err = attach.communicate(timeout=120)
    check(out, "no report: %s" % err.decode(errors="replace"))
    return json.loads(out)


def looked_for(report):
    return max(thread["motion"]["span_ms"] for rank in report["ranks"] for thread in rank["threads"] if "motion" in thread)


def case_a_loop_without_an_end(directory):
    """All ranks run at one place: for a second a long step looks the same; for longer than steps take, it does not."""
    with rank(0) as one, rank(1) as other:
        short = report_of(start_attach(one, other, max_wait=0))
        check(short["verdict"]["status"] == "healthy" and looked_for(short) < 3000, "%r after %d ms" % (short["verdict"]["summary"], looked_for(short)))
        long = report_of(start_attach(one, other, max_wait=6))
        check(long["verdict"]["status"] == "symmetric" and looked_for(long) > 4000, "%r after %d ms" % (long["verdict"]["summary"], looked_for(long)))


def case_a_rank_that_ends_meanwhile(directory):
    """What was seen while all ranks existed is kept: a job that has ended since then is no job with missing ranks. The rank has a problem
    that says it."""
    with rank(0) as one, rank(1) as other:
        attach = start_attach(one, other, max_wait=6)
        time.sleep(4)          # after the first samples, within the long one: whenever it is, the report has both ranks
        other.write(b"end\n")
        other.process.wait(timeout=60)
        report = report_of(attach)
        check(report["verdict"]["status"] == "healthy", "%r" % report["verdict"]["summary"])
        for fixture, status, codes in ((one, "complete", []), (other, "partial", ["ended"])):
            seen = only_rank(report, fixture.pid)
            check((seen["status"], [problem["code"] for problem in seen["problems"]]) == (status, codes), "%r" % seen["problems"])
            check(seen["threads"], "its threads are not in the report")


if __name__ == "__main__":
    cases.run(globals(), "long_samples")
