"""Megatron-core on CPUs, over gloo: tensor, pipeline and data parallel.

    megatron_job.py CASE
"""
import os
import sys
import time

from job import DIRECTORY, FOREVER, FULL_FIFO, SILENT_FIFO, announce, connect, end_with_parent, is_odd, rank, world

GOOD_STEPS = 3
LENGTH, WIDTH, BATCHES = 4, 32, 4


def set_up(tensor, pipeline):
    """Returns torch. Where Megatron takes the GPU for granted, it gets the CPU."""
    torch, _ = connect()
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda: None
    zeros = torch.zeros
    torch.zeros = lambda *sizes, device=None, **others: zeros(*sizes, device="cpu" if device == "cuda" else device, **others)
    from megatron.core import parallel_state
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline)
    return torch


def augment():
    time.sleep(FOREVER)


def read_shard():
    with open(SILENT_FIFO, "rb") as stream:
        return stream.read(1)


def model_of(torch, tensor, pipeline):
    """Two linear layers, split over the tensor parallel group, as in Megatron's MLP."""
    from megatron.core.enums import ModelType
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer import MegatronModule, TransformerConfig
    config = TransformerConfig(num_layers=4, hidden_size=WIDTH, num_attention_heads=4, use_cpu_initialization=True, pipeline_dtype=torch.float32,
                               tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline)

    class Stage(MegatronModule):
        def __init__(self):
            super().__init__(config)
            self.wide = ColumnParallelLinear(WIDTH, 4 * WIDTH, config=config, init_method=torch.nn.init.xavier_normal_, gather_output=False)
            self.narrow = RowParallelLinear(4 * WIDTH, WIDTH, config=config, init_method=torch.nn.init.xavier_normal_, input_is_parallel=True, bias=True,
                                            skip_bias_add=False)
            self.input, self.model_type = None, ModelType.encoder_or_decoder
            self.pre_process, self.share_embeddings_and_output_weights = False, False      # there are no embeddings

        def set_input_tensor(self, tensors):
            self.input = tensors[0]

        def forward(self, batch):
            return self.narrow(torch.relu(self.wide(batch if self.input is None else self.input)[0]))[0]

    return Stage(), config


def train(tensor, pipeline, trouble):
    """Steps of Megatron's schedule; before the fourth the odd ranks call `trouble`."""
    torch = set_up(tensor, pipeline)
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.pipeline_parallel import get_forward_backward_func
    model, config = model_of(torch, tensor, pipeline)
    model = DistributedDataParallel(config, DistributedDataParallelConfig(), model)
    config.finalize_model_grads_func = finalize_model_grads
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    run = get_forward_backward_func()

    def batches():
        while True:
            yield torch.rand(LENGTH, 1, WIDTH)

    def forward(iterator, stage):
        return stage(next(iterator)), lambda output: (output.sum(), {"loss": output.detach().sum()})

    for step in range(1 << 40):
        if step == GOOD_STEPS:
            announce("moves" if trouble is None else "asleep")
            if trouble is not None and is_odd():
                trouble()
        model.zero_grad_buffer()
        run(forward_step_func=forward, data_iterator=batches(), model=[model], num_microbatches=BATCHES, seq_length=LENGTH, micro_batch_size=1)
        optimizer.step()


def tensor_parallel():
    """Its peer in the tensor parallel group waits for it, its replica in the data parallel group, and the other replica for that peer."""
    train(2, 1, augment)


def pipeline():
    train(1, 4, read_shard)


def mismatch():
    """The odd rank gathers the parts of its layer, whose sums the others want."""
    torch = set_up(4, 1)
    from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region, reduce_from_tensor_model_parallel_region
    for _ in range(GOOD_STEPS):
        reduce_from_tensor_model_parallel_region(torch.ones(8))
    announce()
    if is_odd():
        gather_from_tensor_model_parallel_region(torch.ones(8))
    reduce_from_tensor_model_parallel_region(torch.ones(8))


def checkpoint():
    """Rank 0 writes what is common to all, to a disk that takes nothing any more; the others plan what each will write."""
    torch = set_up(2, 1)
    from megatron.core import dist_checkpointing
    directory = os.path.join(DIRECTORY, "checkpoint")
    os.makedirs(directory, exist_ok=True)
    if is_odd():
        os.symlink(FULL_FIFO, os.path.join(directory, "common.pt"))
    state = {"layer": dist_checkpointing.ShardedTensor.from_rank_offsets("layer", torch.ones(64, 64), (0, rank(), world())), "step": GOOD_STEPS}
    announce("waits")
    dist_checkpointing.save(state, directory)


def steps():
    train(2, 2, None)


CASES = {"tensor": tensor_parallel, "pipeline": pipeline, "mismatch": mismatch, "checkpoint": checkpoint, "steps": steps}


def main():
    end_with_parent()
    CASES[sys.argv[1]]()


if __name__ == "__main__":
    main()
