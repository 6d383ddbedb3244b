"""gdb as a second opinion: takes a core of a process, and gives the stacks that gdb finds in that core."""
import json
import os
import re
import shutil
import subprocess

from processes import Failure, Skip, check

HERE = os.path.dirname(os.path.abspath(__file__))
# gdb reads an interpreter's DWARF for half a second: it keeps its index of each library, which all tests use.
INDEXES = os.path.join(os.path.dirname(os.environ.get("RANKSTACKS_FIXTURES", "")), "gdb-index")
GDB = ["gdb", "-nx", "-q", "-batch", "-iex", "set auto-load off", "-iex", "set index-cache directory " + INDEXES, "-iex", "set index-cache enabled on"]
# A core is the same without the symbols of the process's libraries, which gdb reads for one and a half seconds where torch is among them.
WITHOUT_SYMBOLS = "set auto-solib-add off"
EVAL_LOOP = re.compile(r"_PyEval_EvalFrameDefault|_TAIL_CALL_")


def take_core(fixture, path, debug_directory=None):
    """Writes a core with gdb's gcore and returns gdb's stacks of that core: {tid: [[pc, function, module], ...]}."""
    if not shutil.which("gdb"):
        raise Skip("no gdb on this machine")
    commands = ["set confirm off", "set pagination off", "set debuginfod enabled off", "set backtrace past-main on",
                "set backtrace limit unlimited"]
    if debug_directory:
        commands.append("set debug-file-directory %s:/usr/lib/debug" % debug_directory)
    commands += [WITHOUT_SYMBOLS, "attach %d" % fixture.pid, "gcore " + path, "detach", "set auto-solib-add on", "core-file " + path, "source " + os.path.join(HERE, "gdb_stacks.py")]
    return stacks_of(commands, path)


def write_core(pid, path):
    """Writes a core, without gdb's stacks of it: for processes as large as a torch rank."""
    if not shutil.which("gdb"):
        raise Skip("no gdb on this machine")
    done = subprocess.run([*GDB, "-ex", WITHOUT_SYMBOLS, "-ex", "attach %d" % pid, "-ex", "gcore " + path, "-ex", "detach"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240)
    check(os.path.exists(path), "gdb has written no core:\n" + done.stdout.decode(errors="replace")[-2000:])


def stacks_in_cores(paths, executable, sysroot=None):
    """gdb's stacks of each core, by one gdb: a list of {tid: [[pc, function, module], ...]}."""
    commands = ["set confirm off", "set debuginfod enabled off", "set backtrace past-main on", "set backtrace limit unlimited"]
    if sysroot:
        commands.append("set sysroot " + sysroot)
    commands.append("file " + executable)
    for path in paths:
        commands += ["core-file " + path, "source " + os.path.join(HERE, "gdb_stacks.py")]
    return printed_stacks(commands, len(paths))


def stacks_of(commands, path):
    (stacks,) = printed_stacks(commands, 1)
    check(os.path.exists(path), "gdb has written no core")
    return stacks


def printed_stacks(commands, count):
    arguments = list(GDB)
    for command in commands:
        arguments += ["-ex", command]
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)
    lines = [line for line in done.stdout.decode(errors="replace").splitlines() if line.startswith("STACKS ")]
    check(len(lines) == count, "gdb has printed the stacks of %d cores instead of %d:\n%s" % (len(lines), count, done.stderr.decode(errors="replace")[-2000:]))
    return [{int(tid): frames for tid, frames in json.loads(line[7:])["threads"].items()} for line in lines]


def is_eval_loop(function, module, stripped):
    """Whether gdb's frame is the interpreter's C loop. In a stripped interpreter with tail calls (Debian's 3.14) the loop has no name."""
    if function is None:
        return stripped and module is None
    return EVAL_LOOP.match(function) is not None


def agree(thread, stack, stripped=False):
    """Compares address by address: the report's native frames are gdb's, and the report has Python frames where gdb has the eval loop.

    Returns None, or a text with the difference. Consecutive frames that correspond to each other are compared as one: from 3.11 on a run of
    Python frames shares one C frame, and with tail calls each instruction of the loop could be a frame.
    """
    ours = []
    for frame in thread["frames"]:
        if frame["kind"] == "python":
            if not ours or ours[-1] != "python":
                ours.append("python")
        elif not frame["inlined"]:
            ours.append(int(frame["address"], 16))
    has_python = "python" in ours
    addresses = set(ours)
    theirs = []
    for pc, function, module in stack:
        loop = is_eval_loop(function, module, stripped and pc not in addresses)
        if has_python and loop and pc not in addresses:
            if not theirs or theirs[-1] != "python":
                theirs.append("python")
        else:
            theirs.append(pc)
    if ours == theirs:
        return None
    at = next((i for i, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), min(len(ours), len(theirs)))
    name = {pc: function for pc, function, _ in stack}
    shown = lambda items: [item if item == "python" else "%#x %s" % (item, name.get(item)) for item in items[max(0, at - 2):at + 4]]
    return "frame %d of tid %d: the report has %r, gdb %r" % (at, thread["tid"], shown(ours), shown(theirs))
