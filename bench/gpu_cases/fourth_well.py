"""Jobs that are well, in which ranks wait for each other, for their data or for their GPU, for some seconds at most.

    fourth_well.py CASE
"""
import math
import os
import queue
import threading
import time

from gpu_rank import announce, connect, device_index, gloo_group, rank, run, world
from healthy import steps
from inside import ddp
from training import model_of


def polling_server():
    """A server that batches continuously: it looks for requests every few milliseconds, and tells all ranks how many there are, which is none most
    of the time. A client asks every two seconds."""
    torch, dist = connect()
    requests, waiting, hidden = gloo_group(dist), queue.Queue(), torch.ones(1 << 16, device="cuda")

    def ask():
        while True:
            waiting.put("prompt")
            time.sleep(2)

    def take_requests():
        time.sleep(0.005)
        taken = []
        while not waiting.empty():
            taken.append(waiting.get())
        return taken

    def iteration(_):
        batch = [take_requests() if rank() == 0 else None]
        dist.broadcast_object_list(batch, src=0, group=requests)
        for _ in batch[0]:
            for _ in range(8):
                dist.all_reduce(hidden)
                hidden.div_(world()).sum().item()

    if rank() == 0:
        threading.Thread(target=ask, name="client", daemon=True).start()
    steps(iteration)


def uneven_evaluation():
    """After some steps every rank evaluates its own part, batch by batch; that of rank 1 is three times as large. Then the scores are gathered."""
    torch, dist = connect()
    scores, model = gloo_group(dist), ddp(torch)

    def evaluate():
        correct = 0
        with torch.no_grad():
            for _ in range(40 * (1 + 2 * rank())):
                correct += int((model.module(torch.randn(32, 256, device="cuda")).argmax(-1) > 128).sum().item())
                time.sleep(0.01)
        return correct

    def epoch(_):
        for _ in range(5):
            loss = model(torch.randn(32, 256, device="cuda")).square().mean()
            loss.backward()
            loss.item()
        dist.all_gather_object([None] * world(), evaluate(), group=scores)

    steps(epoch)


def offloaded_shards():
    """FSDP2 in bfloat16, whose shards and optimizer are in the host's memory; the optimizer takes most of a step."""
    torch, _ = connect()
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
    options = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), "offload_policy": CPUOffloadPolicy()}
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048, bias=False) for _ in range(6)])
    for layer in model:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, foreach=False)

    def train_step(_):
        loss = model(torch.randn(8, 2048, device="cuda")).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    steps(train_step)


def distributed_checkpoints():
    """All ranks save their shards by torch.distributed.checkpoint after every few steps, 64 MiB each."""
    torch, _ = connect()
    import torch.distributed.checkpoint as dcp
    model, shard = ddp(torch), torch.ones(1 << 24, device="cuda")

    def epoch(number):
        for _ in range(3):
            model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()
        dcp.save({"step": number, "of rank %d" % rank(): shard}, checkpoint_id=os.path.join(os.environ["HANGS_DIRECTORY"], "step-%d" % (number % 2)))

    steps(epoch)


def slow_stage():
    """A pipeline, one forward, one backward. The second stage computes a while on its processor for each micro-batch; the first one waits for it."""
    torch, _ = connect()
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    def beam_search(module, inputs, outputs):
        return outputs + sum(math.sin(number) for number in range(1 << 22)) * 1e-9 if rank() == 1 else outputs

    model = model_of(torch, layers=2)
    model.register_forward_hook(beam_search)
    stage = PipelineStage(model, rank(), world(), torch.device("cuda", device_index()))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
    inputs, targets = torch.randn(32, 256, device="cuda"), torch.randn(32, 256, device="cuda")

    def train_step(_):
        if rank() == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets)
        torch.cuda.synchronize()

    steps(train_step)


def context_parallel():
    """Ring attention: keys and values go around between the hops, and a mask is computed on the processor, for some blocks a longer time."""
    torch, dist = connect()
    queries, block = torch.randn(512, 64, device="cuda"), torch.randn(2, 512, 64, device="cuda")
    after, before = (rank() + 1) % world(), (rank() - 1) % world()

    def pass_on(outgoing):
        incoming = torch.empty_like(outgoing)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, outgoing, after), dist.P2POp(dist.irecv, incoming, before)]):
            work.wait()
        return incoming

    def mask(number, hop):
        rows = 64 * (1 + (number + hop + rank()) % 3)
        return sum(row * column % 7 > 2 for row in range(rows) for column in range(32 * rows))

    def attend(number):
        keys, output = block, torch.zeros_like(queries)
        for hop in range(2 * world()):
            visible = mask(number, hop) % 512 + 1
            output += torch.softmax(queries @ keys[0, :visible].T / 8, -1) @ keys[1, :visible]
            keys = pass_on(keys)
        return output.sum().item()

    steps(attend)


def autotuning():
    """For each length of its sequences a kernel of Triton's is tuned, on every rank, which takes a second or more; then the ranks reduce."""
    torch, dist = connect()
    from fourth_triton import decay

    def first_step_of(number):
        size = (1 << 22) + 1024 * number
        values = torch.ones(size, device="cuda")
        decay[lambda meta: (-(-size // meta["block"]),)](values, 0.5, size)
        total = values.sum()
        dist.all_reduce(total)
        total.item()

    steps(first_step_of)


def policy_gradient():
    """Rank 0 generates samples, token by token, for a second or two, and hands them to all, who then train on them together."""
    torch, dist = connect()
    model, policy = ddp(torch), model_of(torch)
    samples = torch.zeros(16, 256, device="cuda")

    def generate():
        state = torch.randn(16, 256, device="cuda")
        with torch.no_grad():
            for _ in range(150):
                state = torch.tanh(policy(state)) + 0.1 * torch.randn_like(state)
                tokens = torch.multinomial(torch.softmax(state, -1), 1).tolist()
                time.sleep(0.008)
        return state + tokens[0][0] / 256

    def iteration(_):
        if rank() == 0:
            samples.copy_(generate())
        dist.broadcast(samples, src=0)
        for _ in range(4):
            loss = model(samples).square().mean()
            loss.backward()
            loss.item()

    steps(iteration)


class Sentences:
    """Sentences of different lengths, which workers tokenize and collate in Python."""

    def __len__(self):
        return 96

    def __getitem__(self, index):
        return [(index * 31 + word * word) % 997 for word in range(20000 * (1 + index % 3))]

    @staticmethod
    def collate(sentences):
        import torch
        longest = max(map(len, sentences))
        padded = [sentence + [0] * (longest - len(sentence)) for sentence in sentences]
        return torch.tensor([sum(row[column::256]) / longest for row in padded for column in range(256)]).reshape(-1, 256)


def collating():
    """Short epochs of a loader whose workers live as long as the job. They are busy all the time, and all ranks wait for them."""
    torch, _ = connect()
    model = ddp(torch)
    loader = torch.utils.data.DataLoader(Sentences(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True,
                                         collate_fn=Sentences.collate, multiprocessing_context="fork")

    def batches():
        while True:
            yield from loader

    batch = batches()

    def train_step(_):
        loss = model(next(batch).cuda()).square().mean()
        loss.backward()
        loss.item()

    steps(train_step)


CASES = {"polling-server": polling_server, "uneven-evaluation": uneven_evaluation, "offloaded-shards": offloaded_shards,
         "distributed-checkpoints": distributed_checkpoints, "slow-stage": slow_stage, "context-parallel": context_parallel, "autotuning": autotuning,
         "policy-gradient": policy_gradient, "collating": collating}

if __name__ == "__main__":
    run(CASES)
