"""Python fixtures under one CPython: the reports of the live processes and of their cores are compared with sys._current_frames() and gdb.

    truth_python.py FIXTURES VERSION [gcore]
                                           FIXTURES: files of fixtures/python without .py, separated by commas, or all;
                                           VERSION: 3.6 ... 3.15, system, 3.14t (free-threaded), 3.14jit (with its JIT compiler turned on);
                                           gcore: the cores are those of gdb's gcore, else the kernel's where it writes them here
"""
import glob
import os
import re
import resource
import signal
import sys
import time

import debugger
import interpreters
from processes import Attempts, Failure, Fixture, Skip, check, json_report, main

FIXTURES = os.path.join(interpreters.ROOT, "fixtures", "python")


def shown(text):
    """The text as the report has it: what is no character in the target is U+FFFD."""
    return None if text is None else re.sub("[\ud800-\udfff]", "\ufffd", text)


def python_frames(thread):
    return [[frame["function"], frame["file"], frame["line"], frame["qualname"]] for frame in thread["frames"] if frame["kind"] == "python"]


def describe(frames):
    return "\n".join("      %s" % (frame,) for frame in frames) or "      (none)"


def pair_threads(truth, threads):
    """[(truth of a thread, the report's thread)]: matched by tid; a thread without one in the truth is matched by its frames."""
    by_tid = {thread["tid"]: thread for thread in threads}
    pairs = []
    for expected in truth["threads"]:
        tid = expected["native_id"]
        if tid is None:
            candidates = [thread for thread in threads if python_frames(thread) == [[shown(part) if isinstance(part, str) else part for part in frame]
                                                                                     for frame in expected["frames"]]]
            check(candidates, "no thread has the frames\n" + describe(expected["frames"]))
            pairs.append((expected, candidates[0]))
        else:
            check(tid in by_tid, "thread %d is not in the report" % tid)
            pairs.append((expected, by_tid[tid]))
    return pairs


def compare_handled(expected, thread, where):
    """Compares what the thread handles with sys.exc_info() in that thread, or with sys._current_exceptions() if other threads can be
    asked."""
    got = thread.get("handles")
    if expected is None or got is None:
        check(expected is None and got is None, "%s: handles %r instead of %r" % (where, got, expected))
        return
    truth = dict(expected)
    for name in ("handler", "raised"):
        if name in truth:
            frame = got[name]
            place = None if frame is None else [frame["function"], frame["file"], frame["line"]]
            check(place == truth[name], "%s: %s at %r instead of %r" % (where, name, place, truth[name]))
    for name in ("type", "message"):
        check(got[name] == shown(truth[name]), "%s: the %s is %r instead of %r" % (where, name, got[name], truth[name]))
    if "depth" not in truth:
        return
    depth = None
    if got["frame"] is not None:
        depth = sum(frame["kind"] == "python" for frame in thread["frames"][got["frame"] + 1:])
        frame = thread["frames"][got["frame"]]
        check([frame["function"], frame["file"]] == truth["handler"][:2], "%s: handled in %r instead of %r" % (where, frame, truth["handler"]))
    check(depth == truth["depth"], "%s: handled in the frame with %r outside of it instead of %r" % (where, depth, truth["depth"]))


def compare_lock(expected, thread, where):
    lock = thread.get("python_lock")
    got = lock and {name: lock.get(name) for name in ("type", "name", "owner")}
    check(got == expected["lock"], "%s: waits for the lock %r instead of %r" % (where, got, expected["lock"]))
    check(thread.get("joins") == expected["joins"], "%s: joins %r instead of %r" % (where, thread.get("joins"), expected["joins"]))


def compare(truth, rank, where, jit=False):
    check(rank["status"] == "complete", "%s: the rank is %s: %s" % (where, rank["status"], rank["problems"]))
    check(rank["python"] and rank["python"]["version"] == truth["python"], "%s: Python %r instead of %s" % (where, rank["python"], truth["python"]))
    compared = set()
    for expected, thread in pair_threads(truth, rank["threads"]):
        compared.add(thread["tid"])
        frames = [[shown(part) if isinstance(part, str) else part for part in frame] for frame in expected["frames"]]
        got = python_frames(thread)
        if got != frames:
            at = next((i for i, pair in enumerate(zip(got, frames)) if pair[0] != pair[1]), min(len(got), len(frames)))
            raise Failure("%s: tid %d differs at Python frame %d (%d frames, %d true ones)\n    the report:\n%s\n    the truth:\n%s"
                          % (where, thread["tid"], at, len(got), len(frames), describe(got[at:at + 4]), describe(frames[at:at + 4])))
        python = thread.get("python_thread")
        named = {"id": "0x%x" % expected["ident"], "name": expected["name"] and shown(expected["name"])} if "name" in expected else python
        check(python == named, "%s: tid %d is %r to Python instead of %r" % (where, thread["tid"], python, named))
        if "handles" in expected:
            compare_handled(expected["handles"], thread, "%s: tid %d, in %s" % (where, thread["tid"], " < ".join(frame[0] for frame in frames[:4])))
        if "lock" in expected:
            compare_lock(expected, thread, "%s: tid %d, in %s" % (where, thread["tid"], " < ".join(frame[0] for frame in frames[:4])))
        if thread["stack_end"] == "no-unwind-info" and jit:
            # Code that CPython's JIT compiler made has no unwind information: the frames outside of it are listed separately, and a problem
            # says so. If there are many such threads, the message names the first one.
            check(any((str(thread["tid"]) in p["message"] or " more: " in p["message"]) and "outside the native stack" in p["message"] for p in rank["problems"]),
                  "%s: tid %d: that its native stack ends in compiled code is not said: %r" % (where, thread["tid"], rank["problems"]))
            continue
        check(thread["stack_end"] == "complete", "%s: tid %d ends with %s" % (where, thread["tid"], thread["stack_end"]))
    without = [thread for thread in rank["threads"] if thread["tid"] not in compared]
    for thread in without:
        check(not python_frames(thread), "%s: tid %d should have no Python frames:\n%s" % (where, thread["tid"], describe(python_frames(thread))))
    check(len(without) >= truth.get("without_python", 0), "%s: the thread without Python is missing" % where)
    if "merged" in truth:
        main_thread = next(thread for thread in rank["threads"] if thread["tid"] == rank["pid"])
        wanted = list(truth["merged"])
        for frame in main_thread["frames"]:
            name = re.split("[@(]", frame["function"] or "")[0]
            # A stripped libc names few of its frames (qsort itself only jumps on): there only the module is known.
            in_libc = os.path.basename(frame.get("module") or "").startswith("libc.so")
            if wanted and ([frame["kind"], name] == wanted[0] or (in_libc and wanted[0] == ["native", "libc"])):
                wanted.pop(0)
        check(not wanted, "%s: not in its place between the other frames: %s" % (where, wanted[:1]))
    if "variables" in truth:
        found = {}
        for thread in rank["threads"]:
            for variables in thread.get("variables", []):
                frame = thread["frames"][variables["frame"]]
                if os.path.basename(frame["file"]) != "truth.py":
                    found[frame["function"]] = variables["numbers"]
        loops = {thread["frames"][v["frame"]]["function"] for thread in rank["threads"] for v in thread.get("variables", []) if v.get("in_loop")}
        check(loops == set(truth["in_loop"]), "%s: in a loop are %r instead of %r" % (where, sorted(loops), truth["in_loop"]))
        check(found == truth["variables"], "%s: the frames' variables are\n    %r instead of\n    %r" % (where, found, truth["variables"]))
    if truth.get("without_gil"):
        gil = {thread["tid"]: thread["gil"] for thread in rank["threads"]}
        check(set(gil.values()) == {None}, "%s: there is no GIL, and somebody has to do with it: %r" % (where, gil))
    if "gil" in truth and rank["source"] == "live":
        gil = {thread["tid"]: thread["gil"] for thread in rank["threads"]}
        check(gil[truth["gil"]["holds"]] == "holds", "%s: the holder of the GIL is not named: %r" % (where, gil))
        for tid in truth["gil"]["waits"]:
            check(gil[tid] == "waits", "%s: the thread that waits for the GIL is not named: %r" % (where, gil))
        check(list(gil.values()).count("holds") == 1, "%s: several hold the GIL: %r" % (where, gil))


def only_rank(report, pid):
    ranks = [rank for rank in report["ranks"] if rank["pid"] == pid]
    check(len(ranks) == 1, "the report has %d ranks with pid %d" % (len(ranks), pid))
    return ranks[0]


def helper_is_back(pid):
    """Waits until the fixture's helper, which has just answered, blocks in its read() of standard input again."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/syscall" % (pid, task), encoding="ascii") as stream:
                if stream.read().startswith("0 0x0 "):
                    return
        time.sleep(0.005)
    raise Failure("the fixture's helper does not read standard input again")


def kernel_writes_cores(interpreter):
    """Whether the cores can be the kernel's.

    They are small: gcore writes the unused parts of all stacks. And gcore (gdb 12 to 16) leaves a thread's whole stack zero if its
    guard is made by MADV_GUARD_INSTALL, as glibc 2.42 does: so the interpreters with a C library of their own need the kernel's.
    """
    with open("/proc/sys/kernel/core_pattern", encoding="ascii") as stream:
        pattern = stream.read().strip()
    plain = not pattern.startswith("|") and "/" not in pattern and resource.getrlimit(resource.RLIMIT_CORE)[1] == resource.RLIM_INFINITY
    if interpreter.sysroot and not plain:
        raise Skip("this machine's cores go to %r, or their size is limited" % pattern)
    return plain


def kernel_core(fixture, place):
    """Ends the fixture by SIGABRT and returns the path of the core that the kernel writes, in the fixture's directory."""
    helper_is_back(fixture.pid)
    os.kill(fixture.pid, signal.SIGABRT)
    fixture.process.wait(timeout=60)
    cores = [entry for entry in os.listdir(place) if entry.startswith("core")]
    check(cores, "the kernel has written no core")
    return os.path.join(place, cores[0])


class Sampled:
    """A fixture as the tool has seen it alive, and its core."""

    def __init__(self, directory, name, interpreter, programs, of_kernel):
        self.name, self.of_kernel = name, of_kernel
        self.jit = "PYTHON_JIT" in interpreter.environment
        place = os.path.join(os.path.dirname(programs) if interpreter.sysroot else directory, "core-of-" + name)
        os.mkdir(place)
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONIOENCODING="utf-8", **interpreter.environment)
        environment.pop("PYTHONPATH", None)
        options = interpreter.in_directory(place) if of_kernel else {}
        with Fixture(interpreter.run(os.path.join(programs, name + ".py")), env=environment, **options) as fixture:
            self.truth = fixture.ready
            self.live = only_rank(json_report("attach", "--pids", fixture.pid), fixture.pid)
            compare(self.truth, self.live, "live", self.jit)
            if of_kernel:
                fixture.check_unharmed()
                self.core = kernel_core(fixture, place)
            else:
                self.core = os.path.join(place, "core")
                debugger.write_core(fixture.pid, self.core)
                fixture.check_unharmed()

    def compare_core(self, rank, stacks, stripped):
        """With the truth, with gdb's stacks of the core, and with what was seen when it was alive."""
        compare(self.truth, rank, "core", self.jit)
        for thread in rank["threads"]:
            check(thread["tid"] in stacks, "gdb knows no thread %d" % thread["tid"])
            if thread["stack_end"] != "complete" and self.jit:
                continue
            difference = debugger.agree(thread, stacks[thread["tid"]], stripped)
            check(difference is None, "core: " + str(difference))
        at_rest = {thread["tid"]: [frame.get("address") for frame in thread["frames"]] for thread in self.live["threads"]}
        # Before the kernel's core the thread that reads standard input has answered, and may have called read() from specialised code.
        answers = {thread["tid"] for thread in self.live["threads"] if thread["syscall"] and thread["syscall"]["number"] == 0 and thread["syscall"]["fd"] == 0}
        for thread in rank["threads"]:
            if self.of_kernel and thread["tid"] in answers:
                continue
            addresses = [frame.get("address") for frame in thread["frames"]]
            check(at_rest.get(thread["tid"]) == addresses, "tid %d: live and core differ, and it has not moved:\n    live %r\n    core %r"
                  % (thread["tid"], at_rest.get(thread["tid"]), addresses))


def test(directory, names, version, writer=None):
    interpreter = interpreters.find(version)
    of_kernel = writer != "gcore" and kernel_writes_cores(interpreter)
    names = names.split(",")
    if names == ["all"]:
        names = sorted(os.path.basename(path)[:-len(".py")] for path in glob.glob(os.path.join(FIXTURES, "*.py")))
    attempts = Attempts()
    with interpreters.inside(interpreter, FIXTURES) as programs:
        sampled = [attempts.make(name, lambda name=name: Sampled(directory, name, interpreter, programs, of_kernel)) for name in names if name != "truth"]
        sampled = [one for one in sampled if one is not None]
        if sampled:
            # One gdb and one run of the tool for all cores: both read the interpreter's files once.
            cores = [one.core for one in sampled]
            stacks = debugger.stacks_in_cores(cores, interpreter.path, interpreter.sysroot)
            report = json_report("core", *cores, *(["--sysroot", interpreter.sysroot] if interpreter.sysroot else []))
            for one, stacks_of_one in zip(sampled, stacks):
                rank = only_rank(report, one.truth["pid"])
                attempts.make(one.name, lambda one=one, rank=rank, found=stacks_of_one: one.compare_core(rank, found, interpreter.stripped))
    attempts.finish()
    if not sampled:
        raise Skip("; ".join(attempts.skipped))
    print("%d fixtures" % len(sampled))


if __name__ == "__main__":
    sys.exit(main(test, "python", sys.argv[1:]))
