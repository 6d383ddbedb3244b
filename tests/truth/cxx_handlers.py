"""C++ exceptions that threads handle, or that are on their way while they clean up, in live processes and in cores."""
import os
import subprocess

import cases
import libcxx
from core_files import core_of, kernel_core
from processes import Fixture, check, json_report, run_tool
from truth_native import compare
from truth_python import only_rank


def name_of(frame):
    """The compiler puts catch blocks into a part of the function of its own."""
    return (frame["function"] or "?").replace(" [clone .cold]", "")


def check_threads(report, truth, source):
    rank = only_rank(report, truth["pid"])
    expected = {one["tid"]: one for one in truth["exceptions"]}
    check(len(expected) == len(truth["threads"]) - 1, "%s: %r" % (source, truth))
    for thread in rank["threads"]:
        wanted = expected.get(thread["tid"], {"handles": None, "raises": None})
        check("exception" not in thread, "%s: tid %d ends by an exception: %r" % (source, thread["tid"], thread))
        for key, found in (("handles", thread.get("handles_cxx")), ("raises", thread.get("raises_cxx"))):
            if found is not None:
                check(found["frame"] is not None, "%s: %r has no frame" % (source, found))
                found = {"type": found["type"], "what": found["what"], "in": name_of(thread["frames"][found["frame"]])}
            check(found == wanted[key], "%s: tid %d %s %r, not %r; %r" % (source, thread["tid"], key, found, wanted[key], [name_of(frame) for frame in thread["frames"]]))
    check(not any(suspect["reason"] == "crashed" for suspect in report["verdict"]["suspects"]) or source == "kernel core", "%s: %r" % (source, report["verdict"]))
    return rank


def check_program(directory, program):
    with Fixture([program], stderr=subprocess.DEVNULL) as fixture:
        check_threads(json_report("attach", "--pids", fixture.pid), fixture.ready, "live")
        _, out, _ = run_tool("attach", "--pids", fixture.pid, "--threads", "all")
        core = core_of(fixture, directory)
        fixture.check_unharmed()
    text = " ".join(out.decode().split())
    for words in ("handles std::runtime_error: no such shard", "handles int: 42", "has raised std::runtime_error: on its way"):
        check(words in text, "%r is not in the text: %s" % (words, text))
    check("terminates with" not in text, text)
    compare(fixture.ready, check_threads(json_report("core", core), fixture.ready, "core"), "core")


def check_kernel_core(directory, program):
    truth, core = kernel_core(directory, None, command=[program, "dies"])
    rank = check_threads(json_report("core", core), truth, "kernel core")
    check(rank["signal"]["name"] == "SIGABRT" and rank["signal"]["tid"] == truth["pid"], "%r" % rank["signal"])
    compare(truth, rank, "core")


def case_live_and_core(directory):
    check_program(directory, native_path())


def case_kernel_core(directory):
    check_kernel_core(directory, native_path())


def native_path():
    return os.path.join(os.environ["RANKSTACKS_FIXTURES"], "handles")


def with_libcxx(directory, compiler, version):
    program = libcxx.build_with(directory, compiler, version, "handles")
    check_program(directory, program)
    place = os.path.join(directory, "kernel")
    os.mkdir(place)
    check_kernel_core(place, program)


def case_llvm_14_with_gcc(directory):
    with_libcxx(directory, "g++", "14")


def case_llvm_19_with_gcc(directory):
    with_libcxx(directory, "g++", "19")


def case_llvm_19_with_clang(directory):
    with_libcxx(directory, "clang++", "19")


if __name__ == "__main__":
    cases.run(globals(), "cxx_handlers")
