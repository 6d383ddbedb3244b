"""DeepSpeed on CPUs, over gloo.

    deepspeed_job.py CASE
"""
import datetime
import os
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")

from job import FOREVER, SILENT_FIFO, announce, end_with_parent, is_odd, rank, world

GOOD_STEPS = 3


def connect():
    import torch
    import deepspeed
    torch.set_num_threads(1)
    backend = sys.modules["deepspeed.comm.torch"]
    backend.build_shm_op = lambda: None      # it is compiled, for which torch's headers may be missing
    backend.TorchBackend.has_all_gather_into_tensor = lambda self: False      # gloo of torch 1.13 lacks it
    deepspeed.init_distributed("gloo", timeout=datetime.timedelta(hours=8), verbose=False)
    return torch, deepspeed


def augment():
    time.sleep(FOREVER)


def read_shard():
    with open(SILENT_FIFO, "rb") as stream:
        return stream.read(1)


def settings(stage):
    return {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
            "optimizer": {"type": "Adam", "params": {"torch_adam": True}}, "zero_allow_untested_optimizer": True}


def train(stage, trouble):
    torch, deepspeed = connect()
    model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(4)])
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings(stage))[0]
    for step in range(1 << 40):
        if step == GOOD_STEPS and trouble is None:
            announce("moves")
        elif step == GOOD_STEPS:
            announce()
            if is_odd():
                trouble()
        if stage == 3:      # gradients are scattered, which gloo of torch 1.13 cannot do
            with torch.no_grad():
                engine(torch.rand(4, 32))
            continue
        engine.backward(engine(torch.rand(4, 32)).sum())
        engine.step()


def zero3():
    """The others are in ZeRO-3's gathering of the first module's parameters."""
    train(3, augment)


def zero1():
    train(1, read_shard)


def steps():
    train(3, None)


def pipeline():
    """As many stages as ranks; the odd one reads a file between two batches."""
    torch, deepspeed = connect()
    from deepspeed.pipe import PipelineModule
    model = PipelineModule([torch.nn.Linear(32, 32) for _ in range(world())], num_stages=world(), loss_fn=torch.nn.MSELoss(), partition_method="uniform")
    engine = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=settings(0))[0]

    def batches():
        while True:
            yield torch.rand(1, 32), torch.rand(1, 32)

    for step in range(1 << 40):
        if step == GOOD_STEPS:
            announce()
            if is_odd():
                read_shard()
        engine.train_batch(batches() if rank() in (0, world() - 1) else None)


CASES = {"zero3": zero3, "zero1": zero1, "steps": steps, "pipeline": pipeline}


def main():
    end_with_parent()
    CASES[sys.argv[1]]()


if __name__ == "__main__":
    main()
