"""One rank of a job over gloo that uses Lightning, Accelerate, filelock, fsspec or torch.compile, as people describe its hang in their bug
trackers.

    field_frameworks.py CASE

Held out: written without a look at the rules of the tool (docs/benchmark.md).
"""
import os
import sys
import time

from job import DIRECTORY, FOREVER, announce, connect, end_with_parent, is_odd, world

GOOD_STEPS, STEPS = 3, 40


def steps_around(held_up):
    """Steps over gloo; the odd ranks call `held_up` before their fourth."""
    torch, dist = connect()
    for number in range(STEPS):
        if number == GOOD_STEPS:
            if is_odd():
                held_up(torch)
            announce()
        dist.all_reduce(torch.ones(64))


def wait_for_filelock(_):
    """The lock is held by a process outside of the job (the benchmark)."""
    from filelock import FileLock
    announce("settles")
    with FileLock(os.path.join(DIRECTORY, "cache.lock")):
        pass


def read_by_fsspec(_):
    import fsspec
    announce("settles")
    with fsspec.open("http://127.0.0.1:%s/train.parquet" % os.environ["HANGS_PORT"], "rb") as table:
        return table.read(4)


def compile_step(torch):
    """The C++ compiler that Inductor calls does not end."""
    compiler = os.path.join(DIRECTORY, "g++")
    with open(compiler, "w", encoding="ascii") as out:
        out.write('#!/bin/sh\ncase " $* " in *.main.cpp*) echo "$$ asleep" >"$0.new" && mv "$0.new" "%s/at.compiler"; exec sleep %d;; esac\n'
                  'exec /usr/bin/g++ "$@"\n' % (DIRECTORY, FOREVER))
    os.chmod(compiler, 0o755)
    os.environ["CXX"] = compiler
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(DIRECTORY, "inductor")
    announce("settles")
    torch.compile(lambda x: torch.tanh(x) * 2 + x.sum())(torch.rand(64, 64))


def accelerate_gather():
    """The prediction of the last batch is gathered by one rank only; the others wait for everyone."""
    import torch
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(64, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    model, optimizer = accelerator.prepare(model, optimizer)
    for _ in range(GOOD_STEPS):
        accelerator.backward(model(torch.rand(4, 64)).sum())
        optimizer.step()
    announce()
    if is_odd():
        accelerator.gather_for_metrics(torch.ones(4))
    accelerator.wait_for_everyone()


def lightning_trainer(callback, slow=0.0, steps=STEPS):
    import lightning
    import torch

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(64, 8)

        def training_step(self, batch, _):
            time.sleep(slow)
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-4)

    trainer = lightning.Trainer(accelerator="cpu", devices=world(), num_nodes=1, strategy="ddp", max_epochs=1 << 20, callbacks=[callback], logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=DIRECTORY,
                                plugins=[lightning.fabric.plugins.environments.TorchElasticEnvironment()])
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.rand(steps * world(), 64)))


def lightning_save():
    """A callback saves a checkpoint on rank 0 alone; Lightning's save_checkpoint() is meant to be called by all."""
    import lightning

    class SaveOnMain(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == GOOD_STEPS:
                announce()
                if is_odd():
                    trainer.save_checkpoint(os.path.join(DIRECTORY, "last.ckpt"))

    lightning_trainer(SaveOnMain())


def lightning_steps():
    """A healthy job, in which a step takes half a second."""
    import lightning

    class Announce(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == GOOD_STEPS:
                announce("moves")

    lightning_trainer(Announce(), 0.5, 1 << 16)


HELD_UP = {"filelock": wait_for_filelock, "fsspec": read_by_fsspec, "compile": compile_step}
JOBS = {"accelerate-gather": accelerate_gather, "lightning-save": lightning_save, "lightning-steps": lightning_steps}


def main():
    end_with_parent()
    case = sys.argv[1]
    if case in HELD_UP:
        steps_around(HELD_UP[case])
    else:
        JOBS[case]()


if __name__ == "__main__":
    main()
