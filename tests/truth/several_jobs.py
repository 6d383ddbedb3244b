"""`--job` where several jobs run: they are distinguished, listed, chosen, and no process outside of the chosen one is ever stopped.

Each case runs in a pid namespace of its own, where no other test's ranks are. The ranks sleep: ptrace wakes a sleeping thread, which
the kernel counts as a voluntary context switch, so a rank whose counts stay the same was not stopped."""
import json
import os
import re
import signal
import shutil
import subprocess
import sys

import cases
from command_line import text_of
from processes import Skip, check, json_report, need_torch, run_tool, settle, state_of, task_states, tool, wait_until

ALONE = "RANKSTACKS_TEST_IS_ALONE"
SOMEBODY = 54321
SLEEP = ["sleep", "1000"]

LAUNCHER = r"""
import json, os, signal, subprocess, sys
environments = json.loads(sys.argv[1])
ranks = [subprocess.Popen(sys.argv[2:], env=dict(os.environ, **variables), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for variables in environments]
print(json.dumps([rank.pid for rank in ranks]), flush=True)
signal.pause()
"""


def needs_to_be_alone():
    if ALONE not in os.environ:
        raise Skip("a pid namespace of its own needs root and unshare")


def without_ranks():
    """The environment of this test without what a launcher of the test may have set."""
    names = re.compile("RANK|WORLD_SIZE|MASTER_|SLURM|PMI|OMPI|HOSTNAME|TORCHELASTIC")
    return {name: value for name, value in os.environ.items() if not names.search(name)}


def variables(world, port=None, numbers=None, **more):
    """The environments of the ranks of one job."""
    found = []
    for number in range(world) if numbers is None else numbers:
        environment = dict(more, RANK=str(number), WORLD_SIZE=str(world))
        if port is not None:
            environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        found.append(environment)
    return found


class Job:
    """Ranks that one launcher has started; they are at rest."""

    def __init__(self, environments, command=None, **options):
        self.process = subprocess.Popen(["/usr/bin/python3", "-c", LAUNCHER, json.dumps(environments)] + (command or SLEEP), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, env=without_ranks(), cwd="/", **options)
        self.launcher = self.process.pid
        self.pids = json.loads(self.process.stdout.readline())
        self.settle()

    def settle(self):
        for pid in self.pids:
            settle(pid)

    def switches(self):
        return {pid: task_states(pid) for pid in self.pids}

    def end_launcher(self):
        self.process.kill()
        self.process.wait()


def chosen(*arguments):
    """{pid: rank} of the report."""
    return {rank["pid"]: rank["rank"] for rank in json_report("attach", "--stop", "always", *arguments)["ranks"]}


def numbered(job):
    return dict(zip(job.pids, range(len(job.pids))))


def check_only(job, others, *arguments):
    """With these arguments exactly the ranks of the job are sampled, and no process of the others is woken."""
    before = [other.switches() for other in others]
    own = job.switches()
    found = chosen(*arguments)
    check(found == numbered(job), "%r: ranks %r instead of %r" % (arguments, found, numbered(job)))
    check(job.switches() != own, "the ranks were sampled, and their context switches do not show it")
    for other, then in zip(others, before):
        check(other.switches() == then, "%r: a process outside of the job was woken: %r, before %r" % (arguments, other.switches(), then))


def refused(*arguments):
    """stderr of a call that chooses no job; stdout is empty."""
    status, out, err = run_tool(*arguments)
    check(status == 2 and out == b"", "%r: status %d, %r, %r" % (arguments, status, out, err))
    return err.decode()


def ids_in(text):
    """The IDs in a list of jobs: those lines have two blanks in front, the lines on a job have six."""
    return re.findall(r"^  (\S+)$", text, re.M)


def hinted(text):
    """The command line of the hint, without the tool's name."""
    found = re.findall(r"^hint: rankstacks (.*)$", text, re.M)
    check(len(found) == 1, "hints: %r" % text)
    return found[0].split()


def check_ids(*jobs):
    """The jobs are listed in the order of their start, and each ID chooses its job again. Returns the IDs."""
    before = [job.switches() for job in jobs]
    text = refused("attach", "--job", "--format", "json")
    check([job.switches() for job in jobs] == before, "a rank was woken although no job was chosen")
    check("%d jobs run on this machine, and --job takes one; nothing was stopped" % len(jobs) in text, text)
    ids = ids_in(text)
    check(len(ids) == len(jobs), "%d IDs of %d jobs: %s" % (len(ids), len(jobs), text))
    for job, name in zip(jobs, ids):
        check_only(job, [other for other in jobs if other is not job], "--job", name)
    check(hinted(text) == ["attach", "--job", ids[0], "--format", "json"] or "--samples" in hinted(text), "the hint: %r" % hinted(text))
    return ids


def case_the_one_job_needs_no_name(directory):
    needs_to_be_alone()
    job = Job(variables(3, 29500))
    check_only(job, [], "--job")
    status, out, err = run_tool("doctor", "--job")
    check(status in (0, 1) and "3 processes (sleep)" in text_of(out), "doctor: %d %s %r" % (status, text_of(out), err))


def case_no_job(directory):
    needs_to_be_alone()
    for command in ("attach", "doctor"):
        text = refused(command, "--job")
        check(text == "rankstacks: no process of this machine has a rank in its environment\nhint: name the processes: rankstacks %s --pids ...\n" % command, text)
    check("no job of this machine is called \"slurm:4711.0\"\nhint: " in refused("attach", "--job", "slurm:4711.0"), "no job")


def case_two_jobs_are_listed_and_chosen(directory):
    needs_to_be_alone()
    first, second = Job(variables(2, 29500)), Job(variables(4, 29501))
    check(check_ids(first, second) == ["localhost:29500", "localhost:29501"], "the IDs")
    text = refused("attach", "--job")
    lines = text.splitlines()
    at = lines.index("  localhost:29501")
    pids = second.pids
    check(re.search(r"^ {6}user root, ranks 0-3 of 4, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ, pids ", lines[at + 1]) and str(pids[0]) in lines[at + 1], lines[at + 1])
    check(lines[at + 2] == "      sleep 1000", lines[at + 2])
    for job, other in ((first, second), (second, first)):
        for choice in ("pid:%d" % job.launcher, "pid=%d" % job.pids[1], str(job.pids[0]), "ppid:%d" % job.launcher):
            check_only(job, [other], "--job", choice)
            check_only(job, [other], "--job=" + choice)
    both = "pid:%d" % os.getpid()
    check(ids_in(refused("attach", "--job", both)) == ["localhost:29500", "localhost:29501"], "of a process above both")
    for choice, words in (("pid:999999", "there is no process 999999"), ("localhost:2950", "no job of this machine is called \"localhost:2950\""),
                          ("user:nobody-is-called-so", "no user is called"), ("user:%d" % SOMEBODY, "has no job on this machine"),
                          ("cgroup:/no/such", "no job of this machine has a rank in the control group")):
        text = refused("attach", "--job", choice)
        check(words in text and ids_in(text) == ["localhost:29500", "localhost:29501"], "%s: %s" % (choice, text))
    for choice in ("pid:", "pid:x", "user:", "cgroup:relative"):
        check("rankstacks: --job: expected " in refused("attach", "--job", choice), choice)


def case_the_doctor_takes_the_same(directory):
    needs_to_be_alone()
    first, second = Job(variables(2, 29500)), Job(variables(3, 29501))
    text = refused("doctor", "--job")
    check(ids_in(text) == ["localhost:29500", "localhost:29501"] and hinted(text) == ["doctor", "--job", "localhost:29500"], text)
    for job, choice in ((first, "localhost:29500"), (second, "pid:%d" % second.launcher)):
        status, out, err = run_tool("doctor", "--job", choice, "--format", "json")
        check(status in (0, 1), "status %d: %r" % (status, err))
        named = set(finding["pid"] for finding in json.loads(out)["findings"] if finding["subject"] == "process")
        check(named == set(job.pids), "%s: processes %r instead of %r" % (choice, named, job.pids))


def case_jobs_of_two_users(directory):
    needs_to_be_alone()

    def become_somebody():
        os.setgroups([])
        os.setgid(SOMEBODY)
        os.setuid(SOMEBODY)

    # The same names and the same world: the kernel alone says that these are two jobs.
    roots, users = Job(variables(2, 29500)), Job(variables(2, 29500), preexec_fn=become_somebody)
    check(check_ids(roots, users) == ["ppid:%d" % roots.launcher, "ppid:%d" % users.launcher], "the IDs")
    text = refused("attach", "--job")
    check("user root, " in text and "user %d, " % SOMEBODY in text, text)
    for choice in ("user:%d" % SOMEBODY, "user=%d" % SOMEBODY):
        check_only(users, [roots], "--job", choice)
    check_only(roots, [users], "--job", "user:root")


def case_a_job_in_another_network_namespace(directory):
    needs_to_be_alone()
    ours = Job(variables(2, 29500))
    launcher = subprocess.Popen(["unshare", "--net", "/usr/bin/python3", "-c", LAUNCHER, json.dumps(variables(2, 29500, numbers=(2, 3)) + variables(2, 29500))] + SLEEP,
                                stdout=subprocess.PIPE, env=without_ranks())
    pids = json.loads(launcher.stdout.readline())
    check(len(pids) == 4, "ranks")
    for pid in pids:
        settle(pid)
    found = chosen("--job", "pid:%d" % ours.launcher)
    check(found == numbered(ours), "the rank numbers of the other network: %r" % found)
    found = chosen("--job", "pid:%d" % launcher.pid)
    check(sorted(found) == sorted(pids), "the job of the other network: %r of %r" % (found, pids))


def case_leftovers_of_an_earlier_job(directory):
    """Ranks 1 and 2 of a job whose launcher and rank 0 are gone, and a later job on the same port that lacks rank 2."""
    needs_to_be_alone()
    old = Job(variables(3, 29500))
    os.kill(old.pids.pop(0), signal.SIGKILL)
    old.end_launcher()
    new = Job(variables(3, 29500))
    missing = new.pids.pop()
    os.kill(missing, signal.SIGKILL)
    wait_until(lambda: state_of(missing) in ("Z", "gone"), "the end of a rank")
    check_only(new, [old], "--job", "pid:%d" % new.launcher)
    found = chosen("--job", "pid:%d" % old.pids[0])
    check(found == {old.pids[0]: 1, old.pids[1]: 2}, "the leftovers: %r" % found)
    text = refused("attach", "--job")
    check(len(ids_in(text)) == 2 and "ranks 1-2 of 3" in text and "ranks 0-1 of 3" in text, text)


SPAWNED = r"""
import json, multiprocessing, os, sys, time
def rank(number, world, port, there):
    os.environ.update(RANK=str(number), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    there.send(os.getpid())
    time.sleep(1000)
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    pids = []
    for number in range(2):
        ours, theirs = context.Pipe(False)
        context.Process(target=rank, args=(number, 2, sys.argv[1], theirs)).start()
        pids.append(ours.recv())
    print(json.dumps(pids), flush=True)
    time.sleep(1000)
"""


class Spawned(Job):
    """Ranks of multiprocessing.spawn, which have set their numbers themselves."""

    def __init__(self, directory, port):
        path = os.path.join(directory, "spawned.py")
        with open(path, "w", encoding="utf-8") as program:
            program.write(SPAWNED)
        self.process = subprocess.Popen(["/usr/bin/python3", path, str(port)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=without_ranks())
        self.launcher = self.process.pid
        self.pids = json.loads(self.process.stdout.readline())
        self.settle()


def case_spawned_ranks(directory):
    needs_to_be_alone()
    first = Spawned(directory, 29500)
    check_only(first, [], "--job")
    second = Spawned(directory, 29501)
    check(check_ids(first, second) == ["localhost:29500", "localhost:29501"], "the IDs")
    status, out, err = run_tool("doctor", "--job", "localhost:29501")
    check(status in (0, 1) and ": %d, %d\n" % tuple(second.pids) in text_of(out), "doctor: %d %s %r" % (status, text_of(out), err))


def case_hostile_names(directory):
    """A job whose environment would move the cursor, run a command, and pass for another job: no ID leads to the wrong one."""
    needs_to_be_alone()
    honest = Job(variables(2, 29500, SLURM_JOB_ID="4711", SLURM_STEP_ID="0"))
    check_only(honest, [], "--job", "slurm:4711.0")
    copies = Job(variables(2, 29500, SLURM_JOB_ID="4711", SLURM_STEP_ID="0"))
    check(check_ids(honest, copies) == ["ppid:%d" % honest.launcher, "ppid:%d" % copies.launcher], "the IDs")
    check(len(ids_in(refused("attach", "--job", "slurm:4711.0"))) == 2, "a name of two jobs")
    wild = Job(variables(2, SLURM_JOB_ID="\x1b[2J$(reboot)\n  slurm:4711.0\n", SLURM_STEP_ID="\u202e;"))
    ids = check_ids(honest, copies, wild)
    check(re.fullmatch(r"slurm:[A-Za-z0-9._:~-]+", ids[2]), "the ID: %r" % ids[2])
    text = refused("attach", "--job")
    check("\x1b" not in text and "\u202e" not in text and ids_in(text) == ids, repr(text))


def case_many_samples_stay_with_the_chosen_job(directory):
    """Without --samples the tool looks several times at a job that loops, and asks for it by its ID only once."""
    needs_to_be_alone()
    loops = ["/usr/bin/python3", "-c", "while True: pass"]
    environments = variables(2, 29500)
    process = subprocess.Popen(["/usr/bin/python3", "-c", LAUNCHER, json.dumps(environments)] + loops, stdout=subprocess.PIPE, env=without_ranks())
    pids = json.loads(process.stdout.readline())
    other = Job(variables(2, 29501))
    before = other.switches()
    done = subprocess.run([tool(), "attach", "--max-wait", "3", "--job", "localhost:29500", "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    check(done.returncode == 0, "status %d: %r" % (done.returncode, done.stderr))
    check(sorted(rank["pid"] for rank in json.loads(done.stdout)["ranks"]) == pids, "the ranks")
    check(other.switches() == before, "a process outside of the job was woken")


GLOO = r"""
import datetime, os, sys, time
import torch.distributed
torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=3600))
number = torch.distributed.get_rank()
with open(os.path.join(sys.argv[1], "there.%d" % number), "w") as there:
    there.write(str(os.getpid()))
if number == 1:
    time.sleep(1000)
torch.distributed.barrier()
"""


class Launched:
    """Two ranks of a real launcher; each writes its pid to a file DIRECTORY/there.RANK."""

    def __init__(self, directory, command, environment=None):
        os.mkdir(directory)
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=directory,
                                        env=dict(without_ranks(), **(environment or {})))
        self.launcher = self.process.pid
        paths = [os.path.join(directory, "there.%d" % number) for number in range(2)]

        def all_there():
            check(self.process.poll() is None, "%r ended with status %r" % (command, self.process.returncode))
            return all(os.path.exists(path) and os.path.getsize(path) for path in paths)

        wait_until(all_there, "the ranks of %r" % command, 120)
        self.pids = [int(open(path, encoding="utf-8").read()) for path in paths]


def check_launched(first, second):
    text = refused("attach", "--job")
    ids = ids_in(text)
    check(len(ids) == 2 and text.count("ranks 0-1 of 2") == 2, text)
    for job, other, name in ((first, second, ids[0]), (second, first, ids[1])):
        for choice in (name, "pid:%d" % job.launcher, "pid:%d" % job.pids[1]):
            report = json_report("attach", "--job", choice)
            found = {rank["rank"]: rank["pid"] for rank in report["ranks"] if rank["kind"] == "rank"}
            check(found == dict(enumerate(job.pids)), "%s: %r, expected %r" % (choice, found, job.pids))
            check(not set(other.pids) & {rank["pid"] for rank in report["ranks"]}, "%s: ranks of the other job" % choice)
    return ids


def case_two_jobs_of_torchrun(directory):
    needs_to_be_alone()
    need_torch("distributed/run.py")
    program = os.path.join(directory, "gloo.py")
    with open(program, "w", encoding="utf-8") as file:
        file.write(GLOO)
    jobs = []
    for name, port in (("first", 29541), ("second", 29542)):
        there = os.path.join(directory, name)
        # With Python 3.11 the torchrun of torch 1.13 knows neither 0 nor 3 here: one stream redirected, the other teed.
        jobs.append(Launched(there, ["/usr/bin/python3", "-m", "torch.distributed.run", "--nproc_per_node=2", "--master_port=%d" % port, "--redirects=1", "--tee=2", program, there]))
    check(check_launched(*jobs) == ["localhost:29541", "localhost:29542"], "the IDs")


def two_jobs_of_mpi(directory, name, environment, rank_variable):
    needs_to_be_alone()
    mpirun = shutil.which("mpirun." + name)
    if not mpirun:
        raise Skip("no mpirun.%s here" % name)
    # Any program is a rank for the launcher; this one needs no compiler. /bin/sleep replaces the shell.
    script = 'echo $$ >there.$%s.new; mv there.$%s.new there.$%s; exec sleep 1000' % ((rank_variable,) * 3)
    jobs = [Launched(os.path.join(directory, which), [mpirun, "-n", "2", "sh", "-c", script], environment) for which in ("first", "second")]
    return check_launched(*jobs)


def case_two_jobs_of_mpich(directory):
    ids = two_jobs_of_mpi(directory, "mpich", {}, "PMI_RANK")
    check(all(name.startswith("ppid:") for name in ids), "the IDs: %r" % ids)


def case_two_jobs_of_openmpi(directory):
    settings = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_plm_rsh_agent": "false"}
    ids = two_jobs_of_mpi(directory, "openmpi", settings, "OMPI_COMM_WORLD_RANK")
    check(all(name.startswith("pmix:") for name in ids), "the IDs: %r" % ids)


def enter_a_pid_namespace():
    """Starts this program anew as the first process of a pid namespace; returns where that is not possible."""
    command = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"]
    if ALONE in os.environ or os.geteuid() != 0 or not shutil.which("unshare"):
        return
    if subprocess.run(command + ["true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        os.environ[ALONE] = "1"
        os.execvp(command[0], command + [sys.executable] + sys.argv)


if __name__ == "__main__":
    enter_a_pid_namespace()
    cases.run(globals(), "several-jobs")
