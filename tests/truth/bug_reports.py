"""The body of an issue made of jobs of NCCL (fixtures/nccl) of 2, 256 and 4,096 ranks: as short as GitHub wants it, and what those who triage ask for is in it."""
import gzip
import json
import os
import re
import time

import cases
from command_line import SOURCE
from processes import check, run_tool

LIMIT = 65536
VERSIONS = [("torch", "2.11.0", "libtorch_cuda.so"), ("NCCL", "2.28.9", "libnccl.so.2"), ("CUDA runtime", "13.0.96", "libcudart.so.13"), ("cuDNN", "9.13.0.50", "libcudnn.so.9"), ("CUDA driver", "580.95.05", "libcuda.so.580.95.05")]
DRIVER, KERNEL, DISTRIBUTION = "580.95.05", "6.8.0-60-generic", "Ubuntu 24.04.2 LTS"
# (the fixture, the index of the rank that is repeated: one that waits)
JOBS = (("two-ranks-asleep", 0), ("two-ranks-data-loader", 0), ("two-ranks-checkpoint", 1), ("two-ranks-exception", 0), ("two-ranks-lock", 0))


def modules():
    return [{"name": component, "version": version, "version_from": "metadata", "build_id": None, "path": "/opt/venv/lib/python3.12/site-packages/%s/%s" % (component.split()[0].lower(), name)}
            for component, version, name in VERSIONS]


def environment():
    return {"kernel": KERNEL, "distribution": DISTRIBUTION, "container": None, "limits": {}, "cgroup": None, "cpus": None, "cpu_nodes": None, "memory_nodes": None, "clock": None, "gpu_driver": DRIVER, "variables": {"NCCL_DEBUG": "WARN"}}


def grown(report, repeated, ranks):
    """The JSON text of a job of so many ranks: those of the report, and the repeated one under other numbers, on hosts of eight."""
    first = dict(report, ranks=[])
    pids = [rank["pid"] for rank in report["ranks"]]

    def one(rank, number):
        rank = dict(rank, rank=number, world_size=ranks, local_rank=number % 8, host="node-%03d" % (number // 8), modules=modules(), environment=environment())
        rank.pop("local_world_size", None)
        return rank
    texts = [json.dumps(one(rank, number)) for number, rank in enumerate(report["ranks"])]
    template = one(report["ranks"][repeated], 0)
    last_tid = max(thread["tid"] for thread in template["threads"])
    for number in range(len(texts), ranks):
        rank = one(template, number)
        pid = max(pids) + 1000 * number
        rank["pid"] = pid
        rank["threads"] = [dict(thread, tid=pid if thread["tid"] == template["pid"] else pid + 1 + last_tid - thread["tid"]) for thread in template["threads"]]
        texts.append(json.dumps(rank))
    if "nccl" in first:
        first["nccl"] = grown_nccl(report, ranks, max(pids), repeated)
    head = json.dumps({key: value for key, value in first.items() if key not in ("ranks", "clusters", "verdict", "waits", "differences")})
    return head[:-1] + ', "ranks": [' + ",\n".join(texts) + "]}"


def grown_nccl(report, ranks, last_pid, repeated):
    status = json.loads(json.dumps(report["nccl"]))
    count = len(report["ranks"])
    for communicator in status["communicators"]:
        if communicator["size"] != count or len(communicator["members"]) <= repeated:
            continue
        for number, member in enumerate(communicator["members"]):
            if member.get("process"):
                member["process"]["host"] = "node-%03d" % (number // 8)
        template = communicator["members"][repeated]
        for number in range(count, ranks):
            member = dict(template, rank=number, pid=last_pid + 1000 * number)
            if template.get("process"):
                member["process"] = dict(template["process"], host="node-%03d" % (number // 8), pid=last_pid + 1000 * number)
            communicator["members"].append(member)
        communicator["size"] = ranks
    return status


def plain(markdown):
    """Its text without the marks of code and emphasis, and without the escapes of these."""
    return re.sub(r"[`*\\]", "", markdown)


def names_of_cluster(cluster):
    """Functions of its stack, innermost first, by which a reader knows it: without arguments and namespaces, as in the list of other threads."""
    names = [frame["qualname"] if frame.get("qualname") else frame["function"] for frame in cluster["frames"] if frame.get("function")]
    places = ["%s+%s" % (os.path.basename(frame["module"]), frame["offset"]) for frame in cluster["frames"] if not frame.get("function") and frame.get("module")]
    return places + [re.sub(r"[(<@].*", "", name).split("::")[-1] for name in names]


def sections(markdown):
    """The part in which all clusters stand."""
    at = markdown.find("<summary>All clusters")
    check(at > 0, "no section of all clusters: %r" % re.findall("<summary>[^<]*", markdown))
    return markdown[at:markdown.find("</details>", at)]


def check_job(directory, name, repeated, ranks):
    with gzip.open(os.path.join(SOURCE, "fixtures", "nccl", name + ".json.gz"), "rt", encoding="utf-8") as stream:
        report = json.load(stream)
    saved = os.path.join(directory, "%s-%d.json" % (name, ranks))
    with open(saved, "w", encoding="utf-8") as stream:
        stream.write(grown(report, repeated, ranks))
    begin = time.monotonic()
    status, out, err = run_tool("report", saved, "--format", "markdown")
    seconds = time.monotonic() - begin
    text = out.decode("utf-8")
    check(status == 0, "%s of %d ranks: %d %r" % (name, ranks, status, err))
    check(len(text) < LIMIT, "%s of %d ranks: %d characters" % (name, ranks, len(text)))
    words = plain(text)
    culprit = [rank["rank"] for number, rank in enumerate(report["ranks"]) if number != repeated]
    check(re.match(r"CULPRIT: rank %d " % culprit[0], words), "%s of %d ranks names no culprit: %s" % (name, ranks, words[:500]))
    check(re.search(r"Chain of waits: rank 0.* → .*rank %d " % culprit[0] if culprit[0] else r"Chain of waits: .* → .*rank 0 ", words), "%s of %d ranks has no chain: %s" % (name, ranks, words[:3000]))
    versions = re.search("^- Versions: (.*)$", words, re.MULTILINE)
    check(versions, "%s of %d ranks names no versions: %s" % (name, ranks, words[:3000]))
    for wanted in ("torch 2.11.0", "NCCL 2.28.9", "CUDA 13.0.96", "driver " + DRIVER, KERNEL, DISTRIBUTION, "Python " + report["ranks"][0]["python"]["version"]):
        check(wanted in versions[1], "%s of %d ranks lacks %r: %s" % (name, ranks, wanted, versions[1]))
    check("%d ranks" % ranks in words, "%s of %d ranks: %s" % (name, ranks, words[:3000]))
    return saved, text, words, seconds


def check_clusters(saved, words):
    status, out, _ = run_tool("report", saved, "--format", "json", "--redact")
    check(status == 0, "the clusters")
    clusters = json.loads(out)["clusters"]
    part = sections(words)
    counts = {}
    for cluster in clusters:
        counts[cluster["role"]] = counts.get(cluster["role"], 0) + 1
        names = names_of_cluster(cluster)
        check(not names or any(one in part for one in names), "no frame of the cluster of %s of ranks %r is there: %r\n%s" % (cluster["role"], cluster["ranks"][:3], names, part[:3000]))
    for role in counts:
        check(role in part, "no cluster of %s: %s" % (role, part[:3000]))
    return len(clusters)


def case_of_2_and_256_ranks(directory):
    for name, repeated in JOBS:
        for ranks in (2, 256):
            saved, text, words, seconds = check_job(directory, name, repeated, ranks)
            clusters = check_clusters(saved, words)
            print("%s of %d ranks: %d characters, %d clusters, %.2f s" % (name, ranks, len(text), clusters, seconds))
            os.unlink(saved)


def case_of_4096_ranks(directory):
    name, repeated = JOBS[1]
    few, _, _, _ = check_job(directory, name, repeated, 2)
    saved, text, words, seconds = check_job(directory, name, repeated, 4096)
    # Ranks that are alike have no clusters of their own.
    print("%s of 4096 ranks: %d characters of a report of %d bytes, %d clusters, %.2f s" % (name, len(text), os.path.getsize(saved), check_clusters(few, words), seconds))


if __name__ == "__main__":
    cases.run(globals(), "bug-reports")
