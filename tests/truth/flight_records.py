"""Dumps of PyTorch's Flight Recorder: found by a rank's environment, named by --flight-recorder, compared with what Python's pickle says of them."""
import contextlib
import json
import os
import pickle
import sys

import cases
from command_line import SOURCE, text_of
from processes import Fixture, check, json_report, run_tool

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


if __name__ == "__main__":
    cases.run(globals(), "flight_records")
