"""Core files: the kernel's and gcore's, compressed, truncated, without the program's files, and files that are no cores."""
import base64
import fcntl
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import zlib

import cases
import debugger
from command_line import FIXTURES, SOURCE, native, python, text_of
from processes import Fixture, Skip, check, json_report, run_tool
from truth_native import compare
from truth_python import compare as compare_python
from truth_python import only_rank


def frames_of(rank):
    return {thread["tid"]: thread["frames"] for thread in rank["threads"]}


def core_of(fixture, directory, name="core"):
    path = os.path.join(directory, name)
    debugger.take_core(fixture, path)
    return path


def kernel_core(directory, name, *arguments, command=None, sent=None):
    """(truth, the core's path) of a fixture that dies, whose core is written by the kernel; `command` starts it in another way; `sent`: the signal that ends it."""
    with open("/proc/sys/kernel/core_pattern", encoding="ascii") as stream:
        pattern = stream.read().strip()
    if pattern.startswith("|") or "/" in pattern:
        raise Skip("this machine's cores go to %r" % pattern)
    unlimited = lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    try:
        fixture = Fixture(command or [os.path.join(FIXTURES, name)] + list(arguments), cwd=directory, preexec_fn=unlimited)
    except subprocess.SubprocessError:
        raise Skip("the limit on the size of cores cannot be raised")
    with fixture:
        truth = fixture.ready
        fixture.let_crash()
        if sent is not None:
            os.kill(fixture.pid, sent)
        status = fixture.process.wait(timeout=60)
    check(status < 0, "the fixture has not died of a signal: %d" % status)
    cores = [entry for entry in os.listdir(directory) if entry.startswith("core")]
    if not cores:
        raise Skip("the kernel has written no core here")
    return truth, os.path.join(directory, cores[0])


def crash(directory, kind):
    truth, core = kernel_core(directory, "wild_call", kind, "crash")
    rank = only_rank(json_report("core", core), truth["pid"])
    check(rank["signal"] and rank["signal"]["name"] == "SIGSEGV" and rank["signal"]["number"] == 11 and rank["signal"]["tid"] == truth["pid"],
          "the signal: %r" % rank["signal"])
    compare(truth, rank, "core", static=True)
    program = os.path.join(FIXTURES, "wild_call")
    (stacks,) = debugger.stacks_in_cores([core], program)
    difference = debugger.agree(rank["threads"][0], stacks[truth["pid"]])
    check(difference is None, difference)


def case_crash_by_null_call(directory):
    crash(directory, "null")


def case_crash_by_wild_call(directory):
    crash(directory, "data")


def case_abort_in_a_thread(directory):
    truth, core = kernel_core(directory, "abort_in_thread")
    rank = only_rank(json_report("core", core), truth["pid"])
    check(rank["signal"] and rank["signal"]["name"] == "SIGABRT" and rank["signal"]["tid"] == truth["aborting"], "the signal: %r" % rank["signal"])
    compare(truth, rank, "core")
    check(rank["executable"] == os.path.join(FIXTURES, "abort_in_thread"), "the executable: %r" % rank["executable"])


def case_compressed(directory):
    with python("callbacks") as fixture:
        core = core_of(fixture, directory)
    plain = only_rank(json_report("core", core), fixture.pid)
    compare_python(fixture.ready, plain, "core")
    for program, arguments, ending in (("zstd", ["-q", "-1", "-k"], ".zst"), ("lz4", ["-q", "-k"], ".lz4"), ("xz", ["-0", "-k"], ".xz"),
                                       ("gzip", ["-1", "-k"], ".gz")):
        if not shutil.which(program):
            raise Skip("no %s on this machine" % program)
        target = [core + ending] if program == "lz4" else []          # lz4 writes to a pipe unless it is given a file
        subprocess.run([program] + arguments + [core] + target, check=True)
        rank = only_rank(json_report("core", core + ending), fixture.pid)
        check(rank["path"] == core + ending, "the path: %r" % rank["path"])
        check(frames_of(rank) == frames_of(plain), "%s: the stacks differ from the plain core's" % ending)


def crash_report(path, core, fields=("Architecture: amd64", "Date: Sat Jan 31 12:00:00 2026"), after=("ExecutablePath: /usr/bin/python3", "Uname: Linux")):
    """Writes what apport writes: the head of the gzip stream, the pieces of the core and the end of the stream, each as base64 in a line of its own."""
    packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    with open(core, "rb") as source, open(path, "w", encoding="ascii") as out:
        line = lambda data: out.write(" %s\n" % base64.b64encode(data).decode())
        out.write("ProblemType: Crash\n%s\nCoreDump: base64\n" % "\n".join(fields))
        line(b"\x1f\x8b\x08\0\0\0\0\0\x02\xff")
        crc = size = 0
        while True:
            piece = source.read(1 << 20)
            if not piece:
                break
            crc, size = zlib.crc32(piece, crc), size + len(piece)
            packed = packer.compress(piece)
            if packed:
                line(packed)
        line(packer.flush() + struct.pack("<LL", crc, size & 0xffffffff))
        out.write("\n".join(after) + "\n")


def case_reports_of_apport(directory):
    with native("threads") as fixture:
        core = core_of(fixture, directory)
    plain = only_rank(json_report("core", core), fixture.pid)
    path = os.path.join(directory, "_usr_bin_threads.0.crash")
    crash_report(path, core)
    for command in ("core", "report"):
        rank = only_rank(json_report(command, path), fixture.pid)
        check(rank["path"] == path and frames_of(rank) == frames_of(plain), "%s: other stacks than the plain core's" % command)
    # A field that only looks like it, before the core and in another field's lines.
    crash_report(path, core, fields=("CoreDumpX: base64", " H4sI", "Comment:", " CoreDump: base64", " AAAA"))
    check(frames_of(only_rank(json_report("core", path), fixture.pid)) == frames_of(plain), "other fields are taken for the core")
    with open(path, "rb") as stream:
        whole = stream.read()
    with open(path, "wb") as stream:
        stream.write(whole[:len(whole) // 2])
    report = json_report("core", path, expect=2)         # gcore writes the registers at the end
    check("apport data ends in the middle" in json.dumps(report["ranks"][0]["problems"]), "of half a report: %r" % report["ranks"][0]["problems"])
    for content, said in ((b"ProblemType: Crash\nUname: Linux\n", b"no field \"CoreDump: base64\""), (b"ProblemType: Crash\nCoreDump: base64\n", b"in the middle"),
                          (b"ProblemType: Crash\nCoreDump: base64\n AAAAAAAA\n", b"damaged"), (b"ProblemType: Crash\nCoreDump: base64\n H4sI\n\xff\xff\n", b"in the middle")):
        with open(path, "wb") as stream:
            stream.write(content)
        status, _, err = run_tool("core", path)
        check(status == 2 and said in err and os.path.basename(path).encode() in err, "of %r: status %d, %r" % (content, status, err))


BOOT = "0123456789abcdef0123456789abcdef"


def case_cores_that_systemd_keeps(directory):
    kept = os.path.join(directory, "coredump")
    os.mkdir(kept)
    paths, pids = {}, {}
    for number in range(2):
        with native("threads", env={"RANK": str(number), "WORLD_SIZE": "2", "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}) as fixture:
            core = core_of(fixture, directory, "taken")
            pids[number] = fixture.pid
        paths[number] = os.path.join(kept, "core.threads.%d.%s.%d.17698608%02d000000" % (os.getuid(), BOOT, pids[number], number))
        os.rename(core, paths[number])
    subprocess.run(["zstd", "-q", "-1", "--rm", paths[1]], check=True)
    paths[1] += ".zst"
    with native("waits") as fixture:                   # another program's, with the pid that rank 0 has
        other = os.path.join(kept, "core.waits.%d.%s.%d.1769850000000000" % (os.getuid(), BOOT, pids[0]))
        os.rename(core_of(fixture, directory, "taken"), other)
    for name in ("README", "core.4711", "core.x.0.%s.1.notatime" % BOOT):
        with open(os.path.join(kept, name), "wb") as stream:
            stream.write(b"no core")

    def read(*arguments):
        report = json_report("core", *arguments, "--systemd-directory", kept)
        return [(rank["rank"], rank["pid"], rank["path"]) for rank in report["ranks"]]
    ranks = [(number, pids[number], paths[number]) for number in range(2)]
    for words in (["--systemd", "%d,%d" % (pids[0], pids[1])], ["--systemd", "slurm:4711.0"],
                  ["--since", "2026-01-31T11:59:59Z"], ["--systemd", "user:%d" % os.getuid(), "--since", "2026-01-31T11:59:59Z"]):
        check(read(*words) == ranks, "%s: %r" % (words, read(*words)))
    check(read("--systemd", pids[0]) == ranks[:1], "the newest core of a pid: %r" % read("--systemd", pids[0]))
    check(read("--systemd", pids[0], "--", paths[1]) == ranks, "together with a file: %r" % read("--systemd", pids[0], "--", paths[1]))
    check(len(read("--since", "@0")) == 3, "since ever: %r" % read("--since", "@0"))

    for words, said in ((["--systemd", "1"], b"no core of pid 1 in it"), (["--systemd", "slurm:1"], b"no core of job slurm:1 in it"), (["--since", "1s"], b"no core since"),
                        (["--systemd", "user:nobody-of-that-name"], b"no such user")):
        status, out, err = run_tool("core", *words, "--systemd-directory", kept)
        check((status, out) == (2, b"") and said in err and b"\nhint: " in err, "%s: status %d, %r" % (words, status, err))
    for words in (["--systemd"], ["--systemd", "cgroup:/x"], ["--since", "soon"], ["--systemd", "1", "--systemd-directory", directory + "/absent"], []):
        status, out, err = run_tool("core", *words)
        check((status, out) == (2, b"") and b"hint: rankstacks --help" in err, "%s: status %d, %r" % (words, status, err))

    try:
        os.setxattr(paths[0], "user.coredump.truncated", b"1")
        os.setxattr(paths[0], "user.coredump.hostname", b"node-of-the-core")
    except OSError as error:
        raise Skip("all but the extended attributes, which files in %s cannot have: %s" % (kept, error))
    rank = only_rank(json_report("core", "--systemd", pids[0], "--systemd-directory", kept, expect=1), pids[0])
    check(rank["status"] == "partial" and any("systemd-coredump cut this core off" in problem["message"] for problem in rank["problems"]), "a truncated core: %r" % rank["problems"])
    check(rank["host"] == "node-of-the-core", "the host: %r" % rank["host"])


def case_several_cores(directory):
    cores = []
    for number in range(3):
        with native("threads", env={"RANK": str(number), "WORLD_SIZE": "3"}) as fixture:
            cores.append(core_of(fixture, directory, "core-%d" % number))
    report = json_report("core", *cores)
    check([rank["rank"] for rank in report["ranks"]] == [0, 1, 2], "the ranks: %r" % [rank["rank"] for rank in report["ranks"]])
    main_clusters = [cluster["ranks"] for cluster in report["clusters"] if cluster["role"] == "main"]
    check(main_clusters == [[0, 1, 2]], "main threads cluster as %r" % main_clusters)
    twice = json_report("core", *cores, cores[1])["ranks"]
    check(len(twice) == 3, "a core that is named twice: %r" % [rank["rank"] for rank in twice])


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))


def case_many_cores_and_few_descriptors(directory):
    """200 cores under a limit of 128 open files: all are read, with the same result as without the limit, plain and compressed."""
    with python("recursion") as one, native("threads") as two:
        cores = []
        for number, fixture in enumerate((one, two)):
            debugger.write_core(fixture.pid, os.path.join(directory, "made-%d" % number))
        subprocess.run(["gzip", "-1", "--keep", os.path.join(directory, "made-1")], check=True)
        for number in range(200):
            made = ("made-0", "made-1", "made-1.gz")[number % 50 if number % 50 < 3 else 1]
            cores.append(os.path.join(directory, "core.%d" % number))
            os.link(os.path.join(directory, made), cores[-1])
        report = json_report("core", *cores, preexec_fn=few_descriptors)
        seen = {rank["path"]: rank for rank in report["ranks"]}
        check(sorted(seen) == sorted(cores), "%d of 200 cores are in the report" % len(seen))
        for path, rank in seen.items():
            fixture = one if os.stat(path).st_ino == os.stat(cores[0]).st_ino else two
            check(rank["status"] == "complete" and rank["pid"] == fixture.pid, "%s: %r" % (path, rank["problems"]))
            check(all(thread["frames"] for thread in rank["threads"]), "%s: a thread without a stack" % path)
            check((rank["python"] is None) == (fixture is two), "%s: its Python: %r" % (path, rank["python"]))
        status, out, err = run_tool("doctor", *cores, "--format", "json", preexec_fn=few_descriptors)
        findings = [finding for finding in json.loads(out)["findings"] if finding["check"] == "core"]
        whole = [finding for finding in findings if finding["status"] == "ok"]
        check(len(whole) == 200, "the doctor: %d, %d cores: %r" % (status, len(whole), err[-500:]))


def case_cut_off(directory):
    """Of a truncated core the data that it holds are reported, and that it is truncated; never more."""
    with native("threads") as fixture:
        core = core_of(fixture, directory)
    whole = frames_of(only_rank(json_report("core", core), fixture.pid))
    size = os.path.getsize(core)
    for part in (0.9, 0.5, 0.2):
        cut = os.path.join(directory, "cut-%d" % int(part * 100))
        shutil.copy(core, cut)
        os.truncate(cut, int(size * part))
        status, out, err = run_tool("core", cut, "--format", "json")
        check(status in (1, 2), "%s: status %d" % (cut, status))
        rank = json.loads(out)["ranks"][0]
        check(rank["status"] in ("partial", "failed") and rank["problems"], "%s: %r" % (cut, rank["status"]))
        for thread in rank["threads"]:
            true_addresses = [frame["address"] for frame in whole[thread["tid"]]]
            addresses = [frame["address"] for frame in thread["frames"]]
            check(addresses == true_addresses[:len(addresses)], "%s: tid %d has frames that the whole core has not" % (cut, thread["tid"]))


def writable_parts(core, keep):
    """Makes the core smaller: of each writable segment keep(size) bytes remain."""
    with open(core, "r+b") as stream:
        stream.seek(32)
        table, = struct.unpack("<Q", stream.read(8))
        stream.seek(56)
        count, = struct.unpack("<H", stream.read(2))
        for header in range(table, table + 56 * count, 56):
            stream.seek(header)
            kind, flags, _, _, _, size = struct.unpack("<IIQQQQ", stream.read(40))
            if kind == 1 and flags & 2:                        # PT_LOAD, PF_W
                stream.seek(header + 32)
                stream.write(struct.pack("<Q", keep(size)))


def case_without_stacks(directory):
    """A core that lacks the stacks (coredump_filter, truncated): no stack is called complete, and what is missing is reported."""
    with native("threads") as fixture:
        core = core_of(fixture, directory)
    whole = frames_of(only_rank(json_report("core", core), fixture.pid))
    writable_parts(core, lambda size: 0)
    for unwinder in ("auto", "libunwind", "libdwfl"):
        rank = only_rank(json_report("core", core, "--unwinder", unwinder, expect=1), fixture.pid)
        check(rank["status"] == "partial", "the rank is %s" % rank["status"])
        check(any("does not hold the stacks of %d threads" % len(whole) in problem["message"] for problem in rank["problems"]), "problems: %r" % rank["problems"])
        for thread in rank["threads"]:
            check(thread["stack_end"] == "memory-unavailable", "%s: tid %d: %s" % (unwinder, thread["tid"], thread["stack_end"]))
            check(thread["frames"] == whole[thread["tid"]][:len(thread["frames"])] and thread["frames"], "%s: tid %d: %r" % (unwinder, thread["tid"], thread["frames"]))


def with_glibc_of_sid(name):
    """A fixture's command with the C library of Debian unstable, whose stack guards are inside of mappings."""
    place = os.path.join(os.path.dirname(FIXTURES), "glibc-sid")
    with open(os.path.dirname(FIXTURES) + "/glibc-sid.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fetched = subprocess.run([os.path.join(SOURCE, "scripts/fetch-glibc"), "sid", place],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if fetched.returncode != 0:
        raise Skip(fetched.stderr.decode(errors="replace").strip())
    libraries = os.path.join(place, "root/lib/x86_64-linux-gnu")
    return [os.path.join(libraries, "ld-linux-x86-64.so.2"), "--library-path", libraries, os.path.join(FIXTURES, name)]


def case_stacks_that_gcore_leaves_out(directory):
    """glibc 2.42's stack guards make gcore leave out the mappings that contain them."""
    command = with_glibc_of_sid("threads")
    with Fixture(command) as fixture:
        tids = set(int(tid) for tid in os.listdir("/proc/%d/task" % fixture.pid))
        with open("/proc/%d/smaps" % fixture.pid, encoding="ascii") as stream:
            if not any(line.startswith("VmFlags") and " gu " in line for line in stream):
                raise Skip("the kernel has no guards inside of mappings (Linux 6.13 and later), or does not show them")
        core = os.path.join(directory, "core")
        debugger.write_core(fixture.pid, core)
        live = only_rank(json_report("attach", "--pids", str(fixture.pid)), fixture.pid)
    check(live["status"] == "complete", "live: %r" % live["problems"])
    others = tids - {fixture.pid}
    for name, make in (("plain", None), ("zstd", ["zstd", "-q", "-1", core, "-o", core + ".zst"])):
        if make and not shutil.which(make[0]):
            continue
        if make:
            subprocess.run(make, check=True)
        path = core + ".zst" if make else core
        rank = only_rank(json_report("core", path, expect=1), fixture.pid)
        check(rank["status"] == "partial", "%s: the rank is %s" % (name, rank["status"]))
        said = "gcore has left out the stacks of %d threads" % len(others)
        matching = [problem for problem in rank["problems"] if problem["message"].startswith(said)]
        named = sorted(others)[:16]          # the message names no more
        check(len(matching) == 1 and all(str(tid) in matching[0]["message"] for tid in named)
              and "kernel's core" in matching[0]["hint"], "%s: %r" % (name, rank["problems"]))
        check(not any("coredump_filter" in (problem["hint"] or "") for problem in rank["problems"]),
              "%s: the cause is reported twice: %r" % (name, rank["problems"]))
        for thread in rank["threads"]:
            check((thread["stack_end"] == "memory-unavailable") == (thread["tid"] in others),
                  "%s: tid %d: %s" % (name, thread["tid"], thread["stack_end"]))
    status, out, _ = run_tool("doctor", core)
    check(status == 1 and "gcore has left out" in " ".join(out.decode().split()), "doctor: %r" % out)


def case_the_kernels_core_has_what_gcore_leaves_out(directory):
    truth, core = kernel_core(directory, "abort_in_thread", command=with_glibc_of_sid("abort_in_thread"))
    rank = only_rank(json_report("core", core), truth["pid"])
    ends = [thread["stack_end"] for thread in rank["threads"]]
    check(rank["status"] == "complete" and set(ends) == {"complete"}, "%r, %r" % (ends, rank["problems"]))
    compare(truth, rank, "core")


def case_without_the_end_of_a_stack(directory):
    """Of 20,000 frames the core holds some: more than are shown, or fewer. In both cases the stack ends in memory that is not available."""
    with native("deep") as fixture:
        core = core_of(fixture, directory)
    for left_out in (0.25, 0.8):
        cut = os.path.join(directory, "cut")
        shutil.copy(core, cut)
        writable_parts(cut, lambda size: int(size * (1 - left_out)) if size > 256 << 10 else size)
        for unwinder in ("auto", "libunwind", "libdwfl"):
            rank = only_rank(json_report("core", cut, "--unwinder", unwinder, expect=1), fixture.pid)
            thread = rank["threads"][0]
            check(thread["stack_end"] == "memory-unavailable", "%s: %d frames, %s" % (unwinder, len(thread["frames"]), thread["stack_end"]))
            check(("omitted_frames" in thread) == (left_out < 0.5), "%s: %d frames" % (unwinder, len(thread["frames"])))
            check(rank["status"] == "partial" and any("does not hold the stack" in problem["message"] for problem in rank["problems"]),
                  "%s: %s: %r" % (unwinder, rank["status"], rank["problems"]))


def case_no_cores(directory):
    """Files that are no cores, together with a good one: status 1, and each of them is named."""
    paths = {"empty": b"", "text": b"this is no core\n" * 100, "header": b"\x7fELF\x02\x01\x01" + b"\0" * 9, "garbage": b"\x7fELF\x02\x01\x01" + b"\xff" * 4096,
             "zstd.zst": b"\x28\xb5\x2f\xfd" + b"\xff" * 100, "gzip.gz": b"\x1f\x8b\x08" + b"\xff" * 100}
    files = [os.path.join(FIXTURES, "threads"), os.path.join(directory, "absent"), directory, "/dev/null"]
    for name, content in paths.items():
        files.append(os.path.join(directory, name))
        with open(files[-1], "wb") as stream:
            stream.write(content)
    with native("threads") as fixture:
        core = core_of(fixture, directory)
    for path in files:
        status, out, err = run_tool("core", path, core, "--format", "json")
        check(status == 1, "%s: status %d: %r" % (path, status, err))
        ranks = json.loads(out)["ranks"]
        failed = [rank for rank in ranks if rank["status"] == "failed"]
        check(len(ranks) == 2 and len(failed) == 1 and failed[0]["problems"], "%s: ranks %r" % (path, [rank["status"] for rank in ranks]))
        check(failed[0]["path"] == path, "%s: its path is %r" % (path, failed[0]["path"]))
        check(path.encode() in err or os.path.basename(path).encode() in err, "%s is not named: %r" % (path, err))
        compare(fixture.ready, only_rank({"ranks": [rank for rank in ranks if rank["status"] != "failed"]}, fixture.pid), "the good core")
        status, out, err = run_tool("core", path, "--format", "json")
        check(status == 2 and json.loads(out)["ranks"][0]["status"] == "failed", "%s alone: status %d" % (path, status))


def build_id(path):
    notes = subprocess.run(["readelf", "-n", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()
    return next(line.split(":")[1].strip() for line in notes.splitlines() if "Build ID" in line)


def case_wrong_executable_is_refused(directory):
    """The program was built anew after the core was taken: both build-ids are named, and its frames have no names."""
    program = os.path.join(directory, "program")
    shutil.copy(os.path.join(FIXTURES, "chain"), program)
    with Fixture([program]) as fixture:
        core = core_of(fixture, directory)
    right = only_rank(json_report("core", core), fixture.pid)
    compare(fixture.ready, right, "with its program")
    os.rename(program, os.path.join(directory, "kept"))
    other = os.path.join(FIXTURES, "tail_calls")
    shutil.copy(other, program)
    for options in ([], ["--exe", other]):
        status, out, err = run_tool("core", core, "--format", "json", *options)
        check(status in (0, 1), "%s: status %d: %r" % (options, status, err))
        rank = only_rank(json.loads(out), fixture.pid)
        text = " ".join(problem["message"] + (problem["hint"] or "") for problem in rank["problems"])
        for identity in (build_id(os.path.join(directory, "kept")), build_id(other)):
            check(identity in text, "%s: build-id %s is not named: %r" % (options, identity, text))
        main_thread = next(thread for thread in rank["threads"] if thread["tid"] == fixture.pid)
        own = [frame for frame in main_thread["frames"] if (frame["module"] or "").endswith("program")]
        check(own and all(frame["function"] is None and frame["offset"] for frame in own), "%s: frames named from the wrong file: %r" % (options, own))
    rank = only_rank(json_report("core", core, "--exe", os.path.join(directory, "kept")), fixture.pid)
    compare(fixture.ready, rank, "with --exe")
    os.makedirs(os.path.join(directory, "found", "by", "build-id"))
    shutil.copy(os.path.join(directory, "kept"), os.path.join(directory, "found", "program"))
    rank = only_rank(json_report("core", core, "--search", os.path.join(directory, "found")), fixture.pid)
    compare(fixture.ready, rank, "with --search")


def case_interpreter_whose_file_is_gone(directory):
    """What is missing is reported, by the exit status too: a script that checks the status must not take the report for complete."""
    program = os.path.join(directory, "python-of-its-own")
    shutil.copy(os.path.realpath("/usr/bin/python3"), program)
    environment = dict(os.environ, PYTHONHOME="/usr")
    with Fixture([program, os.path.join(SOURCE, "fixtures", "python", "threads.py")], env=environment) as fixture:
        core = core_of(fixture, directory)
    whole = only_rank(json_report("core", core), fixture.pid)
    check(whole["status"] == "complete" and whole["python"]["version"], "with its file: %r" % {name: whole[name] for name in ("status", "python", "problems")})
    os.rename(program, os.path.join(directory, "elsewhere"))
    status, out, err = run_tool("core", core, "--format", "json")
    rank = only_rank(json.loads(out), fixture.pid)
    text = " ".join(problem["message"] for problem in rank["problems"])
    check(status == 1 and rank["status"] == "partial" and program in text and program in text_of(err), "status %d, %r: %r; stderr %r" % (status, rank["status"], text, err))
    check(rank["python"] == {"version": None}, "python: %r" % rank["python"])
    in_it = sum(frame["kind"] == "native" and frame["module"] == program for thread in rank["threads"] for frame in thread["frames"])
    missing = [(file["path"], file["package"], file["frames"]) for file in rank["missing_files"]]
    check(missing == [(program, None, in_it)] and rank["missing_files"][0]["build_id"] in text, "missing files: %r, %d frames in it; %s" % (rank["missing_files"], in_it, text))
    check("missing_files" not in whole, "with its file: %r" % whole.get("missing_files"))
    check(json_report("core", core, "--exe", os.path.join(directory, "elsewhere"))["ranks"][0]["status"] == "complete", "with --exe")
    saved = os.path.join(directory, "saved.json")
    with open(saved, "wb") as file:
        file.write(out)
    again = json_report("report", saved, expect=1)["ranks"][0]
    check(again["python"] == {"version": None} and again["missing_files"] == rank["missing_files"], "shown again")


def case_signals_of_a_gcore(directory):
    """A core of a process that lives on has no fatal signal."""
    with native("threads") as fixture:
        core = core_of(fixture, directory)
        fixture.check_unharmed()
    rank = only_rank(json_report("core", core), fixture.pid)
    check(rank["signal"] is None or rank["signal"]["number"] in (0, signal.SIGTRAP, signal.SIGSTOP), "the signal: %r" % rank["signal"])
    check(rank["source"] == "core" and rank["path"] == core, "source %r, path %r" % (rank["source"], rank["path"]))


if __name__ == "__main__":
    cases.run(globals(), "core")
