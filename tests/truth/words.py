"""Words that this project once had for things that have names (docs/glossary.md): none of them comes back."""
import os
import re

import cases
from processes import check

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCES = ("src/", "analyzers/", "symbolizers/", "packaging/", "docs/")
ALL = SOURCES + ("bench/", "cmake/", "fixtures/", "fuzz/", "scripts/", "tests/", ".github/", "README.md", "CONTRIBUTING.md")
TEXTS = (".c", ".cc", ".h", ".js", ".css", ".html", ".md", ".py", ".json", ".yml", ".yaml", ".service")
# word: what is said instead, where
WORDS = (
    (r"\b(Standing|Pace|Parting)\b", "RankState, Progress, Divergence", ALL),
    (r"\bstrangers?\b", "unrelated process", ALL),
    (r"\bmessengers?\b", "watchdog reporter", ALL),
    (r"\bown_waits\b", "local waits", ALL),
    (r"\bborrowed threads?\b", "inferior call", ALL),
    (r"\bpatience\b", "timeout", SOURCES),
    (r"\bkMost([A-Z]\w*)?\b", "kMax", ALL),
    (r"\bfolders?\b", "directory", ALL),
    (r"\bside by side\b", "in parallel", ALL),
    (r"\bstood still\b", "did not run, was paused", ALL),
    (r"\btold\b", "known, stated, distinguished, reported", SOURCES),
    (r"\bNothing:", "a sentence with a subject", ALL),
    (r"\bINTERFACE\b|\b[Tt]he contract\b", "docs/json.md, or the page that states it", ALL),
)


def case_replaced(_):
    files = [top for top in ALL if os.path.isfile(os.path.join(SOURCE, top))]
    for top in ALL:
        files += [os.path.relpath(os.path.join(place, name), SOURCE) for place, _, names in os.walk(os.path.join(SOURCE, top)) for name in names]
    files = [name for name in files if name.endswith(TEXTS) and name != "tests/truth/words.py" and os.path.isfile(os.path.join(SOURCE, name))]
    check(len(files) > 500, "only %d files" % len(files))
    found = []
    for name in files:
        with open(os.path.join(SOURCE, name), encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                found += ["%s:%d: \"%s\": %s" % (name, number, match[0], instead) for pattern, instead, where in WORDS
                          if name.startswith(where) for match in [re.search(pattern, line)] if match]
    check(not found, "\n".join(found))


if __name__ == "__main__":
    cases.run(globals(), "words")
