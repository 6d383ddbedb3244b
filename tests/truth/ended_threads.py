"""Threads that have ended below Python leave their thread states behind, and fork(2) called by C leaves those of threads that the child
does not have: their frames are shown on no other thread."""
import os

import cases
import interpreters
from processes import Attempts, Fixture, check, json_report, state_of, task_states, wait_until

VERSIONS = ("system", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")

BEGIN = """
import _thread, ctypes, json, os, time
libc = ctypes.CDLL(None)
def native():                                        # a thread that Python does not know of
    libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, libc.pause, None)
def wait_for_the_end():
    os.read(0, 1)
    os._exit(0)
def ready():
    print(json.dumps({"pid": os.getpid()}), flush=True)
    wait_for_the_end()
def end_below_python():
    libc.syscall(60, 0)                              # exit(2)
"""

THREAD_ENDS = BEGIN + """
def outer(): end_below_python()
_thread.start_new_thread(outer, ())
native()
native()
ready()
"""

MAIN_THREAD_ENDS = BEGIN + """
native()
native()
def lives_on(): ready()
_thread.start_new_thread(lives_on, ())
end_below_python()
"""

FORK_BY_C = BEGIN + """
started = []
def of_the_parent():
    started.append(1)
    time.sleep(1000)
def outer(): of_the_parent()
_thread.start_new_thread(outer, ())
_thread.start_new_thread(outer, ())
while len(started) < 2: time.sleep(0.01)
child = ctypes.PyDLL(None).fork()
if child == 0:
    def of_the_child(): time.sleep(1000)
    for _ in range(2): START
    ready()
os.waitpid(child, 0)
os._exit(0)
"""


ENDED = "a thread state of the interpreter belongs to no living thread (end_below_python at "
FORKED = "2 thread states of the interpreter belong to no living thread: "


def functions_of(report, thread):
    frames = [report["frames"][i] if isinstance(i, int) else i for i in thread["frames"]]
    return [frame["function"] for frame in frames if frame["kind"] == "python"]


def with_each_interpreter(directory, program, is_ready, problem, check_report):
    attempts = Attempts()
    tried = []

    def attempt(version):
        interpreter = interpreters.find(version)
        script = os.path.join(directory, "program.py")
        with interpreters.inside(interpreter, directory) as programs:
            with open(os.path.join(programs, os.path.basename(script)), "w", encoding="utf-8") as stream:
                stream.write(program)
            command = interpreter.run(os.path.join(programs, os.path.basename(script)))
            with Fixture(command, env=dict(os.environ, **interpreter.environment), **interpreter.options()) as fixture:
                wait_until(lambda: is_ready(fixture.pid), "the threads")
                report = json_report("attach", "--pids", fixture.pid, "--samples", 1)
                rank = report["ranks"][0]
                check_report(rank, [functions_of(report, thread) for thread in rank["threads"]])
                # The kernel clears the number in the descriptor of a thread that has ended up to glibc 2.42; the interpreters in a
                # sysroot have a newer one, so that nothing is known of the thread.
                if interpreter.sysroot is None:
                    check_problem(rank, problem)
        tried.append(version)
    for version in VERSIONS:
        attempts.make(version, lambda version=version: attempt(version))
    attempts.finish()
    check(tried, "no interpreter was tried")


def has_three_threads(pid):
    return len(task_states(pid)) == 3


def check_problem(rank, begins):
    said = [problem["message"] for problem in rank["problems"] if "no living thread" in problem["message"]]
    check(len(said) == 1 and said[0].startswith(begins), "problems: %r" % rank["problems"])
    check(rank["status"] == "complete", "the rank is %s: %r" % (rank["status"], rank["problems"]))


def case_a_thread_that_ended_below_python(directory):
    def check_report(rank, stacks):
        check(len(stacks) == 3 and stacks[0][-1] == "<module>" and stacks[1:] == [[], []], "Python frames: %r" % stacks)
    with_each_interpreter(directory, THREAD_ENDS, has_three_threads, ENDED, check_report)


def case_a_main_thread_that_ended_below_python(directory):
    def check_report(rank, stacks):
        check(sorted(stacks) == [[], [], [], ["wait_for_the_end", "ready", "lives_on"]], "Python frames: %r" % stacks)
    with_each_interpreter(directory, MAIN_THREAD_ENDS, lambda pid: state_of(pid) == "Z", ENDED, check_report)


def case_native_threads_after_a_fork_by_c(directory):
    def check_report(rank, stacks):
        check(len(stacks) == 3 and stacks[0][-1] == "<module>" and stacks[1:] == [[], []], "Python frames: %r" % stacks)
    with_each_interpreter(directory, FORK_BY_C.replace("START", "native()"), has_three_threads, FORKED, check_report)


def case_python_threads_after_a_fork_by_c(directory):
    """They use the memory of the parent's threads, and with it their pthread_self(); their stacks have the same frames at the same
    addresses."""
    def check_report(rank, stacks):
        check(len(stacks) == 3 and stacks[0][-1] == "<module>" and stacks[1:] == [["of_the_child"]] * 2, "Python frames: %r" % stacks)
    with_each_interpreter(directory, FORK_BY_C.replace("START", "_thread.start_new_thread(of_the_child, ())"), has_three_threads, FORKED, check_report)


if __name__ == "__main__":
    cases.run(globals(), "ended threads")
