"""A job of plain multiprocessing: no torch, no MPI, and no environment variable that gives a process a rank. The parent starts HANGS_RANKS
processes and joins them.

    plain.py CASE
"""
import fcntl
import multiprocessing
import os
import sys
import time

from job import FOREVER, announce, connect_to_silent_server, end_with_parent, odd_ranks

GOOD_STEPS = 3


def fetch_prices():
    return connect_to_silent_server().recv(4096)


def barrier(number, shared):
    """All meet at a barrier; the odd process waits for a server."""
    announce(name=number)
    if number in odd_ranks():
        fetch_prices()
    shared["barrier"].wait()


def left_barrier(number, shared):
    """The odd process has ended, as after an error that is not reported."""
    if number in odd_ranks():
        announce("gone", name=number)
        return
    announce(name=number)
    shared["barrier"].wait()


def tokenize(seconds):
    time.sleep(seconds)
    return list(range(10))


def queue(number, shared):
    """The odd process produces, the others wait for what it puts into the queue; it is asleep in its own code."""
    announce(name=number)
    if number in odd_ranks():
        shared["queue"].put(tokenize(FOREVER))
    shared["queue"].get()


def lock_holder(number, shared):
    """The odd process holds the lock that the others want, and sleeps."""
    if number in odd_ranks():
        with shared["lock"]:
            shared["held"].set()
            announce(name=number)
            tokenize(FOREVER)
    shared["held"].wait()
    announce(name=number)
    with shared["lock"]:
        tokenize(0)


def file_lock(number, shared):
    """The odd process waits for a file lock that a process outside of the job holds."""
    announce(name=number)
    if number in odd_ranks():
        with open(os.path.join(os.environ["HANGS_DIRECTORY"], "cache.lock"), "w", encoding="ascii") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
    shared["barrier"].wait()


def simulate(number, shared):
    """A healthy job: every step is computed, and all processes meet at the barrier."""
    for step in range(1 << 40):
        sum(range(200000 * (1 + number)))
        shared["barrier"].wait()
        if step == GOOD_STEPS:
            announce("moves", name=number)


def alike(number, shared):
    """All wait for the same server at the same line."""
    announce(name=number)
    fetch_prices()


CASES = {"barrier": barrier, "left-barrier": left_barrier, "queue": queue, "lock-holder": lock_holder, "file-lock": file_lock, "simulate": simulate, "alike": alike}


def run(number, case, shared):
    end_with_parent()
    CASES[case](number, shared)


def main():
    end_with_parent()
    context = multiprocessing.get_context("fork")
    ranks = int(os.environ["HANGS_RANKS"])
    shared = {"barrier": context.Barrier(ranks), "queue": context.Queue(), "lock": context.Lock(), "held": context.Event()}
    processes = [context.Process(target=run, args=(number, sys.argv[1], shared)) for number in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
