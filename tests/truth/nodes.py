"""Machines of a test's own: each node is a process tree with a network, a pid namespace, a host name and an OpenSSH server of its own,
all on one bridge. The test itself is the front end; nothing of the real machine's network is reachable."""
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from command_line import SOURCE
from processes import Skip, check, need_torch, state_of, wait_until

INSIDE = "RANKSTACKS_TEST_HAS_NAMESPACES"
NETWORK = "10.77.0."
NAMESPACES = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child", "--mount", "--net", "--uts"]


def enter_namespaces():
    """Starts this program anew as the front end of a network of its own; returns where that is not possible."""
    if INSIDE in os.environ or os.geteuid() != 0 or not shutil.which("unshare"):
        return
    if subprocess.run(NAMESPACES + ["true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        os.environ[INSIDE] = "1"
        os.execvp(NAMESPACES[0], NAMESPACES + [sys.executable] + sys.argv)


def needs(*programs):
    missing = [program for program in programs if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
    if missing:
        raise Skip("not installed: %s (scripts/setup cluster)" % ", ".join(missing))


def run(*command, **options):
    return subprocess.run(list(command), check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60, **options).stdout


class Node:
    """Its first process waits; everything else on it is started by `command`."""

    def __init__(self, cluster, number):
        self.cluster, self.number = cluster, number
        self.name = "node-%d" % number
        self.address = NETWORK + str(number)
        setup = "hostname %s && echo named && exec sleep 100000" % self.name
        self.process = subprocess.Popen(NAMESPACES[:5] + ["--mount", "--net", "--uts", "sh", "-c", setup], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE)
        check(self.process.stdout.readline() == b"named\n", "%s has no name" % self.name)
        with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid), encoding="ascii") as children:
            self.init = int(children.read().split()[0])
        run("ip", "link", "add", "v%d" % number, "type", "veth", "peer", "name", "eth0", "netns", str(self.init))
        run("ip", "link", "set", "v%d" % number, "master", "bridge", "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", self.address + "/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        self.sshd = None

    def command(self, *words):
        return ["nsenter", "--target", str(self.init), "--pid", "--mount", "--net", "--uts", "--"] + list(words)

    def run(self, *words):
        return run(*self.command(*words))

    def start_sshd(self, *options):
        directory = self.cluster.directory
        config = os.path.join(directory, "sshd-%s.config" % self.name)
        with open(config, "w", encoding="ascii") as out:
            out.write("\n".join(options + (
                "HostKey %s/host_key" % directory, "AuthorizedKeysFile %s/key.pub" % directory, "StrictModes no", "UsePAM no", "PidFile none",
                "MaxStartups 100", "PermitRootLogin yes", "AcceptEnv *", "LogLevel ERROR", "PrintMotd no")) + "\n")
        with open(os.path.join(directory, "sshd-%s.log" % self.name), "wb") as log:
            self.sshd = subprocess.Popen(self.command("/usr/sbin/sshd", "-D", "-e", "-f", config), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        # nsenter waits for the server, which is its child.
        wait_until(lambda: "LISTEN" in self.run("ss", "-Hltn", "sport = :22"), "sshd of %s" % self.name)

    def sshd_pids(self):
        with open("/proc/%d/task/%d/children" % (self.sshd.pid, self.sshd.pid), encoding="ascii") as children:
            return [int(pid) for pid in children.read().split()]

    def stop_sshd(self):
        for pid in self.sshd_pids():
            os.kill(pid, signal.SIGTERM)
        self.sshd.wait(timeout=20)

    def freeze_sshd(self):
        for pid in self.sshd_pids():
            os.kill(pid, signal.SIGSTOP)
            wait_until(lambda: state_of(pid) == "T", "the stop of sshd")

    def processes(self):
        """{pid: command line} of all processes in its pid namespace, numbered by the front end."""
        namespace = os.stat("/proc/%d/ns/pid" % self.init).st_ino
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.stat("/proc/%s/ns/pid" % name).st_ino == namespace:
                    with open("/proc/%s/cmdline" % name, "rb") as line:
                        found[int(name)] = line.read().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
        return found

    def end(self):
        self.process.kill()          # unshare --kill-child ends the node's first process, and the kernel all others
        self.process.wait()
        self.process.stdout.close()
        if self.sshd is not None:
            self.sshd.kill()         # nsenter stops itself when its child is stopped
            self.sshd.wait(timeout=20)


class Cluster:
    def __init__(self, directory, count):
        if INSIDE not in os.environ:
            raise Skip("namespaces for nodes need root and unshare")
        needs("ip", "ss", "nsenter", "ssh", "ssh-keygen", "sshd")
        self.directory = directory
        self.nodes = []
        try:
            self._prepare(count)
            for number in range(1, count + 1):
                self.nodes.append(Node(self, number))
        except (OSError, subprocess.CalledProcessError) as error:
            self.end()
            raise Skip("no network of namespaces here: %s %s" % (error, getattr(error, "output", ""))) from error

    def _prepare(self, count):
        run("hostname", "front")
        run("mount", "--make-rprivate", "/")
        run("mount", "-t", "tmpfs", "tmpfs", "/run")
        os.mkdir("/run/sshd")
        home = os.path.join(self.directory, "ssh")
        os.mkdir(home, 0o700)
        os.makedirs("/root/.ssh", mode=0o700, exist_ok=True)
        run("mount", "--bind", home, "/root/.ssh")
        with open(os.path.join(self.directory, "hosts"), "w", encoding="ascii") as hosts:
            hosts.write("127.0.0.1 localhost\n%s254 front\n" % NETWORK)
            hosts.writelines("%s%d node-%d\n" % (NETWORK, number, number) for number in range(1, count + 1))
        run("mount", "--bind", hosts.name, "/etc/hosts")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "bridge", "type", "bridge")
        run("ip", "address", "add", NETWORK + "254/24", "dev", "bridge")
        run("ip", "link", "set", "bridge", "up")
        for name in ("host_key", "key"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(self.directory, name))
        shutil.copy(os.path.join(self.directory, "key"), os.path.join(home, "id_ed25519"))
        with open(os.path.join(self.directory, "host_key.pub"), encoding="ascii") as key, open(os.path.join(home, "known_hosts"), "w", encoding="ascii") as known:
            line = key.read()
            for number in range(1, count + 1):
                known.write("node-%d,%s%d %s" % (number, NETWORK, number, line))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.end()

    def names(self):
        return "node-[1-%d]" % len(self.nodes)

    def end(self):
        for node in self.nodes:
            node.end()


class HungJob:
    """fixtures/jobs/train.py on the nodes, `per_node` ranks on each: one rank waits for data, the others for that rank."""

    def __init__(self, cluster, per_node, blocked_rank=0):
        self.cluster, self.per_node, self.blocked_rank = cluster, per_node, blocked_rank
        need_torch()
        self.world = per_node * len(cluster.nodes)
        shard = os.path.join(cluster.directory, "shard.bin")
        os.mkfifo(shard)
        self.shard = os.open(shard, os.O_RDWR)
        fifo = os.path.join(cluster.directory, "progress")
        os.mkfifo(fifo)
        self.progress = os.open(fifo, os.O_RDWR)
        environment = dict(os.environ, WORLD_SIZE=str(self.world), LOCAL_WORLD_SIZE=str(per_node), MASTER_ADDR=cluster.nodes[0].address, MASTER_PORT="29500",
                           GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1", JOB_SHARD=shard, JOB_BLOCKED_RANK=str(blocked_rank), JOB_WORKERS="0",
                           JOB_PROGRESS_FD="9", PYTHONDONTWRITEBYTECODE="1")
        self.ranks = []
        self.start(environment, ["sh", "-c", 'exec 9>"$0"; exec /usr/bin/python3 "$1"', fifo, os.path.join(SOURCE, "fixtures", "jobs", "train.py")])
        self._wait_for_hang()

    def start(self, environment, command):
        for rank in range(self.world):
            node = self.cluster.nodes[rank // self.per_node]
            with open(os.path.join(self.cluster.directory, "rank-%d.log" % rank), "wb") as log:
                self.ranks.append(subprocess.Popen(node.command(*command), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                   env=dict(environment, RANK=str(rank), LOCAL_RANK=str(rank % self.per_node))))

    def _wait_for_hang(self):
        deadline = time.monotonic() + 120
        steps, blocked, text = {}, False, b""
        while not blocked or len(steps) < self.world or any(
                step <= steps[self.blocked_rank] for rank, step in steps.items() if rank != self.blocked_rank):
            check(time.monotonic() < deadline, "the job does not hang: %r" % steps)
            check(all(rank.poll() is None for rank in self.ranks), "a rank has ended: see its log")
            if not select.select([self.progress], [], [], 0.2)[0]:
                continue
            *lines, text = (text + os.read(self.progress, 65536)).split(b"\n")
            for line in lines:
                rank, what, *number = line.split()
                blocked |= what == b"blocks"
                if what == b"step":
                    steps[int(rank)] = int(number[0])

    def pids(self):
        """Of the ranks, as the front end numbers them."""
        return [int(open("/proc/%d/task/%d/children" % (rank.pid, rank.pid), encoding="ascii").read().split()[0]) for rank in self.ranks]

    def check_unharmed(self):
        for pid in self.pids():
            for task in os.listdir("/proc/%d/task" % pid):
                with open("/proc/%d/task/%s/status" % (pid, task), encoding="utf-8") as status:
                    fields = dict(line.split(":", 1) for line in status if ":" in line)
                check(int(fields["TracerPid"]) == 0 and fields["State"].split()[0] not in "tT", "pid %d task %s: %r" % (pid, task, fields["State"]))


class Slurm:
    """slurmctld and munged on the front end, one slurmd on each node."""

    def __init__(self, cluster):
        needs("munged", "slurmctld", "slurmd", "srun", "squeue", "scontrol")
        self.cluster = cluster
        # Not below the test's directory: slurmstepd listens at "spool-node-1/node-1_1.0", and a socket's path has 108 bytes.
        directory = self.directory = tempfile.mkdtemp(prefix="slurm-")
        os.mkdir(os.path.join(directory, "state"))
        self.config = os.path.join(directory, "slurm.conf")
        key = os.path.join(directory, "munge.key")
        with open(key, "wb") as out:
            out.write(os.urandom(128))
        os.chmod(key, 0o400)
        os.makedirs("/run/munge", mode=0o755)
        with open(self.config, "w", encoding="ascii") as out:
            out.write("\n".join((
                "ClusterName=test", "SlurmctldHost=front(%s254)" % NETWORK, "AuthType=auth/munge", "CredType=cred/munge", "AuthInfo=socket=/run/munge/socket",
                "SlurmUser=root", "StateSaveLocation=%s/state" % directory, "SlurmdSpoolDir=%s/spool-%%n" % directory,
                "SlurmdPidFile=%s/slurmd-%%n.pid" % directory, "SlurmctldPidFile=%s/slurmctld.pid" % directory, "ProctrackType=proctrack/linuxproc",
                "TaskPlugin=task/none", "MpiDefault=none", "ReturnToService=2", "SelectType=select/cons_tres", "SlurmdParameters=config_overrides",
                "SlurmctldTimeout=30", "SlurmdTimeout=300", "MessageTimeout=5", "KillWait=2", "JobAcctGatherType=jobacct_gather/none",
                "NodeName=node-[1-%d] CPUs=4 RealMemory=1000 State=UNKNOWN" % len(cluster.nodes),
                "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")) + "\n")
        self.environment = dict(os.environ, SLURM_CONF=self.config)
        self.slurmds = {}
        self.daemons = []
        self._start("munged", ["munged", "--foreground", "--force", "--key-file=" + key, "--socket=/run/munge/socket", "--pid-file=%s/munged.pid" % directory,
                               "--log-file=%s/munged.log" % directory, "--seed-file=%s/munged.seed" % directory])
        wait_until(lambda: os.path.exists("/run/munge/socket"), "munged")
        self._start("slurmctld", ["slurmctld", "-D", "-f", self.config])
        for node in cluster.nodes:
            os.mkdir(os.path.join(directory, "spool-" + node.name))
            self.slurmds[node.name] = self._start("slurmd-" + node.name, node.command("/usr/sbin/slurmd", "-D", "-N", node.name, "-f", self.config))
        wait_until(lambda: self.control("sinfo", "--noheader", "--format=%T %D").split() == ["idle", str(len(cluster.nodes))], "idle nodes of Slurm")

    def _start(self, name, command):
        path = os.environ["PATH"] + ":/usr/sbin"
        with open(os.path.join(self.cluster.directory, name + ".log"), "wb") as log:
            self.daemons.append(subprocess.Popen([shutil.which(command[0], path=path)] + command[1:], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                 env=self.environment))
        return self.daemons[-1]

    def control(self, *command):
        return subprocess.run(list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
                              env=self.environment).stdout

    def steps(self, job):
        return sorted(self.control("squeue", "--steps", "--noheader", "--jobs=" + job, "--format=%i").split())

    def stop_slurmd(self, node):
        daemon = self.slurmds[node.name]
        with open("/proc/%d/task/%d/children" % (daemon.pid, daemon.pid), encoding="ascii") as children:
            for pid in children.read().split():
                os.kill(int(pid), signal.SIGKILL)       # slurmstepd, and with it the ranks, go on
        daemon.wait(timeout=20)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


class SlurmJob(HungJob):
    """The same job, started by srun."""

    def __init__(self, cluster, slurm, per_node, blocked_rank):
        self.slurm, self.number = slurm, None
        super().__init__(cluster, per_node, blocked_rank)

    def start(self, environment, command):
        words = ["sh", "-c", 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID; exec "$@"', "rank"] + command
        with open(os.path.join(self.cluster.directory, "srun.log"), "wb") as log:
            self.ranks.append(subprocess.Popen(["srun", "--nodes=%d" % len(self.cluster.nodes), "--ntasks-per-node=%d" % self.per_node] + words,
                                               stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(environment, SLURM_CONF=self.slurm.config)))
        wait_until(lambda: self.slurm.control("squeue", "--noheader", "--states=RUNNING", "--format=%i").strip(), "the job of Slurm")
        self.number = self.slurm.control("squeue", "--noheader", "--format=%i").strip()
