"""Symbols from Debian's debuginfod server, on loopback: the program of a core is gone, and the server has it and its debug file."""
import http.server
import json
import os
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.request

import cases
import debugger
from command_line import FIXTURES
from processes import Fixture, Skip, check, json_report, run_tool, tool, wait_until
from truth_python import only_rank


def needs(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Skip("no %s on this machine" % program)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Gone:
    """A core and a capture of a program that is no longer where it was; `whole` is the report with its symbols."""

    def __init__(self, directory):
        needs("objcopy", "strip", "debuginfod-find")
        self.directory = directory
        self.served = os.path.join(directory, "served")
        self.core, self.small = os.path.join(directory, "core"), os.path.join(directory, "small.core.zst")
        there = os.path.join(directory, "there")
        for name in (self.served, there):
            os.mkdir(name)
        program, full = os.path.join(there, "threads"), os.path.join(FIXTURES, "threads")
        subprocess.run(["objcopy", "--only-keep-debug", full, os.path.join(self.served, "threads.debug")], check=True)
        subprocess.run(["strip", "-o", program, full], check=True)
        shutil.copy(program, os.path.join(self.served, "threads"))
        with Fixture([program]) as fixture:
            self.pid = fixture.pid
            debugger.write_core(fixture.pid, self.core)
        status, _, err = run_tool("capture", self.core, "-o", self.small)
        check(status == 0, "capture: %r" % err)
        notes = subprocess.run(["readelf", "-n", program], stdout=subprocess.PIPE, check=True).stdout.decode()
        self.build_id = notes.split("Build ID: ")[1].split()[0]
        shutil.copy(full, program)
        self.whole = self.rank(json_report("core", self.core))
        shutil.rmtree(there)

    def rank(self, report):
        return only_rank(report, self.pid)

    def run(self, command, path, *options, url=None, **variables):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("DEBUGINFOD_")}
        environment.update(variables)
        if url:
            environment.update(DEBUGINFOD_URLS=url, DEBUGINFOD_CACHE_PATH=os.path.join(self.directory, "cache"))
        return subprocess.run([tool(), command, path, "--format", "json"] + list(options), env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)

    def report(self, *arguments, **options):
        done = self.run(*arguments, **options)
        check(done.returncode in (0, 1) and done.stdout, "status %d: %r" % (done.returncode, done.stderr))
        return self.rank(json.loads(done.stdout))


def functions(rank):
    return {thread["tid"]: [(frame["function"], frame["file"], frame["line"]) for frame in thread["frames"] if (frame["module"] or "").endswith("/threads")]
            for thread in rank["threads"]}


class Server:
    def __init__(self, gone):
        needs("debuginfod")
        self.port = free_port()
        environment = dict(os.environ, HOME=gone.directory)
        self.log = open(os.path.join(gone.directory, "server.log"), "wb")
        self.process = subprocess.Popen(["debuginfod", "-F", "-p", str(self.port), "-d", ":memory:", gone.served], env=environment, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)
        self.url = "http://127.0.0.1:%d" % self.port
        self.build_id = gone.build_id

    def has(self, kind):
        try:
            with urllib.request.urlopen("%s/buildid/%s/%s" % (self.url, self.build_id, kind), timeout=30) as answer:
                return answer.status == 200
        except (urllib.error.URLError, ConnectionError):
            return False

    def __enter__(self):
        wait_until(lambda: self.process.poll() is not None or (self.has("executable") and self.has("debuginfo")), "the server has scanned its files")
        if self.process.poll() is not None:
            raise Skip("debuginfod has ended: see server.log")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)
        self.log.close()


def case_symbols_from_a_server(directory):
    gone = Gone(directory)
    check(any(function == "main" for thread in functions(gone.whole).values() for function, _, _ in thread), "the whole report: %r" % functions(gone.whole))
    with Server(gone) as server:
        for command, path in (("core", gone.core), ("report", gone.small), ("core", gone.small)):
            bare = gone.report(command, path, url=server.url)
            missing = [problem for problem in bare["problems"] if problem["code"] == "file-missing"]
            check(len(missing) == 1 and gone.build_id in missing[0]["message"], "%s: what is missing without --debuginfod: %r" % (command, bare["problems"]))
            check(not os.path.exists(os.path.join(directory, "cache")), "a server was asked, though nobody wanted that")
        for command, path in (("core", gone.core), ("report", gone.small)):
            found = gone.report(command, path, "--debuginfod", url=server.url)
            check(found["problems"] == gone.whole["problems"], "%s: %r" % (command, found["problems"]))
            check(functions(found) == functions(gone.whole), "%s: %r instead of %r" % (command, functions(found), functions(gone.whole)))
    # The server is gone, and the command's cache has them.
    found = gone.report("core", gone.core, "--debuginfod", url=server.url)
    check(functions(found) == functions(gone.whole), "from the cache: %r" % functions(found))


class Answering(http.server.ThreadingHTTPServer):
    """Answers what it is given to whoever asks, or nothing at all until it is closed."""

    def __init__(self, body):
        self.closed = threading.Event()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if body is None:
                    server.closed.wait(timeout=100)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass
        super().__init__(("127.0.0.1", 0), Handler)
        self.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_):
        self.closed.set()
        self.shutdown()
        self.server_close()


def running(words):
    """Processes that have all of these words in their command lines."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open("/proc/%s/cmdline" % name, "rb") as stream:
                line = stream.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if name.isdigit() and all(any(word == part or part.endswith("/" + word) for part in line) for word in words):
            found.append(int(name))
    return found


def case_servers_that_do_not_help(directory):
    gone = Gone(directory)
    # One that says nothing: the time for all files together is over, and the command is ended.
    with Answering(None) as server:
        for options in (["--debuginfod-time", "0.5"], ["--debuginfod-time", "3600", "--timeout", "4"]):
            rank = gone.report("core", gone.core, "--debuginfod", *options, url=server.url)
            check(any("not waited for" in problem["message"] and "--debuginfod-time" in problem["message"] for problem in rank["problems"]), "%r" % rank["problems"])
            check(any(gone.build_id in problem["message"] for problem in rank["problems"]), "what is missing: %r" % rank["problems"])
            check(running(["debuginfod-find", gone.build_id]) == [], "the command still runs")
    shutil.rmtree(os.path.join(directory, "cache"), ignore_errors=True)
    # One that gives another build's file, or none at all: refused.
    with open(os.path.join(FIXTURES, "chain"), "rb") as stream:
        other = stream.read()
    for body in (other, b"<html>no</html>"):
        with Answering(body) as server:
            rank = gone.report("core", gone.core, "--debuginfod", url=server.url)
        check(any(gone.build_id in problem["message"] for problem in rank["problems"]), "what is missing: %r" % rank["problems"])
        bare = gone.report("core", gone.core)
        check([thread["frames"] for thread in rank["threads"]] == [thread["frames"] for thread in bare["threads"]], "the frames are by another build's file")
        shutil.rmtree(os.path.join(directory, "cache"), ignore_errors=True)
    # No server, no command.
    done = gone.run("core", gone.core, "--debuginfod")
    check(done.returncode == 2 and b"DEBUGINFOD_URLS" in done.stderr, "no server: %d, %r" % (done.returncode, done.stderr))
    done = gone.run("core", gone.core, "--debuginfod", url="http://127.0.0.1:1", PATH="/nowhere")
    check(done.returncode == 2 and b"debuginfod-find" in done.stderr and b"apt install" in done.stderr, "no command: %d, %r" % (done.returncode, done.stderr))


if __name__ == "__main__":
    cases.run(globals(), "debuginfod")
