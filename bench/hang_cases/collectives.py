"""One rank of a gloo job whose ranks do not agree on a collective, a group, a message, a step or a key of the store.

    collectives.py CASE [OPTIONS]

OPTIONS are those of frameworks (such as --pipeline-model-parallel-size); only the tool reads them, from the command line.
"""
import datetime
import subprocess
import sys
import time

from job import FOREVER, SILENT_FIFO, announce, connect, end_with_parent, is_odd, native, rank, world

LONG = datetime.timedelta(hours=8)


def gradients(torch):
    return torch.ones(64)


def broadcast(torch, dist):
    """The odd rank broadcasts weights, while the others reduce gradients."""
    announce()
    if is_odd():
        dist.broadcast(gradients(torch), src=0)
    else:
        dist.all_reduce(gradients(torch))


def barrier(torch, dist):
    announce()
    if is_odd():
        dist.barrier()
    else:
        dist.all_reduce(gradients(torch))


def halves(torch, dist):
    """Two ranks are in one collective, two in another: neither side is more right."""
    announce()
    if rank() < world() // 2:
        dist.all_reduce(gradients(torch))
    else:
        dist.all_gather([gradients(torch) for _ in range(world())], gradients(torch))


def another_group(torch, dist):
    """Two groups of all ranks; the odd rank reduces in the wrong one, and would never come to the right one."""
    weights, experts = dist.new_group(), dist.new_group()
    dist.all_reduce(gradients(torch), group=weights)
    dist.all_reduce(gradients(torch), group=experts)
    announce()
    if is_odd():
        dist.all_reduce(gradients(torch), group=experts)
    else:
        dist.all_reduce(gradients(torch), group=weights)


def order_of_two(torch, dist):
    """Two groups of all ranks, used one after the other; the odd rank uses them in the opposite order."""
    first, second = dist.new_group(), dist.new_group()
    announce()
    for group in (second, first) if is_odd() else (first, second):
        dist.all_reduce(gradients(torch), group=group)


def order_cycle(torch, dist):
    """Rows {0,1} {2,3} and columns {0,2} {1,3}: two ranks begin with the row, two with the column, and each waits for the next one in a
    cycle."""
    rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    row, column = rows[rank() // 2], columns[rank() % 2]
    announce()
    if rank() in (0, 3):
        dist.all_reduce(gradients(torch), group=row)
        dist.all_reduce(gradients(torch), group=column)
    else:
        dist.all_reduce(gradients(torch), group=column)
        dist.all_reduce(gradients(torch), group=row)


def receive_unmatched(torch, dist):
    """Rank 0 receives from rank 1, which never sends: rank 1 is in the all-reduce of the other ranks."""
    announce()
    if rank() == 0:
        dist.recv(gradients(torch), src=1)
    dist.all_reduce(gradients(torch))


def send_unmatched(torch, dist):
    announce()
    if rank() == 3:
        dist.send(torch.ones(1 << 25), dst=2)     # 128 MiB: more than sockets hold
    dist.barrier()


def both_receive(torch, dist):
    announce()
    if rank() < 2:
        dist.recv(gradients(torch), src=1 - rank())
    dist.barrier()


def receive_from_sleeper(torch, dist):
    """Rank 0 waits for rank 1's message; ranks 2 and 3 wait for both of them in a collective."""
    announce()
    if rank() == 1:
        time.sleep(FOREVER)
        dist.send(gradients(torch), dst=0)
    if rank() == 0:
        dist.recv(gradients(torch), src=1)
    dist.all_reduce(gradients(torch))


def pipeline_without_input(torch, dist):
    """Each stage receives from the one before; the first stage reads a file whose data never arrive."""
    announce()
    if rank() == 0:
        with open(SILENT_FIFO, "rb", buffering=0) as stream:
            stream.read(4096)
    else:
        dist.recv(gradients(torch), src=rank() - 1)
    if rank() + 1 < world():
        dist.send(gradients(torch), dst=rank() + 1)


def another_stage(torch, dist):
    """A pipeline of one rank each stage. In one micro-batch the odd stage receives from the one before the last."""
    for batch in range(6):
        if batch == 3:
            announce()
        if rank() > 0:
            dist.recv(gradients(torch), src=rank() - (2 if is_odd() and batch == 3 else 1))
        if rank() + 1 < world():
            dist.send(gradients(torch), dst=rank() + 1)


def stages(torch, dist):
    """Two stages of a pipeline, each with several data parallel ranks, as --pipeline-model-parallel-size on the command line says. The
    first stage waits for gradients of the second; the second reduces its own, except for its odd rank, which has begun with the weights.
    All wait for work that was started earlier."""
    size = world() // 2
    groups = [dist.new_group(range(0, size)), dist.new_group(range(size, world()))]
    mine = groups[rank() // size]
    if rank() < size:
        work = dist.irecv(gradients(torch), src=rank() + size)
        announce()
        work.wait()
    elif is_odd():
        weights = dist.broadcast(gradients(torch), src=size, group=mine, async_op=True)
        announce()
        weights.wait()
    else:
        reduced = dist.all_reduce(gradients(torch), group=mine, async_op=True)
        announce()
        reduced.wait()
    dist.barrier()


def left_out_exchange(torch, dist):
    """Each rank exchanges the edges of its part of a field with its neighbours in a line; the odd one leaves that out once. Those that are
    not its neighbours are in the all-reduce with it."""
    for step in range(20):
        if step == 3:
            announce()
        if not (is_odd() and step == 3):
            exchange_edges(torch, dist)
        residual = gradients(torch)
        dist.all_reduce(residual)


def exchange_edges(torch, dist):
    work = []
    for neighbour in (rank() - 1, rank() + 1):
        if 0 <= neighbour < world():
            work += [dist.isend(gradients(torch), neighbour), dist.irecv(gradients(torch), neighbour)]
    for one in work:
        one.wait()


def left_out_sends(torch, dist):
    """The odd rank gives its neighbours what they need in each step, but once."""
    for step in range(20):
        if step == 3:
            announce()
        if is_odd() and step != 3:
            dist.send(gradients(torch), dst=rank() - 1)
            dist.send(gradients(torch), dst=rank() + 1)
        if rank() in (1, 3):
            dist.recv(gradients(torch), src=2)
        dist.all_reduce(gradients(torch))


def receive_ring(torch, dist):
    """Each rank receives from the next one, all in the same line."""
    announce()
    dist.recv(gradients(torch), src=(rank() + 1) % world())


def store_key(torch, dist):
    """The odd rank waits for a key that nobody sets."""
    store = dist.distributed_c10d._get_default_store()
    store.set_timeout(LONG)
    announce()
    if is_odd():
        store.get("elastic/configuration")
    dist.all_reduce(gradients(torch))


def build_vocabulary():
    announce()
    time.sleep(FOREVER)


def store_key_of_a_rank(torch, dist):
    """All wait for a key that the odd rank sets when it has built what the key announces."""
    store = dist.distributed_c10d._get_default_store()
    if is_odd():
        build_vocabulary()
        store.set("vocabulary", "built")
    announce("waits")
    store.wait(["vocabulary"], LONG)
    dist.all_reduce(gradients(torch))


def new_group(torch, dist):
    """Creating a group takes all ranks, members or not; one rank creates one on its own."""
    announce()
    if is_odd():
        dist.new_group(list(range(world())))
    dist.all_reduce(gradients(torch))


def resumed_earlier(torch, dist):
    """The odd rank resumed from a checkpoint of one step earlier. Its step 9 pairs with the others' step 10; then it is in the barrier of
    step 9, which the others do not reach before step 19: they are in the all-reduce of step 11."""
    announce()
    for step in range(9 if is_odd() else 10, 40):
        dist.all_reduce(gradients(torch))
        if step % 10 == 9:
            dist.barrier()


def logs_alone(torch, dist):
    """Only the odd rank logs, and the norm that it logs takes a collective. The others go on to the next step."""
    for step in range(40):
        if step == 3:
            announce()
        dist.all_reduce(gradients(torch))
        log_norm(torch, dist, step)


def log_norm(torch, dist, step):
    if is_odd() and step == 3:
        dist.all_gather([gradients(torch) for _ in range(world())], gradients(torch))


def uneven_inputs(torch, dist):
    """The odd rank has one batch less, and is at the end of its epoch while the others still reduce gradients."""
    announce()
    for _step in range(5 if is_odd() else 6):
        dist.all_reduce(gradients(torch))
    dist.barrier()


def another_pass(torch, dist):
    """The odd rank gets no more batches, and goes from one pass of the loop to the next without its all-reduce."""
    for step in range(1 << 60):
        if step == 3:
            announce("spins" if is_odd() else "asleep")
        if read_batch(step) is None:
            continue
        dist.all_reduce(gradients(torch))


def another_pass_of_while(torch, dist):
    step = 0
    while True:
        step += 1
        if step == 3:
            announce("spins" if is_odd() else "asleep")
        if read_batch(step) is None:
            continue
        dist.all_reduce(gradients(torch))


def read_batch(step):
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        pass
    return None if is_odd() and step >= 3 else step


def another_pass_by_store(torch, dist):
    """A barrier of the program's own in each step, made with keys of the store; the odd rank is one step behind."""
    store = dist.distributed_c10d._get_default_store()
    for step in range(2 if is_odd() else 3, 9):
        store.set("step-%d/%d" % (step, rank()), "done")
        announce("waits")
        store.wait(["step-%d/%d" % (step, other) for other in range(world())], LONG)


def uneven_loops(torch, dist):
    """Every rank's shard has another number of batches, and each epoch ends with the same collective as each batch: the rank with the
    fewest is at the end of the job, the others are in their last epoch."""
    announce()
    for _epoch in range(2):
        for _batch in range(4 if is_odd() else 5):
            average(torch, dist)
        average(torch, dist)
    dist.barrier()


def uneven_everywhere(torch, dist):
    """No two shards have the same size: rank 0 has the fewest batches and is at the job's last barrier; the others are in all-reduces at
    three different lines and epochs."""
    announce()
    for _epoch in range(3):
        for _batch in range(4 + rank()):
            dist.all_reduce(gradients(torch))
        dist.all_reduce(gradients(torch))
    dist.barrier()


def two_groups(torch, dist):
    """Two groups that do not depend on each other: in one a rank sleeps, the other one makes progress."""
    mine = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank() // 2]
    if rank() == 1:
        build_vocabulary()
    for step in range(1 << 60):
        if step == 3 and rank() >= 2:
            announce("moves")
        if step == 0 and rank() == 0:
            announce()
        dist.all_reduce(gradients(torch), group=mine)
        time.sleep(0.01)


def monitored_barrier(torch, dist):
    """Rank 0 receives a message from each rank that has arrived; the odd one does not arrive."""
    if is_odd():
        build_vocabulary()
    announce("waits")
    dist.monitored_barrier(timeout=LONG)
    dist.all_reduce(gradients(torch))


def scatter_and_gather(torch, dist):
    """The root of a scatter is in a gather."""
    announce()
    if is_odd():
        dist.gather(gradients(torch), [gradients(torch) for _ in range(world())], dst=rank())
    else:
        dist.scatter(gradients(torch), src=2)


def send_into_barrier(torch, dist):
    """The receiver has gone on to a barrier with the others."""
    announce()
    if is_odd():
        dist.recv(gradients(torch), src=0)
    dist.barrier()


def average(torch, dist):
    dist.all_reduce(gradients(torch))


def all_spin(_, __):
    announce("spins")
    native()[0].simulate_particles()


def all_asleep(_, __):
    announce()
    time.sleep(FOREVER)


def all_read(_, __):
    announce()
    with open(SILENT_FIFO, "rb", buffering=0) as stream:
        stream.read(4096)


def late_start():
    """Before init_process_group: the preparation of the odd rank does not end, and the others wait for it in the rendezvous."""
    import torch.distributed  # noqa: F401, imported here, so that connect() need not
    announce("asleep" if is_odd() else "waits")
    if is_odd():
        subprocess.run(["sleep", str(FOREVER)], check=True)
    connect()


def rendezvous():
    """All ranks that were started are in the rendezvous."""
    import torch.distributed  # noqa: F401
    announce("waits")
    connect()


BEFORE = {"late-start": late_start, "rendezvous": rendezvous}
CASES = {
    "broadcast": broadcast, "barrier": barrier, "halves": halves, "another-group": another_group, "order-of-two": order_of_two,
    "order-cycle": order_cycle, "receive-unmatched": receive_unmatched, "send-unmatched": send_unmatched, "both-receive": both_receive,
    "receive-from-sleeper": receive_from_sleeper, "pipeline-without-input": pipeline_without_input, "receive-ring": receive_ring, "left-out-exchange": left_out_exchange, "left-out-sends": left_out_sends, "another-stage": another_stage,
    "stages": stages,
    "store-key": store_key, "store-key-of-a-rank": store_key_of_a_rank, "new-group": new_group, "resumed-earlier": resumed_earlier, "logs-alone": logs_alone, "uneven-inputs": uneven_inputs,
    "another-pass": another_pass, "another-pass-of-while": another_pass_of_while, "uneven-everywhere": uneven_everywhere, "another-pass-by-store": another_pass_by_store, "uneven-loops": uneven_loops,
    "two-groups": two_groups, "monitored-barrier": monitored_barrier, "scatter-gather": scatter_and_gather, "send-into-barrier": send_into_barrier,
    "all-asleep": all_asleep, "all-read": all_read, "all-spin": all_spin,
}


def main():
    end_with_parent()
    case = sys.argv[1]
    if case in BEFORE:
        BEFORE[case]()
    else:
        CASES[case](*connect())


if __name__ == "__main__":
    main()
