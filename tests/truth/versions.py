"""Versions, settings and limits of real processes and their cores, and what differs between ranks."""
import glob
import json
import os
import platform
import resource
import subprocess
import sys

import cases
import debugger
from command_line import SOURCE, text_of
from core_files import build_id
from processes import Fixture, Skip, check, json_report, run_tool

PROGRAM = r'''
import ctypes, json, os, sys
loaded = [ctypes.CDLL(path) for path in sys.argv[2:]]
os.environ["NCCL_SET_LATER"] = "1"
if sys.argv[1] != "-":
    os.chroot(sys.argv[1])
print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
for line in sys.stdin:
    print("alive", flush=True)
'''
# No process of a test inherits settings from the shell that runs it.
CLEAN = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


def rank(number, world, *libraries, root="-", limits=None, **variables):
    """A Python process with a rank's variables that has loaded these libraries."""
    environment = dict(CLEAN, RANK=str(number), WORLD_SIZE=str(world), LOCAL_RANK=str(number), **variables)
    before = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits)) if limits else None
    return Fixture(["/usr/bin/python3", "-c", PROGRAM, root] + list(libraries), env=environment, preexec_fn=before)


class Ranks:
    def __init__(self, *fixtures):
        self.fixtures = []
        try:
            for start in fixtures:
                self.fixtures.append(start())
        except BaseException:
            self.end()
            raise
        self.pids = ",".join(str(fixture.pid) for fixture in self.fixtures)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.end()

    def end(self):
        for fixture in self.fixtures:
            fixture.end()

    def cores(self, directory):
        paths = [os.path.join(directory, "core.%d" % fixture.pid) for fixture in self.fixtures]
        for fixture, path in zip(self.fixtures, paths):
            if not os.path.exists(path):
                debugger.write_core(fixture.pid, path)
        return paths


def library(directory, name, version):
    """A library with a text as NCCL has one; each version has a build-id of its own."""
    os.makedirs(directory, exist_ok=True)
    path, source = os.path.join(directory, name), os.path.join(directory, "source.c")
    with open(source, "w", encoding="utf-8") as stream:
        stream.write('const char* version(void) { return "NCCL version %s"; }\n' % version)
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,--build-id=sha1", "-o", path, source], check=True)
    return path


def modules_of(report, number, name):
    found = [one for one in report["ranks"] if one["rank"] == number]
    check(len(found) == 1, "rank %d is there %d times" % (number, len(found)))
    return [module for module in found[0]["modules"] if module["name"] == name]


def summaries(report):
    return [difference["summary"] for difference in report["differences"]]


# Of a job of four ranks: one setting that only rank 1 has, one that it has otherwise, and two that differ between all ranks.
JOB_SETTINGS = ["--environment", "1:NCCL_ALGO=Ring", "--environment", "1:OMP_NUM_THREADS=2"]
JOB_SETTINGS += [word for number in range(4) for word in ("--environment", "%d:TORCH_HOME=/tmp/rank-%d" % (number, number))]
JOB_SETTINGS += [word for number in range(4) for word in ("--environment", "%d:CUDA_VISIBLE_DEVICES=%d" % (number, number))]
JOB_DIFFERENCES = ["NCCL_ALGO=Ring on rank 1, not set on the 3 others", "OMP_NUM_THREADS=2 on rank 1, 1 on the 3 others"]


def check_live_job(directory, report):
    """Of the torch job of jobs.py, while it runs."""
    expected = JOB_DIFFERENCES
    saved = os.path.join(directory, "report.json")
    installed = subprocess.run(["/usr/bin/python3", "-c", "import torch; print(torch.__version__)"], stdout=subprocess.PIPE, check=True).stdout.decode()
    check(summaries(report) == expected, "live: %r" % summaries(report))
    check([one["rank"] for one in report["verdict"]["suspects"]] == [2] and "differences" not in report["verdict"], "%r" % report["verdict"])
    for one in report["ranks"]:
        versions = {module["name"]: module for module in one["modules"]}
        check({"torch", "Python", "glibc", "libstdc++"} <= set(versions), "rank %r has %r" % (one["rank"], sorted(versions)))
        check(versions["Python"]["version"] == platform.python_version() == one["python"]["version"], "%r" % versions["Python"])
        for module in one["modules"]:
            check(os.path.exists(module["path"]), "no such file: %r" % module)
            check(module["build_id"] == build_id(module["path"]), "another build-id: %r" % module)
        check(installed.startswith(".".join(versions["torch"]["version"].split(".")[:2])), "torch %r, not %r" % (versions["torch"], installed))
        libc = platform.libc_ver()[1]
        check(versions["glibc"]["version"].startswith(libc), "glibc %r, not %r" % (versions["glibc"], libc))
        environment = one["environment"]
        check(environment["kernel"] == platform.release(), "%r" % environment["kernel"])
        check(environment["variables"]["TORCH_HOME"] == "/tmp/rank-%d" % one["rank"], "%r" % environment["variables"])
        with open("/proc/%d/status" % one["pid"], encoding="utf-8") as status:
            cpus = [line.split()[1] for line in status if line.startswith("Cpus_allowed_list:")]
        check([environment["cpus"]] == cpus, "%r, not %r" % (environment["cpus"], cpus))
        soft, hard = (None if limit == resource.RLIM_INFINITY else limit for limit in resource.prlimit(one["pid"], resource.RLIMIT_STACK))
        check(environment["limits"]["stack-size"] == {"soft": soft, "hard": hard}, "%r" % environment["limits"])
    with open(saved, "w", encoding="utf-8") as stream:
        json.dump(report, stream)
    again = json_report("report", saved)
    check(again["differences"] == report["differences"] and [one["modules"] for one in again["ranks"]] == [one["modules"] for one in report["ranks"]]
          and [one["environment"] for one in again["ranks"]] == [one["environment"] for one in report["ranks"]], "read back: %r" % again["differences"])
    for form in ("text", "markdown"):
        status, out, _ = run_tool("report", saved, "--format", form, "--no-redact")
        text = text_of(out)
        check(status == 0 and "torch" in text.split("torch_")[0] and platform.python_version() in text, text)
        check("NCCL_ALGO=Ring" in text and "TORCH_HOME=/tmp/rank-1 " not in text.split("<details>")[0], text)


def check_cores_of_job(report):
    expected = JOB_DIFFERENCES
    check(summaries(report) == expected, "cores: %r" % summaries(report))
    for one in report["ranks"]:
        versions = {module["name"]: module["version"] for module in one["modules"]}
        check(versions["Python"] == platform.python_version() and versions["torch"] and versions["glibc"], "core: %r" % versions)
        check("limits" not in one["environment"] and "cpus" not in one["environment"], "a core states no limits: %r" % one["environment"])


def case_one_rank_with_another_version(directory):
    old = library(os.path.join(directory, "old"), "libnccl.so.2", "2.27.3+cuda12.9")
    new = library(os.path.join(directory, "new"), "libnccl.so.2", "2.28.9+cuda13.0")
    expected = "NCCL 2.27.3 on rank 1, 2.28.9 on the 2 others"
    with Ranks(lambda: rank(0, 3, new), lambda: rank(1, 3, old), lambda: rank(2, 3, new)) as ranks:
        report = json_report("attach", "--pids", ranks.pids)
        check(summaries(report) == [expected], "live: %r" % summaries(report))
        check(modules_of(report, 1, "NCCL") == [{"name": "NCCL", "path": old, "build_id": build_id(old), "version": "2.27.3", "version_from": "text", "cuda": "12.9"}],
              "%r" % modules_of(report, 1, "NCCL"))
        variables = report["ranks"][0]["environment"]["variables"]
        check(variables == {"NCCL_SET_LATER": "1"}, "the variables: %r" % variables)
        report = json_report("core", *ranks.cores(directory))
        check(summaries(report) == [expected], "cores: %r" % summaries(report))
        parts = []
        for number, pids in enumerate((ranks.fixtures[:1], ranks.fixtures[1:2], ranks.fixtures[2:])):
            part = json_report("attach", "--pids", ",".join(str(one.pid) for one in pids))
            for one in part["ranks"]:
                one["host"] = "node-%d" % number
            parts.append(os.path.join(directory, "part-%d.json" % number))
            with open(parts[-1], "w", encoding="utf-8") as stream:
                json.dump(part, stream)
        report = json_report("report", *parts)
        check(summaries(report) == ["NCCL 2.27.3 on node-1 (rank 1), 2.28.9 on the 2 others"], "merged: %r" % summaries(report))
        for fixture in ranks.fixtures:
            fixture.check_unharmed()


def case_the_file_is_gone(directory):
    """A library that was deleted after it was loaded still says its version."""
    path = library(os.path.join(directory, "lib"), "libnccl.so.2", "2.27.3")
    with Ranks(lambda: rank(0, 1, path)) as ranks:
        os.unlink(path)
        report = json_report("attach", "--pids", ranks.pids)
        check([module["version"] for module in modules_of(report, 0, "NCCL")] == ["2.27.3"], "%r" % modules_of(report, 0, "NCCL"))


def case_real_nccl(directory):
    found = sorted(path for pattern in ("/usr/local/cuda*/lib*/libnccl.so.2", "/usr/lib/*/libnccl.so.2", "/opt/*/lib/libnccl.so.2") for path in glob.glob(pattern))
    if not found:
        raise Skip("there is no libnccl.so.2 on this machine")
    runtime = sorted(glob.glob(os.path.join(os.path.dirname(found[0]), "libcudart.so.1[0-9]")))
    loads = subprocess.run([sys.executable, "-c", "import ctypes, sys; [ctypes.CDLL(path) for path in sys.argv[1:]]", found[0]] + runtime, stderr=subprocess.PIPE, check=False)
    if loads.returncode != 0:
        raise Skip("%s cannot be loaded here" % found[0])
    asked = subprocess.run([sys.executable, "-c", "import ctypes, sys; v = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); print(v.value)", found[0]],
                           stdout=subprocess.PIPE, check=True)
    code = int(asked.stdout)
    with Ranks(lambda: rank(0, 1, found[0], *runtime)) as ranks:
        report = json_report("attach", "--pids", ranks.pids)
        module = modules_of(report, 0, "NCCL")[0]
        check(module["version"] == "%d.%d.%d" % (code // 10000, code // 100 % 100, code % 100), "%r, and NCCL says %d" % (module, code))
        if runtime:
            version = modules_of(report, 0, "CUDA runtime")[0]["version"]
            check(version.split(".")[0] == runtime[0].rsplit(".", 1)[1], "%r" % version)
        core = json_report("core", *ranks.cores(directory))
        check(modules_of(core, 0, "NCCL")[0]["version"] == module["version"], "core: %r" % modules_of(core, 0, "NCCL"))


def case_a_driver_that_is_too_old(directory):
    driver, runtime = (library(os.path.join(directory, "lib"), name, "x") for name in ("libcuda.so.535.104.12", "libcudart.so.13"))
    with Ranks(lambda: rank(0, 2, driver, runtime), lambda: rank(1, 2)) as ranks:
        report = json_report("attach", "--pids", ranks.pids)
        check(summaries(report) == ["driver 535.104.12 is too old for CUDA 13, which needs 580: rank 0"], "%r" % summaries(report))
        check(report["differences"][0]["values"] == [{"value": "535.104.12", "ranks": [0]}], "%r" % report["differences"])


def case_packages_and_their_metadata(directory):
    site = os.path.join(directory, "v", "lib", "python3", "site-packages")
    paths = {}
    for name, version in (("good", "2.28.9"), ("pipe", None), ("link", None), ("broken", None)):
        place = site.replace("/v/", "/%s/" % name)
        paths[name] = library(os.path.join(place, "nvidia", "nccl", "lib"), "libnccl.so.2", "unknown")
        metadata = os.path.join(place, "nvidia_nccl_cu12-2.28.9.dist-info")
        os.makedirs(metadata)
        metadata = os.path.join(metadata, "METADATA")
        if name == "pipe":
            os.mkfifo(metadata)
        elif name == "link":
            os.symlink("/proc/self/mem", metadata)
        else:
            with open(metadata, "w", encoding="utf-8") as stream:
                stream.write("Metadata-Version: 2.1\nName: nvidia-nccl-cu12\nVersion: %s\n\nVersion: 9.9\n" % (version or "\x1b[31m"))
    names = sorted(paths)
    with Ranks(*[lambda number=number, name=name: rank(number, 4, paths[name]) for number, name in enumerate(names)]) as ranks:
        report = json_report("attach", "--pids", ranks.pids)
        found = {name: (modules_of(report, number, "NCCL")[0]["version"], modules_of(report, number, "NCCL")[0].get("version_from")) for number, name in enumerate(names)}
        check(found == {"good": ("2.28.9", "metadata"), "pipe": (None, None), "link": (None, None), "broken": (None, None)}, "%r" % found)


def case_the_distribution_of_another_root(directory):
    if os.geteuid() != 0:
        raise Skip("only root may chroot")
    cases_of = {"link": "Inside 1.0", "out": None, "pipe": None, "broken": None}
    starts = []
    for number, name in enumerate(sorted(cases_of)):
        root = os.path.join(directory, name)
        os.makedirs(os.path.join(root, "etc"))
        os.makedirs(os.path.join(root, "real"))
        path = os.path.join(root, "etc", "os-release")
        if name == "link":
            os.symlink("/real/os-release", path)
            with open(os.path.join(root, "real", "os-release"), "w", encoding="utf-8") as stream:
                stream.write('NAME=Inside\nVERSION_ID="1.0"\n')
        elif name == "out":
            with open(os.path.join(directory, "secret"), "w", encoding="utf-8") as stream:
                stream.write("PRETTY_NAME=outside\n")
            os.symlink("../../secret", path)
        elif name == "pipe":
            os.mkfifo(path)
        else:
            with open(path, "wb") as stream:
                stream.write(b"\0\xff=\n" * 100000)
        starts.append(lambda number=number, root=root: rank(number, len(cases_of), root=root))
    with Ranks(*starts) as ranks:
        report = json_report("attach", "--pids", ranks.pids)
        found = {name: report["ranks"][number]["environment"].get("distribution") for number, name in enumerate(sorted(cases_of))}
        check(found == cases_of, "%r" % found)


def case_limits_differ(directory):
    with Ranks(lambda: rank(0, 2, limits=(256, 512)), lambda: rank(1, 2, limits=(128, 512))) as ranks:
        report = json_report("attach", "--pids", ranks.pids)
        check(summaries(report) == ["limit of open files: 128 on rank 1, 256 on rank 0"], "%r" % summaries(report))
        check(report["ranks"][0]["environment"]["limits"]["open-files"] == {"soft": 256, "hard": 512}, "%r" % report["ranks"][0]["environment"])


def case_an_affinity_of_each_rank(directory):
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) < 2:
        raise Skip("this machine has one processor")
    with Ranks(lambda: rank(0, 3), lambda: rank(1, 3), lambda: rank(2, 3)) as ranks:
        for number, fixture in enumerate(ranks.fixtures[:2]):
            os.sched_setaffinity(fixture.pid, {processors[number]})
        os.sched_setaffinity(ranks.fixtures[2].pid, {processors[0]})
        report = json_report("attach", "--pids", ranks.pids)
        check(summaries(report) == [], "%r" % summaries(report))
        os.sched_setaffinity(ranks.fixtures[2].pid, set(processors[:2]))
        report = json_report("attach", "--pids", ranks.pids)
        check(summaries(report) == ["CPUs to run on: 2 on rank 2, 1 on the 2 others"], "%r" % summaries(report))


def case_secrets_in_settings(directory):
    secrets = {"NCCL_API_TOKEN": "correct-horse-battery", "NCCL_NOTE": "gh" + "p_9aZ8bY7cX6dW5eV4fU3gT2hS1iR0jQ", "TORCH_HUB_URL": "https://bob:hunter2horse@acme.example/x",
               "UCX_PASSWORD": "swordfish77", "PYTHON_KEYRING": "AK" + "IAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI", "MY_NAME": "zaphod-beeblebrox"}
    words = ["correct-horse", "9aZ8bY7cX6dW5eV4", "hunter2horse", "swordfish77", "AIOSFODNN7", "wJalrXUtnFEMI", "zaphod-beeblebrox"]
    with Ranks(lambda: rank(0, 2, **secrets), lambda: rank(1, 2, NCCL_HOME="/home/alicia/nccl")) as ranks:
        for form in ("text", "json", "markdown", "folded"):
            for redact in ("--redact", "--no-redact"):
                _, out, err = run_tool("attach", "--pids", ranks.pids, "--format", form, redact)
                text = out.decode() + err.decode()
                for word in words + (["alicia"] if redact == "--redact" else []):
                    at = text.find(word)
                    check(at < 0, "%s %s has %r: ...%s" % (form, redact, word, text[max(0, at - 200):at + 100]))
        report = json_report("attach", "--pids", ranks.pids)
        names = set(report["ranks"][0]["environment"]["variables"])
        check("NCCL_API_TOKEN" in names and not {"AWS_SECRET_ACCESS_KEY", "MY_NAME", "RANK"} & names, "%r" % names)


if __name__ == "__main__":
    cases.run(globals(), "versions")
