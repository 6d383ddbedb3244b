"""Processes of one host name and one pid: of two containers, here pid namespaces that share the machine's name."""
import json
import os
import re
import shutil
import subprocess
import sys

import cases
import schema
from processes import Skip, check, json_report, run_tool, tool, wait_until

# The first process of a pid namespace: it starts a process, lets the tool report on it, and stays until its input ends.
INSIDE = r"""
import subprocess, sys
started = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
done = subprocess.run([sys.argv[1], "attach", "--samples", "1", "--pids", str(started.pid), "--format", "json", "-o", sys.argv[2]], check=False)
print(started.pid, done.returncode, flush=True)
sys.stdin.read()
started.kill()
"""


class Container:
    def __init__(self, path, **variables):
        command = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"]
        if os.geteuid() != 0 or not shutil.which("unshare") or subprocess.run(command + ["true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            raise Skip("a pid namespace needs root and unshare")
        self.path = path
        environment = dict({name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}, **variables)
        self.process = subprocess.Popen(command + [sys.executable, "-c", INSIDE, tool(), path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.pid, status = (int(word) for word in self.process.stdout.readline().split())
        check(status == 0, "the tool in the container: status %d" % status)
        with open(path, encoding="utf-8") as file:
            self.report = json.load(file)
        check(not schema.errors_in(self.report), "the report: %r" % schema.errors_in(self.report)[:5])
        self.identity = self.report["ranks"][0]["identity"]

    def pid_outside(self):
        """The number that the process has for this test."""
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                space = os.stat("/proc/%s/ns/pid" % entry).st_ino
                with open("/proc/%s/status" % entry, encoding="utf-8") as status:
                    own = re.search(r"^NSpid:.*?(\d+)$", status.read(), re.M)
            except OSError:
                continue
            if space == self.identity["pid_namespace"] and own and int(own[1]) == self.pid:
                return int(entry)
        raise AssertionError("the container's process is not on this machine")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def case_are_distinguished(directory):
    with Container(os.path.join(directory, "a.json")) as a, Container(os.path.join(directory, "b.json")) as b:
        check(a.pid == b.pid and a.report["ranks"][0]["host"] == b.report["ranks"][0]["host"], "the containers: %d and %d" % (a.pid, b.pid))
        check(a.identity["boot_id"] == b.identity["boot_id"] and a.identity["pid_namespace"] != b.identity["pid_namespace"], "%r %r" % (a.identity, b.identity))
        merged = json_report("report", a.path, b.path)
        check(len(merged["ranks"]) == 2 and not any(rank["problems"] for rank in merged["ranks"]), "merged: %r" % merged["ranks"])
        names = {name for cluster in merged["clusters"] for name in cluster["ranks"]}
        host = a.report["ranks"][0]["host"]
        check(names == {"%s:%d@%d" % (host, a.pid, one.identity["pid_namespace"]) for one in (a, b)}, "their names: %r" % names)


def case_are_one_rank_each(directory):
    with Container(os.path.join(directory, "a.json"), RANK="0", WORLD_SIZE="2") as a, Container(os.path.join(directory, "b.json"), RANK="1", WORLD_SIZE="2") as b:
        merged = json_report("report", a.path, b.path)
        check([rank["rank"] for rank in merged["ranks"]] == [0, 1], "the ranks: %r" % [rank["rank"] for rank in merged["ranks"]])


def case_seen_from_inside_and_from_outside_are_one(directory):
    with Container(os.path.join(directory, "inside.json")) as inside:
        path = os.path.join(directory, "outside.json")
        pid = inside.pid_outside()
        status, _, err = run_tool("attach", "--pids", pid, "--format", "json", "-o", path)
        check(status == 0, err)
        with open(path, encoding="utf-8") as file:
            outside = json.load(file)["ranks"][0]
        check(outside["pid"] == pid and outside["identity"]["own_pid"] == inside.pid, "from outside: %r" % outside["identity"])
        check(outside["identity"]["start_ticks"] == inside.identity["start_ticks"], "its start: %r, %r" % (outside["identity"], inside.identity))
        merged = json_report("report", inside.path, path)
        check(len(merged["ranks"]) == 1 and [problem["code"] for problem in merged["ranks"][0]["problems"]] == ["mismatch"], "merged: %r" % merged["ranks"])


def case_the_pid_of_an_ended_process_is_another(directory):
    """The same name and pid, another start: as after the first process has ended."""
    first, second = os.path.join(directory, "first.json"), os.path.join(directory, "second.json")
    process = subprocess.Popen(["sleep", "1000"])
    try:
        wait_until(lambda: os.readlink("/proc/%d/exe" % process.pid).endswith("sleep"), "sleep")
        json_of = json_report("attach", "--pids", process.pid)
    finally:
        process.kill()
        process.wait()
    later = json.loads(json.dumps(json_of))
    later["ranks"][0]["identity"]["start_ticks"] += 100
    for path, report in ((first, json_of), (second, later)):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file)
    check(len(json_report("report", first, first)["ranks"]) == 1, "the same report twice")
    check(len(json_report("report", first, second)["ranks"]) == 2, "two processes, one after the other")


# What enroot, apptainer and bubblewrap do for a user: namespaces of the user's own, and a root in which the files are elsewhere.
OWN_ROOT = """set -e
mount -t tmpfs tmpfs "$0"
cd "$0"
mkdir usr app proc old
mount --rbind /usr usr
ln -s usr/lib usr/lib64 .
cp "$1" app/program
mount -t proc proc proc
pivot_root . old
cd /
/usr/bin/umount -l old
exec /app/program"""
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def case_of_a_user_are_seen_by_that_user(directory):
    namespaces = NOBODY + ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0 or subprocess.run(namespaces + ["true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        raise Skip("namespaces of another user need root, setpriv and unshare, and a kernel that permits them")
    root, program, own = (os.path.join(directory, name) for name in ("root", "program", "rankstacks"))
    shutil.copy(os.path.join(os.environ["RANKSTACKS_FIXTURES"], "chain"), program)
    shutil.copy(tool(), own)
    os.mkdir(root)
    for path in (directory, root, program, own):
        os.chmod(path, 0o755)
    environment = dict(os.environ, RANK="0", WORLD_SIZE="1")
    process = subprocess.Popen(namespaces + ["sh", "-c", OWN_ROOT, root, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    try:
        check(b'"ready":true' in process.stdout.readline(), "the program has not started")
        with open("/proc/%d/task/%d/children" % (process.pid, process.pid), encoding="ascii") as children:
            pid = children.read().split()[0]
        done = subprocess.run(NOBODY + [own, "attach", "--pids", pid, "--samples", "1", "--format", "json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=120, check=False)
        check(done.returncode == 0, "status %d: %s" % (done.returncode, done.stderr.decode()))
        rank = json.loads(done.stdout.decode())["ranks"][0]
        check(rank["rank"] == 0 and rank["status"] == "complete" and not rank["problems"], "%r" % rank)
        main = [frame["function"] for frame in rank["threads"][0]["frames"]]
        check(main[main.index("inner"):][:4] == ["inner", "middle", "outer", "main"], "its stack: %r" % main)
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    cases.run(globals(), "containers")
