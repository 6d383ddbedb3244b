"""Cores and libraries that are damaged on purpose: the tool ends within 10 s and 1 GB, reports what is wrong, and reads a good core that is
given as well as if it were alone."""
import glob
import json
import mmap
import os
import random
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
import threading

import cases
import debugger
from command_line import FIXTURES, native, python
from processes import Fixture, Opened, Skip, check
from truth_native import compare
from truth_python import only_rank

HANGS = 60               # the bound is 10 s on a machine that does nothing else
MEMORY = 1 << 30
TOOL = os.environ["RANKSTACKS"]
# Sanitizers take several times the memory.
SANITIZED = b"libasan" in subprocess.run(["ldd", TOOL], stdout=subprocess.PIPE, check=False).stdout


def run_bounded(*arguments):
    """(status, report, stderr) of the tool on these arguments; checks that the tool ends, and its memory."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen([TOOL, *arguments, "--format", "json"], stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        alarm = threading.Timer(HANGS, process.kill)
        alarm.start()
        _, status, usage = os.wait4(process.pid, 0)
        hung = not alarm.is_alive()
        alarm.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        errors = err.read().decode(errors="replace")
        check(not hung, "%s: not done after %d s" % (arguments, HANGS))
        check(process.returncode in (0, 1, 2), "%s: status %d: %s" % (arguments, process.returncode, errors[-2000:]))
        check(SANITIZED or usage.ru_maxrss << 10 < MEMORY, "%s: took %d MB" % (arguments, usage.ru_maxrss >> 10))
        return process.returncode, json.loads(out.read()), errors


def together_with_a_good_one(truth, good, bad, *options):
    """The rank of `bad`, read together with the core `good`, whose rank must be as if it were alone."""
    status, report, err = run_bounded("core", bad, good, *options)
    mine = [rank for rank in report["ranks"] if rank["path"] == bad]
    others = [rank for rank in report["ranks"] if rank["path"] == good]
    check(len(mine) == 1 and len(others) == 1, "ranks: %r" % [rank["path"] for rank in report["ranks"]])
    compare(truth, only_rank({"ranks": others}, others[0]["pid"]), "the good core together with %s" % bad)
    if mine[0]["status"] != "complete":
        check(mine[0]["problems"] and all(problem["message"] for problem in mine[0]["problems"]), "%s: %s without a reason" % (bad, mine[0]["status"]))
        check(status == 1 and mine[0]["problems"][0]["message"][:40] in err, "%s: not said on stderr: %r" % (bad, err))
        check(bad + ": " in err, "%s: stderr does not name it: %r" % (bad, err))
    return mine[0]


def good_core(directory):
    """(truth, core) of a fixture with several threads."""
    with native("threads") as fixture:
        core = os.path.join(directory, "good")
        debugger.take_core(fixture, core)
        return fixture.ready, core


def headers(path):
    """(file offset, fields) of each program header."""
    with open(path, "rb") as stream:
        head = stream.read(64)
        table, = struct.unpack_from("<Q", head, 32)
        count, = struct.unpack_from("<H", head, 56)
        stream.seek(table)
        return [(table + 56 * i, struct.unpack("<IIQQQQQQ", stream.read(56))) for i in range(count)]


UNDO = {}


def changed(core, name, changes):
    """A copy of the core with these bytes at these offsets. An earlier copy of the same name is restored and reused: copying takes
    longest."""
    path = os.path.join(os.path.dirname(core), name)
    if (core, path) not in UNDO:
        shutil.copy(core, path)
    with open(path, "r+b") as stream:
        for offset, content in reversed(UNDO.get((core, path), [])):
            stream.seek(offset)
            stream.write(content)
        UNDO[core, path] = []
        for offset, content in changes:
            stream.seek(offset)
            UNDO[core, path].append((offset, stream.read(len(content))))
            stream.seek(offset)
            stream.write(content)
    return path


def case_cut_at_every_part(directory):
    truth, core = good_core(directory)
    size = os.path.getsize(core)
    notes = next(fields for _, fields in headers(core) if fields[0] == 4)
    places = [1, 63, 64, 65, 64 + 56, notes[2], notes[2] + 20, notes[2] + notes[5] // 2, notes[2] + notes[5] - 1, size // 2, size // 4]
    for place in places:
        cut = os.path.join(directory, "cut-%d" % place)
        shutil.copy(core, cut)
        os.truncate(cut, place)
        rank = together_with_a_good_one(truth, core, cut)
        check(rank["status"] in ("partial", "failed"), "cut at %d: %s" % (place, rank["status"]))
        os.unlink(cut)


def case_headers_flipped(directory):
    """One byte of the ELF header, of a program header or of a note is changed: never a crash, and the good core is read completely."""
    truth, core = good_core(directory)
    numbers = random.Random(4711)
    table = headers(core)
    notes = next(fields for _, fields in table if fields[0] == 4)
    places = [numbers.randrange(16, 64) for _ in range(12)]
    places += [offset + numbers.randrange(56) for offset, _ in numbers.sample(table, 8) for _ in range(2)]
    places += [notes[2] + numbers.randrange(notes[5]) for _ in range(24)]
    for place in places:
        with open(core, "rb") as stream:
            stream.seek(place)
            before = stream.read(1)[0]
        bad = changed(core, "flipped", [(place, bytes([before ^ (1 << numbers.randrange(8))]))])
        together_with_a_good_one(truth, core, bad)


def case_overflowing_numbers(directory):
    truth, core = good_core(directory)
    table = headers(core)
    load = next(offset for offset, fields in table if fields[0] == 1 and fields[5] > 0)
    notes_at, notes = next((offset, fields) for offset, fields in table if fields[0] == 4)
    most = b"\xff" * 8
    near = struct.pack("<Q", (1 << 64) - 4096)
    half = struct.pack("<Q", 1 << 63)
    for name, changes in (("segment's offset", [(load + 8, most)]), ("segment's address", [(load + 16, near)]), ("size in the file", [(load + 32, most)]),
                          ("size in memory", [(load + 40, most)]), ("both sizes", [(load + 32, half), (load + 40, half)]), ("notes' size", [(notes_at + 32, most)]),
                          ("a note's name size", [(notes[2], b"\xff" * 4)]), ("a note's size", [(notes[2] + 4, b"\xff" * 4)]),
                          ("number of program headers", [(56, b"\xfe\xff")]), ("number in section 0", [(56, b"\xff\xff")]), ("place of program headers", [(32, near)]),
                          ("size of a program header", [(54, b"\x39\x00")])):
        rank = together_with_a_good_one(truth, core, changed(core, "overflow", changes))
        check(rank["status"] != "complete" or rank["threads"], "%s: complete, without threads" % name)


def find_note(core, kind):
    """The file offset and the size of the body of the first note of this type."""
    notes = next(fields for _, fields in headers(core) if fields[0] == 4)
    with open(core, "rb") as stream:
        stream.seek(notes[2])
        content = stream.read(notes[5])
    at = 0
    while at + 12 <= len(content):
        name_size, size, found = struct.unpack_from("<III", content, at)
        body = at + 12 + (name_size + 3) // 4 * 4
        if found == kind:
            return notes[2] + body, size
        at = body + (size + 3) // 4 * 4
    raise Skip("this core has no note of type %#x" % kind)


def case_absurd_counts_of_files(directory):
    truth, core = good_core(directory)
    tids = {thread["tid"] for thread in run_bounded("core", core)[1]["ranks"][0]["threads"]}
    at, _ = find_note(core, 0x46494c45)
    for count in (1 << 63, 1 << 32, 0xffffff, 0):
        rank = together_with_a_good_one(truth, core, changed(core, "files", [(at, struct.pack("<Q", count))]))
        check({thread["tid"] for thread in rank["threads"]} == tids, "count %d: threads are missing" % count)
    for page in (0, 1 << 63):
        check(together_with_a_good_one(truth, core, changed(core, "files", [(at + 8, struct.pack("<Q", page))]))["threads"], "page size %d: no threads" % page)


def case_wrong_machine(directory):
    truth, core = good_core(directory)
    for machine in (3, 183, 21, 0, 0xffff):
        rank = together_with_a_good_one(truth, core, changed(core, "machine", [(18, struct.pack("<H", machine))]))
        check(rank["status"] == "failed" and "machine" in rank["problems"][0]["message"], "machine %d: %r" % (machine, rank["problems"]))
    for place, value, what in ((4, 1, "class"), (5, 2, "byte order"), (16, 9, "type")):
        rank = together_with_a_good_one(truth, core, changed(core, "kind", [(place, bytes([value]))]))
        check(rank["status"] == "failed" and what in rank["problems"][0]["message"], "%s: %r" % (what, rank["problems"]))


def case_no_core_at_all(directory):
    truth, core = good_core(directory)
    fifo = os.path.join(directory, "fifo")
    os.mkfifo(fifo)
    empty = os.path.join(directory, "empty")
    open(empty, "wb").close()
    text = os.path.join(directory, "text")
    with open(text, "w", encoding="ascii") as stream:
        stream.write("Traceback (most recent call last):\n" * 1000)
    for bad in (fifo, empty, text, directory, "/dev/zero", "/dev/null", TOOL):
        rank = together_with_a_good_one(truth, core, bad)
        check(rank["status"] == "failed" and bad in rank["problems"][0]["message"], "%s: %r" % (bad, rank["problems"]))


def case_python_lists_damaged(directory):
    """Words of a Python process's heap point at themselves, at each other, or are absurd lengths: all threads are still reported."""
    truth, core = good_core(directory)
    with python("threads") as fixture:
        healthy = os.path.join(directory, "python")
        debugger.take_core(fixture, healthy)
        tids = {thread["tid"] for thread in run_bounded("core", healthy)[1]["ranks"][0]["threads"]}
    numbers = random.Random(7)
    loads = [fields for _, fields in headers(healthy) if fields[0] == 1 and fields[1] & 2 and fields[5] > 0]
    for attempt in range(12):
        changes = []
        with open(healthy, "rb") as stream:
            for _ in range(3000):
                fields = numbers.choice(loads)
                at = fields[2] + numbers.randrange(fields[5] // 8) * 8
                own = fields[3] + (at - fields[2])
                stream.seek(at)
                value, = struct.unpack("<Q", stream.read(8))
                if value == 0:
                    continue
                new = numbers.choice([own, own + 8, value ^ (1 << numbers.randrange(48)), 1 << 62, (1 << 64) - 1, 1 << 31, loads[0][3]])
                changes.append((at, struct.pack("<Q", new)))
        rank = together_with_a_good_one(truth, core, changed(healthy, "damaged", changes))
        check({thread["tid"] for thread in rank["threads"]} == tids, "attempt %d: threads are missing" % attempt)


def case_python_thread_list_is_a_cycle(directory):
    """Every word that points at a thread state points at the same one: lists become cycles."""
    truth, core = good_core(directory)
    with python("threads") as fixture:
        healthy = os.path.join(directory, "python")
        debugger.take_core(fixture, healthy)
    with open(healthy, "rb") as stream:
        content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)      # what this process reads would count for the tool's peak too
    heap = [fields for _, fields in headers(healthy) if fields[0] == 1 and fields[1] & 2 and fields[5] > 0]
    # The words that are most frequent as pointers into the heap are objects that all threads share: each of them is made a cycle in turn.
    counts = {}
    for fields in heap:
        for at in range(fields[2], fields[2] + min(fields[5], 1 << 20) - 8, 8):
            value, = struct.unpack_from("<Q", content, at)
            if any(other[3] <= value < other[3] + other[5] for other in heap):
                counts.setdefault(value, []).append(at)
    often = sorted(counts, key=lambda value: -len(counts[value]))[:40]
    for target in often[::8]:
        changes = [(at, struct.pack("<Q", target)) for value in often for at in counts[value]]
        rank = together_with_a_good_one(truth, core, changed(healthy, "cycle", changes))
        check(rank["threads"], "no threads")
    content.close()


def case_hostile_libraries(directory):
    """Files with the right names on the search path that are not what they should be."""
    program = os.path.join(directory, "program")
    shutil.copy(os.path.join(FIXTURES, "chain"), program)
    with Fixture([program]) as fixture:
        core = os.path.join(directory, "of-program")
        debugger.take_core(fixture, core)
        pid = fixture.pid
    os.rename(program, os.path.join(directory, "kept"))
    search = os.path.join(directory, "search")
    os.mkdir(search)
    place = os.path.join(search, "program")
    with open(os.path.join(directory, "kept"), "rb") as stream:
        right = stream.read()
    sections, = struct.unpack_from("<Q", right, 40)
    damaged = [b"", b"\x7fELF", right[:1000], right[:len(right) // 2], os.urandom(100000), right[:60] + b"\xff\xff" + right[62:], right[:40] + b"\xff" * 8 + right[48:],
               right[:sections] + b"\xff" * (len(right) - sections), right[:64] + b"\xff" * 500 + right[564:]]
    for content in damaged:
        with open(place, "wb") as stream:
            stream.write(content)
        _, report, _ = run_bounded("core", core, "--search", search)
        rank = only_rank(report, pid)
        check(rank["threads"] and rank["threads"][0]["frames"], "no stack at all")
    os.unlink(place)
    os.mkfifo(place)
    check(only_rank(run_bounded("core", core, "--search", search)[1], pid)["threads"], "a FIFO in place of the program")
    os.unlink(place)
    os.symlink(place, place)
    check(only_rank(run_bounded("core", core, "--search", search)[1], pid)["threads"], "a link to itself in place of the program")


def case_hostile_symbols_of_the_right_build(directory):
    """The right program, with its build-id intact, but with damaged symbols, unwind tables and debug information."""
    program = os.path.join(directory, "program")
    shutil.copy(os.path.join(FIXTURES, "chain_build_id"), program)
    with Fixture([program]) as fixture:
        core = os.path.join(directory, "of-program")
        debugger.take_core(fixture, core)
        pid = fixture.pid
    with open(program, "rb") as stream:
        right = stream.read()
    table, = struct.unpack_from("<Q", right, 40)
    count, names = struct.unpack_from("<HH", right, 60)
    headers_of = [struct.unpack_from("<IIQQQQIIQQ", right, table + 64 * i) for i in range(count)]
    numbers = random.Random(3)
    for _, kind, flags, _, offset, size, _, _, _, _ in headers_of:
        if kind in (0, 7, 8) or size < 16 or flags & 4:         # nothing, notes (the build-id), .bss, code
            continue
        for _ in range(2):
            content = bytearray(right)
            for _ in range(max(4, size // 50)):
                content[offset + numbers.randrange(size)] = numbers.choice([0, 0xff, 0x80, 0x7f, numbers.randrange(256)])
            with open(program, "wb") as stream:
                stream.write(content)
            _, report, _ = run_bounded("core", core)
            rank = only_rank(report, pid)
            check(rank["threads"] and rank["threads"][0]["frames"], "no stack at all")


def case_names_of_what_is_no_file(directory):
    """A core may name anything as a file that was mapped: nothing in /proc or /sys and no device is opened, and the rank
    reports what the file is."""
    truth, core = good_core(directory)
    with open(core, "rb") as stream:
        content = stream.read()
    library = max((path for path in re.findall(rb"/[\x21-\x7e]+/libc\.so\.6", content)), key=len)
    fifo, device, link = ("/tmp/%s%d" % (letter, os.getpid()) for letter in "fdl")
    child = subprocess.Popen(["sleep", "1000"])
    try:
        os.mkfifo(fifo)
        places = [("/proc/%d/limits" % child.pid, "a file of procfs"), ("/sys/kernel/notes", "a file of sysfs"),
                  (fifo, "a pipe")]
        resources = sorted(glob.glob("/sys/bus/pci/devices/*/resource"))
        if resources:
            os.symlink(resources[0], link)           # the same directory has files whose bytes are a device's registers
            places.append((link, "a file of sysfs"))
        if os.geteuid() == 0:
            os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
            places.append((device, "a device"))
        for place, kind in places:
            if not os.path.exists(place) or len(place) > len(library):
                print("not on this machine: %s" % place)
                continue
            name = place.encode()
            name = b"/" * (len(library) - len(name)) + name
            bad = os.path.join(directory, "bad")
            with open(bad, "wb") as stream:
                stream.write(content.replace(library + b"\0", name + b"\0"))
            watch = Opened(place)
            rank = together_with_a_good_one(truth, core, bad)
            messages = [problem["message"] for problem in rank["problems"]]
            watch.check_never_opened("core %s" % kind)
            watch.close()
            check(any("%s, not a regular file" % kind in message for message in messages), "%s: %r" % (place, messages))
    finally:
        child.kill()
        child.wait()
        for path in (fifo, device, link):
            if os.path.lexists(path):
                os.unlink(path)


def case_cut_while_it_is_read(directory):
    """A core that another process rewrites while it is read: a result, and no bus error."""
    truth, core = good_core(directory)
    moving = os.path.join(directory, "moving")
    size = os.path.getsize(core)
    shutil.copy(core, moving)
    stop = os.fork()
    if stop == 0:
        while True:
            with open(core, "rb") as source, open(moving, "r+b") as stream:
                shutil.copyfileobj(source, stream, 1 << 20)
            for part in (3, 2, 1, 0):
                os.truncate(moving, size * part // 4)
    try:
        seen = set()
        for _ in range(60):
            status, report, _ = run_bounded("core", moving)
            seen.add(report["ranks"][0]["status"])
            if report["ranks"][0]["status"] != "complete":
                check(report["ranks"][0]["problems"] and status in (1, 2), "no reason given")
        check(seen - {"complete"}, "it was never seen cut")
    finally:
        os.kill(stop, signal.SIGKILL)
        os.waitpid(stop, 0)


def case_bombs(directory):
    """A small file that unpacks to a large one: zeros become holes, and the core before them is read."""
    if not shutil.which("zstd"):
        raise Skip("no zstd on this machine")
    truth, core = good_core(directory)
    zeros = subprocess.run(["zstd", "-q", "-3", "-c"], input=bytes(64 << 20), stdout=subprocess.PIPE, check=True).stdout
    bomb = os.path.join(directory, "bomb.zst")
    with open(bomb, "wb") as out:
        subprocess.run(["zstd", "-q", "-1", "-c", core], stdout=out, check=True)
        out.write(zeros * 256)                                   # 16 GiB in 0.6 MB
    rank = together_with_a_good_one(truth, core, bomb, "--timeout", "5")
    check(rank["threads"] or rank["status"] != "complete", "complete, without threads")


def case_timeout_says_what_was_given_up(directory):
    truth, core = good_core(directory)
    packed = core + ".gz"                                        # unpacking 200 MB takes longer than the shortest timeout on any machine
    with open(packed, "wb") as out:
        subprocess.run(["gzip", "-1", "-c", core], stdout=out, check=True)
    status, report, err = run_bounded("core", packed, "--timeout", "0.001")
    rank = report["ranks"][0]
    text = " ".join(problem["message"] for problem in rank["problems"])
    check(status in (1, 2) and rank["status"] in ("partial", "failed") and "--timeout" in text and "--timeout" in err, "status %d, %r" % (status, rank["problems"]))
    check(run_bounded("core", packed, "--timeout", "3600")[1]["ranks"][0]["status"] == "complete", "incomplete with an hour's time")


if __name__ == "__main__":
    cases.run(globals(), "hostile")
