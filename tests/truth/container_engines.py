"""`rankstacks job --podman` and `--docker` on real containers: the verdict of one machine, and containers that cannot be asked by name."""
import glob
import json
import os
import resource
import shutil
import signal
import subprocess
import time

import cases
from command_line import SOURCE
from many_nodes import ask, verdict_of
from nodes import INSIDE, HungJob, enter_namespaces, run
from processes import Skip, check, json_report, tool, wait_until

LIBRARIES = ["/usr", "/etc/alternatives", "/etc/ld.so.cache", os.path.join(SOURCE, "fixtures")]

GROUP = "/rankstacks-containers"      # the control group of all of them, which is removed at the end


class Engine:
    """An engine with storage and state of the test's own, in its namespaces: it ends with them, and its containers with it."""
    name, programs, storage, run_options = "", (), (), ()

    def __init__(self, directory):
        missing = [program for program in self.programs if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
        if missing:
            raise Skip("not installed: %s (scripts/setup cluster)" % ", ".join(missing))
        if INSIDE not in os.environ:
            raise Skip("namespaces for containers need root and unshare")
        self.directory = directory
        self.names = []
        try:
            run("mount", "--make-rprivate", "/")
            run("ip", "link", "set", "lo", "up")
            for place in ("/run", "/dev/shm") + self.storage:
                os.makedirs(place, exist_ok=True)
                run("mount", "-t", "tmpfs", "tmpfs", place)
            # crun takes control groups of version 1 or 2, but not both of them.
            if os.path.ismount("/sys/fs/cgroup/unified"):
                run("umount", "/sys/fs/cgroup/unified")
            self.prepare()
            self.start("probe", ["sleep", "100000"])
        except subprocess.CalledProcessError as error:
            self.end()
            raise Skip("%s starts no container here: %s" % (self.name, (error.output or "").strip())) from error

    def prepare(self):
        """Sets the engine up."""

    def root_words(self, name, root):
        """The end of the options of `run`: what the container's files are."""
        return ["--rootfs", root]

    def start(self, name, command, *options, environment=()):
        """A container with this machine's /usr and fixtures, and with nothing of the tool."""
        root = os.path.join(self.directory, "root-" + name)
        for place in ("usr", "proc", "dev", "sys", "tmp", "etc", "run", "var"):
            os.makedirs(os.path.join(root, place))
        for link in ("bin", "sbin", "lib", "lib64"):
            os.symlink("usr/" + link, os.path.join(root, link))
        words = [self.name, "run", "--detach", "--name", name, "--hostname", name, "--network", "host"] + list(self.run_options)
        for path in LIBRARIES:
            words += ["--volume", "%s:%s:ro" % (path, path)]
        for key, value in dict(environment).items():
            words += ["--env", "%s=%s" % (key, value)]
        self.names.append(name)
        run(*words, "--volume", "%s:%s" % (self.directory, self.directory), *options, *self.root_words(name, root), *command)

    def pid(self, name):
        """Of its first process, as this test numbers it; 0: it has ended."""
        return int(run(self.name, "inspect", "--format", "{{.State.Pid}}", name))

    def left_in(self, name):
        """What the tool has left there: its processes, its copy."""
        first = self.pid(name)
        namespace = os.stat("/proc/%d/ns/pid" % first).st_ino
        found = glob.glob("/proc/%d/root/tmp/rankstacks*" % first)
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.stat("/proc/%s/ns/pid" % entry).st_ino == namespace:
                    with open("/proc/%s/cmdline" % entry, "rb") as line:
                        found.append(line.read().replace(b"\0", b" ").decode(errors="replace").strip())
            except OSError:
                continue
        return [text for text in found if "rankstacks" in text and "train.py" not in text]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.end()

    def end(self):
        def quietly(*words):
            subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False)
        for name in self.names:
            quietly(self.name, "unpause", name)
            quietly(self.name, "kill", name)
            quietly(self.name, "rm", "--force", name)
        for group in glob.glob("/sys/fs/cgroup/*" + GROUP) + glob.glob("/sys/fs/cgroup" + GROUP):
            quietly("find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";")


class Podman(Engine):
    name, programs, storage, run_options = "podman", ("podman", "crun", "ip"), ("/var/lib/containers",), ("--pull", "never", "--cgroup-parent", GROUP)

    def prepare(self):
        limits = ["%s=%d:%d" % (name, *resource.getrlimit(number)) for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))]
        texts = {"CONTAINERS_CONF": '[containers]\ndefault_ulimits = %s\n[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\nruntime = "crun"\n' % json.dumps(limits),
                 "CONTAINERS_STORAGE_CONF": '[storage]\ndriver = "vfs"\nrunroot = "/run/storage"\ngraphroot = "/var/lib/containers/storage"\n',
                 "CONTAINERS_REGISTRIES_CONF": ""}
        for variable, text in texts.items():
            os.environ[variable] = os.path.join(self.directory, variable.lower())
            with open(os.environ[variable], "w", encoding="ascii") as out:
                out.write(text)


class Docker(Engine):
    name, programs, storage = "docker", ("docker", "dockerd", "containerd", "runc", "ip"), ("/var/lib/docker", "/var/lib/containerd")
    daemon = None

    def prepare(self):
        path = os.environ["PATH"] + ":/usr/sbin:/sbin"
        log = os.path.join(self.directory, "dockerd.log")
        words = [shutil.which("dockerd", path=path), "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--bridge=none", "--storage-driver=vfs",
                 "--cgroup-parent=" + GROUP, "--exec-opt", "native.cgroupdriver=cgroupfs"]
        with open(log, "wb") as out:
            self.daemon = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=dict(os.environ, PATH=path))
        works = ["docker", "version"]
        for _ in range(120):
            if self.daemon.poll() is not None or subprocess.run(works, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0:
                break
            time.sleep(0.25)
        if self.daemon.poll() is not None:
            with open(log, encoding="utf-8", errors="replace") as said:
                raise subprocess.CalledProcessError(self.daemon.returncode, "dockerd", said.read()[-500:])

    def root_words(self, name, root):
        packed = os.path.join(self.directory, name + ".tar")
        run("tar", "-C", root, "-cf", packed, ".")
        run("docker", "import", packed, name + ":1")
        return [name + ":1"]

    def end(self):
        super().end()
        if self.daemon is not None:
            self.daemon.terminate()
            self.daemon.wait(timeout=60)


class Container:
    """Stands for a rank's process and for its node in HungJob."""
    address = "127.0.0.1"

    def __init__(self, engine, name):
        self.engine, self.name = engine, name

    def poll(self):
        return None if self.engine.pid(self.name) else 0


class ContainerJob(HungJob):
    """The hung job, one rank in each container train-N. The ranks of `without_right` are another user's, in containers without
    CAP_SYS_PTRACE."""

    def __init__(self, engine, count, blocked_rank, without_right=(), options=("--cap-add", "SYS_PTRACE")):
        self.engine, self.without_right, self.options, self.directory = engine, without_right, options, engine.directory
        self.nodes = [Container(engine, "train-%d" % number) for number in range(count)]
        super().__init__(self, 1, blocked_rank)

    def start(self, environment, command):
        os.chmod(environment["JOB_SHARD"], 0o644)
        os.chmod(self.directory, 0o755)
        for rank, node in enumerate(self.nodes):
            words, options = list(command), list(self.options)
            if rank in self.without_right:
                words[2] = words[2].replace("exec /usr/bin/python3", "exec setpriv --reuid 1000 --clear-groups /usr/bin/python3")
                options = []
            keys = {key: value for key, value in environment.items() if key.startswith(("JOB_", "MASTER_", "OMP_", "PYTHON")) or key.endswith("WORLD_SIZE")}
            self.engine.start(node.name, words, "--label", "job=hung", *options, environment=dict(keys, RANK=rank, LOCAL_RANK=0, GLOO_SOCKET_IFNAME="lo"))
        self.ranks = self.nodes

    def pids(self):
        return [self.engine.pid(node.name) for node in self.nodes]


def node_faults(report):
    return {node["name"]: node["fault"] for node in report["nodes"] if node["fault"]}


def say_what_one_machine_does(engine):
    with engine:
        option = "--" + engine.name
        job = ContainerJob(engine, 4, blocked_rank=1)
        expected = verdict_of(json_report("attach", "--pids", *map(str, job.pids())))
        check(expected == ("culprit", [(1, "data-loading")]), "one machine: %r" % (expected,))
        run(engine.name, "stop", "--time", "0", "probe")
        for words in ([option, "train-[0-3]"], [option, "label=job=hung"], ["--hosts", "train-[0-3]", "--via", engine.name]):
            report, _ = ask(*words)
            check(verdict_of(report) == expected, "%r: %r" % (words, report["verdict"]))
            check([(node["name"], node["engine"], node["status"]) for node in report["nodes"]] == [("train-%d" % n, engine.name, "answered") for n in range(4)],
                  "%r: %r" % (words, report["nodes"]))
            check([(rank["rank"], rank["host"]) for rank in report["ranks"]] == [(n, "train-%d" % n) for n in range(4)], "%r: its ranks" % words)
            job.check_unharmed()
            for node in job.nodes:
                wait_until(lambda node=node: not engine.left_in(node.name), "the end of the tool in %s" % node.name)
        # The tool is killed while it copies itself, and while the containers sample: the ranks go on, and nothing stays there.
        for moment, has_come in (("copying", lambda left: left), ("sampling", lambda left: any("--internal-node" in text for text in left))):
            process = subprocess.Popen([tool(), "job", option, "train-[0-3]", "attach", "--samples", "400", "--interval", "0.1", "--max-wait", "40"],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until(lambda has_come=has_come: all(has_come(engine.left_in(node.name)) for node in job.nodes), "the tool in all containers, " + moment, 30)
            process.send_signal(signal.SIGKILL)
            process.wait()
            started = time.monotonic()
            for node in job.nodes:
                wait_until(lambda node=node: not engine.left_in(node.name), "the end of the tool in %s, %s" % (node.name, moment), 60)
            print("%s: nothing is left %.1f s after SIGKILL" % (moment, time.monotonic() - started))
            job.check_unharmed()


def name_those_that_cannot_be_asked(engine):
    with engine:
        option = "--" + engine.name
        job = ContainerJob(engine, 4, blocked_rank=1, without_right=(3,))
        run(engine.name, "stop", "--time", "0", "probe")
        run(engine.name, "pause", "train-2")
        report, err = ask(option, "train-[0-4],probe", expect=1)
        check(node_faults(report) == {"train-2": "node-down", "train-3": "not-permitted", "train-4": "no-target", "probe": "node-down"}, "%r" % report["nodes"])
        check(verdict_of(report) == ("culprit", [(1, "data-loading")]), "%r" % report["verdict"])
        refused = [node for node in report["nodes"] if node["name"] == "train-3"][0]
        check("--cap-add=SYS_PTRACE" in refused["hint"] and "as root on the machine itself" in refused["hint"], "%r" % refused)
        check(all(name in err for name in ("train-2", "train-3", "train-4", "probe")), err)
        run(engine.name, "unpause", "train-2")
        # On the machine itself all of them can be seen.
        report = json_report("attach", "--pids", *map(str, job.pids()))
        check([(rank["rank"], rank["status"]) for rank in report["ranks"]] == [(n, "complete") for n in range(4)], "%r" % [(rank["rank"], rank["status"]) for rank in report["ranks"]])
        none = subprocess.run([tool(), "job", option, "label=job=other"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
        check(none.returncode == 2 and none.stdout == b"" and b"no container that runs fits this filter" in none.stderr, "%r" % none)
        job.check_unharmed()


def case_podman_says_what_one_machine_does(directory):
    say_what_one_machine_does(Podman(directory))


def case_podman_names_those_that_cannot_be_asked(directory):
    name_those_that_cannot_be_asked(Podman(directory))


def case_docker_says_what_one_machine_does(directory):
    say_what_one_machine_does(Docker(directory))


def case_docker_names_those_that_cannot_be_asked(directory):
    name_those_that_cannot_be_asked(Docker(directory))


if __name__ == "__main__":
    enter_namespaces()
    cases.run(globals(), "container-engines")
