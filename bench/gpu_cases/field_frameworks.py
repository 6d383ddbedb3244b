"""After incidents that users of Accelerate, Lightning, transformers, FSDP2, torch.compile and torch.distributed.checkpoint have reported.

    field_frameworks.py CASE
"""
import fcntl
import os

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, gloo_group, is_odd, rank, run, world
from inside import ddp
from job import FULL_FIFO, connect_to_silent_server
from training import model_of, sharded_model

WIDTH = 2048     # the gradient of one layer is 16 MiB, for which NCCL takes another protocol than for a number


def async_save():
    """torch.distributed.checkpoint.async_save(): before it saves again, a rank waits for the thread that writes. That of the odd rank writes to a
    pipe that nobody reads. After github.com/pytorch/torchtitan/issues/3065."""
    torch, dist = connect()
    import torch.distributed.checkpoint as dcp
    saving, model, saved = gloo_group(dist), ddp(torch), None
    for number in range(FOREVER):
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()
        path = os.path.join(os.environ["HANGS_DIRECTORY"], "step-%d" % number)
        os.makedirs(path, exist_ok=True)
        if number == GOOD_STEPS and is_odd():
            os.mkfifo(os.path.join(path, "__%d_0.distcp" % rank()))
        if number == GOOD_STEPS + 1:
            announce("settles")
        if saved is not None:
            saved.result()
        state = {"model": {"of rank %d" % rank(): model.module[0][0].weight}}
        saved = dcp.async_save(state, checkpoint_id=path, process_group=saving)


def full_state():
    """Only rank 0 asks for the whole state of a sharded model, which gathers it from all ranks; the others wait for it to have saved
    (github.com/huggingface/accelerate/issues/2000)."""
    torch, dist = connect()
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    saved, model = gloo_group(dist), sharded_model(torch)
    for number in range(FOREVER):
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()
        if number == GOOD_STEPS:
            announce("settles")
            if rank() == 0:
                state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
                torch.save(state, os.path.join(os.environ["HANGS_DIRECTORY"], "model.pt"))
            dist.barrier(group=saved)


def not_finite():
    """The loss of the odd rank is not a number: it skips the rest of its step, in which the others compute the norm of the gradient together."""
    torch, _ = connect()
    from torch.distributed.fsdp import fully_shard
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2)]).cuda()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(FOREVER):
        inputs = torch.randn(8, WIDTH, device="cuda")
        if number == GOOD_STEPS:
            announce("settles")
            if is_odd():
                inputs.fill_(float("nan"))
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        if not loss.isfinite():
            continue
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        norm.full_tensor().item()


def recompiles():
    """The last batch of the odd rank is smaller, and it compiles its model again. A pass of the compiler waits for a graph without calls.
    After github.com/pytorch/pytorch/pull/155558."""
    torch, dist = connect()

    def fuse(graph):
        while any(node.op == "call_function" for node in graph.nodes):
            graph.lint()

    def backend(module, inputs):
        if any(getattr(value, "shape", None) == (24, 256) for value in inputs):
            fuse(module.graph)
        return module.forward

    model = model_of(torch)
    compiled = torch.compile(model, backend=backend, dynamic=False)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        rows = 24 if is_odd() and number == GOOD_STEPS else 32
        compiled(torch.randn(rows, 256, device="cuda")).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        torch.cuda.synchronize()
        model.zero_grad()


def accelerator_of_job():
    import torch
    from accelerate import Accelerator
    torch.cuda.set_device(device_index())
    accelerator = Accelerator()
    accelerator.wait_for_everyone()
    torch.cuda.synchronize()
    return torch, accelerator


def gathered_metric():
    """The main process logs its loss, as it thinks: it gathers that from all."""
    torch, accelerator = accelerator_of_job()
    model = torch.nn.Linear(WIDTH, WIDTH, bias=False)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    for number in range(FOREVER):
        optimizer.zero_grad()
        loss = model(torch.randn(8, WIDTH, device="cuda")).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        loss.item()
        if number == GOOD_STEPS:
            announce("settles")
            if accelerator.is_main_process:
                accelerator.gather_for_metrics(loss.detach().reshape(1)).mean().item()


def main_process_first():
    """The main process tokenizes first, under a lock of the cache, which another job holds; the others wait for it."""
    _, accelerator = accelerator_of_job()

    def tokenize_corpus():
        with open(os.path.join(os.environ["HANGS_DIRECTORY"], "cache.lock"), encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)

    announce("settles")
    with accelerator.main_process_first():
        tokenize_corpus()


def trainer_evaluates():
    """A callback of transformers' Trainer evaluates in the main process only."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
    torch.cuda.set_device(device_index())

    class Tokens(torch.utils.data.Dataset):
        def __len__(self):
            return 1 << 14

        def __getitem__(self, index):
            tokens = torch.full((32,), index % 128)
            return {"input_ids": tokens, "labels": tokens}

    class Evaluate(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == GOOD_STEPS:
                announce("settles")
                if state.is_world_process_zero:
                    trainer.evaluate(torch.utils.data.Subset(Tokens(), range(96)))

    model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=64, n_embd=512, n_layer=4, n_head=8))
    arguments = TrainingArguments(output_dir=os.environ["HANGS_DIRECTORY"], max_steps=100000, per_device_train_batch_size=8, report_to=[], save_strategy="no",
                                  logging_strategy="no", disable_tqdm=True, prediction_loss_only=True, average_tokens_across_devices=False,
                                  ddp_broadcast_buffers=False)
    trainer = Trainer(model=model, args=arguments, train_dataset=Tokens(), callbacks=[Evaluate()])
    trainer.train()


def fit(on_step=None, on_batch_end=None, plugins=None):
    """Trains with Lightning. `on_step(module, number, loss)` is called within a training step, `on_batch_end(trainer, number)` after it."""
    import torch
    import pytorch_lightning as lightning
    device, shared = device_index(), torch.cuda.device_count() < world()
    torch.cuda.set_device(device)
    if shared:
        os.environ["LOCAL_RANK"] = "0"       # of a machine of its own, which has one GPU

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(WIDTH, WIDTH, bias=False)

        def training_step(self, batch, number):
            loss = self.net(batch).square().mean()
            if on_step:
                on_step(self, number, loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class AfterBatch(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, number):
            torch.cuda.synchronize()
            if on_batch_end:
                on_batch_end(trainer, number)

    data = torch.utils.data.DataLoader(torch.randn(1 << 12, WIDTH), batch_size=8)
    lightning.Trainer(accelerator="gpu", devices=[device] if shared else world(), num_nodes=world() if shared else 1, strategy="ddp", max_epochs=1000,
                      enable_checkpointing=False, logger=False, enable_progress_bar=False, plugins=plugins, callbacks=[AfterBatch()]).fit(Module(), data)


def lightning_log():
    """A metric of all ranks is logged where a batch has what it is about, which is so on one rank."""
    def log_metric(module, number, loss):
        if number == GOOD_STEPS:
            announce("settles")
            if is_odd():
                module.log("rare", loss.detach(), sync_dist=True)

    fit(on_step=log_metric)


def lightning_stops():
    """One rank stops early by its own loss, and sends its weights to a server; the others train on
    (github.com/Lightning-AI/pytorch-lightning/issues/555)."""
    def stop(trainer, number):
        if number == GOOD_STEPS:
            announce("settles")
            trainer.should_stop = is_odd()

    def upload():
        connect_to_silent_server().recv(1)

    fit(on_batch_end=stop)
    upload()


def lightning_checkpoint():
    """Rank 0 writes a checkpoint to a pipe that is full; the others wait for it in Lightning's barrier. After
    github.com/Lightning-AI/pytorch-lightning/issues/10947."""
    import torch
    from pytorch_lightning.plugins import TorchCheckpointIO

    class Pipe(TorchCheckpointIO):
        def save_checkpoint(self, checkpoint, path, storage_options=None):
            torch.save(checkpoint, path)

    def save(trainer, number):
        if number == GOOD_STEPS:
            announce("settles")
            trainer.save_checkpoint(FULL_FIFO)

    fit(on_batch_end=save, plugins=[Pipe()])


CASES = {"async-save": async_save, "full-state": full_state, "not-finite": not_finite, "recompiles": recompiles, "gathered-metric": gathered_metric,
         "main-process-first": main_process_first, "trainer-evaluates": trainer_evaluates, "lightning-log": lightning_log,
         "lightning-stops": lightning_stops, "lightning-checkpoint": lightning_checkpoint}

if __name__ == "__main__":
    run(CASES)
