"""Collects the licence texts of everything that is linked into the executable.

    collect_licenses.py LINKER-MAP DIRECTORY

The linker's map says which archives and objects were linked, and dpkg says which Debian package each belongs to. Header-only libraries
leave no trace in the map and are named here. A text that a licence file only refers to (/usr/share/common-licenses) is copied along with
it.
"""

import os
import re
import subprocess
import sys

HEADERS_ALONE = ["libfmt-dev", "nlohmann-json3-dev", "libcli11-dev", "libexpected-dev"]
COMMON = "/usr/share/common-licenses"


def fail(message):
    sys.exit("collect_licenses: " + message)


def linked_files(map_path):
    """The system's files from which the executable has at least one section, according to the map."""
    found = set()
    for line in open(map_path, encoding="utf-8", errors="replace"):
        match = re.match(r"\s+\S*\s*0x[0-9a-f]+\s+0x([0-9a-f]+)\s+(/\S+?\.(?:a|o))(?:\(|$)", line.rstrip())
        if match and int(match.group(1), 16) > 0:
            path = os.path.realpath(match.group(2))
            if path.startswith(("/usr/lib", "/lib")):
                found.add(path)
    return found


def package_of(path):
    # Where /lib is a link to /usr/lib, dpkg knows a file only by the name that its package uses.
    for candidate in (path, path.removeprefix("/usr")):
        result = subprocess.run(["dpkg-query", "--search", candidate], capture_output=True, text=True)
        if result.returncode == 0:
            return result.stdout.split(":")[0]
    fail("%s is of no Debian package, so its licence is not known" % path)


def main():
    map_path, directory = sys.argv[1:]
    files = linked_files(map_path)
    if not any(path.endswith("/libdw.a") for path in files):
        fail("%s does not show libdw.a: is it the map of a static build?" % map_path)
    packages = {}
    for path in sorted(files):
        packages.setdefault(package_of(path), set()).add(os.path.basename(path))
    for package in HEADERS_ALONE:
        packages.setdefault(package, {"headers"})

    os.makedirs(directory, exist_ok=True)
    common = set()
    for package in packages:
        source = "/usr/share/doc/%s/copyright" % package
        if not os.path.exists(source):
            fail("no %s" % source)
        text = open(source, encoding="utf-8", errors="replace").read()
        open(os.path.join(directory, package + ".txt"), "w", encoding="utf-8").write(text)
        common.update(name.rstrip(".") for name in re.findall(re.escape(COMMON) + r"/([A-Za-z0-9.+-]+)", text))
    for name in sorted(common):
        path = os.path.join(COMMON, name)
        if not os.path.exists(path):
            fail("%s is pointed to and does not exist" % path)
        open(os.path.join(directory, "common-" + name + ".txt"), "w", encoding="utf-8").write(open(path, encoding="utf-8", errors="replace").read())

    with open(os.path.join(directory, "README"), "w", encoding="utf-8") as readme:
        readme.write("Linked into bin/rankstacks, in addition to the project's own code (../LICENSE). Each line: a Debian package, whose licence is in the\n"
                     "file of its name here, and what of it is linked. Texts that several of them point to are in common-*.txt. The sources are those\n"
                     "of the Debian packages; with them and the project's own, scripts/package links the executable anew.\n\n")
        for package, names in sorted(packages.items()):
            readme.write("%-28s %s\n" % (package, ", ".join(sorted(names))))


main()
