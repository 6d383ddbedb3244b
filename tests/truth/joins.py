"""The thread whose end another waits for in pthread_join, known from memory alone: in programs without names, live and from a core."""
import contextlib
import os
import subprocess

import cases
from processes import Skip, check, json_report, settle


@contextlib.contextmanager
def joining(name):
    """The tids of main, of the thread that main joins, and of the one that this one joins."""
    process = subprocess.Popen([os.path.join(os.environ["RANKSTACKS_FIXTURES"], name)], stdout=subprocess.PIPE)
    try:
        tids = [int(word) for word in process.stdout.readline().split()]
        settle(process.pid)
        yield tids
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def check_joins(report, tids):
    joins = {thread["tid"]: thread.get("joins") for thread in report["ranks"][0]["threads"]}
    main, joiner, sleeper = tids
    check(joins == {main: joiner, joiner: sleeper, sleeper: None}, "joins: %r" % joins)


def case_of_a_program_without_names(_):
    with joining("join_chain") as tids:
        check_joins(json_report("attach", "--pids", tids[0]), tids)


def case_of_a_static_program_without_names(_):
    with joining("join_chain_static") as tids:
        check_joins(json_report("attach", "--pids", tids[0]), tids)


def case_from_a_core(directory):
    with joining("join_chain_static") as tids:
        core = os.path.join(directory, "core")
        try:
            subprocess.run(["gcore", "-o", core, str(tids[0])], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        except FileNotFoundError as error:
            raise Skip("no gcore here (Debian: gdb)") from error
        check_joins(json_report("core", "%s.%d" % (core, tids[0])), tids)


if __name__ == "__main__":
    cases.run(globals(), "joins")
