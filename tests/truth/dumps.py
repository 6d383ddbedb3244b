"""What other tools have printed about the ranks of a job: saved dumps of a real hang, real tools on a real process, hostile text."""
import json
import os
import shutil
import subprocess
import sys

import cases
from command_line import SOURCE, text_of
from processes import Fixture, check, json_report, run_tool

DUMPS = os.path.join(SOURCE, "fixtures", "dumps")
WITH_PYTHON = ("py-spy", "py-spy-json", "py-spy-json-native", "py-spy-locals", "py-spy-native", "pystack", "pystack-native", "pystack-native-all", "faulthandler")
NATIVE_ONLY = ("gdb", "gdb-full", "eu-stack", "eu-stack-msv")
PROGRAM = "import json, os, sys\ndef waits():\n    print(json.dumps({'pid': os.getpid()}), flush=True)\n    sys.stdin.read()\nwaits()\n"


def dumps_of(name):
    return [os.path.join(DUMPS, name, entry) for entry in sorted(os.listdir(os.path.join(DUMPS, name)))]


def check_culprit(report, where):
    suspects = [(suspect["rank"], suspect["reason"]) for suspect in report["verdict"]["suspects"]]
    check(suspects == [(1, "data-loading")], "%s: %r" % (where, report["verdict"]))
    check([rank["rank"] for rank in report["ranks"]] == [0, 1, 2], "%s: ranks %r" % (where, [rank["rank"] for rank in report["ranks"]]))
    check(report["verdict"]["suspects"][0]["confidence"] <= 0.80, "%s: too certain" % where)


def case_each_tool_yields_the_culprit(directory):
    for name in WITH_PYTHON:
        check_culprit(json_report("report", *dumps_of(name)), name)
    for name in os.listdir(os.path.join(DUMPS, "prefixed")):
        check_culprit(json_report("report", os.path.join(DUMPS, "prefixed", name)), name)


def case_native_frames_alone_accuse_nobody(directory):
    for name in NATIVE_ONLY:
        report = json_report("report", *dumps_of(name))
        verdict = report["verdict"]
        check(verdict["status"] == "undecided" and not verdict["suspects"], "%s: %r" % (name, verdict))
        check([candidate["rank"] for candidate in verdict["candidates"]] == [1], "%s: candidates %r" % (name, verdict["candidates"]))


def case_a_saved_report_reads_back_the_same(directory):
    saved = os.path.join(directory, "saved.json")
    first = json_report("report", *dumps_of("pystack-native-all"))
    with open(saved, "w", encoding="utf-8") as file:
        json.dump(first, file)
    again = json_report("report", saved)
    for part in ("ranks", "clusters", "verdict"):
        check(first[part] == again[part], part)
    check({(rank["source"], rank["dumped_by"]) for rank in again["ranks"]} == {("dump", "pystack")}, "%r" % again["ranks"])
    _, out, _ = run_tool("report", saved)
    check("rank 1 is in its data pipeline" in text_of(out), text_of(out))


def case_ranks_are_named(directory):
    paths = []
    for number in range(3):
        paths.append(os.path.join(directory, "abc"[number]))
        shutil.copyfile(os.path.join(DUMPS, "py-spy", "rank%d.txt" % number), paths[-1])
    report = json_report("report", *paths)
    check([rank["rank"] for rank in report["ranks"]] == [None] * 3, "ranks without names")
    check([suspect["rank"] for suspect in report["verdict"]["suspects"]] == ["unknown:29328"], "%r" % report["verdict"])
    check_culprit(json_report("report", *paths, "--ranks", ",".join("%s=%d" % (path, number) for number, path in enumerate(paths))), "--ranks")
    for wrong in ("x=1", paths[0], paths[0] + "=-1", paths[0] + "=1x"):
        status, out, err = run_tool("report", *paths, "--ranks", wrong)
        check((status, out) == (2, b"") and b"--ranks" in err, "--ranks %s: %d %r" % (wrong, status, err))


def case_two_dumps_of_each_rank(directory):
    report = json_report("report", *dumps_of("gdb"), *dumps_of("py-spy"))
    check_culprit(report, "gdb and py-spy")
    check(all(any("was left out" in problem["message"] for problem in rank["problems"]) for rank in report["ranks"]), "%r" % report["ranks"][0]["problems"])


def case_other_files_are_refused(directory):
    path = os.path.join(directory, "notes.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("the job hangs\n")
    status, out, err = run_tool("report", path)
    check((status, out) == (2, b"") and b"not a JSON report" in err and b"hint: " in err and b"py-spy" in err, "%d %r" % (status, err))


def case_hostile_text(directory):
    """Control characters, endless names, a million threads: bounded, and shown so that no terminal acts on it."""
    path = os.path.join(directory, "rank1.txt")
    with open(path, "wb") as file:
        file.write(b"Thread 1 (idle): \"\x1b[31mM\"\n    \x1b]0;x\x07" + b"f" * 100000 + b" (a.py:1)\n    \xff\xfe (b.py:2)\n")
        file.write(b"".join(b"Thread %d (idle)\n    f (a.py:1)\n" % number for number in range(2, 40000)))
    report = json_report("report", path)
    check(len(report["ranks"][0]["threads"]) == 16384, "%d threads" % len(report["ranks"][0]["threads"]))
    check(any(problem["code"] == "limit" for problem in report["ranks"][0]["problems"]), "%r" % report["ranks"][0]["problems"])
    _, out, _ = run_tool("report", path)
    text_of(out)


def case_redacted(directory):
    path = os.path.join(directory, "rank0.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("Process 7: python3 train.py --api-key sk-abcdefghijklmnopqrstuvwxyz0123456789\nPython v3.11.2 (/home/frida/bin/python3)\n\n"
                   "Thread 7 (idle): \"MainThread\"\n    load (/home/frida/secret-project/train.py:3)\n")
    _, out, _ = run_tool("report", path, "--format", "json", "--redact")
    for private in ("frida", "sk-abcdefghijklmnop"):
        check(private not in out.decode(), "%s is shown: %s" % (private, out.decode()))
    check(json.loads(out)["ranks"][0]["dumped_by"] == "py-spy", "the tool's name is gone")


def case_real_tools(directory):
    """The tools that are installed, on a process that waits: the file names its pid, and its innermost Python function."""
    commands = {"gdb": ["-nx", "-batch", "-ex", "thread apply all bt", "-p"], "eu-stack": ["-m", "-p"], "py-spy": ["dump", "--pid"], "pystack": ["remote"]}
    found = [name for name in commands if shutil.which(name)]
    if not found:
        print("none of these is installed: " + ", ".join(commands))
        sys.exit(77)
    with Fixture([sys.executable, "-c", PROGRAM]) as process:
        for name in found:
            path = os.path.join(directory, name + ".txt")
            with open(path, "wb") as out:
                subprocess.run([name, *commands[name], str(process.pid)], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, timeout=60, check=False)
            rank = json_report("report", path)["ranks"][0]
            check((rank["pid"], rank["dumped_by"], rank["threads"][0]["tid"]) == (process.pid, name, process.pid), "%s: %r" % (name, rank))
            functions = [frame["function"] for frame in rank["threads"][0]["frames"]]
            check("waits" in functions if name in ("py-spy", "pystack") else any("read" in (function or "") for function in functions), "%s: %r" % (name, functions))


if __name__ == "__main__":
    cases.run(globals(), "dumps")
