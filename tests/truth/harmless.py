"""What remains of a sample in the process that was sampled: nothing but the time it took.

busy (fixtures/native/busy.c) counts everything that a debugger could disturb; steady.py trains, and knows each loss in advance. The short
forms here run in scripts/test; bench/soak runs the same checks for as long as one likes.
"""
import json
import os
import random
import resource
import select
import signal
import subprocess
import time

import cases
from command_line import SOURCE, native
from processes import DEADLINE, Fixture, Skip, check, need_torch, run_tool, settle, state_of, task_states, tool, wait_until
from truth_python import only_rank

MOST_READINGS = 7  # of one sample

# Calls that the kernel does not restart after a stop, by whatever tracer (signal(7), "Interruption of system calls and library functions by
# stop signals"). All other calls of busy are never interrupted.
NOT_RESTARTED = {"epoll_wait", "epoll_pwait", "sigtimedwait", "semtimedop", "recv with SO_RCVTIMEO", "accept with SO_RCVTIMEO", "io_getevents"}


class Busy(Fixture):
    def __init__(self):
        super().__init__([os.path.join(os.environ["RANKSTACKS_FIXTURES"], "busy")])
        self.before = self.ask(b"status")

    def ask(self, command):
        self.write(command + b"\n")
        return json.loads(self._line())

    def check_calls(self, counts, samples, moved_on=True):
        """No call has failed, been cut short or lost anything. EINTR occurs only where the kernel leaves no choice: two threads make each
        such call, and each reading that stops them interrupts it. One or two readings are usual, on an overloaded machine 71 EINTR in 16
        samples were seen; src/target/live_still.cc makes six at most, and then all threads are stopped."""
        check(counts["wrong"] == [], "after %d samples: %s" % (samples, "; ".join(counts["wrong"])))
        for name, now in counts["calls"].items():
            check(now["wrong"] == 0, "%s: %d wrong" % (name, now["wrong"]))
            if name not in NOT_RESTARTED:
                check(now["interrupted"] == 0, "%s: EINTR %d times in %d samples" % (name, now["interrupted"], samples))
            else:
                check(now["interrupted"] <= 2 * MOST_READINGS * samples, "%s: EINTR %d times in %d samples" % (name, now["interrupted"], samples))
            if moved_on:
                check(now["done"] > self.before["calls"][name]["done"], "%s does not go on" % name)

    def finish(self, samples):
        """All its threads end, and what was received is what was sent."""
        counts = self.ask(b"finish")
        self.check_calls(counts, samples)
        check(self.process.wait(timeout=DEADLINE) == 0, "its exit status is %r" % self.process.returncode)
        return counts


class Asleep(Fixture):
    """fixtures/native/asleep.c: each thread sleeps in a call in which a stop shows."""

    def __init__(self):
        super().__init__([os.path.join(os.environ["RANKSTACKS_FIXTURES"], "asleep")])

    def counts(self):
        self.write(b"what has returned?\n")
        counts = json.loads(self._line())
        settle(self.pid)          # the main thread waits for the next line
        return counts

    def check_undisturbed(self, samples):
        counts = self.counts()
        disturbed = ["%s: %d %s" % (name, count, what) for what, calls in counts.items() for name, count in calls.items() if count]
        check(not disturbed, "sleeping threads after %d samples: %s" % (samples, ", ".join(disturbed)))
        return counts


class Training(Fixture):
    def __init__(self, *arguments):
        need_torch()
        super().__init__(["/usr/bin/python3", os.path.join(SOURCE, "fixtures", "jobs", "steady.py")] + list(arguments), deadline=300)

    def ask(self):
        self.write(b"how far?\n")
        return json.loads(self._line())

    def check_training(self):
        progress = self.ask()
        check("ended" not in progress, "a rank has ended: %r" % progress)
        check(progress["different"] == 0, "%d losses differ from those of the first epoch, in %d steps" % (progress["different"], progress["steps"]))
        return progress


def sample(*pids, options=()):
    """Runs the tool on all pids and returns the report. Children may come and go meanwhile: a child that has ended is no failure of the
    sample."""
    status, out, err = run_tool("attach", "--pids", ",".join(map(str, pids)), "--format", "json", *options)
    check(status in (0, 1), "exit status %d: %s" % (status, err.decode(errors="replace")))
    report = json.loads(out)
    for pid in pids:
        rank = only_rank(report, pid)
        check(rank["status"] != "failed", "pid %d: %r" % (pid, rank["problems"]))
        check(any(thread["frames"] for thread in rank["threads"]), "pid %d: no frames" % pid)
    return report


def tracers_of(pid):
    found = set()
    for tid in task_states(pid):
        try:
            with open("/proc/%d/task/%d/status" % (pid, tid), encoding="utf-8", errors="replace") as status:
                found.update(int(line.split()[1]) for line in status if line.startswith("TracerPid:"))
        except OSError:          # a thread that has ended meanwhile
            pass
    return found - {0}


def check_let_go(pid, what):
    """Nobody traces it, and none of its threads is left stopped. (The kernel and /proc need a moment to show that after the tool has
    ended.)"""
    wait_until(lambda: not tracers_of(pid), "%s: pid %d to be let go" % (what, pid))
    check(all(state not in "tT" for state, _, _ in task_states(pid).values()), "%s: threads of pid %d are stopped: %r" % (what, pid, task_states(pid)))


def case_busy_process(directory):
    samples = 16
    with Busy() as busy:
        for _ in range(samples):
            sample(busy.pid)
            check_let_go(busy.pid, "after a sample")
        counts = busy.finish(samples)
        # This checks the test itself: a stop does show where the kernel lets it show.
        check(any(counts["calls"][name]["interrupted"] for name in NOT_RESTARTED), "no call at all was interrupted: was anything stopped?")


def case_sleeping_process(directory):
    """Nothing in a process that sleeps notices samples, also of a tool that is killed; a stop of all threads does show."""
    samples = 10
    with Asleep() as asleep:
        settle(asleep.pid)
        for _ in range(samples):
            rank = only_rank(sample(asleep.pid), asleep.pid)
            check(rank["threads_stopped"] == 0 and rank["status"] == "complete", "%r threads stopped: %r" % (rank["threads_stopped"], rank["problems"]))
        for turn in range(samples):
            killed([asleep.pid], signal.SIGKILL, 0.004 * turn)
        asleep.check_undisturbed(2 * samples)
        run_tool("attach", "--pids", asleep.pid, "--samples", 1, "--stop", "always")
        check_let_go(asleep.pid, "after a stop")
        wait_until(lambda: all(asleep.counts()["interrupted"][name] for name in ("epoll_wait", "epoll_pwait", "sigtimedwait", "semop", "io_getevents", "recv", "accept")), "EINTR")
        counts = asleep.counts()
        check(counts["short"]["write"] and counts["short"]["send"], "a stop did not cut a write short: %r" % counts["short"])
        check(not any(counts["returned"].values()) and not any(counts["interrupted"][name] for name in ("read", "poll", "nanosleep")), "other calls: %r" % counts)


def case_training_pair(directory):
    """The losses of the epochs that are sampled are those of the first, before any sample. (bench/soak also compares with another run.)"""
    with Training() as training:
        begun = training.check_training()["steps"]
        samples = 0
        while samples < 20 or training.check_training()["epochs"] < 3:
            sample(*training.ready["pids"])
            samples += 1
        progress = training.check_training()
        check(progress["steps"] > begun, "it does not go on")
        for pid in training.ready["pids"]:
            check_let_go(pid, "after %d samples" % samples)


def processes_of_group(group):
    """The processes that still run: one that has ended and is not reaped yet holds nothing (some inits reap only every few seconds)."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as stat:
                    state, _, its_group = stat.read().rsplit(")", 1)[1].split()[:3]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(its_group) == group and state not in "ZX":
                found.append(int(name))
    return found


def killed(pids, number, delay):
    """Runs the tool, and ends it by a signal after `delay` seconds."""
    process = subprocess.Popen([tool(), "attach", "--samples", "1", "--pids", ",".join(map(str, pids))], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    select.select([], [], [], delay)          # at a different moment each time; any is right
    process.send_signal(number)
    process.wait(timeout=DEADLINE)
    wait_until(lambda: processes_of_group(process.pid) == [], "the end of the tool's helpers")
    return process


def kill_tool(pids, numbers, count):
    """Ends the tool at `count` moments of its run, by each of the signals in turn; each time it must release the targets. Returns which of
    them have ended it in the middle."""
    begin = time.monotonic()
    sample(*pids)
    longest = min(time.monotonic() - begin, 0.5)
    middle = set()
    for turn in range(count):
        number = numbers[turn % len(numbers)]
        process = killed(pids, number, longest * turn / count)
        if process.returncode == -number:
            middle.add(number)
        for pid in pids:
            check_let_go(pid, "%s in run %d of %d" % (signal.Signals(number).name, turn, count))
    return middle


def case_killed_by_a_signal(directory):
    """None of these signals has a handler in `attach`: they differ for the tool in nothing, and share the moments. The tool leaves no files: the
    directories where they would be are the test's own."""
    numbers, runs = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT), 24
    os.environ["TMPDIR"] = directory
    os.chdir(directory)
    with native("threads") as first, Busy() as busy:
        middle = kill_tool([first.pid, busy.pid], numbers, runs)
        check(middle == set(numbers), "the tool was always through before the signal came: %r of %r" % (middle, numbers))
        check(os.listdir(directory) == [], "files are left: %r" % os.listdir(directory))
        first.check_unharmed()
        busy.finish(2 * runs)


def case_reader_goes_away(directory):
    """SIGPIPE: the reader of the report is gone before the report is written."""
    with native("threads") as fixture:
        for _ in range(10):
            reading, writing = os.pipe()
            process = subprocess.Popen([tool(), "attach", "--samples", "1", "--pids", str(fixture.pid), "--format", "json"], stdout=writing, stderr=subprocess.PIPE)
            os.close(writing)
            os.close(reading)
            _, err = process.communicate(timeout=DEADLINE)
            check(process.returncode >= 0 and err == b"", "status %d, stderr %r" % (process.returncode, err))
            check_let_go(fixture.pid, "closed pipe")
        fixture.check_unharmed()


def case_out_of_memory(directory):
    """The address space is exhausted at every point of a run: one line says so, the target continues, nothing is left behind (no core of
    the tool)."""
    os.chdir(directory)
    with native("threads") as fixture, Busy() as busy:
        refused = complete = 0
        for megabytes in [20 + 6 * step for step in range(17)] + [160, 300, 4096]:
            def limit(size=megabytes << 20):
                resource.setrlimit(resource.RLIMIT_AS, (size, size))
                resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            try:
                process = subprocess.Popen([tool(), "attach", "--samples", "1", "--pids", "%d,%d" % (fixture.pid, busy.pid)], stdin=subprocess.DEVNULL,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limit)
            except subprocess.SubprocessError:
                raise Skip("limits cannot be set here")
            out, err = process.communicate(timeout=DEADLINE)
            # 127: the loader could not map the libraries. A crash would be negative.
            check(process.returncode in (0, 1, 2, 127), "%d MiB: status %d: %r" % (megabytes, process.returncode, err[-300:]))
            refused += process.returncode == 2 and b"out of memory" in err
            complete += process.returncode in (0, 1)
            for pid in (fixture.pid, busy.pid):
                check_let_go(pid, "%d MiB" % megabytes)
        check(complete > 0, "it never had enough memory")
        check(refused > 0, "it never ran out of memory")
        check(os.listdir(directory) == [], "files are left: %r" % os.listdir(directory))
        fixture.check_unharmed()
        busy.finish(30)


def case_a_library_aborts(directory):
    """An assertion of libdw fails, as when its hash tables cannot grow: one line says so, the exit status is 2, there is no core, and the
    target continues. A signal from outside ends the tool as usual."""
    if "ASAN_OPTIONS" in os.environ:
        raise Skip("nothing can be preloaded into a sanitized tool")
    os.chdir(directory)
    library = os.path.join(os.path.dirname(os.environ["RANKSTACKS_FIXTURES"]), "tests", "libaborting_libdw.so")
    def allow_cores():
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    # A program with debug information of its own: the machine's libraries may have none.
    with native("inlined") as fixture:
        process = subprocess.run([tool(), "attach", "--samples", "1", "--pids", str(fixture.pid)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env=dict(os.environ, LD_PRELOAD=library), preexec_fn=allow_cores, timeout=DEADLINE)
        check(process.returncode == 2 and b"abort()" in process.stderr and b"hint: " in process.stderr, "status %d: %r" % (process.returncode, process.stderr))
        check_let_go(fixture.pid, "after abort()")
        check(os.listdir(directory) == [], "files are left: %r" % os.listdir(directory))
        fixture.check_unharmed()
        waiting = subprocess.Popen([tool(), "attach", "--pids", str(fixture.pid), "--samples", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(0.3)
        waiting.send_signal(signal.SIGABRT)
        _, err = waiting.communicate(timeout=DEADLINE)
        check(waiting.returncode == -signal.SIGABRT and b"library" not in err, "status %d: %r" % (waiting.returncode, err))
        check_let_go(fixture.pid, "after SIGABRT")


def case_two_tools_at_once(directory):
    """Each tool takes a moment only, and waits for the other; a tracer that holds a process for longer is named."""
    with native("threads") as fixture:
        pid = str(fixture.pid)
        for _ in range(15):
            tools = [subprocess.Popen([tool(), "attach", "--samples", "1", "--pids", pid, "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
            for process in tools:
                out, err = process.communicate(timeout=DEADLINE)
                rank = only_rank(json.loads(out), fixture.pid)
                text = " ".join(problem["message"] for problem in rank["problems"]) + " ".join(str(thread.get("problem", "")) for thread in rank["threads"])
                if process.returncode != 0:
                    check("already traced by pid" in text or "already traced by pid" in err.decode(), "status %d: %r, %r" % (process.returncode, text, err))
                else:
                    check(len(rank["threads"]) == 18 and all(thread["frames"] for thread in rank["threads"]), "a sample is incomplete: %r" % rank)
            check_let_go(fixture.pid, "after two tools")
        fixture.check_unharmed()


def case_ranks_die_during_the_attach(directory):
    """kill -9 of one rank at any moment: the tool ends normally, the other rank is complete and continues."""
    chance = random.Random(1)
    with native("threads") as steady:
        for turn in range(15):
            victim = Busy()
            try:
                process = subprocess.Popen([tool(), "attach", "--samples", "1", "--pids", "%d,%d" % (victim.pid, steady.pid), "--format", "json"],
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                select.select([], [], [], chance.random() * 0.04)
                os.kill(victim.pid, signal.SIGKILL)
                out, err = process.communicate(timeout=DEADLINE)
                check(process.returncode in (0, 1), "status %d: %r" % (process.returncode, err))
                rank = only_rank(json.loads(out), steady.pid)
                check(rank["status"] == "complete" and len(rank["threads"]) == 18, "turn %d: the steady rank: %r" % (turn, rank["problems"]))
                # It can be reaped: a tracer that held on to its threads would prevent that.
                check(victim.process.wait(timeout=DEADLINE) == -signal.SIGKILL, "its status: %r" % victim.process.returncode)
            finally:
                victim.end()
            check_let_go(steady.pid, "after the other rank's death")
        steady.check_unharmed()


def case_suspended_tool(directory):
    """Ctrl-Z cannot suspend the tool while it holds a process: SIGTSTP waits until the tool has released it."""
    with native("crowd", "1000") as crowd:            # takes long to stop, so that the signal comes in the middle
        begin = time.monotonic()
        sample(crowd.pid)
        longest = min(time.monotonic() - begin, 1)
        suspended = 0
        for turn in range(16):
            process = subprocess.Popen([tool(), "attach", "--samples", "1", "--pids", str(crowd.pid)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, preexec_fn=lambda: os.setpgid(0, 0))   # the kernel ignores SIGTSTP in orphaned groups
            select.select([], [], [], longest * turn / 20)
            try:
                process.send_signal(signal.SIGTSTP)
                wait_until(lambda: state_of(process.pid) in ("T", "Z", "gone"), "the tool to be suspended or through")
                if state_of(process.pid) == "T":
                    suspended += 1
                    check(not tracers_of(crowd.pid), "turn %d: the suspended tool holds its target" % turn)
            finally:
                process.send_signal(signal.SIGCONT)
                process.wait(timeout=DEADLINE)
        check(suspended > 0, "the tool was always through before the signal came")
        crowd.check_unharmed()


if __name__ == "__main__":
    cases.run(globals(), "harmless")
