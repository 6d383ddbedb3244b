"""Saved reports of real NCCL jobs (fixtures/nccl, made by its collect on a machine with 4 GPUs): shown again, they say what they said
before, which is the truth."""
import gzip
import json
import os

import cases
from command_line import SOURCE, text_of
from processes import check, json_report, run_tool

DIRECTORY = os.path.join(SOURCE, "fixtures", "nccl")


def load(directory, name):
    """(path of the unpacked report, the report as it was saved, the truth about its job)"""
    path = os.path.join(directory, name + ".json")
    with gzip.open(os.path.join(DIRECTORY, name + ".json.gz"), "rb") as packed, open(path, "wb") as out:
        out.write(packed.read())
    with open(path, encoding="utf-8") as saved, open(os.path.join(DIRECTORY, name + ".truth.json"), encoding="utf-8") as truth:
        return path, json.load(saved), json.load(truth)


def check_culprit(directory, name):
    path, saved, truth = load(directory, name)
    report = json_report("report", path)
    # Computed again for every report; libraries that it did not record, by their frames' paths.
    analysed = lambda rank: {member: rank[member] for member in ("threads", "activity", "modules", "environment") if member in rank}
    by_names = [module["version_from"] for old, now in zip(saved["ranks"], report["ranks"]) if "modules" not in old for module in now.get("modules", [])]
    check(set(by_names) == {"file-name"}, "modules: %r" % by_names)
    for member in ("modules", "environment"):
        check(all(now[member] == old[member] for old, now in zip(saved["ranks"], report["ranks"]) if old.get(member)), "the %s of a rank" % member)
    check(report["ranks"] == [dict({"coordinates": None, "method": None, "threads_stopped": None}, **dict(rank, **analysed(again))) for rank, again in zip(saved["ranks"], report["ranks"])], "what was saved of the ranks has changed")
    said = {suspect["rank"]: suspect["reason"] for suspect in report["verdict"]["suspects"]}
    expected = {int(rank): reason for rank, reason in truth["suspects"].items()}
    check(report["verdict"]["status"] == truth["status"] and said == expected, "said %r, true is %r" % (report["verdict"], expected))
    status, out, _ = run_tool("report", path)
    lines = text_of(out).splitlines()
    check(status == 0 and len(lines) <= 40 and lines[0].startswith("CULPRIT: rank %d " % min(expected)), "status %d:\n%s" % (status, text_of(out)))


def case_nccl_data_loader(directory):
    check_culprit(directory, "data-loader")


def case_nccl_loader_worker(directory):
    check_culprit(directory, "loader-worker")


def case_nccl_two_ranks_loader_worker(directory):
    check_culprit(directory, "two-ranks-loader-worker")


def case_nccl_asleep(directory):
    check_culprit(directory, "asleep")


def case_nccl_lock(directory):
    check_culprit(directory, "lock")


def case_nccl_exception(directory):
    check_culprit(directory, "exception")


def case_nccl_checkpoint(directory):
    check_culprit(directory, "checkpoint")


def case_nccl_store_wait(directory):
    check_culprit(directory, "store-wait")


def case_nccl_no_rank_is_accused_where_all_stacks_are_alike(directory):
    """Two orders of groups, or two collectives, with all ranks in the same synchronize(): CPU stacks alone cannot distinguish them."""
    for name in ("group-order", "collective-mismatch"):
        path, _, _ = load(directory, name)
        verdict = json_report("report", path)["verdict"]
        check(not verdict["suspects"], "%s: %r" % (name, verdict))


def case_nccl_counts_distinguish_four_ranks(directory):
    """Three samples and NCCL's own counts on four H200s: every case is recognised, also those whose CPU stacks are alike."""
    names = sorted(entry[:-len(".json.gz")] for entry in os.listdir(DIRECTORY) if entry.startswith("four-ranks-") and entry.endswith(".json.gz"))
    check(len(names) == 12, "snapshots: %r" % names)
    for name in names:
        path, _, truth = load(directory, name)
        verdict = json_report("report", path)["verdict"]
        said = {suspect["rank"]: suspect["reason"] for suspect in verdict["suspects"]}
        check(verdict["status"] == truth["status"] and said == {int(rank): reason for rank, reason in truth["suspects"].items()}, "%s: %r" % (name, verdict))
        words = [verdict["summary"]] + [suspect["summary"] for suspect in verdict["suspects"]]
        check(all("  " not in text for text in words), "%s: a word is missing: %r" % (name, words))


def case_nccl_what_runs_on_the_gpus(directory):
    """Taken with --gpu on two H200s: kernels distinguish ranks whose stacks are alike; the other reports say the same as without."""
    names = sorted(entry[:-len(".json.gz")] for entry in os.listdir(DIRECTORY) if entry.startswith("with-gpus-") and entry.endswith(".json.gz"))
    check(len(names) == 5, "snapshots: %r" % names)
    for name in names:
        path, _, truth = load(directory, name)
        report = json_report("report", path)
        said = {suspect["rank"]: suspect["reason"] for suspect in report["verdict"]["suspects"]}
        check(report["verdict"]["status"] == truth["status"] and said == {int(rank): reason for rank, reason in truth["suspects"].items()}, "%s: %r" % (name, report["verdict"]))
        check(all(gpu["execution"]["held_ms"] > 0 for rank in report["ranks"] for gpu in rank.get("gpus", [])), "%s: %r" % (name, report["ranks"][0].get("gpus")))
        if name.endswith("-asleep"):
            (kernel,) = report["ranks"][0]["gpus"][0]["execution"]["kernels"]
            check("AllReduce" in kernel["function"] and not report["ranks"][1]["gpus"][0]["execution"]["kernels"], "%r" % kernel)


def case_nccl_threads_have_their_roles(directory):
    names = sorted(entry[:-len(".json.gz")] for entry in os.listdir(DIRECTORY) if entry.endswith(".json.gz"))
    check(len(names) >= 13, "snapshots: %r" % names)
    for name in names:
        path, _, _ = load(directory, name)
        for rank in json_report("report", path)["ranks"]:
            if rank["kind"] != "rank":
                continue
            roles = [thread["role"] for thread in rank["threads"]]
            for role in ("main", "nccl-watchdog", "nccl-heartbeat", "nccl-service", "nccl-ras", "cuda"):
                check(role in roles, "%s rank %s has no %s: %r" % (name, rank["rank"], role, roles))
            unknown = [thread for thread in rank["threads"] if thread["role"] == "native"]
            check(not unknown, "%s rank %s: %r has no role" % (name, rank["rank"], [thread["name"] for thread in unknown]))


def facts_of_threads(report):
    """The data of threads that are not frames: few threads have them, and they are left out if there are none."""
    return [(thread["tid"], [thread.get(name) for name in ("motion", "variables", "lock_owner", "collecting")]) for rank in report["ranks"] for thread in rank["threads"]]


def case_saved_verdicts(directory):
    """Reports of bench/hangs that were right (scripts/save-verdicts): checks each rule again, without a process."""
    saved = os.path.join(SOURCE, "fixtures", "verdicts")
    with open(os.path.join(saved, "verdicts.json"), encoding="utf-8") as stream:
        verdicts = json.load(stream)
    check(len(verdicts) >= 30, "%d saved reports" % len(verdicts))
    wrong = []
    for name, expected in sorted(verdicts.items()):
        path = os.path.join(directory, name + ".json")
        with gzip.open(os.path.join(saved, name + ".json.gz"), "rb") as packed, open(path, "wb") as out:
            out.write(packed.read())
        status, text, _ = run_tool("report", path, "--format", "json")
        check(status in (0, 1), "%s: exit status %d" % (name, status))
        again = json.loads(text.decode("utf-8"))
        with open(path, encoding="utf-8") as stream:
            before = json.load(stream)
        check(facts_of_threads(again) == facts_of_threads(before), "%s: the facts about its threads have changed" % name)
        check(again.get("not_looked_at") == before.get("not_looked_at"), "%s: the ranks that were not looked at have changed" % name)
        verdict = again["verdict"]
        said = {"status": verdict["status"], "suspects": {str(one["rank"]): one["reason"] for one in verdict["suspects"]}}
        if said != expected:
            wrong.append("%s: said %r (%s), true is %r" % (name, said, verdict["summary"], expected))
    check(not wrong, "\n".join(wrong))


def verdict_in_short(report):
    verdict = report["verdict"]
    return {"status": verdict["status"], "suspects": [(one["rank"], one["reason"], one["confidence"]) for one in verdict["suspects"]]}


def case_words_decide_nothing(directory):
    """Other words for a rank's problems, which are meant for people: the verdict follows from codes, and does not change."""
    reworded = 0
    for place in ("verdicts", "gpu_verdicts", "gpu_jobs"):
        saved = os.path.join(SOURCE, "fixtures", place)
        for name in sorted(entry for entry in os.listdir(saved) if entry.endswith(".json.gz")):
            path = os.path.join(directory, name[:-len(".gz")])
            with gzip.open(os.path.join(saved, name), "rb") as packed:
                text = packed.read()
            if not any(rank["problems"] for rank in json.loads(text)["ranks"]):
                continue
            with open(path, "wb") as out:
                out.write(text)
            report = json.loads(run_tool("report", path, "--format", "json")[1].decode("utf-8"))
            for rank in report["ranks"]:
                for problem in rank["problems"]:
                    problem.update(message="lorem ipsum", hint="dolor sit amet")
                    reworded += 1
            with open(path, "w", encoding="utf-8") as out:
                json.dump(report, out)
            again = json.loads(run_tool("report", path, "--format", "json")[1].decode("utf-8"))
            check(verdict_in_short(again) == verdict_in_short(report), "%s: %r, in other words %r" % (name, verdict_in_short(report), verdict_in_short(again)))
    check(reworded > 0, "no report has a problem")


def case_gpu_verdicts(directory):
    """Reports of real hangs with the GPU state that they would have had (fixtures/gpu_verdicts/make.py)."""
    check_verdicts(directory, "gpu_verdicts", 12)


def case_gpu_jobs(directory):
    """Reports of bench/gpu, of real jobs on a real GPU, without and with the state of the GPUs."""
    check_verdicts(directory, "gpu_jobs", 250)


def case_gpu_jobs_by_network_threads(directory):
    """Saved reports without NCCL's counts and PyTorch's record, as older versions have neither: where NCCL's threads for the network decide,
    they accuse those that all evidence accuses."""
    saved = os.path.join(SOURCE, "fixtures", "gpu_jobs")
    with open(os.path.join(saved, "verdicts.json"), encoding="utf-8") as stream:
        verdicts = json.load(stream)
    decided = []
    for name, expected in sorted(verdicts.items()):
        with gzip.open(os.path.join(saved, name + ".json.gz"), "rt", encoding="utf-8") as packed:
            report = json.load(packed)
        if not any(thread["role"] == "nccl-proxy" for rank in report["ranks"] for thread in rank["threads"]):
            continue
        report.pop("nccl", None)
        for rank in report["ranks"]:
            rank.pop("flight_recorder", None)
        path = os.path.join(directory, name + ".json")
        with open(path, "w", encoding="utf-8") as out:
            json.dump(report, out)
        verdict = json.loads(run_tool("report", path, "--format", "json")[1].decode("utf-8"))["verdict"]
        if verdict["reference"] == "NCCL's threads for the network":
            decided.append(name)
            check({str(one["rank"]) for one in verdict["suspects"]} == set(expected["suspects"]), "%s: said %r, true is %r" % (name, verdict["summary"], expected))
    print("decided by NCCL's threads for the network: %d (%s)" % (len(decided), ", ".join(decided)))
    check(len(decided) >= 5, "they decide %r alone" % decided)


def check_verdicts(directory, place, least):
    saved = os.path.join(SOURCE, "fixtures", place)
    with open(os.path.join(saved, "verdicts.json"), encoding="utf-8") as stream:
        verdicts = json.load(stream)
    check(len(verdicts) >= least, "%d saved reports" % len(verdicts))
    wrong = []
    for name, expected in sorted(verdicts.items()):
        path = os.path.join(directory, name + ".json")
        with gzip.open(os.path.join(saved, name + ".json.gz"), "rb") as packed, open(path, "wb") as out:
            out.write(packed.read())
        with open(path, encoding="utf-8") as stream:
            before = json.load(stream)
        expected_status = 0 if all(rank["status"] == "complete" for rank in before["ranks"]) else 1
        again = json_report("report", path, expect=expected_status)
        check([rank.get("gpus") for rank in again["ranks"]] == [rank.get("gpus") for rank in before["ranks"]], "%s: the state of the GPUs has changed" % name)
        verdict = again["verdict"]
        said = {"status": verdict["status"], "suspects": {str(one["rank"]): one["reason"] for one in verdict["suspects"]}}
        if said != expected:
            wrong.append("%s: said %r (%s), true is %r" % (name, said, verdict["summary"], expected))
        status, out, _ = run_tool("report", path)
        lines = text_of(out).splitlines()
        check(status == expected_status and len(lines) <= 60 and max(len(line) for line in lines) <= 100, "%s: status %d:\n%s" % (name, status, text_of(out)))
        live = all(rank["source"] == "live" for rank in before["ranks"])
        answered = any(rank.get("gpus") for rank in before["ranks"])  # else NVML has not, as the report's problems say
        check("GPUs" in lines or not live or not answered, "%s: status %d:\n%s" % (name, status, text_of(out)))
    check(not wrong, "\n".join(wrong))


if __name__ == "__main__":
    cases.run(globals(), "snapshots")
