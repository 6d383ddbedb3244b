"""How processes have died, from the kernel's cores."""
import os
import re
import resource
import shutil
import signal
import subprocess

import cases
from command_line import FIXTURES, native
from core_files import kernel_core
from exceptions import in_pause
from processes import DEADLINE, Fixture, Skip, check, json_report, run_tool, wait_until
from truth_python import only_rank


def died(directory, way, rank=None, sent=None):
    """(truth, the core's path) of a process that has died in that way, as rank of a job of three."""
    os.makedirs(directory, exist_ok=True)
    command = [os.path.join(FIXTURES, "dies"), way]
    if rank is not None:
        command = ["/usr/bin/env", "RANK=%d" % rank, "WORLD_SIZE=3"] + command
    return kernel_core(directory, "dies", command=command, sent=sent)


def fault(directory, way, region):
    truth, core = died(directory, way)
    rank = only_rank(json_report("core", core), truth["pid"])
    place = rank["signal"].get("place")
    check(place and place["region"] == region and not place["executed"], "%s: %r" % (way, rank["signal"]))
    check(int(rank["signal"]["fault_address"], 16) == gdbs_address(core), "gdb has another address: %r" % rank["signal"])
    return truth, core, rank["signal"]


def gdbs_address(core):
    if not shutil.which("gdb"):
        raise Skip("no gdb on this machine")
    commands = ["-ex", "core-file " + core, "-ex", "printf \"AT %lu\\n\", (unsigned long)$_siginfo._sifields._sigfault.si_addr"]
    done = subprocess.run(["gdb", "-nx", "-q", "-batch", "-ex", "set auto-load off", "-ex", "file " + os.path.join(FIXTURES, "dies")] + commands,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    found = re.search(r"^AT (\d+)$", done.stdout.decode(errors="replace"), re.MULTILINE)
    check(found, "gdb says no address: %r" % done.stdout)
    return int(found.group(1))


def said(directory, core):
    """The text of the report, and that of its JSON, saved and read again: they must be the same."""
    _, text, _ = run_tool("core", core, "--threads", "all")
    saved = os.path.join(directory, "saved.json")
    run_tool("core", core, "--format", "json", "-o", saved)
    _, again, _ = run_tool("report", saved, "--threads", "all")
    first, second = (re.sub(r"in \d+ ms|[\d.]+ m?s", "", raw.decode()).splitlines()[1:] for raw in (text, again))
    check(first == second, "the saved report differs:\n%s\n%s" % (first, second))
    return " ".join(text.decode().split())


def case_null_pointer_with_an_offset(directory):
    _, core, found = fault(directory, "offset", "first-page")
    check(found["fault_address"] == "0x10", repr(found))
    text = said(directory, core)
    check("crashed with SIGSEGV at 0x10, in the first page: a null pointer with offset 16" in text, text)


def case_write_to_code(directory):
    truth, core, found = fault(directory, "read_only", "mapped")
    check(int(found["fault_address"], 16) == truth["write_to"], repr(found))
    mapping = found["place"]["mapping"]
    check(mapping["name"] == os.path.realpath(os.path.join(FIXTURES, "dies")) and mapping["permissions"] == "r-x", repr(mapping))
    check("which is read-only" in said(directory, core), "the text does not say it")


def case_between_two_mappings(directory):
    _, core, found = fault(directory, "unmapped", "unmapped")
    place = found["place"]
    check(place["below"]["distance"] == "0x40" and place["above"]["distance"] == hex(4096 - 64), repr(place))
    check("where nothing is mapped, 0x40 bytes behind anonymous memory" in said(directory, core), "the text does not say it")


def gdbs_instruction(core):
    if not shutil.which("gdb"):
        raise Skip("no gdb on this machine")
    done = subprocess.run(["gdb", "-nx", "-q", "-batch", "-ex", "set auto-load off", "-ex", "file " + os.path.join(FIXTURES, "dies"), "-ex", "core-file " + core, "-ex", "x/i $pc"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    found = re.search(r"^=> 0x[0-9a-f]+.*?:\t(.*)$", done.stdout.decode(errors="replace"), re.MULTILINE)
    check(found, "gdb says no instruction: %r" % done.stdout)
    return " ".join(found.group(1).split())


def instruction(directory, way):
    """(the signal, its instruction, the core) of a fault; gdb has the same instruction."""
    truth, core = died(directory, way)
    found = only_rank(json_report("core", core), truth["pid"])["signal"]
    decoded = found.get("instruction")
    check(decoded and decoded["text"] == gdbs_instruction(core), "%r, and gdb's %r" % (found, gdbs_instruction(core)))
    return found, decoded, core


def case_the_instruction_of_a_fault(directory):
    for way in ("offset", "unmapped", "read_only"):
        found, decoded, core = instruction(os.path.join(directory, way), way)
        check([register["value"] for register in decoded["registers"]] == [found["fault_address"]], repr(found))
        register = decoded["registers"][0]
        text = said(directory, core)
        check("in %s with %s=%s" % (decoded["text"], register["name"], register["value"]) in text, text)


def case_an_address_that_is_none(directory):
    found, decoded, core = instruction(directory, "wild")
    check(gdbs_address(core) == 0 and found["fault_address"] == "0xdeadbeefdeadbeef", repr(found))
    check(decoded["registers"][0]["value"] == "0xdeadbeefdeadbeef", repr(decoded))
    text = said(directory, core)
    check("SIGSEGV at 0xdeadbeefdeadbeef, which is no address: not in the canonical form, in " in text and "null pointer" not in text, text)


def case_a_division_by_zero(directory):
    found, decoded, core = instruction(directory, "division")
    check(found["name"] == "SIGFPE" and "idiv" in decoded["text"], repr(found))
    check("SIGFPE" in said(directory, core) and decoded["text"] in said(directory, core), said(directory, core))


def case_an_illegal_instruction(directory):
    found, decoded, _ = instruction(directory, "illegal")
    check(found["name"] == "SIGILL" and decoded == {"text": "ud2", "bytes": "0f 0b", "registers": []}, repr(found))


RANK_OF_TWO = """
import os, time
if os.environ["RANK"] == "1":
    b = bytearray(256 << 20)
    for i in range(0, len(b), 4096): b[i] = 1
print(flush=True)
time.sleep(1000)
"""


def check_kernel_log(enter):
    """Of two ranks the kernel kills one: the report of the other has the line of the kernel's log."""
    environment = dict(os.environ, WORLD_SIZE="2")
    start = lambda rank, **options: subprocess.Popen(["/usr/bin/python3", "-c", RANK_OF_TWO], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                                     env=dict(environment, RANK=rank), **options)
    with start("0") as waiting:
        try:
            waiting.stdout.readline()
            with start("1", preexec_fn=enter) as killed:
                check(killed.wait(timeout=DEADLINE) == -signal.SIGKILL, "rank 1: status %r" % killed.returncode)
            report = json_report("attach", "--pids", waiting.pid)
        finally:
            waiting.kill()
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY))
    except OSError as error:
        check("kernel_log" not in report, repr(report.get("kernel_log")))
        print("the kernel's log cannot be read here: %s" % error)
        return
    found = report.get("kernel_log", [])
    check(any(kill["cause"] == "out-of-memory" and "Killed process" in kill["text"] for kill in found), "kernel_log: %r" % found)
    check(found[-1]["name"].startswith("python3"), repr(found))


def case_killed_for_lack_of_memory(directory):
    """A real process of a control group is killed by the kernel; a rank that stays in the group has the count."""
    base = next((path for path in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup") if os.path.exists(os.path.join(path, "cgroup.procs"))), None)
    group = os.path.join(base or "/nowhere", "rankstacks-test-%d" % os.getpid())
    version1 = base == "/sys/fs/cgroup/memory"
    try:
        os.mkdir(group)
    except OSError as error:
        raise Skip("no control group can be made: %s" % error) from error
    rank = None
    try:
        try:
            with open(os.path.join(group, "memory.limit_in_bytes" if version1 else "memory.max"), "w", encoding="ascii") as limit:
                limit.write(str(64 << 20))
        except OSError as error:
            raise Skip("no limit of memory can be set: %s" % error) from error
        enter = lambda: open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii").write(str(os.getpid()))
        rank = subprocess.Popen(["sleep", "1000"], preexec_fn=enter)
        count = lambda: json_report("attach", "--pids", rank.pid)["ranks"][0].get("oom_kills")
        wait_until(lambda: os.readlink("/proc/%d/exe" % rank.pid).endswith("sleep"), "sleep")
        check(count() == 0, "before: %r" % count())
        eater = subprocess.run(["/usr/bin/python3", "-c", "open('/proc/self/oom_score_adj', 'w').write('1000')\nb = bytearray(256 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1"],
                               preexec_fn=enter, stderr=subprocess.DEVNULL, check=False)
        if eater.returncode != -signal.SIGKILL:
            raise Skip("the kernel killed nothing: status %d" % eater.returncode)
        check(count() == 1, "after: %r" % count())
        check_kernel_log(enter)
    finally:
        if rank is not None:
            rank.kill()
            rank.wait()
        os.rmdir(group)


def case_overflow_of_the_main_stack(directory):
    _, core, _ = fault(directory, "overflow", "below-stack")
    check("the stack has overflowed" in said(directory, core), "the text does not say it")


def case_overflow_of_a_threads_stack(directory):
    truth, core, found = fault(directory, "thread_overflow", "below-stack")
    check(found["tid"] != truth["pid"], repr(found))
    check("below the stack of thread %d: the stack has overflowed" % found["tid"] in said(directory, core), "the text does not say it")


def case_call_of_a_null_pointer(directory):
    truth, core = kernel_core(directory, "wild_call", "null", "crash")
    found = only_rank(json_report("core", core), truth["pid"])["signal"]
    check(found["place"] == {"region": "first-page", "executed": True}, repr(found))


def last_words(directory, way, expected):
    truth, core = died(directory, way)
    rank = only_rank(json_report("core", core), truth["pid"])
    check(re.fullmatch(expected, rank.get("abort_message", "")), "%s: %r" % (way, rank.get("abort_message")))
    check(rank["signal"]["name"] == "SIGABRT" and rank["signal"].get("sender") == truth["pid"], repr(rank["signal"]))
    text = said(directory, core)
    check("the C library said: " + rank["abort_message"] in text, text)


def case_failed_assertion(directory):
    last_words(directory, "assertion", r"dies: .*dies\.c:\d+: die: Assertion `argc > 1000 && \"the loss is finite\"' failed\.")


def case_invalid_pointer(directory):
    last_words(directory, "free", r"free\(\): invalid pointer")


def case_stack_smashing(directory):
    last_words(directory, "smash", r"\*\*\* stack smashing detected \*\*\*: terminated")


# A failed assertion, in a process that does not end: the handler of SIGABRT is pause().
HANGS = """
import ctypes, json, os, signal
libc = ctypes.CDLL(None)
libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.signal(signal.SIGABRT, ctypes.cast(libc.pause, ctypes.c_void_p))
print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
libc.__assert_fail(b"loss == loss", b"step.c", 17, b"step")
"""


def case_live_in_the_handler_of_the_abort(directory):
    with Fixture(["/usr/bin/python3", "-c", HANGS], stderr=subprocess.DEVNULL) as fixture:
        wait_until(lambda: in_pause("/proc/%d/stat" % fixture.pid), "the process hangs in the handler of SIGABRT")
        rank = only_rank(json_report("attach", "--pids", str(fixture.pid)), fixture.pid)
        check(re.fullmatch(r".*step\.c:17: step: Assertion `loss == loss' failed\.", rank.get("abort_message", "")), repr(rank.get("abort_message")))
        check(rank["signal"] is None, repr(rank["signal"]))


def case_a_process_that_aborts_not_has_said_nothing(directory):
    with native("dies", "sent") as fixture:
        rank = only_rank(json_report("attach", "--pids", str(fixture.pid)), fixture.pid)
        check("abort_message" not in rank, repr(rank.get("abort_message")))


def case_last_words_are_private(directory):
    _, core = died(directory, "assertion")
    _, text, _ = run_tool("core", core, "--redact", "--threads", "all")
    check(b"the loss is finite" not in text and b"message-1" in text, text.decode())


def case_the_host_of_a_core(directory):
    """Slurm's name of the node comes before a HOSTNAME that was inherited from where the job was submitted."""
    for number, (variables, host) in enumerate(((["HOSTNAME=login-1", "SLURMD_NODENAME=node-7"], "node-7"), (["HOSTNAME=pod-3"], "pod-3"),
                                                (["HOSTNAME=", "HOST=box"], "box"), ([], "unknown"))):
        place = os.path.join(directory, str(number))
        os.makedirs(place)
        command = ["/usr/bin/env", "-u", "HOSTNAME", "-u", "HOST", "-u", "SLURMD_NODENAME"] + variables + [os.path.join(FIXTURES, "dies"), "offset"]
        truth, core = kernel_core(place, "dies", command=command)
        rank = only_rank(json_report("core", core), truth["pid"])
        check(rank["host"] == host, "%r: %r" % (variables, rank["host"]))
        check("identity" not in rank, "a core has no identity: %r" % rank)


def case_a_sent_signal_is_no_cause(directory):
    """Rank 0 fails an assertion, and another process aborts rank 1 thereafter, as a launcher does."""
    first, own = died(os.path.join(directory, "0"), "assertion", 0)
    _, sent = died(os.path.join(directory, "1"), "sent", 1, signal.SIGABRT)
    report = json_report("core", own, sent)
    found = [rank["signal"] for rank in report["ranks"]]
    check([(one["name"], one["sender"]) for one in found] == [("SIGABRT", first["pid"]), ("SIGABRT", os.getpid())], repr(found))
    check([one["sender_uid"] for one in found] == [os.getuid()] * 2, repr(found))
    suspects = report["verdict"]["suspects"]
    check([(suspect["rank"], suspect["reason"]) for suspect in suspects] == [(0, "crashed")], repr(report["verdict"]))
    check("the loss is finite" in suspects[0]["summary"], repr(suspects))
    words = "sent by pid %d, uid %d" % (os.getpid(), os.getuid())
    for shown in (["--threads", "all"], ["--format", "html"]):
        check(words in " ".join(run_tool("core", own, sent, *shown)[1].decode().split()), "%r: the text names no sender" % shown)


def unlimited_cores():
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def case_a_signal_of_another_rank(directory):
    """Rank 0 aborts rank 1, and then fails an assertion."""
    first = os.path.join(directory, "0")
    os.makedirs(first)
    kill = "import os, signal, sys; os.kill(int(sys.argv[1]), signal.SIGABRT); os.execv(sys.argv[2], sys.argv[2:])"
    place = os.path.join(directory, "1")
    os.makedirs(place)
    with Fixture([os.path.join(FIXTURES, "dies"), "sent"], cwd=place, env=dict(os.environ, RANK="1", WORLD_SIZE="2"), preexec_fn=unlimited_cores) as fixture:
        truth, own = kernel_core(first, "dies", command=["/usr/bin/env", "RANK=0", "WORLD_SIZE=2", "/usr/bin/python3", "-c", kill, str(fixture.pid), os.path.join(FIXTURES, "dies"), "assertion"])
        fixture.process.wait(timeout=60)
    cores = [os.path.join(place, name) for name in os.listdir(place) if name.startswith("core")]
    if not cores:
        raise Skip("the kernel has written no core here")
    text = " ".join(run_tool("core", own, cores[0], "--threads", "all")[1].decode().split())
    check("sent by pid %d (rank 0), uid %d" % (truth["pid"], os.getuid()) in text, text)


if __name__ == "__main__":
    cases.run(globals(), __doc__)
