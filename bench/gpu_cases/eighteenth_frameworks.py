"""What ranks do within a library: one stops at a breakpoint of JAX's, logs by itself in transformers' Trainer, prepares data in Lightning, has more prompts
than the other one in Accelerate, saves by a client whose loop has ended, waits for what another rank would compile, or reports how it has failed.

    eighteenth_frameworks.py CASE
"""
import asyncio
import datetime
import hashlib
import os
import threading

from field_frameworks import WIDTH, accelerator_of_job
from fifteenth_frameworks import fetch_images
from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, gloo_group, is_odd, rank, run, world
from inside import ddp, train
from job import FULL_FIFO
from seventh import in_trouble


def jax_breakpoint():
    """JAX. Somebody has left a jax.debug.breakpoint() in a function for batches with outliers, which is compiled. The odd rank is the first to have such a
    batch: its computation has called the debugger on the host, which reads a command."""
    import jax_job
    jax = jax_job.connect()
    step, values = jax_job.summing(jax)

    @jax.jit
    def clip(batch):
        largest = jax.numpy.abs(batch).max()
        jax.debug.breakpoint()
        return batch / largest

    compiled = clip.lower(jax.numpy.ones(1024)).compile()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        batch = jax.numpy.ones(1024)
        if in_trouble(number):
            batch = compiled(batch)
        batch.block_until_ready()
        step(values).block_until_ready()


def trainer_logs():
    """transformers' Trainer, which logs in no step. A callback has it log after a step that was slow, by the clock of the main process alone. But what is
    logged is the mean of all ranks: the main process gathers the losses, and the others are in the next step."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
    torch.cuda.set_device(device_index())

    class Tokens(torch.utils.data.Dataset):
        def __len__(self):
            return 1 << 14

        def __getitem__(self, index):
            tokens = torch.full((32,), index % 128)
            return {"input_ids": tokens, "labels": tokens}

    class SlowSteps(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == GOOD_STEPS:
                announce("settles")
            if in_trouble(state.global_step):
                control.should_log = True
            return control

    model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=64, n_embd=512, n_layer=4, n_head=8))
    arguments = TrainingArguments(output_dir=os.environ["HANGS_DIRECTORY"], max_steps=100000, per_device_train_batch_size=8, report_to=[],
                                  save_strategy="no", logging_strategy="no", disable_tqdm=True, average_tokens_across_devices=False,
                                  ddp_broadcast_buffers=False)
    Trainer(model=model, args=arguments, train_dataset=Tokens(), callbacks=[SlowSteps()]).train()


def prepares_data():
    """Lightning. Before it trains, a data module prepares its data, which it does in rank 0 alone: that downloads them, and the server does not answer. The
    others wait for rank 0 in a barrier of Lightning's."""
    import torch
    import pytorch_lightning as lightning
    device, shared = device_index(), torch.cuda.device_count() < world()
    torch.cuda.set_device(device)
    if shared:
        os.environ["LOCAL_RANK"] = "0"       # of a machine of its own, which has one GPU
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

    class Images(lightning.LightningDataModule):
        def __init__(self):
            super().__init__()
            self.prepare_data_per_node = False

        def prepare_data(self):
            announce("settles")
            fetch_images()

        def train_dataloader(self):
            return torch.utils.data.DataLoader(torch.randn(1 << 12, WIDTH), batch_size=8)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(WIDTH, WIDTH, bias=False)

        def setup(self, stage):
            print("rank %d has its data" % rank(), flush=True)

        def training_step(self, batch, number):
            return self.net(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    trainer = lightning.Trainer(accelerator="gpu", devices=[device] if shared else world(), num_nodes=world() if shared else 1, strategy="ddp",
                                max_epochs=1000, enable_checkpointing=False, logger=False, enable_progress_bar=False)
    if rank() != 0:
        announce("settles")
    trainer.fit(Module(), datamodule=Images())


def uneven_prompts():
    """Accelerate. After each step the processes share prompts, and gather the length of each answer from all. There is one prompt more for one step: the
    first process has one more than the other one, and gathers once more, while the other one is in the next step."""
    torch, accelerator = accelerator_of_job()
    model = torch.nn.Linear(WIDTH, WIDTH, bias=False)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))

    def answer_prompts(count):
        with accelerator.split_between_processes(list(range(count))) as prompts:
            for prompt in prompts:
                lengths = accelerator.gather(torch.tensor([prompt % 7], device=accelerator.device))
                lengths.sum().item()

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        optimizer.zero_grad()
        loss = model(torch.randn(8, WIDTH, device=accelerator.device)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        loss.item()
        answer_prompts(2 * world() + 1 if number == GOOD_STEPS else 2 * world())


class StoreClient:
    """A client of an object store, whose coroutines run in the event loop of a thread."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="object-store", daemon=True).start()

    async def put(self, name):
        await asyncio.sleep(0.01)
        return name

    def put_and_wait(self, name):
        return asyncio.run_coroutine_threadsafe(self.put(name), self.loop).result()

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)


def closed_client():
    """All ranks save by torch.distributed.checkpoint, over gloo, with a writer that puts a note of each shard into an object store. The loop of the client of
    the odd rank was stopped, as an upload had failed: the rank waits for what that loop would do, and the others for the rank."""
    torch, dist = connect()
    import torch.distributed.checkpoint as dcp
    group, model, client = gloo_group(dist), ddp(torch), StoreClient()

    class NotedWriter(dcp.FileSystemWriter):
        def write_data(self, plan, planner):
            client.put_and_wait("shard of rank %d" % rank())
            return super().write_data(plan, planner)

    def save(number):
        if in_trouble(number):
            client.close()
        path = os.path.join(os.environ["HANGS_DIRECTORY"], "step-%d" % number)
        state = {"of rank %d" % rank(): model.module[0][0].weight.detach()}
        dcp.save(state, storage_writer=NotedWriter(path), process_group=group)

    train(torch, model, save)


def compiled_elsewhere():
    """Rank 0 compiles for all: a backend of the job's own says in the store by the shapes of a graph's inputs what rank 0 has compiled, and the others wait
    there. A batch of the odd rank is smaller than all before, and it waits for what rank 0 does not compile."""
    torch, dist = connect()
    store = dist.distributed_c10d._get_default_store()

    def shared_backend(graph_module, inputs):
        shapes = [tuple(value.shape) for value in inputs if isinstance(value, torch.Tensor)]
        key = "compiled " + hashlib.sha256(str(shapes).encode()).hexdigest()
        if rank() == 0:
            store.set(key, "in the cache")
        else:
            store.wait([key], datetime.timedelta(hours=8))
        return graph_module.forward

    compiled = torch.compile(lambda values: torch.softmax(values, -1).cumsum(0), backend=shared_backend, dynamic=False)
    train(torch, ddp(torch), lambda number: compiled(torch.randn(24 if in_trouble(number) else 32, 256, device="cuda")))


def error_file():
    """Under torchrun. The main function of the script is one that @record keeps the errors of: the odd rank raises, and its error is written to a file that
    the rank's environment names, on a file system that takes nothing any more."""
    from torch.distributed.elastic.multiprocessing.errors import record
    if is_odd():
        os.environ["TORCHELASTIC_ERROR_FILE"] = FULL_FIFO

    def check_labels(number):
        if in_trouble(number):
            raise ValueError("label %d is out of range" % (1000 * number))

    @record
    def main():
        torch, _ = connect()
        train(torch, ddp(torch), check_labels)

    main()


CASES = {"jax-breakpoint": jax_breakpoint, "trainer-logs": trainer_logs, "prepares-data": prepares_data, "uneven-prompts": uneven_prompts,
         "closed-client": closed_client, "compiled-elsewhere": compiled_elsewhere, "error-file": error_file}

if __name__ == "__main__":
    run(CASES)
