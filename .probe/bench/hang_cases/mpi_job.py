"""One rank of an mpi4py job.

    mpi_job.py CASE
"""
import sys
import time

from job import FOREVER, announce, end_with_parent, is_odd

from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def integrate(seconds):
    time.sleep(seconds)


def sleep():
    announce("asleep" if is_odd() else "spins")
    if is_odd():
        integrate(FOREVER)
    WORLD.allreduce(1.0)


def receive():
    """The odd rank receives from its neighbour, which sends nothing: the neighbour is at the barrier with the others."""
    announce("spins")
    if is_odd():
        WORLD.recv(source=(WORLD.Get_rank() + 1) % WORLD.Get_size(), tag=7)
    WORLD.Barrier()


def steps():
    """A healthy job."""
    total = 0.0
    for step in range(1 << 40):
        total = WORLD.allreduce(sum(range(1000000)) % 7 + total / WORLD.Get_size())
        if step == 3:
            announce("moves")


CASES = {"sleep": sleep, "receive": receive, "steps": steps}

if __name__ == "__main__":
    end_with_parent()
    WORLD.Barrier()
    CASES[sys.argv[1]]()
