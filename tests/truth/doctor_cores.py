"""rankstacks doctor: how large a core would be, compared with the core that the kernel then writes; and what would be kept of it."""
import os
import resource
import shutil
import subprocess

import cases
from doctor import doctor, expect, in_namespaces, needs_core_files
from processes import Skip, check

PATTERN = "/proc/sys/kernel/core_pattern"
MB = 1 << 20

# Private memory that was half touched, shared memory without a name and of a file, a file mapped privately and written to.
PROGRAM = """
import ctypes, json, mmap, os, sys
touched = bytearray(os.urandom(24 << 20))
half = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
half[:32 << 20] = os.urandom(32 << 20)
shared = mmap.mmap(-1, 16 << 20)
shared[:8 << 20] = os.urandom(8 << 20)
with open(sys.argv[1], "w+b") as stream:
    stream.write(os.urandom(8 << 20))
    stream.flush()
    named = mmap.mmap(stream.fileno(), 8 << 20)
    private = mmap.mmap(stream.fileno(), 8 << 20, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
private[0] = 7
print(json.dumps({"pid": os.getpid(), "threads": []}), flush=True)
sys.stdin.readline()
os.abort()
"""


def started(directory, soft=resource.RLIM_INFINITY, prefix=()):
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if hard != resource.RLIM_INFINITY:
        raise Skip("the limit on cores cannot be raised")
    command = list(prefix) + ["/usr/bin/python3", "-c", PROGRAM, os.path.join(directory, "file")]
    process = subprocess.Popen(command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (soft, hard)))
    line = process.stdout.readline()
    check(b"pid" in line, "the program has not started: %r" % line)
    return process


def end(process):
    process.kill()
    process.wait(timeout=60)
    process.stdin.close()
    process.stdout.close()


def case_size_is_that_of_the_core(directory):
    needs_core_files()
    with open(PATTERN, encoding="ascii") as stream:
        if "/" in stream.read():
            raise Skip("cores are written elsewhere than into the process's directory")
    for name, bits in (("usual", 0x33), ("without_shared", 0x31), ("all", 0x3f), ("nothing", 0x0)):
        where = os.path.join(directory, name)
        os.mkdir(where)
        process = started(where)
        try:
            with open("/proc/%d/coredump_filter" % process.pid, "w", encoding="ascii") as stream:
                stream.write("%#x" % bits)
            core = doctor("--pids", process.pid)[(process.pid, None, "core-size")]["core"]
            process.stdin.write(b"\n")
            process.stdin.flush()
            status = process.wait(timeout=60)
            check(status < 0, "it has not died of a signal: %d" % status)
        finally:
            end(process)
        files = [file for file in os.listdir(where) if file != "file"]
        check(len(files) == 1, "%s: not one core: %r" % (name, files))
        real = os.stat(os.path.join(where, files[0]))
        print("%s: the core has %d bytes and takes %d, the doctor has said %d and %d" % (name, real.st_size, real.st_blocks * 512, core["bytes"], core["data_bytes"]))
        check(abs(core["bytes"] - real.st_size) <= MB // 2 + real.st_size // 50, "%s: %d bytes are foretold, it has %d" % (name, core["bytes"], real.st_size))
        check(abs(core["data_bytes"] - real.st_blocks * 512) <= MB + real.st_size // 20, "%s: %d bytes of data are foretold, it takes %d" % (name, core["data_bytes"], real.st_blocks * 512))
        check(core["shared_bytes"] == {0x33: 16 * MB, 0x31: 0, 0x3f: 24 * MB, 0: 0}[bits], "%s: shared memory: %r" % (name, core))
        check(core["directory"] == where and core["fate"] == "whole" and core["free_bytes"] > 0, "%s: %r" % (name, core))


def case_limit_and_room(directory):
    needs_core_files()
    process = started(directory, soft=4 * MB)
    try:
        findings = doctor("--pids", process.pid)
        expect(findings, (process.pid, None, "core-limit"), "problem", "its limit is", "cut off")
        core = findings[(process.pid, None, "core-size")]["core"]
        check((core["fate"], core["limit"], core["limit_bytes"]) == ("cut", "RLIMIT_CORE", 4 * MB), "with a limit: %r" % core)
    finally:
        end(process)
    # A file system that only the rank sees, with less room than the core needs.
    mount = os.path.join(directory, "small")
    os.mkdir(mount)
    script = "mount -t tmpfs -o size=12m none %s && cd %s && exec \"$@\"" % (mount, mount)
    process = started(directory, prefix=in_namespaces("--mount") + ["sh", "-c", script, "sh"])
    try:
        finding = expect(doctor("--pids", process.pid), (process.pid, None, "core-size"), "problem", "are free", "cut off")
        core = finding["core"]
        check((core["fate"], core["limit"], core["directory"]) == ("cut", "free space", mount), "without room: %r" % core)
        check(core["free_bytes"] == core["limit_bytes"] <= 12 * MB, "without room: %r" % core)
        check(any("rankstacks capture --pids %d" % process.pid in mend for mend in finding["mends"]), "its mends: %r" % finding)
    finally:
        end(process)


class Pattern:
    """Another kernel.core_pattern for a moment; CMake runs this test alone."""

    def __init__(self, text):
        self.text = text

    def __enter__(self):
        with open(PATTERN, encoding="ascii") as stream:
            self.before = stream.read()
        if self.before.startswith("|"):
            raise Skip("kernel.core_pattern names a program of this machine's own: %s" % self.before.strip())
        try:
            with open(PATTERN, "w", encoding="ascii") as stream:
                stream.write(self.text)
        except OSError as error:
            raise Skip("kernel.core_pattern cannot be set here: %s" % error)

    def __exit__(self, *_):
        with open(PATTERN, "w", encoding="ascii") as stream:
            stream.write(self.before)


def case_settings_of_systemd(directory):
    root = os.path.join(directory, "host")
    for name in ("etc/systemd/coredump.conf.d", "usr/lib/systemd/coredump.conf.d", "run/systemd/coredump.conf.d", "var/lib/systemd/coredump"):
        os.makedirs(os.path.join(root, name))

    def write(name, text):
        with open(os.path.join(root, name), "w", encoding="ascii") as stream:
            stream.write("[Coredump]\n" + text)
    write("usr/lib/systemd/systemd-coredump", "")
    write("usr/lib/systemd/libsystemd-shared-252.so", "")
    process = started(directory)
    try:
        with Pattern("|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h"):
            def fate():
                findings = doctor("--pids", process.pid, "--host-root", root)
                core = findings[(process.pid, None, "core-size")]["core"]
                return core["fate"], core["limit"], core["limit_bytes"], findings
            check(fate()[:3] == ("whole", None, None), "by the defaults: %r" % (fate(),))
            expect(fate()[3], (None, None, "core-storage"), "ok" if os.statvfs(root).f_bavail * 4096 > 4 << 30 else "note", "systemd-coredump 252", "32 GB")
            write("usr/lib/systemd/coredump.conf.d/50-small.conf", "ExternalSizeMax=20M\nProcessSizeMax=20M\n")
            check(fate()[:3] == ("cut", "ExternalSizeMax", 20 * MB), "a small size: %r" % (fate(),))
            write("run/systemd/coredump.conf.d/60-process.conf", "ProcessSizeMax = 8G\n")
            check(fate()[:3] == ("dropped", "ExternalSizeMax", 20 * MB), "more is processed than kept: %r" % (fate(),))
            os.symlink("/dev/null", os.path.join(root, "etc/systemd/coredump.conf.d/50-small.conf"))
            check(fate()[0] == "whole", "a file that is hidden: %r" % (fate(),))
            write("etc/systemd/coredump.conf", "Storage=journal\nJournalSizeMax=1M\n")
            check(fate()[:3] == ("dropped", "JournalSizeMax", MB), "in the journal: %r" % (fate(),))
            write("etc/systemd/coredump.conf.d/90-none.conf", "Storage=none\n")
            check(fate()[:2] == ("dropped", "Storage"), "none: %r" % (fate(),))
            expect(fate()[3], (None, None, "core-pattern"), "problem", "Storage=none")
    finally:
        end(process)


if __name__ == "__main__":
    cases.run(globals(), "doctor-cores")
