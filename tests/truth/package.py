"""The output of scripts/package: it starts on other machines, gives the same results as the build's own binary, and documents every
option."""
import base64
import csv
import glob
import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
import zipfile

import cases
import debugger
from command_line import SOURCE, native, python
from processes import Skip, check, json_report, run_tool, tool
from truth_native import compare
from truth_python import only_rank

PACKAGE = os.environ.get("RANKSTACKS_PACKAGE") or os.path.join(os.path.dirname(tool()), "package")
OLDEST_GLIBC = (2, 17)


def made(pattern):
    found = glob.glob(os.path.join(PACKAGE, pattern))
    if not found:
        raise Skip("no %s in %s: scripts/package has not run, or could not" % (pattern, PACKAGE))
    check(len(found) == 1, "several: %r" % found)
    return found[0]


def unpacked(directory):
    """Unpacks the tarball as a user would: the directory that is in it."""
    with tarfile.open(made("rankstacks-*-linux-x86_64.tar.gz")) as archive:
        for member in archive.getmembers():
            check(not member.name.startswith("/") and ".." not in member.name.split("/"), "a path that leads out: %s" % member.name)
        archive.extractall(directory)
    return os.path.join(directory, os.path.basename(made("rankstacks-*-linux-x86_64.tar.gz"))[:-len(".tar.gz")])


def run(*command, expect=0, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=250, **options)
    check(done.returncode == expect, "%s: exit status %d instead of %d: %s"
          % (" ".join(command), done.returncode, expect, (done.stdout[-1000:] + done.stderr[-1000:]).decode(errors="replace")))
    return done.stdout.decode()


def needs(program):
    if not shutil.which(program):
        raise Skip("no %s on this machine" % program)


class Packaged:
    """As a context: json_report and run_tool use the packaged binary."""

    def __init__(self, directory):
        self.path = os.path.join(unpacked(directory), "bin", "rankstacks")

    def __enter__(self):
        self.own = os.environ["RANKSTACKS"]
        os.environ["RANKSTACKS"] = self.path
        return self.path

    def __exit__(self, *exception):
        os.environ["RANKSTACKS"] = self.own


def case_needs_glibc_alone(directory):
    needs("readelf")
    binary = os.path.join(unpacked(directory), "bin", "rankstacks")
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-W", "-d", binary)))
    check("libc.so.6" in needed, "it needs %r" % needed)
    check(needed <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}, "it needs %r" % needed)
    check("RPATH" not in run("readelf", "-W", "-d", binary) and "RUNPATH" not in run("readelf", "-W", "-d", binary), "it searches a directory of the build")


def case_needs_an_old_glibc(directory):
    needs("objdump")
    binary = os.path.join(unpacked(directory), "bin", "rankstacks")
    versions = set(re.findall(r"GLIBC_([0-9A-Za-z_.]+)", run("objdump", "-T", binary)))
    check(len(versions) > 3, "few versions: %r" % versions)
    numbers = [tuple(int(part) for part in version.split(".")) for version in versions]
    check(max(numbers) <= OLDEST_GLIBC, "it needs glibc %r" % (max(numbers),))
    check("GLIBC_ABI" not in run("readelf", "-W", "-V", binary), "it is marked for a newer loader")
    check(os.path.basename(made("rankstacks-*.whl")).endswith("-py3-none-manylinux_%d_%d_x86_64.whl" % max(numbers)), "the wheel's name: " + made("*.whl"))


def case_version(directory):
    expected = run_tool("--version")[1]
    with Packaged(directory) as binary:
        check(run_tool("--version", env={"LD_BIND_NOW": "1"})[1] == expected, "with all symbols bound: %r" % expected)
        check(run(binary, "--version", env={}) == expected.decode(), "without an environment")


def threads_of(report, pid):
    threads = only_rank(report, pid)["threads"]
    return [(thread["tid"], thread["name"], thread["role"], thread["stack_end"], thread["frames"]) for thread in threads]


def same_of(directory, fixture, *arguments):
    """The packaged binary gives the same result as the build's own."""
    own = threads_of(json_report(*arguments), fixture.pid)
    check(own and all(frames for _, _, _, _, frames in own), "no frames: %r" % own)
    with Packaged(directory):
        packaged = threads_of(json_report(*arguments), fixture.pid)
    check(packaged == own, "%r: the packaged binary prints\n%r\nand the build's own\n%r" % (arguments, packaged, own))


def case_attach(directory):
    for fixture in (native("threads"), native("inlined"), native("cxx"), native("chain_minidebug"), python("generators")):
        with fixture:
            for unwinder in ("auto", "libunwind", "libdwfl"):
                same_of(directory, fixture, "attach", "--pids", fixture.pid, "--unwinder", unwinder)
            fixture.check_unharmed()


def case_core(directory):
    path = os.path.join(directory, "core")
    with native("threads") as fixture:
        debugger.take_core(fixture, path)
        same_of(directory, fixture, "core", path)
        compressed = 0
        for command, ending in ((["zstd", "-q", "-1", "-k"], ".zst"), (["lz4", "-q", "-1"], ".lz4"), (["xz", "-0", "-k"], ".xz"), (["gzip", "-1", "-k"], ".gz")):
            if shutil.which(command[0]):
                run(*command, path, *([path + ending] if ending == ".lz4" else []))
                same_of(directory, fixture, "core", path + ending)
                compressed += 1
        check(compressed, "no program to compress with")


def case_exceptions_are_caught(directory):
    """Each of these exceptions is thrown in the tool, through its own frames and those of the linked libraries, and caught."""
    broken = os.path.join(directory, "broken.json")
    with open(broken, "w", encoding="utf-8") as stream:
        stream.write('{"schema": 1, "ranks": [')
    with open(os.path.join(directory, "not-a-core"), "wb") as stream:
        stream.write(b"\x7fELF" + b"\xff" * 100)
    for arguments in (["report", broken], ["attach", "--pids", "abc"], ["nonsense"], ["attach"], ["core", os.path.join(directory, "not-a-core")]):
        own = run_tool(*arguments)
        check(own[0] == 2 and own[2], "%r: %r" % (arguments, own))
        with Packaged(directory):
            packaged = run_tool(*arguments)
        check(packaged[0] == 2 and packaged[2] == own[2], "%r: %r instead of %r" % (arguments, packaged, own))


def other_glibc(directory, release):
    """Runs the packaged binary with the loader and the C library of another Debian release."""
    place = os.path.join(PACKAGE, "glibc-" + release)
    fetched = subprocess.run([os.path.join(SOURCE, "scripts/fetch-glibc"), release, place], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if fetched.returncode != 0:
        raise Skip(fetched.stderr.decode(errors="replace").strip())
    libraries = os.path.join(place, "root/lib/x86_64-linux-gnu")
    with Packaged(directory) as binary:
        loader = [os.path.join(libraries, "ld-linux-x86-64.so.2"), "--library-path", libraries]
        own, packaged = run_tool("--version")[1].decode(), run(*loader, binary, "--version")
        check(packaged == own, "--version: %r" % packaged)
        shown = run(*loader[:1], "--library-path", libraries, "--list", binary)
        check(libraries in shown and not re.search(r"=> /(usr/)?lib", shown), "libraries of this machine: %s" % shown)
        check("terminate" not in run(*loader, binary, "report", "/dev/null", expect=2), "an exception is not caught")
        with native("threads") as fixture:
            report = os.path.join(directory, "report.json")
            run(*loader, binary, "attach", "--pids", str(fixture.pid), "--format", "json", "-o", report)
            compare(fixture.ready, only_rank(json_report("report", report), fixture.pid), release)
            fixture.check_unharmed()


def case_debian_11(directory):
    other_glibc(directory, "bullseye")


def case_debian_13(directory):
    other_glibc(directory, "trixie")


def case_debian_unstable(directory):
    other_glibc(directory, "sid")


def described_options(binary):
    """{command: its options}, from the output of --help; the command "" is the tool itself."""
    def options_in(text):
        return set(name for line in text.splitlines() if re.match(r"\s+-", line)
                   for name in re.findall(r"(?:^|,|\s)(--?[A-Za-z][A-Za-z-]*)", line.split("  ")[1] if line.startswith("  ") else line))

    top = run(binary, "--help")
    commands = re.findall(r"^  ([a-z-]+) ", top.split("Subcommands:")[1].split("Examples:")[0], re.M)
    check({"attach", "core", "report"} <= set(commands), "commands: %r of %s" % (commands, top))
    found = {command: options_in(run(binary, command, "--help")) for command in commands}
    found[""] = options_in(top.split("Subcommands:")[0])
    check({"--version", "--help", "-h"} == found[""], "the tool's options: %r" % found[""])
    check({"--pids", "--job", "-o", "--output", "--format", "--no-inlines"} <= found["attach"], "attach's options: %r" % found["attach"])
    return found


def case_man_page(directory):
    needs("groff")
    tree = unpacked(directory)
    page = os.path.join(tree, "share/man/man1/rankstacks.1")
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-rLL=200n", "-P-c", page], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    check(done.returncode == 0 and done.stderr == b"", "groff: %r" % done.stderr)
    text = re.sub(".\b", "", done.stdout.decode())
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXAMPLES", "EXIT STATUS"):
        check(re.search("^%s$" % heading, text, re.M), "no section %s" % heading)
    for command, options in described_options(os.path.join(tree, "bin/rankstacks")).items():
        if command:
            check("   rankstacks %s\n" % command in text, "no section of %r" % command)
            section = re.split(r"\n(?:   rankstacks |[A-Z])", text.split("   rankstacks %s\n" % command)[1])[0]
        else:
            section = text.split("\nOPTIONS\n")[1].split("\nCOMMANDS\n")[0]
        headings = set(name for line in section.splitlines() if re.match(r" {7}-", line) for name in re.findall(r"(?<![\w-])--?[A-Za-z][A-Za-z-]*", line))
        check(options <= headings, "%r: the page lacks %r" % (command, options - headings))


COMPLETE = r"""
. "$1"; shift
compopt() { :; }                # it works in a real completion alone
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
_rankstacks
printf '%s\n' "${COMPREPLY[@]}"
"""


def case_bash_completion(directory):
    needs("bash")
    tree = unpacked(directory)
    script = os.path.join(tree, "share/bash-completion/completions/rankstacks")

    def complete(*words):
        return set(run("bash", "-euc", COMPLETE, "bash", script, "rankstacks", *words).split())

    described = described_options(os.path.join(tree, "bin/rankstacks"))
    check(complete("") == (set(described) - {""}) | described[""], "the first word: %r" % complete(""))
    check(complete("at") == {"attach"}, "at: %r" % complete("at"))
    for command, options in described.items():
        if command:
            # What job does on the nodes has options of its own.
            passed_on = described["attach"] | described["core"] | described["doctor"] if command == "job" else set()
            check(options <= complete(command, "-") <= options | passed_on, "%s: %r instead of %r" % (command, complete(command, "-"), options))
            if "--format" not in options:
                continue
            formats = {"text", "json"} | (set() if command in ("doctor", "rules", "diff") else {"markdown", "html", "folded"})
            check(complete(command, "--format", "") == formats, "%s --format: %r" % (command, complete(command, "--format", "")))
    check(complete("attach", "--format", "=", "j") == {"json"}, "--format=j: %r" % complete("attach", "--format", "=", "j"))
    check(str(os.getpid()) in complete("attach", "--pids", str(os.getpid())), "--pids: %r" % complete("attach", "--pids", str(os.getpid())))


def case_zsh_completion(directory):
    needs("zsh")
    tree = unpacked(directory)
    script = os.path.join(tree, "share/zsh/site-functions/_rankstacks")
    run("zsh", "-n", script)
    # The functions of the completion system are replaced by functions that print their arguments.
    program = ("_describe() { print -rl -- ${(P)2} }\n"
               "_arguments() { print -rl -- $@; if [[ -n $want ]]; then state=$want; line=($command) fi }\n"
               "want=$1 command=$2; . $3")
    commands = set(line.split(":")[0] for line in run("zsh", "-fc", program, "zsh", "command", "", script).splitlines())
    described = described_options(os.path.join(tree, "bin/rankstacks"))
    check(set(described) - {""} <= commands, "commands: %r" % commands)
    for command, options in described.items():
        output = run("zsh", "-fc", program, "zsh", "arguments" if command else "", command, script)
        names = set(re.findall(r"^(?:\([^)]*\)|\*)?(--?[A-Za-z][A-Za-z-]*)\[", output, re.M))
        check(options <= names, "%r: zsh does not complete %r" % (command, options - names))


def case_fish_completion(directory):
    needs("fish")
    tree = unpacked(directory)
    script = os.path.join(tree, "share/fish/vendor_completions.d/rankstacks.fish")
    environment = dict(os.environ, HOME=directory, XDG_CONFIG_HOME=directory, XDG_DATA_HOME=directory, XDG_RUNTIME_DIR=directory)

    def complete(line):
        output = run("fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", script, line, env=environment)
        return set(each.split("\t")[0] for each in output.splitlines())

    described = described_options(os.path.join(tree, "bin/rankstacks"))
    check(set(described) - {""} <= complete("rankstacks "), "commands: %r" % complete("rankstacks "))
    for command, options in described.items():
        names = complete("rankstacks %s -" % command) | complete("rankstacks %s --" % command)
        check(options <= names, "%r: fish does not complete %r" % (command, options - names))
    check(complete("rankstacks attach --format ") >= {"text", "json"}, "--format: %r" % complete("rankstacks attach --format "))


def case_licenses(directory):
    tree = unpacked(directory)
    place = os.path.join(tree, "share/doc/rankstacks")
    with open(os.path.join(place, "LICENSE"), encoding="utf-8") as stream:
        check("Apache License" in stream.read(), "the project's licence")
    with open(os.path.join(place, "licenses/README"), encoding="utf-8") as stream:
        listed = dict(line.split(None, 1) for line in stream.read().split("\n\n")[1].splitlines())
    linked = " ".join(listed.values())
    for library in ("libdw.a", "libelf.a", "libunwind-x86_64.a", "libstdc++.a", "libgcc_eh.a", "libzstd.a", "liblz4.a", "liblzma.a", "libz.a", "libbz2.a"):
        check(library in linked, "%s is not among what is linked: %s" % (library, linked))
    for package in list(listed) + ["common-LGPL-3", "common-GPL-2"]:
        path = os.path.join(place, "licenses", package + ".txt")
        check(os.path.exists(path) and os.path.getsize(path) > 500, "no text of %s" % package)


def case_wheel(directory):
    wheel = made("rankstacks-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        info = os.path.basename(wheel).split("-py3-")[0] + ".dist-info"
        rows = {row[0]: row for row in csv.reader(io.StringIO(archive.read(info + "/RECORD").decode()))}
        check(set(rows) == set(archive.namelist()), "RECORD and files differ: %r" % (set(rows) ^ set(archive.namelist())))
        for name, digest, size in rows.values():
            if not name.endswith("/RECORD"):
                content = archive.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                check((digest, int(size)) == ("sha256=" + expected, len(content)), "RECORD of %s" % name)
    venv = os.path.join(directory, "venv")
    made_one = subprocess.run(["/usr/bin/python3", "-m", "venv", venv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made_one.returncode != 0:
        raise Skip("no virtual environment can be made here: %s" % made_one.stdout.decode(errors="replace").strip()[:300])
    pip = [os.path.join(venv, "bin/python"), "-m", "pip", "--disable-pip-version-check", "-q"]
    environment = dict(os.environ, PIP_NO_INDEX="1", PIP_NO_CACHE_DIR="1")
    run(*pip, "install", "--find-links", PACKAGE, "rankstacks", env=environment)
    command = os.path.join(venv, "bin/rankstacks")
    check(run(command, "--version", env={}).encode() == run_tool("--version")[1], "--version of the installed command")
    with native("threads") as fixture:
        report = os.path.join(directory, "report.json")
        run(command, "attach", "--pids", str(fixture.pid), "--format", "json", "-o", report)
        compare(fixture.ready, only_rank(json_report("report", report), fixture.pid), "the wheel's command")
    check(os.path.exists(os.path.join(venv, "share/man/man1/rankstacks.1")), "no man page is installed")
    run(*pip, "uninstall", "-y", "rankstacks", env=environment)
    check(not os.path.exists(command), "the command is left behind")


if __name__ == "__main__":
    cases.run(globals(), "package")
