"""A thread that takes the GIL waits in short waits, one after the other. Between two of them it is in no system call, and still waits."""
import os
import subprocess

import cases
import interpreters
from processes import Attempts, Fixture, Skip, check, json_report, task_states, wait_until

# The thread holds the GIL while it waits for its standard input.
PROGRAM = """
import _thread, ctypes, json, os, time
def hold():
    ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)
    os._exit(0)
print(json.dumps({"pid": os.getpid(), "runs": True}), flush=True)
_thread.start_new_thread(hold, ())
while True: time.sleep(0.001)
"""
CORES = 4


def call_of(pid, tid):
    with open("/proc/%d/task/%d/syscall" % (pid, tid), encoding="utf-8") as call:
        return call.read().split()[0]


def check_waits(directory, version):
    interpreter = interpreters.find(version)
    with Fixture([interpreter.path, "-c", PROGRAM]) as fixture:
        wait_until(lambda: len(task_states(fixture.pid)) == 2, "the thread")
        holder = next(tid for tid in task_states(fixture.pid) if tid != fixture.pid)
        wait_until(lambda: call_of(fixture.pid, holder) == "0" and call_of(fixture.pid, fixture.pid) == "202", "the main thread to wait for the GIL")
        expected = {fixture.pid: "waits", holder: "holds"}
        for number in range(CORES):
            path = os.path.join(directory, "%s.%d" % (version, number))
            try:
                subprocess.run(["gcore", "-o", path, str(fixture.pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            except FileNotFoundError as error:
                raise Skip("no gcore here (Debian: gdb)") from error
            path = "%s.%d" % (path, fixture.pid)
            found = {thread["tid"]: thread["gil"] for thread in json_report("core", path)["ranks"][0]["threads"]}
            os.remove(path)
            check(found == expected, "core %d: %r" % (number, found))
        for number in range(CORES):
            found = {thread["tid"]: thread["gil"] for thread in json_report("attach", "--pids", fixture.pid, "--samples", 1)["ranks"][0]["threads"]}
            check(found == expected, "live, %d: %r" % (number, found))


def case_between_two_waits(directory):
    attempts = Attempts()
    for version in ("system", "3.9", "3.11", "3.12", "3.13"):
        attempts.make(version, lambda version=version: check_waits(directory, version))
    attempts.finish()


if __name__ == "__main__":
    cases.run(globals(), "GIL waits")
