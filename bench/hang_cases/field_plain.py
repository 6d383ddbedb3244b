"""A job of plain multiprocessing, whose processes are numbered by nothing but their names. The parent starts HANGS_RANKS of them.

    field_plain.py CASE

Held out: written without a look at the rules of the tool (docs/benchmark.md).
"""
import multiprocessing
import os
import queue
import sys
import time

from job import SILENT_FIFO, announce, end_with_parent, odd_ranks

GOOD_STEPS, ENDLESS = 3, 1 << 40


def read_prices():
    with open(SILENT_FIFO, "rb", buffering=0) as prices:
        return prices.read(8)


def simulate(steps):
    total = 0
    for number in range(steps):
        total += number * number
    return total


def search_forever():
    best = 0
    while best >= 0:
        best = simulate(1000)


def condition(number, shared):
    """The others wait on a condition until all have arrived; the odd process reads a file."""
    announce(name=number)
    if number in odd_ranks():
        read_prices()
    with shared["condition"]:
        shared["arrived"].value += 1
        shared["condition"].notify_all()
        shared["condition"].wait_for(lambda: shared["arrived"].value == int(os.environ["HANGS_RANKS"]))


def task_queue(number, shared):
    """The odd process works on its task without end; the others wait, a second at a time, for what it will put into the queue."""
    if number in odd_ranks():
        announce("spins", name=number)
        search_forever()
    announce("settles", name=number)
    while True:
        try:
            return shared["queue"].get(timeout=1)
        except queue.Empty:
            continue


def ring_of_pipes(number, shared):
    """Each process passes a token on. The odd one has it, and waits for its child."""
    ranks = int(os.environ["HANGS_RANKS"])
    receive, send = shared["pipes"][number][0], shared["pipes"][(number + 1) % ranks][1]
    for step in range(ENDLESS):
        if number != 0 or step > 0:
            if step == GOOD_STEPS:
                announce(name=number)
            receive.recv()
        if number in odd_ranks() and step == GOOD_STEPS:
            run_solver(number)
        send.send(step)


def run_solver(number):
    announce(name=number)
    os.spawnvp(os.P_WAIT, "sleep", ["sleep", "100000"])


def flag(number, shared):
    """The others look without a pause at a number in shared memory, which the odd process would set; it reads a file."""
    if number in odd_ranks():
        announce(name=number)
        shared["arrived"].value = int.from_bytes(read_prices(), "little")
    announce("spins", name=number)
    while shared["arrived"].value == 0:
        pass


def stages(number, shared):
    """A healthy job: three stages in a row, each of which takes from a queue and puts into the next one."""
    queues = [shared["tasks"], shared["queue"], shared["results"]]
    for done in range(ENDLESS):
        if number == 0:
            time.sleep(0.2)
        item = done if number == 0 else queues[number - 1].get()
        simulate(50000)
        if number < 3:
            queues[number].put(item)
        if done == GOOD_STEPS:
            announce("moves", name=number)


def farm(number, shared):
    """A healthy job: process 0 hands out tasks and collects the results, the others work."""
    if number == 0:
        for task in range(ENDLESS):
            shared["tasks"].put(task)
            if task >= 4:
                shared["results"].get()
            if task == 4 + GOOD_STEPS:
                announce("moves", name=number)
    for done in range(ENDLESS):
        shared["tasks"].get()
        time.sleep(0.3)
        shared["results"].put(simulate(100000))
        if done == GOOD_STEPS:
            announce("moves", name=number)


CASES = {"condition": condition, "task-queue": task_queue, "ring-of-pipes": ring_of_pipes, "farm": farm, "flag": flag, "stages": stages}


def run(number, case, shared):
    end_with_parent()
    CASES[case](number, shared)


def main():
    end_with_parent()
    context = multiprocessing.get_context("fork")
    ranks = int(os.environ["HANGS_RANKS"])
    shared = {"condition": context.Condition(), "arrived": context.Value("i", 0), "queue": context.Queue(), "tasks": context.Queue(),
              "results": context.Queue(), "pipes": [context.Pipe(duplex=False) for _ in range(ranks)]}
    processes = [context.Process(target=run, args=(number, sys.argv[1], shared), name="rank-%d" % number) for number in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
