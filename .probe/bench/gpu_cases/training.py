"""Training loops of real frameworks: after some good steps the odd rank runs into a trouble between two steps; the others wait in the step.

    training.py LOOP TROUBLE
"""
import os

from gpu_rank import GOOD_STEPS, announce, connect, device_index, is_odd, meet, rank, run, world


def model_of(torch, width=256, layers=4):
    parts = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts).cuda()


def repeat(step, trouble):
    number = 0
    while True:
        if number == GOOD_STEPS:
            meet(trouble)
        step(number)
        number += 1


def optimize(torch, model, trouble, reads_loss=True):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train_step(_):
        optimizer.zero_grad()
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item() if reads_loss else None

    repeat(train_step, trouble)


def ddp(trouble, reads_loss=True):
    torch, _ = connect()
    optimize(torch, torch.nn.parallel.DistributedDataParallel(model_of(torch)), trouble, reads_loss=reads_loss)


def ddp_without_item(trouble):
    """Nothing reads the loss: the innocent rank goes on until the queue of launches is full."""
    ddp(trouble, reads_loss=False)


def sharded_model(torch):
    from torch.distributed.fsdp import fully_shard
    model = model_of(torch)
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    return model


def fsdp2(trouble, reads_loss=True):
    torch, _ = connect()
    optimize(torch, sharded_model(torch), trouble, reads_loss=reads_loss)


def fsdp2_norms(trouble):
    """A hook reads the norm of a gradient: in the backward pass autograd's thread waits for the GPU, and the main thread for autograd's."""
    torch, _ = connect()
    model = sharded_model(torch)

    def log_norm(module, gradients_in, gradients_out):
        gradients_out[0].norm().item()

    activations = [layer for layer in model if not isinstance(layer, torch.nn.Linear)]
    activations[-1].register_full_backward_hook(log_norm)
    optimize(torch, model, trouble)


def fsdp2_without_item(trouble):
    fsdp2(trouble, reads_loss=False)


def fsdp1(trouble):
    torch, _ = connect()
    from torch.distributed.fsdp import FullyShardedDataParallel
    optimize(torch, FullyShardedDataParallel(model_of(torch), use_orig_params=True), trouble)


def zero(trouble):
    torch, _ = connect()
    from torch.distributed.optim import ZeroRedundancyOptimizer
    model = torch.nn.parallel.DistributedDataParallel(model_of(torch))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=0.01)

    def train_step(_):
        optimizer.zero_grad()
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()

    repeat(train_step, trouble)


def tensor_parallel(trouble):
    torch, _ = connect()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cuda", (world(),), mesh_dim_names=("tp",))
    model = parallelize_module(torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda(), mesh,
                               {"0": ColwiseParallel(), "2": RowwiseParallel()})

    def train_step(_):
        output = model(torch.ones(32, 256, device="cuda"))
        output.square().mean().backward()
        return output.sum().item()

    repeat(train_step, trouble)


def pipeline(trouble):
    """torch.distributed.pipelining: the first stages send activations, the last one computes the loss."""
    torch, _ = connect()
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
    stage = PipelineStage(model_of(torch, layers=2), rank(), world(), torch.device("cuda", device_index()))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=torch.nn.functional.mse_loss)
    inputs, targets = torch.randn(32, 256, device="cuda"), torch.randn(32, 256, device="cuda")

    def train_step(_):
        if rank() == 0:
            schedule.step(inputs)
        elif rank() == world() - 1:
            schedule.step(target=targets)
        else:
            schedule.step()
        torch.cuda.synchronize()

    repeat(train_step, trouble)


def experts(trouble):
    """Tokens are sent to the experts of other ranks and back."""
    torch, dist = connect()
    expert = torch.nn.Linear(256, 256).cuda()

    def route_tokens(_):
        tokens = torch.randn(8 * world(), 256, device="cuda")
        received, returned = torch.empty_like(tokens), torch.empty_like(tokens)
        dist.all_to_all_single(received, tokens)
        dist.all_to_all_single(returned, expert(received))
        return returned.sum().item()

    repeat(route_tokens, trouble)


def compiled(trouble):
    torch, _ = connect()
    model = torch.nn.parallel.DistributedDataParallel(model_of(torch))
    optimize(torch, torch.compile(model), trouble)


def graphs(trouble):
    """A CUDA graph with a collective inside is replayed."""
    torch, dist = connect()
    tensor = torch.ones(1024, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            dist.all_reduce(tensor)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensor.mul_(0.5)
        dist.all_reduce(tensor)

    def replay_graph(_):
        graph.replay()
        torch.cuda.synchronize()

    repeat(replay_graph, trouble)


def recomputed(trouble):
    """Activation checkpointing: the forward pass runs again in autograd's thread."""
    torch, _ = connect()
    from torch.utils.checkpoint import checkpoint
    inner = torch.nn.parallel.DistributedDataParallel(model_of(torch))

    def train_step(_):
        inputs = torch.randn(32, 256, device="cuda", requires_grad=True)
        checkpoint(inner, inputs, use_reentrant=False).square().mean().backward()
        torch.cuda.synchronize()

    repeat(train_step, trouble)


class Shards:
    """A map-style dataset one of whose items is in a file that cannot be read."""

    def __init__(self, blocks):
        self.blocks = blocks

    def __len__(self):
        return 1 << 16

    def __getitem__(self, index):
        import torch
        if self.blocks and index == 8 * GOOD_STEPS:
            self.read_shard()
        return torch.full((256,), float(index))

    def read_shard(self):
        from job import SILENT_FIFO
        announce("settles", None)
        with open(SILENT_FIFO, "rb", buffering=0) as stream:
            return stream.read(4096)


def loader(workers):
    """The loader of the odd rank waits for a file; with workers, in a process of its own, and batches are pinned."""
    torch, _ = connect()
    workers = int(workers)
    model = torch.nn.parallel.DistributedDataParallel(model_of(torch))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = torch.utils.data.DataLoader(Shards(is_odd() and not workers), batch_size=8, num_workers=0)
    if workers:
        batches = torch.utils.data.DataLoader(WorkerShards(is_odd()), batch_size=8, num_workers=workers, prefetch_factor=1, pin_memory=True)
    for number, inputs in enumerate(batches):
        if number == GOOD_STEPS - 1 and (workers or not is_odd()):
            announce("settles")
        optimizer.zero_grad()
        model(inputs.cuda(non_blocking=True)).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()


class WorkerShards(Shards):
    def read_shard(self):
        from job import SILENT_FIFO
        with open(SILENT_FIFO, "rb", buffering=0) as stream:
            return stream.read(4096)


def async_checkpoint(_):
    """The odd rank waits for its checkpoint, which a thread of its own writes to a pipe that is full."""
    torch, _ = connect()
    from concurrent.futures import ThreadPoolExecutor
    writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
    model = torch.nn.parallel.DistributedDataParallel(model_of(torch))
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "checkpoint.pt")

    def save_checkpoint():
        torch.save(model.state_dict(), path)

    def train_step(number):
        if number == GOOD_STEPS:
            announce("settles")
            if is_odd():
                writer.submit(save_checkpoint).result()
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()

    number = 0
    while True:
        train_step(number)
        number += 1


def hook(_):
    """A hook of a tensor, which autograd's thread runs, asks a server that does not answer."""
    torch, _ = connect()
    from job import connect_to_silent_server
    model = torch.nn.parallel.DistributedDataParallel(model_of(torch))
    state = {"step": 0}

    def report_gradient(gradient):
        if state["step"] == GOOD_STEPS and is_odd():
            connection = connect_to_silent_server()
            announce("settles")
            connection.recv(1)
        return gradient

    while True:
        if state["step"] == GOOD_STEPS and not is_odd():
            announce("settles")
        output = model(torch.randn(32, 256, device="cuda"))
        output.register_hook(report_gradient)
        output.square().mean().backward()
        torch.cuda.synchronize()
        state["step"] += 1


def backward_launches(_):
    """The innocent rank's backward pass launches kernels behind an all-reduce that the odd rank never joins, until the queue is full."""
    torch, dist = connect()
    weights = torch.nn.Parameter(torch.randn(256, 256, device="cuda"))
    tensor = torch.ones(1 << 20, device="cuda")

    def train_step():
        dist.all_reduce(tensor)
        value = torch.randn(256, 256, device="cuda")
        for _ in range(250):
            value = torch.tanh(value @ weights)
        value.sum().backward()

    number = 0
    while True:
        if number == GOOD_STEPS:
            torch.cuda.synchronize()
            meet("lock")
        train_step()
        number += 1


def lightning(trouble):
    import torch
    import lightning as L
    torch.cuda.set_device(device_index())

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(256, 256)

        def training_step(self, batch, number):
            if number == GOOD_STEPS:
                meet(trouble)
            loss = self.net(batch).square().mean()
            self.log("loss", loss, sync_dist=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    data = torch.utils.data.DataLoader(torch.randn(1 << 14, 256), batch_size=8)
    shared = torch.cuda.device_count() < world()
    L.Trainer(accelerator="gpu", devices=1 if shared else world(), num_nodes=world() if shared else 1, strategy="ddp", max_epochs=1000,
              enable_checkpointing=False, logger=False, enable_progress_bar=False).fit(Module(), data)


def accelerated(trouble):
    import torch
    from accelerate import Accelerator
    torch.cuda.set_device(device_index())
    accelerator = Accelerator()
    model = model_of(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)

    def train_step(_):
        optimizer.zero_grad()
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        return accelerator.gather(loss.detach()).mean().item()

    repeat(train_step, trouble)


def trainer(trouble):
    """transformers' Trainer with a small language model."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
    torch.cuda.set_device(device_index())

    class Meet(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == GOOD_STEPS:
                meet(trouble)

    class Tokens(torch.utils.data.Dataset):
        def __len__(self):
            return 1 << 14

        def __getitem__(self, index):
            tokens = torch.full((32,), index % 128)
            return {"input_ids": tokens, "labels": tokens}

    model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=64, n_embd=64, n_layer=2, n_head=2))
    arguments = TrainingArguments(output_dir=os.environ["HANGS_DIRECTORY"], max_steps=100000, per_device_train_batch_size=8, report_to=[], save_strategy="no",
                                  logging_steps=1, disable_tqdm=True, dataloader_num_workers=0)
    Trainer(model=model, args=arguments, train_dataset=Tokens(), callbacks=[Meet()]).train()


def generate(trouble):
    """Ranks generate together: after each token they agree on whether to go on."""
    torch, dist = connect()
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=4096, n_embd=64, n_layer=2, n_head=2)).cuda()

    def generate_together(_):
        model.generate(torch.ones(1, 4, dtype=torch.long, device="cuda"), max_new_tokens=8, do_sample=False, synced_gpus=True, pad_token_id=0)
        flag = torch.ones(1, device="cuda")
        dist.all_reduce(flag)
        return flag.item()

    repeat(generate_together, trouble)


CASES = {"ddp": ddp, "ddp-without-item": ddp_without_item, "fsdp2": fsdp2, "fsdp2-without-item": fsdp2_without_item, "fsdp2-norms": fsdp2_norms,
         "fsdp1": fsdp1, "zero": zero,
         "tensor-parallel": tensor_parallel, "pipeline": pipeline, "experts": experts, "compiled": compiled, "graphs": graphs, "recomputed": recomputed,
         "loader": loader, "async-checkpoint": async_checkpoint, "hook": hook, "backward-launches": backward_launches, "lightning": lightning,
         "accelerate": accelerated, "trainer": trainer, "generate": generate}

if __name__ == "__main__":
    run(CASES)
