"""Inlined functions of a real process whose debug information is split: .dwo files, and a .dwp package."""
import os
import shutil
import subprocess

import cases
import debugger
from command_line import SOURCE
from processes import Fixture, Skip, check, json_report
from truth_native import check_against_gdb, compare
from truth_python import only_rank


def split_program(directory, version):
    """fixtures/native/inlined.c with an object file of its own, so that the .dwo is in another directory than the program."""
    objects = os.path.join(directory, "objects")
    program = os.path.join(directory, "bin", "inlined")
    os.makedirs(objects)
    os.makedirs(os.path.dirname(program))
    source = os.path.join(SOURCE, "fixtures", "native", "inlined.c")
    flags = ["-O2", "-g", "-gdwarf-%d" % version, "-gsplit-dwarf", "-fPIE"]
    subprocess.run(["gcc"] + flags + ["-c", source, "-o", "inlined.o"], cwd=objects, check=True)
    subprocess.run(["gcc", "-pie", "-pthread", os.path.join(objects, "inlined.o"), "-o", program], check=True)
    return program


def looked_at(directory, program):
    core = os.path.join(directory, "core")
    with Fixture([program]) as fixture:
        live = only_rank(json_report("attach", "--pids", fixture.pid), fixture.pid)
        compare(fixture.ready, live, "live")
        stacks = debugger.take_core(fixture, core)
        fixture.check_unharmed()
    rank = only_rank(json_report("core", core), fixture.pid)
    compare(fixture.ready, rank, "core")
    check_against_gdb(rank, stacks)
    problems = live["problems"] + rank["problems"]
    check(problems == [], "problems: %r" % problems)
    for thread in rank["threads"]:
        # Only the program itself: the machine's C library may have debug information as well.
        inlined = [frame for frame in thread["frames"] if frame["inlined"] and frame["module"].endswith("/inlined")]
        check(all(frame["file"].endswith(("/inlined.c", "/ready.h")) and frame["line"] for frame in inlined),
              "without a place: %r" % inlined)


def case_dwo_of_dwarf_4(directory):
    looked_at(directory, split_program(directory, 4))


def case_dwo_of_dwarf_5(directory):
    looked_at(directory, split_program(directory, 5))


def case_package(directory):
    program = split_program(directory, 4)
    if not shutil.which("dwp"):
        raise Skip("no dwp on this machine")
    subprocess.run(["dwp", "-e", program, "-o", program + ".dwp"], cwd=os.path.join(directory, "objects"), check=True)
    shutil.rmtree(os.path.join(directory, "objects"))
    looked_at(directory, program)


def case_package_of_another_build(directory):
    """Its units have other ids: none is used, and the problem is reported."""
    program = split_program(directory, 4)
    if not shutil.which("dwp"):
        raise Skip("no dwp on this machine")
    other = os.path.join(directory, "other")
    os.makedirs(other)
    flags = ["-g", "-gdwarf-4", "-gsplit-dwarf", "-shared", "-fPIC"]
    subprocess.run(["gcc"] + flags + ["-x", "c", "-", "-o", "other.so"], cwd=other, check=True,
                   input=b"int other(int x) { return x + 1; }")
    subprocess.run(["dwp", "-e", "other.so", "-o", program + ".dwp"], cwd=other, check=True)
    shutil.rmtree(os.path.join(directory, "objects"))
    with Fixture([program]) as fixture:
        rank = only_rank(json_report("attach", "--pids", fixture.pid), fixture.pid)
    check(rank["status"] == "complete", "the rank is %s" % rank["status"])
    check(any("their split debug information is not there" in problem["message"] for problem in rank["problems"]),
          "%r" % rank["problems"])
    frames = [frame for thread in rank["threads"] for frame in thread["frames"]]
    check(not any(frame["inlined"] and (frame["module"] or "").endswith("/bin/inlined") for frame in frames), "inlined")


if __name__ == "__main__":
    cases.run(globals(), "split_dwarf")
