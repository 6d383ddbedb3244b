"""What exceptions say, and their tracebacks, compared with str() of each and with the interpreter's traceback."""
import os
import shutil
import tempfile

import cases
import debugger
import interpreters
from processes import Fixture, check, json_report, run_tool
from truth_python import kernel_core, kernel_writes_cores, only_rank

# Each of the threads handles one exception, and says what it is. `shows`: what the tool shows where that is not str().
PROGRAM = r'''# -*- coding: utf-8 -*-
import json, os, subprocess, sys, threading, traceback
class Own(Exception):
    pass
class Says(Exception):
    def __str__(self):
        return "its own words"
class Lost(OSError):
    pass
class Unset(OSError):
    def __init__(self, number, text):
        self.number = number
class Key(KeyError):
    pass
class Both(ValueError, KeyError):
    pass
class Named(str):
    pass
class OSErrors(Exception):
    pass
OSErrors.__name__ = "OSError"
class Bare(object):
    def __repr__(self):
        return "bare"
def raises(error):
    raise error
def deep(n):
    if n:
        deep(n - 1)
    raise Own("from far inside")
def looked_up(key):
    return {}[key]
def undecoded(data):
    return data.decode("utf-8")
def compiled(text, name):
    compile(text, name, "exec")
def several(*errors):
    raise ExceptionGroup("loading", errors)
STRANGE = u"it's \u00e9 \u5931 \U0001f4a5 \"x\" \\ \t\n\x00\x7f\xa0\xad\u200b\u2028\ue000"
WAYS = {
    "no file": lambda: open("/none/shard 'a'"),
    "bytes": lambda: open(b"/none/\xff'\"\n"),
    "two files": lambda: os.rename("/none/a", u"/none/\u00e9"),
    "descriptor": lambda: os.read(999, 1),
    "two of OSError": lambda: raises(OSError(5, "I/O error")),
    "three of OSError": lambda: raises(OSError(28, "full", 17)),
    "None in OSError": lambda: raises(OSError(None, None, "x")),
    "one of OSError": lambda: raises(OSError("no number")),
    "six of OSError": lambda: raises(OSError(1, 2, 3, 4, 5, 6)),
    "subclass of OSError": lambda: raises(Lost(2, "gone", "x")),
    "unset OSError": lambda: raises(Unset(7, "seven")),
    "blocking": lambda: raises(BlockingIOError(11, "would block", 3)),
    "reset": lambda: raises(ConnectionResetError(104, "Connection reset by peer")),
    "another OSError": lambda: raises(OSErrors(1, "x")),
    "key of int": lambda: looked_up(17),
    "key of tuple": lambda: looked_up(("a", 1, None)),
    "key of str": lambda: looked_up("it's"),
    "strange key": lambda: looked_up(STRANGE),
    "two of KeyError": lambda: raises(KeyError("a", "b")),
    "subclass of KeyError": lambda: raises(Key("a")),
    "by inheritance": lambda: raises(Both("a")),
    "byte": lambda: undecoded(b"ab\xff"),
    "byte at 0": lambda: undecoded(b"\xff"),
    "several bytes": lambda: undecoded(b"\xe4\xb8" * 2 + b"x"),
    "character": lambda: u"a\u20ac".encode("ascii"),
    "low character": lambda: u"\xe9".encode("ascii"),
    "high character": lambda: u"\U0001f4a5".encode("ascii"),
    "characters": lambda: u"ab\u20ac\u20ac".encode("ascii"),
    "syntax": lambda: compiled("x = = 3\n", "/none/train.py"),
    "syntax by hand": lambda: raises(SyntaxError("wrong")),
    "syntax of a line": lambda: raises(SyntaxError("wrong", (None, 7, 1, "x"))),
    "command": lambda: raises(subprocess.CalledProcessError(3, ["false", "x"])),
    "exit": lambda: sys.exit(3),
    "own words": lambda: raises(Says(1, "x")),
    "two": lambda: raises(Own(1, "b\n")),
    "values": lambda: raises(Own(None, True, False, 0, -7, 2 ** 40, -2 ** 62, 2.5, 1e22, 1e16, 123456789012345.0, 1e-4, 1e-5, -0.0, 3.0)),
    "floats": lambda: raises(Own(float("inf"), float("-inf"), float("nan"), 0.1, 1 / 3.0, 1e100, 5e-324, 9999999999999998.0)),
    "bytes as arguments": lambda: raises(Own(b"\x00a'\\\t\xff", b"")),
    "nested": lambda: raises(Own(("t",), [1, [2, ()]], [])),
    "one tuple": lambda: raises(Own(("t", 2))),
    "one float": lambda: raises(Own(2.5)),
    "one bool": lambda: raises(Own(True)),
    "one None": lambda: raises(Own(None)),
    "one list": lambda: raises(Own(["a"])),
    "subclass of str": lambda: raises(Own(Named("a name"))),
    "empty text": lambda: raises(Own("")),
    "strange text": lambda: raises(Own(STRANGE)),
    "strange texts": lambda: raises(Own(STRANGE, "x")),
    "an exception": lambda: raises(Own(ValueError("inner"))),
    "an exception of two": lambda: raises(Own(OSError(2, "gone", "x"))),
    "exceptions": lambda: raises(Own(1, ValueError("inner"), KeyError(), OSError(1, "x"))),
    "empty exception": lambda: raises(Own(ValueError())),
    "long": lambda: raises(Own(u"\u00e9" * 1000)),
    "long at its end": lambda: raises(Own("x" * 196, "y")),
    "long tuple": lambda: raises(Own(tuple(range(100000)))),
    "long file": lambda: open("/none/" + "x" * 200),
    "nothing": lambda: raises(Own()),
    "an object": lambda: raises(Own(Bare())),
    "two objects": lambda: raises(Own(1, Bare())),
    "large": lambda: raises(Own(2 ** 80)),
    "dictionary": lambda: raises(Own(1, {"a": 1})),
    "deep": lambda: deep(200),
    "nested deeply": lambda: raises(Own(1, [[[[[[[[[[[1]]]]]]]]]]])),
}
SHOWN = {"own words": "(1, 'x')", "command": "(3, ['false', 'x'])", "nothing": None, "unset OSError": None, "an object": None, "two objects": "(1, <Bare>)", "large": None,
         "dictionary": "(1, <dict>)", "nested deeply": "(1, [[[[[[[<list>]]]]]]])"}
if sys.version_info >= (3, 11):
    WAYS["group"] = lambda: several(ValueError("a"), KeyError("b"))
    WAYS["group of one"] = lambda: several(OSError(2, "x"))
truth, ready = {}, threading.Semaphore(0)
def handles(way):
    try:
        WAYS[way]()
    except BaseException as error:
        places = [[entry[2], entry[0], entry[1]] for entry in traceback.extract_tb(error.__traceback__)]
        truth[way] = {"type": type(error).__name__, "message": SHOWN[way] if way in SHOWN else str(error)[:200], "traceback": places}
        ready.release()
        threading.Event().wait()
for way in WAYS:
    threading.Thread(target=handles, args=(way,), name=way, daemon=True).start()
for way in WAYS:
    ready.acquire()
print(json.dumps({"ready": True, "pid": os.getpid(), "truth": truth}))
sys.stdout.flush()
while os.read(0, 100):
    os.write(1, b"alive\n")
'''
KEPT = 64      # entries of a traceback


def started(interpreter, place=None):
    """`place`: where its core is to be written, below the interpreter's sysroot."""
    environment = dict(os.environ, PYTHONIOENCODING="utf-8", **interpreter.environment)
    options = interpreter.in_directory(place) if place else interpreter.options()
    return Fixture([interpreter.named(interpreter.path), "-c", PROGRAM], env=environment, **options)


def compare(report, ready, source):
    found = {}
    for thread in only_rank(report, ready["pid"])["threads"]:
        if "handles" in thread:
            found[thread["python_thread"]["name"]] = thread["handles"]
    wrong = sorted(set(ready["truth"]) ^ set(found))
    check(not wrong, "%s: other threads handle exceptions: %r" % (source, wrong))
    for way, expected in sorted(ready["truth"].items()):
        handled = found[way]
        for name in ("type", "message"):
            if handled[name] != expected[name]:
                wrong.append("%s, %s: the %s is\n    %r instead of\n    %r" % (source, way, name, handled[name], expected[name]))
        places, omitted = expected["traceback"], None
        if len(places) > KEPT:
            omitted = {"at": KEPT // 2, "count": len(places) - KEPT}
            places = places[:KEPT // 2] + places[-KEPT // 2:]
        traceback = [[frame["function"], frame["file"], frame["line"]] for frame in handled["traceback"]]
        if traceback != places or handled.get("traceback_omitted") != omitted:
            wrong.append("%s, %s: the traceback is\n    %r (%r) instead of\n    %r (%r)" % (source, way, traceback, handled.get("traceback_omitted"), places, omitted))
    check(not wrong, "\n".join(wrong))


def check_core(directory, core, ready, source, sysroot=None):
    options = ["--sysroot", sysroot] if sysroot else []
    report = os.path.join(directory, "report.json")
    status, out, errors = run_tool("core", *options, core, "--format", "json")
    check(status in (0, 1), errors)
    with open(report, "wb") as stream:
        stream.write(out)
    compare(json_report("core", *options, core), ready, source + " in a core")
    compare(json_report("report", report), ready, source + " in a saved report")


def check_version(directory, version):
    interpreter = interpreters.find(version)
    # With a C library of its own gcore leaves the stacks out (truth_python.kernel_writes_cores).
    place = tempfile.mkdtemp(dir=os.path.join(interpreter.sysroot, "tmp")) if interpreter.sysroot else None
    try:
        with started(interpreter, place) as fixture:
            compare(json_report("attach", "--pids", str(fixture.pid)), fixture.ready, version)
            fixture.check_unharmed()
            if place is None:
                core = os.path.join(directory, "core")
                debugger.write_core(fixture.pid, core)
                fixture.check_unharmed()
                check_core(directory, core, fixture.ready, version)
            elif kernel_writes_cores(interpreter):
                check_core(directory, kernel_core(fixture, place), fixture.ready, version, interpreter.sysroot)
    finally:
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)


def case_redacted(directory):
    """Neither the texts nor their parts are shown, in any format."""
    with started(interpreters.find("system")) as fixture:
        for form in ("text", "json", "markdown", "html"):
            shown = run_tool("attach", "--pids", fixture.pid, "--threads", "all", "--redact", "--format", form)[1].decode()
            for text in ("/none/", "shard", "Errno", "its own words", "codec can't", "no number", "would block", "from far inside"):
                check(text not in shown, "%s: %r is shown" % (form, text))
            check(form not in ("text", "json") or "Own" in shown and "deep" in shown and "message-1" in shown, shown)


def case_python_system(directory):
    check_version(directory, "system")


def case_python_3_6(directory):
    check_version(directory, "3.6")


def case_python_3_7(directory):
    check_version(directory, "3.7")


def case_python_3_8(directory):
    check_version(directory, "3.8")


def case_python_3_9(directory):
    check_version(directory, "3.9")


def case_python_3_10(directory):
    check_version(directory, "3.10")


def case_python_3_11(directory):
    check_version(directory, "3.11")


def case_python_3_12(directory):
    check_version(directory, "3.12")


def case_python_3_13(directory):
    check_version(directory, "3.13")


def case_python_3_14(directory):
    check_version(directory, "3.14")


def case_python_3_15(directory):
    check_version(directory, "3.15")


def case_free_threaded_3_13(directory):
    check_version(directory, "3.13t")


def case_free_threaded_3_14(directory):
    check_version(directory, "3.14t")


if __name__ == "__main__":
    cases.run(globals(), "exception-texts")
