"""Creates a state with one object of every kind, for the tests of copies."""

import asyncio
import collections
import contextvars
import ctypes
import datetime
import decimal
import functools
import io
import itertools
import json
import os
import re
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import weakref
import zlib


class Node:
    kept = weakref.WeakValueDictionary()

    def __init__(self, number):
        self.number = number
        self.kept[number] = self
        self.cycle = self


def counter():
    seen = 0
    while True:
        seen += (yield seen) or 1


async def steps():
    for number in range(9):
        yield number


def remembered(n):
    return n * n


remembered = functools.lru_cache(remembered)
remembered(12)
nodes = [Node(number) for number in range(5000)]
gone = weakref.ref(Node(-1))
running = counter()
next(running)
running.send(41)
asynchronous = steps()
await asynchronous.__anext__()
pairs = itertools.permutations("abcd", 2)
next(pairs)
variable = contextvars.ContextVar("variable", default=0)
context = contextvars.copy_context()
context.run(variable.set, 7)
precise = decimal.Context(prec=11)
compressor = zlib.compressobj()
compressed = compressor.compress(b"a" * 100_000)
parsed = re.compile(r"(\d+)-(\w+)")
memory = sqlite3.connect(":memory:")
memory.execute("create table kept(a)")
memory.executemany("insert into kept values(?)", ((n,) for n in range(1000)))
memory.commit()
stored = sqlite3.connect("kept.db")
stored.execute("create table kept(a)")
stored.execute("insert into kept values('first')")
stored.commit()
text = open("kept.txt", "w+")
text.write("one\ntwo\nthree\n")
text.seek(0)
text.readline()
stream = io.StringIO("a\nb\n")
stream.readline()
local = threading.local()
local.value = "local"
lock = threading.Lock()
lock.acquire()
callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: n + 1)
structure = (ctypes.c_double * 1000)(*range(1000))
large = bytearray(b"x" * 8_000_000)
named = {str(n): [n] * 3 for n in range(50_000)}
queue = collections.deque(range(100), maxlen=100)
order = list({"b", "a", "d", "c"})
when = datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc)
if "numpy" in sys.modules:
    import numpy
    import pandas

    array = numpy.arange(2_000_000, dtype="float64")
    frame = pandas.DataFrame({"a": range(1000), "b": [str(n) for n in range(1000)]})
identity = id(nodes[17])
