"""GPU cores on the command line: compared with what cuda-gdb said of the same cores, alone and together with the cores of their
processes."""
import gzip
import lzma
import os
import re
import shutil

import cases
from command_line import SOURCE, native, text_of
from core_files import core_of
from processes import check, json_report, run_tool

GPU = os.path.join(SOURCE, "fixtures", "gpu")
MODES = sorted(name[:-len(".nvcudmp.xz")] for name in os.listdir(GPU) if name.endswith(".nvcudmp.xz"))


def packed(mode):
    return os.path.join(GPU, mode + ".nvcudmp.xz")


def unpacked(mode, path):
    with lzma.open(packed(mode)) as stream, open(path, "wb") as out:
        out.write(stream.read())
    return path


def said_by_debugger(mode):
    """{grid: (function, device, grid dims, block dims)}, [(pc, function)] of the thread in focus, exception's pc or None."""
    with open(os.path.join(GPU, mode + ".txt"), encoding="utf-8") as stream:
        text = stream.read()
    kernels = {}
    for line in re.findall(r"^[* ] +\d+ +- +(.*)$", text, re.M):
        found = re.match(r"(\d+) +(\d+) +\w+ +0x[0-9a-f]+ +\((\d+),(\d+),(\d+)\) +\((\d+),(\d+),(\d+)\) +(.+?)\(\)", line)
        dims = tuple(map(int, found.groups()[2:8]))
        kernels[(int(found.group(1)), int(found.group(2)))] = (base_name(found.group(9)), dims[:3], dims[3:])
    stack = re.findall(r"^#\d+ +0x([0-9a-f]+) in ([\w:]+)", text[text.index("== bt"):], re.M)
    raised = re.search(r"triggered at PC 0x([0-9a-f]+)", text)
    return kernels, [(int(pc, 16), function) for pc, function in stack], raised and int(raised.group(1), 16)


def base_name(function):
    """"third" of "void third<long long>(long long*)"."""
    return re.match(r"(?:void )?([\w:]+)", function).group(1)


def case_as_the_debugger_says(directory):
    check(len(MODES) >= 9, "cores: %r" % MODES)
    for mode in MODES:
        kernels, stack, raised = said_by_debugger(mode)
        with open(os.path.join(GPU, mode + ".txt"), encoding="utf-8") as stream:
            name = stream.readline().strip()         # the name that the driver gave it
        core = os.path.join(directory, name + ".xz")
        shutil.copy(packed(mode), core)
        rank, = json_report("core", core)["ranks"]
        check((rank["status"], rank["problems"], rank["threads"]) == ("complete", [], []), "%s: %r" % (mode, rank["problems"]))
        check(rank["source"] == "core" and rank["path"] == core, "%s: %r %r" % (mode, rank["source"], rank["path"]))
        check(name.endswith("_%s_%d.nvcudmp" % (rank["host"], rank["pid"])), "%s: host %r, pid %r" % (name, rank["host"], rank["pid"]))
        seen = {}
        for device, gpu in enumerate(rank["gpus"]):
            check(gpu["name"] == "NVIDIA H200" and gpu["pci"] == "0000:00:0%d.0" % (6 + device), "%s: %r %r" % (mode, gpu["name"], gpu["pci"]))
            for kernel in gpu["execution"]["kernels"]:
                dims = [tuple(kernel[which][axis] for axis in "xyz") for which in ("grid", "block")]
                seen[(device, kernel["grid_id"])] = (base_name(kernel["function"]), dims[0], dims[1])
        check(seen == kernels, "%s: kernels\n  %r\nand not\n  %r" % (mode, seen, kernels))
        execution = rank["gpus"][0]["execution"]
        if stack and not execution["exceptions"] and mode != "several":
            frames = [(int(frame["address"], 16), base_name(frame["function"])) for frame in execution["kernels"][0]["frames"]]
            if len(frames) == len(stack) + 1:        # cuda-gdb prints no pc for a frame at the start of its line
                frames = frames[1:]
            check(frames == stack, "%s: the stack\n  %r\nand not\n  %r" % (mode, frames, stack))
        if raised:
            check([int(e["frame"]["address"], 16) for e in execution["exceptions"]] == [raised], "%s: %r" % (mode, execution["exceptions"]))


def case_compressed_and_plain(directory):
    plain = unpacked("several", os.path.join(directory, "gpucore.plain"))
    zipped = os.path.join(directory, "gpucore.zipped.gz")
    with open(plain, "rb") as stream, gzip.open(zipped, "wb") as out:
        out.write(stream.read())
    executions = []
    for path in (plain, zipped, packed("several")):
        rank, = json_report("core", path)["ranks"]
        execution = rank["gpus"][0]["execution"]
        check(execution.pop("path") == path, "the path of %s" % path)
        executions.append(execution)
    check(executions[0] == executions[1] == executions[2], "the same core reads differently")


def case_joined_to_the_core_of_its_process(directory):
    with native("threads", env={"RANK": "1", "WORLD_SIZE": "2"}) as fixture:
        pid = fixture.pid
        core = core_of(fixture, directory, "core-1")
    gpu = unpacked("spin", os.path.join(directory, "core_1795296990_%s_%d.nvcudmp" % (os.uname().nodename, pid)))
    unrelated = unpacked("idle", os.path.join(directory, "core_1795296990_elsewhere_%d.nvcudmp" % pid))
    report = json_report("core", gpu, core, unrelated)
    ranks = {rank["path"]: rank for rank in report["ranks"]}
    hosts = {rank["path"]: rank["host"] for rank in report["ranks"]}
    if hosts[core] == "unknown":                     # no host name contradicts either GPU core, so neither is joined to it
        json_report("core", gpu, core)
    else:
        check(set(ranks) == {core, unrelated}, "the ranks are those of %r" % sorted(ranks))
    report = json_report("core", gpu, core)
    rank, = report["ranks"]
    check(rank["path"] == core and rank["rank"] == 1 and rank["threads"] and rank["status"] == "complete", "the rank: %r" % rank["path"])
    execution = rank["gpus"][0]["execution"]
    check(execution["path"] == gpu and execution["kernels"][0]["function"] == "spin(int*)", "its GPU: %r" % execution)


def case_listed_alone(directory):
    """Several GPU cores without the cores of their processes: in the order of the ranks in their names, analysed and shown."""
    paths = [unpacked("nccl", os.path.join(directory, "gpucore.rank0.100")), unpacked("spin", os.path.join(directory, "gpucore.rank1.101"))]
    report = json_report("core", *reversed(paths))
    check([(rank["rank"], rank["pid"], rank["path"]) for rank in report["ranks"]] == [(0, 100, paths[0]), (1, 101, paths[1])], "the ranks")
    status, out, err = run_tool("core", *paths)
    check((status, err) == (0, b""), "status %d, stderr %r" % (status, err))
    text_of(out)


def case_cut_off(directory):
    """The section headers are at the end of the file: without all of them it cannot be read, without some of them the rank is partial."""
    path = unpacked("spin", os.path.join(directory, "gpucore.1"))
    size = os.path.getsize(path)
    os.truncate(path, size - 640)
    report = json_report("core", path, expect=1)
    rank, = report["ranks"]
    check(rank["status"] == "partial" and re.fullmatch(r"10 of \d+ section headers are missing: the core ends at byte \d+", rank["problems"][0]["message"]), repr(rank["problems"]))
    check(rank["gpus"][0]["execution"]["kernels"][0]["warps"] == 8, "its warps")
    os.truncate(path, 1000)
    report = json_report("core", path, expect=2)
    rank, = report["ranks"]
    check(rank["status"] == "failed" and "section headers lie outside the file of 1000 bytes" in rank["problems"][0]["message"], repr(rank["problems"]))


if __name__ == "__main__":
    cases.run(globals(), "gpu_cores")
