"""The exceptions that led to a handled one, compared with the interpreter's own account of it."""
import os

import cases
import debugger
import interpreters
from processes import Fixture, check, json_report, run_tool
from truth_python import only_rank

# What traceback.print_exc() would print above each exception, nearest first: by the same object that it prints from.
PROGRAM = r"""
import json, os, sys, traceback
def place(error):
    found = traceback.extract_tb(error.__traceback__)
    return [found[-1][2], found[-1][0], found[-1][1]] if found else None
def chain(error):
    found, printed = [], traceback.TracebackException(type(error), error, error.__traceback__)
    while True:
        if printed.__cause__ is not None:
            link, printed, error = "cause", printed.__cause__, error.__cause__
        elif printed.__context__ is not None and not printed.__suppress_context__:
            link, printed, error = "context", printed.__context__, error.__context__
        else:
            return found[:8]
        found.append({"link": link, "type": type(error).__name__, "message": str(error) if error.args else None, "raised": place(error)})
def nest(depth):
    try:
        if depth:
            nest(depth - 1)
        raise OSError(2, "no such shard")
    except Exception as error:
        raise RuntimeError("level %d" % depth) from (error if depth % 2 else None)
def context():
    try:
        {}["step"]
    except KeyError:
        raise ValueError("batch \u00e9 is empty")
def both():
    try:
        context()
    except ValueError as error:
        try:
            raise TypeError("in the handler")
        except TypeError:
            raise RuntimeError("cannot continue") from error
def suppressed():
    try:
        context()
    except ValueError:
        raise RuntimeError("alone") from None
def circle():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first
def deep():
    error = None
    for n in range(30):
        later = ValueError("number %d" % n)
        later.__cause__ = error
        error = later
    raise error
try:
    {"nest": lambda: nest(3), "context": context, "both": both, "suppressed": suppressed, "circle": circle, "deep": deep}[sys.argv[1]]()
except Exception as error:
    truth = [{"link": "cause", "type": "ValueError", "message": "second", "raised": None}] if sys.argv[1] == "circle" else chain(error)
    print(json.dumps({"ready": True, "pid": os.getpid(), "chain": truth}))
    sys.stdout.flush()
    while os.read(0, 100):
        os.write(1, b"alive\n")
"""
WAYS = ("nest", "context", "both", "suppressed", "circle", "deep")


def started(interpreter, way):
    environment = dict(os.environ, PYTHONIOENCODING="utf-8", **interpreter.environment)
    return Fixture([interpreter.named(interpreter.path), "-c", PROGRAM, way], env=environment, **interpreter.options())


def chain_of(report, pid):
    found = [thread["handles"].get("chain", []) for thread in only_rank(report, pid)["threads"] if "handles" in thread]
    check(len(found) == 1, "%d threads handle exceptions" % len(found))
    for one in found[0]:
        if one["raised"] is not None:
            one["raised"] = [one["raised"][name] for name in ("function", "file", "line")]
    return found[0]


def compare(version):
    interpreter = interpreters.find(version)
    for way in WAYS:
        with started(interpreter, way) as fixture:
            expected = fixture.ready["chain"]
            check((expected == []) == (way == "suppressed"), "%s: the program's chain is %r" % (way, expected))
            found = chain_of(json_report("attach", "--pids", str(fixture.pid)), fixture.ready["pid"])
            check(found == expected, "%s %s:\n    %r\n    expected %r" % (version, way, found, expected))
            fixture.check_unharmed()


def case_python_system(directory):
    compare("system")


def case_in_a_core(directory):
    with started(interpreters.find("system"), "both") as fixture:
        core = os.path.join(directory, "core")
        debugger.write_core(fixture.pid, core)
        found = chain_of(json_report("core", core), fixture.ready["pid"])
        check(found == fixture.ready["chain"], repr(found))
    text = run_tool("core", core, "--threads", "all")[1].decode()
    check('raised from ValueError("batch \u00e9 is empty") raised in context at <string>' in text and "raised while KeyError('step') raised in context at <string>" in text, text)
    check("= raised after 2 others, the first: KeyError raised in context at <string>" in run_tool("core", core)[1].decode(), "the first screen does not name the first cause")


def case_python_3_6(directory):
    compare("3.6")


def case_python_3_7(directory):
    compare("3.7")


def case_python_3_8(directory):
    compare("3.8")


def case_python_3_9(directory):
    compare("3.9")


def case_python_3_10(directory):
    compare("3.10")


def case_python_3_11(directory):
    compare("3.11")


def case_python_3_12(directory):
    compare("3.12")


def case_python_3_13(directory):
    compare("3.13")


def case_python_3_14(directory):
    compare("3.14")


def case_python_3_15(directory):
    compare("3.15")


if __name__ == "__main__":
    cases.run(globals(), __doc__)
