"""One rank of a job over gloo in which the ranks of HANGS_ODD part from the others: a collective too many or too few, another group, another
peer, as people describe it in the bug trackers of training frameworks.

    field_apart.py CASE

Held out: written without a look at the rules of the tool (docs/benchmark.md).
"""
import contextlib
import datetime
import os
import signal
import sys

from job import FOREVER, SILENT_FIFO, announce, connect, end_with_parent, is_odd, rank, world

GOOD_STEPS, STEPS = 3, 40
LONG = datetime.timedelta(hours=8)


def classifier(torch, buffers=False):
    layers = [torch.nn.Linear(64, 64)] + ([torch.nn.BatchNorm1d(64)] if buffers else []) + [torch.nn.Linear(64, 8)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    return model, torch.optim.SGD(model.parameters(), lr=1e-4)


def train_on(torch, model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(16, 64)).square().mean().backward()
    optimizer.step()


def evaluates_with_wrapper(torch, dist):
    """One rank evaluates, the others wait for it at a barrier. It calls the model by way of DDP, which exchanges its buffers for that."""
    model, optimizer = classifier(torch, buffers=True)
    for _ in range(GOOD_STEPS):
        train_on(torch, model, optimizer)
    announce()
    if is_odd():
        model.eval()
        with torch.no_grad():
            model(torch.randn(16, 64))
    dist.barrier()


def metric_on_one_rank(torch, dist):
    """A metric is computed over all ranks, for a log that only rank 0 writes."""
    model, optimizer = classifier(torch)
    for number in range(STEPS):
        train_on(torch, model, optimizer)
        if number == GOOD_STEPS:
            announce()
            if is_odd():
                compute_metric(torch, dist)


def compute_metric(torch, dist):
    parts = [torch.zeros(2) for _ in range(world())]
    dist.all_gather(parts, torch.ones(2))
    return sum(parts)


def gathered_state(torch, dist):
    """A checkpoint needs the parts of all ranks; only rank 0 asks for them, and the others wait until it has saved."""
    parts = [torch.rand(64) for _ in range(GOOD_STEPS)]
    for part in parts:
        dist.all_reduce(part)
    announce()
    if is_odd():
        everything = [None] * world()
        dist.all_gather_object(everything, {"part": parts[0]})
    dist.barrier()


def barrier_of_pair(torch, dist):
    """One rank meets its pair before it writes; its pair is in the step that all share."""
    pairs = [dist.new_group([first, first + 1]) for first in range(0, world(), 2)]
    gradients = torch.ones(64)
    for number in range(STEPS):
        if number == GOOD_STEPS:
            announce()
            if is_odd():
                dist.barrier(group=pairs[rank() // 2])
        dist.all_reduce(gradients)


def ring_from_wrong_side(torch, dist):
    """Blocks go around a ring. One rank receives from the neighbour to which it sends."""
    block, received, total = torch.ones(64), torch.zeros(64), world()
    for number in range(STEPS):
        sending = dist.isend(block, (rank() + 1) % total)
        if number == GOOD_STEPS:
            announce()
        wrong = is_odd() and number == GOOD_STEPS
        dist.recv(received, (rank() + 1 if wrong else rank() - 1) % total)
        sending.wait()


def exchange_without_send(torch, dist):
    """Stages exchange activations, and then sum up a loss. In one step, one stage forgets to send to the next one."""
    loss, received = torch.ones(1), torch.zeros(64)
    for number in range(STEPS):
        operations = []
        if rank() + 1 < world() and not (is_odd() and number == GOOD_STEPS):
            operations.append(dist.P2POp(dist.isend, torch.ones(64), rank() + 1))
        if rank() > 0:
            operations.append(dist.P2POp(dist.irecv, received, rank() - 1))
        if number == GOOD_STEPS:
            announce()
        for request in dist.batch_isend_irecv(operations) if operations else []:
            request.wait()
        dist.all_reduce(loss)


def accumulation_off_by_one(torch, dist):
    """Gradients are accumulated over four micro-batches. One rank has counted one more, and synchronizes while the others gather their losses for the log."""
    model, _ = classifier(torch)
    loss = torch.zeros(1)
    for number in range(STEPS):
        odd_one = 1 if is_odd() and number >= 4 * GOOD_STEPS else 0
        last = (number + odd_one) % 4 == 3
        if number == 4 * GOOD_STEPS + 2:
            announce()
        with contextlib.nullcontext() if last else model.no_sync():
            model(torch.randn(16, 64)).square().mean().backward()
        if number == 4 * GOOD_STEPS + 2:
            dist.all_gather([torch.zeros(1) for _ in range(world())], loss)


def skips_bad_batch(torch, dist):
    """A loss that is not a number: one rank leaves the backward pass of that batch out. At the end of the epoch it gathers the results, one
    gradient exchange before the others do."""
    model, optimizer = classifier(torch)
    losses = []
    for number in range(GOOD_STEPS):
        optimizer.zero_grad()
        loss = model(torch.full((16, 64), float("nan") if is_odd() and number == 1 else 0.5)).square().mean()
        if torch.isnan(loss):
            continue
        if number == GOOD_STEPS - 1 and not is_odd():
            announce()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    if is_odd():
        announce()
    results = [None] * world()
    dist.all_gather_object(results, losses)


def stops_alone(torch, dist):
    """Each rank decides by its own validation loss whether to stop. One has decided to, and sends the path of the best checkpoint to all."""
    model, optimizer = classifier(torch)
    for number in range(STEPS):
        if is_odd() and number == GOOD_STEPS:
            announce()
            break
        if number == GOOD_STEPS:
            announce()
        train_on(torch, model, optimizer)
    path = ["best.pt"]
    dist.broadcast_object_list(path, src=0)


def tries_again(torch, dist):
    """An error in the middle of a step makes one rank begin the step again, while the others are at its second collective."""
    lengths, gradients = torch.ones(1, dtype=torch.int64), torch.ones(64)
    failed = False
    for number in range(STEPS):
        while True:
            try:
                if number == GOOD_STEPS and (failed or not is_odd()):
                    announce()
                dist.all_gather([torch.zeros_like(lengths) for _ in range(world())], lengths)
                if is_odd() and number == GOOD_STEPS and not failed:
                    failed = True
                    raise ConnectionResetError("the tokenizer's server has closed the connection")
                break
            except ConnectionResetError:
                continue
        dist.all_reduce(gradients)


def group_by_members(torch, dist):
    """Its members alone create a group, and wait until the last rank, which would have to take part in that, has done so as well."""
    dist.all_reduce(torch.ones(64))
    announce("waits")
    if not is_odd():
        dist.new_group([0, 1, 2], timeout=LONG)
    dist.barrier()


def sums_in_two_halves(torch, dist):
    """Tensor parallel pairs, and data parallel groups across them. One rank reads its shard, so that its pair waits for it, and the other
    pair for that pair: only the first wait is direct."""
    pairs = [dist.new_group([first, first + 1]) for first in range(0, world(), 2)]
    replicas = [dist.new_group([number, number + 2]) for number in (0, 1)]
    activations, gradients = torch.ones(64), torch.ones(64)
    for number in range(STEPS):
        if number == GOOD_STEPS:
            if is_odd():
                read_shard()
            announce()
        dist.all_reduce(activations, group=pairs[rank() // 2])
        dist.all_reduce(gradients, group=replicas[rank() % 2])


def read_shard():
    announce()
    with open(SILENT_FIFO, "rb", buffering=0) as shard:
        shard.read(1)


def killed_under_agent(_, dist):
    """A rank was killed, and torchrun's agent, which would end the others, is stopped. The others meet in the store."""
    store = dist.distributed_c10d._get_default_store()
    if is_odd():
        announce("gone")
        os.kill(os.getppid(), signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGKILL)
    announce("waits")
    store.set("ready/%d" % rank(), "")
    store.wait(["ready/%d" % other for other in range(world())], LONG)


def pipeline_stage_computes(torch, dist):
    """Two pipelines of three stages; a middle stage is in an endless loop of its own."""
    stage = rank() % 3
    activations = torch.ones(64)
    for number in range(STEPS):
        if number == GOOD_STEPS and not is_odd():
            announce()
        if stage > 0:
            dist.recv(activations, rank() - 1)
        if number == GOOD_STEPS and is_odd():
            balance_experts()
        if stage < 2:
            dist.send(activations, rank() + 1)
        dist.barrier()


def balance_experts():
    announce("spins")
    load = [1, 2]
    for _ in range(FOREVER * FOREVER):
        load.reverse()


CASES = {
    "evaluates-with-wrapper": evaluates_with_wrapper, "metric-on-one-rank": metric_on_one_rank, "gathered-state": gathered_state,
    "barrier-of-pair": barrier_of_pair, "ring-from-wrong-side": ring_from_wrong_side, "exchange-without-send": exchange_without_send,
    "accumulation-off-by-one": accumulation_off_by_one, "skips-bad-batch": skips_bad_batch, "stops-alone": stops_alone, "tries-again": tries_again,
    "group-by-members": group_by_members, "sums-in-two-halves": sums_in_two_halves, "killed-under-agent": killed_under_agent,
    "pipeline-stage-computes": pipeline_stage_computes,
}


def main():
    end_with_parent()
    CASES[sys.argv[1]](*connect())


if __name__ == "__main__":
    main()
