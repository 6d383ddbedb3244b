"""Checks a JSON report against docs/json.md, member by member. Members may be added, but none may be missing or of another type."""
import re

ROLES = {"main", "python", "autograd", "nccl-watchdog", "nccl-heartbeat", "nccl-monitor", "nccl-proxy", "nccl-ras", "nccl-service", "gloo-loop",
         "gloo-worker", "tcp-store", "data-loader", "checkpoint", "cuda", "openmp", "jit-compile", "grpc", "profiler", "rpc", "mpi", "xla",
         "elastic", "logging", "faulthandler", "idle-pool", "native"}
ENDS = {"complete", "no-unwind-info", "memory-unavailable", "repeated-frame", "depth-limit", "registers-unknown"}
# None: of a dump, or in a report of an earlier version.
METHODS = {"live": ("stopped", "partly-stopped", "without-stop", None), "core": ("core", None), "dump": (None,)}
REASONS = {"data-loading", "checkpoint-io", "file-io", "network-io", "user-code", "python-lock", "native-lock", "subprocess", "debugger", "stopped",
           "compiling", "gpu-wait", "garbage-collection", "exception", "crashed", "missing", "worker-dead", "collective-mismatch",
           "process-group-order", "unmatched-p2p", "store-wait", "behind"}


def text(value):
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


def number(value):
    return isinstance(value, int) and not isinstance(value, bool)


def real(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def boolean(value):
    return isinstance(value, bool)


def hexadecimal(value):
    return isinstance(value, str) and re.fullmatch("0x[0-9a-f]+", value) is not None


def or_null(kind):
    return lambda value: value is None or kind(value)


def one_of(*allowed):
    return lambda value: value in allowed


def list_of(kind):
    return lambda value: isinstance(value, list) and all(kind(item) for item in value)


def numbers(value):
    return isinstance(value, dict) and all(number(n) for n in value.values())


def anything(value):
    return True


def rank_name(value):
    """A number, "host:pid", the same with what tells two of that name apart, or the file name of a core that does not even contain its pid."""
    return number(value) or (isinstance(value, str) and re.fullmatch("[^/]*:[0-9]+(@[0-9a-f-]+(/[0-9]+)?)?|[^/:]+", value) is not None)


REPORT = {"schema": one_of(1), "tool": anything, "captured_at": lambda value: re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", value) is not None,
          "ranks": list_of(anything), "clusters": list_of(anything), "verdict": anything, "waits": anything, "differences": list_of(anything)}
TOOL = {"name": one_of("rankstacks"), "version": text}
RANK = {"rank": or_null(number), "world_size": or_null(number), "local_rank": or_null(number), "coordinates": or_null(numbers), "kind": one_of("rank", "child"), "parent": or_null(number),
        "host": text, "pid": number, "source": text, "captured_offset_ms": or_null(real), "path": or_null(text), "executable": or_null(text),
        "command": list_of(text), "python": anything, "status": one_of("complete", "partial", "failed"), "problems": list_of(anything),
        "method": or_null(text), "stopped_ms": or_null(real), "threads_stopped": or_null(number), "signal": anything, "threads": list_of(anything), "activity": anything}
IDENTITY = {"boot_id": text, "pid_namespace": number}
ACTIVITY = {"kind": one_of("in-collective", "in-barrier", "in-p2p", "in-store-wait", "computing", "idle", *REASONS), "summary": text, "operation": or_null(text),
            "group": or_null(text), "peer": or_null(number), "moves": or_null(boolean), "tid": number, "frame": number}
MOTION = {"looks": number, "places": number, "moved": boolean, "travelled": boolean, "counted": boolean, "left_wait": boolean}
RAN = {"cpu_ms": real, "runs": number, "span_ms": real}
VARIABLES = {"frame": number, "numbers": lambda value: isinstance(value, dict) and all(number(n) for n in value.values())}
GROUP = {"name": text, "ranks": list_of(number)}
CODES = ("other", "ended", "not-found", "permission", "unreadable", "malformed", "unsupported", "mismatch", "timeout", "limit", "incomplete", "file-missing", "file-mismatch",
         "file-unverified", "module-overlap", "gpu", "from-other-tool")
DUMPING_TOOLS = ("py-spy", "pystack", "gdb", "cuda-gdb", "torch", "eu-stack", "faulthandler", "coredumpctl", "Flight Recorder")
PROBLEM = {"code": one_of(*CODES), "message": text, "hint": or_null(text)}
FAULT_PLACE = {"region": one_of("first-page", "below-stack", "mapped", "unmapped"), "executed": boolean}
FAULT_MAPPING = {"name": or_null(text), "permissions": text, "distance": hexadecimal}
INSTRUCTION = {"text": or_null(text), "bytes": lambda value: re.fullmatch("[0-9a-f]{2}( [0-9a-f]{2}){0,14}", value) is not None, "registers": list_of(anything)}
SIGNAL = {"number": number, "name": text, "tid": number}
THREAD = {"tid": number, "name": or_null(text), "state": or_null(one_of(*"RSDTtZXIPWKxF")), "role": text, "cluster": number, "gil": one_of("holds", "waits", None), "cpu_ms": or_null(real),
          "syscall": anything, "stack_end": one_of(*ENDS), "frames": list_of(anything)}
CAUSE = {"cause": one_of("own-gpu", "timeout", "peer")}
EXCEPTION = {"type": text, "what": or_null(text)}
HANDLED_CXX = {"type": text, "what": or_null(text), "frame": or_null(number)}
PYTHON_THREAD = {"id": hexadecimal, "name": or_null(text)}
PYTHON_LOCK = {"type": one_of("Lock", "RLock", "module lock", "condition")}
CHAINED = {"link": one_of("cause", "context"), "type": text, "message": or_null(text), "raised": anything}
OMITTED = {"at": number, "count": number}
HANDLED = {"type": text, "message": or_null(text), "frame": or_null(number), "handler": anything, "raised": anything}
SYSCALL = {"name": text, "number": number, "fd": or_null(number), "fd_target": or_null(text)}
OTHER_END = {"pid": number, "command": or_null(text), "kind": one_of("pipe", "socket", "lock", "child", "database")}
NATIVE = {"function": or_null(text), "module": or_null(text), "file": or_null(text), "line": or_null(number), "address": hexadecimal,
          "offset": or_null(hexadecimal), "inlined": boolean}
PYTHON = {"function": text, "qualname": or_null(text), "file": text, "line": or_null(number)}
CLUSTER = {"id": number, "role": text, "ranks": list_of(rank_name), "threads": number, "odd": boolean, "frames": list_of(anything)}
VERDICT = {"status": one_of("culprit", "symmetric", "healthy", "undecided"), "summary": text, "reference": or_null(text), "suspects": list_of(anything), "chains": list_of(anything), "candidates": list_of(anything)}
NODES = ("thread", "process", "operation", "ranks", "missing-rank", "lock", "kernel", "descriptor", "timer")
WAIT_EVIDENCE = ("frame", "system-call", "memory", "group", "kernel", "process", "others")
CHAIN = {"suspect": rank_name, "from": or_null(rank_name), "links": list_of(anything)}
LINK = {"node": one_of(*NODES), "rank": or_null(rank_name), "tid": or_null(number), "text": text, "evidence": one_of(None, *WAIT_EVIDENCE)}
CANDIDATE = {"rank": rank_name, "reason": one_of(None, *REASONS), "would_decide": text, "summary": text}
NODE = {"kind": one_of(*NODES), "rank": or_null(rank_name), "tid": or_null(number), "text": text}
EDGE = {"from": number, "to": number, "evidence": one_of(*WAIT_EVIDENCE), "certainty": one_of("possible", "likely", "certain")}
SUSPECT = {"rank": rank_name, "reason": one_of(*REASONS), "confidence": real, "summary": text, "advice": text, "evidence": list_of(anything)}
NCCL = {"version": text, "answers": one_of(1, 2), "communicators": list_of(anything)}
COMMUNICATOR = {"hash": text, "secondary_hash": text, "size": number, "members": list_of(anything), "missing": list_of(anything)}
MEMBER = {"rank": number, "host": text, "pid": number, "process": anything}
ANSWERED = {"aborted": boolean, "finalized": boolean, "async_error": number, "launched": anything, "counts_move": boolean}
MISSING = {"unresponsive": boolean, "dead": boolean}
DIM = {"x": number, "y": number, "z": number}
GPU = {"pci": text, "index": number, "uuid": text, "name": text, "health": anything, "execution": anything}
GPU_NUMBERS = ("memory_used", "memory_total", "process_memory", "sm_clock", "sm_clock_max", "memory_clock", "memory_clock_max", "ecc_corrected", "ecc_uncorrected",
               "remapped_rows", "nvlinks", "nvlinks_up", "nvlink_errors", "pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max")
GPU_REALS = ("utilization_mean", "utilization_variance", "memory_utilization_mean", "power_w", "power_mean_w", "power_limit_w", "temperature_c")
HEALTH = dict({name: number for name in GPU_NUMBERS}, **{name: real for name in GPU_REALS})
HEALTH.update({"throttle": list_of(text), "remap_pending": one_of(True), "remap_failed": one_of(True), "nvlinks_down": list_of(number), "xids": list_of(number),
               "other_processes": list_of(number), "driver": text})
EXECUTION = {"source": one_of("debugger", "core"), "contexts": number, "kernels": list_of(anything), "exceptions": list_of(anything)}
KERNEL = {"grid_id": number, "function": or_null(text), "grid": anything, "block": anything, "blocks": number, "sms": number, "warps": number, "lanes": number, "places": list_of(anything),
          "frames": list_of(anything)}
GPU_FRAME = {"function": or_null(text), "module": one_of(None), "file": or_null(text), "line": or_null(number), "address": hexadecimal, "offset": or_null(hexadecimal), "inlined": one_of(False)}
GPU_CLUSTER = {"state": one_of("exception", "kernel", "idle", "unknown", "collective"), "ranks": list_of(rank_name)}
MISSING_FILE = {"path": text, "build_id": or_null(text), "package": or_null(text), "frames": number}
PACKAGE_FROM = ("dpkg", "wheel", "conda")
MODULE = {"name": text, "path": text, "build_id": or_null(lambda value: re.fullmatch("[0-9a-f]+", value) is not None), "version": or_null(text)}
VERSION_FROM = ("file-name", "metadata", "text", "memory")
ENVIRONMENT = {"kernel": text, "distribution": text, "container": text, "gpu_driver": text, "cpus": text, "cpu_nodes": text, "memory_nodes": text, "limits": anything,
               "cgroup": anything, "clock": anything, "variables": anything}
SETTING = re.compile("(NCCL_|TORCH_|CUDA_|OMP_|GLOO_|UCX_|FI_|PYTHON)[A-Za-z0-9_]*")
DIFFERENCE = {"kind": one_of("version", "build", "variable", "kernel", "distribution", "container", "gpu-driver", "limit", "memory-limit", "cpu-limit", "process-limit",
                             "cpus", "clock", "old-driver", "other-driver"), "name": or_null(text), "summary": text, "values": list_of(anything)}
ASKED_NODE = {"name": text, "status": one_of("answered", "silent"), "engine": text, "message": or_null(text), "hint": or_null(text), "ranks": list_of(number),
              "clock_offset_ms": or_null(real), "clock_error_ms": or_null(real), "late_ms": or_null(real),
              "fault": one_of(None, "other", "unknown-host", "no-route", "connect-timeout", "connection-refused", "connection-lost", "host-key", "login-denied",
                              "not-permitted", "no-target", "node-down", "busy", "no-engine", "timeout", "interrupted", "cannot-run", "cannot-copy", "malformed",
                              "no-ranks", "several-jobs", "tool-failed")}
NODE_PROBLEM = {"code": ASKED_NODE["fault"], "message": text, "hint": or_null(text), "nodes": list_of(text), "ranks": list_of(number)}
KERNEL_KILL = {"host": text, "pid": number, "name": text, "cause": one_of("out-of-memory", "fault"), "at": text, "text": text}
EVIDENCE = {"rank": rank_name, "tid": number, "frame": number}


class Checker:
    def __init__(self):
        self.errors = []

    def object(self, value, members, where):
        """Whether `value` is an object, so that its members can be checked further."""
        if not isinstance(value, dict):
            self.errors.append("%s is no object: %.60r" % (where, value))
            return False
        for name, kind in members.items():
            if name not in value:
                self.errors.append("%s has no %s" % (where, name))
            else:
                try:
                    good = kind(value[name])
                except TypeError:
                    good = False
                if not good:
                    self.errors.append("%s.%s is wrong: %.80r" % (where, name, value[name]))
        return all(name in value for name in members)

    def other_ends(self, call, where, live):
        if not isinstance(call, dict):
            return
        if not live and {"other_ends", "own_end", "database", "other_host", "listens"} & call.keys():
            self.errors.append("%s: other ends of something that is not live" % where)
        if call.get("own_end", True) is not True or not text(call.get("other_host", "")):
            self.errors.append("%s: own_end or other_host is wrong" % where)
        ends = call.get("other_ends", [{"pid": 1, "command": None, "kind": "pipe"}])
        if not isinstance(ends, list) or not 1 <= len(ends) <= 8:
            self.errors.append("%s.other_ends is wrong: %.80r" % (where, ends))
            return
        if "database" in call and (not text(call["database"]) or [end.get("kind") for end in ends if isinstance(end, dict)] != ["database"]):
            self.errors.append("%s: a database without who has locked it" % where)
        if all([self.object(end, OTHER_END, where + ".other_ends") for end in ends]) and [end["pid"] for end in ends] != sorted({end["pid"] for end in ends}):
            self.errors.append("%s.other_ends are not ascending by pid" % where)

    def frames(self, frames, where):
        for index, frame in enumerate(frames):
            place = "%s.frames[%d]" % (where, index)
            kind = frame.get("kind") if isinstance(frame, dict) else None
            if kind == "native":
                self.object(frame, NATIVE, place)
                if frame.get("inlined") and index + 1 == len(frames):
                    self.errors.append("%s is inlined into nothing" % place)
            elif kind == "python":
                self.object(frame, PYTHON, place)
            else:
                self.errors.append("%s.kind is %r" % (place, kind))

    def signal(self, signal, where):
        if not self.object(signal, SIGNAL, where):
            return
        if "sender" in signal and not number(signal["sender"]):
            self.errors.append("%s.sender is wrong: %r" % (where, signal["sender"]))
        if signal.get("reraised", True) is not True:
            self.errors.append("%s.reraised is wrong: %r" % (where, signal["reraised"]))
        if "instruction" in signal and self.object(signal["instruction"], INSTRUCTION, where + ".instruction"):
            for register in signal["instruction"]["registers"]:
                self.object(register, {"name": text, "value": hexadecimal}, where + ".instruction.registers")
        place = signal.get("place")
        if place is None or not self.object(place, FAULT_PLACE, where + ".place"):
            return
        for name in ("mapping", "below", "above"):
            if name in place:
                self.object(place[name], FAULT_MAPPING, where + ".place." + name)

    def rank(self, rank, where, clusters):
        if not self.object(rank, RANK, where):
            return
        if rank["coordinates"] is not None and not text(rank.get("coordinates_from")):
            self.errors.append("%s.coordinates_from is wrong: %r" % (where, rank.get("coordinates_from")))
        if rank["python"] is not None:
            self.object(rank["python"], {"version": or_null(text)}, where + ".python")
        if rank["signal"] is not None:
            self.signal(rank["signal"], where + ".signal")
        if "faulthandler" in rank:
            self.object(rank["faulthandler"], {"signals": list_of(text), "called": list_of(text), "descriptor": or_null(number)}, where + ".faulthandler")
        if "oom_kills" in rank and not number(rank["oom_kills"]):
            self.errors.append("%s.oom_kills is wrong: %r" % (where, rank["oom_kills"]))
        if "abort_message" in rank and not text(rank["abort_message"]):
            self.errors.append("%s.abort_message is wrong: %r" % (where, rank["abort_message"]))
        if rank["activity"] is not None:
            self.object(rank["activity"], ACTIVITY, where + ".activity")
        for problem in rank["problems"]:
            self.object(problem, PROBLEM, where + ".problems")
        live, dump = rank["source"] == "live", rank["source"] == "dump"
        if "identity" in rank and self.object(rank["identity"], IDENTITY, where + ".identity"):
            for name in set(rank["identity"]) - set(IDENTITY):
                if name not in ("start_ticks", "own_pid_namespace", "own_pid") or not number(rank["identity"][name]):
                    self.errors.append("%s.identity.%s is wrong: %r" % (where, name, rank["identity"][name]))
        if dump != ("dumped_by" in rank):
            self.errors.append("%s has source %r and dumped_by %r" % (where, rank["source"], rank.get("dumped_by")))
        if dump and (rank["dumped_by"] == "torch") != (rank["status"] == "failed"):
            self.errors.append("%s is %r, dumped by %r" % (where, rank["status"], rank["dumped_by"]))
        if dump and (rank["dumped_by"] not in DUMPING_TOOLS or rank["status"] != "failed" and "from-other-tool" not in [problem.get("code") for problem in rank["problems"]]):
            self.errors.append("%s does not say what the dump of %r lacks" % (where, rank["dumped_by"]))
        if rank["status"] == "failed" and (rank["threads"] or not rank["problems"]):
            self.errors.append("%s has failed, with %d threads and %d problems" % (where, len(rank["threads"]), len(rank["problems"])))
        if rank["status"] != "failed" and rank["method"] not in METHODS.get(rank["source"], ()):
            self.errors.append("%s, source %s, has method %r" % (where, rank["source"], rank["method"]))
        if rank["status"] != "failed" and live and (rank["stopped_ms"] is None or (rank["method"] is None) != (rank["threads_stopped"] is None)):
            self.errors.append("%s is live, and does not say what was stopped" % where)
        if not live and (rank["stopped_ms"] is not None or rank["threads_stopped"] is not None):
            self.errors.append("%s is no live process, and says what was stopped" % where)
        if rank["method"] == "without-stop" and (rank["threads_stopped"] != 0 or rank["stopped_ms"] != 0):
            self.errors.append("%s was not stopped, with %r threads for %r ms" % (where, rank["threads_stopped"], rank["stopped_ms"]))
        if rank["method"] in ("stopped", "partly-stopped") and rank["threads_stopped"] == 0 and not any(thread.get("state") in ("D", "F") for thread in rank["threads"]):
            self.errors.append("%s: %s, and no thread was" % (where, rank["method"]))
        tids = set()
        for thread in rank["threads"]:
            place = "%s tid %s" % (where, thread.get("tid") if isinstance(thread, dict) else "?")
            if not self.object(thread, THREAD, place):
                continue
            if "exception" in thread:
                self.object(thread["exception"], EXCEPTION, place + ".exception")
                if isinstance(thread["exception"], dict) and "cause" in thread["exception"]:
                    self.object(thread["exception"], CAUSE, place + ".exception")
            for name in ("handles_cxx", "raises_cxx"):
                if name in thread and self.object(thread[name], HANDLED_CXX, place + "." + name):
                    if "cause" in thread[name]:
                        self.object(thread[name], CAUSE, place + "." + name)
                    if thread[name]["frame"] is not None and (thread[name]["frame"] >= len(thread["frames"]) or thread["frames"][thread[name]["frame"]]["kind"] != "native"):
                        self.errors.append("%s.%s: its handler is in no native frame" % (place, name))
                    if "exception" in thread:
                        self.errors.append("%s ends by an exception, and has %s" % (place, name))
            if "raises" in thread:
                self.object(thread["raises"], HANDLED, place + ".raises")
            for exception in (thread.get("handles"), thread.get("raises")):
                if isinstance(exception, dict) and "cause" in exception:
                    self.object(exception, CAUSE, place + ".handles")
            if "handles" in thread and self.object(thread["handles"], HANDLED, place + ".handles"):
                handled = thread["handles"]
                for chained in handled.get("chain", []):
                    if self.object(chained, CHAINED, place + ".handles.chain") and chained["raised"] is not None:
                        self.object(chained["raised"], PYTHON, place + ".handles.chain.raised")
                for frame in handled.get("traceback", []):
                    self.object(frame, PYTHON, place + ".handles.traceback")
                if "traceback_omitted" in handled and self.object(handled["traceback_omitted"], OMITTED, place + ".handles.traceback_omitted"):
                    if handled["traceback_omitted"]["at"] > len(handled["traceback"]) or handled["traceback_omitted"]["count"] < 1:
                        self.errors.append("%s.handles: left out of the traceback: %r" % (place, handled["traceback_omitted"]))
                elif handled["raised"] is not None and handled.get("traceback") and handled["traceback"][-1] != handled["raised"]:
                    self.errors.append("%s.handles: the traceback does not end where it was raised" % place)
                for name in ("handler", "raised"):
                    if handled[name] is not None:
                        self.object(handled[name], PYTHON, "%s.handles.%s" % (place, name))
                if handled["frame"] is not None and (handled["frame"] >= len(thread["frames"]) or thread["frames"][handled["frame"]]["kind"] != "python"):
                    self.errors.append("%s handles an exception in no frame" % place)
            if "python_thread" in thread:
                self.object(thread["python_thread"], PYTHON_THREAD, place + ".python_thread")
            if "python_lock" in thread and self.object(thread["python_lock"], PYTHON_LOCK, place + ".python_lock"):
                lock = thread["python_lock"]
                if "name" in lock and not (text(lock["name"]) and lock["type"] == "module lock"):
                    self.errors.append("%s: the lock's name is wrong: %r" % (place, lock["name"]))
                if "owner" in lock and (lock["owner"] not in [other.get("tid") for other in rank["threads"]] or lock["type"] == "condition"):
                    self.errors.append("%s: the lock is held by no thread: %r" % (place, lock["owner"]))
            if thread["tid"] in tids:
                self.errors.append("%s is there twice" % place)
            tids.add(thread["tid"])
            if thread["role"] not in ROLES:
                self.errors.append("%s.role is not documented: %r" % (place, thread["role"]))
            if not live and thread["state"] is not None and not (dump and thread["state"] in "RS"):
                self.errors.append("%s: a state from something that is not live" % place)
            if thread["syscall"] is not None:
                self.object(thread["syscall"], SYSCALL, place + ".syscall")
                self.other_ends(thread["syscall"], place + ".syscall", live)
            if "motion" in thread:
                motion = dict(thread["motion"])
                if motion.pop("in_one_function", True) is not True:
                    self.errors.append("%s.motion.in_one_function is given, and not true" % place)
                self.object(motion, MOTION if dump else {**MOTION, **RAN}, place + ".motion")
                if not live and not dump:
                    self.errors.append("%s: motion of something that is not live" % place)
            for variables in thread.get("variables", []):
                if self.object(variables, VARIABLES, place + ".variables") and variables["frame"] >= len(thread["frames"]):
                    self.errors.append("%s: variables of no frame" % place)
                if "group" in variables and self.object(variables["group"], GROUP, place + ".group") and not text(variables["group"].get("description", "x")):
                    self.errors.append("%s.group.description is wrong: %r" % (place, variables["group"]["description"]))
            if thread["cluster"] not in clusters:
                self.errors.append("%s.cluster %r does not exist" % (place, thread["cluster"]))
            else:
                clusters[thread["cluster"]] -= 1
            self.frames(thread["frames"], place)
        if "flight_recorder" in rank:
            check_flight_recorder(self, rank["flight_recorder"], where + ".flight_recorder")
        if "gpus" in rank:
            check_gpus(self, rank["gpus"], where)
        check_environment(self, rank, where)
        check_missing_files(self, rank, where)


def check_missing_files(checker, rank, where):
    files = rank.get("missing_files", [])
    said = any(problem.get("code") == "file-missing" for problem in rank["problems"])
    if "missing_files" in rank and (not files or rank["source"] != "core" or not said):
        checker.errors.append("%s has missing files: %.80r" % (where, files))
    for file in files:
        if checker.object(file, MISSING_FILE, where + ".missing_files") and file.get("package_from") not in ((None,) if file["package"] is None else PACKAGE_FROM):
            checker.errors.append("%s.missing_files: where the package is from: %.80r" % (where, file))
    if [file["frames"] for file in files] != sorted((file["frames"] for file in files), reverse=True):
        checker.errors.append("%s.missing_files: those that most frames are in do not come first" % where)


def check_environment(checker, rank, where):
    if ("modules" in rank) != ("environment" in rank):
        checker.errors.append("%s has modules without an environment, or the other way round" % where)
        return
    for module in rank.get("modules", []):
        if checker.object(module, MODULE, where + ".modules") and module.get("version_from") not in ((None,) if module["version"] is None else VERSION_FROM):
            checker.errors.append("%s.modules: where the version is from: %.80r" % (where, module))
    environment = rank.get("environment")
    if environment is None:
        return
    checker.object(environment, dict({name: kind for name, kind in ENVIRONMENT.items() if name in environment}, variables=anything), where + ".environment")
    for name in environment:
        if name not in ENVIRONMENT:
            checker.errors.append("%s.environment.%s is not documented" % (where, name))
    for name, value in (environment.get("variables") or {}).items():
        if not SETTING.fullmatch(name) or not text(value):
            checker.errors.append("%s.environment.variables: %r is no setting" % (where, name))
    for limit in environment.get("limits", {}).values():
        checker.object(limit, {"soft": or_null(number), "hard": or_null(number)}, where + ".environment.limits")
    if "cgroup" in environment:
        checker.object(environment["cgroup"], {"memory_bytes": or_null(number), "cpus": or_null(real), "processes": or_null(number)}, where + ".environment.cgroup")
    if "clock" in environment:
        checker.object(environment["clock"], {"synchronized": boolean, "offset_us": number, "max_error_us": number}, where + ".environment.clock")


def check_differences(checker, differences):
    for difference in differences:
        if not checker.object(difference, DIFFERENCE, "differences"):
            continue
        sizes = []
        for value in difference["values"]:
            if checker.object(value, {"value": or_null(text), "ranks": list_of(rank_name)}, "differences.values"):
                sizes.append(len(value["ranks"]))
        if sizes != sorted(sizes) or not all(sizes):
            checker.errors.append("differences: the value of the fewest ranks is not the first: %r" % sizes)
        if len(sizes) < 2 and difference["kind"] not in ("old-driver", "other-driver"):
            checker.errors.append("differences: only one value: %r" % difference)


def check_flight_recorder(checker, record, where):
    checker.object(record, {"source": one_of("memory", "dump"), "path": text, "version": text, "age_ms": or_null(real), "last_call_ms": or_null(real), "longest_gap_ms": or_null(real), "groups": list_of(anything)}, where)
    for group in record["groups"]:
        checker.object(group, {"name": text, "description": text, "library": text, "ranks": list_of(number), "last_enqueued": or_null(number),
                                "last_started": or_null(number), "last_completed": or_null(number), "left_out": number, "operations": list_of(anything)}, where)
        for operation in group["operations"]:
            checker.object(operation, {"sequence": number, "message": boolean, "name": text, "state": one_of("scheduled", "started", "completed"),
                                        "input_sizes": list_of(list_of(number)), "input_types": list_of(text), "output_sizes": list_of(list_of(number)),
                                        "output_types": list_of(text), "frames": list_of(anything)}, where)


def check_gpus(checker, gpus, where):
    def known(value, members, place):
        """Members that are left out if they are unknown."""
        if isinstance(value, dict):
            checker.object(value, {name: kind for name, kind in members.items() if name in value}, place)
            for name in value:
                if name not in members:
                    checker.errors.append("%s.%s is not documented" % (place, name))
        else:
            checker.errors.append("%s is no object: %.60r" % (place, value))

    def frame(value, place):
        if checker.object(value, GPU_FRAME, place) and value.get("kind") != "gpu":
            checker.errors.append("%s.kind is %r" % (place, value.get("kind")))

    for index, gpu in enumerate(gpus):
        place = "%s.gpus[%d]" % (where, index)
        known(gpu, GPU, place)
        if "health" in gpu:
            known(gpu["health"], HEALTH, place + ".health")
        if "execution" not in gpu or not checker.object(gpu["execution"], EXECUTION, place + ".execution"):
            continue
        for kernel in gpu["execution"]["kernels"]:
            if not checker.object(kernel, KERNEL, place + ".kernels"):
                continue
            for dim in ("grid", "block"):
                checker.object(kernel[dim], DIM, place + ".kernels." + dim)
            for one in kernel["places"]:
                if checker.object(one, {"warps": number, "frame": anything}, place + ".places"):
                    frame(one["frame"], place + ".places.frame")
            for one in kernel["frames"]:
                frame(one, place + ".kernels.frames")
        for exception in gpu["execution"]["exceptions"]:
            checker.object(exception, {"kind": text, "warps": number}, place + ".exceptions")
            for dim in ("block", "thread"):
                if dim in exception:
                    checker.object(exception[dim], DIM, place + ".exceptions." + dim)
            if "frame" in exception:
                frame(exception["frame"], place + ".exceptions.frame")


def check_nccl(checker, nccl):
    if not checker.object(nccl, NCCL, "nccl"):
        return
    for index, communicator in enumerate(nccl["communicators"]):
        where = "nccl.communicators[%d]" % index
        if not checker.object(communicator, COMMUNICATOR, where):
            continue
        for kind, members in ((ANSWERED, "members"), (MISSING, "missing")):
            for member in communicator[members]:
                if checker.object(member, dict(MEMBER, **kind), where + "." + members) and member["process"] is not None:
                    checker.object(member["process"], {"host": text, "pid": number}, where + ".process")
                    if "identity" in member["process"]:
                        checker.object(member["process"]["identity"], IDENTITY, where + ".process.identity")
                counts = member.get("launched", {})
                if not isinstance(counts, dict) or not all(number(count) and count >= 0 for count in counts.values()):
                    checker.errors.append("%s.launched is wrong: %.80r" % (where, counts))


def errors_in(report):
    checker = Checker()
    if not checker.object(report, REPORT, "report"):
        return checker.errors
    checker.object(report["tool"], TOOL, "tool")
    clusters = {}
    for index, cluster in enumerate(report["clusters"]):
        where = "clusters[%d]" % index
        if checker.object(cluster, CLUSTER, where):
            if cluster["id"] in clusters:
                checker.errors.append("%s: id %d is there twice" % (where, cluster["id"]))
            clusters[cluster["id"]] = cluster["threads"]
            checker.frames(cluster["frames"], where)
    for index, rank in enumerate(report["ranks"]):
        checker.rank(rank, "ranks[%d]" % index, clusters)
    for cluster in report.get("gpu_clusters", []):
        checker.object(cluster, GPU_CLUSTER, "gpu_clusters")
    for node in report.get("nodes", []):
        checker.object(node, ASKED_NODE, "nodes")
    for kill in report.get("kernel_log", []):
        checker.object(kill, KERNEL_KILL, "kernel_log")
    for problem in report.get("problems", []):
        checker.object(problem, NODE_PROBLEM, "problems")
    if "nccl" in report:
        check_nccl(checker, report["nccl"])
    check_differences(checker, report["differences"])
    for index in report["verdict"].get("differences", []):
        if not number(index) or not 0 <= index < len(report["differences"]):
            checker.errors.append("verdict.differences: there is no %r" % index)
    for cluster, missing in clusters.items():
        if missing != 0:
            checker.errors.append("cluster %d's number of threads is off by %d" % (cluster, missing))
    if checker.object(report["verdict"], VERDICT, "verdict"):
        for suspect in report["verdict"]["suspects"]:
            if checker.object(suspect, SUSPECT, "suspect"):
                for evidence in suspect["evidence"]:
                    checker.object(evidence, EVIDENCE, "evidence")
        for chain in report["verdict"]["chains"]:
            if checker.object(chain, CHAIN, "chain"):
                for link in chain["links"]:
                    checker.object(link, LINK, "chain link")
        for candidate in report["verdict"]["candidates"]:
            checker.object(candidate, CANDIDATE, "candidate")
        if report["verdict"]["candidates"] and report["verdict"]["status"] != "undecided":
            checker.errors.append("verdict %s has candidates" % report["verdict"]["status"])
        if (report["verdict"]["status"] == "culprit") != bool(report["verdict"]["suspects"]):
            checker.errors.append("verdict %s with %d suspects" % (report["verdict"]["status"], len(report["verdict"]["suspects"])))
    for node in report["waits"]["nodes"]:
        checker.object(node, NODE, "waits.nodes")
    for edge in report["waits"]["edges"]:
        if checker.object(edge, EDGE, "waits.edges") and max(edge["from"], edge["to"]) >= len(report["waits"]["nodes"]):
            checker.errors.append("an edge to a node that is not there: %r" % edge)
    return checker.errors
