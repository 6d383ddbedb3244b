"""A rank is held up within a framework, by the collator of a Trainer, a program that a compiler's backend runs, or what JAX computes with; or ranks
disagree: when gradients are compressed, what is padded, who goes back to a checkpoint, and how many rows an embedding has.

    fifteenth_frameworks.py CASE
"""
import http.client
import os
import queue
import subprocess
import threading

from field_frameworks import WIDTH, accelerator_of_job
from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, gloo_group, is_odd, rank, run, world
from inside import ddp, train
from seventh import in_trouble


def fetch_images():
    """Asks a server for them."""
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["HANGS_PORT"]))
    connection.request("GET", "/images/1")
    return connection.getresponse().read()


def trainer_collator():
    """transformers' Trainer. The collator fetches the images of a batch from a server, where a sample has some. The odd rank comes to one that has, and
    the server does not answer."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
    torch.cuda.set_device(device_index())
    state = {"batches": 0}

    class Tokens(torch.utils.data.Dataset):
        def __len__(self):
            return 1 << 14

        def __getitem__(self, index):
            return torch.full((32,), index % 128)

    class Progress(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == GOOD_STEPS:
                announce("settles")

    def collate(samples):
        state["batches"] += 1
        if is_odd() and state["batches"] == 2 * GOOD_STEPS:
            fetch_images()
        tokens = torch.stack(samples)
        return {"input_ids": tokens, "labels": tokens}

    model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=64, n_embd=512, n_layer=4, n_head=8))
    arguments = TrainingArguments(output_dir=os.environ["HANGS_DIRECTORY"], max_steps=100000, per_device_train_batch_size=8, report_to=[],
                                  save_strategy="no", logging_strategy="no", disable_tqdm=True, prediction_loss_only=True,
                                  average_tokens_across_devices=False, ddp_broadcast_buffers=False, remove_unused_columns=False)
    Trainer(model=model, args=arguments, train_dataset=Tokens(), data_collator=collate, callbacks=[Progress()]).train()


TUNE = """
while [ "$1" -eq 48 ]; do
    sleep 0.5
done
echo 16
"""


def tuned_by_program():
    """A function is compiled by a backend that has a program find the best size of its blocks. For 48 rows, which the odd rank is the first to have, the
    program does not find one, and goes on to measure."""
    torch, _ = connect()

    def tuned_backend(graph_module, inputs):
        subprocess.run(["sh", "-c", TUNE, "tune", str(inputs[-1].shape[0])], stdout=subprocess.DEVNULL, check=True)
        return graph_module.forward

    compiled = torch.compile(lambda values: values / values.norm(dim=-1, keepdim=True), backend=tuned_backend, dynamic=False)
    train(torch, ddp(torch), lambda number: compiled(torch.randn(48 if in_trouble(number) else 32, 256, device="cuda")))


def jax_prefetch():
    """JAX. A thread of a rank reads batches, and copies them to its GPU ahead of their use. That of the odd rank asks a server for one, which does not
    answer."""
    import jax_job
    jax = jax_job.connect()
    step, values = jax_job.summing(jax)
    double, batches = jax.jit(lambda batch: batch * 2), queue.Queue(2)

    def read_ahead():
        for number in range(FOREVER):
            if in_trouble(number):
                fetch_images()
            batches.put(jax.device_put(jax.numpy.ones(1024), jax.local_devices()[0]))

    threading.Thread(target=read_ahead, name="read-ahead", daemon=True).start()
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        double(batches.get()).block_until_ready()
        step(values).block_until_ready()


def powersgd_start():
    """DDP, whose gradients PowerSGD compresses from some step on. That step is another one in the settings of the odd rank: it reduces two thin matrices,
    and the other rank whole gradients."""
    torch, _ = connect()
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
    layers = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2)]).cuda()
    model = torch.nn.parallel.DistributedDataParallel(layers)
    model.register_comm_hook(PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=GOOD_STEPS if is_odd() else 1000), powerSGD_hook)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model(torch.randn(8, WIDTH, device="cuda")).square().mean().backward()
        torch.cuda.synchronize()


def accelerate_pads():
    """Accelerate. The tokens of a batch are padded to the longest one of all processes, which takes a collective, if they are fewer than usual. The odd
    rank has such a batch, and the other one reduces its gradients."""
    torch, accelerator = accelerator_of_job()
    model, embedding = torch.nn.Linear(WIDTH, WIDTH, bias=False), torch.randn(128, WIDTH, device=accelerator.device)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        tokens = torch.ones(8, 48 if in_trouble(number) else 64, dtype=torch.long, device=accelerator.device)
        if tokens.shape[1] < 64:
            tokens = accelerator.pad_across_processes(tokens, dim=1)
        optimizer.zero_grad()
        loss = model(embedding[tokens].mean(1)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        loss.item()


def rolls_back():
    """All ranks save in every other step by torch.distributed.checkpoint, over gloo. The loss of the odd rank has become too large, and it goes back to the
    last checkpoint, for which all ranks would have to load; the others are in the next step."""
    torch, dist = connect()
    import torch.distributed.checkpoint as dcp
    group, model, saved = gloo_group(dist), ddp(torch), []

    def save_or_load(number):
        state = {"model": model.module.state_dict()}
        if number % 2 == 0:
            saved.append(os.path.join(os.environ["HANGS_DIRECTORY"], "step-%d" % number))
            dcp.save(state, checkpoint_id=saved[-1], process_group=group)
        loss = 1e9 if in_trouble(number) else 0.5
        if loss > 1e6:
            dcp.load(state, checkpoint_id=saved[-1], process_group=group)
            model.module.load_state_dict(state["model"])

    train(torch, model, save_or_load)


def grows_embedding():
    """The rows of an embedding are on all ranks, as a DTensor. The odd rank has met a token that is new to it, and distributes an embedding with more rows;
    the other one has not, and goes on."""
    torch, dist = connect()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    group, mesh, state = gloo_group(dist), init_device_mesh("cuda", (world(),)), {"rows": 0}

    def look_up(number):
        rows = 1 << (17 if in_trouble(number) else 16)
        if rows > state["rows"]:
            embedding = distribute_tensor(torch.ones(rows, 64, device="cuda"), mesh, [Shard(0)])
            state.update(rows=rows, largest=embedding.to_local().max().item())
        dist.all_gather_object([None] * world(), (rank(), state["largest"]), group=group)

    train(torch, ddp(torch), look_up)


CASES = {"trainer-collator": trainer_collator, "tuned-by-program": tuned_by_program, "jax-prefetch": jax_prefetch, "powersgd-start": powersgd_start,
         "accelerate-pads": accelerate_pads, "rolls-back": rolls_back, "grows-embedding": grows_embedding}

if __name__ == "__main__":
    run(CASES)
