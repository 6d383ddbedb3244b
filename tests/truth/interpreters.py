"""Finds the CPythons on this machine that are to be tested."""
import contextlib
import glob
import os
import re
import resource
import shutil
import subprocess

from processes import Failure, Skip

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


NEWER = os.path.join(ROOT, "build", "newer-pythons")


class Interpreter:
    """`path` as the host sees it; `sysroot`: the directory in which it runs by chroot, or None; `environment`: variables that are set for
    it."""

    def __init__(self, path, sysroot=None, environment=None):
        self.path = path
        self.sysroot = sysroot
        self.stripped = sysroot is not None
        self.environment = environment or {}

    def named(self, path):
        """A path below the sysroot in the form that the interpreter sees."""
        return path if self.sysroot is None else "/" + os.path.relpath(path, self.sysroot)

    def run(self, script):
        return [self.named(self.path), self.named(script)]

    def options(self):
        """Options of subprocess.Popen: enters the sysroot, if there is one."""
        return self.in_directory(self.sysroot) if self.sysroot else {}

    def in_directory(self, place):
        """Options of subprocess.Popen: enters the sysroot, with `place`, a path of the host, as the current directory; cores may have
        any size."""
        def enter():
            resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
            if self.sysroot is not None:
                os.chroot(self.sysroot)
            os.chdir(self.named(place))
        return {"preexec_fn": enter}

    def evaluate(self, expression):
        """What the interpreter prints for an expression."""
        done = subprocess.run([self.named(self.path), "-c", "import sys; print(%s)" % expression], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              env=dict(os.environ, **self.environment), timeout=60, check=True, **self.options())
        return done.stdout.decode().strip()


@contextlib.contextmanager
def inside(interpreter, directory):
    """A directory with the programs that the interpreter can read: the same one, or a temporary copy in its sysroot."""
    if interpreter.sysroot is None:
        yield directory
        return
    place = os.path.join(interpreter.sysroot, "tmp", "%s.%d" % (os.path.basename(directory), os.getpid()))
    try:
        shutil.copytree(directory, os.path.join(place, "programs"), ignore=shutil.ignore_patterns("__pycache__"))
        yield os.path.join(place, "programs")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def version_key(path):
    return [int(part) for part in re.findall(r"\d+", path)]


def find(version):
    """The interpreter for "3.7" ... "3.15" or "system"; "3.14t" is the free-threaded build, "3.14jit" one that runs with its JIT compiler
    enabled."""
    if version == "system":
        if not os.access("/usr/bin/python3", os.X_OK):
            raise Skip("no /usr/bin/python3")
        return Interpreter("/usr/bin/python3")
    if version.endswith("t") and not version.endswith("jit"):
        return free_threaded(version)
    if version.endswith("jit"):
        found = find(version[:-len("jit")])
        if found.evaluate("hasattr(sys, '_jit') and sys._jit.is_available()") != "True":
            raise Skip("this CPython %s is built without a JIT compiler" % version[:-len("jit")])
        found.environment["PYTHON_JIT"] = "1"
        return found
    found = in_pyenv(version)
    return found if found else unpacked(version)


def in_pyenv(version):
    roots = [os.environ.get("PYENV_ROOT"), os.path.expanduser("~/.pyenv"), "/root/.pyenv", "/opt/pyenv"]
    for root in roots:
        found = glob.glob("%s/versions/%s.*/bin/python%s" % (root, version.rstrip("t"), version)) if root else []
        # A free-threaded build is in "3.14.0t", next to "3.14.0", and has a python3.14 as well.
        found = sorted((path for path in found if path.split("/")[-3].endswith("t") == version.endswith("t")), key=version_key)
        if found:
            return Interpreter(found[-1])
    return None


def unpacked(version):
    """An interpreter that scripts/setup-newer-pythons has unpacked."""
    if version not in ("3.14", "3.15"):
        raise Skip("no CPython %s in pyenv's directory on this machine" % version)
    if not os.path.exists(os.path.join(NEWER, version + ".complete")):
        raise Skip("no CPython %s: %s" % (version, reason(version) or "scripts/setup-newer-pythons has not been run"))
    if os.geteuid() != 0:
        raise Skip("CPython %s is run with chroot, which only root may do" % version)
    return Interpreter(os.path.join(NEWER, "root", "usr", "bin", "python" + version), os.path.join(NEWER, "root"))


def reason(version):
    try:
        with open(os.path.join(NEWER, version + ".reason"), encoding="utf-8") as stream:
            return stream.read().strip()
    except OSError:
        return None


def free_threaded(version):
    """A free-threaded one: named by RANKSTACKS_TEST_PYTHON_3_14T and the like, in pyenv's directory, or Debian's if it has one."""
    variable = "RANKSTACKS_TEST_PYTHON_" + version.replace(".", "_").upper()
    if os.environ.get(variable):
        found = Interpreter(os.environ[variable])
    else:
        found = in_pyenv(version)
    if found is None and os.path.exists(os.path.join(NEWER, "root", "usr", "bin", "python" + version)):
        found = unpacked(version.rstrip("t"))
        found.path += "t"
    if found is None:
        why = reason(version)
        raise Skip("no free-threaded CPython %s: none in pyenv's directory, %s names none%s" % (version.rstrip("t"), variable, ", " + why if why else ""))
    has = found.evaluate("(sys.version_info[:2], getattr(sys, '_is_gil_enabled', lambda: True)())")
    if has != "((%s), False)" % version.rstrip("t").replace(".", ", "):
        raise Skip("%s is no free-threaded CPython %s" % (found.path, version.rstrip("t")))
    return found


def check_each(directory, test):
    """Runs test(directory of its own, path) with each CPython from 3.7 on that runs in this root directory; skipped if there is none."""
    found = []
    for version in ("3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"):
        try:
            interpreter = find(version)
        except Skip:
            continue
        if interpreter.sysroot is not None:      # runs by chroot, where the test's program is not
            continue
        place = os.path.join(directory, version)
        os.mkdir(place)
        try:
            test(place, interpreter.path)
        except Failure as failure:
            raise Failure("%s: %s" % (version, failure)) from failure
        found.append(version)
    if not found:
        raise Skip("no other CPython on this machine")
    print("CPython " + ", ".join(found))
