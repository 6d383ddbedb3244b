"""A case's job as processes: starts it, waits until it hangs (or makes progress), has the tool sample it, and ends it in any case."""
import fcntl
import glob
import os
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

from hang_cases.ports import free_port

HERE = os.path.dirname(os.path.abspath(__file__))
SYSTEM_PYTHON = "/usr/bin/python3"
TICK = os.sysconf("SC_CLK_TCK")
SETTLING_SAMPLES = 14    # of one in 0.25 s
TIMEOUT = 300.0          # seconds for a job to reach its hang; importing torch takes several where there are few cores


EACH_RANK = ("env", "jax", "indexed", "argument")     # ways to start a job (Case.launch) in which each rank is started by itself
interrupted = threading.Event()      # once it is set, jobs are given up and ended


class Missing(Exception):
    """The case needs something that this machine lacks; the message says what."""


class Broken(Exception):
    """The job did not reach its hang: there is nothing to score."""


class Builder:
    """Compiles what the cases need, once each."""

    def __init__(self, directory):
        self.directory, self.lock, self.done = directory, threading.Lock(), {}

    def get(self, name):
        with self.lock:
            if name not in self.done:
                try:
                    self.done[name] = getattr(self, "_" + name)()
                except Missing as missing:
                    self.done[name] = missing
            if isinstance(self.done[name], Missing):
                raise self.done[name]
            return self.done[name]

    def _compile(self, compiler, package, name, *arguments):
        if not shutil.which(compiler):
            raise Missing("no %s here (Debian: %s)" % (compiler, package))
        path = os.path.join(self.directory, name)
        subprocess.run([compiler, "-g", "-O1", "-o", path, *arguments], check=True, cwd=HERE)
        return path

    def _native(self):
        return self._compile("gcc", "gcc", "libnative.so", "-shared", "-fPIC", "native.c", "-pthread")

    def _field_native(self):
        return self._compile("gcc", "gcc", "libfieldnative.so", "-shared", "-fPIC", "field_native.c", "-pthread")

    def _field_mesh(self):
        return self._compile("g++", "g++", "field-mesh", "-std=c++17", "field_mesh.cc", "-pthread")

    def _night_shm(self):
        return self._compile("g++", "g++", "night-shm", "-std=c++17", "night_shm.cc", "-pthread")

    def _night_openmpi(self):
        return self._compile("mpicxx.openmpi", "openmpi-bin libopenmpi-dev", "night-openmpi", "-std=c++17", "night_mpi.cc", "-pthread")

    def _framework(self):
        library = self._compile("g++", "g++", "libcommunication.so", "-shared", "-fPIC", "-std=c++17", "communication.cc")
        return self._compile("g++", "g++", "framework", "-std=c++17", "framework.cc", library, "-Wl,-rpath," + self.directory, "-pthread")

    def _mpi(self, library, packages, source):
        return self._compile("mpicc." + library, packages, source[:-len(".c")] + "-" + library, source, "-pthread")

    def _mpich(self, source="mpi.c"):
        return self._mpi("mpich", "mpich libmpich-dev", source)

    def _openmpi(self, source="mpi.c"):
        return self._mpi("openmpi", "openmpi-bin libopenmpi-dev", source)

    def _field_mpich(self):
        return self._mpich("field_mpi.c")

    def _field_openmpi(self):
        return self._openmpi("field_mpi.c")


PACKAGES = {"torch.distributed": "Debian: python3-torch", "mpi4py": "Debian: python3-mpi4py openmpi-bin", "setproctitle": "Debian: python3-setproctitle",
            "jax": "PyPI: jax; --frameworks names an interpreter that has it", "ray": "PyPI: ray; --frameworks names an interpreter that has it",
            "deepspeed": "PyPI: deepspeed; --frameworks names an interpreter that has it",
            "orbax.checkpoint": "PyPI: orbax-checkpoint; --frameworks names an interpreter that has it",
            "horovod.torch": "PyPI: horovod, built for PyTorch with gloo; --frameworks names an interpreter that has it",
            "megatron.core": "PyPI: megatron-core; --frameworks names an interpreter that has it"}
OF_PYPI = "PyPI: %s; --frameworks names an interpreter that has it"
# What the programs for a framework import; those that are not Debian's come from the interpreter of --frameworks.
FRAMEWORKS = {"jax_cpu.py": ("jax",), "orbax_job.py": ("jax", "orbax.checkpoint"), "grain_job.py": ("grain", "torch.distributed"),
              "megatron_job.py": ("megatron.core", "torch.distributed"), "horovod_job.py": ("horovod.torch",), "ray_job.py": ("ray", "torch.distributed"), "deepspeed_job.py": ("deepspeed", "torch.distributed"), "serving.py": ("setproctitle",)}
_modules = {}


def need_modules(python, *names):
    for name in names:
        if (python, name) not in _modules:
            silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            _modules[python, name] = subprocess.run([python, "-c", "import " + name], **silent).returncode
        if _modules[python, name] != 0:
            raise Missing("%s has no %s (%s)" % (python, name, PACKAGES.get(name, OF_PYPI % name.split(".")[0])))


def command_of(case, python, builder):
    """The command of one rank (launch "env"), or of what starts the ranks; raises Missing."""
    program = os.path.join(HERE, case.program)
    if case.program == "framework":
        return [builder.get("framework"), *case.arguments]
    if case.program in ("field_mesh", "night_shm"):
        return [builder.get(case.program), *case.arguments]
    if case.program in ("mpich", "openmpi", "field-mpich", "field-openmpi", "night-openmpi"):
        return ["mpirun." + case.program.rsplit("-", 1)[-1], "-n", str(case.ranks), builder.get(case.program.replace("-", "_")), *case.arguments]
    if case.program == "mpi_job.py":
        if not shutil.which("mpirun.openmpi"):
            raise Missing("no mpirun.openmpi here (Debian: openmpi-bin)")
        need_modules(python, "mpi4py")
        return ["mpirun.openmpi", "-n", str(case.ranks), python, program, *case.arguments]
    if case.program in ("plain.py", "ring.py", "field_plain.py", "night_plain.py"):
        return [python, program, *case.arguments]
    need_modules(python, *FRAMEWORKS.get(case.program, ("torch.distributed",)), *case.needs)
    if case.program == "horovod_job.py":
        # A collective ends after 30 s by default: less than six other tools take to dump the ranks one after the other.
        return [os.path.join(os.path.dirname(python), "horovodrun"), "-np", str(case.ranks), "--gloo", "--gloo-timeout-seconds", "3600", python, program,
                *case.arguments]
    if case.program == "serving.py" and case.name.startswith("sglang"):
        need_modules(python, "torch.distributed")
    if case.launch == "torchrun":
        # With Python 3.11 the torchrun of torch 1.13 knows neither 0 nor 3 here: one stream redirected, the other teed.
        return [python, "-m", "torch.distributed.run", "--nproc_per_node=%d" % case.ranks, "--master_port=%d" % free_port(), "--redirects=1", "--tee=2",
                program, *case.arguments]
    if case.launch == "spawn":
        return [python, os.path.join(HERE, "spawned.py"), case.program[:-len(".py")], *case.arguments]
    return [python, program, *case.arguments]


def main_thread(pid):
    """(state, voluntary switches, all switches, CPU ticks) of a process's main thread; state "gone" if it does not exist any more."""
    try:
        with open("/proc/%d/task/%d/status" % (pid, pid), encoding="utf-8", errors="replace") as status:
            fields = dict(line.split(":", 1) for line in status if ":" in line)
        with open("/proc/%d/task/%d/stat" % (pid, pid), encoding="utf-8", errors="replace") as stat:
            numbers = stat.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return "gone", 0, 0, 0
    voluntary = int(fields["voluntary_ctxt_switches"])
    return fields["State"].split()[0], voluntary, voluntary + int(fields["nonvoluntary_ctxt_switches"]), int(numbers[11]) + int(numbers[12])


def in_announced_state(how, samples):
    """Whether main_thread()'s last samples show that a process is in the state that it announced: `how`, see job.py."""
    state = samples[-1][0]
    if how == "gone":
        return state in ("gone", "Z")
    if how == "stopped":
        return state in ("T", "t")
    if state in ("gone", "Z", "T", "t"):
        return False
    if how == "asleep":
        return state in ("S", "D") and len(samples) >= 3 and len({sample[:2] for sample in samples[-3:]}) == 1
    if how == "waits":
        return in_announced_state("asleep", samples) or len(samples) >= 8 and in_announced_state("polls", samples)
    if how == "polls":
        return samples[-1][2] - samples[0][2] >= 10
    if how == "settles":
        return len(samples) >= SETTLING_SAMPLES
    if how == "spins":
        return samples[-1][3] - samples[0][3] >= TICK // 5 or samples[-1][2] - samples[0][2] >= 1000
    return how == "moves"


class Job:
    """`with Job(...) as job`: job.ranks is {rank: pid} of the ranks that announced themselves, job.places {rank: (function, file)} of where
    they announced that they would wait; job.pids() are the pids that the tool is given."""

    timeout = TIMEOUT

    def __init__(self, case, python, builder):
        self.case = case
        self.command = self._command(python, builder)
        native = builder.get("native") if case.native else ""
        field_native = builder.get("field_native") if case.field_native else ""
        self.directory = tempfile.mkdtemp(prefix="rankstacks-hang-")
        self.processes, self.descriptors, self.announced, self.places, self.unrelated = [], [], {}, {}, []
        try:
            self._prepare()
            environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "HANGS_RANK")}
            environment.update(HANGS_DIRECTORY=self.directory, HANGS_PORT=str(self.server.getsockname()[1]), HANGS_RANKS=str(case.ranks),
                               HANGS_ODD=",".join(map(str, case.odd)), HANGS_NATIVE=native, HANGS_FIELD_NATIVE=field_native, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
                               GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=HERE, TMPDIR=self.directory,
                               OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                               OMPI_MCA_btl_vader_single_copy_mechanism="none")
            for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK"):
                environment.pop(name, None)
            self._start(environment)
        except BaseException:
            self.end()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def _command(self, python, builder):
        return command_of(self.case, python, builder)

    def _environment_of(self, environment, rank):
        if self.case.launch == "jax":
            return dict(environment, HANGS_RANK=str(rank), JAX_PROCESS_ID=str(rank), JAX_NUM_PROCESSES=str(self.case.ranks),
                        JAX_COORDINATOR_ADDRESS="127.0.0.1:" + environment["MASTER_PORT"])
        if self.case.launch == "indexed":
            return dict(environment, HANGS_RANK=str(rank), JOB_COMPLETION_INDEX=str(rank))
        if self.case.launch == "argument":
            return dict(environment, HANGS_RANK=str(rank))
        return dict(environment, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(self.case.ranks))

    def _command_of(self, rank):
        return [*self.command, str(rank)] if self.case.launch == "argument" else self.command

    def _prepare(self):
        """Creates the files and the server that ranks wait for, see job.py."""
        for name in ("shard-0003.bin", "config.json", "checkpoint.pt"):
            os.mkfifo(os.path.join(self.directory, name))
        self.descriptors.append(os.open(os.path.join(self.directory, "shard-0003.bin"), os.O_RDWR))
        full = os.open(os.path.join(self.directory, "checkpoint.pt"), os.O_RDWR | os.O_NONBLOCK)
        self.descriptors.append(full)
        try:
            while os.write(full, bytes(4096)):
                pass
        except BlockingIOError:
            pass
        lock = os.open(os.path.join(self.directory, "cache.lock"), os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.descriptors.append(lock)
        self.database = sqlite3.connect(os.path.join(self.directory, "shared.db"), isolation_level=None, check_same_thread=False)
        self.database.execute("CREATE TABLE trials (number INTEGER)")
        self.database.execute("BEGIN IMMEDIATE")
        self.server = socket.socket()
        self.server.bind(("127.0.0.1", 0))
        self.server.listen(64)
        self.log = open(os.path.join(self.directory, "log"), "wb")      # pylint: disable=consider-using-with

    def _directory_of(self, rank):
        """A rank's working directory."""
        return self.directory

    def _spawn(self, command, environment, stdin=subprocess.DEVNULL, directory=None):
        # setpriv: killed when this thread ends, for whatever reason; a session of its own, so that it can be killed as one.
        held = ["setpriv", "--pdeathsig", "KILL", *command] if shutil.which("setpriv") else command
        process = subprocess.Popen(held, stdin=stdin, stdout=self.log, stderr=self.log, start_new_session=True, env=environment,
                                   cwd=directory or self.directory)
        self.processes.append(process)
        return process

    def _start(self, environment):
        if self.case.launch in EACH_RANK:
            for rank in range(self.case.ranks):
                if rank in self.case.not_started:
                    continue
                # Standard input that is open and provides nothing, for a rank that reads it.
                reading, writing = os.pipe()
                self.descriptors.append(writing)
                self._spawn(self._command_of(rank), self._environment_of(environment, rank), reading, self._directory_of(rank))
                os.close(reading)
        else:
            self._spawn(self.command, environment)
        if self.case.unrelated:
            plain = {name: value for name, value in environment.items() if not name.startswith(("HANGS", "MASTER", "OMPI"))}
            plain["HANGS_DIRECTORY"] = self.directory          # by this end() finds all processes that it has to end
            self.unrelated = [self._spawn(["sh", "-c", "sleep 100000; exit"], plain).pid,
                              self._spawn([SYSTEM_PYTHON, "-m", "http.server", "--bind", "127.0.0.1", str(free_port())], plain).pid]

    def expected(self):
        return [str(rank) for rank in range(self.case.ranks) if rank not in self.case.not_started] + list(self.case.also)

    def _read_announced(self):
        for name in self.expected():
            try:
                with open(os.path.join(self.directory, "at." + name), encoding="ascii") as stream:
                    pid, how, *place = stream.read().split()
                self.announced[name] = (int(pid), how)
                if name.isdigit() and how != "gone" and place:
                    self.places[int(name)] = tuple(place)
            except FileNotFoundError:
                pass

    def wait(self):
        """Waits until every rank has announced itself, and is in the announced state as far as /proc shows."""
        deadline, samples = time.monotonic() + self.timeout, {}
        while True:
            self._read_announced()
            for process in self.processes:
                process.poll()
            if len(self.announced) == len(self.expected()):
                for name, (pid, how) in self.announced.items():
                    samples.setdefault((name, pid, how), []).append(main_thread(pid))
                if all(in_announced_state(how, samples[name, pid, how]) for name, (pid, how) in self.announced.items()):
                    self.ranks = {int(name): pid for name, (pid, _) in self.announced.items() if name.isdigit()}
                    return
            if time.monotonic() > deadline:
                self._give_up("it does not come to its hang in %d s: announced %r, seen %r"
                              % (self.timeout, self.announced, {key[0]: seen[-1] for key, seen in samples.items()}))
            if all(process.returncode is not None for process in self.processes):
                self._give_up("all of it has ended")
            if interrupted.wait(0.25):
                raise KeyboardInterrupt

    def _give_up(self, why):
        try:
            with open(os.path.join(self.directory, "log"), encoding="utf-8", errors="replace") as log:
                said = log.read()[-3000:]
        except OSError as error:
            said = str(error)
        raise Broken("%s\n%s" % (why, said))

    def check_still(self):
        """Checks, after the tool has run, that every process is still in the state that it announced."""
        for name, (pid, how) in self.announced.items():
            state = main_thread(pid)[0]
            if (state in ("gone", "Z")) != (how == "gone") or (state in "Tt") != (how == "stopped"):
                self._give_up("process %s has not stayed where it was: %s" % (name, state))

    def pids(self):
        """Those of the ranks that the tool is given: all that are alive, or those that the case names; unrelated processes are listed
        before and after them."""
        given = self.case.given if self.case.given is not None else sorted(self.ranks)
        alive = [self.ranks[rank] for rank in given if main_thread(self.ranks[rank])[0] not in ("gone", "Z")]
        return self.unrelated[:1] + alive + self.unrelated[1:]

    def write_cores(self):
        """Takes cores of the ranks and of their announced children with gdb's gcore; of a rank that has crashed, the kernel's core is
        used."""
        if not shutil.which("gdb"):
            raise Missing("no gdb here (Debian: gdb)")
        cores = []
        wanted = [self.ranks[rank] for rank in sorted(self.ranks)] + [self.announced[name][0] for name in self.case.also]
        for pid in wanted:
            if main_thread(pid)[0] in ("gone", "Z"):
                found = glob.glob(os.path.join(self.directory, "core*"))
                if len(found) != 1:
                    with open("/proc/sys/kernel/core_pattern", encoding="utf-8", errors="replace") as pattern:
                        raise Missing("the crashed rank left %d cores in its directory (core_pattern: %s)" % (len(found), pattern.read().strip()))
                os.rename(found[0], os.path.join(self.directory, "crashed.%d" % pid))
                cores.append(os.path.join(self.directory, "crashed.%d" % pid))
                continue
            path = os.path.join(self.directory, "gcore.%d" % pid)
            commands = ["set auto-load off", "set debuginfod enabled off", "attach %d" % pid, "gcore " + path, "detach"]
            done = subprocess.run(["gdb", "-nx", "-q", "-batch"] + [word for command in commands for word in ("-ex", command)],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if not os.path.exists(path):
                raise Broken("gdb has written no core:\n" + done.stdout.decode(errors="replace")[-2000:])
            cores.append(path)
        return cores

    def end(self):
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.processes:
            process.wait()
        # Processes that have left their process group (MPI's ranks, loader workers): found by this job's directory in their environment.
        mark = b"HANGS_DIRECTORY=" + self.directory.encode()
        deadline = time.monotonic() + 30
        while True:
            left = [pid for pid in processes_with(mark) if pid != os.getpid()]
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if not left:
                break
            if time.monotonic() > deadline:
                print("hangs: could not end %r" % left, file=sys.stderr)
                break
            select.select([], [], [], 0.05)
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []
        if hasattr(self, "log"):
            self.log.close()
            self.server.close()
            self.database.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def processes_with(mark):
    """Processes that were started with this string in their environment (no zombies: they have no environment)."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/environ" % name, "rb") as stream:
                    if mark in stream.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                pass
    return found
