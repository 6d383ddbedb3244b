"""`rankstacks dump`, which watchdogs call in the place of `py-spy dump`: the same text and JSON, one look for calls that come together."""
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys

import cases
import debugger
import interpreters
from command_line import SOURCE, free_pid, native, text_of
from processes import Fixture, Skip, check, json_report, run_tool, settle, tool, wait_until

PROGRAM = """import json, os, sys, threading
class Loader:
    def waits(self):
        threading.Event().wait()
def reads():
    def inner():
        sys.stdin.read()
    inner()
threads = [threading.Thread(target=Loader().waits, name="loader-7", daemon=True), threading.Thread(target=Loader().waits, daemon=True)]
for thread in threads:
    thread.start()
print(json.dumps({"pid": os.getpid(), "tids": [getattr(thread, "native_id", 0) for thread in threads], "id": threading.get_ident()}), flush=True)
reads()
"""


class Program(Fixture):
    def __init__(self, directory, python="/usr/bin/python3", **options):
        path = os.path.join(directory, "program.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        super().__init__([python, path], **options)


def dump(directory, *arguments, expect=0, **options):
    """stdout, stderr of a call whose reports go to a directory of the test's own."""
    runtime = os.path.join(directory, "runtime")
    os.makedirs(runtime, mode=0o700, exist_ok=True)
    status, out, err = run_tool("dump", *arguments, env=dict(os.environ, XDG_RUNTIME_DIR=runtime), **options)
    check(status == expect, "status %d instead of %d: %s" % (status, expect, err.decode()))
    return text_of(out), err.decode()


def reports(directory):
    found = os.path.join(directory, "runtime", "rankstacks")
    return sorted(os.path.join(found, name) for name in os.listdir(found) if name.startswith("dump-"))


def case_the_text(directory):
    with Program(directory) as program:
        text, err = dump(directory, "--pid", str(program.pid))
        check(err == "", err)
        head, verdict = text.split("\nrankstacks: ")
        version = subprocess.run(["/usr/bin/python3", "-c", "import platform; print(platform.python_version())"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
        threading = "\n    Thread.run (threading.py:N)\n    Thread._bootstrap_inner (threading.py:N)\n    Thread._bootstrap (threading.py:N)\n"
        wait = "\n    Condition.wait (threading.py:N)\n    Event.wait (threading.py:N)\n    Loader.waits (program.py:4)" + threading
        if tuple(map(int, version.split(".")[:2])) < (3, 11):
            wait = re.sub("    (Condition|Event|Loader|Thread)[.]", "    ", wait)
        inner = "reads.<locals>.inner" if tuple(map(int, version.split(".")[:2])) >= (3, 11) else "inner"
        expected = ("Process %d: /usr/bin/python3 %s\nPython v%s (%s)\n\nThread %d (idle): \"MainThread\"\n    %s (program.py:7)\n    reads (program.py:8)\n"
                    "    <module> (program.py:13)\nThread %d (idle): \"loader-7\"%sThread %d (idle): \"Thread-1%s\"%s"
                    % (program.pid, os.path.join(directory, "program.py"), version, os.path.realpath("/proc/%d/exe" % program.pid), program.pid, inner,
                       program.ready["tids"][0], wait, program.ready["tids"][1], " (waits)" if version >= "3.10" else "", wait))
        check(re.sub(r"threading.py:\d+", "threading.py:N", head) == expected, "%s\ninstead of\n%s" % (head, expected))
        check("  verdict: " in verdict and "  report: %s\n" % reports(directory)[0] in verdict, verdict)
        program.check_unharmed(answers=False)


def case_the_json(directory):
    with Program(directory) as program:
        out, err = dump(directory, "-p", hex(program.pid), "-j")
        check("  verdict: " in err and "  report: " in err, err)
        threads = json.loads(out)
        check([(thread["pid"], thread["os_thread_id"], thread["thread_name"]) for thread in threads][1:]
              == [(program.pid, program.ready["tids"][0], "loader-7"), (program.pid, program.pid, "MainThread")], out)
        main = threads[-1]
        check(main["thread_id"] == program.ready["id"] and main["active"] is False and main["owns_gil"] is False and main["process_info"] is None, out)
        check(list(main["frames"][0]) == ["name", "filename", "module", "short_filename", "line", "locals", "is_entry", "is_shim_entry"], out)
        check([frame["line"] for frame in main["frames"]] == [7, 8, 13] and main["frames"][0]["filename"] == os.path.join(directory, "program.py"), out)
        out, _ = dump(directory, "--pid", str(program.pid), "--json", "--full-filenames", "--native")
        frames = json.loads(out)[-1]["frames"]
        check(any(frame["module"] and "libc" in frame["module"] for frame in frames), out)
        check(all(frame["short_filename"] == frame["filename"] for frame in frames), out)


def case_the_same_as_py_spy(directory):
    """All of the JSON but native frames, and the text, of every CPython of this machine that py-spy knows."""
    if not shutil.which("py-spy"):
        raise Skip("py-spy is not installed (PyPI: py-spy 0.4)")
    version = subprocess.run(["py-spy", "--version"], stdout=subprocess.PIPE, check=True).stdout.decode()
    if not version.startswith("py-spy 0.4."):
        raise Skip("py-spy 0.4 is needed, this is " + version)
    compared = 0
    for number in ("3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13"):
        python = interpreters.in_pyenv(number)
        if python is None:
            continue
        with Program(directory, python.path) as program:
            for arguments in (["--json"], [], ["--full-filenames"]):
                command = ["py-spy", "dump", "--pid", str(program.pid)] + arguments
                spied = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
                if spied.returncode != 0:
                    print("py-spy does not read %s: %s" % (number, spied.stderr.decode().splitlines()[0]))
                    break
                out, _ = dump(directory, "--pid", str(program.pid), *arguments)
                theirs = spied.stdout.decode()
                check(out.split("\nrankstacks: ")[0] == theirs, "%s %r:\n%s\ninstead of\n%s" % (number, arguments, out, theirs))
                compared += 1
    if not compared:
        raise Skip("py-spy reads no CPython of this machine")


# Values of every kind that py-spy shows, and of those of which it tells the type alone.
LOCALS = r"""import collections, json, os, sys
class Point:
    def step(self, x):
        inner(x, 3, 4, 5, k="z", w=1)
class Items(list): pass
class Table(dict): pass
def inner(a, b=2, *args, k="kw", **kw):
    small = 5; negative = -7; big = 2 ** 70; two_digits = 2 ** 59 + 1; zero = 0; yes = True; no = False; none = None
    half = 1.5; large = 1e300; nan = float("nan"); even = 100.0; inf = -float("inf"); tenth = 0.1; tiny = 1e-7; minus = -0.0; third = 1 / 3
    text = "it's \"q\" \n x"; wide = "\xfc\u20ac\U0001f600"; empty = ""; long_text = "x" * 300; long_wide = "\u20ac" * 300
    list_ = [1, 2, "x"]; tuple_ = (1,); no_tuple = (); no_list = []; dict_ = {"a": 1, 2: "b", None: [1]}; no_dict = {}; items = Items([1]); table = Table(a=1)
    ordered = collections.OrderedDict([("a", 1), ("b", 2)]); pair = collections.namedtuple("Pair", "p q")(1, 2)
    long_list = list(range(200)); long_dict = {i: i for i in range(200)}; strings = ["z" * 100] * 5; nested = {"a": [{"b": (1, 2, [3, {"c": "d"}])}]}
    deleted = {i: i for i in range(20)}; [deleted.pop(i) for i in range(15)]
    endless = []; endless.append(endless); endless_dict = {}; endless_dict["itself"] = endless_dict
    point = Point(); attributes = point.__dict__; bytes_ = b"ab"; set_ = {1, 2}; function = inner; module = os; complex_ = 1j; error = ValueError("x")
    unset = 1
    del unset
    print(json.dumps({"pid": os.getpid(), "ready": True}), flush=True)
    sys.stdin.read()
Point().step("arg")
"""


def case_locals_as_py_spy_has_them(directory):
    if not shutil.which("py-spy"):
        raise Skip("py-spy is not installed (PyPI: py-spy 0.4)")
    path = os.path.join(directory, "program.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(LOCALS)
    compared = 0
    for number in ("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13"):
        python = interpreters.in_pyenv(number)
        if python is None:
            continue
        with Fixture([python.path, path]) as program:
            for arguments in (["--locals"], ["--locals", "--json"], ["-l", "-l"], ["-l", "-l", "-l", "--json"]):
                spied = subprocess.run(["py-spy", "dump", "--pid", str(program.pid)] + arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
                if spied.returncode != 0:
                    print("py-spy does not read %s: %s" % (number, spied.stderr.decode().splitlines()[0]))
                    break
                out, _ = dump(directory, "--pid", str(program.pid), *arguments)
                mine, theirs = out.split("\nrankstacks: ")[0], spied.stdout.decode()
                if "--json" in arguments:
                    mine, theirs = json.loads(mine), json.loads(theirs)
                    if number == "3.6":  # py-spy knows no names of threads there
                        for threads in (mine, theirs):
                            for thread in threads:
                                thread["thread_name"] = None
                elif number == "3.6":
                    mine, theirs = (re.sub('("MainThread"|: "MainThread")', "", text) for text in (mine, theirs))
                check(mine == theirs, "%s %r:\n%s\ninstead of\n%s" % (number, arguments, mine, theirs))
                compared += 1
            program.check_unharmed(answers=False)
    if not compared:
        raise Skip("py-spy reads no CPython of this machine")


def case_eight_calls_are_one_look(directory):
    command = [sys.executable, os.path.join(SOURCE, "fixtures", "jobs", "watched.py"), "--ranks", "4"]
    runtime = os.path.join(directory, "runtime")
    os.makedirs(runtime, mode=0o700)
    with Fixture(command) as job:
        pids = job.ready["pids"]
        calls = [subprocess.Popen([tool(), "dump", "--pid", str(pid), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, XDG_RUNTIME_DIR=runtime))
                 for pid in pids for more in ([], ["--native"])]
        paths = set()
        for call, pid in zip(calls, [pid for pid in pids for _ in range(2)]):
            out, err = call.communicate(timeout=100)
            text = text_of(out)
            check(call.returncode == 0 and text.startswith("Process %d: " % pid) and "rankstacks: 4 ranks" in text, "%d %r %s" % (call.returncode, err, text))
            paths.add(re.search("  report: (.*)", text).group(1))
        check(len(paths) == 1 and list(paths) == reports(directory), "%r, %r" % (paths, reports(directory)))
        report = json_report("report", *paths)
        check(sorted(rank["pid"] for rank in report["ranks"]) == sorted(pids), "%r" % report["ranks"])
        job.check_unharmed(answers=False)
        # The launcher is no rank: it is shown by itself, with the verdict on its ranks.
        text, _ = dump(directory, "--pid", str(job.pid))
        check(text.startswith("Process %d: " % job.pid) and "rankstacks: 4 ranks" in text and "main (watched.py:" in text, text)


def case_calls_from_within_the_ranks(directory):
    """The watchdog is a part of each rank, so the tool has a rank's variables, and the calls of the others are children of ranks."""
    runtime = os.path.join(directory, "runtime")
    os.makedirs(runtime, mode=0o700)
    program = ("import json, os, subprocess, sys\ncalls = [subprocess.Popen([sys.argv[1], 'dump', '--pid', str(os.getpid())], stdout=subprocess.PIPE) for _ in range(3)]\n"
               "texts = [call.communicate()[0].decode() for call in calls]\n"
               "print(json.dumps({'pid': os.getpid(), 'texts': texts, 'status': [call.returncode for call in calls]}), flush=True)\nsys.stdin.read()\n")
    environment = dict(os.environ, XDG_RUNTIME_DIR=runtime, RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(10000 + os.getpid() % 20000))
    with Fixture([sys.executable, "-c", program, tool()], env=environment) as rank:
        check(rank.ready["status"] == [0, 0, 0] and all(text.startswith("Process %d: " % rank.pid) for text in rank.ready["texts"]), "%r" % rank.ready)
        (path,) = reports(directory)
        report = json_report("report", path)
        check([(found["pid"], found["rank"]) for found in report["ranks"]] == [(rank.pid, 0)], "%r" % [(found["pid"], found["command"]) for found in report["ranks"]])


def case_directories_of_others_are_not_used(directory):
    runtime = os.path.join(directory, "runtime")
    os.makedirs(runtime, mode=0o700)
    shared = os.path.join(runtime, "rankstacks")
    elsewhere = os.path.join(directory, "elsewhere")
    os.mkdir(elsewhere, mode=0o700)
    with native("chain") as program:
        os.symlink(elsewhere, shared)
        for make in (lambda: None, lambda: (os.remove(shared), os.mkdir(shared), os.chmod(shared, 0o777))):
            make()
            text, err = dump(directory, "--pid", str(program.pid))
            check(text.startswith("Process %d: " % program.pid) and shared in err and "report" not in text.split("rankstacks: ")[1], "%s %s" % (err, text))
        check(os.listdir(elsewhere) == [] and os.listdir(shared) == [], "something was written")
        os.rmdir(shared)
        os.mkdir(shared, mode=0o700)
        target = os.path.join(directory, "target")
        for slot in range(256):       # a lock's name that leads elsewhere
            os.symlink(target, os.path.join(shared, "lock-%02x" % slot))
        status, out, err = run_tool("dump", "--pid", program.pid, env=dict(os.environ, XDG_RUNTIME_DIR=runtime))
        check(status == 2 and out == b"" and b"lock-" in err and not os.path.exists(target), "%d %r %r" % (status, out, err))


def case_within(directory):
    with native("chain") as program:
        dump(directory, "--pid", str(program.pid))
        shared = os.path.join(directory, "runtime", "rankstacks")
        for path in reports(directory):
            os.remove(path)
        held = [open(os.path.join(shared, name), "w", encoding="utf-8") for name in os.listdir(shared) if name.startswith("lock-")]
        for lock in held:
            fcntl.flock(lock, fcntl.LOCK_EX)
        # Who holds the locks makes no report: the call looks for itself, in time; so do those that come with it.
        calls = [subprocess.Popen([tool(), "dump", "--pid", str(program.pid), "--within", "20"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=dict(os.environ, XDG_RUNTIME_DIR=os.path.join(directory, "runtime"))) for _ in range(3)]
        said = 0
        for call in calls:
            out, err = (text_of(text) for text in call.communicate(timeout=100))
            check(call.returncode == 0 and out.startswith("Process %d: " % program.pid) and "  report: " in out, "%d %r %r" % (call.returncode, out, err))
            said += "another process has locked it and made no report" in err
        check(said == 1 and len(reports(directory)) == 1, "%d own looks, %r" % (said, reports(directory)))
        for lock in held:
            lock.close()
        out, err = dump(directory, "--pid", str(program.pid), "--within", "20")
        check("has locked it" not in err, err)


def case_a_process_without_python_and_a_core(directory):
    with native("threads") as program:
        text, _ = dump(directory, "--pid", str(program.pid), "--within", "30")
        check(text.startswith("Process %d: " % program.pid) and "\nPython v" not in text and "Thread %d (" % program.pid in text, text)
        check("    main (threads)\n" in text and "\n    read (" in text, text)
    with Program(directory) as program:
        core = os.path.join(directory, "core.%d" % program.pid)
        debugger.write_core(program.pid, core)
        text, _ = dump(directory, "--core", core)
        check("Thread %d (" % program.pid in text and ": \"MainThread\"\n" in text and "loader-7" in text and "verdict" not in text, text)


def case_subprocesses(directory):
    program = "import json, os, subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'], stdin=subprocess.PIPE)\n" \
              "print(json.dumps({'pid': os.getpid(), 'child': child.pid}), flush=True)\nsys.stdin.read()\n"
    with Fixture([sys.executable, "-c", program]) as parent:
        settle(parent.ready["child"])
        text, _ = dump(directory, "--pid", str(parent.pid), "-s")
        check("\n" + "-" * 80 + "\nProcess %d: " % parent.ready["child"] in text and "\nParent Process %d: " % parent.pid in text, text)
        text, _ = dump(directory, "--pid", str(parent.pid))
        check("Process %d: " % parent.ready["child"] not in text, text)


def case_what_it_prints_is_read_back(directory):
    with Program(directory) as program:
        for number, arguments in enumerate((["--native"], ["--json"])):
            path = os.path.join(directory, "dump%d.txt" % number)
            with open(path, "w", encoding="utf-8") as file:
                file.write(dump(directory, "--pid", str(program.pid), *arguments)[0])
            rank = json_report("report", path)["ranks"][0]
            check((rank["pid"], rank["dumped_by"], len(rank["threads"])) == (program.pid, "py-spy", 3), "%r" % rank)


def case_usage(directory):
    gone = free_pid()
    for arguments, said in (([], "--pid"), (["--pid", "x"], "expected a process id"), (["--pid", "0"], "expected a process id"), (["--pid", "0x"], "expected a process id"),
                            (["--pid", "1", "--core", "/bin/sh"], "excludes"), (["--pid", "1", "--within", "nan"], "--within"), (["--pid", "1", "--within", "0"], "--within"),
                            (["--core", os.path.join(directory, "gone")], "gone"), (["--pid", str(gone)], "no such process")):
        out, err = dump(directory, *arguments, expect=2)
        check(out == "" and said in err, "%r: %s" % (arguments, err))


if __name__ == "__main__":
    cases.run(globals(), "watchdog-dump")
