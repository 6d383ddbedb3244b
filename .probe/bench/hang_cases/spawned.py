"""Ranks started by torch.multiprocessing.spawn: the same programs as elsewhere.py and others, but no rank was started with RANK in its
environment.

    spawned.py PROGRAM CASE [...]
"""
import importlib
import os
import sys


def run(number, world, arguments):
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(world))
    sys.argv = arguments
    importlib.import_module(arguments[0]).main()


def main():
    import torch.multiprocessing
    from job import end_with_parent
    end_with_parent()
    world = int(os.environ["HANGS_RANKS"])
    torch.multiprocessing.spawn(run, (world, sys.argv[1:]), nprocs=world)


if __name__ == "__main__":
    main()
