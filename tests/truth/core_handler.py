"""rankstacks core-handler: as kernel.core_pattern starts it, and with played cores, of which some are hostile."""
import fcntl
import os
import resource
import shutil
import stat
import struct
import subprocess
import tempfile

import cases
import debugger
from command_line import FIXTURES, native
from doctor import in_namespaces
from processes import Fixture, Skip, check, json_report, tool, wait_until
from truth_native import compare
from truth_python import only_rank

PATTERN = "/proc/sys/kernel/core_pattern"
NOBODY = 65534


def handle(directory, pid, core, *options, expect=0, host="node-7", user=None, group=None):
    """Plays the kernel: `core` are the bytes on the handler's standard input. Returns what it says and the files in the directory."""
    words = [tool(), "core-handler", "--directory", directory, *options, "--", str(pid), str(os.getuid() if user is None else user),
             str(os.getgid() if group is None else group), "6", "1769860800", host]
    done = subprocess.run(words, input=core, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    check(done.returncode == expect, "%s: status %d: %r" % (options, done.returncode, done.stderr))
    check(done.stdout == b"", "something on stdout: %r" % done.stdout)
    return done.stderr, cores_in(directory)


LIST = ".rankstacks-core-handler"


def cores_in(directory):
    return sorted(name for name in os.listdir(directory) if not name.startswith(LIST))  # neither the list nor its slots


def as_the_kernel_writes_it(path):
    """gcore's core with its notes before its memory."""
    with open(path, "rb") as stream:
        core = memoryview(stream.read())  # of which a slice is no copy
    header = list(struct.unpack_from("<16sHHIQQQIHHHHHH", core))
    headers = [list(struct.unpack_from("<IIQQQQQQ", core, header[5] + 56 * i)) for i in range(header[10])]
    notes = [h for h in headers if h[0] == 4]
    memory = [h for h in headers if h[0] == 1]
    at, parts = 64 + 56 * (len(notes) + len(memory)), []
    for h in notes + memory:
        start = at if h[0] == 4 else -(-at // 4096) * 4096
        parts += [b"\0" * (start - at), core[h[2]:h[2] + h[5]]]
        h[2], at = start, start + h[5]
    header[5], header[6], header[10], header[11], header[12], header[13] = 64, 0, len(notes) + len(memory), 0, 0, 0
    table = b"".join(struct.pack("<IIQQQQQQ", *h) for h in notes + memory)
    return b"".join([struct.pack("<16sHHIQQQIHHHHHH", *header), table, *parts]), notes[0][2] + notes[0][5]


def frames_of(rank):
    return {thread["tid"]: [thread["frames"], thread["stack_end"]] for thread in rank["threads"]}


def played(directory, fixture):
    path = os.path.join(directory, "gcore")
    debugger.write_core(fixture.pid, path)
    return (path,) + as_the_kernel_writes_it(path)


# Says "ready", as the named user and group, in a new program or in the one that had root's rights.
AS_NOBODY = """import os, sys, time
os.setgroups([])
os.setresgid(%d, %d, %d)
os.setresuid(%d, %d, %d)
if sys.argv[1] == "new":
    os.execv(sys.executable, [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"])
print("ready", flush=True)
time.sleep(600)
""" % ((NOBODY,) * 6)


def case_whose_the_cores_are(directory):
    """A process that had root's rights is not dumpable: its memory may hold what its user may not read, and its core is root's. A program
    that this user has started is the user's. (The directory /proc/PID is the user's both times.)"""
    if os.getuid() != 0:
        raise Skip("only root can take on another user's rights")
    for how, owner in (("new", NOBODY), ("same", 0)):
        cores = os.path.join(directory, how)
        os.mkdir(cores)
        with subprocess.Popen(["/usr/bin/python3", "-c", AS_NOBODY, how], stdout=subprocess.PIPE) as process:
            try:
                check(process.stdout.readline() == b"ready\n", "the process is not ready")
                check(os.stat("/proc/%d" % process.pid).st_uid == NOBODY, "its directory in /proc is not the user's")
                path = os.path.join(directory, how + ".core")
                debugger.write_core(process.pid, path)
                core, _ = as_the_kernel_writes_it(path)
                _, files = handle(cores, process.pid, core, "--full", user=NOBODY, group=NOBODY)
                check(len(files) == 2, "the files: %r" % files)
                for name in files:
                    found = os.stat(os.path.join(cores, name))
                    check((found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (owner, owner, 0o600), "%s, %s: %r" % (how, name, found))
                rank = only_rank(json_report("core", os.path.join(cores, min(files, key=len))), process.pid)
                check(any(frame["function"] == "<module>" for frame in rank["threads"][0]["frames"]), "no Python frame: %r" % rank["threads"])
            finally:
                process.kill()


# Two named threads: the main one has worked and reads a pipe, the other one waits for a connection.
BLOCKED = """import ctypes, os, socket, sys, threading, time
def name(text):
    ctypes.CDLL(None).prctl(15, text)
def serve():
    name(b"worker-7")
    server.accept()
server = socket.create_server(("127.0.0.1", 0))
name(b"reader")
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
threading.Thread(target=serve, daemon=True).start()
print(server.getsockname()[1], flush=True)
os.read(0, 1)
"""
READ, ACCEPT = 0, 288       # system calls of x86-64


def blocked_calls(pid):
    calls = set()
    for tid in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/syscall" % (pid, tid), encoding="ascii") as stream:
            calls.add(stream.read().split()[0])
    return calls


def check_facts(rank, pid, port, ends):
    """What /proc says of the process while its core is read. `ends`: the processes that write what it reads."""
    threads = {thread["name"]: thread for thread in rank["threads"]}
    check(sorted(threads, key=str) == ["reader", "worker-7"], "the threads' names: %r" % list(threads))
    check(threads["reader"]["tid"] == pid and threads["reader"]["cpu_ms"] >= 200 > threads["worker-7"]["cpu_ms"], "processor time: %r" % [thread["cpu_ms"] for thread in threads.values()])
    check(all(thread["state"] is None for thread in threads.values()), "the states of threads that end")
    reads, accepts = threads["reader"]["syscall"], threads["worker-7"]["syscall"]
    check(reads["name"] == "read" and reads["fd"] == 0 and (reads["fd_target"] or "").startswith("pipe:["), "what it reads: %r" % reads)
    check([end["pid"] for end in reads.get("other_ends", [])] == ends, "who writes it: %r" % reads)
    check("127.0.0.1:%d" % port in (accepts["fd_target"] or ""), "what it accepts: %r" % accepts)
    environment = rank["environment"]
    with open("/etc/os-release", encoding="utf-8") as stream:
        pretty = dict(line.rstrip().split("=", 1) for line in stream if "=" in line)["PRETTY_NAME"].strip('"')
    check(environment.get("distribution") == pretty, "the distribution: %r" % environment.get("distribution"))
    check(environment["limits"]["open-files"]["soft"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0] and "cgroup" in environment and environment["cpus"], "limits: %r" % environment)
    check(environment["kernel"] == os.uname().release, "the kernel: %r" % environment["kernel"])


def case_what_proc_says(directory):
    """A small core has what /proc tells while the kernel waits: of a process of root's, and of one of another user's. Who else has the pipe
    may be looked up by neither: one has no capabilities, and to the other this test's process does not belong."""
    for user in [os.getuid()] + ([NOBODY] if os.getuid() == 0 else []):
        cores = os.path.join(directory, "of-%d" % user)
        os.mkdir(cores)
        group = os.getgid() if user == os.getuid() else user
        rights = {} if user == os.getuid() else {"user": user, "group": group, "extra_groups": []}
        with subprocess.Popen(["/usr/bin/python3", "-c", BLOCKED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **rights) as process:
            try:
                port = int(process.stdout.readline())
                wait_until(lambda: blocked_calls(process.pid) == {str(READ), str(ACCEPT)}, "both threads wait")
                path = os.path.join(directory, "core.%d" % user)
                debugger.write_core(process.pid, path)
                core, _ = as_the_kernel_writes_it(path)
                said, files = handle(cores, process.pid, core, user=user, group=group)
                report = json_report("core", os.path.join(cores, files[0]))
            finally:
                process.kill()
        rank = only_rank(report, process.pid)
        check(said == b"" and (rank["source"], rank["host"]) == ("core", "node-7"), "%r: %r, %r" % (said, rank["source"], rank["host"]))
        check(report["captured_at"] == "2026-01-31T12:00:00.000Z", "when it died: %r" % report["captured_at"])
        check_facts(rank, process.pid, port, [] if os.getuid() == 0 else [os.getpid()])


def case_only_so_many_at_a_time(directory):
    """A handler waits for one of the slots, for half of its time; a slot that is not a file of its own alone is none."""
    cores = os.path.join(directory, "cores")
    os.mkdir(cores)
    with native("threads") as fixture:
        _, core, _ = played(directory, fixture)
        slots = [open(os.path.join(cores, "%s.slot-%d" % (LIST, n)), "w", opener=lambda path, flags: os.open(path, flags, 0o600)) for n in range(8)]
        for slot in slots:
            fcntl.flock(slot, fcntl.LOCK_EX)
        said, files = handle(cores, fixture.pid, core, "--within", "2", expect=2)
        check(b"8 other handlers are at work" in said and files == [], "%r %r" % (said, files))
        slots[5].close()
        _, files = handle(cores, fixture.pid, core)
        check(len(files) == 1, "the files: %r" % files)
        os.unlink(os.path.join(cores, LIST + ".slot-0"))
        os.symlink("/etc/passwd", os.path.join(cores, LIST + ".slot-0"))
        said, _ = handle(cores, fixture.pid, core, expect=2)
        check(b"slot-0 cannot be opened" in said, "%r" % said)


def case_a_host_that_looks_like_an_option(directory):
    """Whoever may name a host, as in a namespace of its own, cannot give the handler options."""
    cores = os.path.join(directory, "cores")
    os.mkdir(cores)
    with native("threads") as fixture:
        _, core, _ = played(directory, fixture)
        _, files = handle(cores, fixture.pid, core, host="--full")
        check(files == ["x--full-%d-1769860800.core.zst" % fixture.pid], "the files: %r" % files)


def case_played(directory):
    cores = os.path.join(directory, "cores")
    os.mkdir(cores)
    with native("threads", env={"RANK": "5", "WORLD_SIZE": "8"}) as fixture:
        path, core, end_of_notes = played(directory, fixture)
        whole = only_rank(json_report("core", path), fixture.pid)
        name = "node-7-%d-1769860800" % fixture.pid
        # The memory of the pipe is not even needed.
        for bytes_of in (core, core[:end_of_notes]):
            _, files = handle(cores, fixture.pid, bytes_of)
            check(files == [name + ".core.zst"], "the files: %r" % files)
            small = only_rank(json_report("core", os.path.join(cores, files[0])), fixture.pid)
            check(frames_of(small) == frames_of(whole), "the small core has other stacks:\n%.900r\n%.900r" % (frames_of(small), frames_of(whole)))
            check((small["rank"], small["host"]) == (5, "node-7"), "rank %r of %r" % (small["rank"], small["host"]))
            compare(fixture.ready, small, "the small core")
            os.unlink(os.path.join(cores, files[0]))
        _, files = handle(cores, fixture.pid, core, "--full", "--plain")
        check(files == [name + ".core", name + ".full-core"], "the files: %r" % files)
        with open(os.path.join(cores, files[1]), "rb") as stream:
            check(stream.read() == core, "the full core is not what the kernel wrote")
        check(os.stat(os.path.join(cores, files[0])).st_size < os.stat(os.path.join(cores, files[1])).st_size / 10, "the small core is not small")
        for file in files:
            mode = os.lstat(os.path.join(cores, file))
            check(stat.S_ISREG(mode.st_mode) and stat.S_IMODE(mode.st_mode) == 0o600 and mode.st_uid == os.getuid(), "%s: %r" % (file, mode))
        gdb = debugger.stacks_in_cores([os.path.join(cores, file) for file in files], os.path.join(FIXTURES, "threads"))
        check(gdb[0] == gdb[1], "gdb finds other stacks in the small core")


def case_hostile(directory):
    cores = os.path.join(directory, "cores")
    os.mkdir(cores)
    with native("threads") as fixture:
        _, core, end_of_notes = played(directory, fixture)
        head = core[:end_of_notes + 4096]               # without most of the memory, which nothing here depends on

        def nothing(what, bytes_of, *options, said=b"the standard input"):
            err, files = handle(cores, fixture.pid, bytes_of, *options, expect=2)
            check(said in err and files == [], "%s: %r, left %r" % (what, err, files))
        for end in [0, 1, 63, 64, 119, 120, 500, end_of_notes // 2, end_of_notes - 1]:
            nothing("cut at %d" % end, core[:end], "--full")
        nothing("garbage", b"\x7fELF" + b"\xff" * 100000)
        nothing("zeros", bytes(100000))
        nothing("gcore's order", head[:64] + head[64 + 56:64 + 112] + head[64:64 + 56] + head[176:])
        for offset, value in ((96, 1 << 63), (72, 1 << 40), (64 + 56 + 32, 1 << 62), (64 + 56 + 8, (1 << 64) - 1)):        # sizes and places of notes and memory
            nothing("a field at %d" % offset, head[:offset] + struct.pack("<Q", value) + head[offset + 8:])
        # Notes that say nonsense: either nothing, or a core of what could be read.
        for at in range(176, end_of_notes, max(1, (end_of_notes - 176) // 12)):
            words = [tool(), "core-handler", str(fixture.pid), str(os.getuid()), str(os.getgid()), "6", "1", "h", "--directory", cores]
            done = subprocess.run(words, input=head[:at] + b"\xff" * 64 + head[at + 64:], stderr=subprocess.PIPE, timeout=60)
            files = cores_in(cores)
            check(done.returncode in (0, 2) and len(files) == (done.returncode == 0) and all(file.endswith(".core.zst") for file in files),
                  "notes damaged at %d: status %d, %r, %r" % (at, done.returncode, files, done.stderr))
            for file in files:
                os.unlink(os.path.join(cores, file))
        # The full core is whole or not there.
        for options, bytes_of, said in ((["--full"], core[:-1], b"is not kept"), (["--full", "--max-bytes", "1M"], core, b"--max-bytes")):
            err, files = handle(cores, fixture.pid, bytes_of, *options, expect=1)
            check(said in err and len(files) == 1 and files[0].endswith(".core.zst"), "%s: %r, %r" % (options, err, files))
            os.unlink(os.path.join(cores, files[0]))
        # A pipe that stays open and says nothing.
        source, sink = os.pipe()
        try:
            done = subprocess.run([tool(), "core-handler", str(fixture.pid), "0", "0", "6", "1", "h", "--directory", cores, "--within", "1"], stdin=source, stderr=subprocess.PIPE, timeout=60)
        finally:
            os.close(source)
            os.close(sink)
        check(done.returncode == 2 and b"has not come in time" in done.stderr and cores_in(cores) == [], "of a silent pipe: %r" % done.stderr)
        # Links in the directory.
        victim = os.path.join(directory, "victim")
        with open(victim, "wb") as stream:
            stream.write(b"precious")
        name = os.path.join(cores, "node-7-%d-1769860800.core.zst" % fixture.pid)
        os.symlink(victim, name)
        handle(cores, fixture.pid, head)
        check(not os.path.islink(name) and open(victim, "rb").read() == b"precious", "a link was followed")
        os.unlink(name)
        _, files = handle(cores, fixture.pid, head, host="../../x\n/y")
        check(len(files) == 1 and files[0].endswith("y-%d-1769860800.core.zst" % fixture.pid) and len(os.listdir(directory)) == 3, "a host's name: %r" % files)
        os.unlink(os.path.join(cores, files[0]))
        link = os.path.join(directory, "link")
        os.symlink(cores, link)
        err, files = handle(link, fixture.pid, head, expect=2)
        check(b"cannot be opened" in err and b"hint: " in err and files == [], "a link as the directory: %r, %r" % (err, files))
        pid = fixture.pid
    err, files = handle(cores, pid, head, expect=2)
    check(b"/proc/%d" % pid in err and b"hint: " in err and files == [], "of a process that is gone: %r, %r" % (err, files))


def handlers(directory, pid, core, times, *options):
    """One handler for each of these times of death, all at once; what each says, by its time."""
    started = []
    for time in times:
        words = [tool(), "core-handler", str(pid), str(os.getuid()), str(os.getgid()), "6", str(time), "h", "--directory", directory, *options]
        with tempfile.TemporaryFile() as stream:
            stream.write(core)
            stream.seek(0)
            started.append(subprocess.Popen(words, stdin=stream, stderr=subprocess.PIPE))
    said = {}
    for time, process in zip(times, started):
        said[time] = process.communicate(timeout=120)[1]
        check(process.returncode == 0, "%d: status %d: %r" % (time, process.returncode, said[time]))
    return said


def case_how_many_are_kept(directory):
    cores = os.path.join(directory, "cores")
    os.mkdir(cores)
    with native("threads") as fixture:
        _, core, _ = played(directory, fixture)

        def small(time):
            return "h-%d-%d.core.zst" % (fixture.pid, time)

        # What others have put there is theirs, whatever its name is; files in the list that it has not written as well.
        others = ["h-%d-5.core.zst" % fixture.pid, "h-1-1.core", "core.17", "notes.txt"]
        for name in others:
            with open(os.path.join(cores, name), "wb") as stream:
                stream.write(b"mine")
        for time in (100, 90, 80, 110, 120):            # the order is that in which they were written
            handlers(cores, fixture.pid, core, [time], "--keep", "3")
        check(cores_in(cores) == sorted(others + [small(100), small(110), small(120)]), "three are kept, the first and the newest: %r" % cores_in(cores))
        handlers(cores, fixture.pid, core, [130], "--keep", "3", "--full")
        both = [small(130), small(130).replace(".core.zst", ".full-core")]
        check(cores_in(cores) == sorted(others + [small(100), small(120)] + both), "the two cores of one process count as one: %r" % cores_in(cores))
        size = sum(os.stat(os.path.join(cores, name)).st_blocks * 512 for name in both)
        handlers(cores, fixture.pid, core, [140], "--keep-bytes", str(size))
        check(cores_in(cores) == sorted(others + [small(100), small(140)]), "a size that the full core exceeds: %r" % cores_in(cores))
        # What a handler that was ended has left: only if no other one can still be writing it.
        left = [".h-7-8.full-core.99", ".h-7-9.core.zst.99", ".h-x-9.core.zst.99", ".notes.core.99"]
        for name in left:
            with open(os.path.join(cores, name), "wb") as stream:
                stream.write(b"half")
            if name != left[1]:
                os.utime(os.path.join(cores, name), (0, 0))
        handlers(cores, fixture.pid, core, [145], "--keep", "3")
        check([name for name in left if name in os.listdir(cores)] == left[1:], "half written files: %r" % os.listdir(cores))
        for name in left[1:] + [small(145)]:
            os.unlink(os.path.join(cores, name))
        # One that is removed by somebody else, and one that was replaced.
        os.unlink(os.path.join(cores, small(140)))
        handlers(cores, fixture.pid, core, [150, 160], "--keep", "3")
        os.rename(os.path.join(cores, small(100)), os.path.join(cores, "moved"))
        with open(os.path.join(cores, small(100)), "wb") as stream:
            stream.write(b"mine now")
        handlers(cores, fixture.pid, core, [170], "--keep", "2")
        kept = [name for name in cores_in(cores) if name not in others]
        check(len(kept) == 4 and "moved" in kept and small(100) in kept and small(170) in kept, "after a core was replaced: %r" % kept)
        # A list that is not its own, or not to be understood: nothing is removed, the cores are written all the same.
        path = os.path.join(cores, LIST)
        before = cores_in(cores)
        for spoil in (lambda: os.chmod(path, 0o666), lambda: (os.unlink(path), os.symlink("/etc/passwd", path)), lambda: (os.unlink(path), os.mkfifo(path))):
            spoil()
            time = 200 + len(cores_in(cores))
            said = handlers(cores, fixture.pid, core, [time], "--keep", "2")[time]
            check(LIST.encode() in said and b"hint: " in said, "%r" % said)
            before = sorted(before + [small(time)])
            check(cores_in(cores) == before, "something was removed: %r" % cores_in(cores))
        os.unlink(path)
        with open(path, "wb") as stream:
            stream.write(b"\xff\n1 ../../etc/passwd\n1 notes.txt\n%d notes.txt\n7\n" % os.stat(os.path.join(cores, "notes.txt")).st_ino + b"9" * 100000)
        handlers(cores, fixture.pid, core, [300], "--keep", "2")
        check(cores_in(cores) == sorted(before + [small(300)]), "by a list of nonsense: %r" % cores_in(cores))


def case_several_at_once(directory):
    cores = os.path.join(directory, "cores")
    os.mkdir(cores)
    with native("threads") as fixture:
        _, core, end_of_notes = played(directory, fixture)
        core = core[:end_of_notes]
        handlers(cores, fixture.pid, core, [1], "--keep", "4")
        for first in (100, 200, 300):
            said = handlers(cores, fixture.pid, core, range(first, first + 8), "--keep", "4")
            check(not any(said.values()), "they say something: %r" % said)
            files = cores_in(cores)
            check(len(files) == 4 and "h-%d-1.core.zst" % fixture.pid in files, "four, and the first of them: %r" % files)
            check(all("-%d" % (first // 100) in name for name in files[1:]), "older ones are kept: %r" % files)
        with open(os.path.join(cores, LIST), encoding="ascii") as stream:
            listed = [line.split()[1] for line in stream if not line.startswith("#")]
        check(sorted(listed) == cores_in(cores), "the list: %r, the files: %r" % (listed, cores_in(cores)))
        for name in listed:
            only_rank(json_report("core", os.path.join(cores, name)), fixture.pid)


def case_little_room(directory):
    """A file system that is nearly full: older cores go, and a core that has no room is not begun."""
    prefix = in_namespaces("--mount")
    mount = os.path.join(directory, "disk")
    os.mkdir(mount)
    with native("threads") as fixture:
        path, core, end_of_notes = played(directory, fixture)
        with open(path + ".played", "wb") as stream:
            stream.write(core)
        with open(path + ".head", "wb") as stream:
            stream.write(core[:end_of_notes])

        def run(size, script):
            words = "%s core-handler %d %d %d 6" % (tool(), fixture.pid, os.getuid(), os.getgid())
            text = "mount -t tmpfs -o size=%s none %s && cd %s && %s" % (size, mount, mount, script.replace("HANDLER", words))
            done = subprocess.run(prefix + ["sh", "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
            return done.returncode, [word for word in done.stdout.decode().split() if not word.startswith(LIST + ".slot")], done.stderr
        handlers(directory, fixture.pid, core[:end_of_notes], [1], "--plain")
        kilobytes = os.stat(os.path.join(directory, "h-%d-1.core" % fixture.pid)).st_blocks // 2
        # Room for six of them, of which one and a half have to stay free.
        loop = "for t in 1 2 3 4 5 6 7 8 9; do HANDLER $t h --directory . --plain --keep-bytes 1G --keep-free %dK < %s.head || exit 9; done; ls" % (kilobytes * 3 // 2, path)
        status, files, said = run("%dk" % (kilobytes * 6), loop)
        check(status == 0 and "h-%d-1.core" % fixture.pid in files and "h-%d-9.core" % fixture.pid in files and 3 <= len(files) <= 5, "status %d: %r, %r" % (status, files, said))
        # A full core that would leave too little: the small one is there.
        status, files, said = run("64m", "HANDLER 1 h --directory . --full --keep-free 63m < %s.played; ls -A" % path)
        check(sorted(files) == sorted([LIST, "h-%d-1.core.zst" % fixture.pid]) and b"no room for the full core" in said and b"hint: " in said, "%r, %r" % (files, said))
        # A file system that becomes full while memory without pages of zeros is written: tmpfs writes a part of a page first.
        with open(path + ".dense", "wb") as stream:
            stream.write(core[:end_of_notes] + b"\xff" * (8 << 20) + core[end_of_notes + (8 << 20):])
        status, files, said = run("2m", "HANDLER 1 h --directory . --full --keep-bytes 1G --keep-free 0 < %s.dense; ls -A" % path)
        check(b"full-core: cannot be written: No space left on device" in said and not any("full-core" in name for name in files), "%r, %r" % (files, said))
        # No room for anything.
        status, files, said = run("16k", "HANDLER 1 h --directory . --plain < %s.head; echo $?; ls -A" % path)
        check(files[0] == "2" and files[1:] in ([LIST], []) and (b"no room for the small core" in said or b"cannot be written" in said), "%r, %r" % (files, said))


def case_as_the_kernel_starts_it(directory):
    """Sets kernel.core_pattern for a moment; CMake runs this test alone."""
    if not kernel_sees_this_root():
        raise Skip("the kernel starts programs in another root directory than this one")
    short = tempfile.mkdtemp(prefix="rs-")              # a pattern has 127 bytes
    program, cores = os.path.join(short, "r"), os.path.join(short, "c")
    try:
        os.symlink(tool(), program)
        os.mkdir(cores)
        os.chmod(short, 0o755)
        with open(PATTERN, encoding="ascii") as stream:
            before = stream.read()
        if before.startswith("|"):
            raise Skip("kernel.core_pattern names a program of this machine's own: %s" % before.strip())
        try:
            with open(PATTERN, "w", encoding="ascii") as stream:
                stream.write("|%s core-handler %%P %%u %%g %%s %%t %%h --directory %s --full" % (program, cores))
        except OSError as error:
            raise Skip("kernel.core_pattern cannot be set here: %s" % error)
        try:
            died = [die(name, arguments, user) for name, arguments, user in (("abort_in_thread", [], None), ("wild_call", ["null", "crash"], NOBODY))]
            wait_until(lambda: sum(not name.startswith(".") for name in os.listdir(cores)) >= 2 * len(died), "the handler writes two cores of each process")
        finally:
            with open(PATTERN, "w", encoding="ascii") as stream:
                stream.write(before)
        for truth, program, user in died:
            small, full = (os.path.join(cores, name) for name in sorted(os.listdir(cores)) if "-%d-" % truth["pid"] in name)
            ranks = [only_rank(json_report("core", path), truth["pid"]) for path in (small, full)]
            check(ranks[0]["status"] == ranks[1]["status"] == "complete", "problems: %r, %r" % (ranks[0]["problems"], ranks[1]["problems"]))
            check(frames_of(ranks[0]) == frames_of(ranks[1]), "%s: other stacks than in the full core" % program)
            check(all(thread["name"] for thread in ranks[0]["threads"]) and ranks[0]["environment"].get("limits") and ranks[0]["environment"].get("distribution"),
                  "what /proc said: %r, %r" % ([thread["name"] for thread in ranks[0]["threads"]], ranks[0]["environment"]))
            check(ranks[0]["signal"] is not None and ranks[0]["signal"] == ranks[1]["signal"], "the signal: %r, %r" % (ranks[0]["signal"], ranks[1]["signal"]))
            for path in (small, full):
                status = os.stat(path)
                check((status.st_uid, stat.S_IMODE(status.st_mode)) == (user or os.getuid(), 0o600), "%s: owner %d, mode %o" % (path, status.st_uid, status.st_mode))
            subprocess.run(["zstd", "-qd", small], check=True)
            gdb = debugger.stacks_in_cores([full, small[:-len(".zst")]], os.path.join(FIXTURES, program))
            check(gdb[0] == gdb[1], "%s: gdb finds other stacks in the small core" % program)
    finally:
        shutil.rmtree(short, ignore_errors=True)


def kernel_sees_this_root():
    """Not so in a container or below chroot: the root directory of the kernel's own threads is another one."""
    try:
        with open("/proc/2/comm", encoding="ascii") as stream:
            return stream.read().strip() == "kthreadd" and os.path.samestat(os.stat("/proc/2/root/."), os.stat("/"))
    except OSError:
        return False


def die(name, arguments, user):
    def before_it_starts():
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if user is not None:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
    with Fixture([os.path.join(FIXTURES, name)] + arguments, preexec_fn=before_it_starts) as fixture:
        truth = fixture.ready
        fixture.let_crash()
        status = fixture.process.wait(timeout=60)
    check(status < 0, "%s has not died of a signal: %d" % (name, status))
    return truth, name, user


if __name__ == "__main__":
    cases.run(globals(), "core-handler")
