"""Dumps of PyTorch's Flight Recorder: found by a rank's environment, named by --flight-recorder, compared with what Python's pickle says of them."""
import contextlib
import json
import os
import pickle
import shutil
import sys

import cases
from command_line import FIXTURES, SOURCE, text_of
from core_files import core_of
from processes import Fixture, Skip, check, json_report, run_tool

DUMPS = os.path.join(SOURCE, "fixtures", "flight_recorder")
PROGRAM = "import json, os, sys, threading; print(json.dumps({'pid': os.getpid(), 'thread': threading.get_ident()}), flush=True); sys.stdin.read()"


@contextlib.contextmanager
def ranks_with(directory, world=2):
    """Ranks whose environment says that their dumps are directory/trace_RANK."""
    with contextlib.ExitStack() as ranks:
        environment = dict(os.environ, WORLD_SIZE=str(world), TORCH_FR_DUMP_TEMP_FILE=os.path.join(directory, "trace_"))
        yield [ranks.enter_context(Fixture([sys.executable, "-c", PROGRAM], env=dict(environment, RANK=str(number)))) for number in range(world)]


def put(directory, name, rank, process=None):
    """Written now, as if by the main thread of `process`. Without one: by the process that has written it."""
    path = os.path.join(directory, "trace_%d" % rank)
    with open(os.path.join(DUMPS, "%s_%d" % (name, rank)), "rb") as file:
        dump = pickle.load(file)
    for entry in dump["entries"]:
        if process is not None:
            entry["thread_id"] = str(process.ready["thread"])
    with open(path, "wb") as file:
        pickle.dump(dump, file, 2)
    return path


def pids_of(ranks):
    return ",".join(str(rank.pid) for rank in ranks)


def check_record(record, path):
    """Every operation that is shown is an entry of the dump."""
    with open(path, "rb") as file:
        dump = pickle.load(file)
    check(record["version"] == dump["version"], "version %r" % record["version"])
    for group in record["groups"]:
        entries = [entry for entry in dump["entries"] if entry["process_group"][0] == group["name"]]
        check(group["description"] == entries[0]["process_group"][1], "description %r" % group)
        check(str(group["ranks"]) == dump["pg_config"][group["name"]]["ranks"], "members %r" % group["ranks"])
        check(group["last_enqueued"] == max(entry["collective_seq_id"] for entry in entries), "last enqueued %r" % group["last_enqueued"])
        for operation in group["operations"]:
            same = [entry for entry in entries if (operation["name"], operation["sequence"]) ==
                    (entry["profiling_name"].split(":")[1], entry["p2p_seq_id" if entry["is_p2p"] else "collective_seq_id"])]
            check(len(same) == 1, "%r is not in the dump" % operation)
            entry = same[0]
            expected = {"sequence": operation["sequence"], "message": entry["is_p2p"], "name": operation["name"], "state": entry["state"],
                        "input_sizes": entry["input_sizes"], "input_types": entry["input_dtypes"], "output_sizes": entry["output_sizes"], "output_types": entry["output_dtypes"],
                        "frames": [{"function": frame["name"], "file": frame["filename"], "line": frame["line"]} for frame in entry["frames"][:32]]}
            check(operation == expected, "%r\ninstead of\n%r" % (operation, expected))


def case_found_by_the_environment(directory):
    saved = os.path.join(directory, "saved.json")
    with ranks_with(directory) as ranks:
        paths = [put(directory, "other-collective", rank, ranks[rank]) for rank in (0, 1)]
        report = json_report("attach", "--pids", pids_of(ranks))
        for rank, path in zip(report["ranks"], paths):
            check(rank["flight_recorder"]["path"].endswith(path), "path %r" % rank["flight_recorder"]["path"])
            check_record(rank["flight_recorder"], path)
        _, out, _ = run_tool("attach", "--pids", pids_of(ranks))
        check("Flight Recorder\n  group 0 (default_pg): rank 0 called 4, ended 3, waits in all_reduce of 1024 Float\n" in text_of(out), text_of(out))
    with open(saved, "w", encoding="utf-8") as file:
        json.dump(report, file)
    again = json_report("report", saved)
    check([rank["flight_recorder"] for rank in again["ranks"]] == [rank["flight_recorder"] for rank in report["ranks"]], "the saved report reads back differently")


def case_one_from_before_the_process_does_not_count(directory):
    with ranks_with(directory) as ranks:
        put(directory, "other-collective", 0, ranks[0])
        os.utime(os.path.join(directory, "trace_0"), (1e9, 1e9))
        put(directory, "other-collective", 1, ranks[1])
        report = json_report("attach", "--pids", pids_of(ranks))
    check(["flight_recorder" in rank for rank in report["ranks"]] == [False, True], "%r" % [rank.get("flight_recorder") for rank in report["ranks"]])


def case_named(directory):
    elsewhere = os.path.join(directory, "elsewhere")
    os.mkdir(elsewhere)
    os.mkfifo(os.path.join(elsewhere, "pipe_0"))
    with ranks_with(directory) as ranks:
        paths = [put(elsewhere, "other-size", rank, ranks[rank]) for rank in (0, 1)]
        report = json_report("attach", "--pids", pids_of(ranks), "--flight-recorder", elsewhere)
        for rank, path in zip(report["ranks"], paths):
            check(rank["flight_recorder"]["path"] == path, "path %r" % rank["flight_recorder"]["path"])
            check_record(rank["flight_recorder"], path)
        status, _, err = run_tool("attach", "--pids", pids_of(ranks), "--flight-recorder", os.path.join(directory, "missing"))
        check(status == 2 and b"--flight-recorder" in err, "%d %r" % (status, err))


def case_of_another_process(directory):
    """Jobs of one user write their dumps to the same place: one whose threads are another process's is not used."""
    with ranks_with(directory) as ranks:
        path = put(directory, "other-collective", 0)
        put(directory, "other-collective", 1, ranks[1])
        report = json_report("attach", "--pids", pids_of(ranks))
        check(["flight_recorder" in rank for rank in report["ranks"]] == [False, True], "%r" % [rank.get("flight_recorder") for rank in report["ranks"]])
        named = json_report("attach", "--pids", pids_of(ranks), "--flight-recorder", path)
    problems = [problem["message"] for problem in named["ranks"][0]["problems"]]
    check(any("a dump of another process than rank 0's" in problem for problem in problems), "%r" % problems)


class Hostile:
    def __reduce__(self):
        return os.system, ("touch ran",)


def case_a_hostile_pickle(directory):
    with ranks_with(directory) as ranks:
        with open(os.path.join(directory, "trace_0"), "wb") as file:
            pickle.dump({"version": "2.10", "entries": [Hostile()]}, file, 2)
        report = json_report("attach", "--pids", pids_of(ranks))
    problems = [problem["message"] for problem in report["ranks"][0]["problems"]]
    check(any("is not one of plain data" in problem for problem in problems), "%r" % problems)
    check("flight_recorder" not in report["ranks"][0] and not os.path.exists("ran"), "it was read")


# What torch's heartbeat thread does: it has a pipe with a name open, and dumps if anything is written into it.
ANSWERS = """
import json, os, pickle, select, sys, threading
pipe, dump, trace, manner = sys.argv[1:5]
os.mkfifo(pipe)
fd = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
if manner == "only writes":
    reading, fd = fd, os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    os.close(reading)
if manner == "full":
    writing = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    try:
        while os.write(writing, b"?" * 4096):
            pass
    except BlockingIOError:
        fd = -1
with open(dump, "rb") as file:
    entries = pickle.load(file)
for entry in entries["entries"]:
    entry["thread_id"] = "4711" if manner == "other process" else str(threading.get_ident())
print(json.dumps({"pid": os.getpid()}), flush=True)
while True:
    wait = select.poll()
    if fd >= 0 and manner != "only writes":
        wait.register(fd, select.POLLIN)
    wait.register(0, select.POLLIN)
    ready = {at for at, _ in wait.poll()}
    if fd in ready and os.read(fd, 4096):
        data = pickle.dumps(entries, 2)
        if manner == "never":
            continue
        if manner == "half":
            data = data[:len(data) // 2]
        with open(trace, "wb") as file:
            file.write(data[:len(data) // 2])
            file.flush()
            file.write(data[len(data) // 2:])
        with open(trace + ".asked", "a") as file:
            file.write("asked\\n")
    if 0 in ready:
        break
"""


@contextlib.contextmanager
def ranks_that_answer(directory, manners=("", "")):
    with contextlib.ExitStack() as ranks:
        environment = dict(os.environ, WORLD_SIZE="2", TORCH_FR_DUMP_TEMP_FILE=os.path.join(directory, "trace_"),
                           TORCH_NCCL_DEBUG_INFO_PIPE_FILE=os.path.join(directory, "fr_"))
        yield [ranks.enter_context(Fixture([sys.executable, "-c", ANSWERS, os.path.join(directory, "fr_%d.pipe" % number),
                                            os.path.join(DUMPS, "other-collective_%d" % number), os.path.join(directory, "trace_%d" % number), manners[number]],
                                           env=dict(environment, RANK=str(number)))) for number in range(2)]


def problems_of(rank):
    return " ".join(problem["message"] for problem in rank["problems"])


def case_asked(directory):
    with ranks_that_answer(directory) as ranks:
        before = json_report("attach", "--pids", pids_of(ranks))
        check(not any("flight_recorder" in rank for rank in before["ranks"]) and not os.path.exists(os.path.join(directory, "trace_0.asked")),
              "they were asked without the option")
        report = json_report("attach", "--pids", pids_of(ranks), "--flight-recorder", "ask")
        for number, rank in enumerate(report["ranks"]):
            path = os.path.join(directory, "trace_%d" % number)
            check(rank["flight_recorder"]["path"].endswith(path), "path %r" % rank["flight_recorder"]["path"])
            check_record(rank["flight_recorder"], path)
            with open(path + ".asked", encoding="utf-8") as file:
                check(file.read() == "asked\n", "rank %d was asked more than once" % number)


def check_refused(report, expected):
    """The ranks have no dump, and problems that say why, with a hint."""
    for rank, text in zip(report["ranks"], expected):
        check("flight_recorder" not in rank, "rank %r has a dump" % rank["rank"])
        problems = [problem for problem in rank["problems"] if text in problem["message"]]
        check(problems and problems[0]["hint"], "%r instead of %r" % (rank["problems"], text))


def ask(ranks, *arguments):
    return json_report("attach", "--pids", pids_of(ranks), "--flight-recorder", "ask", *arguments)


def case_asked_in_vain(directory):
    with ranks_that_answer(directory, ("never", "")) as ranks:
        report = ask(ranks, "--timeout", "2")
        check("flight_recorder" in report["ranks"][1], "the other rank has answered")
        check_refused({"ranks": report["ranks"][:1]}, ["was asked, and has not written a dump within 2 s"])


def case_asked_and_answered_wrongly(directory):
    """A dump that stays half written, and one of another process."""
    with ranks_that_answer(directory, ("half", "other process")) as ranks:
        check_refused(ask(ranks, "--timeout", "2"), ["its dump cannot be read after 2 s", "a dump of another process has appeared"])


def case_a_pipe_that_nobody_reads(directory):
    """The rank has it open to write only, or has stopped looking: the write must neither wait nor count as a question."""
    with ranks_that_answer(directory, ("only writes", "full")) as ranks:
        check_refused(ask(ranks), ["it is no pipe that this rank reads: nothing was written to it", "the Flight Recorder cannot be asked"])


def case_a_pipe_of_somebody_else_is_not_written_to(directory):
    """Nor is a file at that place."""
    with ranks_that_answer(directory) as ranks:
        os.unlink(os.path.join(directory, "fr_0.pipe"))
        os.mkfifo(os.path.join(directory, "fr_0.pipe"))
        other = os.open(os.path.join(directory, "fr_0.pipe"), os.O_RDONLY | os.O_NONBLOCK)
        os.unlink(os.path.join(directory, "fr_1.pipe"))
        with open(os.path.join(directory, "fr_1.pipe"), "w", encoding="utf-8") as file:
            file.write("a file")
        try:
            check_refused(ask(ranks), ["it is no pipe that this rank reads: nothing was written to it", "it is no pipe of this rank's user: nothing was written to it"])
            check_nothing_in(other)
        finally:
            os.close(other)
    with open(os.path.join(directory, "fr_1.pipe"), encoding="utf-8") as file:
        check(file.read() == "a file", "the file was written to")


def check_nothing_in(pipe):
    try:
        check(os.read(pipe, 1) == b"", "something was written")
    except BlockingIOError:
        pass


def case_a_link_to_a_pipe_is_not_followed(directory):
    """Even to the pipe that the rank reads: torch makes none."""
    with ranks_that_answer(directory) as ranks:
        for number in range(2):
            pipe = os.path.join(directory, "fr_%d.pipe" % number)
            os.rename(pipe, pipe + ".moved")
            os.symlink(pipe + ".moved", pipe)
        check_refused(ask(ranks), ["it is no pipe of this rank's user: nothing was written to it"] * 2)
        check(not any(os.path.exists(os.path.join(directory, "trace_%d.asked" % number)) for number in range(2)), "the pipe behind the link was written to")


def case_a_pipe_of_another_user(directory):
    """The rank reads it, and it belongs to another user, who could read it as well."""
    if os.geteuid() != 0:
        raise Skip("only root can give a pipe to another user")
    with ranks_that_answer(directory) as ranks:
        for number in range(2):
            os.chown(os.path.join(directory, "fr_%d.pipe" % number), 65534, 65534)
        check_refused(ask(ranks), ["it is no pipe of this rank's user: nothing was written to it"] * 2)
        check(not any(os.path.exists(os.path.join(directory, "trace_%d.asked" % number)) for number in range(2)), "it was written to")


def case_a_relative_place(directory):
    with contextlib.ExitStack() as stack:
        environment = dict(os.environ, WORLD_SIZE="2", TORCH_NCCL_DEBUG_INFO_PIPE_FILE="fr_")
        ranks = [stack.enter_context(Fixture([sys.executable, "-c", PROGRAM], env=dict(environment, RANK=str(number)))) for number in range(2)]
        check_refused(ask(ranks), ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE is "fr_", no absolute path'] * 2)


def case_asked_on_nodes(directory):
    """`rankstacks job` hands the word on."""
    if not shutil.which("ssh"):
        raise Skip("no ssh here")
    _, out, _ = run_tool("job", "--hosts", "node-1", "--via", "ssh", "--print", "attach", "--flight-recorder", "ask")
    check("--flight-recorder ask" in text_of(out).replace("'", "").replace("=", " "), text_of(out))


def case_without_a_pipe(directory):
    with ranks_with(directory) as ranks:
        report = json_report("attach", "--pids", pids_of(ranks), "--flight-recorder", "ask")
        for rank in report["ranks"]:
            check("TORCH_NCCL_DEBUG_INFO_PIPE_FILE is not set in it" in problems_of(rank), problems_of(rank))
    status, _, err = run_tool("core", os.path.join(directory, "trace_0"), "--flight-recorder", "ask")
    check(status == 2 and b"a core cannot be asked" in err, "%d %r" % (status, err))


def case_found_for_a_core(directory):
    """By the environment in the core, if the dump names a thread of it."""
    with ranks_with(directory) as ranks:
        path = put(directory, "other-collective", 0, ranks[0])
        put(directory, "other-collective", 1)  # of another process
        cores = [core_of(rank, directory, "core.%d" % rank.pid) for rank in ranks]
    report = json_report("core", *cores)
    check([rank["flight_recorder"]["path"] if "flight_recorder" in rank else None for rank in report["ranks"]] == [path, None],
          "%r" % [rank.get("flight_recorder") for rank in report["ranks"]])
    check_record(report["ranks"][0]["flight_recorder"], path)
    if os.geteuid() == 0:
        other = 65534
        for of_core, of_dump, counts in ((0, other, False), (other, 0, False), (other, other, True)):
            os.chown(cores[0], of_core, of_core)
            os.chown(path, of_dump, of_dump)
            found = "flight_recorder" in json_report("core", *cores)["ranks"][0]
            check(found == counts, "a dump of user %d for the core of user %d: %s" % (of_dump, of_core, found))
        os.chown(cores[0], 0, 0)
        os.chown(path, 0, 0)
    os.utime(path, (1e9, 1e9))
    check("flight_recorder" not in json_report("core", *cores)["ranks"][0], "one from long before the core")


RECORDS = """if True:
    import ctypes, json, os, sys
    record = ctypes.CDLL(sys.argv[1]).record
    for number in range(1, 2301 if sys.argv[2] == "long" else 4):
        record(b"all_reduce", ctypes.c_long(number), ctypes.c_long(10), 1, 2)
    record(sys.argv[3].encode(), ctypes.c_long(number + 1), ctypes.c_long(1024), 0, 2)
    print(json.dumps({"pid": os.getpid(), "number": number + 1}), flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def recording_ranks(how="short"):
    """Two ranks with a record in memory: the last operation of the second is another one."""
    library = os.path.join(FIXTURES, "libtorch_recorder.so")
    check(os.path.exists(library), "%s is not built: cmake --build build" % library)
    with contextlib.ExitStack() as ranks:
        environment = dict(os.environ, WORLD_SIZE="2")
        yield [ranks.enter_context(Fixture([sys.executable, "-c", RECORDS, library, how, name], env=dict(environment, RANK=str(number))))
               for number, name in enumerate(("all_reduce", "_reduce_scatter_base"))]


def check_memory(report, number):
    for rank, name in zip(report["ranks"], ("all_reduce", "_reduce_scatter_base")):
        record = rank["flight_recorder"]
        check((record["source"], record["path"]) == ("memory", ""), "%r" % record)
        group, = record["groups"]
        check((group["name"], group["description"], group["library"], group["ranks"]) == ("0", "default_pg", "nccl", [0, 1]), "%r" % group)
        check((group["last_enqueued"], group["last_completed"]) == (number, number - 1), "%r" % group)
        check([one["sequence"] for one in group["operations"]] == list(range(max(1, number - 4), number + 1)), "%r" % group["operations"])
        last = group["operations"][-1]
        check((last["name"], last["state"], last["input_sizes"], last["input_types"]) == (name, "scheduled", [[1024]], ["Float"]), "%r" % last)


def case_in_memory(directory):
    """Live, of a ring that is full as well, in cores, and in small cores."""
    for how in ("short", "long"):
        with recording_ranks(how) as ranks:
            number = ranks[0].ready["number"]
            live = json_report("attach", "--pids", pids_of(ranks))
            check_memory(live, number)
            cores = [core_of(rank, directory, "core.%s.%d" % (how, rank.pid)) for rank in ranks]
            small = os.path.join(directory, "small." + how)
            status, _, err = run_tool("capture", "--pids", pids_of(ranks), "-o", small)
            check(status == 0, "capture: %d %r" % (status, err))
        check_memory(json_report("core", *cores), number)
        of_small = json_report("core", *sorted(os.path.join(small, name) for name in os.listdir(small)))
        check_memory(of_small, number)
        times = [[rank["flight_recorder"]["last_call_ms"] for rank in report["ranks"]] for report in (live, of_small)]
        check(all(at and since and abs(at - since) < 300e3 for at, since in zip(*times)), "the last calls, live and in small cores: %r" % times)


def case_a_named_dump_precedes_memory(directory):
    with recording_ranks() as ranks:
        paths = [put(directory, "other-collective", number) for number in range(2)]
        for path in paths:  # as if of an older torch, which does not name threads
            with open(path, "rb") as file:
                dump = pickle.load(file)
            for entry in dump["entries"]:
                del entry["thread_id"]
            with open(path, "wb") as file:
                pickle.dump(dump, file, 2)
        named = [word for path in paths for word in ("--flight-recorder", path)]
        report = json_report("attach", "--pids", pids_of(ranks), *named)
        small = os.path.join(directory, "small")
        status, _, err = run_tool("capture", "--pids", pids_of(ranks), "-o", small, *named)
        check(status == 0, "capture: %d %r" % (status, err))
        check([rank["flight_recorder"].get("path") for rank in report["ranks"]] == paths, "%r" % [rank["flight_recorder"] for rank in report["ranks"]])
        report = json_report("core", *sorted(os.path.join(small, name) for name in os.listdir(small)))
        check([rank["flight_recorder"]["path"] for rank in report["ranks"]] == paths, "of small cores: %r" % [rank["flight_recorder"] for rank in report["ranks"]])


if __name__ == "__main__":
    cases.run(globals(), "flight_records")
