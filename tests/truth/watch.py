"""`rankstacks watch`: jobs that hang, spin, lose a rank or end, and what is written about them."""
import os
import shutil
import signal
import socket
import subprocess
import sys

import cases
from command_line import SOURCE
from processes import DEADLINE, Fixture, Skip, check, json_report, need_torch, run_tool, settle, task_states, tool, wait_until



class Job(Fixture):
    def __init__(self, *arguments, **options):
        super().__init__([sys.executable, os.path.join(SOURCE, "fixtures", "jobs", "watched.py")] + list(arguments), **options)
        self.directory = self.ready["directory"]

    def tell(self, word):
        open(os.path.join(self.directory, word), "w").close()


class Watch:
    def __init__(self, directory, *arguments, period="0.3"):
        self.reports = os.path.join(directory, "hangs")
        self.log = os.path.join(directory, "watch.log")
        self.err = open(self.log, "wb")
        self.process = subprocess.Popen([tool(), "watch", "--on-hang", self.reports, "--period", period, *arguments],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.err)

    def __enter__(self):
        self.says(b"watches" if "--pids" in self.process.args else b"waits")
        return self

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.err.close()

    def said(self):
        with open(self.log, "rb") as log:
            return log.read()

    def says(self, text):
        wait_until(lambda: text in self.said() or self.process.poll() is not None, "%r" % text)
        check(text in self.said(), "the watch has not said %r: %r" % (text, self.said()))

    def learn(self, periods=25):
        """Returns when it has slept that often: it does so once in a period, and now and then for its own threads."""
        def sleeps():
            return int(task_states(self.process.pid)[self.process.pid][1])
        last = sleeps() + periods
        wait_until(lambda: sleeps() >= last, "%d periods" % periods)

    def files(self, part, ending=".json.zst"):
        names = os.listdir(self.reports) if os.path.isdir(self.reports) else []
        return sorted(os.path.join(self.reports, name) for name in names if part in name and name.startswith("rankstacks-") and name.endswith(ending))

    def wait_for(self, part, count=1):
        wait_until(lambda: len(self.files(part)) >= count or self.process.poll() is not None, "%d reports %s: %r" % (count, part, self.said()))
        check(len(self.files(part)) >= count, "the watch has ended without %s: %r" % (part, self.said()))
        return self.files(part)

    def end(self, number=signal.SIGTERM):
        if number is not None:
            self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=DEADLINE)
        check(out == b"", "on stdout: %r" % out)
        return self.process.returncode


def named(job):
    return "--pids", ",".join(map(str, job.ready["pids"]))


def suspects_of(path):
    return [(suspect["rank"], suspect["reason"]) for suspect in json_report("report", path)["verdict"]["suspects"]]


def case_a_hang_is_written_down(directory):
    mark = os.path.join(directory, "called")
    command = "echo $RANKSTACKS_EVENT $RANKSTACKS_REPORT $RANKSTACKS_REPORT_TEXT > %s.new; mv %s.new %s" % (mark, mark, mark)
    with Job() as job, Watch(directory, *named(job), "--exec", command) as watch:
        watch.learn()
        check(not watch.files(""), "a report of a job that goes on: %r" % watch.said())
        job.tell("hang-1")
        paths = watch.wait_for("-hang-", 3)
        check(all(suspects_of(path) == [(1, "file-io")] for path in paths), "%r" % [suspects_of(path) for path in paths])
        check(len(watch.files("-hang-", ".txt")) == 3, "%r" % os.listdir(watch.reports))
        wait_until(lambda: os.path.exists(mark), "--exec: %r" % watch.said())
        with open(mark, encoding="utf-8") as called:
            check(called.read().split() == ["hang", paths[-1], paths[-1].replace(".json.zst", ".txt")], "--exec was given something else")
        check(watch.end() == 0 and len(watch.files("-stop-")) == 1, "SIGTERM: %r" % watch.said())
        check(not [name for name in os.listdir(watch.reports) if name.startswith(".")], "something half is left: %r" % os.listdir(watch.reports))
        job.check_unharmed(answers=False)


def case_a_rank_that_spins(directory):
    with Job() as job, Watch(directory, *named(job)) as watch:
        watch.learn()
        job.tell("spin-2")
        path = watch.wait_for("-hang-")[0]
        check(json_report("report", path)["verdict"]["status"] != "healthy", "%r" % suspects_of(path))
        check(watch.end(signal.SIGINT) == 0, "SIGINT: %r" % watch.said())


def case_a_rank_in_the_collector(directory):
    """It moves, as one collection comes after the other. No healthy job is in there for longer than its rhythm."""
    with Job() as job, Watch(directory, *named(job)) as watch:
        watch.learn()
        job.tell("collect-0")
        path = watch.wait_for("-hang-")[0]
        check(suspects_of(path) == [(0, "garbage-collection")], "%r" % suspects_of(path))
        check(watch.end() == 0, "%r" % watch.said())


def case_a_healthy_job_and_its_end(directory):
    with Job() as job, Watch(directory, *named(job), period="0.1") as watch:
        watch.learn(60)
        job.tell("end")
        check(watch.end(None) == 0, "the end of the job: %r" % watch.said())
        check(b"the job has ended" in watch.said() and not watch.files(""), "%r %r" % (watch.said(), watch.files("")))


def case_a_rank_dies(directory):
    with Job() as job, Watch(directory, *named(job)) as watch:
        watch.learn(5)
        os.kill(job.ready["pids"][2], signal.SIGKILL)
        report = json_report("report", watch.wait_for("-rank-ended-")[0], expect=1)
        check({rank["pid"] for rank in report["ranks"] if rank["status"] != "failed"} == set(job.ready["pids"][:2]), "%r" % report["ranks"])
        check(watch.end() == 0, "%r" % watch.said())


def case_captures_next_to_the_reports(directory):
    """Of ranks that stand: a capture is of the first sample, a report shows of a thread that moves one of all samples."""
    with Job() as job, Watch(directory, *named(job), "--capture") as watch:
        watch.learn(5)
        job.tell("hang-1")
        descriptors = "/proc/%d/fd/" % job.ready["pids"][1]
        wait_until(lambda: any(os.path.realpath(descriptors + name).endswith("/fifo") for name in os.listdir(descriptors)), "rank 1 to read the FIFO")
        for pid in job.ready["pids"]:
            settle(pid)
        check(watch.end() == 0, "%r" % watch.said())
        (path,) = watch.files("-stop-")
        check(suspects_of(path) == [(1, "file-io")], "the ranks do not stand: %r" % suspects_of(path))
        captures = watch.files("-stop-", ".core.zst")
        check(len(captures) == len(job.ready["pids"]) and all(name.startswith(path[:-len("json.zst")]) for name in captures), "the captures: %r" % captures)
        ranks, captured = (json_report(*words)["ranks"] for words in (["report", path], ["core", *captures]))
        pids = {rank["pid"] for rank in captured}
        check(pids == set(job.ready["pids"]) == {rank["pid"] for rank in ranks}, "the captures are of %r" % pids)
        frames = lambda of: {(rank["pid"], thread["tid"]): [frame["function"] for frame in thread["frames"] if frame["kind"] == "python"] for rank in of for thread in rank["threads"]}
        check(frames(captured) == frames(ranks) and any(frames(ranks).values()), "other stacks than in the report:\n%.600r\n%.600r" % (frames(captured), frames(ranks)))
        check(all(os.stat(name).st_mode & 0o777 == 0o600 for name in captures), "others can read the captures")


def case_the_first_and_the_newest_are_kept(directory):
    host = os.uname().nodename
    os.makedirs(os.path.join(directory, "hangs"))
    old = ["rankstacks-%s-2026010%dT000000Z-hang-1.txt" % (host, day) for day in (1, 2, 3)]
    for name in old + ["notes.txt"]:
        with open(os.path.join(directory, "hangs", name), "w", encoding="utf-8") as file:
            file.write("x" * 1000)
    with Job() as job, Watch(directory, *named(job), "--keep", "2") as watch:
        watch.learn(5)
        check(watch.end() == 0, "%r" % watch.said())
        names = sorted(os.listdir(watch.reports))
        check(len(names) == 4 and old[0] in names and "notes.txt" in names and not set(old[1:]) & set(names), "%r" % names)
        check(len(watch.files("-stop-")) == 1, "%r" % names)


def case_a_torch_job_that_has_hung_before(directory):
    """Without a rhythm to compare with: before half of its timeout is over, and once more shortly before its end."""
    need_torch()
    with Fixture([sys.executable, os.path.join(SOURCE, "fixtures", "jobs", "launch.py"), "--ranks", "3", "--blocked-rank", "1"], deadline=300) as job, \
            Watch(directory, *named(job), "--job-timeout", "16") as watch:
        check(suspects_of(watch.wait_for("-hang-1")[0]) == [(1, "data-loading")], "%r" % watch.said())
        check(suspects_of(watch.wait_for("-hang-timeout")[0]) == [(1, "data-loading")], "%r" % watch.said())
        check(watch.end() == 0, "%r" % watch.said())


def case_a_job_that_is_started_after_the_watch(directory):
    """--job by the place where the ranks meet: the watch waits for them. A timeout that their environment states is taken."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with Watch(directory, "--job", "localhost:%d" % port) as watch:
        watch.says(b"waits for a job")
        with Job("--port", str(port), env=dict(os.environ, DEEPSPEED_TIMEOUT="7")) as job:
            watch.says(b"watches 3 ranks; its own watchdog ends it after 420 s (DEEPSPEED_TIMEOUT)")
            job.tell("end")
            check(watch.end(None) == 0 and not watch.files(""), "%r %r" % (watch.said(), watch.files("")))


def case_the_systemd_unit(directory):
    if not shutil.which("systemd-analyze"):
        raise Skip("no systemd-analyze on this machine")
    unit = os.path.join(directory, "rankstacks-watch.service")
    with open(os.path.join(SOURCE, "packaging", "watch", "rankstacks-watch.service"), encoding="utf-8") as source, open(unit, "w", encoding="utf-8") as file:
        file.write(source.read().replace("/usr/bin/rankstacks", tool()))
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
    check(verified.returncode == 0 and b"rankstacks-watch" not in verified.stdout, verified.stdout.decode())


def case_the_slurm_scripts(directory):
    """They do nothing, with status 0, for something that is no job."""
    without = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    for name in ("slurm-prolog", "slurm-epilog"):
        path = os.path.join(SOURCE, "packaging", "watch", name)
        check(os.access(path, os.X_OK), "%s cannot be run" % name)
        subprocess.run(["bash", "-n", path], check=True, timeout=60)
        done = subprocess.run([path], env=without, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
        check((done.returncode, done.stdout) == (0, b""), "%s: %r" % (name, done))


def case_the_sidecar(directory):
    try:
        import yaml
    except ImportError:
        raise Skip("no module yaml (Debian: python3-yaml)") from None
    with open(os.path.join(SOURCE, "packaging", "watch", "kubernetes-sidecar.yaml"), encoding="utf-8") as file:
        pod = yaml.safe_load(file)["spec"]
    watch = pod["initContainers"][0]
    check(pod["shareProcessNamespace"] is True and watch["restartPolicy"] == "Always", "%r" % pod)
    grace = int(watch["command"][watch["command"].index("--grace") + 1])
    check(grace < pod["terminationGracePeriodSeconds"] and run_tool(*watch["command"][1:2], "--help")[0] == 0, "%r" % watch)


def case_usage(directory):
    gone = subprocess.Popen(["true"])
    gone.wait()
    for arguments, said in (([], "--on-hang"), (["--on-hang", directory], "one of --pids and --job"),
                            (["--on-hang", directory, "--pids", str(gone.pid)], "no such process"),
                            (["--on-hang", os.path.join(directory, "no", "such"), "--pids", str(os.getpid())], "No such file or directory"),
                            (["--on-hang", directory, "--pids", "1", "--period", "nan"], "--period"),
                            (["--on-hang", directory, "--pids", "1", "--keep", "1"], "--keep"),
                            (["--on-hang", directory, "--pids", "1", "--max-bytes", "x"], "--max-bytes")):
        status, out, err = run_tool("watch", *arguments)
        check((status, out) == (2, b"") and said in err.decode(), "%r: %d %r" % (arguments, status, err))


if __name__ == "__main__":
    cases.run(globals(), "watch")
