"""The ranks do not agree about what comes next, or one of them waits for another one by what is no collective.

    sixth_groups.py CASE
"""
import datetime
import mmap
import multiprocessing.connection
import os
import struct
import time

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, gloo_group, is_odd, rank, run, world
from field_groups import gradient_of, reduce_gradient
from job import UNOPENED_FIFO

SLOTS = 4


class Ring:
    """Messages in shared memory, from rank 0 to all others: how many are written, and how many each rank has read."""

    def __init__(self):
        descriptor = os.open(os.path.join(os.environ["HANGS_DIRECTORY"], "ring"), os.O_RDWR | os.O_CREAT)
        os.ftruncate(descriptor, mmap.PAGESIZE)
        self.page = mmap.mmap(descriptor, mmap.PAGESIZE)

    def count(self, place):
        return struct.unpack_from("q", self.page, 8 * place)[0]

    def advance(self, place):
        struct.pack_into("q", self.page, 8 * place, self.count(place) + 1)

    def write(self):
        while min(self.count(reader) for reader in range(1, world())) + SLOTS <= self.count(0):
            time.sleep(0.001)
        self.advance(0)

    def read(self):
        while self.count(rank()) == self.count(0):
            time.sleep(0.001)
        self.advance(rank())


def message_ring():
    """A scheduler, rank 0, writes its messages into a ring, in which a message stays until all workers have read it. The workers are tensor
    parallel; the odd one reads the file of an adapter, on a file system that does not answer."""
    torch, dist = connect()
    workers, ring, hidden = dist.new_group(list(range(1, world()))), Ring(), gradient_of(torch)
    if rank() == 0:
        for number in range(FOREVER):
            if number == GOOD_STEPS:
                announce("settles")
            ring.write()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        ring.read()
        if is_odd() and number == GOOD_STEPS:
            with open(UNOPENED_FIFO, "rb") as adapter:
                adapter.read()
        dist.all_reduce(hidden, group=workers)
        hidden.div_(world()).sum().item()


def weight_handles():
    """The trainer, rank 0, hands its weights to the engine by handles of CUDA's memory, over a socket, and waits until the engine has copied them.
    The engine first waits for its last request to end, which was aborted and is not taken off the list."""
    torch, dist = connect()
    from torch.multiprocessing.reductions import reduce_tensor
    weights, address, running = gradient_of(torch), os.path.join(os.environ["HANGS_DIRECTORY"], "engine"), []
    if rank() == 0:
        dist.barrier()
        engine = multiprocessing.connection.Client(address)
    else:
        with multiprocessing.connection.Listener(address) as listener:
            dist.barrier()
            trainer = listener.accept()

    def pause():
        while running:
            time.sleep(0.005)

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            if is_odd():
                running.append("request-4711")
        if rank() == 0:
            engine.send(reduce_tensor(weights))
            engine.recv()
        else:
            rebuild, arguments = trainer.recv()
            pause()
            weights.copy_(rebuild(*arguments))
            torch.cuda.synchronize()
            trainer.send("copied")
        reduce_gradient(dist, weights)


def restart():
    """The odd rank's loss is not finite. It begins anew within its process, for which all ranks meet in the store; the others have heard nothing of
    that."""
    torch, dist = connect()
    store, gradient = dist.distributed_c10d._get_default_store(), gradient_of(torch)

    def train():
        for number in range(FOREVER):
            if number == GOOD_STEPS:
                announce("settles")
            if is_odd() and number == GOOD_STEPS:
                raise FloatingPointError("the loss of step %d is not finite" % number)
            reduce_gradient(dist, gradient)

    for attempt in range(3):
        try:
            train()
        except FloatingPointError as error:
            print("attempt %d: %s" % (attempt, error))
            store.set("attempt-%d/%d" % (attempt + 1, rank()), "ready")
            store.wait(["attempt-%d/%d" % (attempt + 1, other) for other in range(world())], datetime.timedelta(hours=8))


def epoch_key():
    """Rank 0 says in the store by which seed an epoch is shuffled, and all look there. The odd rank, which has resumed, counts one epoch more than
    the others: nobody has come to that one."""
    torch, dist = connect()
    store, gradient = dist.distributed_c10d._get_default_store(), gradient_of(torch)

    def seed_of(epoch):
        if rank() == 0:
            store.set("seed/%d" % epoch, str(1234 + epoch))
        store.wait(["seed/%d" % epoch], datetime.timedelta(hours=8))
        return int(store.get("seed/%d" % epoch))

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        seed_of(number + 1 if is_odd() and number == GOOD_STEPS else number)
        reduce_gradient(dist, gradient)


def contrastive():
    """The loss compares the features of all ranks, which a function gathers, and whose gradient it hands back. The odd rank takes the features of the
    others as fixed: nothing of that function is in its backward pass, and it reduces its gradient."""
    torch, dist = connect()
    features, weights, gradient = dist.new_group(), torch.randn(64, 64, device="cuda", requires_grad=True), gradient_of(torch)
    norms = []

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, own):
            gathered = torch.empty(world() * own.shape[0], own.shape[1], device="cuda")
            dist.all_gather_into_tensor(gathered, own.contiguous(), group=features)
            return gathered

        @staticmethod
        def backward(ctx, gradient_of_all):
            own = torch.empty(gradient_of_all.shape[0] // world(), gradient_of_all.shape[1], device="cuda")
            dist.reduce_scatter_tensor(own, gradient_of_all.contiguous(), group=features)
            norms[:] = [own.norm().item()]
            return own

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        own = torch.randn(32, 64, device="cuda") @ weights
        gathered = Gather.apply(own)
        if is_odd() and number == GOOD_STEPS:
            gathered = gathered.detach()
        (own @ gathered.T).square().mean().backward()
        weights.grad = None
        reduce_gradient(dist, gradient)


def generation_length():
    """All ranks generate by a model that is sharded, token by token, each until its own text ends. That of the odd rank ends sooner, and it gathers
    the texts; the others need its part of the weights (synced_gpus of transformers' generate() is for that)."""
    torch, dist = connect()
    from torch.distributed.fsdp import fully_shard
    texts, model = gloo_group(dist), torch.nn.Sequential(*[torch.nn.Linear(512, 512, bias=False) for _ in range(4)]).cuda()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)

    @torch.no_grad()
    def generate(length):
        state, tokens = torch.ones(1, 512, device="cuda"), []
        while len(tokens) < length:
            state = torch.tanh(model(state))
            tokens.append(int(state.argmax().item()))
        return tokens

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        text = generate(5 if is_odd() and number == GOOD_STEPS else 8)
        dist.all_gather_object([None] * world(), text, group=texts)


def batch_norm():
    """Batches are normalized over all ranks, in a group of their own. The odd rank has evaluated, and has not put its model back into training mode:
    it normalizes by what it knows, and reduces its gradient."""
    torch, dist = connect()
    gradient = gradient_of(torch)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.SyncBatchNorm(256, process_group=dist.new_group()), torch.nn.ReLU()).cuda()

    def evaluate():
        model.eval()
        with torch.no_grad():
            model(torch.randn(32, 256, device="cuda")).mean().item()

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
            evaluate()
            if not is_odd():
                model.train()
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        reduce_gradient(dist, gradient)


CASES = {"message-ring": message_ring, "weight-handles": weight_handles, "restart": restart, "epoch-key": epoch_key, "contrastive": contrastive,
         "generation-length": generation_length, "batch-norm": batch_norm}

if __name__ == "__main__":
    run(CASES)
