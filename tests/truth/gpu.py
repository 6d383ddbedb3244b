"""The GPUs of the ranks in the report: real processes, and a fake of the management library whose answers come from a file
(tests/gpu/fake_nvml.c)."""
import contextlib
import os
import shutil

import cases
from command_line import SOURCE, text_of
from processes import Fixture, check, json_report, run_tool
from truth_python import only_rank

PROGRAM = os.path.join(SOURCE, "fixtures", "gpu", "cuda_rank.py")
FIXTURES = os.environ["RANKSTACKS_FIXTURES"]


class Machine:
    """A directory that takes the place of a machine's driver, devices and libraries."""

    def __init__(self, directory, gpus=2):
        self.directory = directory
        shutil.copy(os.path.join(os.path.dirname(FIXTURES), "tests", "libfake_nvml.so"), os.path.join(directory, "libnvidia-ml.so.1"))
        shutil.copy(os.path.join(FIXTURES, "libreplaced_one.so"), os.path.join(directory, "libcuda.so.1"))
        self.files = [os.path.join(directory, name) for name in ["nvidiactl"] + ["nvidia%d" % gpu for gpu in range(gpus)]]
        for path in self.files:
            open(path, "wb").close()

    def says(self, *lines):
        with open(os.path.join(self.directory, "scenario"), "w", encoding="utf-8") as file:
            file.write("driver 580.159.04\n" + "".join(line + "\n" for line in lines))

    def rank(self, rank, *options, files=None):
        return Fixture(["/usr/bin/python3", PROGRAM, *options, os.path.join(self.directory, "libcuda.so.1"), *(self.files if files is None else files)],
                       env=dict(os.environ, RANK=str(rank), WORLD_SIZE="2", PYTHONDONTWRITEBYTECODE="1"))

    @contextlib.contextmanager
    def two_ranks(self):
        with self.rank(0) as zero, self.rank(1) as one:
            yield zero, one

    def attach(self, *ranks):
        return json_report("attach", "--pids", ",".join(str(rank.pid) for rank in ranks), machine=self.directory)


def gpu(number, *lines):
    return ["gpu", "pci 0 %d 0" % (number + 10), "uuid GPU-%d" % number, "name NVIDIA H200", "minor %d" % number, "list 24", *lines]


def case_nvml_two_ranks_two_gpus(directory):
    machine = Machine(directory)
    with machine.two_ranks() as (zero, one):
        machine.says(*gpu(0, "process %d 1000" % zero.pid, "process %d 5" % os.getpid(), "samples 100 100", "clock 1 1980 1980", "link 0 1 0", "link 1 1 0", "pcie 16 16 5 5"),
                     *gpu(1, "process %d 2000" % one.pid, "samples 0 0", "clock 1 345 1980", "throttle 8", "link 0 1 0", "link 1 0 0", "memory 10 2 100", "temperature 55"))
        with open(os.path.join(directory, "kmsg"), "w", encoding="utf-8") as log:
            # One of a process that has ended long ago, and one since the ranks were started.
            log.write("4,1,2,-;NVRM: Xid (PCI:0000:0b:00): 31, pid=1, name=x\n")
            log.write("4,2,%d,-;NVRM: Xid (PCI:0000:0b:00): 74, pid=1, name=x\n" % (10 ** 15))
        report = machine.attach(zero, one)
        (first,), (second,) = only_rank(report, zero.pid).get("gpus", []), only_rank(report, one.pid).get("gpus", [])
        # This program has none of the device files open: in a container such a pid means another process.
        check((first["pci"], first["index"], first["uuid"], first["name"]) == ("0000:0a:00.0", 0, "GPU-0", "NVIDIA H200"), "%r" % first)
        check(first["health"] == {"utilization_mean": 100.0, "utilization_variance": 0.0, "process_memory": 1000, "sm_clock": 1980, "sm_clock_max": 1980, "nvlinks": 2, "nvlinks_up": 2,
                                  "nvlink_errors": 0, "pcie_width": 16, "pcie_width_max": 16, "pcie_generation": 5, "pcie_generation_max": 5, "driver": "580.159.04"}, "%r" % first["health"])
        check(second["index"] == 1 and second["health"]["nvlinks_down"] == [1] and second["health"]["throttle"] == ["hw-slowdown"], "%r" % second)
        check(second["health"]["xids"] == [74] and second["health"]["memory_used"] == 10 and second["health"]["temperature_c"] == 55, "%r" % second)
        check(not any(rank["problems"] for rank in report["ranks"]), "problems: %r" % [rank["problems"] for rank in report["ranks"]])
        for rank in (zero, one):
            rank.check_unharmed()


def case_nvml_both_ranks_on_one_gpu(directory):
    machine = Machine(directory)
    with machine.two_ranks() as (zero, one):
        machine.says(*gpu(0, "process %d 1000" % zero.pid, "process %d -1" % one.pid), *gpu(1))
        report = machine.attach(zero, one)
        for rank, other, memory in ((zero, one, 1000), (one, zero, None)):
            (found,) = only_rank(report, rank.pid).get("gpus", [])
            check(found["index"] == 0 and found["health"]["other_processes"] == [other.pid] and found["health"].get("process_memory") == memory, "%r" % found)


def case_nvml_a_child_counts_for_its_rank(directory):
    machine = Machine(directory)
    with machine.rank(0, "--child") as rank:
        machine.says(*gpu(0), *gpu(1, "process %d 1000" % rank.ready["child"]))
        report = machine.attach(rank)
        (found,) = only_rank(report, rank.pid).get("gpus", [])
        check(found["index"] == 1 and found["health"]["process_memory"] == 1000, "%r" % found)
        check(all(not entry.get("gpus") for entry in report["ranks"] if entry["pid"] != rank.pid), "the child has it too")


def case_nvml_by_the_device_file(directory):
    """Without a list of processes: a rank that has one GPU's file open uses that GPU; for a rank with several, the report says that it is
    not known."""
    machine = Machine(directory)
    with machine.rank(0, files=[machine.files[0], machine.files[2]]) as zero, machine.rank(1) as one:
        machine.says(*gpu(0, "list refused"), *gpu(1, "list refused"))
        report = machine.attach(zero, one)
        (found,) = only_rank(report, zero.pid).get("gpus", [])
        check(found["index"] == 1 and "process_memory" not in found["health"], "%r" % found)
        check(not only_rank(report, one.pid).get("gpus"), "%r" % only_rank(report, one.pid).get("gpus"))
        (problem,) = only_rank(report, zero.pid)["problems"]
        check(problem["message"].startswith("NVML: which GPUs pid %d uses is not known" % one.pid) and problem["hint"], "%r" % problem)


def case_nvml_refuses(directory):
    machine = Machine(directory)
    with machine.two_ranks() as (zero, one):
        machine.says("init 18")
        report = machine.attach(zero, one)
        (problem,) = only_rank(report, zero.pid)["problems"]
        check(problem["message"] == "NVML does not start: Driver/library version mismatch" and "different versions" in problem["hint"], "%r" % problem)
        check(not only_rank(report, one.pid)["problems"] and all(rank["status"] == "complete" and rank["threads"] for rank in report["ranks"]), "the rest of the report: %r" % report["ranks"])


def case_nvml_hangs(directory):
    """The report is made nevertheless, and no process of the tool is left when it has ended."""
    machine = Machine(directory)
    with machine.two_ranks() as (zero, one):
        machine.says(*gpu(0, "process %d 1" % zero.pid), "gpu", "fails hang")
        status, out, err = run_tool("attach", "--pids", zero.pid, one.pid, "--samples", "1", machine=directory)
        check(status == 0 and err == b"" and "NVML: GPU 1 does not answer within 2 s" in " ".join(text_of(out).split()), "status %d, %r: %s" % (status, err, text_of(out)))
        own = [pid for pid in os.listdir("/proc") if pid.isdigit() and directory.encode() in command_of(pid) and b"--internal-nvml" in command_of(pid)]
        check(not own, "left: %r" % own)


def command_of(pid):
    try:
        with open("/proc/%s/cmdline" % pid, "rb") as file:
            return file.read()
    except OSError:
        return b""


def case_nvml_is_not_asked_without_cuda(directory):
    """For a job without libcuda, and on a machine without the driver, nothing is started."""
    machine = Machine(directory)
    machine.says("init 18")
    os.rename(os.path.join(directory, "libcuda.so.1"), os.path.join(directory, "libother.so.1"))
    program = ["/usr/bin/python3", PROGRAM, os.path.join(directory, "libother.so.1")]
    with Fixture(program, env=dict(os.environ, RANK="0")) as rank:
        check(not machine.attach(rank)["ranks"][0]["problems"], "asked without CUDA")
    os.rename(os.path.join(directory, "libother.so.1"), os.path.join(directory, "libcuda.so.1"))
    for path in machine.files:
        os.remove(path)
    with machine.rank(0, files=[]) as rank:
        check(not machine.attach(rank)["ranks"][0]["problems"], "asked without a driver")


if __name__ == "__main__":
    cases.run(globals(), "gpu")
