"""One rank of a job with a communication library of its own: a ring of sockets, in which each rank sends to the next and receives from the one before.

    ring.py CASE
"""
import os
import socket
import sys
import time

from job import DIRECTORY, FOREVER, announce, end_with_parent, is_odd, native, rank, world

GOOD_STEPS = 3


class Ring:
    def __init__(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self._path(rank()))
        self.listener.listen(1)
        self.to_next = socket.socket(socket.AF_UNIX)
        while self.to_next.connect_ex(self._path((rank() + 1) % world())) != 0:
            time.sleep(0.01)
        self.from_last, _ = self.listener.accept()

    @staticmethod
    def _path(number):
        return os.path.join(DIRECTORY, "ring.%d" % number)

    def average(self, value):
        """Passes each rank's value once around the ring."""
        total = value
        for _ in range(world() - 1):
            self.to_next.sendall(b"%016d" % value)
            value = int(self.from_last.recv(16))
            total += value
        return total / world()


def compute():
    announce("spins")
    native()[0].simulate_particles()


def sleep():
    announce()
    time.sleep(FOREVER)


def main():
    end_with_parent()
    ring = Ring()
    for step in range(400):
        if step == GOOD_STEPS:
            if is_odd():
                {"compute": compute, "sleep": sleep}[sys.argv[1]]()
            announce()
        ring.average(step)


if __name__ == "__main__":
    main()
