"""Words that this project once had for things that have names (docs/glossary.md): none of them comes back."""
import os
import re

import cases
from processes import check

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCES = ("src/", "analyzers/", "symbolizers/", "packaging/", "docs/")
ALL = SOURCES + ("bench/", "cmake/", "fixtures/", "fuzz/", "scripts/", "tests/", ".ci/", ".github/", "README.md", "CONTRIBUTING.md", "CMakeLists.txt",
                 "CMakePresets.json", ".clang-format", ".clang-tidy", ".gitignore")
# Without git, which says what is a source: directories that a build or Python has made.
MADE = re.compile(r"build(-.*)?|__pycache__|\.cache")
# Of each kind at least one: files with a known suffix, with none, hidden ones, and CMake's.
READ = {"src/main.cc", "bench/hangs", "scripts/check", "packaging/watch/slurm-prolog", ".ci/run", "CMakeLists.txt", "tests/truth/CMakeLists.txt",
        "cmake/dependencies.cmake", "fixtures/nccl/collect", "docs/glossary.md", "README.md"}
# Of a word, also within a name_of_several.
BOUNDARY = r"(?:(?<![^\W_])(?=[^\W_])|(?<=[^\W_])(?![^\W_]))"
CMAKE = ("CMakeLists.txt", ".cmake")
# word, in any case unless it says otherwise, a space also for the end of a line and for "_": what is said instead, where, and where not
WORDS = (
    (r"\b(?-i:Standing|Pace|Parting)\b", "RankState, Progress, Divergence", ALL, ()),
    (r"\bstrangers?\b", "unrelated process", ALL, ()),
    (r"\bmessengers?\b", "watchdog reporter", ALL, ()),
    (r"\bown_waits\b", "local waits", ALL, ()),
    (r"\bborrowed threads?\b", "inferior call", ALL, ()),
    (r"\bpatience\b", "timeout", SOURCES, ()),
    (r"\bkMost(?-i:[A-Z]\w*)?\b", "kMax", ALL, ()),
    (r"\bfolders?\b", "directory", ALL, ()),
    (r"\bside by side\b", "in parallel", ALL, ()),
    (r"\bbeside\b", "next to, in addition to, at the same time as", ALL, ()),
    (r"\b(stands?|stood|standing) still\b", "does not run, is paused; of a job: makes no progress", ALL, ()),
    (r"\b(un)?told\b", "known, stated, distinguished, reported", ALL, ()),
    (r"\b(?-i:Nothing):", "a sentence with a subject", ALL, ()),
    (r"\bthe contract\b", "docs/json.md, or the page that states it", ALL, ()),
    (r"\b(?-i:INTERFACE)\b", "docs/json.md, or the page that states it", ALL, CMAKE),
)


def text_of(name):
    """None: the file is binary, or a link to nothing."""
    path = os.path.join(SOURCE, name)
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        content = file.read()
    try:
        return None if b"\0" in content else content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def texts():
    """(name, text) of each"""
    names = [top for top in ALL if os.path.isfile(os.path.join(SOURCE, top))]
    for top in ALL:
        for place, directories, files in os.walk(os.path.join(SOURCE, top)):
            directories[:] = [name for name in directories if not MADE.fullmatch(name)]
            names += [os.path.relpath(os.path.join(place, name), SOURCE) for name in files]
    for name in names:
        text = text_of(name)
        if text is not None:
            yield name, text


def case_replaced(_):
    words = [(re.compile(pattern.replace(" ", r"[\s/#*_]+").replace(r"\b", BOUNDARY), re.IGNORECASE), instead, where, but)
             for pattern, instead, where, but in WORDS]
    found, read = [], set()
    for name, text in texts():
        read.add(name)
        if name == "tests/truth/words.py":
            continue
        found += ["%s:%d: \"%s\": %s" % (name, text.count("\n", 0, match.start()) + 1, match[0], instead) for pattern, instead, where, but in words
                  if name.startswith(where) and not name.endswith(but or ("\0",)) for match in pattern.finditer(text)]
    check(len(read) > 1000 and READ <= read, "only %d files, without %s" % (len(read), sorted(READ - read)))
    check(not found, "\n".join(found))


if __name__ == "__main__":
    cases.run(globals(), "words")
