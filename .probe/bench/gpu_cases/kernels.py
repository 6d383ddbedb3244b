"""Kernels that do not end, or fail, and what holds a rank within the driver.

    kernels.py CASE
"""
import ctypes
import os
import time

from gpu_rank import FOREVER, GOOD_STEPS, TROUBLES, announce, connect, is_odd, run


def good_steps(**options):
    torch, dist = connect(**options)
    tensor = torch.ones(1024, device="cuda")
    for _ in range(GOOD_STEPS):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    return torch, dist, tensor


def wait_in_reduce(torch, dist, tensor):
    dist.all_reduce(tensor)
    torch.cuda.synchronize()


def reduce_with_trouble(trouble):
    """The odd rank runs into the trouble, the others have launched an all-reduce that waits for it."""
    torch, dist, tensor = good_steps()
    if is_odd():
        TROUBLES[trouble]()
    dist.all_reduce(tensor)
    return torch, tensor


def endless():
    torch, dist, tensor = good_steps()
    if is_odd():
        torch.cuda._sleep(1 << 46)
    announce("settles")
    wait_in_reduce(torch, dist, tensor)


def endless_item():
    torch, dist, tensor = good_steps()
    announce("settles")
    if is_odd():
        torch.cuda._sleep(1 << 46)
        tensor.sum().item()
    wait_in_reduce(torch, dist, tensor)


def triton_loop():
    """A kernel of Triton's that waits for a flag which nobody sets."""
    torch, dist, tensor = good_steps()
    from triton_kernels import wait_for_flag
    announce("settles")
    if is_odd():
        flag = torch.zeros(1, dtype=torch.int32, device="cuda")
        wait_for_flag[(4,)](flag)
        torch.cuda.synchronize()
    wait_in_reduce(torch, dist, tensor)


def cupy_loop():
    torch, dist, tensor = good_steps()
    import cupy
    source = 'extern "C" __global__ void poll_queue(volatile int* flag) { while (*flag == 0) {} }'
    announce("settles")
    if is_odd():
        poll_queue = cupy.RawKernel(source, "poll_queue")
        flag = cupy.zeros(1, dtype=cupy.int32)
        poll_queue((2,), (64,), (flag,))
        cupy.cuda.Device().synchronize()
    wait_in_reduce(torch, dist, tensor)


def illegal_address():
    """The odd rank's kernel faults; its watchdog finds that and ends the process. The others go on waiting."""
    torch, dist, tensor = good_steps()
    import cupy
    announce("gone" if is_odd() else "settles")
    if is_odd():
        write_row = cupy.RawKernel('extern "C" __global__ void write_row(int* row) { row[1ull << 40] = 1; }', "write_row")
        write_row((1,), (32,), (cupy.zeros(1, dtype=cupy.int32),))
        work = dist.all_reduce(tensor, async_op=True)
        time.sleep(FOREVER)
        work.wait()
    wait_in_reduce(torch, dist, tensor)


def event():
    """The innocent rank waits for an event; the odd rank for a lock of its own."""
    torch, _ = reduce_with_trouble("lock")
    done = torch.cuda.Event()
    done.record()
    announce("settles")
    done.synchronize()


def work_wait():
    """NCCL's blocking wait: the innocent rank waits in Work.wait()."""
    torch, dist, tensor = good_steps()
    if is_odd():
        TROUBLES["receive"]()
    work = dist.all_reduce(tensor, async_op=True)
    announce("settles")
    work.wait()


def polls_event():
    """The innocent rank polls an event from Python."""
    torch, _ = reduce_with_trouble("sleep")
    done = torch.cuda.Event()
    done.record()
    announce("settles")
    while not done.query():
        time.sleep(0.001)


def pinned_copy():
    """The innocent rank's copy to the host waits behind the all-reduce."""
    torch, tensor = reduce_with_trouble("read")
    host = torch.empty(1024, pin_memory=True)
    announce("settles")
    host.copy_(tensor)


def frees_memory():
    """The innocent rank frees memory, which waits for all of its GPU."""
    torch, dist, tensor = good_steps()
    extra = torch.empty(1 << 26, device="cuda")
    if is_odd():
        TROUBLES["lock"]()
    dist.all_reduce(tensor)
    del extra
    announce("settles")
    torch.cuda.empty_cache()


def lazy_load():
    """The innocent rank launches the first kernel of a module behind the all-reduce."""
    torch, _ = reduce_with_trouble("sleep")
    announce("settles")
    torch.fft.fft(torch.randn(1000, device="cuda")).abs().sum().item()


def convolution():
    """cuDNN's first use behind the all-reduce."""
    torch, _ = reduce_with_trouble("receive")
    announce("settles")
    torch.nn.functional.conv2d(torch.randn(1, 3, 32, 32, device="cuda"), torch.randn(8, 3, 3, 3, device="cuda")).sum().item()


def symmetric_memory():
    """A barrier of symmetric memory, to which the odd rank does not come."""
    torch, dist, tensor = good_steps()
    import torch.distributed._symmetric_memory as symmetric
    buffer = symmetric.empty(1024, device="cuda")
    handle = symmetric.rendezvous(buffer, dist.group.WORLD)
    handle.barrier()
    torch.cuda.synchronize()
    if is_odd():
        TROUBLES["sleep"]()
    announce("settles")
    handle.barrier()
    torch.cuda.synchronize()


def native_loop():
    """A library of the job computes in a loop that does not end."""
    torch, dist, tensor = good_steps()
    native = ctypes.CDLL(os.environ["HANGS_NATIVE"])
    announce("settles")
    if is_odd():
        native.simulate_particles()
    wait_in_reduce(torch, dist, tensor)


CASES = {"endless": endless, "endless-item": endless_item, "triton-loop": triton_loop, "cupy-loop": cupy_loop, "illegal-address": illegal_address, "event": event,
         "work-wait": work_wait, "polls-event": polls_event, "pinned-copy": pinned_copy, "frees-memory": frees_memory, "lazy-load": lazy_load,
         "convolution": convolution, "symmetric-memory": symmetric_memory, "native-loop": native_loop}

if __name__ == "__main__":
    run(CASES)
