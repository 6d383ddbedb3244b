"""Compares what a report says with the truth, and scores a naive majority vote over the same report for comparison."""
import collections


class Truth:
    """`statuses`: those that are right (the first is the case's own); and {rank: reasons that are right}, the first being the case's
    own."""

    def __init__(self, status, culprits=None):
        self.statuses = (status,) if isinstance(status, str) else tuple(status)
        self.culprits = {rank: (reasons,) if isinstance(reasons, str) else tuple(reasons) for rank, reasons in (culprits or {}).items()}

    def __str__(self):
        return said_as_text(self.statuses[0], {rank: reasons[0] for rank, reasons in self.culprits.items()})


def said_as_text(status, suspects):
    if not suspects:
        return status
    by_reason = {}
    for rank, reason in sorted(suspects.items(), key=lambda item: str(item[0])):
        by_reason.setdefault(reason, []).append(str(rank))
    text = ", ".join("%s %s" % ("+".join(ranks), reason) if reason else "+".join(ranks) for reason, ranks in by_reason.items())
    return text if status == "culprit" else "%s: %s" % (status, text)


def rank_names(report, ranks):
    """{name in the report: rank of the case}. Processes are identified by their pid (also in two cores, or in a job without rank numbers);
    a name that is no process of the report (a missing rank's number) is kept as it is."""
    by_pid = {pid: rank for rank, pid in (ranks or {}).items()}
    names = {}
    for entry in report["ranks"]:
        if entry["kind"] != "rank":
            continue
        name = entry["rank"] if entry["rank"] is not None else "%s:%s" % (entry["host"], entry["pid"])
        if ranks is None:
            names[name] = name
        else:
            names[name] = by_pid.get(entry["pid"], "unrelated %s" % entry["pid"])
    return names


def said(report, ranks):
    """(status, {rank of the case: (reason, confidence)})"""
    names = rank_names(report, ranks)
    verdict = report["verdict"]
    return verdict["status"], {names.get(suspect["rank"], suspect["rank"]): (suspect["reason"], suspect["confidence"]) for suspect in verdict["suspects"]}


def base_name(path):
    return (path or "").rsplit("/", 1)[-1]


def ends_at(report, chain, function, file):
    """Whether the last thread of a chain is in that function of that file, that is, one of its frames is. Without a file: whether the
    thread belongs to the program of that name."""
    last = next((link for link in reversed(chain["links"]) if link["node"] in ("thread", "process") and link["rank"] is not None), None)
    if last is None:
        return False
    for entry in report["ranks"]:
        name = entry["rank"] if entry["kind"] == "rank" and entry["rank"] is not None else "%s:%s" % (entry["host"], entry["pid"])
        if name != last["rank"]:
            continue
        if file is None:
            return base_name(entry["executable"]) == function
        frames = [frame for thread in entry["threads"] if thread["tid"] == last["tid"] for frame in thread["frames"]]
        return any(frame.get("function") == function and base_name(frame.get("file")) == file for frame in frames)
    return False


def chains_end_at(report, ranks, culprits, ends):
    """`ends`: {rank of the case: (function, file)}. Of the culprits that were found and for which `ends` has an entry: whether all their
    chains end there. None: there is no such culprit."""
    names, verdict = rank_names(report, ranks), report["verdict"]
    found = {suspect["rank"]: names.get(suspect["rank"], suspect["rank"]) for suspect in verdict["suspects"]}
    found = {name: rank for name, rank in found.items() if rank in culprits and rank in ends}
    chains = {chain["suspect"]: chain for chain in verdict.get("chains", ())}
    return all(name in chains and ends_at(report, chains[name], *ends[rank]) for name, rank in found.items()) if found else None


def place(entry):
    """What a rank's main thread appears to be doing at first sight: its innermost Python frame, else its innermost native frame that has a
    name."""
    frames = next((thread["frames"] for thread in entry["threads"] if thread["tid"] == entry["pid"]), [])
    for frame in frames:
        if frame["kind"] == "python":
            return frame["file"], frame["function"], frame["line"]
    return next((frame["function"] for frame in frames if frame["function"]), None)


def majority_vote(report, ranks):
    """The baseline: every rank whose main thread is not where most main threads are is to blame. {rank: (None, None)}"""
    names = rank_names(report, ranks)
    places = {}
    for entry in report["ranks"]:
        if entry["kind"] == "rank":
            name = entry["rank"] if entry["rank"] is not None else "%s:%s" % (entry["host"], entry["pid"])
            places[names[name]] = place(entry)
    votes = collections.Counter(places.values()).most_common(2)
    if not votes:
        return "undecided", {}
    if len(votes) == 1:
        return "symmetric", {}
    if votes[0][1] == votes[1][1]:
        return "undecided", {}
    return "culprit", {rank: (None, None) for rank, where in places.items() if where != votes[0][0]}


class Score:
    """Scores one case: which parts of the verdict are right. Without `reasons` (the baseline has none), status and ranks alone make a case
    right. `chain`: whether the culprits' chains end where the case's truth says; None if there is nothing to compare. It does not make a
    case wrong."""

    def __init__(self, truth, status, suspects, reasons=True, chain=None):
        self.status, self.suspects, self.chain = status, suspects, chain
        true = set(truth.culprits)
        self.culprits, self.found = len(true), len(true & set(suspects))
        self.innocents = sorted(set(suspects) - true, key=str)
        self.reasons_right = sum(suspects[rank][0] in truth.culprits[rank] for rank in true & set(suspects))
        self.exact = status in truth.statuses and set(suspects) == true and (not reasons or self.reasons_right == len(true))

    def text(self):
        return said_as_text(self.status, {rank: reason for rank, (reason, _) in self.suspects.items()})


class Rates:
    """The five rates over many cases."""

    def __init__(self, scores):
        scores = list(scores)
        self.cases = len(scores)
        self.exact = sum(score.exact for score in scores)
        self.culprits = sum(score.culprits for score in scores)
        self.found = sum(score.found for score in scores)
        self.innocents = sum(len(score.innocents) for score in scores)
        self.reasons = sum(score.reasons_right for score in scores)
        chains = [score.chain for score in scores if score.chain is not None]
        self.chains, self.chains_right = len(chains), sum(chains)

    def lines(self, with_reasons=True):
        def share(part, whole):
            return "%d of %d (%.0f %%)" % (part, whole, 100.0 * part / whole) if whole else "none"
        return [("exact cases", share(self.exact, self.cases)), ("culprits found", share(self.found, self.culprits)),
                ("innocents accused per case", "%.2f (%d)" % (self.innocents / self.cases if self.cases else 0, self.innocents)),
                ("reasons right, of the culprits found", share(self.reasons, self.found) if with_reasons else "-"),
                ("chains that end at the cause, of the cases that state it", share(self.chains_right, self.chains) if with_reasons else "-")]
