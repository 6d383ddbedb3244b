"""What is read of processes that sleep, without stopping them: the same as with a stop, and nothing in them notices it."""
import json
import os
import shutil
import signal
import subprocess
import sys

import cases
from command_line import native
from processes import DEADLINE, Fixture, Skip, check, json_report, run_tool, settle, state_of, tool, wait_until
from truth_python import only_rank


def read(pid, stop, *arguments, expect=0):
    return only_rank(json_report("attach", "--pids", pid, "--samples", 1, "--stop", stop, *arguments, expect=expect), pid)


def shown(thread):
    """Everything of a thread but its times: what two readings of a thread at rest have in common."""
    frames = [{name: value for name, value in frame.items()} for frame in thread["frames"]]
    rest = {name: thread.get(name) for name in ("name", "role", "gil", "syscall", "stack_end", "python_lock", "joins", "lock_owner", "handles", "raises", "variables")}
    return frames, rest


def check_same(one, other, where):
    threads = {thread["tid"]: shown(thread) for thread in other["threads"]}
    check(sorted(threads) == sorted(thread["tid"] for thread in one["threads"]), "%s: other threads" % where)
    for thread in one["threads"]:
        check(shown(thread) == threads[thread["tid"]], "%s: thread %d:\n%r\n%r" % (where, thread["tid"], shown(thread), threads[thread["tid"]]))


def check_not_stopped(rank, where):
    check(rank["method"] == "without-stop" and rank["stopped_ms"] == 0 and rank["threads_stopped"] == 0,
          "%s: %s, %r threads for %r ms" % (where, rank["method"], rank["threads_stopped"], rank["stopped_ms"]))
    check(rank["status"] == "complete", "%s: %s: %r" % (where, rank["status"], rank["problems"]))


def ask(fixture):
    fixture.write(b"interrupted?\n")
    return int(fixture._line())


def case_sleeping_threads_are_not_interrupted(directory):
    """Each thread waits in epoll_wait(), which a stop would interrupt: that shows what the test can see."""
    with native("still", "16") as fixture:
        first = None
        for stop in ("auto", "never"):
            for _ in range(10):
                rank = read(fixture.pid, stop)
                check_not_stopped(rank, stop)
                first = first or rank
                check_same(rank, first, "reading again, %s" % stop)
        check(ask(fixture) == 0, "EINTR")
        settle(fixture.pid)
        stopped = read(fixture.pid, "always")
        check(stopped["method"] == "stopped" and stopped["threads_stopped"] == 17 and stopped["stopped_ms"] > 0, "with a stop: %r" % stopped["method"])
        check_same(read(fixture.pid, "auto"), stopped, "with and without a stop")
        wait_until(lambda: ask(fixture) == 16, "EINTR in each of 16 threads after a stop")


def case_later_samples_do_not_stop_either(directory):
    with native("still", "16") as fixture:
        for stop in ("auto", "never"):
            rank = only_rank(json_report("attach", "--pids", fixture.pid, "--samples", 5, "--interval", 0.01, "--stop", stop), fixture.pid)
            check_not_stopped(rank, stop)
            check(all(thread["motion"]["moved"] is False for thread in rank["threads"]), "something moved")
        check(ask(fixture) == 0, "EINTR")


def case_native_programs(directory):
    """Stacks of all kinds: what does not run is shown in full, whether it had to be stopped or not."""
    for name in ("threads", "waits", "deep", "unwinding", "inlined", "signal_handler", "context", "context_O0", "cxx", "chain", "chain_O0", "chain_frame_pointers",
                 "chain_static", "no_frame_pointer", "tail_calls", "jit"):
        with native(name) as fixture:
            settle(fixture.pid)
            auto = read(fixture.pid, "auto")
            settle(fixture.pid)
            check_same(auto, read(fixture.pid, "always"), name)
            print("%s: %s, %d of %d threads stopped" % (name, auto["method"], auto["threads_stopped"], len(auto["threads"])))


def case_one_of_many_spins(directory):
    with native("still", "30", "spins") as fixture:
        rank = read(fixture.pid, "auto")
        check(rank["method"] == "partly-stopped" and rank["threads_stopped"] == 1, "%s, %r threads" % (rank["method"], rank["threads_stopped"]))
        check(rank["status"] == "complete" and len(rank["threads"]) == 32, "the rank: %r" % rank["problems"])
        check(all(thread["stack_end"] == "complete" for thread in rank["threads"]), "a stack ends early")
        check(any("spins_here" == frame.get("function") for thread in rank["threads"] for frame in thread["frames"]), "the spinning thread has no frames")
        never = read(fixture.pid, "never", expect=1)
        check(never["method"] == "without-stop" and never["status"] == "partial", "%s: %s" % (never["method"], never["status"]))
        empty = [thread for thread in never["threads"] if not thread["frames"]]
        check(len(empty) == 1 and any(str(empty[0]["tid"]) in problem["message"] and "ran" in problem["message"] for problem in never["problems"]),
              "%d threads without frames: %r" % (len(empty), never["problems"]))
        check(ask(fixture) == 0, "EINTR in threads that slept")


def case_frame_pointers(directory):
    """A frame of fixed size tells its frame pointer; one with alloca does not, and that thread alone is stopped."""
    with native("still", "4", "alloca") as fixture:
        rank = read(fixture.pid, "auto")
        check(rank["method"] == "partly-stopped" and rank["threads_stopped"] == 1, "%s, %r threads" % (rank["method"], rank["threads_stopped"]))
        check(rank["status"] == "complete" and all(thread["stack_end"] == "complete" for thread in rank["threads"]), "the rank: %r" % rank["problems"])
        settle(fixture.pid)
        check_same(read(fixture.pid, "auto"), read(fixture.pid, "always"), "with and without a stop")
    with native("still", "4", "alloca") as fixture:
        never = read(fixture.pid, "never", expect=1)
        ends = sorted(thread["stack_end"] for thread in never["threads"])
        check(ends == ["complete"] * 5 + ["registers-unknown"], "ends: %r" % ends)
        check(never["status"] == "partial" and any("registers" in problem["message"] for problem in never["problems"]), "problems: %r" % never["problems"])
        check(ask(fixture) == 0, "EINTR")


NAPS = """
import json, os, sys, threading, time
def naps():
    while True:
        time.sleep(0.0002)
for _ in range(6):
    threading.Thread(target=naps, daemon=True).start()
print(json.dumps({"ready": True, "pid": os.getpid(), "runs": True}), flush=True)
sys.stdin.read()
"""


# In a call of ctypes, whose callers cannot be found without registers that only a stop tells.
SPOILED_BY_STOP = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def events():
    context, place = ctypes.c_ulong(0), ctypes.create_string_buffer(32)
    if libc.syscall(ctypes.c_long(206), ctypes.c_long(1), ctypes.byref(context)) != 0:
        print(json.dumps({"skip": "io_setup: " + os.strerror(ctypes.get_errno())}), flush=True)
        sys.exit()
    return lambda: libc.syscall(ctypes.c_long(208), context, ctypes.c_long(1), ctypes.c_long(1), place, None)
def semaphore():
    number = libc.semget(0, 1, 0o600)
    wanted = (ctypes.c_short * 3)(0, -1, 0)
    def wait():
        returned = libc.semop(number, wanted, ctypes.c_size_t(1))
        libc.semctl(number, 0, 0)
        return returned
    return wait
wait = {"io_getevents": events, "semtimedop": semaphore}[sys.argv[1]]()
print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
print(wait(), flush=True)
sys.stdin.read()
"""


def case_waits_that_a_stop_would_end(directory):
    for call in ("io_getevents", "semtimedop"):     # semop() of glibc
        with Fixture([sys.executable, "-c", SPOILED_BY_STOP, call]) as fixture:
            rank = read(fixture.pid, "auto", expect=1)
            check(rank["threads_stopped"] == 0, "%s: stopped" % call)
            check(any("a stop would end its %s" % call in problem["message"] for problem in rank["problems"]), "%s: %r" % (call, rank["problems"]))
            main = next(thread for thread in rank["threads"] if thread["tid"] == fixture.pid)
            check(main["syscall"]["name"] == call, "%s: %r" % (call, main["syscall"]))
            check(fixture.text == b"", "%s has returned: %r" % (call, fixture.text))
            settle(fixture.pid)
            check(read(fixture.pid, "always")["threads_stopped"] == 1, "%s: --stop always" % call)
            check(fixture._line() == b"-1", "%s goes on after a stop" % call)     # what this test can see


def case_nothing_is_left_of_threads_that_ran(directory):
    """With the stack of a thread that has run meanwhile goes all that was read of it: it was seen in a call that it is not in."""
    with Fixture([sys.executable, "-c", NAPS]) as fixture:
        ran = readings = 0
        while readings < 5 or (ran == 0 and readings < 200):  # on a busy machine few find the threads running
            readings += 1
            status, out, err = run_tool("attach", "--pids", fixture.pid, "--samples", 1, "--stop", "never", "--format", "json")
            check(status in (0, 1), "status %d: %r" % (status, err))
            rank = only_rank(json.loads(out), fixture.pid)
            for thread in rank["threads"]:
                if thread["frames"]:
                    continue
                ran += 1
                left = {name: thread[name] for name in ("syscall", "python_thread", "gil", "python_lock", "joins", "lock_owner", "wchan", "kernel_stack") if thread.get(name)}
                check(not left, "thread %d has no frames, and %r" % (thread["tid"], left))
        check(ran > 0, "no thread ran")
        print("%d readings of threads that ran" % ran)


WAITS = r"""
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static int ends[2];
static void* waits(void* how) {
  char c;
  switch ((long)how % 4) {
    case 0: return (void*)(long)poll(0, 0, -1);
    case 1: return (void*)(long)read(ends[0], &c, 1);
    case 2: return (void*)(long)sem_wait(&semaphore);
  }
  pthread_mutex_lock(&mutex);
  for (;;) pthread_cond_wait(&condition, &mutex);
}
int main(void) {
  pthread_t thread;
  if (pipe(ends) != 0) return 1;
  for (long i = 0; i < 15; ++i) pthread_create(&thread, 0, waits, (void*)i);
  printf("{\"ready\": true, \"pid\": %d}\n", (int)getpid());
  fflush(stdout);
  for (;;) pause();
}
"""


def case_no_unwind_information_is_no_reason_to_stop(directory):
    """Where a stack ends in code that has neither unwind information nor a frame pointer, a stop tells nothing more. Code that has one is stopped."""
    compiler = shutil.which("musl-gcc")
    if not compiler:
        raise Skip("no musl-gcc here (Debian: musl-tools)")
    source = os.path.join(directory, "waits.c")
    with open(source, "w", encoding="utf-8") as stream:
        stream.write(WAITS)
    for options in (["-O2"], ["-O2", "-static"]):
        program = os.path.join(directory, "waits")
        subprocess.run([compiler] + options + ["-o", program, source], check=True)
        with Fixture([program]) as fixture:
            auto = read(fixture.pid, "auto")
            print("musl, %s: %s, %d of %d threads stopped" % (" ".join(options), auto["method"], auto["threads_stopped"], len(auto["threads"])))
            check_not_stopped(auto, "musl, %s" % options)
            check(len(auto["threads"]) == 16, "%d threads" % len(auto["threads"]))
            check(any(thread["stack_end"] == "no-unwind-info" for thread in auto["threads"]), "every stack is whole: this musl has unwind information")
            settle(fixture.pid)
            check_same(auto, read(fixture.pid, "always"), "with and without a stop")


SPINS_AMONG_NAPS = """
import json, os, sys, threading, time
def naps():
    while True:
        time.sleep(0.0002)
def spins():
    while True:
        pass
for function in [spins] + [naps] * 6:
    threading.Thread(target=function, daemon=True).start()
print(json.dumps({"ready": True, "pid": os.getpid(), "runs": True}), flush=True)
sys.stdin.read()
"""


def case_no_state_is_of_the_stop(directory):
    """Where a reading is repeated while threads are held, their states are those from before the stop."""
    states = {}
    with Fixture([sys.executable, "-c", SPINS_AMONG_NAPS]) as fixture:
        for _ in range(12):
            rank = only_rank(json_report("attach", "--pids", fixture.pid, "--samples", 1), fixture.pid)
            for thread in rank["threads"]:
                states[thread["state"]] = states.get(thread["state"], 0) + 1
        print("states: %r; %s, %d of %d threads stopped" % (states, rank["method"], rank["threads_stopped"], len(rank["threads"])))
    check(not set(states) & {"t", "T"}, "threads that nobody but the tool has stopped: %r" % states)


def case_two_states(directory):
    """A thread that goes from one state to the other as often as it can is never shown in both."""
    states = set()
    with native("still", "2", "changes") as fixture:
        for _ in range(8):
            report = json_report("attach", "--pids", fixture.pid, "--samples", 1, "--stop", "auto")
            rank = only_rank(report, fixture.pid)
            check(rank["status"] == "complete", "the rank: %r" % rank["problems"])
            for thread in rank["threads"]:
                names = [frame.get("function") for frame in thread["frames"]]
                here = [name for name in names if name in ("state_one", "state_two")]
                check(len(here) <= 1 and thread["stack_end"] == "complete", "frames: %r" % names)
                check(not here or names[names.index(here[0]) + 1] == "changes", "frames: %r" % names)
                states.update(here)
    check(states, "it was never seen in either state")


def case_a_traced_process(directory):
    """A process that another tracer holds is read all the same, if it sleeps."""
    if not shutil.which("strace"):
        raise Skip("no strace here")
    with native("still", "6") as fixture:
        tracer = subprocess.Popen(["strace", "-f", "-o", "/dev/null", "-p", str(fixture.pid)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            wait_until(lambda: traced(fixture.pid) or tracer.poll() is not None, "strace to trace it")
            if tracer.poll() is not None:
                raise Skip("strace cannot trace here: %r" % tracer.stderr.read())
            settle(fixture.pid)
            for stop in ("never", "auto"):
                rank = read(fixture.pid, stop)
                check_not_stopped(rank, stop)
                check(len(rank["threads"]) == 7 and all(thread["stack_end"] == "complete" for thread in rank["threads"]), "threads: %r" % rank["threads"])
            refused = read(fixture.pid, "always", expect=2)
            check(any("already traced" in problem["message"] for problem in refused["problems"]), "with a stop: %r" % refused["problems"])
        finally:
            tracer.terminate()
            tracer.wait()
            tracer.stderr.close()


def traced(pid):
    for tid in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, tid), encoding="utf-8") as status:
            if "TracerPid:\t0\n" in status.read():
                return False
    return True


def case_never_makes_no_ptrace_call(directory):
    if not shutil.which("strace"):
        raise Skip("no strace here")
    log = os.path.join(directory, "calls")

    def calls(stop):
        with native("still", "4", "spins") as fixture:
            subprocess.run(["strace", "-f", "-qq", "-e", "trace=ptrace", "-o", log, tool(), "attach", "--pids", str(fixture.pid), "--samples", "2", "--interval", "0.01",
                            "--stop", stop], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=DEADLINE, check=False)
        with open(log, encoding="utf-8") as stream:
            return [line for line in stream if "ptrace(" in line]
    check(calls("always"), "strace shows no ptrace call of a stop")
    check(calls("never") == [], "ptrace calls: %r" % calls("never")[:3])


def case_stopped_by_a_signal(directory):
    with native("still", "4") as fixture:
        os.kill(fixture.pid, signal.SIGSTOP)
        wait_until(lambda: state_of(fixture.pid) == "T", "the fixture to be stopped")
        for stop in ("auto", "never"):
            rank = read(fixture.pid, stop)
            check(rank["status"] == "complete" and all(thread["stack_end"] == "complete" for thread in rank["threads"]), "%s: %r" % (stop, rank["problems"]))
            check(all(thread["state"] == "T" for thread in rank["threads"]), "states: %r" % [thread["state"] for thread in rank["threads"]])
            wait_until(lambda: state_of(fixture.pid) == "T", "the fixture to be stopped as before")
        os.kill(fixture.pid, signal.SIGCONT)


def case_options(directory):
    status, out, err = run_tool("attach", "--pids", 1, "--stop", "never", "--gpu")
    check(status == 2 and not out and b"--gpu" in err, "status %d: %r" % (status, err))
    status, out, err = run_tool("attach", "--pids", 1, "--stop", "sometimes")
    check(status == 2 and not out and b"--stop" in err, "status %d: %r" % (status, err))


def case_what_the_text_says(directory):
    with native("still", "4") as fixture:
        status, out, _ = run_tool("attach", "--pids", fixture.pid, "--samples", 1)
        check(status == 0 and b"no thread stopped" in out and b"longest stop" not in out, out.decode())
        status, out, _ = run_tool("attach", "--pids", fixture.pid, "--samples", 1, "--stop", "always")
        check(status == 0 and b"longest stop" in out and b"no thread stopped" not in out, out.decode())


if __name__ == "__main__":
    cases.run(globals(), "without_stop")
