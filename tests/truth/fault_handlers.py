"""Python's faulthandler in every CPython: the fault for which it has raised the signal again, what it is enabled for, its thread."""
import os
import signal
import subprocess

import cases
import interpreters
from captures import captured
from processes import Fixture, Skip, check, json_report, run_tool
from truth_python import only_rank

VERSIONS = ("system", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15", "3.14t", "3.15t")

PROGRAM = r"""
import ctypes, faulthandler, json, os, signal, sys, threading
ways = sys.argv[1:]
target = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "stacks.txt"), "w")
if "enabled" in ways:
    faulthandler.enable(target)
if "later" in ways:
    faulthandler.dump_traceback_later(1000, repeat=True, file=target)
if "disabled" in ways:
    faulthandler.enable(target)
    faulthandler.disable()
print(json.dumps({"pid": os.getpid(), "descriptor": target.fileno()}), flush=True)
def overflow():
    call()
call = ctypes.CFUNCTYPE(None)(overflow)
def die(way):
    if way == "null": ctypes.string_at(0x18)
    if way == "write": ctypes.memmove(0x7fff00000000 - 64, b"x", 1)
    if way == "wild": ctypes.string_at(0xdeadbeefdeadbeef)
    if way == "abort": os.abort()
    if way == "sent": os.kill(os.getpid(), signal.SIGSEGV)
    if way == "overflow":
        sys.setrecursionlimit(10 ** 6)
        overflow()
while True:
    line = os.read(0, 100)
    if line == b"go\n":
        die(ways[0])
    if not line: break
    os.write(1, b"alive\n")
"""
FATAL = ["SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGSEGV"]


def written(directory):
    program = os.path.join(directory, "dies.py")
    if not os.path.exists(program):
        os.makedirs(directory, exist_ok=True)
        with open(program, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
    return program


def core_pattern_is_plain():
    with open("/proc/sys/kernel/core_pattern", encoding="ascii") as stream:
        pattern = stream.read().strip()
    if pattern.startswith("|") or "/" in pattern:
        raise Skip("this machine's cores go to %r" % pattern)


def died(interpreter, place, *ways):
    """(truth, rank, text) of a program that has died in the first of the ways."""
    for name in os.listdir(place):
        if name.startswith("core"):
            os.unlink(os.path.join(place, name))
    program = written(place)
    with Fixture(interpreter.run(program) + list(ways), stderr=subprocess.DEVNULL, env=dict(os.environ, **interpreter.environment), **interpreter.in_directory(place)) as fixture:
        truth = fixture.ready
        fixture.let_crash()
        status = fixture.process.wait(timeout=60)
    cores = [name for name in os.listdir(place) if name.startswith("core")]
    check(status < 0, "%r: the program has not died of a signal: %d" % (ways, status))
    if not cores:
        raise Skip("the kernel has written no core here")
    core = os.path.join(place, cores[0])
    options = ["--sysroot", interpreter.sysroot] if interpreter.sysroot else []
    rank = only_rank(json_report("core", core, *options), truth["pid"])
    text = run_tool("core", core, *options, "--threads", "all")[1].decode()
    check(rank["signal"]["name"] == signal.Signals(-status).name, "%r: %r" % (ways, rank["signal"]))
    return truth, rank, " ".join(text.split())


def fault_of(rank):
    """What has to be the same with and without a handler. The addresses of the mappings around it change from run to run."""
    found = rank["signal"]
    place = found.get("place") or {}
    return found["name"], found["fault_address"], found.get("instruction"), place.get("region"), place.get("executed")


def check_faults(interpreter, place, version):
    for way in ("null", "write", "wild"):
        _, without, _ = died(interpreter, place, way)
        check(without["faulthandler"] == {"signals": [], "called": [], "descriptor": None} and "reraised" not in without["signal"], "%s: %r" % (version, without["faulthandler"]))
        truth, rank, text = died(interpreter, place, way, "enabled", "later")
        check(fault_of(without) == fault_of(rank), "%s, %s: %r without a handler, %r with it" % (version, way, without["signal"], rank["signal"]))
        check(rank["signal"].get("reraised") is True and rank["signal"]["sender"] == truth["pid"], "%s: %r" % (version, rank["signal"]))
        check("SIGSEGV in thread %d at %s" % (truth["pid"], rank["signal"]["fault_address"]) in text and "raised again by faulthandler" in text, text)
        check(rank["faulthandler"]["called"] == ["SIGSEGV"] and rank["faulthandler"]["signals"] == FATAL[:-1], "%s: %r" % (version, rank["faulthandler"]))
        check_descriptor(truth, rank, version)


def check_descriptor(truth, rank, version):
    """It is known from CPython 3.12 on."""
    is_known = [int(part) for part in rank["python"]["version"].split(".")[:2]] >= [3, 12]
    check(rank["faulthandler"]["descriptor"] == (truth["descriptor"] if is_known else None), "%s: %r, descriptor %d" % (version, rank["faulthandler"], truth["descriptor"]))


def check_other_signals(interpreter, place, version):
    truth, rank, text = died(interpreter, place, "abort", "enabled")
    check(rank["faulthandler"]["called"] == ["SIGABRT"] and "reraised" not in rank["signal"] and "instruction" not in rank["signal"], "%s: %r" % (version, rank))
    check("faulthandler has written stacks" in text and "(SIGABRT)" in text, text)
    # A signal that was sent is no fault, whatever the processor's last exception was.
    for ways in (("sent",), ("sent", "enabled")):
        _, rank, text = died(interpreter, place, *ways)
        check("reraised" not in rank["signal"] and rank["signal"]["fault_address"] is None and "instruction" not in rank["signal"], "%s: %r" % (version, rank["signal"]))


def check_version(interpreter, directory, version):
    with interpreters.inside(interpreter, directory) as place:
        check_faults(interpreter, place, version)
        check_other_signals(interpreter, place, version)


def each(directory, test):
    tested = []
    for version in VERSIONS:
        try:
            interpreter = interpreters.find(version)
        except Skip:
            continue
        place = os.path.join(directory, version)
        written(place)
        test(interpreter, place, version)
        tested.append(version)
    print("CPython " + ", ".join(tested))


def case_faults_and_aborts(directory):
    core_pattern_is_plain()
    each(directory, check_version)


def case_overflow_of_the_stack(directory):
    """The handler has a stack of its own."""
    core_pattern_is_plain()
    written(directory)
    truth, rank, text = died(interpreters.find("system"), directory, "overflow", "enabled")
    check(rank["signal"].get("reraised") is True and rank["signal"]["place"]["region"] == "below-stack", repr(rank["signal"]))
    check("the stack has overflowed" in text, text)


def check_running(interpreter, directory, version):
    with interpreters.inside(interpreter, directory) as place:
        for ways, signals in (((), []), (("disabled",), []), (("enabled", "later"), FATAL), (("later",), [])):
            with Fixture(interpreter.run(written(place)) + ["lives"] + list(ways), stderr=subprocess.DEVNULL, env=dict(os.environ, **interpreter.environment), **interpreter.in_directory(place)) as fixture:
                rank = only_rank(json_report("attach", "--pids", fixture.pid), fixture.pid)
                check(rank["faulthandler"]["signals"] == signals and rank["faulthandler"]["called"] == [], "%s, %r: %r" % (version, ways, rank["faulthandler"]))
                if signals:
                    check_descriptor(fixture.ready, rank, version)
                roles = [thread["role"] for thread in rank["threads"]]
                # A stripped interpreter has no name for the thread's function.
                named = any(frame.get("function") == "faulthandler_thread" for thread in rank["threads"] for frame in thread["frames"])
                check(named or "later" not in ways or version in ("system", "3.14", "3.15", "3.14t", "3.15t"), "%s: the thread's function has no name" % version)
                check(roles == ["main"] + (["faulthandler" if named else "native"] if "later" in ways else []), "%s, %r: %r" % (version, ways, roles))
                fixture.check_unharmed()


def case_running(directory):
    each(directory, check_running)


def case_in_a_small_core(directory):
    """Where the files are missing, a capture knows as much."""
    core_pattern_is_plain()
    interpreter = interpreters.find("system")
    written(directory)
    truth, rank, _ = died(interpreter, directory, "null", "enabled")
    core = [name for name in os.listdir(directory) if name.startswith("core")][0]
    small, _ = captured(directory, os.path.join(directory, core))
    again = only_rank(json_report("core", small), truth["pid"])
    check(again["signal"] == rank["signal"] and again["faulthandler"] == rank["faulthandler"], "%r, not %r" % (again["signal"], rank["signal"]))


if __name__ == "__main__":
    cases.run(globals(), __doc__)
