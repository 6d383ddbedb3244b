# A program that knows its own stacks: for every thread it prints what sys._current_frames() says of it, and the loop counters among each
# frame's variables, one JSON object per line, then stops itself (SIGSTOP) at the very line that it reported. Runs on CPython 3.6 and later.
# Usage: truth.py CASE
import functools
import json
import os
import sys
import tempfile
import threading

CASE = sys.argv[1] if len(sys.argv) > 1 else "plain"
STOP = 19  # SIGSTOP
workers = []


def clean(text):
    return "".join("\ufffd" if "\ud800" <= c < "\ue000" else c for c in text)


COUNT = set("step iter iteration epoch batch micro microbatch idx index i j k n it t round count counter cnt tick chunk cur current phase".split())
POSITIONS = set("number sample example item task file shard page block part row record document sequence image frame episode trial game done offset pos line token "
                "position processed".split())
ATTEMPTS = set("try tries attempt attempts retry retries poll polls".split())
DO_NOT = set("num max total size per every len world rank dim bytes seed port pid fd".split())
LIBRARY = os.path.dirname(os.__file__)


def counters(frame):
    """None if the counters are not reported here."""
    code = frame.f_code
    if code.co_filename.startswith("<frozen ") or code.co_filename.startswith(LIBRARY):
        return {}
    if code.co_flags & 1:    # CO_OPTIMIZED: a function
        names, values = code.co_varnames + code.co_cellvars + code.co_freevars, frame.f_locals
    elif code.co_name == "<module>":
        names, values = code.co_names, frame.f_globals if frame.f_locals is frame.f_globals else {}
    else:
        return None
    found = {}
    for name in names:
        words = name.lower().split("_")
        counts = COUNT.intersection(words) or (POSITIONS.intersection(words) and not ATTEMPTS.intersection(words))
        if counts and not DO_NOT.intersection(words) and type(values.get(name)) is int and abs(values[name]) < 2 ** 63:
            found[name] = values[name]
    return found


def walk(frame):
    stack, looked_at = [], 0
    while frame:
        code = frame.f_code
        qualname = getattr(code, "co_qualname", None)
        numbers = counters(frame)
        if not (code.co_filename.startswith("<frozen ") or code.co_filename.startswith(LIBRARY)):
            looked_at += 1
        stack.append([clean(code.co_name), clean(code.co_filename), frame.f_lineno, qualname and clean(qualname), numbers if looked_at <= 64 else {}])
        frame = frame.f_back
    return stack


def emit():
    """Prints the stacks, the caller's own without the frame of emit. Returns a false value."""
    lines = []
    for ident, frame in sys._current_frames().items():
        if ident == threading.get_ident():
            frame = sys._getframe(1)
        lines.append(json.dumps({"ident": ident, "frames": walk(frame)}))
    os.write(1, ("\n".join(lines) + "\n").encode())


def hold(*unused):
    emit() or os.kill(os.getpid(), STOP)
    return 0


def worker(body, *args):
    """Starts a thread that runs `body`, which finally reports and waits on one line."""
    ready, never = threading.Lock(), threading.Lock()
    ready.acquire()
    never.acquire()
    thread = threading.Thread(target=body, args=(ready, never) + args)
    thread.daemon = True
    thread.start()
    ready.acquire()
    workers.append((ready, never))


def wait(ready, never):
    (ready.release(), never.acquire())


def deep_wait(ready, never, depth):
    if depth:
        deep_wait(ready, never, depth - 1)
    else:
        (ready.release(), never.acquire())


def plain():
    def inner():
        hold()

    def outer():
        return inner()

    outer()


def generators():
    def leaf():
        yield 1
        hold()
        yield 2

    def middle():
        yield from leaf()

    def outer():
        for x in middle():
            yield x

    sum(x for x in outer())


def callbacks():
    class Key(object):
        def __init__(self, value):
            self.value = value

        def __lt__(self, other):
            list(map(lambda v: hold() if v == 2 else v, [1, 2]))
            return self.value < other.value

    functools.reduce(lambda a, b: sorted([2, 1], key=lambda v: sorted([Key(2), Key(1)])), [1, 2, 3])


def class_body():
    class Outer(object):
        x = 1

        class Inner(object):
            y = hold()


def importing():
    directory = tempfile.mkdtemp()
    try:
        with open(os.path.join(directory, "truth_imported.py"), "w") as f:
            f.write("import __main__\nimport os\n\n__main__.hold(); import shutil\n")
        sys.path.insert(0, directory)
        sys.dont_write_bytecode = True
        import truth_imported
    finally:
        for name in os.listdir(directory):
            os.unlink(os.path.join(directory, name))
        os.rmdir(directory)


def coroutines():
    import asyncio

    class Context(object):
        async def __aenter__(self):
            await self.step()

        async def __aexit__(self, *unused):
            pass

        async def step(self):
            async for value in self.values():
                hold(value)

        async def values(self):
            await asyncio.sleep(0)
            yield 1

    async def main():
        async with Context():
            pass

    loop = asyncio.new_event_loop()
    loop.run_until_complete(asyncio.wait_for(main(), 600))


def threads():
    for _ in range(3):
        worker(wait)
    worker(deep_wait, 40)
    worker(lambda ready, never: list(map(lambda _: (ready.release(), never.acquire()), [1])))
    hold()


def unicode_names():
    # The names have characters of 1, 2, 3 and 4 bytes in UTF-8: each kind of str that CPython has.
    space = {"hold": hold}
    for name in (u"f\u00fc\u00f1k", u"\u65e5\u672c", u"f\u00fc\u00f1k_\u65e5\u672c", u"\U00010400x"):
        source = u"def {0}(then):\n    then()\n".format(name)
        exec(compile(source, u"/tmp/{0}.py".format(name), "exec"), space)
    space[u"f\u00fc\u00f1k"](lambda: space[u"\u65e5\u672c"](lambda: space[u"f\u00fc\u00f1k_\u65e5\u672c"](lambda: space[u"\U00010400x"](hold))))


def recursion(depth=900):
    if depth == 0:
        return hold()
    return recursion(depth - 1)


def odd_file_names():
    for name in ("<weird\x1b[31m\nname>", ""):
        code = compile("\n\ndef f(then):\n    then()\n", name, "exec")
        space = {}
        exec(code, space)
        previous = space["f"]
        f, g = previous, (f if name == "" else None)
    space = {"g": g, "hold": hold, "f": f}
    surrogates = os.fsdecode(b"/tmp/\xff\xfe.py")
    exec(compile("x = 1\nf(lambda: g(hold))", surrogates, "exec"), space)


def exceptions():
    class Manager(object):
        def __enter__(self):
            return self

        def __exit__(self, *unused):
            hold(
                1,
                2,
            )

    def fail():
        raise ValueError(
            "x"
        )

    try:
        try:
            fail()
        except ValueError as error:
            with Manager():
                x = [
                    error,
                    1,
                ]
                fail()
        finally:
            pass
    except ValueError:
        pass


def hooks():
    class Hooked(object):
        @property
        def value(self):
            return getattr(self, "missing")

        def __getattr__(self, name):
            hold()

    Hooked().value


def profiling():
    def profiler(frame, event, arg):
        if event == "c_call" and frame.f_code.co_name == "profiled":
            sys.setprofile(None)
            hold()

    def profiled():
        return len("x")

    sys.setprofile(profiler)
    profiled()


def signals():
    import signal

    signal.signal(signal.SIGUSR1, lambda number, frame: hold())

    def victim():
        os.kill(os.getpid(), signal.SIGUSR1)
        return [i for i in range(10)]

    victim()


def no_lines():
    def f():
        hold()

    f.__code__ = f.__code__.replace(co_linetable=b"")
    f()


def long_lines():
    # Distances that one entry of a line table cannot hold, forwards and backwards.
    source = "def f(then, x=1):\n" + "\n" * 700 + "    y = [x, x, x]\n" + "    x += 1\n" * 300 + "\n" * 40000
    source += "    z = (\n" + "\n" * 300 + "        then(),\n        x)\n"
    space = {}
    exec(compile(source, "/tmp/long.py", "exec"), space)
    space["f"](hold)


def loops():
    for i in range(3):
        if i == 1:
            while True:
                for j in [
                    hold(),
                    2,
                ]:
                    break
                break


def counted():
    """Counters of every kind and size, and variables that are no counters."""

    def generator(limit):
        for step in range(limit):
            batch_idx = -step
            yield batch_idx

    def unset(flag, n):
        count_of_none = None
        if flag:
            later_step = 1
        gone_step = 5
        del gone_step
        deep = [hold() for j in range(3) if j == 2]
        return later_step, deep, count_of_none

    def sizes():
        i, j, k, n, t = 0, 1, -1, 2 ** 30 - 1, 2 ** 30
        it, idx, index = -(2 ** 30), 2 ** 60 - 1, 2 ** 60
        step, epoch, cur = 2 ** 63 - 1, -(2 ** 63) + 1, -(2 ** 62)
        too_large_n, too_small_n = 2 ** 63, -(2 ** 63)
        batch, phase, micro, chunk = True, "x", 1.0, Number(5)
        num_steps, batch_size, rank_idx, stepper = 1, 2, 3, 4
        unset(False, 300)

    class Number(int):
        pass

    def shared(iteration):
        global_step, tick = 70000, 0

        def inner():
            nonlocal tick
            tick += 257
            for i, cur in enumerate(generator(10)):
                if i == 6:
                    sizes()
            return global_step

        inner()

    for epoch in range(40, 50):
        if epoch == 42:
            shared(epoch)


def interpreter():
    try:
        import _interpreters as module
    except ImportError:
        try:
            import _xxsubinterpreters as module
        except ImportError:
            os.write(1, b"skip: no subinterpreters\n")
            return
    run = getattr(module, "run_string")
    source = """
import json, os, sys, threading
def walk(frame):
    stack = []
    while frame:
        code = frame.f_code
        stack.append([code.co_name, code.co_filename, frame.f_lineno, getattr(code, "co_qualname", None), None])
        frame = frame.f_back
    return stack
def report():
    line = json.dumps({"ident": threading.get_ident(), "frames": walk(sys._getframe(1))})
    os.write(1, (line + "\\n").encode())
def inner():
    report() or os.kill(os.getpid(), 19)
def outer():
    sorted([1], key=lambda _: inner())
outer()
"""
    interpreter_id = module.create()
    emit() or run(interpreter_id, source)


def gil_holder():
    import ctypes

    ready = threading.Lock()
    ready.acquire()

    def spin():
        ready.release()
        while True:
            pass

    thread = threading.Thread(target=spin)
    thread.daemon = True
    thread.start()
    ready.acquire()
    emit() or ctypes.PyDLL(None).kill(os.getpid(), STOP)


def busy():
    """Never at rest, in three threads: its stacks must be plausible at whatever instruction it is stopped. The test has the possible
    callers."""

    class Thing(object):
        def __init__(self):
            leaf(1)

    def leaf(n):
        return n + 1

    def gen(n):
        for i in range(n):
            yield leaf(i)

    def rec(n):
        return rec(n - 1) if n else leaf(n)

    def fail():
        raise ValueError

    def key(v):
        return sum(gen(3)) + rec(5)

    def work():
        while True:
            sorted([3, 1, 2], key=key)
            Thing()
            try:
                fail()
            except ValueError:
                leaf(2)

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.daemon = True
        thread.start()
    os.kill(os.getpid(), STOP)
    work()


def module(name, **names):
    import types
    made = types.ModuleType(name)
    made.__dict__.update(names)
    sys.modules[name] = made


class Named(object):
    def __init__(self, **names):
        self.__dict__.update(names)


kept = []  # what only addresses lead to


class Group(object):
    """As pybind11's instances: the pointer to the C++ object is right behind the head."""
    __slots__ = ("cxx",)

    def __init__(self, rank, size, description):
        import struct
        text = description.encode() + b"\0" + b" " * 16
        where = id(text) + bytes.__basicsize__ - 1
        self.cxx = struct.pack("=iiQQQQQ", rank, size, 1, where, len(description), len(text), 0) + bytes(64)
        kept.append(text)


def frameworks():
    """Modules as jax, vLLM and torch.distributed have them."""
    state = Named(process_id=5, num_processes=8, coordinator_address="localhost:1234")
    world, subgroup = Named(), Named()
    module("jax._src.distributed", global_state=state, other=3)
    module("vllm.distributed.parallel_state", _WORLD=None)
    module("torch.distributed.distributed_c10d", _pg_names={world: "0", subgroup: "1"}, _pg_group_ranks={world: {0: 0, 1: 1}, subgroup: {1: 0}})
    os.kill(os.getpid(), STOP)


def groups_of_axes():
    """Rank 3 of 4 of torch.distributed, in groups of two, one of which has no description, and two meshes' "pp"."""
    world, dp, tp, pair = Group(3, 4, "default_pg"), Group(1, 2, "mesh_dp"), Group(1, 2, "mesh_tp"), Group(0, 2, "undefined")
    first, second = Group(0, 2, "mesh_pp"), Group(1, 2, "mesh_pp")
    ranks = {world: {0: 0, 1: 1, 2: 2, 3: 3}, dp: {1: 0, 3: 1}, tp: {2: 0, 3: 1}, pair: {3: 0, 0: 1}, first: {3: 0, 1: 1}, second: {1: 0, 3: 1}}
    return {"_pg_names": {group: str(number) for number, group in enumerate(ranks)}, "_pg_group_ranks": ranks}, pair


def mesh():
    names, _ = groups_of_axes()
    module("torch.distributed.distributed_c10d", **names)
    module("deepspeed.utils.groups", mpu=None, _TENSOR_MODEL_PARALLEL_GROUP=None)
    os.kill(os.getpid(), STOP)


def parallel_state():
    names, pair = groups_of_axes()
    module("torch.distributed.distributed_c10d", **names)
    module("vllm.distributed.parallel_state", _TP=Named(device_group=pair), _PP=None, _EP=Named())
    os.kill(os.getpid(), STOP)


CASES = {
    f.__name__: f
    for f in (
        plain, generators, callbacks, class_body, importing, coroutines, threads, unicode_names, recursion, odd_file_names, exceptions,
        hooks, profiling, signals, no_lines, long_lines, loops, counted, interpreter, gil_holder, busy, frameworks, mesh, parallel_state,
    )
}

# A loop of the module itself, and what else its globals hold.
round_of_module, batch_of_module, no_step_of_module = 0, True, None
for round_of_module in range(-5, 1000000007):
    if round_of_module == 3:
        break

if __name__ == "__main__":
    if CASE == "list":
        print("\n".join(CASES))
    elif CASE == "no_lines" and sys.version_info < (3, 10):
        os.write(1, b"skip: no way to make code without lines\n")
    else:
        sys.setrecursionlimit(5000)
        CASES[CASE]()
