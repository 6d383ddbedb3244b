"""Jobs that are well, in which ranks sleep until they may ask again, threads look at a flag all the time, a learner takes episodes in any order, a rank
looks for commands, kernels stay on their GPUs for a while, groups are made anew, or a kernel waits for another rank.

    fourteenth_well.py CASE
"""
import select
import sys
import threading
import time

from fourteenth import lookup_kernel
from fourteenth_groups import learn, one_shot_sum, start_judge
from gpu_rank import TIMEOUT, connect, rank, run, world
from healthy import steps
from inside import ddp
from tenth_well import train_once


def busy_judge():
    """Before each step a rank asks a service. To the second rank that says the first time that it is busy: the rank sleeps for a second, and asks
    again. The first rank waits for it."""
    judge = start_judge(lambda number, attempt: 1 if rank() == 1 and attempt == 0 else 0)
    torch, _ = connect()
    model = ddp(torch)

    def train_step(number):
        judge(number)
        train_once(torch, model)

    steps(train_step)


def polling_threads():
    """Each rank has three threads that look in Python whether the job was preempted, without a pause; the main thread has to wait for the interpreter's
    lock all the time, and gets it."""
    state = {"preempted": False}

    def look_for_preemption():
        while not state["preempted"]:
            pass

    torch, _ = connect()
    model = ddp(torch)
    for number in range(3):
        threading.Thread(target=look_for_preemption, name="preemption-%d" % number, daemon=True).start()
    steps(lambda _: train_once(torch, model))


def any_actor():
    """Reinforcement learning. Rank 0 takes episodes of three actors over gloo as they come. The service that judges them has each actor wait for a second,
    and the third one twice; rank 0 and those that are done wait for that."""
    learn(start_judge(lambda number, attempt: 1 if attempt < (2 if rank() == 3 else 1) else 0))


def operator_looks():
    """After each step rank 0 looks for a second whether an operator types a command on its standard input, where nothing comes. The other rank waits for it
    in the next step."""
    torch, _ = connect()
    model = ddp(torch)

    def train_step(_):
        train_once(torch, model)
        if rank() == 0 and select.select([sys.stdin], [], [], 1.0)[0]:
            sys.stdin.readline()

    steps(train_step)


def lookups():
    """In each step a kernel stays on the GPU for more than a second to answer the look-ups of a thread, which then tells it to end. The main thread
    waits for the kernel's stream."""
    torch, _ = connect()
    model = ddp(torch)
    start, ask, end, stream = lookup_kernel(torch)

    def ask_slowly():
        for question in range(1, 13):
            ask(question)
            time.sleep(0.1)
        end()

    def train_step(_):
        start()
        asking = threading.Thread(target=ask_slowly, name="look-ups")
        asking.start()
        stream.synchronize()
        asking.join()
        train_once(torch, model)

    steps(train_step)


def regrouped():
    """In each step all ranks make a group, whose communicator NCCL has to set up, average by it, and give it back. They are in that nearly all the time."""
    torch, dist = connect()
    model, average = ddp(torch), torch.ones(1 << 16, device="cuda")

    def train_step(_):
        train_once(torch, model)
        group = dist.new_group(timeout=TIMEOUT)
        dist.all_reduce(average, group=group)
        average.div_(world()).sum().item()
        dist.destroy_process_group(group)

    steps(train_step)


def one_shot():
    """Ranks sum up over symmetric memory, by kernels that wait for each other. Before that, the second rank runs a kernel for about a second; that of
    the first rank waits for it."""
    torch, dist = connect()
    buffer, sum_small = one_shot_sum(torch, dist)

    def train_step(number):
        buffer.fill_(float(number))
        if rank() == 1:
            torch.cuda._sleep(int(2e9))
        sum_small().sum().item()

    steps(train_step)


CASES = {"busy-judge": busy_judge, "polling-threads": polling_threads, "any-actor": any_actor, "operator-looks": operator_looks, "lookups": lookups,
         "regrouped": regrouped, "one-shot": one_shot}

if __name__ == "__main__":
    run(CASES)
