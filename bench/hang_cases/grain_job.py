"""Grain's loaders in a job over gloo. The others wait in a torch collective for the batch of the odd rank.

    grain_job.py CASE
"""
import sys
import time

from job import FOREVER, SILENT_FIFO, announce, connect, connect_to_silent_server, end_with_parent, is_odd, rank, world

GOOD_STEPS = 3
RECORDS, BATCH = 4000, 2
LATE_RECORD = 40      # beyond what is read ahead for the good steps


class Records:
    """A data source of Grain. The odd rank comes to an element that its storage does not deliver."""

    def __init__(self, trouble):
        self.trouble = trouble

    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        if index >= LATE_RECORD and is_odd():
            self.trouble(index)
        return index


def read_in_worker(index):
    if index == LATE_RECORD:      # once, as two threads read
        announce("waits", name="worker")
    with open(SILENT_FIFO, "rb") as stream:
        return stream.read(1)


def read_remote(_):
    return connect_to_silent_server().recv(4096)


def decode(_):
    time.sleep(FOREVER)


def decode_slowly(_):
    time.sleep(0.05)


def train(batches, how="waits"):
    torch, dist = connect()
    for number, _ in enumerate(batches):
        if number == GOOD_STEPS:
            announce(how)
        dist.all_reduce(torch.ones(64))
    return torch, dist


def loader(trouble):
    import grain
    from absl import flags
    flags.FLAGS.mark_as_parsed()      # Grain's workers read them
    sampler = grain.samplers.IndexSampler(RECORDS, shard_options=grain.sharding.NoSharding(), shuffle=False, num_epochs=None, seed=0)
    return grain.DataLoader(data_source=Records(trouble), sampler=sampler, operations=[grain.transforms.Batch(BATCH)], worker_count=1, worker_buffer_size=1,
                            read_options=grain.ReadOptions(num_threads=2, prefetch_buffer_size=4))


def worker():
    """A thread of the loader's worker process reads a file."""
    train(loader(read_in_worker))


def threads():
    """The threads that read ahead wait for a server."""
    import grain
    dataset = grain.MapDataset.source(Records(read_remote)).batch(BATCH)
    train(dataset.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)))


def thread():
    """One thread prepares the batches."""
    import grain
    dataset = grain.MapDataset.source(Records(decode)).to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)).batch(BATCH)
    train(grain.experimental.ThreadPrefetchIterDataset(dataset, prefetch_buffer_size=2))


def shards():
    """The elements are dealt out to the ranks, and the odd rank has a batch less: it is at the barrier behind the loop."""
    import grain
    elements = BATCH * world() * (GOOD_STEPS + 1) - BATCH
    dataset = grain.MapDataset.range(elements).batch(BATCH)[rank()::world()]
    torch, dist = connect()
    for number, _ in enumerate(dataset.to_iter_dataset()):
        if number == GOOD_STEPS:
            announce()
        dist.all_reduce(torch.ones(64))
    announce()
    dist.barrier()


def steps():
    """All is well, and the worker of the odd rank is slow."""
    train(loader(decode_slowly), "moves")


CASES = {"worker": worker, "threads": threads, "thread": thread, "shards": shards, "steps": steps}


def main():
    end_with_parent()
    CASES[sys.argv[1]]()


if __name__ == "__main__":
    main()
