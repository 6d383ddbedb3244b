"""Each directory of sources includes only from those that docs/architecture.md says it depends on; the table there has no cycle."""
import os
import re

import cases
from processes import check

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROW = re.compile(r"^\| `(?:src/)?(\w+)/` \|.*\| ([^|]+) \|$")
INCLUDE = re.compile(r'^\s*#\s*include\s+"(\w+)/')


def sources():
    """{directory: its path}"""
    found = {name: os.path.join(SOURCE, name) for name in ("analyzers", "symbolizers", "packaging")}
    within = os.path.join(SOURCE, "src")
    found.update({name: os.path.join(within, name) for name in os.listdir(within) if os.path.isdir(os.path.join(within, name))})
    return found


def stated():
    """{directory: the directories that the table says it depends on}"""
    table = {}
    with open(os.path.join(SOURCE, "docs", "architecture.md"), encoding="utf-8") as page:
        for line in page:
            row = ROW.match(line)
            if row and row[1] in sources() and row[1] not in table:
                table[row[1]] = set(re.findall(r"\w+", row[2]))
    return table


def case_includes(_):
    table = stated()
    check(set(table) == set(sources()), "the table lacks %s, or has more" % sorted(set(sources()) ^ set(table)))

    def reaches(name, seen=()):
        check(name not in seen, "a circle: %s" % " -> ".join(seen + (name,)))
        return {name}.union(*(reaches(below, seen + (name,)) for below in table[name]))

    wrong = []
    for name, path in sorted(sources().items()):
        allowed = reaches(name)
        for file in sorted(os.listdir(path)):
            if not file.endswith((".cc", ".h")):
                continue
            with open(os.path.join(path, file), encoding="utf-8") as text:
                included = {match[1] for match in map(INCLUDE.match, text) if match}
            wrong += ["%s/%s includes %s/" % (name, file, other) for other in sorted(included & set(table) - allowed)]
    check(not wrong, "\n".join(wrong))


if __name__ == "__main__":
    cases.run(globals(), "layers")
