"""Jobs that are well, in which a child is stopped most of the time, a thread waits for a command or for an answer that does not come, the store is asked with
short timeouts, processes are started anew, signals interrupt a rank, kernels are launched one by one, or a server waits for messages.

    eighteenth_well.py CASE
"""
import code
import datetime
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time

from gpu_rank import TIMEOUT, connect, rank, run
from healthy import steps
from inside import ddp
from job import connect_to_silent_server
from tenth import serve_in_background
from tenth_well import train_once
from training import model_of


def evaluate_forever(scores):
    """A process of the rank's own, which evaluates whenever it may run."""
    number = 0
    while True:
        number += 1
        scores.value = sum(place * place % 7 for place in range(1 << 14))


def paused_evaluator():
    """The second rank has a process that evaluates on the processor, and lets it run only while it has nothing else to do: for half a second in each step; it
    stops it by a signal as its own step begins, for which the first rank waits. The process is stopped most of the time, and the ranks train."""
    context = multiprocessing.get_context("fork")
    scores = context.Value("L", 0)
    evaluator = context.Process(target=evaluate_forever, args=(scores,), name="evaluator", daemon=True)
    if rank() == 1:
        evaluator.start()
        os.kill(evaluator.pid, signal.SIGSTOP)
    torch, _ = connect()
    model = ddp(torch)

    def pack(end):
        number = 1
        while time.monotonic() < end:
            number = (1103515245 * number + 12345) % (1 << 31)
        return number

    def train_step(_):
        if rank() == 1:
            os.kill(evaluator.pid, signal.SIGCONT)
            time.sleep(0.5)
            os.kill(evaluator.pid, signal.SIGSTOP)
            pack(time.monotonic() + 0.8)
        train_once(torch, model)

    steps(train_step)


def open_console():
    """A thread of each rank has a console on its standard input, for a person who may want to look at the job: it waits for a command, which nobody types. The
    main threads train; the second one counts words for most of a second in each step."""
    torch, _ = connect()
    model = ddp(torch)
    console = code.InteractiveConsole({"model": model})
    threading.Thread(target=console.interact, kwargs={"banner": "", "exitmsg": ""}, name="console", daemon=True).start()

    def count_words(end):
        words = {}
        while time.monotonic() < end:
            for place in range(1000):
                word = "word-%d" % (place * place % 97)
                words[word] = words.get(word, 0) + 1
        return words

    def train_step(_):
        if rank() == 1:
            count_words(time.monotonic() + 0.8)
        train_once(torch, model)

    steps(train_step)


def unanswered_report():
    """A thread of the second rank reports to a monitor, which took the connection and has never answered; nobody waits for the thread, under a lock that it
    alone takes. Both ranks go on to train, for which the first one waits while the second one sorts its samples."""
    guard = threading.Lock()

    def report():
        with guard:
            monitor = connect_to_silent_server()
            monitor.sendall(b"alive\n")
            monitor.recv(64)

    torch, _ = connect()
    model = ddp(torch)
    if rank() == 1:
        threading.Thread(target=report, name="monitor", daemon=True).start()

    def sort_samples(end):
        samples = list(range(1 << 12))
        while time.monotonic() < end:
            samples.sort(key=lambda sample: sample * 2654435761 % 4093)
        return samples

    def train_step(_):
        if rank() == 1:
            sort_samples(time.monotonic() + 0.9)
        train_once(torch, model)

    steps(train_step)


def short_waits():
    """Rank 0 learns for a second and a half, and then says in the store that a policy is there; the other ranks wait in the store for the next one, with a
    timeout of some tenths of a second, log the exception of that and wait again. When they have it, they play some steps by themselves."""
    torch, dist = connect()
    store, model = dist.distributed_c10d._get_default_store(), model_of(torch)

    def learn(number):
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            train_once(torch, model)
            time.sleep(0.02)
        store.set("policy %d" % number, "there")

    def play(number):
        while True:
            try:
                store.wait(["policy %d" % number], datetime.timedelta(seconds=0.4))
                break
            except dist.DistStoreError as error:
                print("rank %d has no policy yet: %s" % (rank(), str(error)[:60]), flush=True)
        for _ in range(8):
            train_once(torch, model)

    steps(learn if rank() == 0 else play)


def score(number, scores):
    """In an interpreter of its own."""
    time.sleep(0.4)
    scores.put(number % 7)


def spawned_scorers():
    """In each step the second rank has a process score its answers, which is started as a new interpreter, imports what it needs, and computes for a while; the
    rank waits for the score, joins the process, and the first rank waits for the rank."""
    context = multiprocessing.get_context("spawn")
    torch, _ = connect()
    model, scores = ddp(torch), context.SimpleQueue()

    def train_step(number):
        if rank() == 1:
            scorer = context.Process(target=score, args=(number, scores), name="scorer")
            scorer.start()
            scores.get()
            scorer.join()
        train_once(torch, model)

    steps(train_step)


def send_signals(pid):
    """The scheduler of a machine, which is no part of the job: asks a rank to save, every two seconds."""
    while True:
        time.sleep(2)
        try:
            os.kill(pid, signal.SIGUSR1)
        except ProcessLookupError:
            return


def saves_on_signal():
    """A scheduler asks the second rank again and again to save, by a signal. The handler of that writes for a second, part by part, wherever the rank is; the
    first rank waits for it in its step."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "state-of-rank-%d" % rank())

    def save(*_):
        with open(path, "wb") as out:
            for _ in range(10):
                out.write(bytes(1 << 16))
                time.sleep(0.1)

    signal.signal(signal.SIGUSR1, save)
    torch, _ = connect()
    model, saver = ddp(torch), os.getpid()
    if rank() == 1:
        serve_in_background(lambda: send_signals(saver))

    def train_step(_):
        train_once(torch, model)
        time.sleep(0.02)

    steps(train_step)


def blocking_launches():
    """Somebody looks for an error, and so each launch of a kernel waits until that has ended (CUDA_LAUNCH_BLOCKING). The second rank launches eight kernels of
    about a tenth of a second each in a step: its main thread is nearly always in the launch of one, and the first rank in that of a reduction."""
    torch, _ = connect()
    model = ddp(torch)

    def train_step(_):
        if rank() == 1:
            for _ in range(8):
                torch.cuda._sleep(int(1.8e8))
        train_once(torch, model)

    steps(train_step)


def reward_connections():
    """Reinforcement learning. The last rank gives rewards: it waits for answers over a connection of multiprocessing's, and judges each for some tenths of a
    second. The second rank plays for a second, and asks it; the first one waits for the second one in their step. The last one takes no part in that, and is
    idle for a second at a time."""
    path = os.path.join(os.environ["HANGS_DIRECTORY"], "rewards")
    listener = multiprocessing.connection.Listener(path, authkey=b"rewards") if rank() == 2 else None
    torch, dist = connect()
    learners = dist.new_group([0, 1], timeout=TIMEOUT)
    if rank() == 2:
        with listener.accept() as answers:
            judge = model_of(torch)

            def judge_answer(_):
                answers.recv()
                time.sleep(0.3)
                with torch.no_grad():
                    answers.send(judge(torch.randn(32, 256, device="cuda")).mean().item())

            steps(judge_answer)
    model = torch.nn.parallel.DistributedDataParallel(model_of(torch), process_group=learners)
    rewards = multiprocessing.connection.Client(path, authkey=b"rewards") if rank() == 1 else None

    def play(seconds):
        end, number = time.monotonic() + seconds, 1
        while time.monotonic() < end:
            number = (1103515245 * number + 12345) % (1 << 31)
        return number

    def train_step(_):
        if rank() == 1:
            rewards.send(play(1.0))
            rewards.recv()
        train_once(torch, model)

    steps(train_step)


CASES = {"paused-evaluator": paused_evaluator, "open-console": open_console, "unanswered-report": unanswered_report, "short-waits": short_waits,
         "spawned-scorers": spawned_scorers, "saves-on-signal": saves_on_signal, "blocking-launches": blocking_launches,
         "reward-connections": reward_connections}

if __name__ == "__main__":
    run(CASES)
