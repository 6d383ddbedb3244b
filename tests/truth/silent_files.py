"""A file system that stops answering, and memory that is never filled in: each affects its own rank, or its names, and no other rank. The
tool ends in time, although its requests never return: a request that a FUSE server has accepted blocks its process, and no signal ends
that."""
import json
import os
import select
import shutil
import subprocess
import sys
import time

import cases
from command_line import FIXTURES, SOURCE, native
from gpu_sessions import Job
from processes import Fixture, Skip, check, command_of_tool, tool
from truth_native import compare
from truth_python import only_rank

TIMEOUT = 4              # of the tool, in seconds
TEST_TIMEOUT = 120       # of the test: the tool's steps, each with its own limit, on a busy machine


class SilentFileSystem:
    def __init__(self, directory):
        program = os.path.join(FIXTURES, "silent_fs")
        if not os.path.exists(program):
            raise Skip("the fixture silent_fs is not built: libfuse3-dev is missing")
        if not os.path.exists("/dev/fuse"):
            raise Skip("there is no /dev/fuse")
        if os.geteuid() != 0:
            raise Skip("mounting needs root")
        self.source, self.place = os.path.join(directory, "source"), os.path.join(directory, "mounted")
        os.mkdir(self.source)
        os.mkdir(self.place)
        self.process = subprocess.Popen([program, self.source, self.place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.process.stdout.readline()
        if not line:
            raise Skip("FUSE cannot be mounted here: %s" % self.process.communicate()[1].decode(errors="replace").strip())

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()            # requests that wait for it fail, and their processes continue
        self.process.wait()
        subprocess.run(["umount", "-l", self.place], check=False, stderr=subprocess.DEVNULL)

    def add(self, path, name=None):
        shutil.copy(path, os.path.join(self.source, name or os.path.basename(path)))
        return os.path.join(self.place, name or os.path.basename(path))

    def be_silent(self, how):
        self.process.stdin.write(how)
        self.process.stdin.flush()
        check(self.process.stdout.read(1) == how, "the file system does not listen")


def report_in_time(*arguments, machine=None):
    """The tool's report, its exit status and its duration; the tool has to end by itself."""
    start = time.monotonic()
    process = subprocess.Popen(command_of_tool(machine) + [str(a) for a in arguments] + ["--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        out, err = process.communicate(timeout=TEST_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.stdout.close()
        process.stderr.close()
        check(False, "the tool has not ended after %d s" % TEST_TIMEOUT)
    check(out, "no report (status %d): %s" % (process.returncode, err.decode(errors="replace")))
    return json.loads(out), process.returncode, time.monotonic() - start


def problems_of(rank):
    return " ".join(problem["message"] + " " + (problem["hint"] or "") for problem in rank["problems"])


def padded_program(directory):
    """A program whose symbols are far behind the part that the kernel reads in order to run it."""
    program, padding = os.path.join(directory, "padded"), os.path.join(directory, "padding")
    with open(padding, "wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["objcopy", "--add-section", ".padding=" + padding, os.path.join(FIXTURES, "threads"), program], check=True)
    return program


def check_live(directory, how):
    with SilentFileSystem(directory) as fs:
        program = fs.add(padded_program(directory))
        with Fixture([program]) as stuck, native("threads") as well, native("chain") as other:
            fs.be_silent(how)
            report, status, _ = report_in_time("attach", "--samples", 1, "--timeout", TIMEOUT, "--pids", "%d,%d,%d" % (well.pid, stuck.pid, other.pid))
            check(status == 1, "exit status %d" % status)
            rank = only_rank(report, stuck.pid)
            check(rank["status"] in ("partial", "failed"), "the rank on the silent file system is %s" % rank["status"])
            check(program in problems_of(rank) and "--timeout" in problems_of(rank), "its problems name neither the file nor what to do: %s" % problems_of(rank))
            for fixture in (well, other):
                rank = only_rank(report, fixture.pid)
                check(rank["status"] == "complete", "another rank is %s: %s" % (rank["status"], problems_of(rank)))
                compare(fixture.ready, rank, "together with a silent file system")


def case_live_all_is_silent(directory):
    check_live(directory, b"a")


def case_live_reads_are_silent(directory):
    check_live(directory, b"r")


def case_several_samples(directory):
    with SilentFileSystem(directory) as fs:
        program = fs.add(os.path.join(FIXTURES, "threads"))
        with Fixture([program]) as stuck, native("threads") as well:
            fs.be_silent(b"a")
            report, status, _ = report_in_time("attach", "--timeout", TIMEOUT, "--pids", "%d,%d" % (well.pid, stuck.pid))
            check(status == 1, "exit status %d" % status)
            check(only_rank(report, well.pid)["status"] == "complete", "the other rank: %r" % problems_of(only_rank(report, well.pid)))


def core_of(fixture, path):
    subprocess.run(["gcore", "-o", path, str(fixture.pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return "%s.%d" % (path, fixture.pid)


def case_core_on_it(directory):
    with SilentFileSystem(directory) as fs, native("threads") as one, native("chain") as two:
        good = core_of(one, os.path.join(directory, "core"))
        stuck = fs.add(core_of(two, os.path.join(directory, "core")))
        fs.be_silent(b"a")
        report, status, _ = report_in_time("core", "--timeout", TIMEOUT, good, stuck)
        check(status == 1, "exit status %d" % status)
        ranks = {rank["path"]: rank for rank in report["ranks"]}
        check(ranks[good]["status"] == "complete", "the other core is %s: %s" % (ranks[good]["status"], problems_of(ranks[good])))
        check(ranks[stuck]["status"] == "failed" and stuck in problems_of(ranks[stuck]), "the core on it: %r" % problems_of(ranks[stuck]))


def case_cores_name_a_file_on_it(directory):
    with SilentFileSystem(directory) as fs:
        program = fs.add(os.path.join(FIXTURES, "threads"))
        with Fixture([program]) as one, native("threads") as two:
            stuck, good = core_of(one, os.path.join(directory, "core")), core_of(two, os.path.join(directory, "core"))
        fs.be_silent(b"a")
        report, status, _ = report_in_time("core", "--timeout", TIMEOUT, good, stuck)
        check(status == 1, "exit status %d" % status)
        ranks = {rank["path"]: rank for rank in report["ranks"]}
        check(ranks[good]["status"] == "complete", "the other core is %s: %s" % (ranks[good]["status"], problems_of(ranks[good])))
        check(program in problems_of(ranks[stuck]), "the core that names a file on it: %r" % problems_of(ranks[stuck]))


def case_metadata_on_it(directory):
    """The metadata of a package does not answer: the version is not known, and nothing else is missing, live or from cores."""
    import versions
    with SilentFileSystem(directory) as fs:
        paths = []
        for name in ("stuck", "well"):
            site = os.path.join(directory, name, "site-packages")
            paths.append(versions.library(os.path.join(site, "nvidia", "nccl", "lib"), "libnccl.so.2", "unknown"))
            metadata = os.path.join(site, "nvidia_nccl_cu12-2.28.9.dist-info")
            os.makedirs(metadata)
            written = os.path.join(metadata, "METADATA") if name == "well" else os.path.join(directory, "written")
            with open(written, "w", encoding="utf-8") as stream:
                stream.write("Version: 2.28.9\n")
            if name == "stuck":
                os.symlink(fs.add(written, "METADATA"), os.path.join(metadata, "METADATA"))
        with versions.Ranks(lambda: versions.rank(0, 2, paths[0]), lambda: versions.rank(1, 2, paths[1])) as ranks:
            cores = ranks.cores(directory)
            fs.be_silent(b"a")
            for arguments in (("attach", "--samples", 1, "--pids", ranks.pids), ("core", *cores)):
                report, status, _ = report_in_time(*arguments, "--timeout", TIMEOUT)
                check(status == 0 and [rank["status"] for rank in report["ranks"]] == ["complete"] * 2, "%s: status %d, %r" % (arguments[0], status, [problems_of(rank) for rank in report["ranks"]]))
                found = [versions.modules_of(report, number, "NCCL")[0]["version"] for number in (0, 1)]
                check(found == [None, "2.28.9"], "%s: %r" % (arguments[0], found))


def ends_in_time(command, end=None, **options):
    """Runs the command, calls end(process) if it has to be ended, and returns its exit status; a tool that hangs is killed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    try:
        if end:
            end(process)
        _, err = process.communicate(timeout=TEST_TIMEOUT / 4)
        return process.returncode, err.decode(errors="replace")
    except subprocess.TimeoutExpired:
        process.kill()
        process.stdout.close()
        process.stderr.close()
        return None, "it has not ended"


def children_states(pid):
    """The states of a process and of its children."""
    states = []
    for path in ["/proc/%d" % pid] + ["/proc/%s" % child for child in open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii").read().split()]:
        try:
            with open(path + "/stat", encoding="utf-8", errors="replace") as file:
                states.append(file.read().rsplit(")", 1)[1].split()[0])
        except FileNotFoundError:
            pass
    return states


def case_programs_of_others_on_it(directory):
    """`dump` and `watch` look for other runs of the tool among all processes, by their programs: those of others may not answer."""
    with SilentFileSystem(directory) as fs:
        chain = os.path.join(FIXTURES, "chain")
        programs = [fs.add(chain), fs.add(chain, os.path.basename(tool()))]
        with Fixture([programs[0]]), Fixture([programs[1]]), native("threads") as well:
            fs.be_silent(b"a")
            environment = dict(os.environ, XDG_RUNTIME_DIR=os.path.join(directory, "run"))
            os.mkdir(environment["XDG_RUNTIME_DIR"], 0o700)
            status, err = ends_in_time([tool(), "dump", "--pid", str(well.pid)], env=environment)
            check(status == 0, "dump: status %r: %s" % (status, err))

            reports = os.path.join(directory, "reports")

            def ask_to_end(process):
                """When it has found its rank, or hangs."""
                for _ in range(100 * int(TEST_TIMEOUT / 4)):
                    readable, _, _ = select.select([process.stderr], [], [], 0.01)
                    if readable or "D" in children_states(process.pid):
                        break
                process.terminate()
            status, err = ends_in_time([tool(), "watch", "--pids", str(well.pid), "--on-hang", reports, "--period", "1"], ask_to_end)
            check(status is not None, "watch: %s" % err)


def case_dump_of_what_is_on_it(directory):
    """The limit of `dump` is for all of it, the loading of the tool included; what is known by then is printed."""
    burns = "import os, sys, time\nwhile time.process_time() < 1: pass\nprint(time.monotonic(), file=sys.stderr, flush=True)\nos.execv(sys.argv[1], sys.argv[1:])\n"
    with SilentFileSystem(directory) as fs:
        with Fixture([fs.add(os.path.join(FIXTURES, "chain"))]) as program:
            fs.be_silent(b"a")
            environment = dict(os.environ, XDG_RUNTIME_DIR=os.path.join(directory, "run"))
            os.mkdir(environment["XDG_RUNTIME_DIR"], 0o700)
            call = [tool(), "dump", "--pid", str(program.pid), "--within", "1.5"]
            for more, heading in (([], "Process %d: %s" % (program.pid, fs.place)), (["--json"], None)):
                start = time.monotonic()
                ended = subprocess.run(call + more, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, timeout=TEST_TIMEOUT, check=False)
                took = time.monotonic() - start
                out, err = ended.stdout.decode(), ended.stderr.decode()
                check(ended.returncode == 2 and "nothing was read within 1.5 s: " in err, "%d %r %r" % (ended.returncode, out, err))
                check(out.startswith(heading) and "\n\nrankstacks: nothing was read within 1.5 s: " in out if heading else out == "", out)
                check(took < 3, "%g s instead of 1.5" % took)
            call[-1] = "3"
            ended = subprocess.run(["/usr/bin/python3", "-c", burns] + call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, timeout=TEST_TIMEOUT, check=False)
            took = time.monotonic() - float(ended.stderr.split()[0])
            check(ended.returncode == 2 and took < 2.75, "status %d after %g s" % (ended.returncode, took))


def case_files_of_unrelated_processes_on_it(directory):
    """A Python program that is no part of the job takes a few seconds of a look's time at most, and once."""
    loads = "import ctypes, json, os, sys\nctypes.CDLL(sys.argv[1])\nprint(json.dumps({'pid': os.getpid()}), flush=True)\nsys.stdin.read()\n"
    job = [sys.executable, os.path.join(SOURCE, "fixtures", "jobs", "watched.py"), "--ranks", "2"]
    with SilentFileSystem(directory) as fs:
        library = fs.add(os.path.join(FIXTURES, "libreplaced_one.so"))
        with Fixture([sys.executable, "-c", loads, library]), Fixture(job) as ranks:
            fs.be_silent(b"a")
            environment = dict(os.environ, XDG_RUNTIME_DIR=os.path.join(directory, "run"))
            os.mkdir(environment["XDG_RUNTIME_DIR"], 0o700)
            start = time.monotonic()
            status, err = ends_in_time([tool(), "dump", "--pid", str(ranks.ready["pids"][0])], env=environment)
            took = time.monotonic() - start
            check(status == 0 and took < 10, "status %r after %g s: %s" % (status, took, err))


def dumps_together(directory, pids, *more):
    """What calls of `dump` print that begin together: exit status, output and errors of each. None is waited for longer than the test may take."""
    environment = dict(os.environ, XDG_RUNTIME_DIR=os.path.join(directory, "run"))
    os.mkdir(environment["XDG_RUNTIME_DIR"], 0o700)
    calls = [subprocess.Popen([tool(), "dump", "--pid", str(pid), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True) for pid in pids]
    ended = []
    for call in calls:
        out, err = call.communicate(timeout=TEST_TIMEOUT)
        ended.append((call.returncode, out.decode(errors="replace"), err.decode(errors="replace")))
    reports = [name for name in os.listdir(os.path.join(environment["XDG_RUNTIME_DIR"], "rankstacks")) if name.startswith("dump-")]
    check(len(reports) == 1, "the calls have made %d reports: %r" % (len(reports), ended))
    return ended


def check_dumps_of_job(ended, ranks, silent, words, status):
    for pid, (code, out, err) in zip(ranks, ended):
        check(words in err, "stderr of process %d does not have %r: %s" % (pid, words, err))
        if pid == silent:
            check(code == status, "status %d of the silent process: %s" % (code, err))
        else:
            check(code == 0 and "Thread %d " % pid in out and "<module>" in out, "process %d: status %d: %s%s" % (pid, code, out, err))


def case_dumps_of_a_job_of_which_a_rank_has_a_file_on_it(directory):
    """Eight calls for four ranks make one report, which says of the file that it does not answer; all ranks have their stacks."""
    import versions
    with SilentFileSystem(directory) as fs:
        libraries = [fs.add(os.path.join(FIXTURES, "libreplaced_one.so"))]
        with versions.Ranks(*[lambda rank=rank: versions.rank(rank, 4, *(libraries if rank == 1 else [])) for rank in range(4)]) as job:
            fs.be_silent(b"a")
            pids = [fixture.pid for fixture in job.fixtures]
            ended = dumps_together(directory, 2 * pids, "--within", str(TEST_TIMEOUT // 2))
            check_dumps_of_job(ended, 2 * pids, pids[1], "rank 1: %s did not answer in time" % libraries[0], 1)
            check("Thread %d " % pids[1] in ended[1][1], "the rank with the file: %s" % ended[1][1])


def case_dumps_of_a_job_of_which_a_rank_does_not_answer(directory):
    """However long --within is, nobody waits for it longer than the time in which nothing may happen."""
    import versions
    silent = os.path.join(FIXTURES, "silent_memory")
    environment = dict(versions.CLEAN, RANK="1", WORLD_SIZE="3", LOCAL_RANK="1")
    with versions.Ranks(lambda: versions.rank(0, 3), lambda: Fixture([silent, "environ"], env=environment), lambda: versions.rank(2, 3)) as job:
        pids = [fixture.pid for fixture in job.fixtures]
        ended = dumps_together(directory, 2 * pids, "--within", str(TEST_TIMEOUT // 2))
        check_dumps_of_job(ended, 2 * pids, pids[1], "rank 1: pid %d: looking at it did not come back within 2 s" % pids[1], 2)


def case_saved_report_on_it(directory):
    with SilentFileSystem(directory) as fs, native("chain") as fixture:
        saved = os.path.join(directory, "saved.json")
        subprocess.run([tool(), "attach", "--samples", "1", "--pids", str(fixture.pid), "--format", "json", "-o", saved], check=True)
        stuck = fs.add(saved)
        fs.be_silent(b"a")
        report, status, _ = report_in_time("report", "--timeout", TIMEOUT, saved, stuck)
        check(status == 1 and len(report["ranks"]) == 1, "exit status %d, %d ranks" % (status, len(report["ranks"])))


def check_drivers_words(directory, library, word):
    """The driver's words are in memory of the process, which may map anything there. It costs only its own GPU's state, whether the tool or
    the helper reads the words first."""
    job = Job(directory, library=library)
    with SilentFileSystem(directory) as fs:
        page = fs.add(os.path.join(FIXTURES, "threads"), "page")
        with job.rank("--mapped", "%s:%s" % (word, page)) as stuck, native("threads") as well:
            fs.be_silent(b"a")
            report, status, _ = report_in_time("attach", "--samples", 1, "--gpu", "--timeout", TIMEOUT, "--pids", "%d,%d" % (well.pid, stuck.pid), machine=directory)
            rank = only_rank(report, stuck.pid)
            check(status == 1 and rank["status"] == "partial" and not rank.get("gpus") and "GPU: " in problems_of(rank), "status %d, %s: %s" % (status, rank["status"], problems_of(rank)))
            rank = only_rank(report, well.pid)
            check(rank["status"] == "complete", "another rank is %s: %s" % (rank["status"], problems_of(rank)))
            compare(well.ready, rank, "together with a silent driver's words")


def case_the_drivers_words_as_the_tool_reads_them(directory):
    check_drivers_words(directory, "libfake_cuda_new.so", "cudbgInitiateDebuggerAttachProcedureFd")


def case_the_drivers_words_as_the_helper_reads_them(directory):
    check_drivers_words(directory, "libfake_cuda.so", "cudbgApiClientPid")


def check_memory(which):
    with native("silent_memory", which) as stuck, native("threads") as well:
        report, status, _ = report_in_time("attach", "--samples", 1, "--timeout", TIMEOUT, "--pids", "%d,%d" % (stuck.pid, well.pid))
        rank = only_rank(report, well.pid)
        check(rank["status"] == "complete", "the other rank is %s: %s" % (rank["status"], problems_of(rank)))
        compare(well.ready, rank, "together with silent memory")
        return only_rank(report, stuck.pid), status


def case_environment_never_filled_in(directory):
    rank, status = check_memory("environ")
    check(status == 1 and rank["status"] == "failed", "status %d, the rank is %s" % (status, rank["status"]))
    check("pid %d" % rank["pid"] in problems_of(rank) and "--timeout" in problems_of(rank), "its problems: %r" % problems_of(rank))


def case_arguments_never_filled_in(directory):
    # It depends on the kernel whether it waits here or reports that they cannot be read; the report has the other ranks in both cases.
    check_memory("arguments")


if __name__ == "__main__":
    cases.run(globals(), "silent")
