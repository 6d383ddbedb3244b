"""The image that scripts/package-image makes of the package: it starts in real engines, and looks into other containers from its own."""
import json
import os
import shutil
import subprocess
import tarfile

import cases
import schema
from command_line import SOURCE
from container_engines import ContainerJob, Docker, Podman, node_faults
from many_nodes import ask, verdict_of
from nodes import enter_namespaces, run
from package import made
from processes import Skip, check, json_report

MADE = os.path.join(SOURCE, "scripts", "package-image")


class Image:
    """Made of the package in a directory of the test's own, and loaded into the engine."""

    def __init__(self, engine):
        self.engine = engine
        missing = [program for program in ("buildah", "/bin/busybox") if not shutil.which(program)]
        if missing:
            raise Skip("not installed: %s (scripts/package-image)" % ", ".join(missing))
        package = made("rankstacks-*-linux-x86_64.tar.gz")
        shutil.copy(package, engine.directory)
        print(run(MADE, engine.directory))
        version = os.path.basename(package)[len("rankstacks-"):-len("-linux-x86_64.tar.gz")]
        self.name = "localhost/rankstacks:" + version
        run(engine.name, "load", "--input", os.path.join(engine.directory, "rankstacks-%s-image.tar" % version))
        left = [entry for entry in os.listdir(engine.directory) if entry.startswith("image.")]
        check(not left, "left by scripts/package-image: %r" % left)
        with tarfile.open(package) as archive:
            archive.extractall(engine.directory)
        self.tool = os.path.join(engine.directory, os.path.basename(package)[:-len(".tar.gz")], "bin", "rankstacks")

    def run(self, *words, options=(), expect=0):
        command = [self.engine.name, "run", "--rm", "--network", "none"] + list(self.engine.run_options) + list(options) + [self.name] + list(words)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
        check(done.returncode == expect, "%s: status %d: %s" % (" ".join(command), done.returncode, (done.stdout[-500:] + done.stderr[-1000:]).decode(errors="replace")))
        return done.stdout.decode()

    def start(self, name, *options):
        """A container of the image that waits, as one in a pod."""
        run(self.engine.name, "run", "--detach", "--name", name, "--network", "none", *self.engine.run_options, *options, "--entrypoint", "sleep", self.name, "100000")
        self.engine.names.append(name)


def stacks(report):
    """{rank: [[(language, module, function)]]}."""
    return {rank["rank"]: [[(frame["kind"], os.path.basename(frame.get("module") or ""), frame.get("function")) for frame in thread["frames"]] for thread in rank["threads"]]
            for rank in report["ranks"]}


def same_stacks(inside, outside):
    """The same frames. The image has none of the machine's debug files, so that functions which only these name are missing."""
    def same(a, b):
        return a[:2] == b[:2] and (a[2] is None or a[2].split("@")[0] == (b[2] or "").split("@")[0])
    return len(inside) == len(outside) and all(len(a) == len(b) and all(map(same, a, b)) for a, b in zip(inside, outside))


def looks_into_containers(engine):
    with engine:
        image = Image(engine)
        version = subprocess.run([image.tool, "--version"], stdout=subprocess.PIPE, timeout=60, check=True).stdout.decode()
        check(image.run("--version") == version, "its version")
        check("rankstacks attach" in image.run(), "without arguments it shows its help")
        listed = image.run("-c", "ls /usr/share/doc /usr/share/doc/rankstacks/licenses /usr/share/common-licenses; id -un", options=["--entrypoint", "sh"]).split()
        check({"libc6", "busybox-static", "rankstacks", "libdw-dev.txt", "LGPL-2.1", "GPL-2", "root"} <= set(listed), "%r" % listed)
        job = ContainerJob(engine, 2, blocked_rank=1, options=())
        expected = json_report("attach", "--pids", *map(str, job.pids()))
        check(verdict_of(expected) == ("culprit", [(1, "data-loading")]), "%r" % expected["verdict"])
        right = ["--cap-add", "SYS_PTRACE"]
        for rank, node in enumerate(job.nodes):
            report = json.loads(image.run("attach", "--pids", "1", "--format", "json", options=right + ["--pid", "container:" + node.name]))
            check(not schema.errors_in(report), "%r" % schema.errors_in(report)[:5])
            check(same_stacks(stacks(report)[rank], stacks(expected)[rank]), "rank %d: %r instead of %r" % (rank, stacks(report), stacks(expected)[rank]))
        debug = ["--volume", "/usr/lib/debug:/usr/lib/debug:ro"] if os.path.isdir("/usr/lib/debug") else []
        report = json.loads(image.run("attach", "--pids", "1", "--format", "json", options=right + debug + ["--pid", "container:train-1"]))
        check(stacks(report)[1] == stacks(expected)[1], "with debug files: %r instead of %r" % (stacks(report)[1], stacks(expected)[1]))
        report = json.loads(image.run("attach", "--job", "--format", "json", options=right + ["--pid", "host"]))
        check(verdict_of(report) == verdict_of(expected) and [rank["rank"] for rank in report["ranks"]] == [0, 1], "of the machine: %r" % report["verdict"])
        # As in a pod: next to each rank a container of the image, in the rank's pid namespace, is asked by `job`.
        for rank, node in enumerate(job.nodes):
            image.start("waiting-%d" % rank, *right, "--pid", "container:" + node.name)
        other = os.path.join(engine.directory, "other")
        shutil.copy(image.tool, other)
        with open(other, "ab") as out:
            out.write(b"another build")
        for words, program in ((["--no-copy"], image.tool), ([], other)):
            report, _ = ask("--" + engine.name, "waiting-[0-1]", *words, program=program)
            check(verdict_of(report) == verdict_of(expected) and not node_faults(report), "%s: %r %r" % (program, report["verdict"], report["nodes"]))
        report, _ = ask("--" + engine.name, "waiting-[0-1]", "--no-copy", program=other, expect=2)
        check(node_faults(report) == {"waiting-0": "cannot-copy", "waiting-1": "cannot-copy"}, "%r" % report["nodes"])
        job.check_unharmed()


def case_podman_looks_into_containers(directory):
    looks_into_containers(Podman(directory))


def case_docker_looks_into_containers(directory):
    looks_into_containers(Docker(directory))


if __name__ == "__main__":
    enter_namespaces()
    cases.run(globals(), "package-image")
