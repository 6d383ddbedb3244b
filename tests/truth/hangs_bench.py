"""bench/hangs: its scoring on literal reports, and its quickest jobs end to end (no torch, no MPI: some seconds each)."""
import concurrent.futures
import json
import os
import re
import socket
import subprocess
import sys

import cases
from processes import Skip, check, tool

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BENCH = os.path.join(SOURCE, "bench")
sys.path.insert(0, BENCH)

from hang_cases import ports                                                     # noqa: E402
from hang_cases.held_out import held_out_cases                                   # noqa: E402
from hang_cases.scoring import Rates, Score, Truth, chains_end_at, majority_vote, said   # noqa: E402
from hang_cases.table import cases as hang_cases                                 # noqa: E402

REASONS = ("data-loading checkpoint-io file-io network-io user-code python-lock native-lock subprocess debugger stopped compiling gpu-wait "
           "garbage-collection exception crashed missing worker-dead collective-mismatch process-group-order unmatched-p2p store-wait behind").split()


def python_frame(function, line):
    return {"kind": "python", "function": function, "file": "/job/train.py", "line": line}


def native_frame(function):
    return {"kind": "native", "function": function}


def process(pid, frames, rank=None, kind="rank"):
    return {"rank": rank, "kind": kind, "host": "node", "pid": pid, "executable": "/usr/bin/python3" if kind == "child" else "/opt/train", "threads": [{"tid": pid, "frames": frames}]}


def report(ranks, status, *suspects):
    entries = [dict(zip(("rank", "reason", "confidence"), suspect)) for suspect in suspects]
    return {"ranks": ranks, "verdict": {"status": status, "summary": "", "suspects": entries}}


def four(odd):
    """Ranks 0 to 3, pids 100 to 103; the main threads of those in `odd` are at another line."""
    return [process(100 + rank, [native_frame("poll"), python_frame("load" if rank in odd else "all_reduce", 7)], rank) for rank in range(4)]


PIDS = {rank: 100 + rank for rank in range(4)}


def scored(truth, made, ranks=None):
    return Score(truth, *said(made, ranks or PIDS))


def case_scoring_of_literal_reports(_):
    truth = Truth("culprit", {2: "data-loading"})
    right = scored(truth, report(four({2}), "culprit", (2, "data-loading", 0.9)))
    check(right.exact and right.found == 1 and right.reasons_right == 1 and right.innocents == [], "all right: %r" % vars(right))
    reason = scored(truth, report(four({2}), "culprit", (2, "file-io", 0.9)))
    check(not reason.exact and reason.found == 1 and reason.reasons_right == 0, "a wrong reason: %r" % vars(reason))
    more = scored(truth, report(four({2}), "culprit", (2, "data-loading", 0.9), (0, "behind", 0.2)))
    check(not more.exact and more.innocents == [0] and more.found == 1, "an innocent rank in addition: %r" % vars(more))
    status = scored(truth, report(four({2}), "undecided"))
    check(not status.exact and status.found == 0 and status.culprits == 1, "undecided: %r" % vars(status))
    unfounded = scored(Truth("healthy"), report(four(()), "culprit", (1, "user-code", 0.5)))
    check(not unfounded.exact and unfounded.innocents == [1] and unfounded.culprits == 0, "a healthy job's rank: %r" % vars(unfounded))
    either = Truth(("symmetric", "undecided"))
    check(scored(either, report(four(()), "undecided")).exact and not scored(either, report(four(()), "healthy")).exact, "two statuses that are right")
    two = Truth("culprit", {2: ("process-group-order", "collective-mismatch")})
    check(scored(two, report(four({2}), "culprit", (2, "collective-mismatch", 0.9))).exact, "a second reason that is right")
    lines = dict(Rates([right, reason, more, status, unfounded]).lines())
    check(lines == {"exact cases": "1 of 5 (20 %)", "culprits found": "3 of 4 (75 %)", "innocents accused per case": "0.40 (2)",
                    "reasons right, of the culprits found": "2 of 3 (67 %)", "chains that end at the cause, of the cases that state it": "none"}, "the rates: %r" % lines)


def chain(suspect, *links):
    return {"suspect": suspect, "from": 0, "links": [dict(zip(("node", "rank", "tid", "text"), link)) for link in links]}


def case_where_chains_end(_):
    """A chain ends at its last thread, whatever node follows; a worker is named by its host and pid."""
    worker = process(200, [native_frame("read"), python_frame("fetch", 9), python_frame("_worker_loop", 3)], 2, "child")
    made = report(four({2}) + [worker], "culprit", (2, "data-loading", 0.9), (3, "behind", 0.3))
    rank_2, in_worker, timer = ("thread", 2, 102, "waits"), ("thread", "node:200", 200, "in fetch"), ("timer", "node:200", None, "a time")

    def ends(chains, culprits, ends_at=("fetch", "train.py")):
        made["verdict"]["chains"] = chains
        return chains_end_at(made, PIDS, culprits, {rank: ends_at for rank in culprits} if ends_at else {})

    right, short = chain(2, ("thread", 0, 100, ""), ("operation", None, None, "all_reduce"), rank_2, in_worker, timer), chain(2, rank_2)
    truth = {2: ("data-loading",)}
    check(ends([right], truth) is True and ends([right], truth, ("_worker_loop", "train.py")) is True, "the worker")
    check(ends([short], truth) is False and ends([short], truth, ("load", "train.py")) is True, "the rank's main thread")
    check(ends([right], truth, ("fetch", "other.py")) is False, "another file")
    check(ends([], truth) is False and ends([chain(2, timer)], truth) is False, "no chain, no thread")
    check(ends([chain(2, ("thread", 2, 999, ""))], truth) is False, "a thread that is not there")
    check(ends([right], {1: ("user-code",)}) is None and ends([right], truth, None) is None, "no culprit was found; the case states nothing")
    check(ends([right], truth, ("python3", None)) is True and ends([short], truth, ("python3", None)) is False, "a child's program")
    both = {2: ("data-loading",), 3: ("behind",)}
    made["verdict"]["chains"] = [right]
    check(chains_end_at(made, PIDS, both, {2: ("fetch", "train.py")}) is True, "of one of two culprits it is known")
    check(ends([right], both) is False and ends([right, chain(3, in_worker)], both) is True, "the chains of all culprits")
    score = Score(Truth("culprit", truth), *said(made, PIDS), chain=True)
    check(dict(Rates([score, Score(Truth("culprit", truth), *said(made, PIDS), chain=False), scored(Truth("healthy"), report(four(()), "healthy"))]).lines())
          ["chains that end at the cause, of the cases that state it"] == "1 of 2 (50 %)", "the rate")


def case_processes_are_known_by_their_pid(_):
    """A job without rank numbers, an unrelated process that was given too, a rank that is missing."""
    unnamed = [process(100 + rank, [python_frame("get", 3)]) for rank in range(3)] + [process(77, [native_frame("read")])]
    truth = Truth("culprit", {1: "user-code"})
    by_host = scored(truth, report(unnamed, "culprit", ("node:101", "user-code", 0.8)))
    check(by_host.exact, "named by host and pid: %r" % vars(by_host))
    unrelated = scored(truth, report(unnamed, "culprit", ("node:101", "user-code", 0.8), ("node:77", "file-io", 0.3)))
    check(not unrelated.exact and unrelated.innocents == ["unrelated 77"], "a unrelated accused: %r" % vars(unrelated))
    three = {rank: 100 + rank for rank in range(3)}
    missing = scored(Truth("culprit", {3: "missing"}), report(four(())[:3], "culprit", (3, "missing", 0.9)), three)
    check(missing.exact, "a rank that is not there: %r" % vars(missing))
    snapshot = Score(Truth("culprit", {1: "user-code"}), *said(report(four({1}), "culprit", (1, "user-code", 0.8)), None))
    check(snapshot.exact, "a saved report's own names: %r" % vars(snapshot))


def case_majority_vote_is_naive(_):
    truth = Truth("culprit", {2: "data-loading"})

    def vote(ranks):
        return majority_vote(report(ranks, "undecided"), PIDS)

    check(vote(four({2})) == ("culprit", {2: (None, None)}) and Score(truth, *vote(four({2})), reasons=False).exact, "one against three")
    check(vote(four({1, 2, 3})) == ("culprit", {0: (None, None)}), "three against one: the one is accused, right or wrong")
    check(vote(four({0, 1})) == ("undecided", {}), "two against two")
    check(vote(four(())) == ("symmetric", {}), "all alike")
    native = [process(100 + rank, [native_frame(None), native_frame("sleep" if rank == 3 else "MPI_Allreduce")], rank) for rank in range(4)]
    check(vote(native)[1].keys() == {3}, "without Python: the innermost function that has a name")
    child = process(300, [python_frame("fetch", 1)], 0, "child")
    check(vote(four(()) + [child]) == ("symmetric", {}), "children have no vote")


def case_table_covers_all_reasons(_):
    known = hang_cases()
    names = [case.name for case in known]
    check(len(set(names)) == len(names), "names are not unique")
    reasons = {own[0] for case in known for own in case.truth.culprits.values()}
    check(reasons == set(REASONS), "reasons without a case, or unknown: %r" % (reasons ^ set(REASONS)))
    nobody = [case.name for case in known if not case.truth.culprits]
    check(len(known) >= 80 and len(nobody) >= 10, "%d cases, %d without a culprit" % (len(known), len(nobody)))
    check({case.truth.statuses[0] for case in known} == {"culprit", "symmetric", "healthy", "undecided"}, "every status has a case")
    for case in known:
        check(set(case.truth.culprits) <= set(range(case.ranks)), "%s: a culprit that is no rank" % case.name)
        check(bool(case.truth.culprits) == (case.truth.statuses[0] == "culprit"), "%s: %s" % (case.name, case.truth))
    with open(os.path.join(SOURCE, "docs", "benchmark.md"), encoding="utf-8") as page:
        check("`bench/hangs" in page.read(), "docs/benchmark.md does not mention it")


def case_table_of_held_out_jobs(_):
    """Their names are their own, and they run only if they are asked for."""
    known, held_out = hang_cases(), held_out_cases()
    names = [case.name for case in held_out]
    check(len(names) >= 70 and len({case.name for case in known + held_out}) == len(known) + len(names), "%d cases, or a name that is taken" % len(names))
    for case in held_out:
        check(set(case.truth.culprits) <= set(range(case.ranks)), "%s: a culprit that is no rank" % case.name)
        check(bool(case.truth.culprits) == (case.truth.statuses[0] == "culprit"), "%s: %s" % (case.name, case.truth))
        check(set().union(*case.truth.culprits.values()) <= set(REASONS), "%s: %s" % (case.name, case.truth))
    listed = {options: subprocess.run([os.path.join(BENCH, "hangs"), "--list", *options], stdout=subprocess.PIPE, check=True, encoding="utf-8").stdout.split()
              for options in ((), ("--held-out",), ("--case", names[0]))}
    check(not set(names) & set(listed[()]) and set(names) <= set(listed[("--held-out",)]), "held-out cases are listed unasked, or not if asked")
    check(names[0] in listed[("--case", names[0])], "%s is not found by its name" % names[0])


def case_table_of_gpu_jobs(_):
    """Every case of bench/gpu has a function in its program, and a truth; without a GPU the benchmark says so."""
    sys.path.append(BENCH)
    from gpu_cases.table import CASES
    names = [case.name for case in CASES]
    check(len(set(names)) == len(names) and len(names) >= 70, "%d cases, %d names" % (len(names), len(set(names))))
    healthy = [case.name for case in CASES if case.truth.statuses[0] == "healthy"]
    check(len(healthy) >= 8, "healthy: %r" % healthy)
    for case in CASES:
        check(set(case.truth.culprits) <= set(range(case.ranks)), "%s: a culprit that is no rank" % case.name)
        check(bool(case.truth.culprits) == (case.truth.statuses[0] == "culprit"), "%s: %s" % (case.name, case.truth))
        check(set().union(*case.truth.culprits.values()) <= set(REASONS), "%s: %s" % (case.name, case.truth))
    directories = os.pathsep.join(os.path.join(BENCH, name) for name in ("gpu_cases", "hang_cases"))
    for program in sorted({case.program for case in CASES}):
        listed = subprocess.run([sys.executable, "-c", "import %s as p; print(*p.CASES)" % program[:-len(".py")]], stdout=subprocess.PIPE, check=True,
                                env=dict(os.environ, PYTHONPATH=directories, PYTHONDONTWRITEBYTECODE="1"), encoding="utf-8").stdout.split()
        asked = {case.arguments[0] for case in CASES if case.program == program}
        check(asked == set(listed), "%s: without a case, or without a function: %r" % (program, asked ^ set(listed)))
    done = subprocess.run([os.path.join(BENCH, "gpu"), "--gpus", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    check(done.returncode == 77 and b"no NVIDIA GPU" in done.stderr, "without a GPU: status %d, %r" % (done.returncode, done.stderr))


def case_ports_of_jobs(_):
    """No two jobs of a run get the same port, nor one that the kernel may give to somebody else, nor one that somebody listens on."""
    first, last = ports.ephemeral_range()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        given = list(pool.map(lambda _: ports.free_port(), range(200)))
    check(len(set(given)) == len(given), "twice: %r" % sorted(port for port in given if given.count(port) > 1))
    outside = set(range(10000, 65536)) - set(range(first, last + 1)) - set(ports.DEFAULTS)
    check(not outside or set(given) <= outside, "in the kernel's range, or known: %r" % sorted(set(given) - outside))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        check(not ports.is_free(listener.getsockname()[1]), "a port that somebody listens on is free")


def run_bench(directory, *names):
    path = os.path.join(directory, "result.json")
    done = subprocess.run([os.path.join(BENCH, "hangs"), "--tool", tool(), "--json", path, "--case", *names], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280, env=dict(os.environ, TMPDIR=directory))
    text = done.stdout.decode(errors="replace")
    if done.returncode == 77:
        raise Skip("; ".join(re.findall(r"skipped: ([^|]*)", text)))
    with open(path, encoding="utf-8") as stream:
        return done.returncode, text, json.load(stream)


def check_right(directory, *names):
    status, text, result = run_bench(directory, *names)
    check(status == 0 and [row["case"] for row in result["cases"]] == list(names) and all(row["exact"] for row in result["cases"]), text)
    check([name for name in os.listdir(directory) if name.startswith("rankstacks-")] == [], "directories are left behind: %r" % os.listdir(directory))
    check(not processes_below(directory), "processes are left behind: %r" % processes_below(directory))


def processes_below(directory):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as stream:
                if b"HANGS_DIRECTORY=" + os.fsencode(directory) in stream.read():
                    found.append(pid)
        except OSError:
            pass
    return found


def case_a_silent_server(directory):
    check_right(directory, "plain-barrier")


def case_a_file_lock(directory):
    check_right(directory, "plain-file-lock")


def case_everyone_waits(directory):
    check_right(directory, "all-wait-for-a-server")


def case_saved_snapshots(directory):
    check_right(directory, "nccl-asleep", "nccl-checkpoint", "nccl-data-loader")


if __name__ == "__main__":
    cases.run(globals(), "hangs_bench")
