"""JAX with one process for each rank.

    jax_job.py CASE
"""
import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

from gpu_rank import GOOD_STEPS, TROUBLES, announce, is_odd, rank, run, world


def connect():
    import jax
    devices = int(os.environ["GPUS"])
    jax.distributed.initialize(coordinator_address="%s:%s" % (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]), num_processes=world(), process_id=rank(),
                               local_device_ids=[rank() % devices])
    return jax


def summing(jax):
    """A function that sums over all processes."""
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    mesh = Mesh(jax.devices(), ("data",))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    local = jnp.ones((1, 1024))
    values = jax.make_array_from_single_device_arrays((world(), 1024), sharding, [jax.device_put(local, jax.local_devices()[0])])
    return jax.jit(lambda x: (x * 2).sum(), out_shardings=NamedSharding(mesh, PartitionSpec())), values


def trouble(name, wait):
    jax = connect()
    step, values = summing(jax)
    for _ in range(GOOD_STEPS):
        wait(step(values))
    if is_odd():
        TROUBLES[name]()
    announce("settles")
    wait(step(values))


def block_until_ready(name):
    trouble(name, lambda result: result.block_until_ready())


def to_host(name):
    trouble(name, float)


def device_get(name):
    def get(result):
        import jax
        return jax.device_get(result)
    trouble(name, get)


def barrier(name):
    """The coordination service's barrier."""
    jax = connect()
    from jax.experimental import multihost_utils
    step, values = summing(jax)
    for _ in range(GOOD_STEPS):
        step(values).block_until_ready()
    if is_odd():
        TROUBLES[name]()
    announce("settles")
    multihost_utils.sync_global_devices("saved")


def training(_):
    jax = connect()
    step, values = summing(jax)
    number = 0
    while True:
        if number == GOOD_STEPS:
            announce("moves")
        step(values).block_until_ready()
        time.sleep(0.01)
        number += 1


CASES = {"block-until-ready": block_until_ready, "to-host": to_host, "device-get": device_get, "barrier": barrier, "training": training}

if __name__ == "__main__":
    run(CASES)
