"""Sessions with GPUs (attach --gpu): real processes, and a fake driver whose behaviour comes from a file (tests/gpu/fake_cuda). Checked are
the calls to the driver, what the report shows, and that the process is as before, whatever fails on the way."""
import ctypes
import json
import os
import shutil
import signal
import subprocess

import cases
from command_line import SOURCE
from processes import Fixture, Skip, check, command_of_tool, json_report, run_tool, wait_until
from truth_python import only_rank

PROGRAM = os.path.join(SOURCE, "fixtures", "gpu", "cuda_session.py")
FIXTURES = os.environ["RANKSTACKS_FIXTURES"]
# The calls of a successful session, without acknowledgements and events.
WHOLE = ["cudbgGetAPI", "cudbgApiAttach", "initialize", "setNotifyNewEventCallback", "setKernelLaunchNotificationMode", "getElfImageByHandle", "getDeviceName", "getSmType", "getDevicePCIBusInfo",
         "getNumSMs", "getDeviceInfoSizes", "suspendDevice", "getDeviceInfo", "getGridInfo", "readAllVirtualReturnAddresses", "resumeDevice", "clearAttachState", "cudbgApiDetach",
         "requestCleanupOnDetach", "finalize"]


class Job:
    def __init__(self, directory, *scenario, library="libfake_cuda.so"):
        self.directory = directory
        shutil.copy(os.path.join(os.path.dirname(FIXTURES), "tests", library), os.path.join(directory, "libcuda.so.1"))
        self.says(*scenario)

    def says(self, *scenario):
        with open(os.path.join(self.directory, "scenario"), "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in scenario))

    def rank(self, *arguments, **environment):
        return Fixture(["/usr/bin/python3", PROGRAM, os.path.join(self.directory, "libcuda.so.1"), *arguments], env=dict(os.environ, RANK="0", WORLD_SIZE="1", PYTHONDONTWRITEBYTECODE="1", **environment))

    def calls(self):
        try:
            with open(os.path.join(self.directory, "log"), encoding="utf-8") as log:
                return [line.split(None, 1)[1].strip() for line in log]
        except FileNotFoundError:
            return []

    def attach(self, rank, *options, expect=0):
        return only_rank(json_report("attach", "--pids", rank.pid, "--gpu", *options, expect=expect, machine=self.directory), rank.pid)


def problems_of(rank):
    return " | ".join(problem["message"] for problem in rank["problems"])


def check_as_before(rank):
    """No debugger is attached, no thread is stopped, and the process works."""
    rank.write(b"state\n")
    client, capabilities, initialized, ipc, waits = json.loads(rank._line())
    check((capabilities, initialized, ipc, waits) == (0, 0, 0, 0), "the driver's words: %r" % ((client, capabilities, initialized, ipc, waits),))
    rank.check_unharmed()


def kernel_of(rank):
    (gpu,) = rank["gpus"]
    (kernel,) = gpu["execution"]["kernels"]
    return kernel


def case_a_kernel_is_seen(directory):
    job = Job(directory, "warps 70")
    with job.rank() as process:
        rank = job.attach(process)
        check(rank["status"] == "complete", problems_of(rank))
        (gpu,) = rank["gpus"]
        check((gpu["pci"], gpu["name"]) == ("0000:0a:00.0", "NVIDIA Fake"), "%r" % gpu)
        execution = gpu["execution"]
        check(execution["source"] == "debugger" and execution["contexts"] == 1 and execution["held_ms"] > 0, "%r" % execution)
        kernel = kernel_of(rank)
        check(kernel["function"] == "spin(int*)" and kernel["warps"] == 70 and kernel["sms"] == 2 and kernel["lanes"] == 70 * 32, "%r" % kernel)
        check([(frame["function"], frame["offset"]) for frame in kernel["frames"]] == [("inner(int)", "0x10"), ("spin(int*)", "0x50")], "%r" % kernel["frames"])
        check(all(frame["kind"] == "gpu" for frame in kernel["frames"]), "%r" % kernel["frames"])
        done = [call for call in job.calls() if call not in ("getNextEvent", "acknowledgeSyncEvents")]
        check(done == WHOLE, "the session's calls: %r" % done)
        check_as_before(process)


def case_round_after_round(directory):
    job = Job(directory)
    with job.rank() as process:
        for _ in range(5):
            rank = job.attach(process)
            check(rank["status"] == "complete" and kernel_of(rank)["warps"] == 8, problems_of(rank))
            check_as_before(process)


def case_by_descriptor(directory):
    """Drivers since 590 are asked through a pipe of the process, and no function is called in the process."""
    job = Job(directory, library="libfake_cuda_new.so")
    with job.rank() as process:
        status, out, err = run_tool("attach", "--pids", process.pid, "--gpu", "--format", "json", machine=directory)
        rank = only_rank(json.loads(out), process.pid)
        check(status == 0 and kernel_of(rank)["function"] == "spin(int*)", problems_of(rank))
        check("cudbgApiAttach" not in job.calls() and "attach by descriptor" in job.calls(), "%r" % job.calls())
        check(b"inferior call" not in err, "%r" % err)
        check_as_before(process)


def case_the_cost_is_said_first(directory):
    job = Job(directory)
    with job.rank() as process:
        status, out, err = run_tool("attach", "--pids", process.pid, "--gpu", machine=directory)
        check(status == 0 and b"one thread of each makes an inferior call" in err, "%r" % err)
        check(b"spin" in out, "%r" % out)


def case_six_thousand_warps(directory):
    job = Job(directory, "warps 6544")
    with job.rank() as process:
        rank = job.attach(process)
        check(kernel_of(rank)["warps"] == 6544 and kernel_of(rank)["sms"] == 103, "%r" % kernel_of(rank))
        check_as_before(process)


def case_several_devices(directory):
    job = Job(directory, "devices 3")
    with job.rank() as process:
        rank = job.attach(process)
        check([gpu["pci"] for gpu in rank["gpus"]] == ["0000:0a:00.0", "0000:0b:00.0", "0000:0c:00.0"], "%r" % rank["gpus"])
        check(job.calls().count("suspendDevice") == job.calls().count("resumeDevice") == 3, "%r" % job.calls())
        check_as_before(process)


def case_parts_of_one_device(directory):
    """MIG: two instances with one PCI address are two entries."""
    job = Job(directory, "devices 2", "same-pci")
    with job.rank() as process:
        rank = job.attach(process)
        check([gpu["pci"] for gpu in rank["gpus"]] == ["0000:0a:00.0"] * 2 and all(gpu["execution"]["kernels"] for gpu in rank["gpus"]), "%r" % rank["gpus"])
        check_as_before(process)


def case_an_exception(directory):
    job = Job(directory, "exception 14")
    with job.rank() as process:
        rank = job.attach(process)
        (exception,) = rank["gpus"][0]["execution"]["exceptions"]
        check(exception["kind"] == "illegal address" and exception["kernel"] == "spin(int*)" and exception["frame"]["offset"] == "0x20", "%r" % exception)
        check_as_before(process)


def case_no_thread_can_make_the_call(directory):
    """Besides the main thread it has only the driver's own threads: none of them makes the call, and the reasons are reported."""
    job = Job(directory)
    with job.rank(CUDA_SESSION_ALONE="1") as process:
        rank = job.attach(process, expect=1)
        reasons = "of 2 threads 1 in the GPU's driver, 1 the main thread"
        check("no thread of it can make the call that this driver needs: " + reasons in problems_of(rank), problems_of(rank))
        hints = [problem.get("hint") or "" for problem in rank["problems"]]
        check(any("drivers since 590 need none" in hint for hint in hints), "%r" % hints)
        check(rank["threads"] and not {"cudbgApiAttach", "cudbgApiDetach"} & set(job.calls()), "%r" % job.calls())
        check_as_before(process)


def case_a_lock_is_waited_for(directory):
    job = Job(directory, "lock 3")
    with job.rank() as process:
        rank = job.attach(process)
        check(rank["status"] == "complete" and job.calls().count("cudbgApiAttach") == 4, "%s: %r" % (problems_of(rank), job.calls()))
        check_as_before(process)


def case_a_lock_for_ever(directory):
    job = Job(directory, "lock 1000000")
    with job.rank() as process:
        rank = job.attach(process, expect=1)
        check("held a lock of its driver" in problems_of(rank) and rank["threads"], problems_of(rank))
        check_as_before(process)


def case_no_context(directory):
    job = Job(directory, "no-context")
    with job.rank() as process:
        rank = job.attach(process, expect=1)
        check("reported no context" in problems_of(rank), problems_of(rank))
        check_as_before(process)


def case_the_driver_takes_no_debugger(directory):
    job = Job(directory, "no-handler")
    with job.rank() as process:
        rank = job.attach(process, expect=1)
        check("takes no debugger" in problems_of(rank) and "cudbgApiAttach" not in job.calls(), problems_of(rank))
        check_as_before(process)


def case_a_version_that_is_too_old(directory):
    job = Job(directory, "version 12 3 140")
    with job.rank() as process:
        rank = job.attach(process, expect=1)
        check("offers debugger API 12.3" in problems_of(rank) and "cudbgApiAttach" not in job.calls(), problems_of(rank))
        check_as_before(process)


def case_another_debugger(directory):
    job = Job(directory)
    with job.rank() as process:
        # The words of a client that is alive: this test. They are written by means of the symbols of the process's own driver.
        write_words(job, process, os.getpid(), 13)
        rank = job.attach(process, expect=1)
        check("a GPU debugger is attached: pid %d" % os.getpid() in problems_of(rank) and "cudbgApiAttach" not in job.calls(), problems_of(rank))
        write_words(job, process, 0, 0)
        check_as_before(process)


def write_words(job, process, client, capabilities):
    """Writes into the process's cudbgApiClientPid and cudbgDebuggerCapabilities."""
    path = os.path.join(job.directory, "libcuda.so.1")
    own = ctypes.CDLL(path)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        ours = min(int(line.split("-")[0], 16) for line in maps if path in line)
    with open("/proc/%d/maps" % process.pid, encoding="utf-8") as maps:
        theirs = min(int(line.split("-")[0], 16) for line in maps if path in line)
    with open("/proc/%d/mem" % process.pid, "r+b", buffering=0) as memory:
        for name, value in (("cudbgApiClientPid", client), ("cudbgDebuggerCapabilities", capabilities)):
            memory.seek(ctypes.addressof(ctypes.c_uint32.in_dll(own, name)) - ours + theirs)
            memory.write(value.to_bytes(4, "little"))


def case_what_an_ended_client_left_is_cleared(directory):
    job = Job(directory)
    with job.rank() as process:
        ended = subprocess.Popen(["true"])
        ended.wait()
        write_words(job, process, ended.pid, 13)
        rank = job.attach(process, expect=1)
        check("the process was freed from it" in problems_of(rank) and kernel_of(rank)["warps"] == 8, problems_of(rank))
        check_as_before(process)


# A call that fails: the session continues or ends, and releases the process in any case.
FAILING = ["initialize 20", "setNotifyNewEventCallback 10", "getNextEvent 28", "getNumSMs 11", "getDeviceInfoSizes 10", "suspendDevice 10", "getDeviceInfo 2", "getElfImageByHandle 33",
           "clearAttachState 10", "finalize 10"]


def case_each_call_fails(directory):
    for error in FAILING:
        sub = os.path.join(directory, error.split()[0])
        os.makedirs(sub)
        job = Job(sub, "error " + error)
        with job.rank() as process:
            rank = job.attach(process, expect=1)
            check(rank["threads"] and rank["status"] == "partial", "%s: %s" % (error, problems_of(rank)))
            calls = job.calls()
            suspended = calls.count("suspendDevice") if not error.startswith("suspendDevice") else 0
            check(suspended == calls.count("resumeDevice") or error.startswith("resumeDevice"), "%s: %r" % (error, calls))
            check("cudbgApiDetach" in calls, "%s: it was not let go: %r" % (error, calls))
            check_as_before(process)


def case_contexts_are_known_without_their_events(directory):
    """Once the modules' events came without the context's: that is enough. If nothing comes, the driver is asked once more."""
    for setting in ("no-context-events", "reports-nothing-at-first"):
        sub = os.path.join(directory, setting)
        os.makedirs(sub)
        job = Job(sub, setting)
        with job.rank() as process:
            rank = job.attach(process)
            check(kernel_of(rank)["warps"] == 8, "%s: %r" % (setting, rank["gpus"]))
            attached = job.calls().count("cudbgApiAttach")
            check(attached == (2 if setting == "reports-nothing-at-first" else 1), "%s: attached %d times" % (setting, attached))
            check_as_before(process)


def case_optional_calls_may_fail(directory):
    """Without a name, a grid, a stack or the place of an exception the report has less, but nothing wrong."""
    for error in ("getDeviceName 11", "getGridInfo 21", "readAllVirtualReturnAddresses 27", "readSmException 12"):
        sub = os.path.join(directory, error.split()[0])
        os.makedirs(sub)
        job = Job(sub, "error " + error, "exception 14")
        with job.rank() as process:
            rank = job.attach(process)
            check(kernel_of(rank)["warps"] == 8, "%s: %r" % (error, rank["gpus"]))
            check_as_before(process)


def hangs_in(directory, call):
    job = Job(directory, "hang " + call)
    with job.rank() as process:
        rank = job.attach(process, "--gpu-limit", 30, expect=1)
        check("the driver did not come back from %s; the process was freed" % call in problems_of(rank), problems_of(rank))
        check(rank["threads"], "no threads")
        check_as_before(process)


def helpers_of(process):
    """The helpers of GPU sessions with this process."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if words[0] == b"rankstacks" and b"sample" in words and b"%d" % process.pid in words:
            found.append(int(pid))
    return found


def case_a_slow_pause_is_waited_for_or_left_to_its_helper(directory):
    """To kill a helper while it pauses a GPU would leave that paused: it is waited for, or goes on without the tool."""
    job = Job(directory, "slow suspendDevice 4000")
    with job.rank() as process:
        rank = job.attach(process, "--gpu-limit", 3)
        check(kernel_of(rank)["warps"] == 8, problems_of(rank))
        check_as_before(process)
        rank = job.attach(process, "--gpu-limit", 1, expect=1)
        check("no state within 3 s (while the GPU was paused); it goes on alone" in problems_of(rank), problems_of(rank))
        check(rank["threads"] and not any(gpu.get("execution") for gpu in rank.get("gpus", [])), "%r" % rank.get("gpus"))
        wait_until(lambda: job.calls().count("finalize") == 2, "the end of the session that was left")
        wait_until(lambda: not helpers_of(process), "the end of its helper")
        check_as_before(process)
        rank = job.attach(process, "--gpu-limit", 3)
        check(kernel_of(rank)["warps"] == 8, problems_of(rank))
        check_as_before(process)


def case_a_call_hangs_before_the_gpu_is_held(directory):
    hangs_in(directory, "getNumSMs")


def case_a_call_hangs_while_the_gpu_is_held(directory):
    hangs_in(directory, "getDeviceInfo")


def case_the_helper_is_killed_at_each_phase(directory):
    for call in ("cudbgGetAPI", "initialize", "getNextEvent", "getDeviceName", "suspendDevice", "getDeviceInfo", "resumeDevice", "clearAttachState", "requestCleanupOnDetach", "finalize"):
        sub = os.path.join(directory, call)
        os.makedirs(sub)
        job = Job(sub, "kill " + call)
        with job.rank() as process:
            rank = job.attach(process, expect=1)
            check("its helper process ended by signal 9" in problems_of(rank), "%s: %s" % (call, problems_of(rank)))
            check("could not be freed" not in problems_of(rank), "%s: %s" % (call, problems_of(rank)))
            check_as_before(process)


def case_the_tool_is_killed_and_the_session_ends_in_order(directory):
    """A signal that kills the tool does not reach its helper, which releases the process by itself."""
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        sub = os.path.join(directory, str(int(number)))
        os.makedirs(sub)
        job = Job(sub, "attach-ms 400")
        with job.rank() as process:
            running = subprocess.Popen(command_of_tool(sub) + ["attach", "--samples", "1", "--pids", str(process.pid), "--gpu"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until(lambda: "cudbgApiAttach" in job.calls(), "the session's begin")
            if subprocess.run(["sh", "-c", "echo -999 > /proc/self/oom_score_adj"], stderr=subprocess.DEVNULL).returncode == 0:   # CAP_SYS_RESOURCE
                check(oom_scores_of_helpers(running.pid) == ["-999"], "oom_score_adj of the helpers: %r" % oom_scores_of_helpers(running.pid))
            running.send_signal(number)
            running.wait()
            wait_until(lambda: "finalize" in job.calls(), "the session's end")
            check_as_before(process)


def case_the_helper_is_killed_inside_of_the_process(directory):
    """The helper is killed while a thread of the process makes the call: the thread returns by itself, and the next session clears what is
    left."""
    job = Job(directory, "attach-ms 500")
    with job.rank() as process:
        running = subprocess.Popen(command_of_tool(directory) + ["attach", "--samples", "1", "--pids", str(process.pid), "--gpu", "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        wait_until(lambda: "cudbgApiAttach" in job.calls(), "the session's begin")
        with open(os.path.join(directory, "log"), encoding="utf-8") as log:
            helper = next(int(line.split()[0]) for line in log if "cudbgGetAPI" in line)
        os.kill(helper, signal.SIGKILL)
        out, _ = running.communicate(timeout=60)
        rank = only_rank(json.loads(out), process.pid)
        check("the process was freed from that session" in problems_of(rank), problems_of(rank))
        check_as_before(process)


def case_two_tools_at_once(directory):
    """One tool samples the GPUs, the other one reports that session: both release the process."""
    job = Job(directory, "attach-ms 300")
    with job.rank() as process:
        tools = [subprocess.Popen(command_of_tool(directory) + ["attach", "--samples", "1", "--pids", str(process.pid), "--gpu", "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
        seen = []
        for one in tools:
            out, err = one.communicate(timeout=60)
            rank = only_rank(json.loads(out), process.pid)
            seen.append(bool(rank.get("gpus")))
            if not seen[-1]:
                check("another rankstacks" in problems_of(rank) or "a GPU debugger is attached" in problems_of(rank), problems_of(rank))
        check(any(seen), "neither saw anything")
        check_as_before(process)


def case_a_gpu_core(directory):
    job = Job(directory)
    with job.rank() as process:
        path = os.path.join(directory, "core")
        rank = job.attach(process, "--gpu-core", path)
        with open(path + ".rank0", encoding="utf-8") as core:
            check(core.read() == "a core", "%s: %s" % (path, problems_of(rank)))
        check_as_before(process)


def case_two_processes_that_say_they_are_one_rank(directory):
    """Each process's core is a file of its own: named by host and pid if several processes have the rank's number."""
    job = Job(directory)
    with job.rank() as process, Fixture(["/usr/bin/python3", os.path.join(SOURCE, "fixtures", "jobs", "spin.py")], env=dict(os.environ, RANK="0", WORLD_SIZE="1")) as other:
        path = os.path.join(directory, "core")
        report = json_report("attach", "--pids", "%d,%d" % (process.pid, other.pid), "--gpu", "--gpu-core", path, machine=directory)
        rank = only_rank(report, process.pid)
        own = "%s.%s.%d" % (path, os.uname().nodename, process.pid)
        check(os.path.exists(own) and not os.path.exists(path + ".rank0"), "%r: %s" % (os.listdir(directory), problems_of(rank)))
        with open(own, encoding="utf-8") as core:
            check(core.read() == "a core", problems_of(rank))
        check_as_before(process)


def case_a_gpu_core_that_would_be_too_large(directory):
    job = Job(directory, "image-bytes 50000000")
    with job.rank() as process:
        path = os.path.join(directory, "core")
        rank = job.attach(process, "--gpu-core", path, "--gpu-core-limit", 10, expect=1)
        check("was not written: the limit is 10 MiB" in problems_of(rank) and not os.path.exists(path + ".rank0"), problems_of(rank))
        check_as_before(process)


def case_without_any_gpu(directory):
    """One clear line, and the rest of the report as without --gpu."""
    with Fixture([os.path.join(FIXTURES, "threads")]) as process:
        status, out, err = run_tool("attach", "--pids", process.pid, "--gpu", "--format", "json")
        rank = only_rank(json.loads(out), process.pid)
        check(status == 0 and problems_of(rank) == "--gpu: no process of the job has a CUDA context" and len(rank["threads"]) == 18, "%d: %s" % (status, problems_of(rank)))
        process.check_unharmed()


def case_in_a_namespace_of_its_own(directory):
    """A container's process: the session enters its namespaces, as the driver knows its client by the pid that the process sees."""
    if os.geteuid() != 0:
        raise Skip("entering another namespace needs root")
    job = Job(directory)
    process = subprocess.Popen(["unshare", "--pid", "--fork", "--mount", "--mount-proc", "/usr/bin/python3", PROGRAM, os.path.join(directory, "libcuda.so.1")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    try:
        line = process.stdout.readline()
        if not line:
            raise Skip("no namespaces here: %s" % process.stderr.read().decode(errors="replace").strip())
        check(json.loads(line)["pid"] == 1, "its pid inside: %r" % line)
        wait_until(lambda: children(process.pid), "the process inside")
        (pid,) = children(process.pid)
        report = json_report("attach", "--pids", pid, "--gpu", machine=directory)
        rank = only_rank(report, pid)
        check(rank["status"] == "complete" and kernel_of(rank)["function"] == "spin(int*)", problems_of(rank))
        process.stdin.write(b"are you there?\n")
        process.stdin.flush()
        check(process.stdout.readline() == b"alive\n", "it does not answer")
    finally:
        process.kill()
        process.wait()


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="utf-8") as found:
        return [int(word) for word in found.read().split()]


def oom_scores_of_helpers(pid):
    scores = []
    for child in children(pid):
        with open("/proc/%d/cmdline" % child, encoding="utf-8") as command, open("/proc/%d/oom_score_adj" % child, encoding="ascii") as score:
            if "--internal-gpu-session" in command.read():
                scores.append(score.read().strip())
    return scores


if __name__ == "__main__":
    cases.run(globals(), "gpu_sessions")
