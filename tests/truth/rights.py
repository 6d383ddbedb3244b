"""The rights with which the code of a GPU driver runs for an ordinary user's process: root's tool samples a process that tries to gain
root's rights. The fake driver records the rights with which it is loaded and called (tests/gpu/fake_cuda)."""
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess

import cases
from command_line import SOURCE
from processes import Fixture, Skip, check, command_of_tool, json_report, run_tool, tool, wait_until
from truth_python import only_rank

PROGRAM = os.path.join(SOURCE, "fixtures", "gpu", "cuda_session.py")
BUILT = os.path.join(os.path.dirname(os.environ["RANKSTACKS_FIXTURES"]), "tests")
SOMEBODY = 54321


def needs_root():
    if os.geteuid() != 0:
        raise Skip("root's tool on another user's process needs root")


def become_somebody():
    os.setgroups([])
    os.setgid(SOMEBODY)
    os.setuid(SOMEBODY)


class Users:
    """A directory of an ordinary user, with a library of the user's own that has the driver's name."""

    def __init__(self, directory, library="libfake_cuda.so", shown="libcuda.so.1"):
        needs_root()
        # Below /tmp: an ordinary user may not reach the tests' own directory.
        self.directory = os.path.join("/tmp", "rankstacks-%d-%s" % (os.getpid(), os.path.basename(directory)))
        shutil.rmtree(self.directory, ignore_errors=True)
        os.mkdir(self.directory)
        os.chmod(self.directory, 0o777)
        self.library = os.path.join(self.directory, shown)
        shutil.copy(os.path.join(BUILT, library), self.library)
        with open(os.path.join(self.directory, "scenario"), "w", encoding="utf-8"):
            pass
        self.program = os.path.join(self.directory, "program.py")
        shutil.copy(PROGRAM, self.program)
        for path in (self.library, self.program):
            os.chmod(path, 0o755)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        shutil.rmtree(self.directory, ignore_errors=True)

    def environment(self):
        return {"PATH": os.environ["PATH"], "RANK": "0", "WORLD_SIZE": "1", "PYTHONDONTWRITEBYTECODE": "1"}

    def rank(self, *options, around=()):
        return Fixture([*around, "/usr/bin/python3", self.program, self.library, *options], env=self.environment(), preexec_fn=become_somebody, cwd="/")

    def rights(self, word):
        """[(pid, real uid, effective uid, capabilities)] of the lines with that word."""
        try:
            with open(os.path.join(self.directory, "rights"), encoding="utf-8") as lines:
                found = [line.split() for line in lines]
        except FileNotFoundError:
            return []
        return [(int(pid), int(real), int(effective), int(capabilities, 16)) for first, pid, real, effective, capabilities in found if first == word]

    def check_ran_only_in(self, pid):
        """No process but that one has loaded or called the library."""
        elsewhere = [line for line in self.rights("loaded") + self.rights("called") if line[0] != pid]
        check(not elsewhere, "the user's library ran elsewhere, as (pid, uid, euid, capabilities): %r" % elsewhere)


def problems_of(rank):
    return " | ".join(problem["message"] for problem in rank["problems"])


def check_answers(process):
    process.write(b"are you there?\n")
    check(process._line() == b"alive", "it does not answer")


def attach_in_each_way(users, pid, inside=None):
    """By pid and as a job, with the installed tool, and with one whose machine has a driver: the user's library is never run."""
    machine = os.path.join(users.directory, "machine")
    os.mkdir(machine, 0o755)
    shutil.copy(os.path.join(BUILT, "libfake_cuda.so"), os.path.join(machine, "libcuda.so.1"))
    for place in (None, machine):
        for target in (("--pids", pid), ("--job", "pid:%d" % pid)):
            status, out, err = run_tool("attach", *target, "--gpu", "--format", "json", machine=place)
            (rank,) = [rank for rank in json.loads(out)["ranks"] if rank["pid"] == pid] or [None]
            check(rank is not None, "%r is not in the report: %r" % (pid, err))
            users.check_ran_only_in(inside or pid)
            check("its CUDA driver %s is not" % users.library in problems_of(rank), "%s, %s: %s" % (target[0], place, problems_of(rank)))
            check(rank["threads"], "no threads")


def case_a_users_library_is_not_loaded(directory):
    with Users(directory) as users, users.rank() as process:
        attach_in_each_way(users, process.pid)
        check_answers(process)


def in_namespaces(users, *unshare):
    """The process inside of the namespaces, by its pid on this machine: unshare's child."""
    process = subprocess.Popen(["unshare", *unshare, "/usr/bin/python3", users.program, users.library], env=users.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, cwd="/", preexec_fn=become_somebody if "--user" in unshare else None)
    line = process.stdout.readline()
    if not line:
        raise Skip("no namespaces here: %s" % process.stderr.read().decode(errors="replace").strip())
    with open("/proc/%d/task/%d/children" % (process.pid, process.pid), encoding="utf-8") as found:
        inner = [int(word) for word in found.read().split()]
    return process, inner[0] if inner else process.pid, json.loads(line)["pid"]


def case_a_library_in_a_mount_namespace_is_not_loaded(directory):
    with Users(directory) as users:
        process, pid, inside = in_namespaces(users, "--mount", "--fork")
        try:
            attach_in_each_way(users, pid, inside)
        finally:
            os.kill(pid, signal.SIGKILL)
            process.wait()


def case_a_library_in_namespaces_of_its_own_is_not_loaded(directory):
    with Users(directory) as users:
        process, pid, inside = in_namespaces(users, "--user", "--map-root-user", "--pid", "--fork", "--mount", "--mount-proc", "--net")
        try:
            attach_in_each_way(users, pid, inside)
        finally:
            os.kill(pid, signal.SIGKILL)
            process.wait()


def case_the_drivers_code_has_the_users_rights(directory):
    """Root's tool asks the machine's own driver about an ordinary user's process: the driver is called with that user's rights and no
    more."""
    with Users(directory) as users, users.rank() as process:
        status, out, err = run_tool("attach", "--pids", process.pid, "--gpu", "--format", "json", machine=users.directory)
        rank = only_rank(json.loads(out), process.pid)
        if "ptrace" in problems_of(rank) or b"Operation not permitted" in err:
            raise Skip("the fake driver, unlike a real one, reads the process by itself, which this kernel refuses: %s" % problems_of(rank))
        check(status == 0 and rank["gpus"][0]["execution"]["kernels"][0]["function"] == "spin(int*)", problems_of(rank))
        called = [line for line in users.rights("called") if line[0] != process.pid]
        check(called and all(line[1:] == (SOMEBODY, SOMEBODY, 0) for line in called), "called as (pid, uid, euid, capabilities): %r" % called)
        check_answers(process)


def check_client(users, directory, pid, seen_as):
    """A session with `pid`, which has the pid `seen_as` in its own namespaces: during the call of its driver, the client has the process's
    rights only."""
    with open(os.path.join(users.directory, "scenario"), "w", encoding="utf-8") as scenario:
        scenario.write("attach-ms 900\n")
    traced = os.path.join(directory, "trace")
    running = subprocess.Popen(command_of_tool(users.directory) + ["attach", "--samples", "1", "--pids", str(pid), "--gpu", "--format", "json"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=dict(os.environ, RANKSTACKS_GPU_TRACE=traced, LD_LIBRARY_PATH="/nowhere"))
    try:
        wait_until(lambda: any(line[0] == seen_as for line in users.rights("called")), "the call in the process")
        helpers = children(running.pid)
        while children(helpers[-1]):
            helpers += children(helpers[-1])
        client = helpers[-1]
        own, theirs = status_of(pid), status_of(client)
        for name in ("Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapBnd"):
            check(own[name].split() == theirs[name].split(), "%s: %r, the process has %r" % (name, theirs[name], own[name]))
        check(theirs["NoNewPrivs"].strip() == "1" and int(theirs["CapInh"], 16) == 0, "no_new_privs %r" % theirs["NoNewPrivs"])
        for kind in ("user", "net", "mnt", "pid"):
            check(os.readlink("/proc/%d/ns/%s" % (client, kind)) == os.readlink("/proc/%d/ns/%s" % (pid, kind)), "another %s namespace" % kind)
        check(os.readlink("/proc/%d/root" % client) == os.readlink("/proc/%d/root" % pid), "another root directory")
        # The program that it runs is a sealed copy in memory: a process that gets at it there cannot write the machine's own file.
        program = "/proc/%d/exe" % client
        check(os.readlink(program).startswith("/memfd:rankstacks"), "it runs %s" % os.readlink(program))
        for flags in (os.O_WRONLY, os.O_RDWR | os.O_TRUNC):
            try:
                os.close(os.open(program, flags))
            except OSError:
                continue
            check(False, "its program can be opened for writing")
        with open(program, "rb") as sealed:
            seals = fcntl.fcntl(sealed, fcntl.F_GET_SEALS)
        check(seals & fcntl.F_SEAL_WRITE and seals & fcntl.F_SEAL_SEAL and seals & fcntl.F_SEAL_SHRINK, "seals %#x" % seals)
        # Not dumpable: its files in /proc are root's, and its user may not read or trace it.
        check(os.stat("/proc/%d/environ" % client).st_uid == 0, "it is dumpable")
        for helper in helpers:
            with open("/proc/%d/environ" % helper, "rb") as environment:
                check(environment.read() == b"", "an environment")
        held = sorted(os.readlink("/proc/%d/fd/%s" % (client, fd)) for fd in os.listdir("/proc/%d/fd" % client))
        check(not any("/proc/" in target or target.split(":")[0] in ("mnt", "net", "pid", "user") for target in held), "descriptors: %r" % held)
    finally:
        out, err = running.communicate(timeout=60)
    rank = only_rank(json.loads(out), pid)
    check(rank["status"] == "complete", problems_of(rank))
    with open(traced, encoding="utf-8") as trace:
        check("suspendDevice" in trace.read(), "no trace")
    check(os.stat(traced).st_mode & 0o777 == 0o600, "the trace's mode")


def case_the_client_of_a_session_can_do_no_more_than_the_process(directory):
    with Users(directory) as users, users.rank() as process:
        check_client(users, directory, process.pid, process.pid)
        check_answers(process)


def case_the_client_of_a_session_is_in_the_processs_namespaces(directory):
    with Users(directory) as users:
        process, pid, inside = in_namespaces(users, "--user", "--map-root-user", "--pid", "--fork", "--mount", "--mount-proc", "--net")
        try:
            check_client(users, directory, pid, inside)
        finally:
            os.kill(pid, signal.SIGKILL)
            process.wait()


def case_the_client_of_a_session_has_the_processs_root(directory):
    """A process with another root directory, as in a container: the client's paths are those of the process."""
    with Users(directory) as users:
        root = os.path.join(users.directory, "root")
        os.mkdir(root)
        script = "mount --rbind / {0} && mount -t proc proc {0}/proc && exec chroot {0} /usr/bin/python3 {1} {2}".format(root, users.program, users.library)
        process = subprocess.Popen(["unshare", "--pid", "--fork", "--mount", "sh", "-c", script], env=users.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/")
        line = process.stdout.readline()
        if not line:
            raise Skip("no namespaces here: %s" % process.stderr.read().decode(errors="replace").strip())
        (pid,) = children(process.pid)
        try:
            check_client(users, directory, pid, json.loads(line)["pid"])
        finally:
            os.kill(pid, signal.SIGKILL)
            process.wait()


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="utf-8") as found:
        return [int(word) for word in found.read().split()]


def status_of(pid):
    with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as status:
        return dict(line.rstrip("\n").split(":", 1) for line in status if ":" in line)


def case_no_file_is_written_that_a_number_leads_to(directory):
    """The descriptor through which a driver is asked is a number in the process's memory. What the process may not write, root does not
    write for it."""
    needs_root()
    victim = os.path.join("/tmp", "rankstacks-victim-%d" % os.getpid())
    with open(victim, "w", encoding="utf-8") as file:
        file.write("root's own")
    os.chmod(victim, 0o644)
    try:
        for kind in ("opath", "reading", "read-end", "full"):
            with Users(directory, library="libfake_cuda_new.so") as users, users.rank("--descriptor", kind + ":" + victim) as process:
                status, out, err = run_tool("attach", "--pids", process.pid, "--gpu", "--format", "json", machine=users.directory)
                rank = only_rank(json.loads(out), process.pid)
                with open(victim, encoding="utf-8") as file:
                    check(file.read() == "root's own", "%s: it was written" % kind)
                check(status == 1 and "the driver cannot be asked to let a debugger in" in problems_of(rank), "%s: %s" % (kind, problems_of(rank)))
                check_answers(process)
        # The process's own file, open for writing, is no pipe either.
        with Users(directory, library="libfake_cuda_new.so") as users:
            own = os.path.join(users.directory, "own")
            with open(own, "w", encoding="utf-8"):
                pass
            os.chmod(own, 0o666)
            with users.rank("--descriptor", "writing:" + own) as process:
                rank = only_rank(json_report("attach", "--pids", process.pid, "--gpu", expect=1, machine=users.directory), process.pid)
                check("not the writing end of a pipe" in problems_of(rank) and os.stat(own).st_size == 0, problems_of(rank))
    finally:
        os.remove(victim)


def case_no_process_can_block_a_session_by_a_name(directory):
    """Any process can take the name of an abstract socket: a session does not depend on one."""
    with Users(directory) as users, users.rank() as process:
        with open("/proc/%d/stat" % process.pid, encoding="utf-8") as stat:
            start = stat.read().rsplit(")", 1)[1].split()[19]
        squatter = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        squatter.bind("\0rankstacks-gpu-%d-%s" % (process.pid, start))
        rank = only_rank(json_report("attach", "--pids", process.pid, "--gpu", machine=users.directory), process.pid)
        squatter.close()
        check(rank["status"] == "complete" and rank.get("gpus"), problems_of(rank))


def case_the_installed_tool_has_no_switch_for_tests(directory):
    """Nor do its helper processes accept a path."""
    with Users(directory, shown="libnvidia-ml.so.1") as users:
        for arguments in (["--test-machine", users.directory, "attach", "--job"], ["attach", "--job", "--test-nvml", users.directory], ["attach", "--job", "--test-machine", users.directory],
                          ["--internal-nvml", users.library], ["--internal-nvml", users.library, "/etc/shadow"], ["--internal-gpu-session", "sample", "1", users.library],
                          ["--internal-gpu-session", users.library]):
            status, out, err = run_tool(*arguments)
            check(status == 2 and out == b"", "%r: status %d, %r" % (arguments, status, out))
        users.check_ran_only_in(None)
        text = subprocess.run(["strings", "-a", tool()], stdout=subprocess.PIPE, check=True).stdout
        check(b"--test-nvml" not in text, "the switch is in it")


if __name__ == "__main__":
    cases.run(globals(), "rights")
