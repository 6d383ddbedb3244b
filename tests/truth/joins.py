"""The thread whose end another waits for in pthread_join, known from memory alone: in programs without names, live and from a core. The
thread that has locked a mutex and ended."""
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


def core_of(pid, directory):
    core = os.path.join(directory, "core")
    try:
        subprocess.run(["gcore", "-o", core, str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    except FileNotFoundError as error:
        raise Skip("no gcore here (Debian: gdb)") from error
    return "%s.%d" % (core, pid)


def case_from_a_core(directory):
    with joining("join_chain_static") as tids:
        check_joins(json_report("core", core_of(tids[0], directory)), tids)


def check_owners(report, tids):
    """Who holds a mutex that several processes share may be a thread of another one, so that nothing is known of its owner."""
    owners = {thread["tid"]: thread.get("lock_owner") for thread in report["ranks"][0]["threads"]}
    main, waiter, ended = tids
    check(owners == {main: ended, waiter: None}, "owners of locks: %r" % owners)
    check("held by thread %d, which has ended" % ended in report["verdict"]["summary"], report["verdict"]["summary"])


def case_a_mutex_whose_owner_has_ended(directory):
    with joining("ended_owner") as tids:
        check_owners(json_report("attach", "--pids", tids[0]), tids)
        check_owners(json_report("core", core_of(tids[0], directory)), tids)


if __name__ == "__main__":
    cases.run(globals(), "joins")
