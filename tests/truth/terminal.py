"""The width of a report in text: a terminal's own, and a fixed one in files and pipes."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import cases
from processes import check, run_tool, tool

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REPORT = os.path.join(SOURCE, "fixtures", "verdicts", "native-locks.json.gz")
FIXED, LEAST, MOST = 100, 60, 200


def on_terminal(columns, *arguments, **variables):
    """What the tool prints on a terminal of that many columns (0: it does not say)."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = dict({name: value for name, value in os.environ.items() if name != "COLUMNS"}, NO_COLOR="1", **variables)
    process = subprocess.Popen([tool(), "report"] + list(arguments), stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.PIPE, env=environment)
    os.close(slave)
    text = b""
    try:
        while True:
            more = os.read(master, 1 << 16)
            if not more:
                break
            text += more
    except OSError:          # EIO: the other end is closed
        pass
    os.close(master)
    err = process.stderr.read()
    process.stderr.close()
    check(process.wait() in (0, 1) and b"Main threads" in text, "status %d, %r" % (process.returncode, err))
    return text.decode("utf-8").replace("\r\n", "\n")


def widest(text):
    return max(len(line) for line in text.splitlines())


def case_follows_the_terminal(directory):
    narrow, wide = on_terminal(72, REPORT), on_terminal(140, REPORT)
    check(60 < widest(narrow) <= 72, "72 columns: %d" % widest(narrow))
    check(100 < widest(wide) <= 140, "140 columns: %d" % widest(wide))
    words = [re.sub(r"\s+", " ", text).split(" -> ")[0] for text in (narrow, wide)]
    check(words[0] == words[1], "the verdict's words differ: %r" % words)


def case_has_bounds(directory):
    check(on_terminal(20, REPORT) == on_terminal(LEAST, REPORT), "a very narrow terminal")
    check(on_terminal(1000, REPORT) == on_terminal(MOST, REPORT), "a very wide terminal")


def case_columns_come_first(directory):
    check(on_terminal(140, REPORT, COLUMNS="72") == on_terminal(72, REPORT), "COLUMNS=72 on 140 columns")
    for unusable in ("", "0", "-3", "80x", "99999999999999999999"):
        check(on_terminal(72, REPORT, COLUMNS=unusable) == on_terminal(72, REPORT), "COLUMNS=%r" % unusable)
    check(on_terminal(0, REPORT) == on_terminal(FIXED, REPORT), "a terminal that does not say how wide it is")


def case_files_and_pipes_have_a_fixed_width(directory):
    _, plain, _ = run_tool("report", REPORT)
    check(plain.decode("utf-8") == on_terminal(FIXED, REPORT), "a pipe and a terminal of 100 columns")
    _, with_columns, _ = run_tool("report", REPORT, env=dict(os.environ, COLUMNS="72"))
    check(with_columns == plain, "COLUMNS changes what a pipe gets")
    path = os.path.join(directory, "report.txt")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
    subprocess.run([tool(), "report", REPORT, "-o", path], stdout=slave, check=False)
    os.close(slave)
    os.close(master)
    with open(path, "rb") as file:
        check(file.read() == plain, "the terminal's width is in a file")


if __name__ == "__main__":
    cases.run(globals(), "terminal")
