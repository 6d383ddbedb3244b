"""rankstacks core-handler: as kernel.core_pattern starts it, and with played cores, of which some are hostile."""
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
from processes import Fixture, Skip, check, json_report, tool, wait_until
from truth_native import compare
from truth_python import only_rank

PATTERN = "/proc/sys/kernel/core_pattern"
NOBODY = 65534


def handle(directory, pid, core, *options, expect=0, host="node-7"):
    """Plays the kernel: `core` are the bytes on the handler's standard input. Returns what it says and the files in the directory."""
    words = [tool(), "core-handler", str(pid), str(os.getuid()), str(os.getgid()), "6", "1769860800", host, "--directory", directory, *options]
    done = subprocess.run(words, input=core, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    check(done.returncode == expect, "%s: status %d: %r" % (options, done.returncode, done.stderr))
    check(done.stdout == b"", "something on stdout: %r" % done.stdout)
    return done.stderr, sorted(os.listdir(directory))


def as_the_kernel_writes_it(path):
    """gcore's core with its notes before its memory."""
    with open(path, "rb") as stream:
        core = stream.read()
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
    return struct.pack("<16sHHIQQQIHHHHHH", *header) + table + b"".join(parts), notes[0][2] + notes[0][5]


def frames_of(rank):
    return {thread["tid"]: [thread["frames"], thread["stack_end"]] for thread in rank["threads"]}


def played(directory, fixture):
    path = os.path.join(directory, "gcore")
    debugger.write_core(fixture.pid, path)
    return (path,) + as_the_kernel_writes_it(path)


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
            files = os.listdir(cores)
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
        check(done.returncode == 2 and b"has not come in time" in done.stderr and os.listdir(cores) == [], "of a silent pipe: %r" % done.stderr)
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
