"""A job of plain processes, numbered by nothing but their names: process 0 serves the others, one after the other. The parent starts
HANGS_RANKS of them.

    night_plain.py half-a-request

Held out: written without a look at the rules of the tool (docs/benchmark.md).
"""
import multiprocessing
import os
import socket
import sys

from job import SILENT_FIFO, announce, end_with_parent, odd_ranks

GOOD_STEPS = 3


def serve(server):
    """Answers each request with the mean of what it holds. A request has eight bytes."""
    number = 0
    while True:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as request:
            number += 1
            values = request.read(8)
            connection.sendall(bytes([sum(values) // 8]))


def read_gradients():
    with open(SILENT_FIFO, "rb", buffering=0) as gradients:
        return gradients.read(4)


def ask(address, number, step, barrier):
    with socket.create_connection(address) as connection:
        connection.sendall(b"head")
        if number in odd_ranks() and step == GOOD_STEPS:
            barrier.wait()
            announce(name=number)
            connection.sendall(read_gradients())
        connection.sendall(b"tail")
        return connection.recv(1)


def run(number, server, barrier):
    end_with_parent()
    if number == 0:
        announce(name=0)
        serve(server)
    for step in range(GOOD_STEPS + 1):
        if step == GOOD_STEPS:
            barrier.wait()
            if number not in odd_ranks():
                barrier.wait()
                announce(name=number)
        ask(server.getsockname(), number, step, barrier)


def main():
    end_with_parent()
    context = multiprocessing.get_context("fork")
    ranks = int(os.environ["HANGS_RANKS"])
    server = socket.create_server(("127.0.0.1", 0))
    barrier = context.Barrier(ranks - 1)
    processes = [context.Process(target=run, args=(number, server, barrier), name="rank-%d" % number) for number in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
