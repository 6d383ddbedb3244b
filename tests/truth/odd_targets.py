"""Targets that cannot be read, or only in part, or are in an odd state: the report has a clear line about each, and none is harmed."""
import json
import os
import select
import shutil
import signal
import stat
import subprocess
import tempfile

import cases
import interpreters
from command_line import native, text_of
from processes import Fixture, Opened, Skip, check, json_report, run_tool, state_of, task_states, tool, wait_until
from truth_native import compare
from truth_python import compare as compare_python
from truth_python import only_rank

NOBODY = 65534


def problems_of(rank):
    return " ".join(problem["message"] + " " + (problem["hint"] or "") for problem in rank["problems"])


MAPS_A_DEVICE = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for number, path in enumerate(sys.argv[1:]):
    file = os.open(path, os.O_RDONLY)
    for protection in (1, 5):
        address = 0x100000 + 0x10000 * (16 * number + protection)      # below the program: the first mapping there is
        if libc.mmap(address, 4096, protection, 0x12, file, 0) != address:      # private, fixed
            print(json.dumps({"skip": "%s cannot be mapped: %s" % (path, os.strerror(ctypes.get_errno()))}), flush=True)
            sys.exit()
    os.close(file)
print(json.dumps({"pid": os.getpid()}), flush=True)
for line in sys.stdin:
    print("alive", flush=True)
"""


def case_maps_a_device(directory):
    """A process has a device mapped: the tool does not open the device, neither in attach nor in the doctor."""
    if os.geteuid() != 0:
        raise Skip("a device's node needs root")
    device = os.path.join(directory, "device")
    os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    with Fixture(["/usr/bin/python3", "-c", MAPS_A_DEVICE, device]) as fixture:
        with open("/proc/%d/maps" % fixture.pid, encoding="utf-8") as maps:
            check(any(line.rstrip().endswith(device) for line in maps), "the kernel does not show the device as mapped")
        watch = Opened(device)
        for command in (["attach", "--format", "json"], ["doctor", "--format", "json"]):
            run_tool(command[0], "--pids", fixture.pid, *command[1:])
            watch.check_never_opened(command[0])
        watch.close()
        rank = only_rank(json_report("attach", "--pids", fixture.pid), fixture.pid)
        check(rank["status"] == "complete", "%s: %r" % (rank["status"], rank["problems"]))
        fixture.check_unharmed()


def case_zombie(directory):
    child = subprocess.Popen(["true"])
    wait_until(lambda: state_of(child.pid) == "Z", "a zombie")
    try:
        report = json_report("attach", "--pids", child.pid, expect=2)
        rank = only_rank(report, child.pid)
        check(rank["status"] == "failed" and "zombie" in problems_of(rank).lower(), "the zombie's rank: %r" % rank)
    finally:
        child.wait()


def case_stopped_stays_stopped(directory):
    with native("threads") as fixture:
        os.kill(fixture.pid, signal.SIGSTOP)
        wait_until(lambda: all(state == "T" for state, _, _ in task_states(fixture.pid).values()), "all threads to be stopped")
        rank = only_rank(json_report("attach", "--pids", fixture.pid), fixture.pid)
        compare(fixture.ready, rank, "stopped")
        check(all(thread["state"] == "T" for thread in rank["threads"]), "states: %r" % [thread["state"] for thread in rank["threads"]])
        wait_until(lambda: state_of(fixture.pid) != "t", "the state after the tool's end")
        check(all(state == "T" for state, _, _ in task_states(fixture.pid).values()), "it does not stay stopped: %r" % task_states(fixture.pid))
        os.kill(fixture.pid, signal.SIGCONT)
        wait_until(lambda: state_of(fixture.pid) == "S", "the fixture to go on")
        fixture.check_unharmed()


TRACER = r"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for tid in sys.argv[1:]:
    if libc.ptrace(0x4206, int(tid), None, None) != 0:     # PTRACE_SEIZE: it goes on running
        sys.exit(os.strerror(ctypes.get_errno()))
print("traces", flush=True)
os.read(0, 1)
"""


def case_traced_by_another(directory):
    with native("threads") as fixture, native("threads") as other:
        check_traced(fixture, other, sorted(task_states(fixture.pid)))


def case_main_thread_traced_by_another(directory):
    with native("threads") as fixture, native("threads") as other:
        check_traced(fixture, other, [fixture.pid])


def check_traced(fixture, other, tids):
    tracer = subprocess.Popen(["/usr/bin/python3", "-c", TRACER] + [str(tid) for tid in tids], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        check(tracer.stdout.readline() == b"traces\n", "the tracer cannot trace")
        # As long as its threads sleep, nothing has to be stopped.
        rank = only_rank(json_report("attach", "--pids", fixture.pid), fixture.pid)
        check(rank["status"] == "complete" and rank["threads_stopped"] == 0, "the rank is %s: %r" % (rank["status"], rank["problems"]))
        compare(fixture.ready, rank, "without a stop")
        report = json_report("attach", "--pids", "%d,%d" % (fixture.pid, other.pid), "--stop", "always", expect=1)
        rank = only_rank(report, fixture.pid)
        problems = problems_of(rank)
        check(rank["status"] != "complete", "the rank is %s" % rank["status"])
        check(str(tracer.pid) in problems and "python3" in problems, "the tracer is not named: %r" % problems)
        compare(other.ready, only_rank(report, other.pid), "the other rank")
        with open("/proc/%d/status" % fixture.pid, encoding="utf-8") as status:
            check("TracerPid:\t%d" % tracer.pid in status.read(), "the other tracer has lost its process")
    finally:
        tracer.stdin.close()
        tracer.wait()
        tracer.stdout.close()
    fixture.check_unharmed()
    other.check_unharmed()


def as_nobody(command):
    if os.geteuid() != 0:
        raise Skip("only root can become somebody else")
    if not shutil.which("setpriv"):
        raise Skip("no setpriv on this machine")
    return ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--inh-caps=-all"] + command


class Reachable:
    """Copies of programs in a directory that every user may enter."""

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="rankstacks-test-")
        os.chmod(self.directory, 0o755)
        return self

    def copy(self, path):
        place = os.path.join(self.directory, os.path.basename(path))
        shutil.copy(path, place)
        os.chmod(place, 0o755)
        return place

    def __exit__(self, *exception):
        shutil.rmtree(self.directory, ignore_errors=True)


def run_as_nobody(program, *arguments):
    done = subprocess.run(as_nobody([program] + [str(argument) for argument in arguments]), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, timeout=60, cwd="/")
    return done.returncode, done.stdout, done.stderr


def case_another_users_process(directory):
    with Reachable() as reachable, native("chain") as fixture:
        status, out, err = run_as_nobody(reachable.copy(tool()), "attach", "--pids", fixture.pid, "--format", "json")
        check(status == 2, "status %d: %r" % (status, err))
        rank = only_rank(json.loads(out), fixture.pid)
        check(rank["status"] == "failed", "the rank: %r" % rank)
        check(any(problem["hint"] for problem in rank["problems"]), "no hint: %r" % rank["problems"])
        check("root" in problems_of(rank), "whose process it is, is not said: %r" % rank["problems"])
        fixture.check_unharmed()


def case_own_process_without_root(directory):
    with Reachable() as reachable:
        program = reachable.copy(os.path.join(os.environ["RANKSTACKS_FIXTURES"], "threads"))
        with Fixture(as_nobody([program]), cwd="/") as fixture:
            status, out, err = run_as_nobody(reachable.copy(tool()), "attach", "--pids", fixture.pid, "--format", "json")
            if status != 0 and b"ptrace_scope" in err:
                raise Skip("this machine lets no ordinary user trace: " + err.decode())
            check(status == 0, "status %d: %r" % (status, err))
            compare(fixture.ready, only_rank(json.loads(out), fixture.pid), "as nobody")
            fixture.check_unharmed()


def case_kernel_thread(directory):
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit())[:50]:
        try:
            with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as stream:
                flags = int(stream.read().rpartition(")")[2].split()[6])
        except OSError:
            continue
        if flags & 0x00200000:        # PF_KTHREAD
            rank = only_rank(json_report("attach", "--pids", pid, expect=2), pid)
            check(rank["status"] == "failed" and "kernel thread" in problems_of(rank), "the rank: %r" % rank)
            return
    raise Skip("no kernel thread is visible here (a container)")


def case_zombie_main_thread(directory):
    with native("zombie_main") as fixture:
        status, out, err = run_tool("attach", "--pids", fixture.pid, "--format", "json")
        check(status in (0, 1), "status %d: %r" % (status, err))
        rank = only_rank(json.loads(out), fixture.pid)
        compare(fixture.ready, rank, "zombie main")
        main_thread = next(thread for thread in rank["threads"] if thread["tid"] == fixture.pid)
        check(main_thread["state"] == "Z" and main_thread["frames"] == [], "the main thread: %r" % main_thread)
        fixture.check_unharmed()


def case_the_number_of_a_rank_whose_main_thread_has_ended(directory):
    """/proc has no environment of the process then, but that of its other threads."""
    with native("zombie_main", env=dict(os.environ, RANK="3", WORLD_SIZE="8", LOCAL_RANK="1")) as fixture:
        status, out, err = run_tool("attach", "--pids", fixture.pid, "--format", "json")
        check(status in (0, 1), "status %d: %r" % (status, err))
        report = json.loads(out)
        found = [(rank["rank"], rank["world_size"], rank["local_rank"]) for rank in report["ranks"]]
        check(found == [(3, 8, 1)], "the rank: %r" % found)
        check("zombie_main" in " ".join(report["ranks"][0]["command"]), "its command: %r" % report["ranks"][0]["command"])


def case_vfork(directory):
    """The parent cannot be stopped (state D): without a stop it is read as any thread that sleeps. With one the tool waits for a bounded
    time, and shows what /proc tells. The parent continues afterwards."""
    with native("vfork") as fixture:
        for stop in ("auto", "always"):
            status, out, err = run_tool("attach", "--pids", fixture.pid, "--stop", stop, "--format", "json")
            check(status in (0, 1, 2), "status %d: %r" % (status, err))
            rank = only_rank(json.loads(out), fixture.pid)
            thread = next(thread for thread in rank["threads"] if thread["tid"] == fixture.pid)
            check(thread["state"] == "D", "state %r" % thread["state"])
            if stop == "auto":
                check(rank["status"] == "complete" and rank["method"] == "without-stop", "the rank is %s: %s, %r" % (rank["status"], rank["method"], rank["problems"]))
                check(thread["stack_end"] == "complete" and any(frame.get("function") == "main" for frame in thread["frames"]), "frames: %r" % thread["frames"])
            else:
                check(rank["status"] == "partial", "the rank is %s: %r" % (rank["status"], rank["problems"]))
                check(str(fixture.pid) in problems_of(rank), "the thread is not named: %r" % rank["problems"])
            fixture.check_unharmed()
        with open("/proc/%d/task/%d/children" % (fixture.pid, fixture.pid), encoding="utf-8") as children:
            child = int(children.read().split()[0])
        os.kill(child, signal.SIGKILL)


def case_changing_threads(directory):
    """Threads begin and end all the time: every sample is complete, and the program continues."""
    program = r"""
import os, threading
def short(n):
    if n:
        threading.Thread(target=short, args=(n - 1,), daemon=True).start()
def run():
    while True:
        thread = threading.Thread(target=short, args=(3,), daemon=True)
        thread.start()
        thread.join()
for _ in range(4):
    threading.Thread(target=run, daemon=True).start()
os.write(1, b'{"ready": true, "runs": true, "pid": %d, "threads": []}\n' % os.getpid())
while os.read(0, 100):
    os.write(1, b"alive\n")
os._exit(0)
"""
    with Fixture(["/usr/bin/python3", "-c", program]) as fixture:
        for _ in range(10):
            status, out, err = run_tool("attach", "--pids", fixture.pid, "--format", "json")
            check(status in (0, 1), "status %d: %r" % (status, err))
            rank = only_rank(json.loads(out), fixture.pid)
            main_thread = next(thread for thread in rank["threads"] if thread["tid"] == fixture.pid)
            check(main_thread["frames"], "the main thread has no frames: %r" % rank["problems"])
            fixture.check_unharmed()


def case_ending_threads(directory):
    """Threads that end while they are being stopped have ended: none is reported without a stack, and nothing is missing."""
    with native("short_lived") as fixture:
        waiting = "(state D)"   # a new thread waits for its stack uninterruptibly, on a busy machine for long: the report says so
        for _ in range(20):
            status, out, err = run_tool("attach", "--pids", fixture.pid, "--format", "json")
            rank = only_rank(json.loads(out), fixture.pid)
            delayed = waiting in problems_of(rank)
            check(status == delayed and all(waiting in problem["message"] for problem in rank["problems"]), "status %d, the rank is %s: %r" % (status, rank["status"], rank["problems"]))
            for thread in rank["threads"]:
                check(thread["name"] and (thread["frames"] or delayed), "thread %d: %r" % (thread["tid"], thread))
        fixture.check_unharmed()


def case_taken_down(directory):
    """Python is being finalised, and hangs as it flushes its output: a daemon thread has no thread state any more. None of it can be read,
    and the report does not call anything missing."""
    program = r"""
import atexit, os, queue, sys, threading, time
os.write(1, b'{"ready": true, "pid": %d, "threads": []}\n' % os.getpid())
threading.Thread(target=lambda: queue.Queue().get(), daemon=True).start()
_, full = os.pipe()
os.set_blocking(full, False)
try:
    while True: os.write(full, bytes(65536))
except BlockingIOError: pass
os.set_blocking(full, True)
sys.stdout = os.fdopen(full, "w")
atexit.register(lambda: sys.stdout.write("x") and None)
time.sleep(0.1)   # until the thread waits
"""
    with Fixture(["/usr/bin/python3", "-c", program], env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}) as fixture:
        def taken_down():
            status, out, _ = run_tool("attach", "--pids", fixture.pid, "--format", "json")
            return status, only_rank(json.loads(out), fixture.pid)

        wait_until(lambda: any(frame["function"] == "Py_FinalizeEx" for thread in taken_down()[1]["threads"] for frame in thread["frames"]), "Python's end")
        status, rank = taken_down()
        check(status == 0 and rank["status"] == "complete" and len(rank["threads"]) == 2, "status %d, %s: %r" % (status, rank["status"], rank["problems"]))
        fixture.check_unharmed(answers=False)
        fixture.process.kill()   # no other way ends it


def case_perf_trampolines(directory):
    """python -X perf calls through code in anonymous memory without frame pointer: sub $8,%rsp; call *%rcx; add $8,%rsp; ret."""
    program = r"""
import os
def inner():
    sorted([1, 2], key=lambda x: len(os.read(0, 1)))
def outer():
    inner()
os.write(1, b'{"ready": true, "pid": %d, "threads": []}\n' % os.getpid())
outer()
"""
    with Fixture([interpreters.find("3.12").path, "-X", "perf", "-c", program]) as fixture:
        try:
            thread, = only_rank(json_report("attach", "--pids", fixture.pid), fixture.pid)["threads"]
            check(thread["stack_end"] == "complete", "it ends with %s: %r" % (thread["stack_end"], thread["frames"]))
            mine = [frame for frame in thread["frames"] if frame["kind"] == "python"]
            check([frame["function"] for frame in mine] == ["<lambda>", "inner", "outer", "<module>"], "Python frames: %r" % mine)
            check(not any("origin" in frame for frame in mine), "a place was not found: %r" % mine)
            through = [frame for frame in thread["frames"] if frame.get("origin") == "return-slot"]
            check(len(through) == 4, "trampolines: %r" % thread["frames"])
        finally:
            os.remove("/tmp/perf-%d.map" % fixture.pid)


def case_vanishing_process(directory):
    """A target that ends while it is being sampled: the other ranks are complete."""
    with native("threads") as steady:
        for delay in range(60):
            victim = native("threads")
            try:
                # As the first of the pids, it is the process through which the files that both have mapped are opened.
                process = subprocess.Popen([tool(), "attach", "--pids", "%d,%d" % (victim.pid, steady.pid), "--format", "json", "--samples", "3" if delay % 6 == 0 else "1"],
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                select.select([], [], [], delay * 0.0002)      # at a different moment each time
                os.kill(victim.pid, signal.SIGKILL)
                out, err = process.communicate(timeout=60)
                check(process.returncode in (0, 1), "status %d: %r" % (process.returncode, err))
                compare(steady.ready, only_rank(json.loads(out), steady.pid), "the steady rank")
            finally:
                victim.end()
            steady.check_unharmed()


def case_other_pid_namespace(directory):
    """Thread ids inside of the namespace differ from those outside; Python's thread states have the inner ones."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        raise Skip("a pid namespace needs root and unshare")
    if subprocess.run(["unshare", "--fork", "--pid", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        raise Skip("this machine refuses new pid namespaces")
    script = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "fixtures", "python", "threads.py")
    process = subprocess.Popen(["unshare", "--fork", "--pid", "/usr/bin/python3", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
    try:
        truth = json.loads(process.stdout.readline())
        with open("/proc/%d/task/%d/children" % (process.pid, process.pid), encoding="utf-8") as children:
            outer = int(children.read().split()[0])
        tids = {}
        for tid in os.listdir("/proc/%d/task" % outer):
            with open("/proc/%d/task/%s/status" % (outer, tid), encoding="utf-8") as status:
                inner = next(line for line in status if line.startswith("NSpid:")).split()[-1]
            tids[int(inner)] = int(tid)
        for thread in truth["threads"]:
            thread["native_id"] = tids[thread["native_id"]]
        compare_python(truth, only_rank(json_report("attach", "--pids", outer), outer), "in a pid namespace")
        process.stdin.write(b"are you there?\n")
        process.stdin.flush()
        check(process.stdout.readline() == b"alive\n", "it does not answer")
    finally:
        process.stdin.close()
        process.wait(timeout=20)
        process.stdout.close()


ENVIRONMENTS = [
    ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8, 1)),
    ({"SLURM_PROCID": "5", "SLURM_NTASKS": "16", "SLURM_LOCALID": "2"}, (5, 16, 2)),
    ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, (2, 4, 0)),
    ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2, None)),
    ({"MV2_COMM_WORLD_RANK": "7", "MV2_COMM_WORLD_SIZE": "8", "MV2_COMM_WORLD_LOCAL_RANK": "7"}, (7, 8, 7)),
    ({"RANK": "0", "WORLD_SIZE": "1", "SLURM_PROCID": "9", "SLURM_NTASKS": "10"}, (0, 1, None)),
    ({"RANK": "many", "WORLD_SIZE": "-1"}, (None, None, None)),
    ({}, (None, None, None)),
]


def case_rank_numbers(directory):
    import debugger
    for index, (environment, expected) in enumerate(ENVIRONMENTS):
        with native("chain", env=environment) as fixture:
            core = os.path.join(directory, "core-%d" % index)
            live = only_rank(json_report("attach", "--pids", fixture.pid), fixture.pid)
            debugger.take_core(fixture, core)
        dead = only_rank(json_report("core", core), fixture.pid)
        for rank in (live, dead):
            got = (rank["rank"], rank["world_size"], rank["local_rank"])
            if expected[2] is None and expected[0] is not None:
                got = got[:2] + (None,)      # a launcher without a local rank: the tool may derive it
            check(got == expected, "%s, %r: rank, world size, local rank are %r" % (rank["source"], environment, got))


def case_coordinates(directory):
    """The coordinates of a rank in its job's grid, from its command line or environment, live and from its core."""
    import debugger
    megatron = ("--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size=2")
    accelerate = {"ACCELERATE_USE_MEGATRON_LM": "true", "MEGATRON_LM_TP_DEGREE": "2", "MEGATRON_LM_PP_DEGREE": "1"}
    for index, (arguments, environment, expected, source) in enumerate((
            (megatron, {"RANK": "5", "WORLD_SIZE": "8"}, {"pp": 1, "dp": 0, "tp": 1}, "Megatron, from the command line"),
            (megatron, {"RANK": "5", "WORLD_SIZE": "7"}, None, None),
            (megatron, {}, None, None),
            ((), dict(accelerate, RANK="3", WORLD_SIZE="4"), {"pp": 0, "dp": 1, "tp": 1}, "Megatron by Accelerate, from the environment"))):
        with native("chain", *arguments, env=environment) as fixture:
            core = os.path.join(directory, "core-%d" % index)
            live = only_rank(json_report("attach", "--pids", fixture.pid), fixture.pid)
            debugger.take_core(fixture, core)
        for rank in (live, only_rank(json_report("core", core), fixture.pid)):
            got = (rank["coordinates"], rank.get("coordinates_from"))
            check(got == (expected, source), "%s, %r %r: %r" % (rank["source"], arguments, environment, got))


LAUNCHER = r"""
import os, subprocess, sys
ranks = [subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"RANK": str(n), "WORLD_SIZE": "2", "LOCAL_RANK": str(n)})
         for n in range(2)]
for rank in ranks:
    rank.stdout.readline()
os.write(1, b'{"ready": true, "pid": %d, "threads": [], "ranks": [%d, %d]}\n' % (os.getpid(), ranks[0].pid, ranks[1].pid))
while os.read(0, 100):
    os.write(1, b"alive\n")
"""


def launched():
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return Fixture(["/usr/bin/python3", "-c", LAUNCHER, os.path.join(os.environ["RANKSTACKS_FIXTURES"], "chain")], env=environment)


def case_launcher_is_replaced_by_its_ranks(directory):
    with launched() as fixture:
        report = json_report("attach", "--pids", fixture.pid)
        ranks = {rank["pid"]: rank["rank"] for rank in report["ranks"] if rank["kind"] == "rank"}
        check(ranks == {fixture.ready["ranks"][0]: 0, fixture.ready["ranks"][1]: 1}, "the launcher's ranks: %r" % ranks)
        fixture.check_unharmed()


def case_job_finds_ranks(directory):
    with launched() as fixture:
        report = json_report("attach", "--job", "pid:%d" % fixture.pid)
        found = {rank["pid"]: rank["rank"] for rank in report["ranks"]}
        check(found == {pid: number for number, pid in enumerate(fixture.ready["ranks"])}, "the ranks: %r" % found)
        fixture.check_unharmed()


def case_children_belong_to_their_rank(directory):
    program = ("import subprocess, os, sys; child = subprocess.Popen(['/usr/bin/python3', '-c', 'import os; os.read(0, 1)'], stdin=subprocess.PIPE);"
               "os.write(1, b'{\"ready\": true, \"pid\": %d, \"threads\": [], \"child\": %d}\\n' % (os.getpid(), child.pid)); os.read(0, 1)")
    with Fixture(["/usr/bin/python3", "-c", program], env={"RANK": "4", "WORLD_SIZE": "5"}) as fixture:
        report = json_report("attach", "--pids", fixture.pid)
        child = only_rank(report, fixture.ready["child"])
        check((child["kind"], child["parent"]) == ("child", fixture.pid), "the child: %r, parent %r" % (child["kind"], child["parent"]))
        check(only_rank(report, fixture.pid)["rank"] == 4, "the rank: %r" % report["ranks"])


def case_a_script_around_a_training_program_is_replaced_by_it(directory):
    """`subprocess.run([python, "train.py"])` in a script that has the rank's variables: the program is the rank, recognised by the
    libraries that it has loaded."""
    library = os.path.join(directory, "libtorch_cpu.so")
    shutil.copy(os.path.join(os.environ["RANKSTACKS_FIXTURES"], "libreplaced_one.so"), library)
    inner = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1]); os.write(1, b'there'); os.read(0, 1)"
    outer = ("import os, subprocess, sys; inner = subprocess.Popen(['/usr/bin/python3', '-c', sys.argv[1], sys.argv[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE);"
             "os.read(inner.stdout.fileno(), 5);"
             "os.write(1, b'{\"ready\": true, \"pid\": %d, \"threads\": [], \"inner\": %d}\\n' % (os.getpid(), inner.pid)); os.read(0, 1)")
    for given, expected in ((library, "inner"), ("libc.so.6", "outer")):
        with Fixture(["/usr/bin/python3", "-c", outer, inner, given], env={"RANK": "4", "WORLD_SIZE": "5"}) as fixture:
            ranks = {rank["pid"]: rank["rank"] for rank in json_report("attach", "--pids", fixture.pid)["ranks"] if rank["kind"] == "rank"}
            pid = fixture.ready["inner"] if expected == "inner" else fixture.pid
            check(ranks == {pid: 4}, "%s: %r, and it is pid %d" % (given, ranks, pid))


def case_text_names_what_is_wrong(directory):
    child = subprocess.Popen(["true"])
    wait_until(lambda: state_of(child.pid) == "Z", "a zombie")
    try:
        with native("chain") as fixture:
            status, out, err = run_tool("attach", "--pids", "%d,%d" % (child.pid, fixture.pid))
            text = text_of(out)
            check(status == 1 and "zombie" in text.lower() and str(child.pid) in text, "status %d:\n%s" % (status, text))
            check(err.startswith(b"rankstacks: ") and str(child.pid).encode() in err, "stderr: %r" % err)
    finally:
        child.wait()


if __name__ == "__main__":
    cases.run(globals(), "target")
