"""Servers as vLLM and SGLang start them, without a model: processes with these servers' titles and with functions of the same names in files
of the same names, which do nothing but wait and hand on. This program's own process is the front end.

    serving.py CASE

vllm-...: ranks 0 to n - 2 are the workers, rank n - 1 is the engine.
sglang-...: ranks 0 to n - 2 are the schedulers, rank n - 1 is the detokenizer; gloo sends the requests on.
"""
import mmap
import os
import queue
import sys
import time
import types

import setproctitle

from job import FOREVER, SILENT_FIFO, announce, end_with_parent, odd_ranks

GOOD_STEPS = 3
PACKAGES = "/opt/serving/lib/python3.11/site-packages/"


def module(path, source, **names):
    """The functions of `source`, as if they were of that file of an installed package."""
    made = types.SimpleNamespace()
    space = dict(names, time=time, queue=queue)
    exec(compile(source, PACKAGES + path, "exec"), space)      # pylint: disable=exec-used
    for name, value in space.items():
        setattr(made, name, value)
    return made


SHM_BROADCAST = module("vllm/distributed/device_communicators/shm_broadcast.py", '''
import contextlib

class MessageQueue:
    def __init__(self, memory, place):
        self.memory, self.place, self.read = memory, place, 0

    @contextlib.contextmanager
    def acquire_read(self):
        while self.memory[self.place] == self.read:
            time.sleep(0.05)
        self.read += 1
        yield self.read

    def dequeue(self):
        with self.acquire_read() as message:
            return message

    def enqueue(self):
        self.memory[self.place] += 1
''')

EXECUTOR = module("vllm/v1/executor/multiproc_executor.py", '''
def collective_rpc(requests, answers):
    def get_response(answer):
        return answer.dequeue()

    requests.enqueue()
    return [get_response(answer) for answer in answers]

def worker_busy_loop(requests, answers, execute_model):
    while True:
        execute_model(requests.dequeue())
        answers.enqueue()
''')

ENGINE = module("vllm/v1/engine/core.py", '''
def _process_input_queue(requests):
    return requests.get()

def run_busy_loop(requests, step):
    while True:
        step(_process_input_queue(requests))
''')

SCHEDULER = module("sglang/srt/managers/scheduler.py", '''
def recv_requests(number, broadcast):
    if number == 0:
        time.sleep(0.01)
    broadcast()

def run_batch(execute):
    execute()

def event_loop_normal(number, broadcast, execute):
    for step in range(1 << 40):
        recv_requests(number, broadcast)
        if execute(step):
            run_batch(lambda: execute(step, True))
''')

DETOKENIZER = module("sglang/srt/managers/detokenizer_manager.py", '''
def event_loop(tokens):
    while True:
        tokens.get()
''')


def compute_logits():
    time.sleep(FOREVER)


def read_adapter():
    with open(SILENT_FIFO, "rb") as stream:
        return stream.read(1)


def start(title, function, *arguments):
    if os.fork() == 0:
        end_with_parent()
        setproctitle.setproctitle(title)
        try:
            function(*arguments)
        finally:
            os._exit(1)


def vllm_worker(number, memory, case):
    def execute_model(step):
        if step > GOOD_STEPS and case == "vllm-worker-sleeps" and number in odd_ranks():
            announce(name=number)
            compute_logits()
        if step > GOOD_STEPS and case == "vllm-worker-reads" and number in odd_ranks():
            announce(name=number)
            read_adapter()
        if step == GOOD_STEPS and not (case in ("vllm-worker-sleeps", "vllm-worker-reads") and number in odd_ranks()):
            announce("waits", name=number)

    EXECUTOR.worker_busy_loop(SHM_BROADCAST.MessageQueue(memory, 0), SHM_BROADCAST.MessageQueue(memory, number + 1), execute_model)


def vllm_engine(workers, case):
    memory, requests = mmap.mmap(-1, 4096), queue.Queue()
    for number in range(workers):
        start("VLLM::Worker_TP%d" % number, vllm_worker, number, memory, case)
    broadcast, answers = SHM_BROADCAST.MessageQueue(memory, 0), [SHM_BROADCAST.MessageQueue(memory, number + 1) for number in range(workers)]
    for number in range(GOOD_STEPS + (1 if case != "vllm-idle" else 0)):
        requests.put(number)

    def step(number):
        if number == GOOD_STEPS and case == "vllm-engine-reads":
            announce(name=workers)
            read_adapter()
        if number == GOOD_STEPS:
            announce("waits", name=workers)
        EXECUTOR.collective_rpc(broadcast, answers)
        if number == GOOD_STEPS - 1 and case == "vllm-idle":
            announce("waits", name=workers)

    ENGINE.run_busy_loop(requests, step)


def sglang_scheduler(number, schedulers, case):
    import datetime
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + os.environ["MASTER_PORT"], rank=number, world_size=schedulers,
                            timeout=datetime.timedelta(hours=8))
    requests = torch.zeros(8)

    def execute(step, really=False):
        stuck = case == "sglang-scheduler-sleeps" and step == GOOD_STEPS
        if not really:
            if step == GOOD_STEPS and case == "sglang-idle":
                announce("moves", name=number)
            elif stuck and number not in odd_ranks():
                announce("waits", name=number)
            return stuck
        if number in odd_ranks():
            announce(name=number)
            compute_logits()
        dist.all_reduce(requests)
        return None

    SCHEDULER.event_loop_normal(number, lambda: dist.broadcast(requests, 0), execute)


def detokenizer(number):
    announce(name=number)
    DETOKENIZER.event_loop(queue.Queue())


def main():
    end_with_parent()
    case, workers = sys.argv[1], int(os.environ["HANGS_RANKS"]) - 1
    if case.startswith("vllm"):
        start("VLLM::EngineCore", vllm_engine, workers, case)
    else:
        for number in range(workers):
            start("sglang::scheduler_TP%d" % number, sglang_scheduler, number, workers, case)
        start("sglang::detokenizer", detokenizer, workers)
    while True:
        os.wait()


if __name__ == "__main__":
    main()
