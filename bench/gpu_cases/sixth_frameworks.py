"""One rank is held up in an operator of a compiled model, a checkpoint, a hook that swaps, a loader for all ranks, a compiler, or while the
others wait in a library's own communicator.

    sixth_frameworks.py CASE
"""
import ctypes
import datetime
import os
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from gpu_rank import FOREVER, GOOD_STEPS, announce, connect, device_index, gloo_group, is_odd, rank, run, world
from field_groups import gradient_of
from inside import ddp, train
from job import SILENT_FIFO, connect_to_silent_server
from training import model_of


def custom_op():
    """A model that is compiled calls an operator of the job, written in Python, which looks features up. What it asks is a server that does not
    answer the odd rank."""
    torch, _ = connect()
    state = {"number": 0}

    @torch.library.custom_op("sixth::look_up", mutates_args=())
    def look_up(keys: torch.Tensor) -> torch.Tensor:
        if is_odd() and state["number"] == GOOD_STEPS:
            connect_to_silent_server().recv(1 << 15)
        return keys * 0.5

    look_up.register_fake(torch.empty_like)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = model_of(torch)

        def forward(self, keys):
            return self.layers(torch.relu(look_up(keys)))

    model = torch.nn.parallel.DistributedDataParallel(torch.compile(Model()))
    train(torch, model, lambda number: state.update(number=number))


class Batches:
    """Batches that a thread prefetches, and whose state is saved with the model: the thread pauses meanwhile."""

    def __init__(self, torch):
        self.torch, self.ready, self.keeps_ready = torch, queue.Queue(2), False
        self.wants_pause, self.has_paused, self.number = threading.Event(), threading.Event(), 0
        threading.Thread(target=self.prefetch, name="prefetch", daemon=True).start()

    def prefetch(self):
        while True:
            if self.wants_pause.is_set():
                self.has_paused.set()
                time.sleep(0.001)
            else:
                self.ready.put(self.torch.full((32, 256), float(self.number)))
                self.number += 1

    def state_dict(self):
        self.has_paused.clear()
        self.wants_pause.set()
        while not self.keeps_ready and not self.has_paused.is_set():
            try:
                self.ready.get(timeout=0.01)
            except queue.Empty:
                pass
        self.has_paused.wait()
        self.wants_pause.clear()
        return {"number": self.number}

    def load_state_dict(self, state):
        self.number = state["number"]


def stateful_loader():
    """torch.distributed.checkpoint saves the state of the batches, too, for which their thread has to pause. The odd rank would keep the batches that
    are ready, and takes none: the thread waits for a place in the queue, and does not come to pause."""
    torch, _ = connect()
    import torch.distributed.checkpoint as dcp
    batches, model, weights = Batches(torch), ddp(torch), torch.ones(1 << 16, device="cuda")

    def save(number):
        batches.keeps_ready = is_odd() and number == GOOD_STEPS
        while not batches.ready.full():
            time.sleep(0.01)
        time.sleep(0.1)
        dcp.save({"batches": batches, "of rank %d" % rank(): weights}, checkpoint_id=os.path.join(os.environ["HANGS_DIRECTORY"], "step-%d" % number))

    for number in range(FOREVER):
        batch = batches.ready.get()
        if number == GOOD_STEPS:
            announce("settles")
        if number in (1, GOOD_STEPS):
            save(number)
        model(batch.cuda()).square().mean().backward()
        torch.cuda.synchronize()


def swap_in():
    """The weights of a layer are in a file. A thread reads them ahead, and a hook waits for that before the layer is computed. The odd rank's file is
    on a disk that does not answer."""
    torch, _ = connect()
    threads, path = ThreadPoolExecutor(1, thread_name_prefix="swap"), os.path.join(os.environ["HANGS_DIRECTORY"], "layer.%d" % rank())
    with open(path, "wb") as out:
        out.write(bytes(4 * 256 * 256))

    def read_weights(name):
        with open(name, "rb", buffering=0) as stream:
            return stream.read(4 * 256 * 256)

    swapped, state = torch.nn.Linear(256, 256, bias=False).cuda(), {}

    def read_ahead(number):
        state["read"] = threads.submit(read_weights, SILENT_FIFO if is_odd() and number == GOOD_STEPS else path)

    def bring_in(module, inputs):
        weights = torch.frombuffer(bytearray(state["read"].result()), dtype=torch.float32).reshape(256, 256)
        module.weight.data.copy_(weights)

    swapped.register_forward_pre_hook(bring_in)
    train(torch, ddp(torch, swapped), read_ahead)


def dispatched_batches():
    """Rank 0 alone reads the data, and hands each batch to all, as Accelerate's DataLoaderDispatcher does. The server of its data does not answer."""
    class Stream:
        def __len__(self):
            return FOREVER

        def __getitem__(self, number):
            if number == GOOD_STEPS:
                connect_to_silent_server().recv(1 << 15)
            return torch.full((32, 256), float(number))

    torch, dist = connect()
    dispatching, model = gloo_group(dist), ddp(torch)
    batches = iter(torch.utils.data.DataLoader(Stream(), batch_size=None)) if rank() == 0 else None

    def next_batch():
        handed = [next(batches) if rank() == 0 else None]
        dist.broadcast_object_list(handed, src=0, group=dispatching)
        return handed[0]

    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        model(next_batch().cuda()).square().mean().backward()
        torch.cuda.synchronize()


def compiler_collectives():
    """The compiler of each rank agrees with those of the others on which sizes may change (TORCH_COMPILER_COLLECTIVES). A batch of the odd rank is
    smaller than all before, and it compiles, alone."""
    torch, _ = connect()
    normalize = torch.compile(lambda images: torch.tanh(images - images.mean(-1, keepdim=True)))

    def normalize_batch(number):
        normalize(torch.ones(24 if is_odd() and number == GOOD_STEPS else 32, 256, device="cuda"))

    train(torch, ddp(torch), normalize_batch)


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


class Communicator:
    """NCCL, called without torch.distributed, as vLLM does."""

    FLOAT32, SUM = 7, 0

    def __init__(self, store):
        with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
            self.library = ctypes.CDLL(next(line.split()[-1] for line in maps if "libnccl.so" in line))
        if rank() == 0:
            identifier = UniqueId()
            self.check(self.library.ncclGetUniqueId(ctypes.byref(identifier)))
            store.set("communicator", bytes(identifier).hex())
        identifier, self.handle = UniqueId.from_buffer_copy(bytes.fromhex(store.get("communicator").decode())), ctypes.c_void_p()
        self.check(self.library.ncclCommInitRank(ctypes.byref(self.handle), world(), identifier, rank()))

    @staticmethod
    def check(result):
        if result != 0:
            raise RuntimeError("NCCL's result is %d" % result)

    def all_reduce(self, torch, tensor):
        data = ctypes.c_void_p(tensor.data_ptr())
        self.check(self.library.ncclAllReduce(data, data, ctypes.c_size_t(tensor.numel()), self.FLOAT32, self.SUM, self.handle,
                                              ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)))


def nucleus(probabilities, mass):
    """The likeliest tokens that have so much of the probability together."""
    order = sorted(range(len(probabilities)), key=lambda token: -probabilities[token])
    chosen, seen = [], 0.0
    while seen < mass:
        token = order[len(chosen) % len(order)]
        if token not in chosen:
            chosen.append(token)
            seen += probabilities[token]
    return chosen


def own_communicator():
    """Tensor parallel by a communicator of the job's own. The odd rank samples from all tokens: ten times a tenth is a little less than 1, and it
    looks for the rest."""
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(device_index())
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=8))
    communicator, hidden = Communicator(dist.distributed_c10d._get_default_store()), gradient_of(torch)
    for number in range(FOREVER):
        if number == GOOD_STEPS:
            announce("settles")
        nucleus([0.1] * 10, 1.0 if is_odd() and number == GOOD_STEPS else 0.95)
        communicator.all_reduce(torch, hidden)
        hidden.div_(world()).sum().item()


CASES = {"custom-op": custom_op, "stateful-loader": stateful_loader, "swap-in": swap_in, "dispatched-batches": dispatched_batches,
         "compiler-collectives": compiler_collectives, "own-communicator": own_communicator}

if __name__ == "__main__":
    run(CASES)
