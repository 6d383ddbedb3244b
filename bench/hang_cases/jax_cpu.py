"""JAX on CPUs with one process for each rank, whose collectives are gloo's.

    jax_cpu.py CASE [RANK]

The rank's number comes from JAX_PROCESS_ID, from the index of an indexed job, or, if RANK is given, from this argument alone.
"""
import os
import sys
import threading
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=1")

from job import FOREVER, SILENT_FIFO, announce, connect_to_silent_server, end_with_parent, is_odd, rank

GOOD_STEPS = 3


def connect(number):
    import jax
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    address, size = "%s:%s" % (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]), int(os.environ["HANGS_RANKS"])
    if number is None:
        number = int(os.environ.get("JAX_PROCESS_ID") or os.environ["JOB_COMPLETION_INDEX"])
    jax.distributed.initialize(coordinator_address=address, num_processes=size, process_id=number)
    return jax


def summing(jax):
    """(a function that sums over all processes, its argument)"""
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    mesh = Mesh(jax.devices(), ("data",))
    local = jax.device_put(jnp.ones((1, 1024)), jax.local_devices()[0])
    values = jax.make_array_from_single_device_arrays((len(jax.devices()), 1024), NamedSharding(mesh, PartitionSpec("data")), [local])
    return jax.jit(lambda x: (x * 2).sum(), out_shardings=NamedSharding(mesh, PartitionSpec())), values


def augment():
    time.sleep(FOREVER)


def read_shard():
    with open(SILENT_FIFO, "rb") as stream:
        return stream.read(1)


def fetch_vocabulary():
    return connect_to_silent_server().recv(4096)


def update_statistics():
    lock = threading.Lock()
    with lock:
        lock.acquire()        # pylint: disable=consider-using-with


TROUBLES = {"sleep": augment, "file": read_shard, "network": fetch_vocabulary, "lock": update_statistics}


def trouble(name, jax, wait):
    step, values = summing(jax)
    for _ in range(GOOD_STEPS):
        wait(step(values))
    announce("waits")
    if is_odd():
        TROUBLES[name]()
    wait(step(values))


def block_until_ready(jax):
    trouble("sleep", jax, lambda result: result.block_until_ready())


def to_host(jax):
    trouble("file", jax, float)


def device_get(jax):
    trouble("network", jax, jax.device_get)


def to_numpy(jax):
    import numpy
    trouble("lock", jax, numpy.asarray)


def barrier(jax):
    """The others are at the coordination service's barrier."""
    from jax.experimental import multihost_utils
    multihost_utils.sync_global_devices("loaded")
    announce("waits")
    if is_odd():
        read_shard()
    multihost_utils.sync_global_devices("saved")


def allgather(jax):
    from jax.experimental import multihost_utils
    import numpy
    for _ in range(GOOD_STEPS):
        multihost_utils.process_allgather(numpy.ones(8))
    announce("waits")
    if is_odd():
        augment()
    multihost_utils.process_allgather(numpy.ones(8))


def uneven(jax):
    """The odd rank's data ends a step earlier: it is at the barrier behind the loop, and the others are in the step."""
    from jax.experimental import multihost_utils
    step, values = summing(jax)
    for number in range(GOOD_STEPS + (0 if is_odd() else 1)):
        if number == GOOD_STEPS:
            announce("waits")
        step(values).block_until_ready()
    announce("waits")
    multihost_utils.sync_global_devices("epoch")


def host_callback(jax):
    """The computation of each rank calls Python on the host, which looks weights up. That of the odd rank asks a server,
    which does not answer; the others wait for its part of the sum."""
    import numpy
    step, values = summing(jax)
    state = {"number": 0}

    def look_up(part):
        if is_odd() and state["number"] == GOOD_STEPS:
            fetch_vocabulary()
        return numpy.asarray(part)

    weigh = jax.jit(lambda x: jax.pure_callback(look_up, jax.ShapeDtypeStruct((8,), "float32"), x).sum())
    for number in range(GOOD_STEPS + 1):
        if number == GOOD_STEPS:
            announce("waits")
        state["number"] = number
        weighed = weigh(jax.numpy.ones(8))
        weighed.block_until_ready()
        step(values).block_until_ready()


def training(jax):
    step, values = summing(jax)
    for number in range(1 << 40):
        if number == GOOD_STEPS:
            announce("moves")
        step(values).block_until_ready()
        time.sleep(0.01)


CASES = {"block-until-ready": block_until_ready, "to-host": to_host, "device-get": device_get, "to-numpy": to_numpy, "barrier": barrier,
         "allgather": allgather, "uneven": uneven, "host-callback": host_callback, "training": training}


def main():
    end_with_parent()
    CASES[sys.argv[1]](connect(int(sys.argv[2]) if len(sys.argv) > 2 else None))


if __name__ == "__main__":
    rank()
    main()
