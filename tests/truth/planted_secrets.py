"""Secrets of a hundred kinds (secret_kinds.py), planted wherever a report takes a text from: none is in any output."""
import copy
import glob
import gzip
import json
import mmap
import os
import re
import shutil
import struct
import subprocess
import sys

import cases
import core_handler
import debugger
import watch
from command_line import FIXTURES, SOURCE
from core_files import core_of, kernel_core
from nodes import Cluster, enter_namespaces
from processes import Fixture, Skip, check, run_tool
from secret_kinds import KINDS_OF_SECRETS

FAMILIES = ("NCCL", "TORCH", "CUDA", "UCX")  # of variables; a report has 512 at most
FORMATS = ("text", "json", "markdown", "html", "folded")
# One thread for each kind, in a function and a file of such a name, while it handles such an exception, in a library that
# lies in such a directory, by a function of such a name, in a read of a FIFO or of a socket of such a name.
PROGRAM = r"""
import ctypes, json, os, socket, sys, threading
with open(os.environ["PLAN"], encoding="utf-8") as file:
    plan = json.load(file)
libc = ctypes.CDLL(None)
# gdb writes all that is reserved into a core: of each of two hundred threads the stack (8 MiB), of each arena of malloc 64 MiB.
threading.stack_size(256 << 10)
libc.mallopt(-8, 1)  # M_ARENA_MAX
class Refused(Exception):
    pass
def thread_of(one):
    library = ctypes.CDLL(one["library"])
    if one["fifo"]:
        descriptor = os.open(one["fifo"], os.O_RDWR)
    else:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind("\0%d " % os.getpid() + one["text"][:95])  # other cases run at the same time
        server.listen()
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(server.getsockname())
        one["kept"] = (server, client)
        descriptor = client.fileno()
    wait = getattr(library, one["function"])
    def planted():
        password = one["text"]
        libc.prctl(15, one["text"].encode()[:15], 0, 0, 0)
        try:
            raise Refused(one["text"])
        except Refused:
            wait(descriptor)
    code = planted.__code__.replace(co_name="f_" + one["text"], co_filename="/srv/" + one["text"] + "/made.py")
    planted.__code__ = code
    threading.Thread(target=planted, name=one["text"], daemon=True).start()
for one in plan:
    thread_of(one)
print(json.dumps({"ready": True, "pid": os.getpid(), "runs": "IN_NAMESPACE" in os.environ}), flush=True)
for line in sys.stdin:
    print("alive", flush=True)
"""


def file_name(text):
    """A name for a file or directory, or None: it would be too long, or have a slash."""
    return text if "/" not in text and len(text.encode()) < 200 else None


class Job:
    """A process in which each kind is planted in every place that takes one; `in_arguments`: also in its arguments and environment variables."""

    def __init__(self, directory, in_arguments=True, command=()):
        if not shutil.which("gcc"):
            raise Skip("no gcc on this machine")
        source, library = os.path.join(directory, "waits.c"), os.path.join(directory, "waits.so")
        # Only a kind that can be one is the name of a function of C.
        functions = [kind.text if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", kind.text) else "waits_%d" % number
                     for number, kind in enumerate(KINDS_OF_SECRETS)]
        with open(source, "w", encoding="utf-8") as file:
            file.write("#include <unistd.h>\n")
            for function in functions:
                file.write("void %s(int fd) { char byte; while (read(fd, &byte, 1) < 0) {} __asm__ volatile(\"\"); }\n" % function)
        subprocess.run(["gcc", "-shared", "-fPIC", "-g", "-O1", "-o", library, source], check=True)
        plan = []
        for function, kind in zip(functions, KINDS_OF_SECRETS):
            place = os.path.join(directory, "in", file_name(kind.text) or kind.name)
            os.makedirs(place)
            own, fifo = os.path.join(place, "libown.so"), os.path.join(place, "fifo")
            shutil.copy(library, own)
            os.mkfifo(fifo)
            for target in (fifo, None):
                plan.append({"text": kind.text, "library": own, "function": function, "fifo": target})
        script = os.path.join(directory, "in", KINDS_OF_SECRETS[0].text, "train.py")
        planned = os.path.join(directory, "plan.json")
        with open(script, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        with open(planned, "w", encoding="utf-8") as file:
            json.dump(plan, file)
        environment = dict(os.environ, **({"IN_NAMESPACE": "1"} if command else {}), PLAN=planned, RANK="0", WORLD_SIZE="2", PYTHONDONTWRITEBYTECODE="1")
        for number, kind in enumerate(KINDS_OF_SECRETS if in_arguments else []):
            for family in FAMILIES:
                environment["%s_PLANTED_%d" % (family, number)] = kind.text
            name, equals, value = kind.text.partition("=")
            if equals and name.replace("_", "").isalnum():
                environment["NCCL_" + name] = environment[name] = value
        arguments = [kind.text for kind in KINDS_OF_SECRETS] if in_arguments else []
        self.fixture = Fixture([*command, "/usr/bin/python3", script] + arguments, env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.fixture.end()


def leaks_in(text):
    """Kinds of which a part is in the text, also if it was wrapped or escaped there: {name: where}."""
    joined = re.sub(r"[\s\\]+", "", text)
    found = {}
    for kind in KINDS_OF_SECRETS:
        for part in kind.parts:
            for shown, wanted in ((text, part), (joined, re.sub(r"\s+", "", part))):
                at = shown.find(wanted)
                if at >= 0:
                    found.setdefault(kind.name, shown[max(0, at - 100):at + 60])
    return found


def check_output(what, *arguments, expect=(0,), unpack=None, **options):
    path = arguments[arguments.index("-o") + 1] if "-o" in arguments else None
    status, out, err = run_tool(*arguments, **options)
    check(status in expect, "%s: %d %r" % (what, status, err[-500:]))
    if path:
        with open(path, "rb") as file:
            out = file.read()
        if unpack:
            out = subprocess.run(unpack, input=out, stdout=subprocess.PIPE, check=True).stdout
    check(len(out) + len(err) > 100, "%s: no output" % what)
    leaks = leaks_in(out.decode("utf-8") + err.decode("utf-8"))
    check(not leaks, "%s: %d kinds are shown:\n  %s" % (what, len(leaks), "\n  ".join("%s: %r" % leak for leak in sorted(leaks.items()))))
    return out


def check_report(what, arguments, expect=(0,)):
    """Every format, as it is by default and with the other treatment of names."""
    for form in FORMATS:
        for options in ([], ["--no-redact" if form in ("markdown", "html") else "--redact"]):
            check_output("%s %s %s" % (what, form, options), *arguments, "--format", form, "--threads", "all", *options, expect=expect)


def check_diff(what, old, new, expect=(0,)):
    for form in ("text", "json"):
        for options in ([], ["--redact"]):
            check_output("diff of %s %s %s" % (what, form, options), "diff", old, new, "--threads", "all", "--format", form, *options, expect=expect)


def raw_report(path, *arguments):
    """A report with all secrets, on which the other commands are tried."""
    status, out, err = run_tool(*arguments, "--format", "json", "--with-secrets")
    check(status in (0, 1), "%d %r" % (status, err[-500:]))
    with open(path, "wb") as file:
        file.write(out)
    return json.loads(out)


def case_of_a_running_process(directory):
    check(len(KINDS_OF_SECRETS) >= 95, "%d kinds" % len(KINDS_OF_SECRETS))
    with Job(directory) as job:
        pids = ["--pids", job.fixture.pid]
        saved = os.path.join(directory, "saved.json")
        report = raw_report(saved, "attach", *pids)
        # They are where they are looked for.
        thread_texts = {(frame["function"], frame["file"]) for thread in report["ranks"][0]["threads"] for frame in thread["frames"]}
        for kind in KINDS_OF_SECRETS:
            check(("f_" + kind.text, "/srv/" + kind.text + "/made.py") in thread_texts, "%s is not planted" % kind.name)
            check(kind.text in report["ranks"][0]["command"], "%s is not in the command" % kind.name)
        check(len(report["ranks"][0]["environment"]["variables"]) >= len(FAMILIES) * len(KINDS_OF_SECRETS), "the variables")
        check_report("attach", ["attach", *pids])
        for suffix, unpack in ((".json.gz", ["gzip", "-dc"]), (".json.zst", ["zstd", "-qdc"])):
            check_output(suffix, "attach", *pids, "--format", "json", "-o", os.path.join(directory, "packed" + suffix), unpack=unpack)
        for form in ("text", "json"):
            check_output("doctor", "doctor", *pids, "--format", form, expect=(0, 1))
        job.fixture.check_unharmed()
    changed = os.path.join(directory, "changed.json")
    with open(changed, "w", encoding="utf-8") as file:
        for rank in report["ranks"]:
            rank["command"] = rank["command"][::-1]
            rank["threads"] = rank["threads"][::2]
            # Each stays with its name, by which some of them are known to be secret.
            rank["environment"]["variables"] = {name: "x " + value for name, value in rank["environment"]["variables"].items()}
        json.dump(report, file)
    check_diff("a process", saved, changed)


def note_bodies(core, program_header):
    """The bodies of the notes of a core's program header of type PT_NOTE."""
    offset, size = struct.unpack_from("<QQQQ", core, program_header + 8)[0], struct.unpack_from("<Q", core, program_header + 32)[0]
    at, bodies = offset, []
    while at < offset + size:
        owner, length, _ = struct.unpack_from("<III", core, at)
        start = at + 12 + (owner + 3) // 4 * 4
        bodies.append(core[start:start + length])
        at = start + (length + 3) // 4 * 4
    return bodies


def check_small_core(what, path):
    """No part of a secret is in its notes, no whole one in its memory, none in what is said of it."""
    with open(path, "rb") as file:
        core = file.read()
    table, number = struct.unpack_from("<Q", core, 32)[0], struct.unpack_from("<H", core, 56)[0]
    headers = [at for at in range(table, table + 56 * number, 56) if struct.unpack_from("<I", core, at)[0] == 4]
    check(len(headers) == 2, "%s: %d headers of notes" % (what, len(headers)))
    for header in headers:
        leaks = leaks_in(b"\n".join(note_bodies(core, header)).decode("utf-8", "replace"))
        check(not leaks, "%s: in its notes: %r" % (what, leaks))
    whole = [kind.name for kind in KINDS_OF_SECRETS if kind.secret.encode() in core]
    check(not whole, "%s: in its memory: %r" % (what, whole))
    check_report(what, ["core", path])
    check_output("doctor of " + what, "doctor", path, expect=(0, 1))


def check_captures(directory, in_arguments):
    place = os.path.join(directory, "with-arguments" if in_arguments else "without-arguments")
    os.mkdir(place)
    with Job(place, in_arguments) as job:
        full = os.path.join(place, "full")
        debugger.write_core(job.fixture.pid, full)
        with open(full, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as core:
            check(all(core.find(kind.secret.encode()) >= 0 for kind in KINDS_OF_SECRETS), "not every secret is in the whole core")
        for number, words in enumerate((["--pids", job.fixture.pid], ["--pids", job.fixture.pid, "--with-symbols"], [full], [full, "--with-symbols"])):
            path = os.path.join(place, "%d.core" % number)
            check(not leaks_in(b"".join(run_tool("capture", *words, "-o", path)[1:]).decode()), "what capture says")
            check_small_core("capture %s" % (words,), path)
        kept = os.path.join(place, "kept")
        os.mkdir(kept)
        said, files = core_handler.handle(kept, job.fixture.pid, core_handler.as_the_kernel_writes_it(full)[0], "--plain")
        check(not leaks_in(said.decode()) and len(files) == 1, "core-handler says %r of %r" % (said, files))
        check_small_core("core-handler", os.path.join(kept, files[0]))


def case_of_small_cores(directory):
    check_captures(directory, in_arguments=True)


def case_of_small_cores_of_what_only_frames_say(directory):
    check_captures(directory, in_arguments=False)


def case_of_dumps_and_watches(directory):
    with Job(directory) as job:
        pid = job.fixture.pid
        for options in ([], ["--native"], ["--json"], ["--json", "--native"], ["--locals", "--full-filenames"], ["--subprocesses"]):
            check_output("dump %s" % options, "dump", "--pid", pid, *options)
        hangs = os.path.join(directory, "hangs")
        variables = os.path.join(directory, "variables")
        command = 'printenv | grep ^RANKSTACKS_ > "%s.new"; mv "%s.new" "%s"' % (variables, variables, variables)
        with watch.Watch(directory, "--pids", str(pid), "--capture", "--exec", command) as watching:
            watching.learn(5)
            check(watching.end() == 0, "watch: %r" % watching.said())
        files = [os.path.join(hangs, name) for name in os.listdir(hangs)]
        check(len(files) == 3, "watch has written %r" % files)
        for path in [*files, watching.log] + ([variables] if os.path.exists(variables) else []):
            if path.endswith(".core.zst"):
                subprocess.run(["zstd", "-qd", "-o", path[:-4], path], check=True)
                check_small_core("watch's capture", path[:-4])
                continue
            with open(path, "rb") as file:
                text = file.read()
            if path.endswith(".zst"):
                text = subprocess.run(["zstd", "-qdc"], input=text, stdout=subprocess.PIPE, check=True).stdout
            leaks = leaks_in(text.decode())
            check(not leaks and text, "watch's %s: %r" % (path, leaks))


def case_of_cores_by_their_names(directory):
    """The kernel and systemd-coredump put the name of a process, of which 15 bytes are known, into the name of its core."""
    kept = os.path.join(directory, "coredump")
    os.mkdir(kept)
    with Fixture([os.path.join(FIXTURES, "threads")], env=dict(os.environ, RANK="0", WORLD_SIZE="2")) as fixture:
        core = core_of(fixture, directory, "taken")
        pid = fixture.pid
    for kind in KINDS_OF_SECRETS:
        name = kind.text.encode()[:15].decode("utf-8", "ignore")
        if "/" in name or "\n" in name or " " in name:
            continue
        for number, path in enumerate((os.path.join(kept, "core.%s.%d.%s.%d.1769860800000000" % (name, os.getuid(), "0123456789abcdef" * 2, pid)),
                                       os.path.join(directory, "core.%s.%d" % (name, pid)), os.path.join(directory, "core-%s-%d" % (name, pid)))):
            os.link(core, path)
            words = ["--systemd", pid, "--systemd-directory", kept] if number == 0 else [path]
            for form in ("text", "json", "markdown"):
                check_output("core %s %s" % (os.path.basename(path), form), "core", *words, "--format", form)
            os.unlink(path)
    os.unlink(core)


def case_of_a_job_on_nodes(directory):
    """The report goes through the node's answer, and through what the node says to its engine."""
    with Cluster(directory, 1) as cluster:
        node = cluster.nodes[0]
        node.start_sshd()
        with Job(directory, command=node.command()):
            for form in FORMATS:
                check_output("job %s" % form, "job", "--hosts", node.name, "--via", "ssh", "--format", form)
            check_output("job doctor", "job", "--hosts", node.name, "--via", "ssh", "doctor", expect=(0, 1))
        # What an engine says of a node that does not answer.
        wrong = os.path.join(directory, "ssh-that-fails")
        os.mkdir(wrong)
        engine = os.path.join(wrong, "ssh")
        with open(engine, "w", encoding="utf-8") as script:
            script.write("#!/bin/sh\ncat %s/said >&2\nexit 255\n" % wrong)
        os.chmod(engine, 0o755)
        for kind in KINDS_OF_SECRETS:
            with open(os.path.join(wrong, "said"), "w", encoding="utf-8") as said:
                said.write("ssh: cannot use " + kind.text + "\n")
            for form in ("text", "json", "markdown"):
                check_output("of a node that says %s" % kind.name, "job", "--hosts", node.name, "--via", "ssh", "--format", form, expect=(1, 2),
                             env=dict(os.environ, PATH=wrong + ":" + os.environ["PATH"]))


# One thread for each kind, which holds it in every way in which a variable can. What is shown is about 100 characters
# of each, so the text comes first, and once more after others.
HOLDS = r"""
import json, os, sys, threading
class Held(dict):
    pass
def holds(text, name, value, ready):
    words = text.split(" ")
    listed, paired, nested = [text], ("x", text), {"a": [{"b": (text,)}]}
    keyed, inside, quoted = {"text": text}, Held(text=[text]), json.dumps({"text": text})
    again, double = {"text": json.dumps({"text": text})}, json.dumps(json.dumps([text]))
    as_key, shown, lines = {text: 1}, repr([text]), "first\n" + text + "\nlast"
    text_in_quotes = '"%s"' % text
    password = value
    setting = {name: value}
    item = (name, value)
    named = {"name": name, "value": value}
    long_text = "x " * 30 + text
    far_text = "x" * 5000 + " " + text
    argument_list = ["run"] + words
    secret = [value, {"user": value}]
    plain = "of " + value
    ready.set()
    threading.Event().wait()
for one in json.load(open(os.environ["PLAN"], encoding="utf-8")):
    ready = threading.Event()
    threading.Thread(target=holds, args=(one["text"], one["name"], one["value"], ready), daemon=True).start()
    del one
    ready.wait()
print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
for line in sys.stdin:
    print("alive", flush=True)
"""
# As the text of a variable: a command with quotes within a dict.
QUOTED = (('mysql -uroot -p"s3cret-of-mysql" db', "s3cret-of-mysql"), ("mysql -uroot -p's3cret-of-quotes' db", "s3cret-of-quotes"),
          ('{"password": "s3cret-of-json"}', "s3cret-of-json"), ('curl -H "Authorization: Token s3cret-of-header" h', "s3cret-of-header"))


def case_of_local_variables(directory):
    """`dump --locals` shows values as Python quotes them, which is done after the secrets are taken out."""
    plan = []
    for kind in KINDS_OF_SECRETS:
        name, equals, value = kind.text.partition("=")
        is_named = equals and name.replace("_", "").isalnum()
        plan.append({"text": kind.text, "name": name if is_named else "API_KEY", "value": value if is_named else kind.secret})
    plan += [{"text": text, "name": "API_KEY", "value": secret} for text, secret in QUOTED]
    planned, script = os.path.join(directory, "plan.json"), os.path.join(directory, "holds.py")
    with open(planned, "w", encoding="utf-8") as file:
        json.dump(plan, file)
    with open(script, "w", encoding="utf-8") as file:
        file.write(HOLDS)
    with Fixture(["/usr/bin/python3", script], env=dict(os.environ, PLAN=planned)) as program:
        for options in (["--locals"], ["--locals", "--json"], ["-llllllll"], ["-llllllll", "--json"], ["-ll", "--subprocesses", "--native"]):
            out = check_output("dump %s" % options, "dump", "--pid", program.pid, *options).decode("utf-8")
            check(out.count("text_in_quotes") == len(plan), "%s: %d threads" % (options, out.count("text_in_quotes")))
            check(out.count("<token>") > 10 * len(plan), "%s: %d are taken out" % (options, out.count("<token>")))
            shown = [secret for _, secret in QUOTED if secret in out]
            check(not shown, "%s: %r are shown: %s" % (options, shown, [line for line in out.splitlines() if any(secret in line for secret in shown)][:3]))
        core = core_of(program, directory, "held")
        for options in (["--locals"], ["-llllllll", "--json"]):
            check_output("dump of a core %s" % options, "dump", "--core", core, *options, expect=(0, 1))
        program.check_unharmed()


DIES = r"""
#include <assert.h>
#include <stdexcept>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int, char** words) {
  printf("{\"ready\": true, \"pid\": %d}\n", getpid());
  fflush(stdout);
  char line[8];
  if (read(0, line, sizeof line) < 0) return 1;
  if (strcmp(words[1], "assert") == 0) __assert_fail(words[2], "dies.cc", 1, "main");
  throw std::runtime_error(words[2]);
}
"""


def case_of_cores(directory):
    if not shutil.which("g++"):
        raise Skip("no g++ on this machine")
    source = os.path.join(directory, "dies.cc")
    with open(source, "w", encoding="utf-8") as file:
        file.write(DIES)
    # What is taken from a core of such a text is bounded.
    texts, size = [""], 0
    for kind in KINDS_OF_SECRETS:
        if len(texts[-1]) + len(kind.text) > 3500:
            texts.append("")
        texts[-1] += "key " + kind.text + " is refused\n"
    for number, text in enumerate(texts):
        for way in ("assert", "throw"):
            name = "%s-%d-%s" % (way, number, KINDS_OF_SECRETS[number].text)
            place = os.path.join(directory, name)
            os.makedirs(place)
            program = os.path.join(place, "dies")
            subprocess.run(["g++", "-o", program, source], check=True)
            with open(os.devnull, "wb") as nowhere:
                _, core = kernel_core(place, "dies", command=["/bin/sh", "-c", 'exec "$0" "$@" 2>/dev/null', program, way, text])
            raw = raw_report(os.path.join(directory, name + ".json"), "core", core)["ranks"][0]
            said = raw.get("abort_message") if way == "assert" else next(thread["exception"]["what"] for thread in raw["threads"] if "exception" in thread)
            check(text[:-1] in said, "%s: %r" % (name, said[:300]))
            check_report(way, ["core", core])
            for form in ("text", "json"):
                check_output("doctor of a core", "doctor", core, "--format", form, expect=(0, 1))


def leaves(node, path=()):
    """(path, value) of each string."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, path + (key,))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from leaves(value, path + (index,))
    elif isinstance(node, str):
        yield path, node


def put(node, path, value):
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value


def shape(path):
    return tuple("*" if isinstance(step, int) else step for step in path)


def accepts(directory, report):
    path = os.path.join(directory, "tried.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report, file)
    return run_tool("report", path, "--format", "json")[0] in (0, 1)


def free_texts(directory, report):
    """Shapes of the paths of strings that may be any text; the reader refuses others, which are words of its own."""
    shapes = {}
    for path, _ in leaves(report):
        shapes.setdefault(shape(path), path)

    def free_of(candidates):
        planted = copy.deepcopy(report)
        for path in candidates:
            put(planted, path, "x y")
        if accepts(directory, planted):
            return candidates
        half = len(candidates) // 2
        return free_of(candidates[:half]) + free_of(candidates[half:]) if half else []
    return {shape(path) for path in free_of(list(shapes.values()))}


def plant_everywhere(report, free, round_number, number_of_rounds):
    """Each free text gets one kind; over the rounds, and over the places of one shape, all kinds come to each shape."""
    planted = copy.deepcopy(report)
    per_round = -(-len(KINDS_OF_SECRETS) // number_of_rounds)
    seen = {}
    for path, value in leaves(report):
        at = shape(path)
        if at not in free or at == ("captured_at",):
            continue
        kind = KINDS_OF_SECRETS[(round_number * per_round + seen.get(at, 0) % per_round) % len(KINDS_OF_SECRETS)]
        seen[at] = seen.get(at, 0) + 1
        is_path = value.startswith("/")
        put(planted, path, (value + "/" if is_path else value + " " if value else "") + kind.text)
    return planted


def plant_in_variables(report):
    """The names of variables are keys."""
    for rank in report["ranks"]:
        if rank.get("environment"):
            for number, kind in enumerate(KINDS_OF_SECRETS):
                rank["environment"]["variables"]["NCCL_PLANTED_%d" % number] = kind.text
    return report


def check_saved(directory, saved, rounds=3):
    with (gzip.open if saved.endswith(".gz") else open)(saved, "rt", encoding="utf-8") as file:
        report = json.load(file)
    free = free_texts(directory, report)
    check(len(free) >= 25, "%s: %d free texts: %r" % (saved, len(free), sorted(free)))
    original = os.path.join(directory, "original.json")
    with open(original, "w", encoding="utf-8") as file:
        json.dump(report, file)
    for number in range(rounds):
        path = os.path.join(directory, "planted-%d.json" % number)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(plant_in_variables(plant_everywhere(report, free, number, rounds)), file)
        name = os.path.basename(saved)
        check_report(name, ["report", path], expect=(0, 1))
        check_diff(name, original, path, expect=(0, 1))
    return free


def case_in_every_string_of_gpu_jobs(directory):
    """Kernels' names, groups, dumps of the Flight Recorder, exceptions of watchdogs: reports of jobs on GPUs."""
    jobs = os.path.join(SOURCE, "fixtures", "gpu_jobs")
    shapes = set()
    for name in ("cores-other-collective.json.gz", "ddp-kernel-with-gpus.json.gz"):
        shapes |= check_saved(directory, os.path.join(jobs, name))
    kernels = [at for at in shapes if "kernels" in at and at[-1] == "function"]
    check(kernels, "no kernel's name among %r" % sorted(shapes))


def case_in_every_string_of_nccl_jobs(directory):
    check_saved(directory, sorted(glob.glob(os.path.join(SOURCE, "fixtures", "nccl", "*.json.gz")))[0])


if __name__ == "__main__":
    sys.setrecursionlimit(10000)
    if sys.argv[1:] == ["of_a_job_on_nodes"]:
        enter_namespaces()
    cases.run(globals(), "planted-secrets")
