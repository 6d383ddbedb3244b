"""Variables of Python frames that identify the process group that a real torch job's ranks wait in, live and from their cores."""
import os
import sys

import cases
import debugger
import interpreters
from command_line import SOURCE
from processes import Fixture, Skip, check, json_report, need_torch
from truth_python import only_rank


def variables_of(rank):
    """[(function, variables)] of its main thread, innermost first."""
    thread = next(thread for thread in rank["threads"] if thread["tid"] == rank["pid"])
    return [(thread["frames"][found["frame"]]["function"], found) for found in thread.get("variables", [])]


def check_rank(rank, wait, layout, step, where):
    found = variables_of(rank)
    check(found, "%s: no variables" % where)
    innermost = found[0]
    check(innermost[0] == wait["function"], "%s: the innermost frame with variables is %r, not %s" % (where, found, wait["function"]))
    numbers = innermost[1]["numbers"]
    # Later versions add group_src and group_dst.
    check({name: numbers[name] for name in numbers if not name.startswith("group_")} == wait["numbers"], "%s: %r instead of %r" % (where, numbers, wait))
    check(innermost[1].get("group") == wait["group"], "%s: %r instead of %r" % (where, innermost[1].get("group"), wait["group"]))
    check([rank.get("coordinates_from"), rank["coordinates"]] == layout, "%s: its place is %r, from %r" % (where, rank["coordinates"], rank.get("coordinates_from")))
    own = dict(found).get("rank_main")
    check(own, "%s: no counters of the program: %r" % (where, found))
    check(own["numbers"] == {"step": step} and "group" not in own, "%s: the program's own frame: %r" % (where, own))


def check_groups(directory, python):
    need_torch(python=python)
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    with Fixture([sys.executable, os.path.join(SOURCE, "fixtures", "jobs", "groups.py"), "--python", python], deadline=300, env=environment) as job:
        pids, waits, layouts, step = (job.ready[name] for name in ("pids", "waits", "layouts", "step"))
        report = json_report("attach", "--pids", ",".join(map(str, pids)))
        for number, pid in enumerate(pids):
            check_rank(only_rank(report, pid), waits[number], layouts[number], step, "rank %d, live" % number)
        cores = [os.path.join(directory, "core.%d" % pid) for pid in pids[:2]]
        for pid, path in zip(pids, cores):
            debugger.write_core(pid, path)
        job.check_unharmed()
        dead = json_report("core", *cores)
        for number, pid in enumerate(pids[:2]):
            check_rank(only_rank(dead, pid), waits[number], layouts[number], step, "rank %d, its core" % number)


def case_collector_at_work(directory):
    """Known from the interpreter's own state, so that it is seen even if the interpreter's functions have no names."""
    seen = 0
    for version in ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15", "system"):
        try:
            interpreter = interpreters.find(version)
        except Skip as skipped:
            print("without %s: %s" % (version, skipped))
            continue
        with interpreters.inside(interpreter, os.path.join(SOURCE, "fixtures", "jobs")) as programs:
            with Fixture(interpreter.run(os.path.join(programs, "collecting.py")), **interpreter.options()) as fixture:
                # Between two collections it is not collecting: not every sample finds it in one.
                for _ in range(20):
                    rank = only_rank(json_report("attach", "--pids", fixture.pid), fixture.pid)
                    if rank["threads"][0].get("collecting"):
                        check(rank["activity"]["kind"] == "garbage-collection", "%s: %r" % (version, rank["activity"]))
                        break
                else:
                    check(False, "%s: never seen to collect" % version)
        seen += 1
    if not seen:
        raise Skip("no CPython from 3.9 to 3.15 here")


def case_process_groups_of_torch(directory):
    check_groups(directory, "/usr/bin/python3")


def case_process_groups_of_another_torch(directory):
    """RANKSTACKS_TEST_TORCH: the python of an environment with another version of torch."""
    python = os.environ.get("RANKSTACKS_TEST_TORCH")
    if not python:
        raise Skip("RANKSTACKS_TEST_TORCH names no python with another torch")
    check_groups(directory, python)


if __name__ == "__main__":
    cases.run(globals(), "variables")
