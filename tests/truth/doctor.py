"""rankstacks doctor: its findings on real processes, as other users, in namespaces, under seccomp filters; and that its fixes work."""
import json
import os
import re
import resource
import shutil
import subprocess

import cases
import debugger
from command_line import FIXTURES, free_pid, native, python, text_of
from odd_targets import NOBODY, TRACER, Reachable, as_nobody
from processes import Fixture, Skip, check, run_tool, settle, state_of, task_states, tool, wait_until

MEMBERS = {"subject", "pid", "path", "name", "check", "area", "status", "found", "mends", "core"}


def findings_of(status, out, err):
    """{(pid, path or None, check): finding}, after checks that hold for every run of the doctor."""
    check(err == b"", "on stderr: %r" % err)
    report = json.loads(out.decode("utf-8"))
    check(report["schema"] == 1 and report["tool"]["name"] == "rankstacks", "the head: %r" % report)
    for finding in report["findings"]:
        check(set(finding) == MEMBERS, "members: %r" % sorted(finding))
        check(finding["status"] in ("ok", "note", "problem") and finding["area"] in ("attach", "cores", "names", "gpu"), "words: %r" % finding)
        check(finding["found"] and "{PID}" not in " ".join(finding["mends"]), "texts: %r" % finding)
    bad = [finding for finding in report["findings"] if finding["status"] == "problem"]
    check(report["ok"] == (not bad) and status == (1 if bad else 0), "exit status %d, ok %r, problems %r" % (status, report["ok"], bad))
    return {(finding["pid"], finding["path"], finding["check"]): finding for finding in report["findings"]}


def doctor(*arguments, command=(), **options):
    done = subprocess.run(list(command) + [tool(), "doctor", "--format", "json"] + [str(argument) for argument in arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=120, **options)
    return findings_of(done.returncode, done.stdout, done.stderr)


def doctor_as_nobody(reachable, *arguments):
    program = reachable.copy(tool())
    done = subprocess.run(as_nobody([program, "doctor", "--format", "json"] + [str(argument) for argument in arguments]), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=120, cwd="/")
    return findings_of(done.returncode, done.stdout, done.stderr)


def expect(findings, key, status, *words):
    finding = findings.get(key)
    check(finding, "no finding %r in %r" % (key, sorted(map(str, findings))))
    check(finding["status"] == status and all(word in finding["found"] for word in words), "instead of %s with %r: %r" % (status, words, finding))
    return finding


def set_core_limit(soft):
    return lambda: resource.setrlimit(resource.RLIMIT_CORE, (soft, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def needs_root(*programs):
    if os.geteuid() != 0:
        raise Skip("needs root")
    for program in programs:
        if not shutil.which(program):
            raise Skip("no %s on this machine" % program)


def in_namespaces(*options):
    """A command prefix, after it was tried: some machines do not let even root make namespaces."""
    needs_root("unshare")
    command = ["unshare"] + list(options)
    done = subprocess.run(command + ["true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise Skip("%s: %s" % (" ".join(command), done.stdout.decode(errors="replace").strip()))
    return command


def case_process_of_ours(directory):
    with native("threads") as fixture:
        findings = doctor("--pids", fixture.pid)
        expect(findings, (None, None, "ptrace"), "ok")
        expect(findings, (fixture.pid, None, "threads"), "ok", "%d threads" % len(task_states(fixture.pid)))
        for name in ("ptrace", "memory", "namespaces"):
            expect(findings, (fixture.pid, None, name), "ok")
        expect(findings, (fixture.pid, None, "python"), "ok", "no Python")
        fixture.check_unharmed()


def case_nothing_is_disturbed(directory):
    """No thread is even woken up: the numbers of context switches do not change."""
    with native("threads") as fixture:
        settle(fixture.pid)
        before = task_states(fixture.pid)
        doctor("--pids", fixture.pid)
        check(task_states(fixture.pid) == before, "before %r, after %r" % (before, task_states(fixture.pid)))
        fixture.check_unharmed()


def case_python_is_read(directory):
    with python("callbacks") as fixture:
        version = subprocess.run(["/usr/bin/python3", "-c", "import platform; print(platform.python_version())"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
        expect(doctor("--pids", fixture.pid), (fixture.pid, None, "python"), "ok", "CPython " + version, "its state was read")
        fixture.check_unharmed()


def case_no_such_process(directory):
    gone = free_pid()
    expect(doctor("--pids", gone), (gone, None, "process"), "problem", "no such process")


def case_zombie(directory):
    child = subprocess.Popen(["true"])
    wait_until(lambda: state_of(child.pid) == "Z", "a zombie")
    try:
        expect(doctor("--pids", child.pid), (child.pid, None, "process"), "problem", "a zombie", "pid %d" % os.getpid())
    finally:
        child.wait()


def case_a_stopped_process_stays_stopped(directory):
    with native("threads") as fixture:
        os.kill(fixture.pid, 19)
        wait_until(lambda: all(state == "T" for state, _, _ in task_states(fixture.pid).values()), "all threads to be stopped")
        expect(doctor("--pids", fixture.pid), (fixture.pid, None, "threads"), "ok", "stopped by a signal")
        # A thread that is released runs for a moment, in the kernel, on its way back to its own stop.
        wait_until(lambda: all(state == "T" for state, _, _ in task_states(fixture.pid).values()), "all threads to be stopped again")
        os.kill(fixture.pid, 18)
        wait_until(lambda: state_of(fixture.pid) == "S", "the fixture to go on")
        fixture.check_unharmed()


def case_traced_by_another(directory):
    with native("threads") as fixture:
        tids = sorted(task_states(fixture.pid))
        tracer = subprocess.Popen(["/usr/bin/python3", "-c", TRACER] + [str(tid) for tid in tids], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            check(tracer.stdout.readline() == b"traces\n", "the tracer cannot trace")
            found = expect(doctor("--pids", fixture.pid), (fixture.pid, None, "ptrace"), "problem", "%d of its threads" % len(tids), "pid %d" % tracer.pid, "python3")
            check("kill %d" % tracer.pid in found["mends"][0], "the mends: %r" % found["mends"])
        finally:
            tracer.stdin.close()
            tracer.wait()
            tracer.stdout.close()
        expect(doctor("--pids", fixture.pid), (fixture.pid, None, "ptrace"), "ok")
        fixture.check_unharmed()


def case_another_users_process(directory):
    with Reachable() as reachable, native("chain") as fixture:
        findings = doctor_as_nobody(reachable, "--pids", fixture.pid)
        expect(findings, (None, None, "capabilities"), "note", "uid %d" % NOBODY)
        found = expect(findings, (fixture.pid, None, "ptrace"), "problem", "Operation not permitted", "belongs to uid %d, this is uid %d" % (os.getuid(), NOBODY))
        check(found["mends"], "no mend")
        expect(findings, (fixture.pid, None, "memory"), "problem")
        fixture.check_unharmed()


def case_own_process_without_root(directory):
    with Reachable() as reachable:
        program = reachable.copy(os.path.join(FIXTURES, "threads"))
        with Fixture(as_nobody([program]), cwd="/") as fixture:
            findings = doctor_as_nobody(reachable, "--pids", fixture.pid)
            if findings[(None, None, "yama")]["status"] == "problem":
                expect(findings, (fixture.pid, None, "ptrace"), "problem", "ptrace_scope")
                raise Skip("this machine lets no ordinary user trace: " + findings[(None, None, "yama")]["found"])
            expect(findings, (None, None, "ptrace"), "ok")
            expect(findings, (fixture.pid, None, "ptrace"), "ok")
            expect(findings, (fixture.pid, None, "memory"), "ok")
            fixture.check_unharmed()


WAITS = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None)
{prepare}
print(json.dumps({{"pid": os.getpid(), "runs": True}}), flush=True)
while sys.stdin.readline():
    print("alive", flush=True)
"""


def waiting(prepare):
    return ["/usr/bin/python3", "-c", WAITS.format(prepare=prepare)]


def case_not_dumpable(directory):
    with Reachable() as reachable:
        with Fixture(as_nobody(waiting("libc.prctl(4, 0)")), cwd="/") as fixture:          # PR_SET_DUMPABLE
            expect(doctor_as_nobody(reachable, "--pids", fixture.pid), (fixture.pid, None, "ptrace"), "problem", "not dumpable")
            findings = doctor("--pids", fixture.pid)
            expect(findings, (fixture.pid, None, "ptrace"), "ok")
            check(findings[(fixture.pid, None, "dumpable")]["status"] in ("problem", "note"), "as root: %r" % findings[(fixture.pid, None, "dumpable")])
            fixture.check_unharmed()
        with Fixture(as_nobody(waiting("")), cwd="/") as fixture:
            check((fixture.pid, None, "dumpable") not in doctor("--pids", fixture.pid), "a dumpable process is called not dumpable")


# Arguments: the filter's result (a SECCOMP_RET_ value), the numbers of the calls, then the command.
FILTER = r"""
import ctypes, os, struct, sys
answer = int(sys.argv[1])
calls = [int(call) for call in sys.argv[2].split(",")]
program = [struct.pack("HBBI", 0x20, 0, 0, 0)]                                          # load the number
for i, call in enumerate(calls):
    program.append(struct.pack("HBBI", 0x15, len(calls) - i, 0, call))                  # equal: to the answer
program += [struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000), struct.pack("HBBI", 0x06, 0, 0, answer)]
code = ctypes.create_string_buffer(b"".join(program))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)                                                              # PR_SET_NO_NEW_PRIVS
if libc.prctl(22, 2, ctypes.byref(Program(len(program), ctypes.addressof(code))), 0, 0) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[3], sys.argv[3:])
"""


def filtered(answer, calls="101,310"):      # ptrace, process_vm_readv
    command = ["/usr/bin/python3", "-c", FILTER, str(answer), calls]
    if "ASAN_OPTIONS" in os.environ:
        os.environ["ASAN_OPTIONS"] += ":detect_leaks=0"      # a sanitized tool looks for its leaks by ptrace
    done = subprocess.run(command + ["/bin/true"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise Skip("no seccomp filter can be set here: %s" % done.stderr.decode(errors="replace").strip())
    return command


def case_seccomp_refuses(directory):
    with native("chain") as fixture:
        findings = doctor("--pids", fixture.pid, command=filtered(0x00050000 | 1))       # SECCOMP_RET_ERRNO, EPERM
        found = expect(findings, (None, None, "seccomp"), "problem", "ptrace (Operation not permitted)", "process_vm_readv (Operation not permitted)")
        check(any("seccomp" in mend for mend in found["mends"]), "the mends: %r" % found["mends"])
        expect(findings, (fixture.pid, None, "ptrace"), "problem", "seccomp filter")
        fixture.check_unharmed()


def case_attach_says_that_memory_is_refused(directory):
    """A process that can be seized but not read: its rank is not called complete although the stacks lack their callers."""
    with native("chain") as fixture:
        done = subprocess.run(filtered(0x00050000 | 1, "310") + [tool(), "attach", "--pids", str(fixture.pid), "--format", "json", "--samples", "1"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        rank = json.loads(done.stdout)["ranks"][0]
        check(done.returncode == 1 and rank["status"] == "partial", "status %d, %r" % (done.returncode, rank["status"]))
        check(b"process_vm_readv: Operation not permitted\nhint: " in done.stderr and b"rankstacks doctor --pids" in done.stderr, "stderr: %r" % done.stderr)
        fixture.check_unharmed()


def case_seccomp_kills(directory):
    findings = doctor(command=filtered(0x80000000))                                      # SECCOMP_RET_KILL_PROCESS
    expect(findings, (None, None, "seccomp"), "problem", "kills")
    expect(findings, (None, None, "ptrace"), "problem", "signal 31")
    with native("chain") as fixture:
        findings = doctor("--pids", fixture.pid, command=filtered(0x80000000))
        expect(findings, (fixture.pid, None, "ptrace"), "problem", "not tried")
        fixture.check_unharmed()


def case_seccomp_lets_through(directory):
    findings = doctor(command=filtered(0x7fff0000))                                      # SECCOMP_RET_ALLOW
    expect(findings, (None, None, "seccomp"), "ok", "lets ptrace and process_vm_readv through")
    expect(findings, (None, None, "ptrace"), "ok")


def case_in_a_pid_namespace(directory):
    with native("chain") as fixture:
        findings = doctor("--pids", fixture.pid, command=in_namespaces("--pid", "--fork", "--mount-proc"))
        found = expect(findings, (None, None, "pid-namespace"), "note", "one of its own")
        check(any("--pid=host" in mend for mend in found["mends"]), "the mends: %r" % found["mends"])
        found = expect(findings, (fixture.pid, None, "process"), "problem", "no such process")
        check("pid namespace" in found["mends"][0], "the mends: %r" % found["mends"])


def case_target_in_a_pid_namespace(directory):
    command = in_namespaces("--pid", "--fork", "--mount-proc", "--kill-child")
    with Fixture(command + waiting(""), cwd="/") as fixture:
        check(fixture.ready["pid"] == 1, "the fixture is not alone: %r" % fixture.ready)
        inside = [int(name) for name in os.listdir("/proc") if name.isdigit() and parent_of(int(name)) == fixture.process.pid]
        check(len(inside) == 1, "children of unshare: %r" % inside)
        fixture.pid = inside[0]
        findings = doctor("--pids", inside[0])
        expect(findings, (inside[0], None, "namespaces"), "note", "pid, mount", "a pid of its own")
        expect(findings, (inside[0], None, "ptrace"), "ok")
        fixture.check_unharmed()


def parent_of(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as stream:
            return int(stream.read().rpartition(")")[2].split()[1])
    except OSError:
        return None


def case_in_a_user_namespace(directory):
    command = in_namespaces("--user", "--map-root-user")
    with native("chain") as fixture:
        findings = doctor("--pids", fixture.pid, command=command)
        expect(findings, (None, None, "user-namespace"), "note", "one of its own", "uid 0 in it is uid %d outside" % os.getuid())
        expect(findings, (None, None, "ptrace"), "ok")                                   # the namespace has its own processes
        expect(findings, (fixture.pid, None, "ptrace"), "problem", "user namespace")
        fixture.check_unharmed()


def case_hidepid(directory):
    command = in_namespaces("--mount")
    with Reachable() as reachable, native("chain") as fixture:
        program = reachable.copy(tool())
        script = "mount -t proc -o hidepid=2 proc /proc && exec \"$@\""
        done = subprocess.run(command + ["sh", "-c", script, "sh"] + as_nobody([program, "doctor", "--format", "json", "--pids", str(fixture.pid)]),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60, cwd="/")
        if b"mount:" in done.stderr:
            raise Skip("proc cannot be mounted with hidepid here: %s" % done.stderr.decode(errors="replace"))
        findings = findings_of(done.returncode, done.stdout, done.stderr)
        expect(findings, (None, None, "hidepid"), "note", "hidepid=")
        expect(findings, (fixture.pid, None, "process"), "problem", "it exists, and /proc does not show it")


def needs_core_files():
    with open("/proc/sys/kernel/core_pattern", encoding="ascii") as stream:
        pattern = stream.read().strip()
    if pattern.startswith(("|", "@")) or not pattern:
        raise Skip("the limit does not count here, as cores go to %r" % pattern)


def mend(finding):
    done = subprocess.run(["sh", "-c", finding["mends"][0]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    check(done.returncode == 0, "%r: %r" % (finding["mends"][0], done.stdout))


def case_core_limit_and_its_mend(directory):
    needs_root("prlimit")
    needs_core_files()
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY:
        raise Skip("the limit on cores cannot be raised")
    with native("chain", preexec_fn=set_core_limit(0)) as fixture:
        key = (fixture.pid, None, "core-limit")
        mend(expect(doctor("--pids", fixture.pid), key, "problem", "its limit is 0"))
        expect(doctor("--pids", fixture.pid), key, "ok", "unlimited")
        check(resource.prlimit(fixture.pid, resource.RLIMIT_CORE)[0] == resource.RLIM_INFINITY, "its limit is not raised")


def case_own_core_limit(directory):
    needs_core_files()
    expect(doctor(preexec_fn=set_core_limit(0)), (None, None, "core-limit"), "problem", "ulimit -c is 0")
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY:
        raise Skip("the limit on cores cannot be raised")
    expect(doctor(preexec_fn=set_core_limit(resource.RLIM_INFINITY)), (None, None, "core-limit"), "ok", "unlimited")


def case_coredump_filter_and_its_mend(directory):
    with native("chain") as fixture:
        with open("/proc/%d/coredump_filter" % fixture.pid, "w", encoding="ascii") as stream:
            stream.write("0x22")
        key = (fixture.pid, None, "coredump-filter")
        mend(expect(doctor("--pids", fixture.pid), key, "problem", "0x22", "stacks and heap would not be"))
        expect(doctor("--pids", fixture.pid), key, "ok", "0x33")


def case_launcher_is_replaced_by_its_ranks(directory):
    code = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
    environment = dict(os.environ, RANK="0", WORLD_SIZE="1")
    with Fixture(["/usr/bin/python3", "-c", code, "env", "RANK=0", os.path.join(FIXTURES, "chain")], env={key: value for key, value in environment.items() if key != "RANK"}) as fixture:
        check(fixture.process.pid != fixture.pid, "the launcher is the rank")
        findings = doctor("--pids", fixture.process.pid)
        expect(findings, (fixture.pid, None, "ptrace"), "ok")
        check((fixture.process.pid, None, "ptrace") not in findings, "the launcher is looked at too")
        fixture.check_unharmed()


def case_core_with_its_files(directory):
    with python("callbacks") as fixture:
        core = os.path.join(directory, "core")
        debugger.take_core(fixture, core)
    findings = doctor(core)
    check(all(key[1] == core for key in findings), "with a core alone the machine is looked at too: %r" % sorted(map(str, findings)))
    expect(findings, (None, core, "core"), "ok", "pid %d" % fixture.pid)
    expect(findings, (None, core, "executable"), "ok", "as in the core")
    expect(findings, (None, core, "libraries"), "ok")
    expect(findings, (None, core, "python"), "ok", "CPython 3.")


def case_core_of_another_executable(directory):
    program, other, core = (os.path.join(directory, name) for name in ("program", "kept", "core"))
    shutil.copy(os.path.join(FIXTURES, "chain"), program)
    with Fixture([program]) as fixture:
        debugger.take_core(fixture, core)
    os.rename(program, other)
    expect(doctor(core), (None, core, "executable"), "problem", program, "is not on this machine")
    shutil.copy(os.path.join(FIXTURES, "threads"), program)
    found = expect(doctor(core), (None, core, "executable"), "problem", program, "another here", "build-id")
    check("--exe" in found["mends"][0], "the mends: %r" % found["mends"])
    expect(doctor(core, "--exe", other), (None, core, "executable"), "ok", "as in the core")


def case_core_cut_off(directory):
    with native("threads") as fixture:
        core = os.path.join(directory, "core")
        debugger.take_core(fixture, core)
        os.truncate(core, os.path.getsize(core) // 2)
        findings = doctor(core, "--pids", fixture.pid)                                   # both at once
        expect(findings, (None, core, "core"), "problem")
        expect(findings, (fixture.pid, None, "ptrace"), "ok")
        check(doctor("--pids", fixture.pid, core).keys() == findings.keys(), "cores behind --pids are not taken")
    expect(doctor("/dev/null"), (None, "/dev/null", "core"), "problem", "/dev/null")


def case_text(directory):
    with native("chain") as one, native("chain") as two:
        status, out, err = run_tool("doctor", "--pids", one.pid, two.pid)
        text = text_of(out)
        check(status in (0, 1) and err == b"", "status %d, stderr %r" % (status, err))
        check(text.startswith("This machine\n") and "2 processes (chain): %d, %d\n" % (one.pid, two.pid) in text, "the text: %s" % text)
        check(re.search(r"\nAttach: .*\. Cores: .*\.\n$", text), "its last line: %s" % text)
        path = os.path.join(directory, "found")
        check(run_tool("doctor", "--pids", one.pid, two.pid, "-o", path)[1] == b"", "-o leaves stdout alone")
        with open(path, encoding="utf-8") as stream:
            check(stream.read() == text, "the file differs from stdout")


def case_usage_errors(directory):
    for arguments in (["--pids"], ["--pids", "abc"], ["--pids", "12x"], ["--pids", "-5"], ["--nonsense"], ["--pids", "1", "--job"], ["--format", "xml"]):
        status, out, err = run_tool("doctor", *arguments)
        check((status, out) == (2, b"") and len(err) > 10, "%s: status %d, stdout %r, stderr %r" % (arguments, status, out, err))


if __name__ == "__main__":
    cases.run(globals(), "doctor")
