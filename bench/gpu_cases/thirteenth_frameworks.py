"""What one rank alone does within a framework: saves by Lightning, asks for a trigger of Accelerate's, trains a layer of FSDP2's that was frozen,
takes a step more of a pipeline, or goes another way through a function that is compiled.

    thirteenth_frameworks.py CASE
"""
import os

from field_frameworks import WIDTH, accelerator_of_job, fit
from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, gloo_group, rank, run, world
from seventh import in_trouble
from training import model_of, sharded_model


def lightning_saves():
    """A callback of Lightning's saves a checkpoint where it is the rank that writes to disk, as one would by torch.save(). But all ranks have to
    call Lightning's function: rank 0 has written, and waits for the others in a barrier."""
    def save(trainer, number):
        if number == GOOD_STEPS:
            announce("settles")
        if number >= GOOD_STEPS and trainer.is_global_zero:
            trainer.save_checkpoint(os.path.join(os.environ["HANGS_DIRECTORY"], "last.ckpt"))

    fit(on_batch_end=save)


def accelerate_trigger():
    """By Accelerate, each rank may set a trigger, and all look whether one of them has. In a new version of the script the main process alone
    looks, as it is the one which would stop the job; to look is a reduction."""
    torch, accelerator = accelerator_of_job()
    model = torch.nn.Linear(WIDTH, WIDTH, bias=False)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    for number in range(FOREVER):
        optimizer.zero_grad()
        loss = model(torch.randn(8, WIDTH, device=accelerator.device)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        if not loss.item() < 1e6:
            accelerator.set_trigger()
        if number == GOOD_STEPS:
            announce("settles")
        if (number < GOOD_STEPS or accelerator.is_main_process) and accelerator.check_trigger():
            break


def unfreezes_early():
    """FSDP2. The first layer is frozen until the loss does not become smaller any more, which each rank finds by its own loss. The odd rank finds
    it first, and reduces gradients of that layer, too; the other one is at the end of the step, where all average their losses over gloo."""
    torch, dist = connect()
    losses, model = gloo_group(dist), sharded_model(torch)
    model[0].requires_grad_(False)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        if in_trouble(number):
            model[0].requires_grad_(True)
        model.zero_grad()
        loss = model(torch.randn(32, 256, device="cuda")).square().mean()
        loss.backward()
        mean = loss.detach().cpu()
        dist.all_reduce(mean, group=losses)


def pipeline_epoch():
    """A pipeline of two stages. In each epoch it takes as many steps as there are batches, for which each rank looks into its own list of files. That
    of rank 0 is a file shorter: it meets the other one over gloo, as at the end of an epoch, while that waits for the activations of a batch more."""
    torch, dist = connect()
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    group = gloo_group(dist)
    stage = PipelineStage(model_of(torch, layers=2), rank(), world(), torch.device("cuda", device_index()))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
    inputs, targets = torch.randn(32, 256, device="cuda"), torch.randn(32, 256, device="cuda")
    for epoch in range(FOREVER):
        if epoch == GOOD_STEPS:
            announce("settles")
        for _ in range(2 if epoch == GOOD_STEPS and rank() == 0 else 3):
            if rank() == 0:
                schedule.step(inputs)
            else:
                schedule.step(target=targets)
            torch.cuda.synchronize()
        dist.barrier(group=group)


def compiled_branch():
    """A function that is compiled scales by the largest value of all ranks, which is a functional collective, if a batch has outliers. Each
    rank looks at its own batch for that: for the odd rank's first batch without any, another graph is compiled, which has no collective."""
    torch, dist = connect()
    import torch.distributed._functional_collectives as functional
    group, everybody, model = gloo_group(dist), dist.group.WORLD.group_name, model_of(torch)

    @torch.compile(backend="aot_eager")
    def scaled(values, outliers):
        if outliers:
            return values / functional.all_reduce(values.abs().max().reshape(1), "max", everybody)
        return values / 4

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        with torch.no_grad():
            score = scaled(model(torch.randn(32, 256, device="cuda")), not in_trouble(number)).mean().item()
        dist.all_gather_object([None] * world(), score, group=group)


CASES = {"lightning-saves": lightning_saves, "accelerate-trigger": accelerate_trigger, "unfreezes-early": unfreezes_early,
         "pipeline-epoch": pipeline_epoch, "compiled-branch": compiled_branch}

if __name__ == "__main__":
    run(CASES)
