"""The exception that has ended a program, while sys.excepthook, atexit's functions or the wait for other threads still run."""
import os
import subprocess

import cases
import debugger
import interpreters
from processes import Fixture, check, json_report
from truth_python import only_rank

PROGRAM = r"""
import atexit, code, json, os, sys, threading
def says_and_waits(*ignored):
    print(json.dumps({"pid": os.getpid()}), flush=True)
    while os.read(0, 100):
        os.write(1, b"alive\n")
def fails():
    raise ValueError("label 17")
def main(way):
    if way == "hook":
        sys.excepthook = says_and_waits
    if way == "atexit":
        atexit.register(says_and_waits)
    if way == "thread":
        threading.Thread(target=says_and_waits).start()
    if way == "prompt":
        # Its errors are sys.last_value as well, and it goes on.
        code.InteractiveConsole({"fails": fails, "says_and_waits": says_and_waits}).runcode("fails()")
        return says_and_waits()
    if way == "handled":
        try:
            fails()
        except ValueError:
            pass
        atexit.register(says_and_waits)
        return
    try:
        {}["shard"]
    except KeyError as error:
        fails()
main(sys.argv[1])
"""
WAYS = {"hook": True, "atexit": True, "thread": True, "prompt": False, "handled": False}


def check_thread(thread, way, python):
    found = thread.get("handles")
    if not WAYS[way]:
        check(found is None, "%s, %s: %r" % (python, way, found))
        return
    check(found and (found["type"], found["message"]) == ("ValueError", "label 17"), "%s, %s: %r of %r" % (python, way, found, [frame["function"] for frame in thread["frames"]]))
    check(found["frame"] is None and found["handler"]["function"] == "<module>" and found["raised"]["function"] == "fails", "%s, %s: %r" % (python, way, found))
    check([(one["type"], one["message"]) for one in found["chain"]] == [("KeyError", "'shard'")], "%s, %s: %r" % (python, way, found["chain"]))


def check_version(directory, python):
    program = os.path.join(directory, "ends.py")
    with open(program, "w", encoding="utf-8") as file:
        file.write(PROGRAM)
    for way in WAYS:
        with Fixture([python, program, way], env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"), stderr=subprocess.DEVNULL) as fixture:
            check_thread(only_rank(json_report("attach", "--pids", fixture.pid), fixture.pid)["threads"][0], way, python)
            fixture.check_unharmed()


def case_system(directory):
    check_version(directory, "/usr/bin/python3")


def case_every_python(directory):
    interpreters.check_each(directory, check_version)


def case_in_a_core(directory):
    program = os.path.join(directory, "ends.py")
    with open(program, "w", encoding="utf-8") as file:
        file.write(PROGRAM)
    with Fixture(["/usr/bin/python3", program, "hook"], stderr=subprocess.DEVNULL) as fixture:
        core = os.path.join(directory, "core")
        debugger.write_core(fixture.pid, core)
        check_thread(only_rank(json_report("core", core), fixture.pid)["threads"][0], "hook", "a core")


if __name__ == "__main__":
    cases.run(globals(), "last-exceptions")
