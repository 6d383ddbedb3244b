"""Python exceptions that a thread has raised and that nothing has caught yet: the interpreter's error indicator, while C code runs."""
import os
import shutil
import subprocess
import sys

import cases
import interpreters
from exceptions import in_pause
from processes import Skip, check, json_report, run_tool, wait_until
from truth_python import only_rank

# Built without Python's headers: the interpreter exports these names.
HELPER = r"""
#include <unistd.h>
extern void PyErr_SetString(void*, const char*);
extern void PyErr_SetObject(void*, void*);
extern void PyErr_Clear(void);
extern void* PyExc_ValueError;
void raise_text(void) { PyErr_SetString(PyExc_ValueError, "batch 7 is empty"); pause(); }
void raise_object(void* type, void* value) { PyErr_SetObject(type, value); pause(); }
void raise_nothing(void) { PyErr_SetString(PyExc_ValueError, "x"); PyErr_Clear(); pause(); }
"""
PROGRAM = r"""
import ctypes, sys
class Lost(Exception):
    pass
helper = ctypes.PyDLL(sys.argv[1])
helper.raise_object.argtypes = [ctypes.py_object, ctypes.py_object]
def fails():
    raise KeyError("shard 3")
def made():
    try:
        fails()
    except KeyError as error:
        lost = Lost("no data")
        lost.__cause__ = error
        lost = lost.with_traceback(error.__traceback__)
    helper.raise_object(Lost, lost)
{"text": lambda: helper.raise_text(), "object": made, "nothing": lambda: helper.raise_nothing()}[sys.argv[2]]()
"""


class Raised:
    def __init__(self, directory, python, way):
        program, source, library = (os.path.join(directory, name) for name in ("raises.py", "raises.c", "raises.so"))
        if not shutil.which("gcc"):
            raise Skip("no gcc on this machine")
        for path, text in ((program, PROGRAM), (source, HELPER)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
        self.process = subprocess.Popen([python, program, library, way], stdin=subprocess.DEVNULL, env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        self.pid = self.process.pid
        wait_until(lambda: self.process.poll() is None and in_pause("/proc/%d/stat" % self.pid), "the process is in pause()")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.wait()

    def main_thread(self):
        return only_rank(json_report("attach", "--pids", self.pid), self.pid)["threads"][0]


def check_version(directory, python):
    with Raised(directory, python, "text") as raised:
        thread = raised.main_thread()
        check(thread.get("raises", {}).get("type") == "ValueError" and thread["raises"]["message"] == "batch 7 is empty", "%r" % thread.get("raises"))
        check("handles" not in thread, "%r" % thread.get("handles"))
        text = run_tool("attach", "--pids", raised.pid, "--threads", "all")[1].decode()
        check('has raised ValueError("batch 7 is empty")' in text, text)
        redacted = run_tool("attach", "--pids", raised.pid, "--threads", "all", "--redact")[1].decode()
        check("batch 7" not in redacted, redacted)
    with Raised(directory, python, "object") as raised:
        found = raised.main_thread().get("raises")
        check(found and found["type"] == "Lost" and found["message"] == "no data", "%r" % found)
        check([(one["link"], one["type"], one["message"]) for one in found["chain"]] == [("cause", "KeyError", "'shard 3'")], "%r" % found["chain"])
        check(found["chain"][0]["raised"]["function"] == "fails" and found["traceback"][-1]["function"] == "fails", "%r" % found)
    with Raised(directory, python, "nothing") as raised:
        check("raises" not in raised.main_thread(), "%r" % raised.main_thread().get("raises"))


def case_system(directory):
    check_version(directory, "/usr/bin/python3")


def case_every_python(directory):
    interpreters.check_each(directory, check_version)


if __name__ == "__main__":
    cases.run(globals(), "raised-exceptions")
