"""What a report shows of a real process that has secrets and names in its command line, paths, threads, exception and descriptors."""
import glob
import json
import os
import socket
import stat
import subprocess

import cases
from command_line import SOURCE, native
from processes import Fixture, check, run_tool, tool

FIXTURES = os.path.join(SOURCE, "fixtures")
FORMATS = ("text", "json", "markdown", "html", "folded")
# Put together here, so that no scanner takes this file for a leak.
SECRETS = ["gh" + "p_9aZ8bY7cX6dW5eV4fU3gT2hS1iR0jQ%d", "AK" + "IAIOSFODNN7EXAMPL%d", "hf" + "_9aZ8bY7cX6dW5eV4fU3gT2hS1iR0%d", "hunter2horse%d", "sk" + "-9aZ8bY7cX6dW5eV4fU3gT2hS1iR0j%d", "9aZ8bY7cX6dW5eV4fU3gT2hS1iR0j%d"]
PROGRAM = r'''
import json, os, sys, threading
sys.stdin.reconfigure(line_buffering=True) if hasattr(sys.stdin, "reconfigure") else None
never = os.pipe()[0]
private = open(sys.argv[1])
def step():
    try:
        raise RuntimeError("cannot log in: my own words, token=" + sys.argv[2])
    except RuntimeError:
        os.read(never, 1)
def reads_fifo():
    os.read(os.open(os.path.join(os.path.dirname(sys.argv[1]), "fifo"), os.O_RDWR), 1)
os.mkfifo(os.path.join(os.path.dirname(sys.argv[1]), "fifo"))
name = "worker_" + sys.argv[2]
threading.Thread(target=step, name=name, daemon=True).start()
threading.Thread(target=reads_fifo, daemon=True).start()
scope = {"os": os, "never": never}
exec(compile("def f_%s():\n    os.read(never, 1)\n" % sys.argv[2].replace("-", "_"), "/home/alicia/%s/made.py" % sys.argv[2], "exec"), scope)
threading.Thread(target=[v for k, v in scope.items() if k.startswith("f_")][0], daemon=True).start()
print(json.dumps({"ready": True, "pid": os.getpid(), "runs": True}), flush=True)
for line in sys.stdin:
    print("alive", flush=True)
'''


class Job:
    """A process of a user "alicia", in a home directory of that name."""

    def __init__(self, directory):
        self.home = os.path.join(directory, "home", "alicia")
        os.makedirs(os.path.join(self.home, "patients"))
        script, data = os.path.join(self.home, "train.py"), os.path.join(self.home, "patients", "acme.bin")
        for path, text in ((script, PROGRAM), (data, "x")):
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
        self.secrets = [secret % (100 + i) for i, secret in enumerate(SECRETS)]
        key, access, hf, password, sk, random = self.secrets
        self.fixture = Fixture(["/usr/bin/python3", script, data, key, "--access", access, "--hf-token=" + hf, "--password", password, "-H", "Authorization: Bearer " + sk, "--note", random,
                                "postgres://bobby:%s@db.acme.internal:5432/x" % password, "alicia@acme.example", "10.20.30.40:29511", "10.20.30.41", "--master_addr=10.20.30.42", "--master_addr", "10.20.30.43", "--ssn=123-45-6789", "--lr", "0.1", "--run-name", "patients-study"])
        self.private = ["alicia", "bobby", "acme", "patients", "my own words", "10.20.30.", "123-45-6789", "29511", socket.gethostname()]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.fixture.end()


def outputs(job, *options):
    """(what it is, its text) of every format, of a running process and of its saved report"""
    for form in FORMATS:
        status, out, err = run_tool("attach", "--pids", job.fixture.pid, "--format", form, "--threads", "all", *options)
        check(status in (0, 1), "%s: %d %r" % (form, status, err))
        yield form, out.decode() + err.decode()


def check_lacks(what, text, words):
    for word in words:
        at = text.find(word)
        check(at < 0, "%s has %r: ...%s" % (what, word, text[max(0, at - 200):at + 100]))


def case_no_secret_is_in_any_format(directory):
    with Job(directory) as job:
        for options in ((), ("--no-redact",), ("--redact",)):
            for form, text in outputs(job, *options):
                check_lacks("%s %s" % (form, options), text, job.secrets)
        status, out, err = run_tool("doctor", "--pids", job.fixture.pid)
        check_lacks("doctor", (out + err).decode(), job.secrets)
        job.fixture.check_unharmed()


def case_redacted_reports_name_nobody(directory):
    with Job(directory) as job:
        for form, text in outputs(job, "--redact"):
            check_lacks(form, text, job.private)
        for form in ("json", "markdown", "html"):
            text = dict(outputs(job, "--redact"))[form]
            for word in ("~/train.py", "--run-name", "host-1", "python3", "--master_addr=ip-"):
                check(word in text, "%s lacks %r: %s" % (form, word, text[:3000]))
        by_default = dict(outputs(job))
        for form in ("markdown", "html"):
            check_lacks(form, by_default[form], job.private)


def case_with_secrets_all_is_shown(directory):
    with Job(directory) as job:
        _, out, _ = run_tool("attach", "--pids", job.fixture.pid, "--format", "json", "--with-secrets")
        for secret in job.secrets:
            check(secret.encode() in out, "%s is not shown" % secret)
        status, out, err = run_tool("attach", "--pids", job.fixture.pid, "--with-secrets", "--format", "markdown")
        check((status, out) == (2, b"") and b"--no-redact" in err, "%d %r %r" % (status, out, err))


def case_the_map_says_what_was_what(directory):
    path = os.path.join(directory, "map.json")
    with Job(directory) as job:
        status, out, err = run_tool("attach", "--pids", job.fixture.pid, "--format", "markdown", "--redact-map", path)
        check(status == 0, "%d %r" % (status, err))
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
        names = json.loads(text)["names"]
        check(names.get("host-1") == socket.gethostname() and names.get("user-1") == "alicia", "%r" % names)
        check_lacks("the map", text, job.secrets)
        check(stat.S_IMODE(os.stat(path).st_mode) == 0o600, "its mode")
        status, out, err = run_tool("attach", "--pids", job.fixture.pid, "--format", "markdown", "--redact-map", path)
        check((status, out) == (2, b"") and b"exists already" in err, "%d %r %r" % (status, out, err))
        status, out, err = run_tool("attach", "--pids", job.fixture.pid, "--redact-map", path + "2")
        check((status, out) == (2, b"") and b"--redact" in err and not os.path.exists(path + "2"), "%d %r %r" % (status, out, err))
        target = os.path.join(directory, "not-made")
        os.symlink(target, path + "3")
        status, out, err = run_tool("attach", "--pids", job.fixture.pid, "--format", "markdown", "--redact-map", path + "3")
        check((status, out) == (2, b"") and not os.path.exists(target), "through a symbolic link: %d %r" % (status, err))


def case_redaction_leaves_the_verdict(directory):
    for path in sorted(glob.glob(os.path.join(FIXTURES, "nccl", "*.json.gz")) + glob.glob(os.path.join(FIXTURES, "gpu_jobs", "*.json.gz"))[::3] + glob.glob(os.path.join(FIXTURES, "verdicts", "*.json.gz"))[::4]):
        verdicts = []
        for option in ("--no-redact", "--redact"):
            _, out, _ = run_tool("report", path, "--format", "json", option)
            verdict = json.loads(out)["verdict"]
            verdicts.append((verdict["status"], [(suspect["rank"] if isinstance(suspect["rank"], int) else "", suspect["reason"]) for suspect in verdict["suspects"]]))
        check(verdicts[0] == verdicts[1], "%s: %r" % (path, verdicts))


def case_a_rank_is_chosen_by_its_own_name(directory):
    with Job(directory) as job:
        name = "%s:%d" % (socket.gethostname(), job.fixture.pid)
        status, out, err = run_tool("attach", "--pids", job.fixture.pid, "--redact", "--rank", name)
        check((status, err) == (0, b"") and b"host-1:%d" % job.fixture.pid in out and b"thread %d" % job.fixture.pid in out, "%d %r %r" % (status, out, err))


def case_packed_reports(directory):
    """Written by the suffix of -o, read by content, from a file and from a pipe; a bomb is refused."""
    plain = os.path.join(directory, "plain.json")
    with native("threads") as fixture:
        saved = []
        for suffix, unpack in ((".gz", ["gzip", "-dc"]), (".zst", ["zstd", "-q", "-dc"])):
            path = plain + suffix
            status, out, err = run_tool("attach", "--pids", fixture.pid, "--format", "json", "-o", path)
            check((status, out, err) == (0, b"", b""), "%d %r %r" % (status, out, err))
            check(stat.S_IMODE(os.stat(path).st_mode) == 0o600, "its mode")
            text = subprocess.run(unpack + [path], stdout=subprocess.PIPE, check=True).stdout
            check(json.loads(text)["ranks"][0]["pid"] == fixture.pid, "%s" % text[:300])
            with open(path, "rb") as stream:
                packed = stream.read()
            renamed = os.path.join(directory, "named-otherwise")
            with open(renamed, "wb") as stream:
                stream.write(packed)
            _, expected, _ = run_tool("report", path)
            check(expected.startswith((b"UNDECIDED", b"HEALTHY", b"CULPRIT", b"SYMMETRIC")), "%r" % expected[:300])
            check(run_tool("report", renamed) == (0, expected, b""), "read by its name, not by its content")
            for script in ('cat "$2" | "$1" report -', '"$1" report <(cat "$2")', '(sleep 0.2; cat "$2") | "$1" report /dev/stdin'):
                done = subprocess.run(["bash", "-c", script, "bash", tool(), path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
                check((done.returncode, done.stdout, done.stderr) == (0, expected, b""), "%s: %r" % (script, done))
            saved.append(path)
        for path in saved:
            with open(path, "r+b") as stream:
                stream.truncate(os.path.getsize(path) - 20)
            status, out, err = run_tool("report", path)
            check((status, out) == (2, b"") and b"is damaged: it ends too early" in err and b"hint: " in err, "%d %r" % (status, err))
    for packer, name in ((["gzip", "-1", "-c"], "bomb.gz"), (["zstd", "-q", "-c"], "bomb.zst")):
        path = os.path.join(directory, name)
        # Both formats allow for streams one after the other.
        packed = subprocess.run(packer, input=b"\0" * (1 << 26), stdout=subprocess.PIPE, check=True).stdout
        with open(path, "wb") as out:
            out.write(packed * 17)
        status, out, err = run_tool("report", path, "--memory", "4G")
        check((status, out) == (2, b"") and b"too large: unpacks to more than 1073741824 bytes" in err, "%s: %d %r" % (name, status, err))


if __name__ == "__main__":
    cases.run(globals(), "redaction")
