"""Checkpoints of Orbax in a JAX job on CPUs, whose collectives are gloo's.

    orbax_job.py CASE
"""
import fcntl
import os
import shutil
import sys
import time

from job import DIRECTORY, FULL_FIFO, SILENT_FIFO, announce, end_with_parent, is_odd, rank
from jax_cpu import connect, summing

GOOD_STEPS = 3
CHECKPOINTS = os.path.join(DIRECTORY, "checkpoints")


def state_of(jax):
    """A tree with one array that all processes have, and one of which each has a part."""
    _, parts = summing(jax)
    whole = jax.jit(lambda: jax.numpy.arange(256.0), out_shardings=jax.sharding.NamedSharding(parts.sharding.mesh, jax.sharding.PartitionSpec()))
    return {"table": parts, "bias": whole()}


def train(jax, steps=GOOD_STEPS):
    step, values = summing(jax)
    for _ in range(steps):
        step(values).block_until_ready()


def write_statistics():
    """The disk takes nothing any more."""
    if is_odd():
        announce("waits")
    with open(FULL_FIFO if is_odd() else os.path.join(DIRECTORY, "statistics.%d" % rank()), "wb") as out:
        out.write(bytes(4096))


def arguments_of(ocp, handler):
    """The class of arguments by which a checkpointer finds its handler."""
    @ocp.args.register_with_handler(handler, for_save=True, for_restore=True)
    class Arguments(ocp.args.CheckpointArgs):
        pass

    return Arguments


def save(jax):
    """Each process also writes its own statistics, in a handler of the program's own. The others are at the barrier behind it."""
    import orbax.checkpoint as ocp

    class Statistics(ocp.CheckpointHandler):
        def save(self, directory, args):
            write_statistics()

        def restore(self, directory, args=None):
            return None

    save_statistics = arguments_of(ocp, Statistics)
    train(jax)
    checkpointer = ocp.Checkpointer(ocp.CompositeCheckpointHandler())
    if not is_odd():
        announce("waits")
    checkpointer.save(os.path.join(CHECKPOINTS, "1"), ocp.args.Composite(state=ocp.args.StandardSave(state_of(jax)), statistics=save_statistics()))


def save_in_background(jax):
    """The statistics are written by the thread that commits the checkpoint, and every process waits for its own before the next step."""
    import asyncio
    import orbax.checkpoint as ocp

    class Statistics(ocp.AsyncCheckpointHandler):
        async def async_save(self, directory, args):
            return [ocp.future.CommitFutureAwaitingContractedSignals(asyncio.to_thread(write_statistics), name="statistics")]

        def save(self, directory, args):
            write_statistics()

        def restore(self, directory, args=None):
            return None

    save_statistics = arguments_of(ocp, Statistics)
    train(jax)
    with ocp.CheckpointManager(CHECKPOINTS) as manager:
        manager.save(0, args=ocp.args.Composite(state=ocp.args.StandardSave(state_of(jax)), statistics=save_statistics()))
        train(jax)
        if not is_odd():
            announce("waits")
        manager.wait_until_finished()


def create_directory(jax):
    """Process 0 creates the directory of a checkpoint, under a lock of its file system that another program has. The others wait for it."""
    import orbax.checkpoint as ocp
    from orbax.checkpoint._src.path import atomicity

    class LockedPath(atomicity.AtomicRenameTemporaryPath):
        async def create(self):
            announce("waits")
            with open(os.path.join(DIRECTORY, "cache.lock"), "wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
            return await super().create()

    train(jax)
    manager = ocp.CheckpointManager(CHECKPOINTS, options=ocp.CheckpointManagerOptions(temporary_path_class=LockedPath))
    if not is_odd():
        announce("waits")
    manager.save(0, args=ocp.args.StandardSave(state_of(jax)))
    manager.wait_until_finished()


def restore(jax):
    """Every process has a copy of the checkpoint on a disk of its own. One disk does not answer."""
    import orbax.checkpoint as ocp
    checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())
    checkpointer.save(os.path.join(CHECKPOINTS, "1"), args=ocp.args.StandardSave(state_of(jax)))
    copy = os.path.join(DIRECTORY, "disk-%d" % rank(), "1")
    shutil.copytree(os.path.join(CHECKPOINTS, "1"), copy)
    train(jax)
    if is_odd():
        os.unlink(os.path.join(copy, "_METADATA"))
        os.symlink(SILENT_FIFO, os.path.join(copy, "_METADATA"))
    announce("waits")
    checkpointer.restore(copy, args=ocp.args.StandardRestore(state_of(jax)))


def one_process(jax):
    """Only process 0 saves, which all have to."""
    import orbax.checkpoint as ocp
    step, values = summing(jax)
    checkpointer = ocp.Checkpointer(ocp.StandardCheckpointHandler())
    state = state_of(jax)
    for number in range(1 << 40):
        if number == GOOD_STEPS:
            announce("waits")
            if jax.process_index() == 0:
                checkpointer.save(os.path.join(CHECKPOINTS, "1"), args=ocp.args.StandardSave(state))
        step(values).block_until_ready()


def steps(jax):
    """All is well; a checkpoint is saved in the background again and again."""
    import orbax.checkpoint as ocp
    step, values = summing(jax)
    state = state_of(jax)
    with ocp.CheckpointManager(CHECKPOINTS, options=ocp.CheckpointManagerOptions(save_interval_steps=20, max_to_keep=2)) as manager:
        for number in range(1 << 40):
            if number == 20 + GOOD_STEPS:
                announce("moves")
            step(values).block_until_ready()
            manager.save(number, args=ocp.args.StandardSave(state))
            time.sleep(0.01)


CASES = {"save": save, "background": save_in_background, "directory": create_directory, "restore": restore, "one-process": one_process, "steps": steps}


def main():
    end_with_parent()
    CASES[sys.argv[1]](connect(None))


if __name__ == "__main__":
    main()
