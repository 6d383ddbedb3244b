"""Fixture programs as processes: starts them, waits for them, examines them through /proc, and ends them."""
import ctypes
import glob
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

DEADLINE = 60.0          # seconds for anything that should take a moment


class Failure(Exception):
    """The test has failed; the message says how."""


class Skip(Exception):
    """The test cannot run here; the message says why."""


def check(condition, message):
    if not condition:
        raise Failure(message)


class Attempts:
    """What failed or was skipped of many parts of a test, such as those that share a job: all are tried."""

    def __init__(self):
        self.failures, self.skipped = [], []

    def make(self, name, attempt):
        try:
            return attempt()
        except Skip as skipped:
            self.skipped.append("%s skipped: %s" % (name, skipped))
        except (Failure, subprocess.TimeoutExpired) as failure:
            self.failures.append("%s: %s" % (name, failure))
        return None

    def finish(self):
        for line in self.skipped:
            print(line)
        check(not self.failures, "\n".join(self.failures))


def task_states(pid):
    """{tid: (state, voluntary switches, other switches)}; threads that end meanwhile are left out."""
    found = {}
    try:
        tids = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return found
    for tid in tids:
        try:
            with open("/proc/%d/task/%s/status" % (pid, tid), encoding="utf-8", errors="replace") as status:
                fields = dict(line.split(":", 1) for line in status if ":" in line)
        except OSError:
            continue
        found[int(tid)] = (fields["State"].split()[0], fields.get("voluntary_ctxt_switches"), fields.get("nonvoluntary_ctxt_switches"))
    return found


def settle(pid):
    """Returns when no thread of `pid` runs, and none has run between two samples."""
    deadline = time.monotonic() + DEADLINE
    before = None
    while time.monotonic() < deadline:
        now = task_states(pid)
        check(now, "the fixture is gone")
        if now == before and all(state != "R" for state, _, _ in now.values()):
            return
        before = now
        select.select([], [], [], 0.02)
    raise Failure("the fixture's threads do not come to rest: %r" % (before,))


def wait_until(condition, what, seconds=DEADLINE):
    deadline = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < deadline, "gave up waiting for: " + what)
        select.select([], [], [], 0.01)


def state_of(pid):
    return task_states(pid).get(pid, ("gone",))[0]


class Fixture:
    """A running fixture program. The line that it has printed is in `ready`; end() ends it, on every path if it is used with `with`."""

    def __init__(self, command, deadline=DEADLINE, **options):
        self.command = command
        if command[0].startswith(os.environ.get("RANKSTACKS_FIXTURES", "?") + os.sep) and not os.path.exists(command[0]):
            raise Failure("%s is not built: cmake --build build" % command[0])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self.pid = self.process.pid
        self.text = b""
        try:
            line = self._line(deadline)
            self.ready = json.loads(line)
            if "skip" in self.ready:
                raise Skip(self.ready["skip"])
            self.pid = self.ready["pid"]
            if not self.ready.get("runs"):
                settle(self.pid)
        except BaseException:
            self.end()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.end()

    def _line(self, timeout=DEADLINE):
        deadline = time.monotonic() + timeout
        while b"\n" not in self.text:
            readable, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            check(readable, "no line from %r in %d s" % (self.command, timeout))
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            check(more, "%r ended without a line (status %r)" % (self.command, self.process.poll()))
            self.text += more
        line, self.text = self.text.split(b"\n", 1)
        return line

    def let_crash(self):
        """Tells a fixture that crashes to do so now."""
        if "crash_fd" in self.ready:
            with open("/proc/%d/fd/%d" % (self.pid, self.ready["crash_fd"]), "wb") as stream:
                stream.write(b"x")
        else:
            self.write(b"go\n")

    def write(self, text):
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def check_unharmed(self, answers=True):
        """Nobody traces it, no thread is stopped, and it still does its work."""
        for tid in os.listdir("/proc/%d/task" % self.pid):
            try:
                with open("/proc/%d/task/%s/status" % (self.pid, tid), encoding="utf-8", errors="replace") as status:
                    fields = dict(line.split(":", 1) for line in status if ":" in line)
            except (FileNotFoundError, ProcessLookupError):       # a thread that has ended meanwhile
                continue
            check(int(fields["TracerPid"]) == 0, "thread %s is still traced by %s" % (tid, fields["TracerPid"].strip()))
            check(fields["State"].split()[0] not in "tT", "thread %s is left stopped: %s" % (tid, fields["State"].strip()))
        if answers:
            self.write(b"are you there?\n")
            line = self._line()
            check(line == b"alive", "the fixture answered %r" % line)

    def _awaits_its_end(self):
        """Whether a thread waits for the end of standard input, as far as its system call tells: in read(), poll(), select() or epoll."""
        for name in glob.glob("/proc/%d/task/*/syscall" % self.process.pid):
            try:
                with open(name, encoding="ascii") as call:
                    words = call.read().split()
            except OSError:
                continue
            if words[:2] == ["0", "0x0"] or words[0] in ("7", "23", "232", "270", "271", "281"):
                return True
        return False

    def end(self):
        ends = state_of(self.pid) not in "tT" and self._awaits_its_end()
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(timeout=10 if ends else 0.5)
        except subprocess.TimeoutExpired:
            for number in (signal.SIGKILL, signal.SIGCONT):
                try:
                    os.kill(self.process.pid, number)
                except ProcessLookupError:
                    pass
            self.process.wait()
        self.process.stdout.close()
        for directory in getattr(self, "ready", {}).get("remove", []):
            shutil.rmtree(directory, ignore_errors=True)


class Opened:
    """Watches whether a file is opened from now on, by whatever name (inotify). An open with O_PATH does not count."""
    IN_OPEN = 0x20

    def __init__(self, path):
        self.path = path
        libc = ctypes.CDLL(None, use_errno=True)
        self.events = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        watched = libc.inotify_add_watch(self.events, path.encode(), self.IN_OPEN)
        check(watched >= 0, "inotify: %s: %s" % (path, os.strerror(ctypes.get_errno())))

    def opened(self):
        try:
            return bool(os.read(self.events, 4096))
        except BlockingIOError:
            return False

    def check_never_opened(self, what):
        """Checks that it was not opened, and that the watch would have noticed."""
        check(not self.opened(), "%s: %s was opened" % (what, self.path))
        os.close(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK))
        check(self.opened(), "the watch of %s sees nothing" % self.path)

    def close(self):
        os.close(self.events)


def tool():
    path = os.environ.get("RANKSTACKS")
    check(path and os.access(path, os.X_OK), "RANKSTACKS does not name the program: %r" % path)
    return path


def need_torch(part="distributed", python="/usr/bin/python3"):
    """Skips the test if the interpreter has no torch with that part. It is looked for and not imported: an import takes a second."""
    code = ("import importlib.util, os, sys; found = importlib.util.find_spec('torch'); "
            "sys.exit(found is None or not os.path.exists(os.path.join(found.submodule_search_locations[0], sys.argv[1])))")
    if subprocess.run([python, "-c", code, part], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        raise Skip("%s has no torch here (Debian: python3-torch)" % python)


def command_of_tool(machine=None):
    """The command of the tool; with `machine`, the tests' build of it, which uses that directory for the machine's NVIDIA files
    (tests/tool)."""
    if machine is None:
        return [tool()]
    return [os.path.join(os.path.dirname(os.environ["RANKSTACKS_FIXTURES"]), "tests", "rankstacks_for_tests"), "--test-machine", machine]


def run_tool(*arguments, machine=None, **options):
    """(exit status, stdout, stderr), all bytes. A running process is sampled once, unless the arguments say how often."""
    if arguments[:1] == ("attach",) and "--samples" not in arguments and "--help" not in arguments:
        arguments = ("attach", "--samples", "1") + arguments[1:]
    process = subprocess.run(command_of_tool(machine) + [str(argument) for argument in arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             stdin=subprocess.DEVNULL, timeout=120, **options)
    return process.returncode, process.stdout, process.stderr


def json_report(*arguments, expect=0, **options):
    status, out, err = run_tool(*arguments, "--format", "json", **options)
    check(status == expect, "exit status %d instead of %d from: %s\n%s" % (status, expect, " ".join(map(str, arguments)), err.decode(errors="replace")))
    import schema
    report = json.loads(out.decode("utf-8"))
    errors = schema.errors_in(report)
    check(not errors, "the report is not as docs/json.md describes it:\n  " + "\n  ".join(errors[:20]))
    return report


def main(test, description, arguments):
    """Runs test(directory, *arguments) in a directory of its own, which is kept when it fails. Exit status 77: skipped."""
    base = os.environ.get("RANKSTACKS_WORK") or os.path.join(os.path.dirname(tool()), "truth")
    directory = os.path.join(base, "-".join([description] + [argument.replace("/", "_") for argument in arguments]))
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    try:
        test(directory, *arguments)
    except Skip as skip:
        print("skipped: %s" % skip)
        shutil.rmtree(directory, ignore_errors=True)
        return 77
    except (Failure, subprocess.TimeoutExpired) as failure:
        print("FAILED: %s" % failure)
    else:
        print("ok")
        shutil.rmtree(directory, ignore_errors=True)
        return 0
    print("its files are in %s; again with:\n  RANKSTACKS=%s RANKSTACKS_FIXTURES=%s %s %s"
          % (directory, tool(), os.environ.get("RANKSTACKS_FIXTURES", ""), sys.executable, " ".join(sys.argv)))
    return 1
