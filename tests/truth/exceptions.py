"""Why a thread ends its process: C++ exceptions read from live processes and from cores."""
import os
import subprocess

import cases
import debugger
from command_line import native
from core_files import core_of, kernel_core
from processes import Fixture, check, json_report, run_tool, wait_until
from truth_native import compare
from truth_python import only_rank

RUNTIME = {"type": "std::runtime_error", "what": "NCCL communicator was aborted on rank 3"}
WATCHDOG = {"type": "c10::DistBackendError",
            "what": "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE)\nand more",
            "cause": "timeout"}
OWN_GPU = {"type": "c10::DistBackendError", "cause": "own-gpu",
           "what": "[PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with exception: "
                   "CUDA error: an illegal memory access was encountered\nand more"}
REPORTER = "only reports it"


def check_rank(report, truth, expected, source):
    rank = only_rank(report, truth["pid"])
    for thread in rank["threads"]:
        wanted = expected if thread["tid"] == truth["watchdog"] else None
        check(thread.get("exception") == wanted, "%s: tid %d: %r" % (source, thread["tid"], thread.get("exception")))
        if thread["tid"] == truth["watchdog"]:
            check(thread["role"] == "nccl-watchdog", "%s: the role: %r" % (source, thread["role"]))
    summary = report["verdict"]["summary"]
    check(REPORTER in summary, "%s: the verdict does not call it the reporter: %r" % (source, summary))
    if expected:
        check("with %s: %s" % (expected["type"], expected["what"].split("\n")[0]) in summary and "and more" not in summary, "%s: %r" % (source, summary))
    return rank


def live_and_core(directory, way, expected, program="terminates"):
    with native(program, way, stderr=subprocess.DEVNULL) as fixture:
        check_rank(json_report("attach", "--pids", str(fixture.pid)), fixture.ready, expected, "live")
        core = core_of(fixture, directory)
        fixture.check_unharmed()
    rank = check_rank(json_report("core", core), fixture.ready, expected, "core")
    compare(fixture.ready, rank, "core")


def case_runtime_error(directory):
    live_and_core(directory, "runtime", RUNTIME)


def case_thrown_again_as_the_watchdog_does(directory):
    live_and_core(directory, "watchdog", WATCHDOG)


def case_strings_of_the_old_abi(directory):
    live_and_core(directory, "watchdog", WATCHDOG, "terminates_old_strings")


def case_aborts_without_an_exception(directory):
    """abort() inside of a catch block: the exception that the block handles is not what ends the process."""
    live_and_core(directory, "plain", None)


def case_kernel_core(directory):
    truth, core = kernel_core(directory, "terminates", "watchdog", "dies")
    report = json_report("core", core)
    rank = check_rank(report, truth, WATCHDOG, "core")
    check(rank["signal"] and rank["signal"]["name"] == "SIGABRT" and rank["signal"]["tid"] == truth["watchdog"], "the signal: %r" % rank["signal"])
    check(not report["verdict"]["suspects"], "the watchdog is accused: %r" % report["verdict"]["suspects"])


def check_own_gpu(report, truth, reason, source):
    rank = only_rank(report, truth["pid"])
    found = [thread["exception"] for thread in rank["threads"] if "exception" in thread]
    check(found == [OWN_GPU], "%s: %r" % (source, found))
    suspects = report["verdict"]["suspects"]
    accused = [(suspect["rank"], suspect["reason"]) for suspect in suspects]
    check(accused == [(3, reason)], "%s: suspects %r" % (source, suspects))
    summary = report["verdict"]["summary"]
    check(REPORTER not in summary and "an illegal memory access" in summary, "%s: %r" % (source, summary))


def case_error_of_its_own_gpu(directory):
    """The watchdog rethrows the error of its own process's GPU work: this rank is the one that failed."""
    rank = {"RANK": "3", "WORLD_SIZE": "4"}
    with native("terminates", "gpu", stderr=subprocess.DEVNULL, env=dict(os.environ, **rank)) as fixture:
        check_own_gpu(json_report("attach", "--pids", str(fixture.pid)), fixture.ready, "exception", "live")
        fixture.check_unharmed()
    os.environ.update(rank)
    try:
        truth, core = kernel_core(directory, "terminates", "gpu", "dies")
    finally:
        for name in rank:
            del os.environ[name]
    check_own_gpu(json_report("core", core), truth, "crashed", "core")


def case_in_words(directory):
    with native("terminates", "watchdog", stderr=subprocess.DEVNULL) as fixture:
        _, out, _ = run_tool("attach", "--pids", str(fixture.pid), "--threads", "all")
    text = " ".join(out.decode().split())
    check("terminates with c10::DistBackendError: [Rank 3] Watchdog caught" in text and REPORTER in text, text)


# A Python thread calls into PyTorch's own library, which throws; nothing above ctypes catches that. pause() replaces a handler of SIGABRT.
TORCH = """
import ctypes, glob, json, os, signal, sys, threading
try:
    import torch
except ImportError:
    print(json.dumps({"skip": "this interpreter has no torch"}), flush=True)
    sys.exit()
directory = os.path.join(os.path.dirname(torch.__file__), "lib")
c10 = ctypes.CDLL(os.path.join(directory, "libc10.so"))
fail = getattr(c10, "_ZN3c106detail14torchCheckFailEPKcS2_jS2_", None)
libc = ctypes.CDLL(None)
libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.signal(signal.SIGABRT, ctypes.cast(libc.pause, ctypes.c_void_p))
libc.prctl(15, b"pt_nccl_watchdg")
def die():
    libc.prctl(15, b"pt_nccl_watchdg")
    print(json.dumps({"ready": True, "pid": os.getpid(), "watchdog": threading.get_native_id(), "runs": True}), flush=True)
    fail(b"watch", b"ProcessGroup.cpp", 42, b"collective timed out: SeqNum=7")
threading.Thread(target=die, daemon=True).start()
sys.stdin.readline()
os._exit(0)
"""


def case_torch(directory):
    """An exception of a real PyTorch, of the version that the interpreter has."""
    interpreter = os.environ.get("RANKSTACKS_TORCH_PYTHON", "/usr/bin/python3")
    with Fixture([interpreter, "-c", TORCH], stderr=subprocess.DEVNULL) as fixture:
        truth = fixture.ready
        path = "/proc/%d/task/%d/stat" % (truth["pid"], truth["watchdog"])
        wait_until(lambda: in_pause(path), "the thread hangs in the handler of SIGABRT")
        exception = exception_of(json_report("attach", "--pids", str(truth["pid"])), truth)
        check(exception["type"] == "c10::Error" and exception["what"].startswith("collective timed out: SeqNum=7"), "live: %r" % exception)
        core = os.path.join(directory, "core")
        debugger.write_core(truth["pid"], core)
    check(exception_of(json_report("core", core), truth) == exception, "the core has another exception")


def in_pause(path):
    with open(os.path.join(os.path.dirname(path), "syscall"), encoding="ascii") as stream:
        return stream.read().split()[0] == "34"


def exception_of(report, truth):
    rank = only_rank(report, truth["pid"])
    found = [thread.get("exception") for thread in rank["threads"] if thread["tid"] == truth["watchdog"]]
    check(found and found[0], "the thread has no exception")
    check([thread["tid"] for thread in rank["threads"] if "exception" in thread] == [truth["watchdog"]], "other threads have exceptions")
    return found[0]


if __name__ == "__main__":
    cases.run(globals(), "exceptions")
