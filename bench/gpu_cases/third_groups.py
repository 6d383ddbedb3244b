"""The ranks do not agree about what comes next, or one is held up by what another has asked of it.

    third_groups.py CASE
"""
import gc
import os

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, gloo_group, is_odd, rank, run, world
from field_groups import gradient_of, reduce_gradient
from job import connect_to_silent_server

MICRO_BATCHES = 4


def unscale(torch, gradient):
    """Halves the scale until the gradient is finite: for ever, if it holds a number that is none."""
    scale = 65536.0
    while not torch.isfinite(gradient * scale).all():
        scale /= 2
    return gradient * scale


def optimizer():
    """Tensor times data parallel; the optimizer is in the host's memory, and each rank of a data parallel group updates a part of the weights."""
    torch, dist = connect()
    tensor_group = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank() // 2]
    data_group = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank() % 2]
    weight = torch.ones(1 << 16, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        hidden = weight / 65536
        dist.all_reduce(hidden, group=tensor_group)
        dist.all_reduce(hidden, group=data_group)
        gradient = (hidden / world()).cpu().chunk(2)[rank() // 2]
        if is_odd() and number == GOOD_STEPS:
            gradient[7] = float("nan")
        dist.all_gather_into_tensor(weight, unscale(torch, gradient).cuda(), group=data_group)


class Stage:
    """A stage of a pipeline, whose messages are sent as Megatron-LM sends them: what goes to a peer and what comes from it, in one launch."""

    def __init__(self, torch, dist):
        self.torch, self.dist = torch, dist
        self.sent, self.received = torch.ones(1 << 20, device="cuda"), torch.empty(1 << 20, device="cuda")

    def exchange(self, peer, sends=False, receives=False):
        if not 0 <= peer < world() or not (sends or receives):
            return
        operations = [self.dist.P2POp(self.dist.isend, self.sent, peer)] if sends else []
        operations += [self.dist.P2POp(self.dist.irecv, self.received, peer)] if receives else []
        for work in self.dist.batch_isend_irecv(operations):
            work.wait()
        self.torch.cuda.synchronize()

    def run(self, count):
        """One forward, one backward: a stage begins with as many forward passes as there are stages behind it."""
        before, behind = rank() - 1, rank() + 1
        warm_up = world() - behind
        for _ in range(warm_up):
            self.exchange(before, receives=True)
            self.exchange(behind, sends=True)
        self.exchange(before, receives=True)
        for number in range(count - warm_up):
            self.exchange(behind, sends=True, receives=True)
            self.exchange(before, sends=True, receives=number + 1 < count - warm_up)
        for _ in range(warm_up):
            self.exchange(behind, receives=True)
            self.exchange(before, sends=True)


def micro_batch():
    """Three stages. The labels of a step suffice for one micro-batch less, and so the last stage, which alone has them, is done sooner."""
    torch, dist = connect()
    stage, gradient = Stage(torch, dist), gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        stage.run(MICRO_BATCHES - 1 if is_odd() and number == GOOD_STEPS else MICRO_BATCHES)
        reduce_gradient(dist, gradient)


class Metric:
    """Part of a cycle. What it has counted is summed up over all ranks at its end."""

    def __init__(self, torch, dist, group):
        self.dist, self.group, self.count, self.itself = dist, group, torch.ones(1), self

    def __del__(self):
        self.dist.all_reduce(self.count, group=self.group)


def metric_collected():
    """The collector of the odd rank finds a metric some steps sooner than those of the others."""
    torch, dist = connect()
    metrics, gradient = gloo_group(dist), gradient_of(torch)
    gc.disable()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            Metric(torch, dist, metrics)
            if is_odd():
                gc.collect()
        reduce_gradient(dist, gradient)


class Tokenizer:
    """Pickled without its vocabulary, which is fetched from a server where it is read again."""

    def __init__(self, step):
        self.step = step

    def __setstate__(self, state):
        self.step = state["step"]
        if is_odd() and self.step == GOOD_STEPS:
            connect_to_silent_server().recv(1)


def unpickles():
    """Rank 0 sends a tokenizer to all; the odd rank has it, and is in its unpickling."""
    torch, dist = connect()
    gradient = gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        objects = [Tokenizer(number) if rank() == 0 else None]
        dist.broadcast_object_list(objects, src=0)
        reduce_gradient(dist, gradient)


def evaluate(number):
    """Called by rank 0 in the other one."""
    if number == GOOD_STEPS:
        connect_to_silent_server().recv(1)
    return float(number)


def remote_evaluation():
    """Rank 0 has the odd rank evaluate by a remote call, for which that one has threads: they ask a server which does not answer. Its main
    thread waits in the next step."""
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    torch, dist = connect()
    from torch.distributed import rpc
    options = rpc.TensorPipeRpcBackendOptions(init_method="file://" + os.path.join(os.environ["HANGS_DIRECTORY"], "rpc"), rpc_timeout=0)
    rpc.init_rpc("trainer-%d" % rank(), rank=rank(), world_size=world(), rpc_backend_options=options)
    gradient = gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if rank() == 0:
            rpc.rpc_sync("trainer-1", evaluate, args=(number,))
        dist.all_reduce(gradient)
        gradient.div_(world())
        torch.cuda.synchronize()


def jax_barrier():
    """A JAX process has been notified that it is preempted, and waits in a barrier before it saves; the others call the next step."""
    import jax_job
    jax = jax_job.connect()
    from jax._src import distributed
    step, values = jax_job.summing(jax)
    for _ in range(GOOD_STEPS):
        step(values).block_until_ready()
    announce("settles")
    if is_odd():
        distributed.global_state.client.wait_at_barrier("save-preempted", 8 * 3600 * 1000)
    step(values).block_until_ready()


CASES = {"optimizer": optimizer, "unpickles": unpickles, "micro-batch": micro_batch, "metric-collected": metric_collected,
         "remote-evaluation": remote_evaluation, "jax-barrier": jax_barrier}

if __name__ == "__main__":
    run(CASES)
