"""`rankstacks diff`: two reports of real processes, between which is known what each thread has done."""
import json
import os
import re
import resource
import shutil
import subprocess

import cases
import debugger
import interpreters
import versions
from command_line import SOURCE, text_of
from core_files import build_id
from processes import Fixture, check, run_tool, settle, tool, wait_until

# Its main thread moves by one line of its input at a time: a round of the loop, then into another function. One thread stands, one
# spins at one place, one ends with the first line.
PROGRAM = r"""
import json, os, sys, threading
never = threading.Event()
ends = threading.Event()
def stands():
    never.wait()
def turns():
    while not never.is_set():
        pass
def leaves():
    ends.wait()
threads = [threading.Thread(target=stands, daemon=True), threading.Thread(target=leaves, daemon=True)]
if "spin" in sys.argv:
    threads.append(threading.Thread(target=turns, daemon=True))
for thread in threads:
    thread.start()
def say(what):
    print(what, flush=True)
def read():
    return os.read(0, 1)
def rounds():
    for step in range(2):
        read()
        if step == 0:
            ends.set()
            threads[1].join()
            threading.Thread(target=stands, daemon=True).start()
            say("round")
def later():
    say("later")
    read()
say(json.dumps({"pid": os.getpid(), "runs": "spin" in sys.argv}))
rounds()
later()
"""


class Program(Fixture):
    def __init__(self, directory, *arguments, python="/usr/bin/python3", rank="0"):
        path = os.path.join(directory, "program.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        super().__init__([python, path] + list(arguments), env=dict(os.environ, RANK=rank, WORLD_SIZE="1", PYTHONDONTWRITEBYTECODE="1"))

    def go_on(self, expected):
        self.write(b"x")
        line = self._line()
        check(line == expected, "the program said %r" % line)
        if not self.ready.get("runs"):
            settle(self.pid)

    def report(self, path):
        status, _, err = run_tool("attach", "--pids", self.pid, "--format", "json", "-o", path)
        check(status == 0, err)
        return path


def compare(old, new, *arguments, expect=0):
    status, out, err = run_tool("diff", old, new, "--format", "json", *arguments)
    check(status == expect, "status %d: %r" % (status, err))
    return json.loads(out.decode("utf-8"))


def only_process(diff):
    check(len(diff["processes"]) == 1 and not diff["gone"] and not diff["joined"], "the processes: %r" % diff)
    return diff["processes"][0]


def movements(process):
    """{function of the thread: (movement, moved_by)}"""
    return {thread["place"].split(" at ")[0]: (thread["movement"], thread["moved_by"]) for thread in process["threads"]}


def check_motion(directory, python):
    with Program(directory, python=python) as program:
        first = program.report(os.path.join(directory, "1.json"))
        again = program.report(os.path.join(directory, "2.json"))
        program.go_on(b"round")
        round_on = program.report(os.path.join(directory, "3.json"))
        program.go_on(b"later")
        later = program.report(os.path.join(directory, "4.json"))

    diff = compare(first, again)
    process = only_process(diff)
    check(diff["outcome"] == "stood" and process["match"] == "process", "nothing has moved: %r" % diff["summary"])
    check(movements(process) == {"read": ("stood", None), "stands": ("stood", None), "leaves": ("stood", None)}, "%r" % movements(process))
    check(not process["ended"] and not process["begun"] and {cluster["fate"] for cluster in diff["clusters"]} == {"stayed"}, "%r" % diff)

    diff = compare(first, round_on)
    process = only_process(diff)
    check(diff["outcome"] == "moved", diff["summary"])
    check(movements(process) == {"read": ("moved", "counter"), "stands": ("stood", None)}, "%r" % movements(process))
    check(process["threads"][0]["counters"] == [{"name": "step", "old": 0, "new": 1}], "%r" % process["threads"][0])
    check([thread["place"].split(" at ")[0] for thread in process["ended"]] == ["leaves"], "ended: %r" % process["ended"])
    check([thread["place"].split(" at ")[0] for thread in process["begun"]] == ["stands"], "begun: %r" % process["begun"])

    diff = compare(round_on, later)
    process = only_process(diff)
    check(process["threads"][0]["moved_by"] == "place" and process["movement"] == "moved", "%r" % process["threads"][0])
    fates = sorted((cluster["fate"], cluster["role"]) for cluster in diff["clusters"] if cluster["role"] == "main")
    check(fates == [("came", "main"), ("went", "main")], "the clusters: %r" % fates)


def case_what_moved_and_what_stood(directory):
    check_motion(directory, "/usr/bin/python3")


def case_of_every_python(directory):
    interpreters.check_each(directory, check_motion)


def case_a_thread_that_runs_at_its_place(directory):
    with Program(directory, "spin") as program:
        first = program.report(os.path.join(directory, "1.json"))
        hertz = os.sysconf("SC_CLK_TCK")

        def ticks():
            with open("/proc/%d/stat" % program.pid, encoding="utf-8") as stat:
                return sum(int(field) for field in stat.read().rsplit(")", 1)[1].split()[11:13])
        start = ticks()
        wait_until(lambda: ticks() - start > hertz // 10, "the thread that spins")
        second = program.report(os.path.join(directory, "2.json"))
    process = only_process(compare(first, second))
    spinning = [thread for thread in process["threads"] if thread["place"].startswith("turns")]
    check(len(spinning) == 1 and spinning[0]["ran_ms"] >= 90 and spinning[0]["movement"] in ("ran", "moved"), "%r" % spinning)
    check(movements(process)["stands"] == ("stood", None), "%r" % movements(process))


def case_a_rank_that_was_started_anew(directory):
    reports = []
    for number in (1, 2):
        with Program(directory) as program:
            if number == 2:
                program.go_on(b"round")
                program.go_on(b"later")
            reports.append(program.report(os.path.join(directory, "%d.json" % number)))
    diff = compare(*reports)
    process = only_process(diff)
    check(diff["outcome"] == "started-anew" and process["match"] == "rank" and process["pid"] != process["old_pid"], "%r" % process)
    check(movements(process) == {"read": ("elsewhere", None), "stands": ("same-place", None)} or
          movements(process)["read"] == ("elsewhere", None), "%r" % movements(process))
    check("rank 0 was started anew, and is elsewhere" in diff["summary"], diff["summary"])
    same = compare(reports[0], reports[0])
    check(same["outcome"] == "stood" and same["between_ms"] == 0, "a report and itself: %r" % same["summary"])


def case_a_live_process_and_its_core(directory):
    with Program(directory) as program:
        live = program.report(os.path.join(directory, "live.json"))
        core = os.path.join(directory, "core.1")
        debugger.write_core(program.pid, core)
        saved = os.path.join(directory, "core.json")
        status, _, err = run_tool("core", core, "--format", "json", "-o", saved)
        check(status == 0, err)
        program.check_unharmed(answers=False)
    process = only_process(compare(live, saved))
    check(process["match"] == "process" and set(movements(process).values()) == {("stood", None)}, "%r" % process)


def check_hung_job(directory, job):
    """Of jobs.py: a DistributedDataParallel job of four ranks of which one blocks: nobody moves, and the verdict stays."""
    pids = ",".join(map(str, job.ready["pids"]))
    paths = [os.path.join(directory, name) for name in ("old.json.gz", "new.json.zst")]

    def report(path):
        status, _, err = run_tool("attach", "--pids", pids, "--samples", "3", "--format", "json", "-o", path)
        check(status == 0, err)
        return json.loads(run_tool("report", path, "--format", "json")[1])["verdict"]["status"]
    # The others may still be on their way into the all-reduce.
    wait_until(lambda: report(paths[0]) == "culprit", "the job hangs", seconds=200)
    report(paths[1])
    subset = os.path.join(directory, "subset.json")
    run_tool("attach", "--pids", ",".join(map(str, job.ready["pids"][:3])), "--format", "json", "-o", subset)
    job.check_unharmed()
    diff = compare(*paths)
    check(diff["outcome"] == "stood" and diff["verdict"]["same"], "%s %r" % (diff["summary"], diff["verdict"]))
    check({process["movement"] for process in diff["processes"]} <= {"stood", "ran"}, "%r" % [(p["rank"], p["movement"]) for p in diff["processes"]])
    check(not diff["settings"] and not diff["gone"] and not diff["joined"], "%r" % diff["settings"])
    check({cluster["fate"] for cluster in diff["clusters"] if cluster["role"] == "main"} == {"stayed"}, "%r" % diff["clusters"])
    status, out, err = run_tool("diff", *paths)
    lines = text_of(out).splitlines()
    check(status == 0 and err == b"" and lines[0].startswith("STOOD: rank"), "%d %r\n%s" % (status, err, text_of(out)))
    check(len(lines) <= 40 and max(map(len, lines)) <= 100, "%d lines of up to %d columns" % (len(lines), max(map(len, lines))))
    # What was not asked for is not gone.
    diff = compare(paths[0], subset)
    absent = {process["rank"]: process["absence"] for process in diff["gone"] if process["kind"] == "rank"}
    check(absent == {3: "not-examined"}, "%r" % absent)


def case_saved_jobs(directory):
    """Reports of one kind of job, of two runs: each rank was started anew."""
    verdicts = os.path.join(SOURCE, "fixtures", "verdicts")
    diff = compare(os.path.join(verdicts, "group-order.json.gz"), os.path.join(verdicts, "receive-unmatched.json.gz"))
    check({process["match"] for process in diff["processes"] if process["kind"] == "rank"} == {"rank"}, "%r" % diff["summary"])
    check(not diff["verdict"]["same"] and diff["clusters"], "%r" % diff["verdict"])


def case_files_in_all_forms(directory):
    with Program(directory) as program:
        plain = program.report(os.path.join(directory, "1.json"))
        forms = [plain, program.report(os.path.join(directory, "1.json.gz")), program.report(os.path.join(directory, "1.json.zst"))]
    for old in forms:
        for new in forms:
            check(compare(old, new)["outcome"] == "stood", "%s %s" % (old, new))
    for script in ('"$0" diff - "$2" <"$1"', 'cat "$2" | "$0" diff "$1" -', '"$0" diff <(zstd -dc "$3") "$3"'):
        done = subprocess.run(["bash", "-c", script, tool()] + forms, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        if "zstd" in script and not shutil.which("zstd"):
            continue
        check(done.returncode == 0 and done.stdout.startswith(b"STOOD") and done.stderr == b"", "%s: %r" % (script, done))
    for name in ("out.json", "out.json.gz", "out.txt"):
        path = os.path.join(directory, name)
        status, out, err = run_tool("diff", plain, plain, "--format", "json" if "json" in name else "text", "-o", path)
        check((status, out, err) == (0, b"", b"") and os.stat(path).st_size > 100 and os.stat(path).st_mode & 0o777 == 0o600, "%s: %d %r" % (name, status, err))


def case_what_is_refused(directory):
    with Program(directory) as program:
        good = program.report(os.path.join(directory, "good.json"))
    bad = os.path.join(directory, "bad.json")
    with open(bad, "w", encoding="utf-8") as file:
        file.write('{"schema": 1, "ranks": [')
    own = os.path.join(directory, "diff.json")
    run_tool("diff", good, good, "--format", "json", "-o", own)
    for arguments, said in (([good], "NEW is required"), ([], "OLD is required"), ([good, good, good], "argument was not expected"),
                            (["-", "-"], "the standard input is one report"), ([good, good, "--format", "markdown"], "--format"),
                            ([good, bad], "bad.json: not a JSON report"), ([bad, good], "bad.json: not a JSON report"),
                            ([good, os.path.join(directory, "absent.json")], "absent.json: "), ([directory, good], "a directory, not a saved report"),
                            ([own, good], "diff.json: "), ([good, good, "--redact-map", "x"], "there are no pseudonyms without --redact"),
                            ([good, good, "--max-bytes", "5000"], "not expected")):
        status, out, err = run_tool("diff", *arguments)
        check(status == 2 and out == b"" and said in err.decode(), "%r: %d, %r, %r" % (arguments, status, out, err))
    check("hint: a report of --format json" in run_tool("diff", bad, good)[2].decode(), "the hint")


def case_ranks_that_could_not_be_read(directory):
    ended = subprocess.Popen(["true"])
    ended.wait()
    reports = [os.path.join(directory, name) for name in ("1.json", "2.json")]
    with Program(directory) as program:
        program.report(reports[0])
        status, _, _ = run_tool("attach", "--pids", "%d,%d" % (program.pid, ended.pid), "--format", "json", "-o", reports[1])
        check(status == 1, "attach: status %d" % status)
    status, out, err = run_tool("diff", *reports)
    check(status == 1 and out.startswith(b"STOOD: rank 0 ") and b"rankstacks: NEW: rank " in err, "%d %r %r" % (status, out, err))


def case_reports_of_different_jobs(directory):
    with Program(directory, rank="0") as one, Program(directory, rank="1") as two:
        paths = [one.report(os.path.join(directory, "1.json")), two.report(os.path.join(directory, "2.json"))]
    status, out, err = run_tool("diff", *paths)
    check(status == 0 and out.startswith(b"UNRELATED: ") and b"hint: name two reports of one job" in err, "%d %r %r" % (status, out, err))


def case_the_later_report_first(directory):
    with Program(directory) as program:
        paths = [program.report(os.path.join(directory, name)) for name in ("1.json", "2.json")]
    status, out, err = run_tool("diff", *reversed(paths))
    check(status == 0 and b" BEFORE it" in out and b"the old report is the later one" in err, "%d %r %r" % (status, out, err))


def case_a_job_that_was_started_anew_with_other_settings(directory):
    """Four ranks, then four with other libraries, variables and limits: what changed is said once, with its ranks."""
    libraries = {version: versions.library(os.path.join(directory, version), "libnccl.so.2", version) for version in ("2.27.3", "2.28.9")}
    # The same version, built anew.
    builds = [versions.library(os.path.join(directory, "build-%d" % number), "libnccl-net-ofi.so", text) for number, text in enumerate(("x", "y"))]
    runs = [[(libraries["2.27.3"], {"NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "8"}, None) for _ in range(4)],
            [(libraries["2.28.9"], {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "8", "TORCH_HOME": "/mnt/acme/patients"}, (200, 200)) for _ in range(3)]
            + [(libraries["2.27.3"], {"NCCL_ALGO": "Ring"}, None)]]
    reports = []
    for number, run in enumerate(runs):
        starts = [lambda rank=rank, path=path, limits=limits, variables=variables:
                  versions.rank(rank, 4, path, builds[number], limits=limits, **variables) for rank, (path, variables, limits) in enumerate(run)]
        with versions.Ranks(*starts) as ranks:
            reports.append(os.path.join(directory, "%d.json" % number))
            status, _, err = run_tool("attach", "--pids", ranks.pids, "--format", "json", "-o", reports[-1])
            check(status == 0, err)
            limit = resource.prlimit(ranks.fixtures[3].pid, resource.RLIMIT_NOFILE)[0]
    changes = {}
    for change in compare(*reports)["settings"]:
        changes[change["setting"], change.get("name")] = changes.get((change["setting"], change.get("name")), []) + [(change["old"], change["new"], change["ranks"])]
    expected = {("version", "NCCL"): [("2.27.3", "2.28.9", [0, 1, 2])],
                ("variable", "NCCL_DEBUG"): [("WARN", "INFO", [0, 1, 2]), ("WARN", None, [3])],
                ("variable", "OMP_NUM_THREADS"): [("8", None, [3])],
                ("variable", "TORCH_HOME"): [(None, "/mnt/acme/patients", [0, 1, 2])],
                ("variable", "NCCL_ALGO"): [(None, "Ring", [3])],
                ("limit", "open-files"): [(str(limit), "200", [0, 1, 2])],
                ("build", "NCCL network plugin"): [(build_id(builds[0]), build_id(builds[1]), [0, 1, 2, 3])]}
    check(changes.pop(("command", None), None), "the command, which names the libraries: %r" % changes)
    check(changes == expected, "changes:\n  %r" % "\n  ".join(map(repr, sorted(changes.items(), key=repr))))
    text = text_of(run_tool("diff", *reports, "--threads", "all")[1])
    for line in ("version of NCCL: 2.27.3 -> 2.28.9 (ranks 0-2)", "NCCL_DEBUG: WARN -> INFO (ranks 0-2)", "NCCL_DEBUG: WARN -> none (rank 3)",
                 "build of NCCL network plugin: %.12s -> %.12s (ranks 0-3)" % (build_id(builds[0]), build_id(builds[1])),
                 "limit of open-files: %d -> 200 (ranks 0-2)" % limit, "NCCL 2.27.3 on rank 3, 2.28.9 on the 3 others"):
        check(line in text, "%r is not in %s" % (line, text))
    for form in ("text", "json"):
        text = run_tool("diff", *reports, "--redact", "--format", form)[1].decode("utf-8")
        check("acme" not in text and directory not in text and "value-1" in text and "2.28.9" in text and "TORCH_HOME" in text, text)


def case_redacted(directory):
    """One pseudonym for one thing in both reports; the map says what it stands for; no secret without --with-secrets."""
    secret = "gh" + "p_9aZ8bY7cX6dW5eV4fU3gT2hS1iR0jQ2"
    home = os.path.join(directory, "home", "alicia")
    os.makedirs(home)
    with Program(home, "--token", secret) as program:
        old = program.report(os.path.join(directory, "1.json"))
        program.go_on(b"round")
        new = program.report(os.path.join(directory, "2.json"))
    reports = []
    for path in (old, new):
        with open(path, encoding="utf-8") as file:
            reports.append(json.load(file))
    host = reports[0]["ranks"][0]["host"]
    reports[1]["ranks"][0]["host"] = "elsewhere-7"
    reports[1]["ranks"][0]["command"] += ["--password", secret]
    with open(new, "w", encoding="utf-8") as file:
        json.dump(reports[1], file)
    names = os.path.join(directory, "names.json")
    for form in ("text", "json"):
        status, out, err = run_tool("diff", old, new, "--redact", "--redact-map", names, "--threads", "all", "--format", form)
        text = out.decode("utf-8")
        check(status == 0 and err == b"", err)
        for private in (host, "elsewhere-7", "alicia", secret, reports[0]["ranks"][0]["identity"]["boot_id"]):
            check(private not in text, "%s: %r in %s" % (form, private, text))
        check("host-1" in text and "host-2" in text, text)
        with open(names, encoding="utf-8") as file:
            known = json.load(file)["names"]
        check(known["host-1"] == host and known["host-2"] == "elsewhere-7" and secret not in json.dumps(known), "%r" % known)
        os.unlink(names)
        shown = run_tool("diff", old, new, "--format", form)[1].decode("utf-8")
        check(secret not in shown and host in shown and "<token>" in shown, shown)
        check(secret in run_tool("diff", old, new, "--format", form, "--with-secrets")[1].decode("utf-8"), "--with-secrets")


def case_dumps_of_other_tools(directory):
    """Two outputs of one tool can be compared as well: a stack at the same place, and one elsewhere."""
    frames = "Thread 0x00007f0000001000 (most recent call first):\n  File \"/x/train.py\", line %d in step\n  File \"/x/train.py\", line 30 in <module>\n"
    paths = []
    for number, line in enumerate((9, 9, 12)):
        paths.append(os.path.join(directory, "rank-0.%d.txt" % number))
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write("Fatal Python error: Aborted\n\n" + frames % line)
    for new, movement in ((paths[1], "stood"), (paths[2], "moved")):
        status, out, _ = run_tool("diff", paths[0], new, "--format", "json")
        check(status in (0, 1), "status %d" % status)
        process = only_process(json.loads(out))
        check(process["threads"][0]["movement"] in (movement, {"stood": "same-place", "moved": "elsewhere"}[movement]), "%r" % process)


if __name__ == "__main__":
    cases.run(globals(), "diff")
