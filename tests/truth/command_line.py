"""The command line: exit statuses, what goes to stdout and what to stderr, formats, saved reports."""
import json
import os
import re
import resource
import select
import subprocess
import time

import cases
from processes import Fixture, Skip, check, json_report, run_tool, tool
from truth_native import compare
from truth_python import only_rank

FIXTURES = os.environ["RANKSTACKS_FIXTURES"]
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def native(name, *arguments, **options):
    return Fixture([os.path.join(FIXTURES, name)] + list(arguments), **options)


def python(name, **options):
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONIOENCODING="utf-8")
    environment.update(options.pop("env", {}))
    return Fixture(["/usr/bin/python3", os.path.join(SOURCE, "fixtures", "python", name + ".py")], env=environment, **options)


def free_pid():
    """A pid that no process has: that of a child that was reaped."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def text_of(raw):
    """The bytes decoded strictly as UTF-8; checks that the text has no control characters that a terminal would act on."""
    text = raw.decode("utf-8")
    bad = re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    check(not bad, "a control character in the text: %r" % (bad and text[max(0, bad.start() - 30):bad.end() + 30]))
    return text


def case_help(directory):
    for arguments in (["--help"], ["attach", "--help"], ["core", "--help"], ["report", "--help"], ["diff", "--help"], ["doctor", "--help"], ["rules", "--help"],
                      ["capture", "--help"], ["dump", "--help"], ["watch", "--help"], ["core-handler", "--help"]):
        status, out, err = run_tool(*arguments)
        check((status, err) == (0, b""), "%s: status %d, stderr %r" % (arguments, status, err))
        check(b"rankstacks" in out and len(out) > 200, "%s says little: %r" % (arguments, out))
    _, out, _ = run_tool("--help")
    for command in (b"attach", b"core", b"report", b"diff", b"doctor", b"rules", b"capture", b"dump", b"watch", b"core-handler"):
        check(command in out, "--help does not mention %r" % command)


def case_version(directory):
    status, out, err = run_tool("--version")
    check(status == 0 and err == b"" and re.fullmatch(rb"rankstacks \d+\.\d+\.\d+\n", out), "--version: %d %r %r" % (status, out, err))
    for command in ("attach", "core", "report", "diff", "doctor", "rules", "capture", "dump", "watch", "core-handler"):
        check(run_tool(command, "--version") == (0, out, b""), "%s --version: %r" % (command, run_tool(command, "--version")))


def case_usage_errors(directory):
    for arguments in ([], ["nonsense"], ["--nonsense"], ["attach"], ["attach", "--pids"], ["attach", "--pids", "abc"], ["attach", "--pids", "12x"],
                      ["attach", "--pids", "-5"], ["attach", "--pids", "0"], ["attach", "--pids", "99999999999999999999"], ["attach", "--pids", ","],
                      ["attach", "--pids", "1", "--format", "nonsense"], ["attach", "--pids", "1", "--color", "nonsense"],
                      ["attach", "--pids", "1", "--nonsense"], ["core"], ["report"], ["attach", "nonsense"]):
        status, out, err = run_tool(*arguments)
        check(status == 2, "%s: status %d" % (arguments, status))
        check(out == b"", "%s: on stdout %r" % (arguments, out))
        check(len(err) > 10, "%s: on stderr %r" % (arguments, err))


def case_usage_errors_say_what_is_wrong(directory):
    gone = os.path.join(directory, "gone")
    for arguments, said in ((["no\x1bsuch"], "rankstacks: no command is called \"no\\x1bsuch\": attach, core, report, diff, doctor, rules, job, capture, dump, watch or core-handler"),
                            (["attach", "--pids", "1", "--timeout", "nan"], "--timeout: expected a number, found \"nan\""),
                            (["attach", "--pids", "1", "--interval", "nan"], "--interval: expected a number, found \"nan\""),
                            (["attach", "--pids", "1", "--interval", "inf"], "--interval"),
                            (["attach", "--pids", "1", "-o", ""], "--output: expected a file's name, found none"),
                            (["core", "core", "--exe", gone], "--exe: %s: No such file or directory" % gone),
                            (["core", "core", "--sysroot", gone], "--sysroot: %s: No such file or directory" % gone),
                            (["core", "core", "--search", directory, "--search", gone], "--search: %s: No such file or directory" % gone),
                            (["core", "core", "--exe", directory], "--exe: %s: a directory, not a file" % directory),
                            (["core", "core", "--sysroot", "/dev/null"], "--sysroot: /dev/null: not a directory"),
                            (["core", "core", "--search", "/dev/null"], "--search: /dev/null: not a directory"),
                            (["doctor", "core", "--search", gone], "--search: %s: No such file or directory" % gone)):
        status, out, err = run_tool(*arguments)
        check(status == 2 and out == b"" and said in err.decode(), "%s: status %d, %r, %r" % (arguments, status, out, err))


def case_several_pids(directory):
    with native("chain") as one, native("threads") as two, native("inlined") as three:
        fixtures = {fixture.pid: fixture for fixture in (one, two, three)}
        pids = [str(pid) for pid in fixtures]
        for arguments in (["--pids", ",".join(pids)], ["--pids"] + pids, ["--pids", pids[0], "--pids", pids[1], "--pids", pids[2]],
                          ["--pids", pids[0] + "," + pids[1], pids[2]], ["--pids", "\n".join(pids)], ["--pids", " %s\t%s, %s " % tuple(pids)], ["--pids", ",".join(pids + pids)]):
            report = json_report("attach", *arguments)
            check(sorted(rank["pid"] for rank in report["ranks"]) == sorted(fixtures), "%s: ranks %r" % (arguments, [r["pid"] for r in report["ranks"]]))
            for rank in report["ranks"]:
                compare(fixtures[rank["pid"]].ready, rank, "pid %d" % rank["pid"])
        for fixture in fixtures.values():
            fixture.check_unharmed()


def case_one_rank_is_missing(directory):
    gone = free_pid()
    with native("chain") as fixture:
        status, out, err = run_tool("attach", "--pids", "%d,%d" % (gone, fixture.pid), "--format", "json")
        check(status == 1, "status %d" % status)
        check(str(gone) in err.decode(), "stderr does not name the pid: %r" % err)
        report = json.loads(out)
        failed = only_rank(report, gone)
        check(failed["status"] == "failed" and failed["threads"] == [] and failed["problems"], "the missing rank: %r" % failed)
        compare(fixture.ready, only_rank(report, fixture.pid), "the other rank")
        fixture.check_unharmed()


def case_no_rank_is_there(directory):
    gone = free_pid()
    report = json_report("attach", "--pids", gone, expect=2)
    check(only_rank(report, gone)["status"] == "failed", "the rank: %r" % report["ranks"])
    status, out, err = run_tool("attach", "--pids", gone)
    check(status == 2 and str(gone) in text_of(out) and str(gone) in err.decode(), "status %d, %r, %r" % (status, out, err))


def case_lines_of_libc(directory):
    """With its debug file, libc's frames have lines for who asks; they have names in any case, and the program's own frames have lines."""
    with native("still", "2") as fixture:
        found = {}
        for options in ([], ["--libc-lines"]):
            report = json_report("attach", "--samples", 1, "--pids", fixture.pid, *options)
            frames = [frame for thread in only_rank(report, fixture.pid)["threads"] for frame in thread["frames"]]
            own = [frame for frame in frames if os.path.basename(frame["module"] or "") == "still"]
            check(any(frame["line"] for frame in own), "no line of the program: %r" % own)
            found[len(options)] = [frame for frame in frames if os.path.basename(frame["module"] or "").startswith("libc.so")]
        check(found[0] and not any(frame["line"] or frame["file"] for frame in found[0]), "without the option: %r" % found[0])
        names = [[frame["function"] for frame in found[number] if not frame["inlined"]] for number in (0, 1)]
        check(names[0] == names[1] and any(names[0]), "functions: %r" % names)
        if not any(frame["line"] for frame in found[1]):
            raise Skip("libc's debug file is not installed (Debian: libc6-dbg)")


def case_output_file(directory):
    path = os.path.join(directory, "report.json")
    with native("chain") as fixture:
        status, out, err = run_tool("attach", "--pids", fixture.pid, "--format", "json", "-o", path)
        check((status, out) == (0, b""), "status %d, stdout %r, stderr %r" % (status, out, err))
        with open(path, encoding="utf-8") as stream:
            compare(fixture.ready, only_rank(json.load(stream), fixture.pid), "the file")
        status, out, err = run_tool("attach", "--pids", fixture.pid, "-o", os.path.join(directory, "no", "such", "directory"))
        check(status == 2 and out == b"" and b"no/such/directory" in err, "unwritable: status %d, %r, %r" % (status, out, err))
        status, out, err = run_tool("attach", "--pids", fixture.pid, "-o", "/dev/full")
        check(status == 2 and b"/dev/full" in err, "a full disk: status %d, %r, %r" % (status, out, err))
        fixture.check_unharmed()


def case_a_report_is_its_owners(directory):
    """A new file has mode 0600 whatever the umask is; an existing file keeps its mode; pipes and devices are written to
    as they are."""
    path = os.path.join(directory, "report")
    with native("chain") as fixture:
        for umask, command in ((0o000, "attach"), (0o022, "attach"), (0o022, "doctor")):
            run_tool(command, "--pids", fixture.pid, "-o", path, preexec_fn=lambda: os.umask(umask))
            mode = os.stat(path).st_mode & 0o777
            check(mode == 0o600, "%s under umask %03o: mode %03o" % (command, umask, mode))
            os.unlink(path)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write("x" * 1000000)
        os.chmod(path, 0o664)
        check(run_tool("attach", "--pids", fixture.pid, "-o", path)[0] == 0, "no report")
        check(os.stat(path).st_mode & 0o777 == 0o664, "an existing file's mode: %03o" % (os.stat(path).st_mode & 0o777))
        check(0 < os.path.getsize(path) < 1000000, "it was not written anew")
        check(run_tool("attach", "--pids", fixture.pid, "-o", "/dev/null")[0] == 0, "/dev/null")
        status, out, _ = run_tool("attach", "--pids", fixture.pid, "-o", "/dev/stdout")
        check(status == 0 and str(fixture.pid).encode() in out, "/dev/stdout: %d %r" % (status, out))
        fifo = os.path.join(directory, "fifo")
        os.mkfifo(fifo)
        process = subprocess.Popen([tool(), "attach", "--pids", str(fixture.pid), "-o", fifo])
        with open(fifo, "rb") as stream:
            check(str(fixture.pid).encode() in stream.read(), "nothing came through the pipe")
        check(process.wait(timeout=60) == 0, "a pipe: status %d" % process.returncode)


def case_json_does_nothing_to_a_terminal(directory):
    """A process has DEL, C1 controls and direction marks in its arguments: the JSON has their values as escapes, not the
    characters."""
    raw = "\x7f\x80\x9b\x9f\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"
    process = subprocess.Popen(["/bin/sh", "-c", "read line", raw], stdin=subprocess.PIPE)
    try:
        for command in ("attach", "doctor"):
            _, out, _ = run_tool(command, "--pids", process.pid, "--format", "json")
            text = out.decode("utf-8")
            bad = re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", text)
            check(not bad, "%s: raw in the JSON: %r" % (command, bad and text[max(0, bad.start() - 30):bad.end() + 30]))
            if command == "attach":
                arguments = only_rank(json.loads(text), process.pid)["command"]
                check(arguments[-1] == raw, "the argument: %r" % arguments)
    finally:
        process.communicate(b"\n")


def case_many_processes_and_few_descriptors(directory):
    """200 processes, their 200 saved reports, and the doctor's findings about them, under a limit of 128 open files."""
    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    processes = [subprocess.Popen(["sleep", "1000"]) for _ in range(200)]
    try:
        pids = ",".join(str(process.pid) for process in processes)
        report = json_report("attach", "--pids", pids, preexec_fn=few)
        whole = [rank for rank in report["ranks"] if rank["status"] == "complete" and rank["threads"][0]["frames"]]
        problems = [rank["problems"] for rank in report["ranks"] if rank["problems"]]
        check(len(whole) == 200 == len(report["ranks"]), "%d whole ranks: %r" % (len(whole), problems[:3]))
        status, out, err = run_tool("doctor", "--pids", pids, "--format", "json", preexec_fn=few)
        opened = [finding for finding in json.loads(out)["findings"]
                  if finding["subject"] == "process" and finding["check"] == "files" and finding["status"] == "ok"]
        check(len(opened) == 200, "the doctor: %d, %d processes: %r" % (status, len(opened), err[-500:]))
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
    saved = []
    for rank in report["ranks"]:
        saved.append(os.path.join(directory, "report-%d.json" % rank["pid"]))
        with open(saved[-1], "w", encoding="utf-8") as stream:
            json.dump(dict(report, ranks=[rank]), stream)
    check(len(json_report("report", *saved, preexec_fn=few)["ranks"]) == 200, "not all saved reports were read")


def case_the_table_of_open_files_has_its_size(directory):
    """It grows only while the kernel waits for all processors, with threads of a job held meanwhile."""
    wanted = min(16384, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    fifo = os.path.join(directory, "fifo")
    os.mkfifo(fifo)
    with native("still", "2") as fixture:
        process = subprocess.Popen([tool(), "attach", "--pids", str(fixture.pid), "-o", fifo])  # until the FIFO is read
        try:
            slots = 0
            for _ in range(1000):
                with open("/proc/%d/status" % process.pid) as status:
                    slots = next((int(line.split()[1]) for line in status if line.startswith("FDSize:")), slots)
                if slots >= wanted or process.poll() is not None:
                    break
                time.sleep(0.01)
            check(slots >= wanted, "%d slots, not %d" % (slots, wanted))
        finally:
            process.kill()
            process.wait()


def case_a_limit_of_file_size_is_said(directory):
    with native("chain") as fixture:
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
        done = subprocess.run([tool(), "attach", "--pids", str(fixture.pid), "-o", os.path.join(directory, "report")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, preexec_fn=limit)
        check(done.returncode == 2 and b"cannot be written: File too large" in done.stderr, "status %d: %r" % (done.returncode, done.stderr))
        fixture.check_unharmed()


def case_a_full_disk_is_said(directory):
    with native("chain") as fixture:
        for arguments in (["-o", "/dev/full"], []):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([tool(), "attach", "--pids", str(fixture.pid)] + arguments, stdout=full, stderr=subprocess.PIPE, timeout=60)
            check(done.returncode == 2 and b"cannot be written: No space left on device" in done.stderr, "status %d: %r" % (done.returncode, done.stderr))
        fixture.check_unharmed()


def case_closed_pipe(directory):
    with native("threads") as fixture:
        for form in ("text", "json"):
            process = subprocess.Popen([tool(), "attach", "--pids", str(fixture.pid), "--threads", "all", "--format", form],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            process.stdout.close()
            err = process.stderr.read()
            process.stderr.close()
            status = process.wait(timeout=60)
            check(err == b"", "%s: it complains: %r" % (form, err))
            check(status in (0, 141, -13), "%s: status %d" % (form, status))
        fixture.check_unharmed()


def case_text(directory):
    with native("threads") as fixture:
        status, out, err = run_tool("attach", "--pids", fixture.pid)
        check(status == 0 and err == b"", "status %d, stderr %r" % (status, err))
        text = text_of(out)
        for name in ("joins", "waits", "works", "thread_main"):
            check(name in text, "%s is not in the report:\n%s" % (name, text))
        status, out, _ = run_tool("attach", "--pids", fixture.pid, "--threads", "all")
        everything = text_of(out)
        for thread in fixture.ready["threads"]:
            check(str(thread["tid"]) in everything, "tid %d is not in --threads all" % thread["tid"])


def case_color(directory):
    with native("chain") as fixture:
        _, always, _ = run_tool("attach", "--pids", fixture.pid, "--color", "always")
        _, never, _ = run_tool("attach", "--pids", fixture.pid, "--color", "never")
        _, auto, _ = run_tool("attach", "--pids", fixture.pid, "--color", "auto")
        _, default, _ = run_tool("attach", "--pids", fixture.pid)
    check(b"\x1b[" in always, "--color always has no colour")
    for out in (never, auto, default):
        check(b"\x1b" not in out, "colour in a pipe: %r" % out[:200])
    stripped = re.sub(rb"\x1b\[[0-9;]*m", b"", always)
    check(b"\x1b" not in stripped, "more than colour: %r" % stripped)


def case_hostile_names(directory):
    """File names and a thread name with escape sequences, newlines, broken UTF-8 and direction marks."""
    with python("dynamic_code") as fixture:
        for arguments in ([], ["--threads", "all"]):
            status, out, err = run_tool("attach", "--pids", fixture.pid, *arguments)
            check(status == 0, "status %d: %r" % (status, err))
            check("two" in text_of(out) or not arguments, "the name is not there")
    with python("unicode_names") as fixture:
        status, out, err = run_tool("attach", "--pids", fixture.pid, "--threads", "all")
        check("\u6f22\u5b57" in text_of(out), "the report has not the function's name:\n%s" % out.decode())
    with Fixture(["/usr/bin/python3", "-c", NAMED_THREADS]) as fixture:
        status, out, err = run_tool("attach", "--pids", fixture.pid, "--threads", "all")
        check(status == 0, "status %d: %r" % (status, err))
        text_of(out)
        json_report("attach", "--pids", fixture.pid)


NAMED_THREADS = r"""
import ctypes, os, threading
libc = ctypes.CDLL(None)
def run(name):
    libc.prctl(15, name, 0, 0, 0)
    ready.release()
    os.read(os.pipe()[0], 1)
ready = threading.Semaphore(0)
names = [b"\x1b[31mred", b"two\nlines", b"\xff\xfe\x80", "\u202eleft".encode(), b") S 1 2 3", b"\x07\x08\x9b1m"]
for name in names:
    threading.Thread(target=run, args=(name,), daemon=True).start()
for name in names:
    ready.acquire()
print('{"ready": true, "pid": %d, "threads": []}' % os.getpid(), flush=True)
os.read(0, 1)
"""


def without_times(text):
    return re.sub(r"\d+(\.\d+)? ?(ms|us|s)\b", "TIME", text)


def case_saved_report(directory):
    saved = os.path.join(directory, "saved.json")
    with native("threads") as one, python("generators") as two:
        status, _, err = run_tool("attach", "--pids", "%d,%d" % (one.pid, two.pid), "--format", "json", "-o", saved)
        check(status == 0, "status %d: %r" % (status, err))
    with open(saved, encoding="utf-8") as stream:
        first = json.load(stream)
    again = json_report("report", saved)
    check(again == first, "a report changes when it is read and written again")
    resaved = os.path.join(directory, "resaved.json")
    with open(resaved, "w", encoding="utf-8") as stream:
        json.dump(again, stream)
    for arguments in ([], ["--threads", "all"], ["--rank", str(two.pid)]):
        status, out, err = run_tool("report", saved, *arguments)
        check(status == 0 and err == b"", "%s: status %d: %r" % (arguments, status, err))
        status, out_again, _ = run_tool("report", resaved, *arguments)
        check(out == out_again, "%s: the text differs after a round trip" % arguments)
        check("innermost" in text_of(out), "%s: the report lacks frames:\n%s" % (arguments, out.decode()))


def case_a_rank_that_is_not_there_is_said(directory):
    saved = os.path.join(directory, "saved.json")
    with native("threads") as fixture:
        check(run_tool("attach", "--pids", str(fixture.pid), "--format", "json", "-o", saved)[0] == 0, "no report")
    status, out, err = run_tool("report", saved, "--rank", "no\x1bsuch")
    check(status == 0 and b"no such rank in the report" in err and b"\x1b" not in err, "status %d: %r" % (status, err))
    check(b"Main threads" in out, "no report:\n%r" % out)
    status, out, err = run_tool("report", saved, "--rank", str(fixture.pid))
    check(status == 0 and err == b"", "status %d: %r" % (status, err))


def case_saved_text_is_the_same(directory):
    """The text that attach prints is that of its saved JSON; tested with a core, so that both have the same data."""
    import debugger
    core = os.path.join(directory, "core")
    with native("threads") as fixture:
        debugger.take_core(fixture, core)
    saved = os.path.join(directory, "saved.json")
    run_tool("core", core, "--format", "json", "-o", saved)
    for arguments in ([], ["--threads", "all"]):
        _, direct, _ = run_tool("core", core, *arguments)
        _, shown, _ = run_tool("report", saved, *arguments)
        left, right = without_times(text_of(direct)).splitlines(), without_times(text_of(shown)).splitlines()
        # The headline contains the time of the report.
        check(left[1:] == right[1:], "the saved report's text differs:\n%s\n---\n%s" % (direct.decode(), shown.decode()))


def case_reports_are_merged(directory):
    paths = []
    with native("threads", env={"RANK": "0", "WORLD_SIZE": "2"}) as one, native("threads", env={"RANK": "1", "WORLD_SIZE": "2"}) as two:
        for fixture in (one, two):
            paths.append(os.path.join(directory, "%d.json" % fixture.pid))
            run_tool("attach", "--pids", fixture.pid, "--format", "json", "-o", paths[-1])
        together = json_report("attach", "--pids", "%d,%d" % (one.pid, two.pid))
    merged = json_report("report", *paths)
    check([rank["rank"] for rank in merged["ranks"]] == [0, 1], "ranks: %r" % [rank["rank"] for rank in merged["ranks"]])
    shape = lambda report: sorted((tuple(c["ranks"]), c["threads"], c["role"], len(c["frames"])) for c in report["clusters"])
    check(shape(merged) == shape(together), "merged clusters differ:\n%r\n%r" % (shape(merged), shape(together)))
    main_cluster = [cluster for cluster in merged["clusters"] if cluster["role"] == "main"]
    check([cluster["ranks"] for cluster in main_cluster] == [[0, 1]], "main clusters: %r" % main_cluster)


def case_malformed_reports(directory):
    path = os.path.join(directory, "bad.json")
    for name, content in (("empty", b""), ("no JSON", b"nonsense"), ("cut", b'{"schema": 1, "ranks": ['), ("array", b"[]"), ("other schema", b'{"schema": 99}'),
                          ("wrong type", b'{"schema": 1, "tool": {"name": "rankstacks", "version": "0"}, "captured_at": "x", "ranks": 3, "clusters": [],'
                                         b' "verdict": {}}'),
                          ("deep", b'{"schema": 1, "ranks": ' + b"[" * 100000 + b"]" * 100000 + b"}"), ("binary", bytes(range(256)) * 100)):
        with open(path, "wb") as stream:
            stream.write(content)
        status, out, err = run_tool("report", path)
        check(status == 2, "%s: status %d" % (name, status))
        check(out == b"", "%s: on stdout %r" % (name, out[:100]))
        check(b"bad.json" in err, "%s: the file is not named: %r" % (name, err))
    status, out, err = run_tool("report", os.path.join(directory, "absent.json"))
    check(status == 2 and b"absent.json" in err and b"No such file" in err, "absent: %d %r" % (status, err))


def case_a_report_without_ranks(directory):
    path = os.path.join(directory, "none.json")
    with open(path, "w", encoding="utf-8") as stream:
        stream.write('{"schema": 1, "captured_at": "x", "ranks": []}')
    status, out, err = run_tool("report", path)
    check((status, out, err.decode()) == (2, b"", "rankstacks: %s: a report without ranks: nothing to look at\n" % path), "%d %r %r" % (status, out, err))


def case_a_report_from_a_pipe(directory):
    saved = os.path.join(directory, "saved.json")
    with native("threads") as fixture:
        run_tool("attach", "--pids", fixture.pid, "--format", "json", "-o", saved)
    _, expected, _ = run_tool("report", saved)
    packed = saved + ".gz"
    subprocess.run(["gzip", "-k", saved], check=True)
    for script in ('"$1" report /dev/stdin <"$2"', 'cat "$2" | "$1" report /dev/stdin', '(sleep 0.2; cat "$2") | "$1" report -', '"$1" report - <"$2"', '"$1" report <(gzip -dc "$3")', '"$1" report "$3"', '"$1" report - <"$3"'):
        done = subprocess.run(["bash", "-c", script, "bash", tool(), saved, packed], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        check((done.returncode, done.stdout, done.stderr) == (0, expected, b""), "%s: %r" % (script, done))
    for path, said in ((directory, "a directory, not a saved report"), ("/dev/zero", "a terminal or another device, not a saved report")):
        status, out, err = run_tool("report", path)
        check(status == 2 and out == b"" and "rankstacks: %s: %s\n" % (path, said) in err.decode(), "%s: %d %r %r" % (path, status, out, err))
    large = os.path.join(directory, "large.json")
    with open(large, "wb") as stream:
        stream.truncate((1 << 30) + 1)
    status, out, err = run_tool("report", large)
    check(status == 2 and b"large.json: too large: 1073741825 bytes" in err, "%d %r %r" % (status, out, err))


def case_stdout_is_closed(directory):
    with native("chain") as fixture:
        for closed in (">&-", "<&- >&-"):        # no other file may get descriptor 1
            script = 'exec "$0" attach --pids %d --format json %s' % (fixture.pid, closed)
            done = subprocess.run(["sh", "-c", script, tool()], stderr=subprocess.PIPE, timeout=60)
            check(done.returncode == 2 and b"the report cannot be written: Bad file descriptor" in done.stderr, "%s: status %d: %r" % (closed, done.returncode, done.stderr))
        fixture.check_unharmed()


def case_interrupted(directory):
    """Whenever the tool is ended, by whatever signal, the target continues."""
    import signal
    with native("threads") as fixture:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            for step in range(12):
                process = subprocess.Popen([tool(), "attach", "--pids", str(fixture.pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                select.select([], [], [], step * 0.002)     # at a different moment each time: start, stop, reading
                process.send_signal(number)
                process.wait(timeout=30)
                fixture.check_unharmed()


if __name__ == "__main__":
    cases.run(globals(), "command_line")
