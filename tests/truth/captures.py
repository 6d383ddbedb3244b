"""rankstacks capture: small cores of live processes and of their cores, compared with full cores by gdb, eu-stack and this tool."""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile

import cases
import debugger
import interpreters
from command_line import FIXTURES, SOURCE, native, python
from processes import Fixture, Skip, check, json_report, run_tool, tool
from truth_native import compare as compare_native
from truth_python import kernel_core, kernel_writes_cores, only_rank

NUL = b"\0"


def capture(*arguments, expect=0):
    """What `rankstacks capture` prints; a running process is sampled once."""
    words = [str(word) for word in arguments]
    if "--pids" in words:
        words += ["--samples", "1"]
    status, out, err = run_tool("capture", *words)
    check(status == expect, "capture %s: status %d\n%s%s" % (words, status, out.decode(), err.decode(errors="replace")))
    return out.decode()


def unpacked(path):
    done = subprocess.run(["zstd", "-qdf", path, "-o", path[:-len(".zst")]], stderr=subprocess.PIPE)
    check(done.returncode == 0, "zstd: %r" % done.stderr)
    return path[:-len(".zst")]


def captured(directory, *what):
    """The unpacked capture of one process, and its size as it was written."""
    out = os.path.join(directory, "captured")
    capture(*what, "-o", out)
    names = os.listdir(out)
    check(len(names) == 1 and names[0].endswith(".core.zst"), "not one capture: %r" % names)
    path = os.path.join(out, names[0])
    return unpacked(path), os.path.getsize(path)


def eu_stacks(core, executable):
    """eu-stack's lines of each thread, in its order."""
    if not shutil.which("eu-stack"):
        raise Skip("no eu-stack on this machine")
    done = subprocess.run(["eu-stack", "-e", executable, "--core", core], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=120, env=dict(os.environ, DEBUGINFOD_URLS=""))
    stacks = {}
    for line in done.stdout.decode(errors="replace").splitlines():
        header = re.match(r"TID (\d+):", line)
        if header:
            frames = stacks.setdefault(int(header[1]), [])
        elif line.startswith("#"):
            frames.append(line)
    check(stacks, "eu-stack says nothing of %s: %s" % (core, done.stderr.decode(errors="replace")[-500:]))
    return stacks


def difference(ours, theirs):
    """The first threads whose stacks differ."""
    lines = []
    for tid in sorted(set(ours) | set(theirs)):
        if ours.get(tid) != theirs.get(tid):
            lines += ["tid %d of the capture: %.500r" % (tid, ours.get(tid)), "tid %d of the core:    %.500r" % (tid, theirs.get(tid))]
    return "\n".join(lines[:6])


def without_time(report):
    """The report without what two looks at the same thing differ in: the file's name, and how long the tool took."""
    report = dict(report, elapsed_ms=None)
    report["ranks"] = [dict(rank, path=None) for rank in report["ranks"]]
    return report


def same_reports(one, other, where):
    one, other = without_time(one), without_time(other)
    for key in sorted(set(one) | set(other)):
        if key == "ranks":
            continue
        check(one.get(key) == other.get(key), "%s: %s is %.600r and %.600r" % (where, key, one.get(key), other.get(key)))
    check(len(one["ranks"]) == len(other["ranks"]), where + ": other ranks")
    for a, b in zip(one["ranks"], other["ranks"]):
        for key in sorted(set(a) | set(b)):
            check(a.get(key) == b.get(key), "%s: %s of rank %s is %.900r and %.900r" % (where, key, a["rank"], a.get(key), b.get(key)))


def stacks_of(rank):
    return {thread["tid"]: [thread["frames"], thread["stack_end"]] for thread in rank["threads"]}


def agree_everywhere(fixture, executable, directory, most=None):
    """Full core, its capture and the live process's: gdb, eu-stack and the tool find the same stacks in all of them."""
    full = os.path.join(directory, "full")
    debugger.write_core(fixture.pid, full)
    live, size = captured(directory, "--pids", fixture.pid)
    print("%d bytes captured of a core of %d" % (size, os.stat(full).st_blocks * 512))
    if most is not None:
        check(size <= most, "the capture has %d bytes, more than %d" % (size, most))
    os.mkdir(os.path.join(directory, "of-core"))
    of_core, _ = captured(os.path.join(directory, "of-core"), full)
    theirs, *found = debugger.stacks_in_cores([full, live, of_core], executable)
    for path, ours in zip((live, of_core), found):
        check(ours == theirs, "gdb finds other stacks in %s:\n%s" % (path, difference(ours, theirs)))
    expected = eu_stacks(full, executable)
    for path in (live, of_core):
        found = eu_stacks(path, executable)
        check(found == expected, "eu-stack finds other stacks in %s:\n%s" % (path, difference(found, expected)))
    report = json_report("core", full)
    same_reports(report, json_report("core", of_core), "the report of a core and that of its capture")
    rank = only_rank(json_report("core", live), fixture.pid)
    check(rank["source"] == "live" and rank["status"] == "complete", "of a live process: %r" % {key: rank[key] for key in ("source", "status", "problems")})
    check(all(thread["state"] for thread in rank["threads"]), "threads without their state in /proc")
    check(stacks_of(rank) == stacks_of(only_rank(report, fixture.pid)), "the live process's stacks are others than its core's")
    fixture.check_unharmed()


def of_python(version, directory, fixture="locks"):
    interpreter = interpreters.find(version)
    if interpreter.sysroot is not None:
        raise Skip("this CPython %s runs in a root of its own, whose files gdb does not find by their paths" % version)
    script = os.path.join(SOURCE, "fixtures", "python", fixture + ".py")
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONIOENCODING="utf-8")
    with Fixture(interpreter.run(script), env=environment) as process:
        agree_everywhere(process, os.path.realpath("/proc/%d/exe" % process.pid), directory, most=1 << 20)


def of_unpacked_python(version, directory, fixture="locks"):
    """A CPython with a C library of its own (glibc 2.42 or newer: stacks have their guards inside of mappings), whose files lie below a
    directory. The core is the kernel's: gcore leaves such stacks out."""
    interpreter = interpreters.find(version)
    if not kernel_writes_cores(interpreter):
        raise Skip("the kernel's cores do not come into the working directory here")
    with interpreters.inside(interpreter, os.path.join(SOURCE, "fixtures", "python")) as programs:
        place = os.path.join(os.path.dirname(programs), "core-of-" + fixture)
        os.mkdir(place)
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONIOENCODING="utf-8")
        environment.pop("PYTHONPATH", None)
        with Fixture(interpreter.run(os.path.join(programs, fixture + ".py")), env=environment, **interpreter.in_directory(place)) as process:
            live, size = captured(directory, "--pids", process.pid)
            process.check_unharmed()
            full = kernel_core(process, place)
        print("%d bytes captured of a core of %d" % (size, os.stat(full).st_blocks * 512))
        check(size <= 1 << 20, "the capture has %d bytes" % size)
        os.mkdir(os.path.join(directory, "of-core"))
        of_core, _ = captured(os.path.join(directory, "of-core"), full, "--sysroot", interpreter.sysroot)
        theirs, ours, of_live = debugger.stacks_in_cores([full, of_core, live], interpreter.path, interpreter.sysroot)
        check(ours == theirs, "gdb finds other stacks in the capture of the core:\n" + difference(ours, theirs))
        check(sum(len(frames) for frames in theirs.values()) > 4 * len(theirs), "gdb finds hardly any frames: %r" % theirs)
        root = ["--sysroot", interpreter.sysroot]
        alive = only_rank(json_report("core", live, *root), process.pid)
        # What reads standard input has answered in between, and may have called read() from specialised code.
        answered = {thread["tid"] for thread in alive["threads"] if thread["syscall"] and (thread["syscall"]["name"], thread["syscall"]["fd"]) == ("read", 0)}
        rest = lambda stacks: {int(tid): stack for tid, stack in stacks.items() if int(tid) not in answered}
        check(len(rest(theirs)) >= 2 and rest(of_live) == rest(theirs), "gdb finds other stacks in the live process's capture:\n" + difference(of_live, theirs))
        report = json_report("core", full, *root)
        same_reports(report, json_report("core", of_core, *root), "the report of a core and that of its capture")
        rank = only_rank(report, process.pid)
        check(rank["status"] == "complete" and all(thread["stack_end"] == "complete" for thread in rank["threads"]), "%r" % rank["problems"])
        # A live process's paths are those of this machine, a core's are those of its root directory.
        ours, theirs = (rest(json.loads(json.dumps(stacks_of(one)).replace('"%s/' % interpreter.sysroot, '"/'))) for one in (alive, rank))
        check(ours == theirs, "the live process's stacks are others than its core's:\n" + difference(ours, theirs))


def case_python_3_14(directory):
    of_unpacked_python("3.14", directory)


def case_python_3_15(directory):
    of_unpacked_python("3.15", directory)


def case_python_system(directory):
    of_python("system", directory)


def case_python_3_6(directory):
    of_python("3.6", directory)


def case_python_3_7(directory):
    of_python("3.7", directory)


def case_python_3_8(directory):
    of_python("3.8", directory)


def case_python_3_9(directory):
    of_python("3.9", directory)


def case_python_3_10(directory):
    of_python("3.10", directory)


def case_python_3_11(directory):
    of_python("3.11", directory)


def case_python_3_12(directory):
    of_python("3.12", directory)


def case_python_3_13(directory):
    of_python("3.13", directory)


def pystacks(core, executable):
    """What pystack says of a core; None where it finds no Python in it."""
    done = subprocess.run(["pystack", "--no-color", "core", "--native", core, executable], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=120, env=dict(os.environ, DEBUGINFOD_URLS=""))
    text = done.stdout.decode(errors="replace")
    return text[text.index("Traceback for"):] if done.returncode == 0 and "(Python)" in text else None


def case_pystack_sees_the_same(directory):
    """pystack reads a small core as it reads the full one, of each CPython that it knows."""
    if not shutil.which("pystack"):
        raise Skip("no pystack in PATH (PyPI: pystack)")
    compared = []
    for version in ("3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "system"):
        try:
            interpreter = interpreters.find(version)
        except Skip as reason:
            print(reason)
            continue
        place = os.path.join(directory, version)
        os.mkdir(place)
        full = os.path.join(place, "full")
        with Fixture(interpreter.run(os.path.join(SOURCE, "fixtures", "python", "locks.py")), env=dict(os.environ, PYTHONIOENCODING="utf-8")) as process:
            executable = os.path.realpath("/proc/%d/exe" % process.pid)
            debugger.write_core(process.pid, full)
        expected = pystacks(full, executable)
        if expected is None:
            print("pystack finds no Python in the full core of CPython %s" % version)
            continue
        found = pystacks(captured(place, full)[0], executable)
        check(found == expected, "of CPython %s pystack says of the capture:\n%.2000s\nand of the core:\n%.2000s" % (version, found, expected))
        compared.append(version)
    check(compared, "pystack read the full core of no CPython")
    print("the same for CPython " + ", ".join(compared))


def case_native_threads(directory):
    with native("threads") as fixture:
        agree_everywhere(fixture, os.path.join(FIXTURES, "threads"), directory, most=1 << 20)


def case_native_cxx(directory):
    with native("cxx") as fixture:
        agree_everywhere(fixture, os.path.join(FIXTURES, "cxx"), directory, most=1 << 20)


def case_generated_code(directory):
    """Of code that no file has, the small core is the only source."""
    with native("jit") as fixture:
        path, _ = captured(directory, "--pids", fixture.pid)
        compare_native(fixture.ready, only_rank(json_report("core", path), fixture.pid), "the capture")


def case_many_threads(directory):
    with native("big_stacks", "160", "1") as fixture:
        path, size = captured(directory, "--pids", fixture.pid)
        live = only_rank(json_report("attach", "--pids", fixture.pid), fixture.pid)
        print("%d bytes of %d threads" % (size, len(live["threads"])))
        check(stacks_of(only_rank(json_report("core", path), fixture.pid)) == stacks_of(live), "other stacks than those of the live process")


def loads(path):
    """[(address, bytes in the file, bytes in memory)] of the PT_LOADs."""
    with open(path, "rb") as stream:
        core = stream.read()
    offset, = struct.unpack_from("<Q", core, 32)
    count, = struct.unpack_from("<H", core, 56)
    headers = [struct.unpack_from("<IIQQQQQQ", core, offset + 56 * i) for i in range(count)]
    return [(header[3], header[5], header[6]) for header in headers if header[0] == 1]


def case_a_thread_that_cannot_be_stopped(directory):
    """In state D, with a stack that needs registers of a stop: nothing is in the core twice."""
    with native("vfork", "alloca") as fixture:
        out = os.path.join(directory, "captured")
        try:
            capture("--pids", fixture.pid, "-o", out, expect=1)
        finally:    # it does not end with its parent
            with open("/proc/%d/task/%d/children" % (fixture.pid, fixture.pid), encoding="utf-8") as children:
                os.kill(int(children.read().split()[0]), signal.SIGKILL)
        names = {int(re.search(r"-(\d+)\.core", name)[1]): name for name in os.listdir(out)}
        path = unpacked(os.path.join(out, names[fixture.pid]))
        starts = [address for address, _, _ in loads(path)]
        check(len(starts) == len(set(starts)), "%d of %d parts twice" % (len(starts) - len(set(starts)), len(starts)))
        rank = only_rank(json_report("core", path, expect=1), fixture.pid)
        check(not any("damaged" in (problem["hint"] or "") for problem in rank["problems"]), "problems: %r" % rank["problems"])
        check(any(thread["tid"] == fixture.pid and thread["frames"] for thread in rank["threads"]), "the thread has no frames")


def case_what_is_left_out_is_absent(directory):
    """A page that the capture does not hold is absent for gdb, and no zeros: no program header covers it."""
    source = "import ctypes,json,os,time\nb=ctypes.create_string_buffer(b'y'*(1<<22))\nprint(json.dumps({'pid':os.getpid(),'at':ctypes.addressof(b)}),flush=True)\ntime.sleep(600)\n"
    with Fixture([sys.executable, "-c", source]) as fixture:
        path, size = captured(directory, "--pids", fixture.pid)
        at = fixture.ready["at"] + (1 << 21)
        check(all(in_file == in_memory for _, in_file, in_memory in loads(path)), "memory without bytes in the file, which gdb reads as zeros")
        check(not any(start <= at < start + n for start, _, n in loads(path)), "4 MB that nothing refers to were kept")
        check(size < 1 << 20, "%d bytes" % size)
        if not shutil.which("gdb"):
            raise Skip("no gdb on this machine")
        done = subprocess.run(debugger.GDB + ["-ex", "core-file " + path, "-ex", "x/gx %d" % at], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=120)
        check(b"Cannot access memory" in done.stdout, "gdb reads what is not there: %r" % done.stdout[-300:])


def case_changed_data_is_absent(directory):
    """Of writable data that a capture does not hold, gdb does not show what is in the file: the process may have changed it."""
    if not shutil.which("gdb"):
        raise Skip("no gdb on this machine")
    with python("locks") as fixture:
        with open("/proc/%d/maps" % fixture.pid, encoding="utf-8") as stream:
            lines = [line.split() for line in stream if " /" in line]
        executable = os.path.realpath("/proc/%d/exe" % fixture.pid)
        full = os.path.join(directory, "full")
        debugger.write_core(fixture.pid, full)
        for name, what in (("live", ("--pids", fixture.pid)), ("of-core", (full,))):
            os.mkdir(os.path.join(directory, name))
            path, _ = captured(os.path.join(directory, name), *what)
            kept = [(start, start + n) for start, _, n in loads(path)]
            absent = lambda page: not any(start < page + 4096 and page < end for start, end in kept)
            pages = {}
            for place, rights, *_ in lines:
                start, end = (int(number, 16) for number in place.split("-"))
                pages.setdefault(rights, []).extend(page for page in range(start, end, 4096) if absent(page))
            check(pages["rw-p"], "%s: all pages of data are in it" % name)
            for rights, wanted in (("rw-p", False), ("r-xp", True)):
                commands = [word for page in pages[rights][:32] for word in ("-ex", "x/gx %d" % page)]
                done = subprocess.run(debugger.GDB + ["-ex", "file " + executable, "-ex", "core-file " + path] + commands, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
                refused = done.stdout.count(b"Cannot access memory")
                check(refused == (0 if wanted else len(pages[rights][:32])), "%s: gdb cannot read %d of %d absent pages %s: %r" %
                      (name, refused, len(pages[rights][:32]), rights, done.stdout[-300:]))


def case_objects_that_begin_at_the_end_of_a_page(directory):
    """pystack copies the objects that a code object refers to whole; this tool reads their lengths and contents, which are on the next page
    here, and no type (of the variable's name no text either, as the code is not the user's own)."""
    source = ("import json,os,time\n"
              "def at_the_end(many):\n    return next((one for one in many[50000:] if id(one)%4096==0xff0),None)\n"
              "def wait():\n    x=1\n    time.sleep(600)\n"
              "code=wait.__code__\n"
              "new={'co_varnames':[('name_%07d'%i) for i in range(100000)],'co_name':['wait_%07d'%i for i in range(100000)],\n"
              "     'co_filename':['/usr/lib/python3/dist-packages/torch/%07d.py'%i for i in range(100000)],\n"
              "     'co_qualname':['W.wait_%07d'%i for i in range(100000)],'co_linetable':[bytes(bytearray(code.co_linetable)) for i in range(100000)]}\n"
              "new={field:at_the_end(many) for field,many in new.items() if hasattr(code,field)}\n"
              "print(json.dumps({'pid':os.getpid(),'at':{field:one and id(one) for field,one in new.items()}}),flush=True)\n"
              "if all(new.values()): wait.__code__=code.replace(**dict(new,co_varnames=(new['co_varnames'],)))\n"
              "del new\nwait()\n")
    with Fixture(["/usr/bin/python3", "-c", source]) as fixture:
        missing = [field for field, at in fixture.ready["at"].items() if at is None]
        if missing:
            raise Skip("no object of this Python begins at the end of a page for %s" % ", ".join(missing))
        path, _ = captured(directory, "--pids", fixture.pid)
        rank = only_rank(json_report("core", path), fixture.pid)
        check(any("wait_" in (frame["function"] or "") for thread in rank["threads"] for frame in thread["frames"]), "no wait_...(): %r" % stacks_of(rank))
        for field, at in fixture.ready["at"].items():
            for part in (at, at + 16):
                check(any(start <= part < start + n for start, _, n in loads(path)), "%#x of the %s at %#x is not in it" % (part, field, at))


def case_secrets(directory):
    secret = "hf_" + "Zq7rT2mWx9Lk4Vb8Nc1Pd6Yj3Hs5Gf0A"
    environment = dict(os.environ, HF_TOKEN=secret, RANK="3", WORLD_SIZE="8", PYTHONDONTWRITEBYTECODE="1")
    source = "import json,os,time\nkept=os.environ['HF_TOKEN']\nprint(json.dumps({'pid':os.getpid()}),flush=True)\ntime.sleep(600)\n"
    with Fixture([sys.executable, "-c", source, "--api-key", secret[::-1]], env=environment) as fixture:
        full = os.path.join(directory, "full")
        debugger.write_core(fixture.pid, full)
        for number, (what, options) in enumerate(((("--pids", fixture.pid), ()), ((full,), ()), (("--pids", fixture.pid), ("--with-secrets",)))):
            out = os.path.join(directory, "out%d" % number)
            capture(*what, *options, "-o", out)
            with open(unpacked(os.path.join(out, "rank-3.core.zst")), "rb") as stream:
                core = stream.read()
            for one in (secret, secret[::-1]):
                check((one.encode() in core) == bool(options), "%s %s: the secret %s in it" % (what, options, "is not" if options else "is"))
            check(b"WORLD_SIZE=8" + NUL in core, "the environment is not in it")


def case_archive_mixture_and_report(directory):
    """Several at once in one archive; captures, cores and saved reports together, by both commands."""
    with python("generators", env={"RANK": "0", "WORLD_SIZE": "3"}) as zero, python("locks", env={"RANK": "1", "WORLD_SIZE": "3"}) as one, \
            python("threads", env={"RANK": "2", "WORLD_SIZE": "3"}) as two:
        pids = [str(fixture.pid) for fixture in (zero, one, two)]
        archive = os.path.join(directory, "hang.tar.zst")
        capture("--pids", *pids, "-o", archive)
        names = subprocess.run(["tar", "--zstd", "-tf", archive], stdout=subprocess.PIPE, check=True).stdout.decode().split()
        check(names == ["rank-0.core", "rank-1.core", "rank-2.core"], "the archive has %r" % names)
        whole = json_report("core", archive)
        check([rank["rank"] for rank in whole["ranks"]] == [0, 1, 2], "ranks %r" % [rank["rank"] for rank in whole["ranks"]])
        check([rank["path"] for rank in whole["ranks"]] == [archive + "/" + name for name in names], "paths %r" % [rank["path"] for rank in whole["ranks"]])
        same_reports(whole, json_report("report", archive), "core and report")
        capture("--pids", pids[0], "-o", os.path.join(directory, "zero.core"))
        core = os.path.join(directory, "one.gcore")
        debugger.write_core(one.pid, core)
        saved = os.path.join(directory, "two.json.zst")
        status, _, err = run_tool("attach", "--pids", two.pid, "--format", "json", "-o", saved)
        check(status == 0, err.decode())
        for command in ("core", "report"):
            mixed = json_report(command, os.path.join(directory, "zero.core"), core, saved)
            check([(rank["rank"], rank["source"], rank["status"]) for rank in mixed["ranks"]] ==
                  [(0, "live", "complete"), (1, "core", "complete"), (2, "live", "complete")], "%s: %r" % (command, mixed["ranks"]))
            for rank, other in zip(mixed["ranks"], whole["ranks"]):
                check(stacks_of(rank) == stacks_of(other), "%s: rank %d has other stacks in the mixture" % (command, rank["rank"]))
        again = os.path.join(directory, "again.tar")
        capture(archive, "-o", again)
        same_reports(whole, json_report("core", again), "a capture and a capture of that")
        left = [name for name in os.listdir(directory) if name.startswith(".rankstacks")]
        check(not left, "left behind: %r" % left)


def bare_root(directory):
    """A root with the tool and what it needs, and nothing else."""
    root = os.path.join(directory, "root")
    os.makedirs(os.path.join(root, "proc"))
    os.makedirs(os.path.join(root, "tmp"))
    for library in set(re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", tool()], stdout=subprocess.PIPE, check=True).stdout.decode())):
        os.makedirs(root + os.path.dirname(library), exist_ok=True)
        shutil.copy(os.path.realpath(library), root + library)
    shutil.copy(tool(), os.path.join(root, "rankstacks"))
    return root


def report_inside(root, name, *options, command="core"):
    """The JSON report of a capture in the root's /tmp, made in the root."""
    words = " ".join((command, "/tmp/" + name) + options)
    script = "mount -t proc proc %s/proc && exec chroot %s /rankstacks %s --format json" % (root, root, words)
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    if done.returncode != 0 and not done.stdout:
        raise Skip("no root of its own here: " + done.stderr.decode(errors="replace").strip())
    check(done.returncode == 0, "status %d: %s" % (done.returncode, done.stderr.decode(errors="replace")))
    return json.loads(done.stdout)


def case_without_the_files(directory):
    """In a root without any of the process's files: with symbols the same report; without, frames by module and offset, whose symbols are
    found later."""
    if os.geteuid() != 0:
        raise Skip("only root can change its root")
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONIOENCODING="utf-8", RANK="0", WORLD_SIZE="1")
    root = bare_root(directory)
    for version in ("3.9", "3.12"):
        with Fixture(interpreters.find(version).run(os.path.join(SOURCE, "fixtures", "python", "locks.py")), env=environment) as fixture:
            full = os.path.join(directory, "full")
            debugger.write_core(fixture.pid, full)
            report = json_report("core", full)
            for name, options in (("with", ["--with-symbols"]), ("without", [])):
                capture(full, "-o", os.path.join(root, "tmp", name + ".core.zst"), *options)
            same_reports(report, report_inside(root, "with.core.zst"), "%s: with symbols, in another root" % version)
            bare = only_rank(report_inside(root, "without.core.zst"), fixture.pid)
            whole = only_rank(report, fixture.pid)
            check([[frame for frame in thread["frames"] if frame["kind"] == "python"] for thread in bare["threads"]] ==
                  [[frame for frame in thread["frames"] if frame["kind"] == "python"] for thread in whole["threads"]], "%s: other Python frames" % version)
            check(any("missing on this machine" in problem["message"] for problem in bare["problems"]), "%r" % bare["problems"])
            later = only_rank(json_report("core", os.path.join(root, "tmp", "without.core.zst")), fixture.pid)
            check(stacks_of(later) == stacks_of(whole), "%s: other stacks where the files are" % version)


def case_several_ranks_without_the_files(directory):
    """Ranks that are at different places of the same files, in one archive: each has the symbols that its own capture notes."""
    if os.geteuid() != 0:
        raise Skip("only root can change its root")
    root = bare_root(directory)
    archive = os.path.join(root, "tmp", "hang.tar.zst")
    environment = lambda rank: {"RANK": rank, "WORLD_SIZE": "3"}
    with python("locks", env=environment("0")) as zero, python("generators", env=environment("1")) as one, python("threads", env=environment("2")) as two:
        capture("--pids", *(str(fixture.pid) for fixture in (zero, one, two)), "--with-symbols", "-o", archive)
    same_reports(json_report("core", archive), report_inside(root, "hang.tar.zst"), "three ranks in another root")


def functions_of(rank):
    names = {thread["tid"]: [frame["function"] for frame in thread["frames"] if (frame["module"] or "").endswith("/threads")] for thread in rank["threads"]}
    check("main" in [name for of_thread in names.values() for name in of_thread], "no main: %r" % names)
    return names


def case_symbols_found_later(directory):
    """A capture without symbols, and the process's files elsewhere than where they were."""
    if os.geteuid() != 0:
        raise Skip("only root can change its root")
    root = bare_root(directory)
    with native("threads") as fixture:
        full = os.path.join(directory, "full")
        debugger.write_core(fixture.pid, full)
        capture(full, "-o", os.path.join(root, "tmp", "x.core.zst"))
        whole = only_rank(json_report("core", full), fixture.pid)
        with open("/proc/%d/maps" % fixture.pid, encoding="utf-8") as stream:
            files = sorted({line.split()[-1] for line in stream if "/" in line and " r-xp " in line})
    bare = only_rank(report_inside(root, "x.core.zst"), fixture.pid)
    problem = [problem for problem in bare["problems"] if problem["code"] == "file-missing"]
    check(len(problem) == 1 and "/threads (build-id " in problem[0]["message"], "what is missing: %r" % bare["problems"])
    check(stacks_of(bare) != stacks_of(whole), "the same stacks without any file")
    # As an environment (the last directory of each path), as one directory of files, as another machine's root.
    for name, place in (("environment", lambda path: "/".join(path.split("/")[-2:])), ("files", os.path.basename), ("machine", lambda path: path[1:])):
        for path in files:
            to = os.path.join(root, "given", name, place(path))
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copy(path, to)
        # Debug files of the C library, if this machine has them, are not in that root.
        for command in ("report", "core"):
            for option in ["--search"] + (["--sysroot"] if name == "machine" else []):
                found = only_rank(report_inside(root, "x.core.zst", option, "/given/" + name, command=command), fixture.pid)
                check(found["problems"] == [], "%s %s %s: %r" % (command, option, name, found["problems"]))
                check(functions_of(found) == functions_of(whole), "%s %s %s: other functions" % (command, option, name))


def case_a_full_disk(directory):
    """Nothing half remains, and what had the name before stays."""
    if os.geteuid() != 0:
        raise Skip("only root can mount a small file system")
    place = os.path.join(directory, "small")
    os.mkdir(place)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise Skip("mount: " + done.stderr.decode(errors="replace").strip())
    try:
        with python("locks") as fixture:
            before = os.path.join(place, "x.core")
            with open(before, "wb") as stream:
                stream.write(b"before")
            for path in (before, os.path.join(place, "new.tar"), os.path.join(place, "new")):
                status, out, err = run_tool("capture", "--pids", fixture.pid, "--samples", "1", "-o", path)
                check(status == 2 and out == b"" and b"No space left on device" in err, "%s: status %d, %r, %r" % (path, status, out, err))
            files = [name for _, _, names in os.walk(place) for name in names]
            check(files == ["x.core"], "left behind: %r" % files)
            with open(before, "rb") as stream:
                check(stream.read() == b"before", "the file that had the name was changed")
    finally:
        subprocess.run(["umount", place], check=True)


def case_a_sparse_core(directory):
    """Of a core of 40 GB that is mostly holes, only the pages that are needed are read."""
    with native("threads") as fixture:
        full = os.path.join(directory, "full")
        debugger.write_core(fixture.pid, full)
    with open(full, "r+b") as stream:      # a new PT_LOAD of 40 GB in place of the first one without use: the program headers move to the end
        core = bytearray(stream.read(64))
        offset, = struct.unpack_from("<Q", core, 32)
        count, = struct.unpack_from("<H", core, 56)
        stream.seek(offset)
        headers = stream.read(56 * count)
        size, hole = os.path.getsize(full), 40 << 30
        try:
            stream.truncate(size + hole + 56 * (count + 1))
        except OSError as error:
            raise Skip("no sparse file of 40 GB here: %s" % error)
        load = struct.pack("<IIQQQQQQ", 1, 6, size, 0x100000000000, 0, hole, hole, 4096)
        stream.seek(size + hole)
        stream.write(headers + load)
        struct.pack_into("<Q", core, 32, size + hole)
        struct.pack_into("<H", core, 56, count + 1)
        stream.seek(0)
        stream.write(core)
    before = os.stat(full).st_blocks
    path, small = captured(directory, full)
    check(os.stat(full).st_blocks == before, "holes were filled")
    check(small < 1 << 20, "%d bytes" % small)
    check(stacks_of(only_rank(json_report("core", path), fixture.pid)) == stacks_of(only_rank(json_report("core", full), fixture.pid)), "other stacks")
    os.truncate(full, 0)


def case_hostile_archives(directory):
    """Archives that lie are refused with a message, and write nothing outside of their own directory."""
    with native("chain") as fixture:
        capture("--pids", fixture.pid, "-o", os.path.join(directory, "one.core"))
        full = os.path.join(directory, "good.tar")
        with tarfile.open(full, "w", format=tarfile.USTAR_FORMAT) as archive:
            archive.add(os.path.join(directory, "one.core"), "../../../../escape/rank-0.core")
            link = tarfile.TarInfo("link")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(link)
        rank = only_rank(json_report("core", full), fixture.pid)
        check(rank["path"] == full + "/rank-0.core", "the path %r" % rank["path"])
        with open(full, "rb") as stream:
            whole = stream.read()
        for name, damaged, said in (("cut", whole[:len(whole) // 2], b"reaches past its end"), ("endless", whole[:-20480].rstrip(NUL), b"past its end"),
                                    ("sum", whole[:512] + b"x" * 512 + whole[1024:], None), ("empty", NUL * 10240, None)):
            path = os.path.join(directory, name + ".tar")
            with open(path, "wb") as stream:
                stream.write(damaged)
            status, _, err = run_tool("core", path)
            check(status in (0, 1, 2) and (said is None or said in err), "%s: status %d, %r" % (name, status, err))


def case_usage(directory):
    for arguments, said in ((["-o", "x"], "one of --pids, --job and cores"), (["--pids", "1"], "--output"),
                            (["--pids", "1", "-o", ""], "expected a file's name"), (["core", "--pids", "1", "-o", "x"], "not both at once")):
        status, out, err = run_tool("capture", *arguments)
        check(status == 2 and out == b"" and said in err.decode(), "%s: status %d, %r, %r" % (arguments, status, out, err))
    status, _, err = run_tool("capture", os.path.join(directory, "gone"), "-o", os.path.join(directory, "x"))
    check(status == 2 and b"cannot open" in err and not os.path.exists(os.path.join(directory, "x")), "of nothing: %d %r" % (status, err))


if __name__ == "__main__":
    cases.run(globals(), "captures")
