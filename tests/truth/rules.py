"""What a file of rules adds for a framework that the tool does not know: --rules, and the command `rules`."""
import contextlib
import json
import os
import sys

import cases
import debugger
from command_line import SOURCE, text_of
from processes import Fixture, Skip, check, json_report, run_tool

DIRECTORY = os.path.join(SOURCE, "fixtures", "rules")
RULES = os.path.join(DIRECTORY, "acme.json")
WORLD = 3


@contextlib.contextmanager
def job():
    with contextlib.ExitStack() as ranks:
        environment = dict(os.environ, WORLD_SIZE=str(WORLD), PYTHONDONTWRITEBYTECODE="1")
        yield [ranks.enter_context(Fixture([sys.executable, os.path.join(DIRECTORY, "train.py")], env=dict(environment, RANK=str(number)))) for number in range(WORLD)]


def accused(report):
    return report["verdict"]["status"], {suspect["rank"]: suspect["reason"] for suspect in report["verdict"]["suspects"]}


def check_with_rules(report):
    check(accused(report) == ("culprit", {2: "data-loading"}), "with rules: %r" % report["verdict"])
    for rank in report["ranks"]:
        check(rank["rank"] == 2 or (rank["activity"]["kind"], rank["activity"]["operation"]) == ("in-collective", "all_reduce"), "with rules: %r" % rank["activity"])
        check([thread["role"] for thread in rank["threads"]] == ["main", "python", "data-loader"], "with rules: %r" % [thread["role"] for thread in rank["threads"]])


def check_without_rules(report):
    check(accused(report) != ("culprit", {2: "data-loading"}), "the tool knows it without rules: %r" % report["verdict"])
    for rank in report["ranks"]:
        check(rank["activity"]["kind"] not in ("in-collective", "data-loading"), "without rules: %r" % rank["activity"])


def case_an_unknown_framework_live_and_saved(directory):
    saved = os.path.join(directory, "saved.json")
    with job() as ranks:
        pids = ",".join(str(rank.pid) for rank in ranks)
        check_without_rules(json_report("attach", "--pids", pids))
        check_with_rules(json_report("attach", "--pids", pids, "--rules", RULES))
        status, out, err = run_tool("attach", "--pids", pids, "--format", "json", "-o", saved)
        check((status, out, err) == (0, b"", b""), "%d %r %r" % (status, out, err))
        for rank in ranks:
            rank.check_unharmed(answers=False)
    check_without_rules(json_report("report", saved))
    check_with_rules(json_report("report", saved, "--rules", RULES))
    _, out, _ = run_tool("report", saved, "--rules", RULES)
    check(text_of(out).startswith("CULPRIT: rank 2 is in its data pipeline"), text_of(out))


def case_an_unknown_framework_in_cores(directory):
    with job() as ranks:
        cores = [os.path.join(directory, "core.%d" % number) for number in range(WORLD)]
        for rank, core in zip(ranks, cores):
            debugger.take_core(rank, core)
    check_without_rules(json_report("core", *cores))
    check_with_rules(json_report("core", *cores, "--rules", RULES))


def case_several_files(directory):
    """The first file that has a rule for a frame is used."""
    other = os.path.join(directory, "other.json")
    with open(other, "w", encoding="utf-8") as file:
        json.dump({"rules": 1, "activities": [{"match": "python-file", "file": "acme/data.py", "activity": "network-io"}]}, file)
    with job() as ranks:
        pids = ",".join(str(rank.pid) for rank in ranks)
        check(accused(json_report("attach", "--pids", pids, "--rules", other, "--rules", RULES))[1] == {2: "network-io"}, "the other file's rule does not come first")
        check_with_rules(json_report("attach", "--pids", pids, "--rules", RULES, "--rules", other))


def case_what_is_printed_can_be_read(directory):
    status, printed, err = run_tool("rules", "--format", "json")
    check((status, err) == (0, b""), "%d %r" % (status, err))
    path = os.path.join(directory, "printed.json")
    with open(path, "wb") as file:
        file.write(printed)
    built_in, twice = json.loads(printed), json.loads(run_tool("rules", "--rules", path, "--format", "json")[1])
    check(len(built_in["activities"]) > 200 and len(built_in["roles"]) > 100 and built_in["rules"] == 1, "little is built in")
    for key, rules in built_in.items():
        check(key == "rules" or all(rule["source"] for rule in rules), "a rule of %s has no source" % key)
        # Roles of children follow those of threads.
        of = lambda rules, word: [rule for rule in rules if rule.get("of", "thread") == word]
        expected = 1 if key == "rules" else [rule for word in ("thread", "child") for rule in of(rules, word) * 2]
        check(twice[key] == expected, "%s: not what was printed, before what is built in" % key)


def case_text(directory):
    status, out, err = run_tool("rules", "--rules", RULES)
    lines = text_of(out).splitlines()
    check((status, err) == (0, b"") and "built in, 5 added (+)" in lines[0], "%d %r %r" % (status, err, lines[0]))
    marked = [line.split() for line in lines if line.startswith("+ ")]
    check(marked[0] == ["+", "collective", "python", "all_reduce", "in", "acme/comm.py", "acme", "3.2"] and len(marked) == 5, "%r" % marked)


def case_errors(directory):
    """Nothing on stdout and exit status 2: a verdict without the rules would not be what was requested."""
    path = os.path.join(directory, "wrong.json")
    hint = b"hint: docs/rules.md describes the form; `rankstacks rules --format json` prints the built-in rules in it\n"
    for text, said in ((b"{\n  \"rules\": 1,\n  \"activities\": [\n    {\"match\": \"python\", \"function\": \"f\", \"activity\": \"colective\"}\n  ]\n}\n",
                        b"line 4: /activities/0/activity: found \"colective\", expected one of collective, point-to-point, store-wait, "),
                       (b"{\n  \"rules\": 1,\n  \"activites\": []\n}\n", b"line 3: the document: found the key \"activites\", expected no other than $schema, rules, "),
                       (b"{\n  \"rules\": 1,,\n}\n", b"line 2, column 14: syntax error while parsing object key - unexpected ','; expected string literal\n"),
                       (b"", b"line 1, column 1: syntax error while parsing value - unexpected end of input; expected '[', '{', or a literal\n"),
                       (b"{\"rules\": \"\x1b[2J\xff\"}", b"line 1, column "),
                       (b" " * (1 << 20) + b" ", b"too large: 1048577 bytes, a file of rules has at most 1048576\n")):
        with open(path, "wb") as file:
            file.write(text)
        for command in (["rules"], ["attach", "--pids", str(os.getpid())], ["report", path], ["core", path]):
            status, out, err = run_tool(*(command + ["--rules", path]))
            check((status, out) == (2, b""), "%r: status %d, stdout %r" % (command, status, out[:200]))
            check(err.startswith(b"rankstacks: " + path.encode() + b": " + said), "%r: %r" % (command, err))
            check(err.count(b"\n") == (1 if b"too large" in err else 2) and b"\x1b" not in err and b"\xff" not in err, "%r: %r" % (command, err))
            check(err.endswith(hint) or b"too large" in err, "%r: %r" % (command, err))
    status, out, err = run_tool("rules", "--rules", os.path.join(directory, "none.json"))
    check((status, out) == (2, b"") and b"--rules: " in err and b"No such file or directory" in err, "%d %r %r" % (status, out, err))


def case_schema(directory):
    """docs/rules.schema.json has the same words as the tool accepts."""
    with open(os.path.join(SOURCE, "docs", "rules.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    words = {"activities/0/activity": schema["$defs"]["activity_word"]["enum"], "activities/0/match": schema["$defs"]["activity"]["properties"]["match"]["enum"],
             "roles/0/role": schema["$defs"]["role_word"]["enum"], "roles/0/match": schema["$defs"]["role"]["properties"]["match"]["enum"],
             "roles/0/of": schema["$defs"]["role"]["properties"]["of"]["enum"], "idle/0/match": schema["$defs"]["idle"]["properties"]["match"]["enum"],
             "places/0/place": schema["$defs"]["place_word"]["enum"], "modules/0/kind": schema["$defs"]["module"]["properties"]["kind"]["enum"],
             "idle/0/wait": schema["$defs"]["idle"]["properties"]["wait"]["enum"],
             "activities/0/operation/collective": schema["$defs"]["collective_word"]["enum"], "activities/0/operation/kind": schema["$defs"]["operation_kind"]["enum"]}
    sound = {"activities": {"match": "native", "function": "f", "activity": "collective", "operation": {}}, "roles": {"match": "function", "function": "f", "role": "rpc"},
             "idle": {"match": "function", "function": "f", "role": "rpc", "wait": "any"}, "places": {"suffix": "x.py"}, "modules": {"prefix": "libx"}}
    path = os.path.join(directory, "wrong.json")
    for pointer, allowed in words.items():
        section, _, *keys = pointer.split("/")
        rule = json.loads(json.dumps(sound[section]))
        inner = rule
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = "no such word"
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"rules": 1, section: [rule]}, file)
        _, _, err = run_tool("rules", "--rules", path)
        check(err.splitlines()[0].endswith(("/%s: found \"no such word\", expected one of %s" % (pointer, ", ".join(allowed))).encode()), "%s: %r" % (pointer, err))


def case_schema_of_what_is_read(directory):
    try:
        import jsonschema
    except ImportError:
        raise Skip("no jsonschema")
    with open(os.path.join(SOURCE, "docs", "rules.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    with open(RULES, encoding="utf-8") as file:
        jsonschema.validate(json.load(file), schema)
    jsonschema.validate(json.loads(run_tool("rules", "--format", "json")[1]), schema)


if __name__ == "__main__":
    cases.run(globals(), "rules")
