"""Acts as the supervisor of a worker that runs the real guest sources, without a jail."""

import functools
import marshal
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GUEST = Path(__file__).resolve().parents[2] / "crates" / "worker" / "guest"
sys.path.insert(0, str(GUEST))

import forks  # noqa: E402, it comes after the path
import values  # noqa: E402, it is found there

DATA = 1023
# The native worker library, as the tests' build embeds it.
LIBRARY = os.environ["SANDFORK_WORKER"]
# The steps of a zygote before it serves, in an ordinary interpreter.
BOOT = """
def read(name, root=%(root)r):
    try:
        with open(root + "/" + name + ".py") as file:
            return file.read()
    except OSError:
        return ""

import _imp, gc, marshal, site, signal
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import ExtensionFileLoader
loader = ExtensionFileLoader("_sandfork", %(library)r)
native = _imp.create_dynamic(ModuleSpec("_sandfork", loader, origin=%(library)r))
site.main()
%(prepare)s
signal.signal(signal.SIGINT, signal.default_int_handler)
with open(%(codes)r, "rb") as file:
    codes = marshal.load(file)
sources = Sources(read, codes)
def load(name):
    return sources.import_module(PACKAGE + "." + name, None, None, ("*",))

load("process").open_streams()
ending = load("ending")
ending.note_libraries()
worker = load("worker")
for name in %(preload)r:
    __import__(name)
if %(warm)r:
    worker.warm_up(native)
setup = {"imports": %(imports)r, "project": None, "run_path": %(run_path)r}
if "*" not in setup["imports"]:
    load("imports").guard_imports(setup["imports"])
gc.collect()
gc.freeze()
ending.note_start()
offered = load("zygote").offer(setup)
%(fork)s
worker.main(native, setup, offered, %(stdin)r, "", False, None)
"""
# Timeout of each step in seconds.
PATIENCE = 30


@functools.lru_cache(maxsize=None)
def codes():
    """Returns a file with the guest's byte code, so that hundreds of workers need not compile it."""
    found = {}
    for path in GUEST.rglob("*.py"):
        name = str(path.relative_to(GUEST).with_suffix(""))
        found[name] = compile(path.read_text(), "<sandfork %s>" % name, "exec", 0, True, 2)
    file = tempfile.NamedTemporaryFile()
    marshal.dump(found, file)
    file.flush()
    return file


def start(text, stdin, link, environment):
    """Boots a worker as a separate interpreter."""
    os.dup2(link.fileno(), DATA)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", text],
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[DATA],
        env=environment,
    )
    os.close(DATA)
    return process


class Ended(Exception):
    """The worker closed the link."""


class Outcome:
    """The result of a request, and the messages before it."""

    def __init__(self, header, value, displays):
        self.header = header
        self.status = header["status"]
        self.value = value
        self.displays = displays
        self.error = header.get("error") or {}
        self.final = header.get("final", False)

    def __repr__(self):
        return "%s %r %r" % (self.status, self.value, self.error)


class Worker:
    def __init__(
        self,
        imports=("*",),
        serves="session",
        preload=(),
        warm=False,
        stdin=None,
        env=None,
        rehearses=False,
        run_path="native",
        cold=False,
    ):
        ours, theirs = socket.socketpair()
        self.link = ours
        boot = BOOT % {
            "root": str(GUEST),
            "imports": list(imports),
            "preload": list(preload),
            "warm": warm,
            "library": LIBRARY,
            "codes": codes().name,
            "run_path": run_path,
            "stdin": "nothing" if stdin is None else "input",
            # A cold worker is the booted interpreter itself.
            "prepare": "" if cold else forks.PREPARE % {"control": forks.CONTROL, "data": DATA},
            "fork": "" if cold else forks.FORK,
        }
        text = (GUEST / "sources.py").read_text() + boot
        environment = {**os.environ, **(env or {})}
        if cold:
            self.process = start(text, stdin, theirs, environment)
        else:
            zygote = forks.zygote(text, tuple(sorted(environment.items())))
            self.process = zygote.fork(stdin, theirs)
        theirs.close()
        self.link.settimeout(PATIENCE)
        self.received = bytearray()
        self.passed = []
        self.last_id = 0
        self.tools = {}
        self.serves = serves
        self.frames = 0
        # Sent with the next frame.
        self.unsent = b""
        self.out = bytearray()
        self.err = bytearray()
        if rehearses:
            self.send({"kind": "rehearse", "serves": serves})
        self.send({"kind": "hello", "version": 2, "serves": serves}, waits=serves == "one-run")
        if serves == "session":
            # The supervisor passes the starter's socket with this byte. The tests start no programs.
            self.link.sendall(b"\0")
        assert self.receive()[0] == {"kind": "ready", "version": 2}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close_link(self):
        """Closes the link and returns the exit status. The output can still be read."""
        self.link.close()
        return self.process.wait(PATIENCE)

    def close(self):
        """Closes the link and the streams and returns the exit status."""
        self.link.close()
        for number in self.passed:
            os.close(number)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.process.stderr.close()

    # Frames.

    def send(self, header, payload=b"", buffers=(), waits=False):
        passed = None
        if buffers:
            lengths = [len(buffer) for buffer in buffers]
            blob = b"".join(bytes(part) for part in values.pieces(buffers))
            header = {**header, "blob": {"lengths": lengths}}
            if len(blob) > values.SHARED:
                header["blob"]["passed"] = True
                passed = os.memfd_create("test", os.MFD_CLOEXEC)
                assert os.write(passed, blob) == len(blob)
            else:
                payload = blob
        data = encode_json(header)
        frame = len(data).to_bytes(4, "little") + len(payload).to_bytes(4, "little")
        frame = self.unsent + frame + data + payload
        self.unsent = frame if waits else b""
        if waits:
            return
        if passed is not None:
            sent = socket.send_fds(self.link, [frame], [passed])
            frame = frame[sent:]
            os.close(passed)
        self.link.sendall(frame)

    def receive(self):
        prefix = self.take(8)
        header = decode_json(self.take(int.from_bytes(prefix[:4], "little")))
        payload = self.take(int.from_bytes(prefix[4:], "little"))
        self.frames += 1
        blob = header.get("blob")
        buffers = []
        if blob is not None:
            if blob.get("passed"):
                assert not payload
                number = self.passed.pop(0)
                with os.fdopen(number, "rb") as file:
                    # The file offset is undefined: the sender's writes moved it.
                    file.seek(0)
                    payload = file.read()
                assert len(payload) > values.SHARED
            buffers = values.split(memoryview(bytearray(payload)), blob["lengths"])
        else:
            assert not payload
        return header, values.Decoder(buffers)

    def take(self, count):
        while len(self.received) < count:
            data, numbers, _, _ = socket.recv_fds(self.link, 1 << 16, 4)
            if not data:
                raise Ended
            self.received += data
            self.passed += numbers
        taken = bytes(self.received[:count])
        del self.received[:count]
        return taken

    # Requests.

    def next_id(self):
        self.last_id += 1
        return self.last_id

    def begin(self, source, filename=None, argv=(), **options):
        number = self.next_id()
        filename = filename or "<cell %d>" % number
        header = {"kind": "cell", "id": number, "filename": filename, "argv": list(argv)}
        if self.serves == "session":
            header["source"] = "text"
        source = source.encode() if isinstance(source, str) else source
        self.send({**header, **options}, source)
        return number

    def cell(self, source, **options):
        self.begin(source, **options)
        return self.outcome()

    def value(self, source, **options):
        outcome = self.cell(source, **options)
        assert outcome.status == "ok", outcome.error
        return outcome.value

    def set(self, **variables):
        encoder = values.Encoder()
        trees = [[name, encoder.encode(value)] for name, value in variables.items()]
        header = {"kind": "set", "id": self.next_id(), "variables": trees}
        self.send(header, buffers=encoder.buffers)
        return self.outcome()

    def define(self, *ending, **tools):
        """Defines host tools; those named in `ending` end the cell."""
        self.tools.update(tools)
        declared = [
            {
                "name": name,
                "doc": function.__doc__ or "",
                "signature": "(...)",
                "ends_cell": name in ending,
            }
            for name, function in tools.items()
        ]
        self.send({"kind": "tools", "id": self.next_id(), "tools": declared})
        return self.outcome()

    def outcome(self):
        displays = []
        while True:
            header, decoder = self.receive()
            if header["kind"] == "call":
                self.answer(header, decoder)
            elif header["kind"] == "display":
                data = {mime: decoder.decode(tree) for mime, tree in header["data"].items()}
                displays.append((data, header["main"]))
            else:
                assert header["kind"] == "result", header
                assert header["id"] == self.last_id, header
                return Outcome(header, decoder.decode(header.get("value")), displays)

    def answer(self, header, decoder):
        args = [decoder.decode(tree) for tree in header["args"]]
        kwargs = {name: decoder.decode(tree) for name, tree in header["kwargs"].items()}
        try:
            value = self.tools[header["tool"]](*args, **kwargs)
        except Exception as error:
            base = next(base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins")
            told = {"name": type(error).__name__, "message": str(error), "base": base}
            self.send({"kind": "return", "call": header["call"], "error": told})
            return
        tree, buffers = values.encode(value)
        self.send({"kind": "return", "call": header["call"], "value": tree}, buffers=buffers)

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    # Output.

    def output(self):
        """Returns the output of both streams since the last call."""
        for stream, kept in ((self.process.stdout, self.out), (self.process.stderr, self.err)):
            os.set_blocking(stream.fileno(), False)
            while True:
                try:
                    part = os.read(stream.fileno(), 1 << 16)
                except BlockingIOError:
                    break
                if not part:
                    break
                kept += part
        taken = self.out.decode(), self.err.decode()
        self.out.clear()
        self.err.clear()
        return taken

    def wait_for_output(self, text):
        """Waits until the guest has printed something."""
        until = time.monotonic() + PATIENCE
        seen = ""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while text not in seen:
                assert time.monotonic() < until, seen
                selector.select(1)
                seen += self.output()[0]
        return seen


def encode_json(header):
    import json

    return json.dumps(header, ensure_ascii=False).encode()


def decode_json(data):
    import json

    return json.loads(data)
