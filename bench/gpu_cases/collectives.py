"""Ranks that disagree about the next collective, that have drifted apart, or that are gone.

    collectives.py CASE
"""
import atexit
import os
import signal
import threading
import time

from gpu_rank import FOREVER, GOOD_STEPS, TIMEOUT, announce, connect, device_index, is_odd, rank, run, world


def good_steps(elements=1024, **options):
    torch, dist = connect(**options)
    tensor = torch.ones(elements, device="cuda")
    for _ in range(GOOD_STEPS):
        dist.all_reduce(tensor)
        tensor.div_(world())
    torch.cuda.synchronize()
    return torch, dist, tensor


def other_size():
    torch, dist, _ = good_steps()
    announce("settles")
    dist.all_reduce(torch.ones(1 << 24 if is_odd() else 64, device="cuda"))
    torch.cuda.synchronize()


def instead_of_reduce(call, elements=1024):
    """The odd rank makes this call, the others all-reduce."""
    torch, dist, tensor = good_steps(elements)
    announce("settles")
    if is_odd():
        call(torch, dist, tensor)
    else:
        dist.all_reduce(tensor)
    torch.cuda.synchronize()


def other_collective():
    instead_of_reduce(lambda torch, dist, tensor: dist.all_gather_into_tensor(torch.empty(world() * tensor.numel(), device="cuda"), tensor))


def broadcast_or_reduce():
    """Both calls are in one function, and what waits for them is the same line."""
    torch, dist, tensor = good_steps()
    announce("settles")
    operation = dist.broadcast if is_odd() else dist.reduce
    operation(tensor, 0)
    tensor.sum().item()


def send_or_reduce():
    instead_of_reduce(lambda torch, dist, tensor: dist.send(tensor, dst=0))


def group_or_reduce():
    """The odd rank makes a new process group, which takes all ranks."""
    instead_of_reduce(lambda torch, dist, tensor: dist.all_reduce(tensor, group=dist.new_group()))


def barrier_or_reduce():
    instead_of_reduce(lambda torch, dist, tensor: dist.barrier(), elements=1 << 22)


def both_receive():
    torch, dist, tensor = good_steps()
    announce("settles")
    if rank() < 2:
        dist.recv(tensor, src=1 - rank())
    torch.cuda.synchronize()
    dist.barrier()


def two_groups(torch, dist, tensor):
    groups = [dist.new_group(timeout=TIMEOUT), dist.new_group(timeout=TIMEOUT)]
    for group in groups:
        dist.all_reduce(tensor, group=group)
    torch.cuda.synchronize()
    return groups


def group_order():
    torch, dist, tensor = good_steps()
    groups = two_groups(torch, dist, tensor)
    announce("settles")
    for group in reversed(groups) if is_odd() else groups:
        dist.all_reduce(tensor, group=group)
        torch.cuda.synchronize()


def group_order_streams():
    """As group_order, each on a stream of its own, and with more data."""
    torch, dist, tensor = good_steps(1 << 22)
    groups = two_groups(torch, dist, tensor)
    announce("settles")
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for group, stream in zip(reversed(groups) if is_odd() else groups, streams):
        with torch.cuda.stream(stream):
            dist.all_reduce(tensor.clone(), group=group)
        torch.cuda.synchronize()


def extra_evaluation():
    """The same loop on every rank; the odd one takes part in an evaluation that the others skip."""
    torch, dist, _ = good_steps()
    gradient = torch.ones(1 << 20, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            if is_odd():
                metric = torch.ones(4, device="cuda")
                dist.all_reduce(metric)
                metric.sum().item()
        dist.all_reduce(gradient)
        gradient.div_(world())
        gradient.sum().item()


def train_unevenly():
    """The odd rank has fewer batches, and is done before the others."""
    torch, dist, _ = good_steps()
    gradient = torch.ones(1 << 20, device="cuda")
    for number in range(GOOD_STEPS + (1 if is_odd() else 3)):
        if number == GOOD_STEPS + 1:
            announce("settles")
        dist.all_reduce(gradient)
        gradient.sum().item()
    return torch, dist


def uneven_steps():
    """The odd rank waits in the barrier at the end of the epoch."""
    torch, dist = train_unevenly()
    announce("settles")
    dist.barrier()
    torch.cuda.synchronize()


def uneven_batches():
    """The odd rank computes the results of its epoch on its own."""
    train_unevenly()
    write_results()


def write_results():
    announce("settles")
    time.sleep(FOREVER)


def train_on(torch, dist, tensor):
    while True:
        dist.all_reduce(tensor)
        tensor.div_(world())
        torch.cuda.synchronize()


def skipped():
    """The odd rank finds its loss to be infinite, skips the step and goes on to the next epoch's object broadcast. Between GPUs the small
    collectives pass: it takes gradients for the size of an object, for which there is no memory, and ends with that exception."""
    torch, dist, tensor = good_steps()
    announce("gone" if is_odd() else "settles")
    if not is_odd():
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
    dist.broadcast_object_list([{"epoch": 1}], src=0)
    train_on(torch, dist, tensor)


def objects():
    """The odd rank gathers objects, the others are in the training step. As in skipped(), the odd rank ends with an exception."""
    torch, dist, tensor = good_steps()
    announce("gone" if is_odd() else "settles")
    if is_odd():
        dist.all_gather_object([None] * world(), {"loss": 1.0})
    train_on(torch, dist, tensor)


def in_init():
    """The odd rank never comes to the first collective, in which NCCL's communicator is made."""
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(device_index())
    dist.init_process_group("nccl")
    announce("settles")
    if is_odd():
        time.sleep(FOREVER)
    dist.all_reduce(torch.ones(8, device="cuda"))
    torch.cuda.synchronize()


def in_store():
    """The odd rank sleeps before init_process_group."""
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(device_index())
    announce("settles")
    if is_odd():
        time.sleep(FOREVER)
    dist.init_process_group("nccl")


def in_destroy():
    """The odd rank leaves: destroy_process_group waits for its own kernel, which waits for the other ranks."""
    torch, dist, tensor = good_steps()
    announce("settles")
    if is_odd():
        dist.all_reduce(tensor)
        dist.destroy_process_group()
    time.sleep(FOREVER)


def raised():
    """An exception; the interpreter cannot exit, since a thread uploads the logs."""
    torch, dist, tensor = good_steps()
    announce("settles")
    if is_odd():
        threading.Thread(target=time.sleep, args=(FOREVER,), name="uploader").start()
        raise RuntimeError("loss is NaN")
    dist.all_reduce(tensor)
    torch.cuda.synchronize()


def raised_atexit():
    torch, dist, tensor = good_steps()
    announce("settles")
    if is_odd():
        atexit.register(dist.barrier)
        raise RuntimeError("loss is NaN")
    dist.all_reduce(torch.ones(1 << 22, device="cuda"))
    torch.cuda.synchronize()


def out_of_memory():
    """The odd rank runs out of memory; its handler frees the cache and waits for the others to do the same. They reduce so much that NCCL does
    so by another protocol than the barrier's; otherwise both would end."""
    torch, dist, tensor = good_steps(1 << 24)
    announce("settles")
    try:
        if is_odd():
            torch.empty(1 << 50, device="cuda")
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        dist.barrier()
        torch.cuda.synchronize()


def leave_reduce(how, leave):
    """The odd rank leaves in that way, the others wait for it."""
    torch, dist, tensor = good_steps()
    announce(how if is_odd() else "settles")
    if is_odd():
        leave()
    dist.all_reduce(tensor)
    torch.cuda.synchronize()


def ended():
    """The odd rank has ended well."""
    leave_reduce("gone", lambda: os._exit(0))


def killed():
    leave_reduce("gone", lambda: os.kill(os.getpid(), signal.SIGKILL))


def stopped():
    leave_reduce("stopped", lambda: os.kill(os.getpid(), signal.SIGSTOP))


def spins_before_message():
    """The odd rank computes in Python before it answers; the other waits for its message on the GPU."""
    torch, dist, tensor = good_steps()
    announce("settles")
    if is_odd():
        number = 0
        while True:
            number ^= 1
    dist.recv(tensor, src=1)
    torch.cuda.synchronize()


CASES = {"other-size": other_size, "other-collective": other_collective, "broadcast-or-reduce": broadcast_or_reduce,
         "send-or-reduce": send_or_reduce, "group-or-reduce": group_or_reduce, "barrier-or-reduce": barrier_or_reduce, "both-receive": both_receive,
         "group-order": group_order, "group-order-streams": group_order_streams, "extra-evaluation": extra_evaluation, "uneven-steps": uneven_steps,
         "uneven-batches": uneven_batches, "skipped": skipped, "objects": objects, "in-init": in_init, "in-store": in_store, "in-destroy": in_destroy,
         "raised": raised, "raised-atexit": raised_atexit, "out-of-memory": out_of_memory, "ended": ended, "killed": killed, "stopped": stopped,
         "spins-before-message": spins_before_message}

if __name__ == "__main__":
    run(CASES)
