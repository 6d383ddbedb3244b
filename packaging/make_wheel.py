"""Puts the packed tree into a Python wheel, so that `pip install` brings the command; prints the wheel's path.

    make_wheel.py TREE VERSION GLIBC DIRECTORY

The wheel contains no Python code: bin/ becomes the wheel's scripts, share/ its data. GLIBC is the newest glibc version that the executable
needs; it determines the platform tag of the wheel.
"""

import base64
import hashlib
import os
import sys
import time
import zipfile


def files_below(directory):
    for path, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted(names):
            full = os.path.join(path, name)
            yield full, os.path.relpath(full, directory)


def main():
    tree, version, glibc, directory = sys.argv[1:]
    tag = "py3-none-manylinux_%s_x86_64" % glibc.replace(".", "_")
    stem = "rankstacks-" + version
    info, data = stem + ".dist-info", stem + ".data"
    readme = open(os.path.join(tree, "share/doc/rankstacks/README.md"), encoding="utf-8").read()

    entries = [(info + "/WHEEL", "Wheel-Version: 1.0\nGenerator: rankstacks scripts/package\nRoot-Is-Purelib: false\nTag: %s\n" % tag, 0o644)]
    for full, name in files_below(tree):
        content = open(full, "rb").read()
        kind, rest = name.split("/", 1)
        if name.startswith("share/doc/rankstacks/"):
            rest = name.removeprefix("share/doc/rankstacks/")
            if rest == "LICENSE" or rest.startswith("licenses/"):
                entries.append((info + "/licenses/" + rest, content, 0o644))
            elif rest != "README.md":   # used as the description
                entries.append((data + "/data/" + name, content, 0o644))
        elif kind == "bin":
            entries.append((data + "/scripts/" + rest, content, 0o755))
        else:
            entries.append((data + "/data/" + name, content, 0o644))
    metadata = ["Metadata-Version: 2.1", "Name: rankstacks", "Version: " + version, "Summary: Shows which rank of a hung distributed training job is different",
                "License: Apache-2.0", "Requires-Python: >=3.6", "Classifier: Operating System :: POSIX :: Linux",
                "Description-Content-Type: text/markdown"]
    entries.append((info + "/METADATA", "\n".join(metadata) + "\n\n" + readme, 0o644))

    entries = [(name, content.encode() if isinstance(content, str) else content, mode) for name, content, mode in entries]
    record = ""
    for name, content, _ in entries:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += "%s,sha256=%s,%d\n" % (name, digest, len(content))
    record += info + "/RECORD,,\n"
    entries.append((info + "/RECORD", record.encode(), 0o644))

    when = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    path = os.path.join(directory, "%s-%s.whl" % (stem, tag))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content, mode in entries:
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            wheel.writestr(entry, content)
    print(path)


main()
