"""Why a thread ends its process, in programs that use LLVM's C++ library: exceptions of libc++ and libc++abi."""
import os
import shutil
import subprocess

import cases
from command_line import SOURCE
from core_files import core_of, kernel_core
from exceptions import OWN_GPU, RUNTIME, WATCHDOG, check_rank
from processes import Fixture, Skip, check, json_report
from truth_native import compare
from truth_python import only_rank

UNPACKED = os.path.join(SOURCE, "build", "libcxx")
HEADERS = "14"   # of scripts/setup-libcxx

# What the fixture `terminates` dies of, for each of its ways. What is thrown by `int` is no object of a class.
DEATHS = {
    "runtime": RUNTIME,
    "watchdog": WATCHDOG,
    "gpu": OWN_GPU,
    "system": {"type": "std::__1::system_error", "what": "reading shard 3: %s" % os.strerror(5)},
    "derived": {"type": "BadShard", "what": "shard 3 of 8 has another length"},
    "noexcept": {"type": "std::runtime_error", "what": "out of a function that is noexcept"},
    "string": {"type": "std::__1::basic_string<char, std::__1::char_traits<char>, std::__1::allocator<char> >", "what": "only a string"},
    "int": {"type": "int", "what": "42"},
    "plain": None,
}


def unpacked(version):
    """The directory with the libraries of that LLVM."""
    for one in (HEADERS, version):
        if not os.path.exists(os.path.join(UNPACKED, one + ".complete")):
            reason = "scripts/setup-libcxx has not run"
            try:
                with open(os.path.join(UNPACKED, one + ".reason"), encoding="utf-8") as stream:
                    reason = stream.read().strip()
            except OSError:
                pass
            raise Skip("no libc++ of LLVM %s: %s" % (one, reason))
    return os.path.join(UNPACKED, version, "usr", "lib", "llvm-" + version, "lib")


def build(directory, compiler, flags, libraries, fixture="terminates"):
    if not shutil.which(compiler):
        raise Skip("no %s" % compiler)
    program = os.path.join(directory, fixture)
    native = os.path.join(SOURCE, "fixtures", "native")
    # -w: the fixtures' attributes are GCC's.
    command = [compiler, "-w", "-std=c++20", "-O2", "-g0", "-fPIE", "-pie", "-pthread", "-I", native] + flags
    return subprocess.run(command + [os.path.join(native, fixture + ".cc"), "-o", program] + libraries, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False), program


def build_with(directory, compiler, version, fixture="terminates"):
    libraries = unpacked(version)
    headers = os.path.join(UNPACKED, HEADERS, "usr", "lib", "llvm-" + HEADERS, "include", "c++", "v1")
    done, program = build(directory, compiler, ["-nostdinc++", "-isystem", headers],
                          ["-nodefaultlibs"] + [os.path.join(libraries, name) for name in ("libc++.so.1", "libc++abi.so.1", "libunwind.so.1")]
                          + ["-lm", "-lc", "-lgcc", "-Wl,--disable-new-dtags,-rpath," + libraries], fixture)
    check(done.returncode == 0, "%s: %s" % (compiler, done.stdout.decode(errors="replace")))
    return program


def check_deaths(directory, program, no_stack=()):
    """`no_stack`: ways whose stack ends in a function without unwind information."""
    for way, expected in DEATHS.items():
        place = os.path.join(directory, way)
        os.mkdir(place)
        truth, core = kernel_core(place, None, command=[program, way, "dies"])
        rank = only_rank(json_report("core", core), truth["pid"])
        found = {thread["tid"]: thread["exception"] for thread in rank["threads"] if "exception" in thread}
        check(found == ({truth["watchdog"]: expected} if expected else {}), "%s: %r" % (way, found))
        check(rank["signal"] and rank["signal"]["name"] == "SIGABRT" and rank["signal"]["tid"] == truth["watchdog"], "%s: %r" % (way, rank["signal"]))
        if way not in no_stack:
            compare(truth, rank, way)
        os.unlink(core)
    for way in ("runtime", "watchdog", "plain"):
        with Fixture([program, way], stderr=subprocess.DEVNULL) as fixture:
            check_rank(json_report("attach", "--pids", str(fixture.pid)), fixture.ready, DEATHS[way], "live, " + way)
            core = core_of(fixture, directory)
            fixture.check_unharmed()
        check_rank(json_report("core", core), fixture.ready, DEATHS[way], "core of gcore, " + way)


def case_llvm_14_with_gcc(directory):
    """libc++abi keeps a thread's exceptions by a key; the personality routine finds that a function is noexcept."""
    check_deaths(directory, build_with(directory, "g++", "14"))


def case_llvm_19_with_gcc(directory):
    """libc++abi keeps them in a thread-local variable."""
    check_deaths(directory, build_with(directory, "g++", "19"))


def case_llvm_14_with_clang(directory):
    """A call of std::terminate() in a function of clang's, __clang_call_terminate, which has no unwind information."""
    check_deaths(directory, build_with(directory, "clang++", "14"), no_stack=("noexcept",))


def case_installed(directory):
    """The libc++ that this machine's clang finds."""
    done, program = build(directory, "clang++", ["-stdlib=libc++"], [])
    if done.returncode != 0:
        raise Skip("clang++ -stdlib=libc++ makes no program here: libc++-dev or libc++abi-dev is missing, or cannot be used")
    check_deaths(directory, program, no_stack=("noexcept",))


if __name__ == "__main__":
    cases.run(globals(), "libcxx")
