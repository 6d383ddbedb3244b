# Prints the line at every offset of all code in a large module of this interpreter's library, by CPython's own PyCode_Addr2Line. Runs from
# 3.6 on.
import ctypes
import json
import sys
import types

import inspect

addr2line = ctypes.pythonapi.PyCode_Addr2Line
addr2line.argtypes = [ctypes.py_object, ctypes.c_int]
addr2line.restype = ctypes.c_int

codes = []


def collect(code):
    table = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab
    offsets = range(-1, len(code.co_code) + 3)
    lines = [(i, addr2line(code, i)) for i in offsets if i < 0 or i % 2 == 0]
    codes.append({"name": code.co_name, "first": code.co_firstlineno, "table": list(table), "lines": lines})
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            collect(constant)


with open(inspect.__file__, encoding="utf-8") as f:
    collect(compile(f.read(), inspect.__file__, "exec"))
json.dump({"minor": sys.version_info[1], "codes": codes}, sys.stdout)
