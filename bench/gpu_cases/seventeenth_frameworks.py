"""What ranks do within a library: one listens to a stream of text whose writer has failed, asks for all of a model's weights, writes a checkpoint's last
file, draws the first random numbers of a DTensor, has too few buffers for a stage, waits for an effect of JAX's, or has raised within Lightning.

    seventeenth_frameworks.py CASE
"""
import os
import queue
import threading

from field_frameworks import fit
from fifteenth_frameworks import fetch_images
from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, gloo_group, rank, run, world
from inside import ddp, train
from job import connect_to_silent_server
from seventh import in_trouble
from training import model_of


class Digits:
    """A tokenizer whose words are numbers."""

    def decode(self, tokens, **_):
        return "".join("%d " % token for token in tokens)


def silent_streamer():
    """A thread generates text by transformers, and the main thread takes the words from a streamer as they come. The odd rank has a rule for what may be
    said that raises: the exception is printed, the thread is gone, and the streamer has no word more and no end."""
    torch, _ = connect()
    from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessor, LogitsProcessorList, TextIteratorStreamer
    writer = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=64, n_embd=64, n_layer=2, n_head=2)).cuda()
    prompt = torch.ones(1, 4, dtype=torch.long, device="cuda")

    class Rule(LogitsProcessor):
        def __init__(self, number):
            self.number = number

        def __call__(self, input_ids, scores):
            if in_trouble(self.number) and input_ids.shape[1] == 8:
                raise ValueError("the rule names a word that is not in the vocabulary")
            return scores

    def generate(number, streamer):
        torch.cuda.set_device(device_index())
        writer.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0, logits_processor=LogitsProcessorList([Rule(number)]), streamer=streamer)

    def listen(number):
        streamer = TextIteratorStreamer(Digits())
        threading.Thread(target=generate, args=(number, streamer), name="generate", daemon=True).start()
        return "".join(streamer)

    train(torch, ddp(torch), listen)


def summons_weights():
    """FSDP. Rank 0 logs the norm of all weights after a step, within summon_full_params() and with rank0_only, by which the weights are there for rank 0
    alone. But all ranks have to call that, which gathers them; the others are at the end of the step, where all gather their losses over gloo."""
    torch, dist = connect()
    from torch.distributed.fsdp import FullyShardedDataParallel
    losses, model = gloo_group(dist), FullyShardedDataParallel(model_of(torch), use_orig_params=True)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model.zero_grad()
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        loss.backward()
        value = loss.item()
        if in_trouble(number):
            with FullyShardedDataParallel.summon_full_params(model, writeback=False, rank0_only=True):
                print("norms: %g" % sum(weight.norm().item() for weight in model.parameters()), flush=True)
        dist.all_gather_object([None] * world(), value, group=losses)


def last_file():
    """All ranks save by torch.distributed.checkpoint, over gloo. As all have written, rank 0 writes what is where, the last file of a checkpoint. Of one
    checkpoint that is a pipe that nobody reads; the others wait for rank 0 to say that the checkpoint is whole."""
    torch, dist = connect()
    import torch.distributed.checkpoint as dcp
    group, model = gloo_group(dist), ddp(torch)

    def save(number):
        path = os.path.join(os.environ["HANGS_DIRECTORY"], "step-%d" % number)
        os.makedirs(path, exist_ok=True)
        if in_trouble(number):
            os.mkfifo(os.path.join(path, ".metadata.tmp"))
        dcp.save({"of rank %d" % rank(): model.module[0][0].weight.detach()}, checkpoint_id=path, process_group=group)

    train(torch, model, save)


def first_noise():
    """The rows of an embedding are on all ranks, as a DTensor. From some step on the odd rank adds noise to its rows, as its settings say. For its first
    random numbers a DTensor takes the state of rank 0's generator, by a broadcast; the others gather their losses over gloo, as all do after that."""
    torch, dist = connect()
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    losses, model = gloo_group(dist), ddp(torch)
    embedding = distribute_tensor(torch.ones(96, 64, device="cuda"), init_device_mesh("cuda", (world(),)), [Shard(0)])

    def look_up(number):
        rows = embedding + 0.01 * torch.randn_like(embedding) if in_trouble(number) else embedding
        dist.all_gather_object([None] * world(), rows.to_local().mean().item(), group=losses)

    train(torch, model, look_up)


def stage_buffers():
    """A pipeline of three stages, one forward, one backward. A stage copies what it keeps for the backward pass into buffers, of which there are as many as
    the first stage needs at a time. Rank 0 has tried its stage on a batch, without a backward pass, which would have given the buffer back: in the next
    step it waits for a buffer that nobody has."""
    torch, _ = connect()
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    buffers = queue.Queue()
    for _ in range(world()):
        buffers.put(torch.empty(8, 256).pin_memory())

    class Offload(torch.autograd.Function):
        @staticmethod
        def forward(ctx, hidden):
            ctx.buffer = buffers.get()
            ctx.buffer.copy_(hidden, non_blocking=True)
            return hidden.clone()

        @staticmethod
        def backward(ctx, gradient):
            buffers.put(ctx.buffer)
            return gradient

    class Layer(torch.nn.Module):
        def forward(self, hidden):
            return Offload.apply(hidden) if hidden.requires_grad else hidden

    layers = torch.nn.Sequential(model_of(torch, layers=1), Layer(), model_of(torch, layers=1))
    stage = PipelineStage(layers, rank(), world(), torch.device("cuda", device_index()))
    schedule = Schedule1F1B(stage, n_microbatches=6, loss_fn=torch.nn.functional.mse_loss)
    inputs, targets = torch.randn(48, 256, device="cuda"), torch.randn(48, 256, device="cuda")
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if in_trouble(number):
            print("the stage says %g" % layers(inputs[:8]).sum().item(), flush=True)
        if rank() == 0:
            schedule.step(inputs)
        elif rank() == world() - 1:
            schedule.step(target=targets)
        else:
            schedule.step()
        torch.cuda.synchronize()


def jax_effects():
    """JAX. A function that is compiled logs a norm by jax.debug.callback(), and the rank waits for such effects before it goes on. That of the odd rank asks
    a server, which does not answer."""
    import jax_job
    jax = jax_job.connect()
    step, values = jax_job.summing(jax)
    state = {"number": 0}

    def log_norm(_):
        if in_trouble(state["number"]):
            fetch_images()

    @jax.jit
    def normalized(batch):
        norm = jax.numpy.sqrt((batch * batch).sum())
        jax.debug.callback(log_norm, norm)
        return batch / norm

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        state["number"] = number
        normalized(jax.numpy.ones(1024))
        jax.effects_barrier()
        step(values).block_until_ready()


def lightning_alert():
    """Lightning. The odd rank raises within a step, and Lightning calls what callbacks have for an exception: one that posts it to the chat of the team,
    whose server does not answer. The other rank waits for it in its backward pass."""
    from pytorch_lightning import Callback

    class Alert(Callback):
        def on_exception(self, trainer, pl_module, exception):
            server = connect_to_silent_server()
            server.sendall(b"POST /alerts HTTP/1.1\r\n\r\n")
            server.recv(4096)

    def add_alert(trainer, number):
        if number == 0:
            trainer.callbacks.append(Alert())
        if number == GOOD_STEPS - 1:
            announce("settles")

    def check_loss(_, number, loss):
        if in_trouble(number):
            raise FloatingPointError("the loss is %g times as large as before" % (1e6 * loss.item()))

    fit(on_step=check_loss, on_batch_end=add_alert)


CASES = {"silent-streamer": silent_streamer, "summons-weights": summons_weights, "last-file": last_file, "first-noise": first_noise,
         "stage-buffers": stage_buffers, "jax-effects": jax_effects, "lightning-alert": lightning_alert}

if __name__ == "__main__":
    run(CASES)
