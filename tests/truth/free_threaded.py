"""Free-threaded CPythons (3.14 and newer), by their own headers: Debian has no such interpreter, so a model makes the memory of one.

fixtures/native/free_threaded_model.c is compiled against the headers of each version with Py_GIL_DISABLED: the structures, and the table of offsets
that the process contains, are CPython's own. If a free-threaded interpreter is available, truth_python.py runs all fixtures in it.
"""
import os
import resource
import shutil
import subprocess

import cases
import debugger
import interpreters
from processes import Fixture, Skip, check, json_report
from truth_python import compare, only_rank

SOURCE = os.path.join(interpreters.ROOT, "fixtures", "native", "free_threaded_model.c")
MEMORY = 1 << 30               # limit of the tool: it needs 65 MiB for these frames; copies of all arrays would take 10 GiB


def model(directory, version):
    interpreters.unpacked(version)                       # raises Skip with the reason if it is missing
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        raise Skip("no C compiler on this machine")
    include = os.path.join(interpreters.NEWER, "root", "usr", "include")
    python = os.path.join(include, "python" + version)
    program = os.path.join(directory, "free_threaded_model")
    done = subprocess.run([compiler, "-O1", "-g0", "-w", "-pthread", "-DPy_GIL_DISABLED=1", "-I", python, "-I", os.path.join(python, "internal"), "-I", include,
                           "-o", program, SOURCE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    check(done.returncode == 0, "the headers of CPython %s have changed:\n%s" % (version, done.stdout.decode(errors="replace")[-3000:]))
    return program


def check_model(directory, version):
    program = model(directory, version)
    core = os.path.join(directory, "core")
    for threads in (3, 40):
        with Fixture([program, str(threads)]) as fixture:
            truth = fixture.ready
            check(len(truth["threads"]) == threads, "the model has %d threads" % len(truth["threads"]))
            compare(truth, only_rank(json_report("attach", "--pids", fixture.pid), fixture.pid), "live")
            debugger.write_core(fixture.pid, core)
            fixture.check_unharmed()
        compare(truth, only_rank(json_report("core", core), truth["pid"]), "core")
        os.unlink(core)


def case_of_the_headers_3_14(directory):
    check_model(directory, "3.14")


def case_of_the_headers_3_15(directory):
    check_model(directory, "3.15")


def case_hostile_copies(directory):
    """20,000 code objects share an array of 65,536 copies: the memory for them must grow with the number of frames, not with frames times
    copies. Every second frame names a copy that its instruction is not in, so that its array is searched: that is bounded as well."""
    program = model(directory, "3.15")
    frames = 20000
    with Fixture([program, "3", str(frames)]) as fixture:
        rank = only_rank(json_report("attach", "--pids", fixture.pid, expect=1), fixture.pid)
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
        check(most < MEMORY, "the tool took %d MiB" % (most >> 20))
        check(rank["status"] == "partial", "a hostile rank is %s" % rank["status"])
        check(len(rank["problems"]) < 10, "each frame is complained of: %d problems" % len(rank["problems"]))
        main_thread = next(thread for thread in rank["threads"] if thread["tid"] == fixture.pid)
        shown = [frame for frame in main_thread["frames"] if frame["kind"] == "python" and frame["function"] == "leaf"]
        check(len(shown) >= frames, "of %d frames %d are shown" % (frames, len(shown)))
        fixture.check_unharmed()


if __name__ == "__main__":
    cases.run(globals(), "free_threaded")
