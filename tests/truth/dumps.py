"""What other tools have printed about the ranks of a job: saved dumps of a real hang, real tools on a real process, hostile text."""
import gzip
import json
import lzma
import os
import shutil
import subprocess
import sys

import cases
from command_line import SOURCE, text_of
from processes import Fixture, check, json_report, run_tool

DUMPS = os.path.join(SOURCE, "fixtures", "dumps")
GPU = os.path.join(SOURCE, "fixtures", "gpu")
WITH_PYTHON = ("py-spy", "py-spy-json", "py-spy-json-native", "py-spy-locals", "py-spy-native", "pystack", "pystack-native", "pystack-native-all", "faulthandler")
NATIVE_ONLY = ("gdb", "gdb-full", "eu-stack", "eu-stack-msv")
HOST_THREADS = """Thread 2 (Thread 0x7f40 (LWP %(other)d) "cuda-EvtHandlr"):
#0  0x00007f0000000010 in poll () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x00007f0000001010 in ?? () from /lib/x86_64-linux-gnu/libcuda.so.1
#2  0x00007f0000000030 in start_thread () from /lib/x86_64-linux-gnu/libc.so.6

Thread 1 (Thread 0x7f41 (LWP %(pid)d) "python3"):
#0  0x00007f0000001020 in ?? () from /lib/x86_64-linux-gnu/libcuda.so.1
#1  0x00007f0000002020 in cudaStreamSynchronize () from /venv/lib/libcudart.so.12
#2  0x00007f0000003020 in at::native::_local_scalar_dense_cuda(at::Tensor const&) () from /venv/lib/libtorch_cuda.so
#3  0x00007f0000004020 in THPVariable_item(_object*, _object*) () from /venv/lib/libtorch_python.so
#4  0x0000000000540020 in _PyEval_EvalFrameDefault ()
#5  0x0000000000640020 in Py_RunMain ()
#6  0x00007f0000000050 in __libc_start_main () from /lib/x86_64-linux-gnu/libc.so.6
[Inferior 1 (process %(pid)d) detached]
"""
PROGRAM = "import json, os, sys\ndef waits():\n    print(json.dumps({'pid': os.getpid()}), flush=True)\n    sys.stdin.read()\nwaits()\n"


def dumps_of(name):
    return [os.path.join(DUMPS, name, entry) for entry in sorted(os.listdir(os.path.join(DUMPS, name)))]


def check_culprit(report, where):
    suspects = [(suspect["rank"], suspect["reason"]) for suspect in report["verdict"]["suspects"]]
    check(suspects == [(1, "data-loading")], "%s: %r" % (where, report["verdict"]))
    check([rank["rank"] for rank in report["ranks"]] == [0, 1, 2], "%s: ranks %r" % (where, [rank["rank"] for rank in report["ranks"]]))
    check(report["verdict"]["suspects"][0]["confidence"] <= 0.80, "%s: too certain" % where)


def case_each_tool_yields_the_culprit(directory):
    for name in WITH_PYTHON:
        check_culprit(json_report("report", *dumps_of(name)), name)
    for name in os.listdir(os.path.join(DUMPS, "prefixed")):
        check_culprit(json_report("report", os.path.join(DUMPS, "prefixed", name)), name)


def case_native_frames_alone_accuse_nobody(directory):
    for name in NATIVE_ONLY:
        report = json_report("report", *dumps_of(name))
        verdict = report["verdict"]
        check(verdict["status"] == "undecided" and not verdict["suspects"], "%s: %r" % (name, verdict))
        check([candidate["rank"] for candidate in verdict["candidates"]] == [1], "%s: candidates %r" % (name, verdict["candidates"]))


def case_a_saved_report_reads_back_the_same(directory):
    saved = os.path.join(directory, "saved.json")
    first = json_report("report", *dumps_of("pystack-native-all"))
    with open(saved, "w", encoding="utf-8") as file:
        json.dump(first, file)
    again = json_report("report", saved)
    for part in ("ranks", "clusters", "verdict"):
        check(first[part] == again[part], part)
    check({(rank["source"], rank["dumped_by"]) for rank in again["ranks"]} == {("dump", "pystack")}, "%r" % again["ranks"])
    _, out, _ = run_tool("report", saved)
    check("rank 1 is in its data pipeline" in text_of(out), text_of(out))


def case_ranks_are_named(directory):
    paths = []
    for number in range(3):
        paths.append(os.path.join(directory, "abc"[number]))
        shutil.copyfile(os.path.join(DUMPS, "py-spy", "rank%d.txt" % number), paths[-1])
    report = json_report("report", *paths)
    check([rank["rank"] for rank in report["ranks"]] == [None] * 3, "ranks without names")
    check([suspect["rank"] for suspect in report["verdict"]["suspects"]] == ["unknown:29328"], "%r" % report["verdict"])
    check_culprit(json_report("report", *paths, "--ranks", ",".join("%s=%d" % (path, number) for number, path in enumerate(paths))), "--ranks")
    for wrong in ("x=1", paths[0], paths[0] + "=-1", paths[0] + "=1x"):
        status, out, err = run_tool("report", *paths, "--ranks", wrong)
        check((status, out) == (2, b"") and b"--ranks" in err, "--ranks %s: %d %r" % (wrong, status, err))


def cuda_gdb(directory, modes, host_threads):
    """A file for each rank: what cuda-gdb says of the GPU core of that mode, without the core's name, and of a process that waits for its GPU."""
    paths = []
    for rank, mode in enumerate(modes):
        with open(os.path.join(GPU, mode + ".txt"), encoding="utf-8") as file:
            text = file.read()
        text = text[text.index("[Current focus" if "[Current focus" in text else "== info cuda devices"):]
        paths.append(os.path.join(directory, "%s-%d-rank%d.cuda-gdb" % (modes[-1], host_threads, rank)))
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write(text + (HOST_THREADS % {"pid": 4711 + 10 * rank, "other": 4712 + 10 * rank} if host_threads else ""))
    return paths


def case_cuda_gdb_yields_the_verdict_of_the_cores(directory):
    """Reason and kernel as `core` finds them in the GPU cores themselves; less certain."""
    for mode, reason in (("spin", "gpu-wait"), ("illegal", "crashed"), ("idle", None), ("nccl", None)):
        modes = ["nccl", "nccl", mode]
        cores = []
        for rank, name in enumerate(modes):
            cores.append(os.path.join(directory, "%s-rank%d.nvcudmp" % (mode, rank)))
            with lzma.open(os.path.join(GPU, name + ".nvcudmp.xz")) as packed, open(cores[-1], "wb") as core:
                shutil.copyfileobj(packed, core)
        of_cores = json_report("core", *cores)
        of_text = json_report("report", *cuda_gdb(directory, modes, False))
        found = [[(suspect["rank"], suspect["reason"]) for suspect in report["verdict"]["suspects"]] for report in (of_cores, of_text)]
        check(found[0] == found[1] == ([(2, reason)] if reason else []), "%s: %r" % (mode, found))
        check(of_cores["verdict"]["status"] == of_text["verdict"]["status"], "%s: %s" % (mode, of_text["verdict"]["summary"]))
        for a, b in zip(of_cores["verdict"]["suspects"], of_text["verdict"]["suspects"]):
            check(b["confidence"] < a["confidence"], "%s: %r, of cores %r" % (mode, b["confidence"], a["confidence"]))
        for a, b in zip(of_cores["ranks"], of_text["ranks"]):
            for gpu, read in zip(a["gpus"], b["gpus"]):
                check((gpu["pci"], gpu["name"]) == (read["pci"], read["name"]), "%r, %r" % (gpu["pci"], read["pci"]))
                for kernel, same in zip(gpu["execution"]["kernels"], read["execution"]["kernels"]):
                    for part in ("grid_id", "grid", "block", "sms"):
                        check(kernel[part] == same[part], "%s: %s of %r, %r" % (mode, part, kernel, same))
                    check(kernel["function"].split("(")[0] == same["function"], "%r, %r" % (kernel["function"], same["function"]))


def case_cuda_gdb_with_the_threads(directory):
    for mode, reason, words in (("spin", "gpu-wait", "spin (4 blocks of 64)"), ("illegal", "crashed", "illegal address in kernel illegal"),
                                ("idle", "gpu-wait", "no kernel runs")):
        report = json_report("report", *cuda_gdb(directory, ["nccl", "nccl", mode], True))
        suspects = report["verdict"]["suspects"]
        check([(suspect["rank"], suspect["reason"]) for suspect in suspects] == [(2, reason)], "%s: %r" % (mode, report["verdict"]))
        check(words in suspects[0]["summary"], "%s: %s" % (mode, suspects[0]["summary"]))
        check([(rank["rank"], rank["pid"], len(rank["threads"]), rank["dumped_by"]) for rank in report["ranks"]] ==
              [(rank, 4711 + 10 * rank, 2, "cuda-gdb") for rank in range(3)], "%r" % report["ranks"])
    report = json_report("report", *cuda_gdb(directory, ["nccl"] * 3, True))
    check(report["verdict"]["status"] == "symmetric", "%r" % report["verdict"])


def case_cuda_gdb_next_to_py_spy(directory):
    """As scripts that dump hung jobs name them: the Python frames of one, the GPUs of the other."""
    paths = []
    for rank, mode in enumerate(("nccl", "spin")):
        with open(os.path.join(GPU, mode + ".txt"), encoding="utf-8") as file:
            text = file.read()
        paths.append(os.path.join(directory, "rank%05d_pid%d.cuda-gdb" % (rank, 4711 + rank)))
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write("node-a\n" + text[text.index("== info cuda devices"):text.index("== info cuda blocks")] + "[Inferior 1 (process %d) detached]\n" % (4711 + rank))
        paths.append(paths[-1].replace("cuda-gdb", "pyspy"))
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write("node-a\nProcess %d: python3 train.py\nPython v3.11.2 (/usr/bin/python3)\n\nThread %d (active): \"MainThread\"\n    train (train.py:3)\n"
                       % (4711 + rank, 4711 + rank))
    report = json_report("report", *paths)
    check([(rank["rank"], rank["dumped_by"], [kernel["function"] for kernel in rank["gpus"][0]["execution"]["kernels"]]) for rank in report["ranks"]] ==
          [(0, "py-spy", ["ncclDevKernel_AllReduce_Sum_f32_RING_LL"]), (1, "py-spy", ["spin"])], "%r" % report["ranks"])


def case_cuda_gdb_reads_back_the_same(directory):
    saved = os.path.join(directory, "saved.json")
    first = json_report("report", *cuda_gdb(directory, ["nccl", "several", "illegal"], True))
    with open(saved, "w", encoding="utf-8") as file:
        json.dump(first, file)
    again = json_report("report", saved)
    for part in ("ranks", "gpu_clusters", "verdict"):
        check(first[part] == again[part], part)
    _, out, _ = run_tool("report", saved, "--threads", "all")
    for words in ("illegal<<<", " 0 warps", " 0 threads"):
        check(words not in text_of(out), "%r: %s" % (words, text_of(out)))
    check("#2   0x00007f6f7f7a7750 spin at kernels.cu:36" in text_of(out), text_of(out))


def case_torch_debug_server(directory):
    for name in ("stacks.txt", "stacks.html", "pyspy_dump.txt"):
        report = json_report("report", os.path.join(DUMPS, "torch-debug", name))
        check_culprit(report, name)
        check([rank["host"] for rank in report["ranks"]] == ["node-a"] * 3, name)
    partial = os.path.join(DUMPS, "torch-debug", "stacks-partial.txt")
    status, _, err = run_tool("report", partial)
    check(status == 1 and b"rank 2" in err, "%d %r" % (status, err))
    report = json_report("report", partial, expect=1)
    check([(rank["rank"], rank["status"], rank["world_size"]) for rank in report["ranks"]] == [(0, "complete", 3), (1, "complete", 3), (2, "failed", 3)], "%r" % report["ranks"])
    # A dump of that rank's from elsewhere takes the place of the missing answer.
    copy = os.path.join(directory, "rank2.log")
    shutil.copyfile(os.path.join(DUMPS, "faulthandler", "rank2.log"), copy)
    report = json_report("report", partial, copy)
    check([(rank["rank"], rank["status"]) for rank in report["ranks"]] == [(0, "complete"), (1, "complete"), (2, "complete")], "%r" % report["ranks"])


def case_two_dumps_of_each_rank(directory):
    report = json_report("report", *dumps_of("gdb"), *dumps_of("py-spy"))
    check_culprit(report, "gdb and py-spy")
    check(all(any("was left out" in problem["message"] for problem in rank["problems"]) for rank in report["ranks"]), "%r" % report["ranks"][0]["problems"])


def case_several_dumps_by_one_tool_show_what_moves(directory):
    """Rank 1's loader was at another line before: it may be slow. At the same line each time, it is accused as before."""
    earlier = []
    for path in dumps_of("py-spy"):
        copy = os.path.join(directory, "earlier-" + os.path.basename(path))
        shutil.copyfile(path, copy)
        earlier.append(copy)
    report = json_report("report", *earlier, *dumps_of("py-spy"))
    check_culprit(report, "the same twice")
    motion = report["ranks"][1]["threads"][0]["motion"]
    check(motion["looks"] == 2 and not motion["moved"] and "runs" not in motion and "span_ms" not in motion, "%r" % motion)
    with open(earlier[1], "r+", encoding="utf-8") as file:
        text = file.read().replace("train.py:23", "train.py:22")
        file.seek(0)
        file.write(text)
    report = json_report("report", *earlier, *dumps_of("py-spy"))
    check(report["ranks"][1]["threads"][0]["motion"]["moved"], "%r" % report["ranks"][1]["threads"][0])
    check(not report["verdict"]["suspects"], "%r" % report["verdict"])


def case_flight_recorders_alone(directory):
    """Dumps of PyTorch's Flight Recorder are what an old issue has, and nothing else."""
    files = [os.path.join(SOURCE, "fixtures", "flight_recorder", "other-collective_%d" % rank) for rank in (0, 1)]
    for found in (json_report("report", *files), json_report("report", *[path.replace("collective_", "collective.json_") for path in files])):
        verdict = found["verdict"]
        check(verdict["status"] == "culprit" and {s["reason"] for s in verdict["suspects"]} == {"collective-mismatch"}, str(verdict))
        check("_all_gather_base" in verdict["summary"] and "all_reduce" in verdict["summary"], verdict["summary"])
        check([rank["rank"] for rank in found["ranks"]] == [0, 1] and not any(rank["threads"] for rank in found["ranks"]), "the ranks")
    # A packed one is named after its rank, too. A number that is no rank of the group is something else.
    packed_by_rank = os.path.join(directory, "trace_1.gz")
    with open(files[1], "rb") as plain, gzip.open(packed_by_rank, "wb") as packed:
        packed.write(plain.read())
    check([rank["rank"] for rank in json_report("report", files[0], packed_by_rank)["ranks"]] == [0, 1], "a packed one with its rank")
    dated = shutil.copy(files[1], os.path.join(directory, "trace_20260131"))
    status, _, err = run_tool("report", dated)
    check(status == 2 and b"--ranks FILE=RANK" in err, err)
    # A name without a number, packed.
    named = os.path.join(directory, "trace.gz")
    with open(files[1], "rb") as plain, gzip.open(named, "wb") as packed:
        packed.write(plain.read())
    check(json_report("report", files[0], named, "--ranks", named + "=1")["verdict"]["status"] == "culprit", "a packed one")
    status, _, err = run_tool("report", named)
    check(status == 2 and b"--ranks FILE=RANK" in err, err)
    # With the stacks of the same ranks, in one and in two dumps of each, and with a saved report.
    stacks = [os.path.join(SOURCE, "fixtures", "dumps", "py-spy", "rank%d.txt" % rank) for rank in (0, 1)]
    again = [shutil.copy(path, directory) for path in stacks]
    saved = os.path.join(directory, "saved.json")
    with open(saved, "w", encoding="utf-8") as out:
        json.dump(json_report("report", *stacks), out)
    for given in (stacks, stacks + again, [saved]):
        both = json_report("report", *given, *files)
        check(len(both["ranks"]) == 2 and all(rank["threads"] and "flight_recorder" in rank for rank in both["ranks"]), "stacks and records: %r" % given)


def case_other_files_are_refused(directory):
    path = os.path.join(directory, "notes.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("the job hangs\n")
    status, out, err = run_tool("report", path)
    check((status, out) == (2, b"") and b"not a JSON report" in err and b"hint: " in err and b"py-spy" in err, "%d %r" % (status, err))


def case_dumps_that_failed(directory):
    """The tool was to dump a process and could not: the file says so, or nothing; what others wrote is shown."""
    good = shutil.copy(os.path.join(SOURCE, "fixtures", "dumps", "py-spy", "rank0.txt"), directory)
    for name, text, said in (("empty.txt", "", b"empty.txt: the file is empty"),
                             ("rank1.txt", "The frame stack for thread 3864 is empty\n", b"rank1.txt: pystack has failed at a thread without frames")):
        path = os.path.join(directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        status, out, err = run_tool("report", path)
        check((status, out) == (2, b"") and said in err and b"hint: dump it once more" in err, "%d %r" % (status, err))
        status, out, err = run_tool("report", good, path)
        check(status == 1 and b"1 rank" in out and said in err, "%d %r %r" % (status, out, err))


def case_hostile_text(directory):
    """Control characters, endless names, a million threads: bounded, and shown so that no terminal acts on it."""
    path = os.path.join(directory, "rank1.txt")
    with open(path, "wb") as file:
        file.write(b"Thread 1 (idle): \"\x1b[31mM\"\n    \x1b]0;x\x07" + b"f" * 100000 + b" (a.py:1)\n    \xff\xfe (b.py:2)\n")
        file.write(b"".join(b"Thread %d (idle)\n    f (a.py:1)\n" % number for number in range(2, 40000)))
    report = json_report("report", path)
    check(len(report["ranks"][0]["threads"]) == 16384, "%d threads" % len(report["ranks"][0]["threads"]))
    check(any(problem["code"] == "limit" for problem in report["ranks"][0]["problems"]), "%r" % report["ranks"][0]["problems"])
    _, out, _ = run_tool("report", path)
    text_of(out)


def case_redacted(directory):
    path = os.path.join(directory, "rank0.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("Process 7: python3 train.py --api-key sk-abcdefghijklmnopqrstuvwxyz0123456789\nPython v3.11.2 (/home/frida/bin/python3)\n\n"
                   "Thread 7 (idle): \"MainThread\"\n    load (/home/frida/secret-project/train.py:3)\n")
    _, out, _ = run_tool("report", path, "--format", "json", "--redact")
    for private in ("frida", "sk-abcdefghijklmnop"):
        check(private not in out.decode(), "%s is shown: %s" % (private, out.decode()))
    check(json.loads(out)["ranks"][0]["dumped_by"] == "py-spy", "the tool's name is gone")


def case_real_tools(directory):
    """The tools that are installed, on a process that waits: the file names its pid, and its innermost Python function."""
    commands = {"gdb": ["-nx", "-batch", "-ex", "thread apply all bt", "-p"], "eu-stack": ["-m", "-p"], "py-spy": ["dump", "--pid"], "pystack": ["remote"]}
    found = [name for name in commands if shutil.which(name)]
    if not found:
        print("none of these is installed: " + ", ".join(commands))
        sys.exit(77)
    with Fixture([sys.executable, "-c", PROGRAM]) as process:
        for name in found:
            path = os.path.join(directory, name + ".txt")
            with open(path, "wb") as out:
                subprocess.run([name, *commands[name], str(process.pid)], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, timeout=60, check=False)
            rank = json_report("report", path)["ranks"][0]
            check((rank["pid"], rank["dumped_by"], rank["threads"][0]["tid"]) == (process.pid, name, process.pid), "%s: %r" % (name, rank))
            functions = [frame["function"] for frame in rank["threads"][0]["frames"]]
            check("waits" in functions if name in ("py-spy", "pystack") else any("read" in (function or "") for function in functions), "%s: %r" % (name, functions))


if __name__ == "__main__":
    cases.run(globals(), "dumps")
