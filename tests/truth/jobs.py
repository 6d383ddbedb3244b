"""Real torch jobs that hang, live and from their cores: the report puts the blocked rank first.

What other files check of such a job is checked here too, as its start and its cores take seconds: diff.py, versions.py."""
import os
import sys

import cases
import debugger
import diff
import versions
from command_line import SOURCE, text_of
from processes import Attempts, Fixture, check, json_report, need_torch, run_tool
from truth_python import only_rank


class Job(Fixture):
    def __init__(self, *arguments):
        need_torch()
        super().__init__([sys.executable, os.path.join(SOURCE, "fixtures", "jobs", "launch.py")] + list(arguments), deadline=300)


def check_verdict(report, fixture, where):
    ready = fixture.ready
    blocked = only_rank(report, ready["blocked_pid"])
    stack = [frame for thread in blocked["threads"] for frame in thread["frames"] if frame["kind"] == "python"]
    lines = [frame["line"] for frame in stack if frame["function"] == "read_shard"]
    with open(os.path.join(SOURCE, "fixtures", "jobs", "train.py"), encoding="utf-8") as source:
        expected = next(number for number, line in enumerate(source, 1) if "stream.read(4096)" in line)
    check(lines == [expected], "%s: the blocked rank is in line %r of read_shard, not %d" % (where, lines, expected))
    main_clusters = [cluster for cluster in report["clusters"] if cluster["role"] == "main"]
    by_ranks = {tuple(cluster["ranks"]): cluster["odd"] for cluster in main_clusters}
    number = ready["blocked_rank"]
    others = tuple(rank for rank in range(len(ready["pids"])) if rank != number)
    check(by_ranks.get((number,)) is True and by_ranks.get(others) is False, "%s: clusters of the main threads: %r" % (where, by_ranks))
    verdict = report["verdict"]
    check(verdict["status"] == "culprit" and [suspect["rank"] for suspect in verdict["suspects"]] == [number], "%s: %r" % (where, verdict))
    check(verdict["suspects"][0]["reason"] == "data-loading", "%s: %r" % (where, verdict))


def native_stacks(report):
    """{(pid, tid): ([addresses of the native frames, inlined frames counted once], stack_end)}"""
    stacks = {}
    for rank in report["ranks"]:
        for thread in rank["threads"]:
            addresses = [frame["address"] for frame in thread["frames"] if frame["kind"] == "native" and not frame["inlined"]]
            stacks[rank["pid"], thread["tid"]] = (addresses, thread["stack_end"])
    return stacks


def check_both_unwinders(cores):
    """Only libunwind and only libdwfl, on the same cores: every return address of every thread, and why each stack ends."""
    first = native_stacks(json_report("core", "--unwinder", "libunwind", *cores))
    second = native_stacks(json_report("core", "--unwinder", "libdwfl", *cores))
    check(first.keys() == second.keys() and len(first) >= 3 * 4, "%d and %d threads" % (len(first), len(second)))
    check(max(len(addresses) for addresses, _ in first.values()) >= 20, "no deep stack of torch among them")
    for key in first:
        check(first[key] == second[key], "pid %d tid %d: libunwind %r, libdwfl %r" % (key + (first[key], second[key])))


def check_text(pids):
    status, out, err = run_tool("attach", "--pids", pids)
    text = text_of(out)
    lines = text.splitlines()
    check(status == 0 and err == b"", "status %d: %r" % (status, err))
    check(len(lines) <= 40 and max(map(len, lines)) <= 100, "%d lines of up to %d columns:\n%s" % (len(lines), max(map(len, lines)), text))
    check("read_shard" in text, "the blocked function is not in the report:\n%s" % text)


def case_four_ranks_one_blocked_in_getitem(directory):
    """One job, and one core of each rank, for all that is to be seen of it; rank 1 has other settings than the others."""
    attempts = Attempts()
    with Job("--ranks", "4", "--blocked-rank", "2", *versions.JOB_SETTINGS) as job:
        pids = ",".join(map(str, job.ready["pids"]))
        live = json_report("attach", "--pids", pids)
        check([rank["rank"] for rank in live["ranks"] if rank["kind"] == "rank"] == list(range(4)), "the ranks' order")
        attempts.make("verdict", lambda: check_verdict(live, job, "live"))
        attempts.make("text", lambda: check_text(pids))
        attempts.make("versions", lambda: versions.check_live_job(directory, live))
        attempts.make("diff", lambda: diff.check_hung_job(directory, job))
        cores = [os.path.join(directory, "core.%d" % pid) for pid in job.ready["pids"]]
        for pid, path in zip(job.ready["pids"], cores):
            debugger.write_core(pid, path)
        job.check_unharmed()
        dead = json_report("core", *cores)
        attempts.make("verdict of cores", lambda: check_verdict(dead, job, "cores"))
        attempts.make("versions in cores", lambda: versions.check_cores_of_job(dead))
    attempts.make("unwinders", lambda: check_both_unwinders(cores[:3]))
    attempts.finish()


def case_blocked_in_a_loader_worker(directory):
    def check_worker(report, where):
        worker = only_rank(report, job.ready["blocked_pid"])
        check(worker["kind"] == "child" and worker["parent"] == job.ready["pids"][1], "%s: the worker: %r of %r" % (where, worker["kind"], worker["parent"]))
        check_verdict(report, job, where)

    with Job("--ranks", "3", "--blocked-rank", "1", "--workers", "1") as job:
        pids = list(map(str, job.ready["pids"]))
        check_worker(json_report("attach", "--pids", ",".join(pids)), "live")
        # pgrep names the worker too, and a directory of cores has its core: it stays a child of its rank.
        named = [str(job.ready["blocked_pid"])] + pids
        check_worker(json_report("attach", "--pids", *named), "live, named")
        cores = [os.path.join(directory, "core.%s" % pid) for pid in named]
        for pid, path in zip(named, cores):
            debugger.write_core(int(pid), path)
        job.check_unharmed()
        check_worker(json_report("core", *cores), "cores")


if __name__ == "__main__":
    cases.run(globals(), "job")
