"""A GPU case's job as processes."""
import glob
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

WATCHDOG_TIMEOUT, OTHERS_SECONDS = 240.0, 20.0

HERE = os.path.dirname(os.path.abspath(__file__))
HANG_CASES = os.path.join(os.path.dirname(HERE), "hang_cases")

from hang_cases.ports import free_port                                                  # noqa: E402
from hang_cases.starting import Broken, Builder, Job, Missing, main_thread              # noqa: E402

__all__ = ["Broken", "Builder", "GpuJob", "Missing", "gpu_count"]


def gpu_count():
    """The GPUs of this machine, by the driver's files: no context is made."""
    directory = "/proc/driver/nvidia/gpus"
    return len(os.listdir(directory)) if os.path.isdir(directory) else 0


# Where there are fewer GPUs than ranks: of the job, and of a rank. NCCL refuses two ranks on one GPU, unless each seems to be on a machine of
# its own.
SHARES_GPUS = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}


def on_shared_gpu(rank, gpus):
    return {"NCCL_HOSTID": "host-%d" % rank, "LOCAL_RANK": str(rank % gpus), "NODE_RANK": str(rank)}


_modules = {}


def need(python, name):
    if (python, name) not in _modules:
        code = "import importlib.util, sys; sys.exit(importlib.util.find_spec(%r) is None)" % name
        _modules[python, name] = subprocess.run([python, "-c", code], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode
    if _modules[python, name] != 0:
        raise Missing("%s has no %s" % (python, name))


def need_program(python, name):
    """In the PATH, next to the interpreter, or where CUDA's compiler is installed."""
    places = [os.environ.get("PATH", ""), os.path.dirname(python), os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")]
    if not shutil.which(name, path=os.pathsep.join(filter(None, places))):
        raise Missing("no %s here" % name)


def need_cuda_aware_mpi():
    """Open MPI says of itself whether it takes pointers to a GPU's memory."""
    if not shutil.which("mpirun") or not shutil.which("ompi_info"):
        raise Missing("no Open MPI here")
    said = subprocess.run(["ompi_info", "--parsable", "--all"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout
    if b"mpi_built_with_cuda_support:value:true" not in said:
        raise Missing("the Open MPI here is built without support for CUDA")


# What is in a GPU core without these is all memory of the GPU.
LIGHTWEIGHT = ",".join("skip_" + what for what in ("nonrelocated_elf_images", "global_memory", "shared_memory", "local_memory", "constbank_memory"))


class GpuJob(Job):
    """As Job, with GPUs: rank N has GPU N, or shares one if there are fewer GPUs than ranks."""

    timeout = 150.0

    def __init__(self, case, python, builder, gpus, with_others=False):
        """`with_others`: other jobs run at the same time."""
        self.gpus, self.python, self.with_others = gpus, python, with_others
        for name in case.needs:
            need(python, name)
        for name in case.programs:
            need_program(python, name)
        if case.launch == "mpirun":
            need_cuda_aware_mpi()
        if gpus < case.gpus:
            raise Missing("it needs %d GPUs for one process" % case.gpus)
        if case.own_gpus and gpus < case.ranks:
            raise Missing("it needs %d GPUs, one for each rank" % case.ranks)
        if case.cores:
            with open("/proc/sys/kernel/core_pattern", encoding="utf-8", errors="replace") as pattern:
                text = pattern.read().strip()
            if "/" in text or text.startswith("|"):
                raise Missing("cores do not come into the working directory here (core_pattern: %s)" % text)
            resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        super().__init__(case, python, builder)

    def _command(self, _python, _builder):
        program = [os.path.join(HERE, self.case.program), *self.case.arguments]
        if self.case.launch == "torchrun":
            return [self.python, "-m", "torch.distributed.run", "--nproc_per_node=%d" % self.case.ranks, "--master_port=%d" % free_port(), *program]
        if self.case.launch == "mpirun":
            return ["mpirun", "-n", str(self.case.ranks), self.python, *program]
        return [self.python, *program]

    def _start(self, environment):
        environment.update(PYTHONPATH=HERE + os.pathsep + HANG_CASES, GPUS=str(self.gpus), **self.case.environment)
        if self.case.cores:
            environment["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"] = "1" if self.case.gpu_cores else "0"
        environment.pop("GLOO_SOCKET_IFNAME", None)
        if self.with_others:                # NCCL's RAS service has one address for the machine, which only one job can have
            environment["NCCL_RAS_ADDR"] = "localhost:%d" % free_port()
        if self.gpus < self.case.ranks:
            environment.update(SHARES_GPUS)
        super()._start(environment)

    def _environment_of(self, environment, rank):
        environment = super()._environment_of(environment, rank)
        if self.case.gpu_cores:
            environment.update(CUDA_COREDUMP_FILE=os.path.join(self._directory_of(rank), "core_%t_%h_%p.nvcudmp"), CUDA_COREDUMP_GENERATION_FLAGS=LIGHTWEIGHT)
        if self.gpus < self.case.ranks:
            environment.update(on_shared_gpu(rank, self.gpus))
        return environment

    def _directory_of(self, rank):
        """With kernel.core_uses_pid=0, the core of a rank would replace that of another one in the same directory."""
        if not self.case.cores:
            return super()._directory_of(rank)
        directory = os.path.join(self.directory, "rank-%d" % rank)
        os.makedirs(directory, exist_ok=True)
        return directory

    def wait(self):
        """Of a case whose watchdogs end the ranks: until one of them has, and for a while for the others, which then get a SIGABRT to leave
        a core as well, as a person would do whose job has one rank that has aborted."""
        if "GPU_CASES_WATCHDOG" not in self.case.environment:
            super().wait()
            return
        deadline, others_deadline = time.monotonic() + WATCHDOG_TIMEOUT, None
        while True:
            self._read_announced()
            for process in self.processes:
                process.poll()
            gone = [name for name, (pid, _) in self.announced.items() if main_thread(pid)[0] in ("gone", "Z")]
            if len(self.announced) == len(self.expected()) == len(gone):
                self.ranks = {int(name): pid for name, (pid, _) in self.announced.items()}
                return
            if gone and others_deadline is None:
                others_deadline = time.monotonic() + OTHERS_SECONDS
            if others_deadline is not None and time.monotonic() > others_deadline:
                for name, (pid, _) in self.announced.items():
                    if name not in gone:
                        os.kill(pid, signal.SIGABRT)
                others_deadline = float("inf")
            if time.monotonic() > deadline:
                self._give_up("no watchdog has ended it in %d s: announced %r, gone %r" % (WATCHDOG_TIMEOUT, self.announced, gone))
            time.sleep(0.25)

    def crashed_cores(self):
        """The kernel's cores of the ranks that have crashed, and those of their GPUs where the case wants these."""
        cores = sorted(glob.glob(os.path.join(self.directory, "rank-*", "core*")))
        of_gpus = [core for core in cores if core.endswith(".nvcudmp")]
        if len(cores) == len(of_gpus):
            raise Broken("no rank has left a core")
        if self.case.gpu_cores and not of_gpus:
            raise Broken("no GPU has left a core")
        return cores

    def harmed(self):
        """Ranks that have ended, are stopped or are traced although they should not be."""
        found = []
        for name, (pid, how) in self.announced.items():
            state = main_thread(pid)[0]
            if (state in ("gone", "Z")) != (how == "gone") or (state in "Tt") != (how == "stopped"):
                found.append("%s is %s" % (name, state))
            elif how != "gone" and tracer(pid) != 0:
                found.append("%s is traced by %d" % (name, tracer(pid)))
        return found


def tracer(pid):
    with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("TracerPid:"))


sys.dont_write_bytecode = True
