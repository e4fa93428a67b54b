"""Imports the guest package from memory, because the sandbox has no file to read it from."""

import builtins
import marshal
import sys
from os import ftruncate, write

from _frozen_importlib import ModuleSpec

PACKAGE = "sandfork_guest"


class Sources:
    """Imports the guest package, hidden from guest code. Its modules are in `sys.modules` only while one of
    them imports another, at load time or on first use."""

    def __init__(self, source, codes):
        self.source = source
        # Code by source name: from an earlier zygote of this Python, and compiled here.
        self.codes = codes
        self.compiled = {}
        self.loaded = {}
        self.shown = False
        # A copy, so that a guest that replaces `len` or `__import__` does not affect these modules, and a
        # policy's list of imports does not restrict them.
        self.original = __import__
        self.builtins = {**vars(builtins), "__import__": self.import_module}

    def code(self, name):
        """Returns the code of a source, or `None` if there is no source of that name."""
        code = self.codes.get(name) or self.compiled.get(name)
        if code is None:
            text = self.source(name)
            if text:
                # Optimization level 2 drops docstrings, which a worker does not use.
                code = compile(text, "<sandfork %s>" % name, "exec", 0, True, 2)
                self.compiled[name] = code
        return code

    def import_module(self, name, globals=None, locals=None, fromlist=(), level=0):
        if self.shown or not (level or name.startswith(PACKAGE)):
            return self.original(name, globals, locals, fromlist, level)
        if level and fromlist:
            # Fast path: adding modules to `sys.modules` and removing them touches the name of each module of
            # the interpreter, which makes a worker copy 43 pages.
            package = globals["__package__"].rsplit(".", level - 1)[0]
            module = self.loaded.get(f"{package}.{name}" if name else package)
            if module is not None and not [name for name in fromlist if name not in module.__dict__]:
                return module
        self.shown = True
        sys.modules.update(self.loaded)
        sys.meta_path.insert(0, self)
        try:
            return self.original(name, globals, locals, fromlist, level)
        finally:
            sys.meta_path.remove(self)
            for known in [known for known in sys.modules if known.startswith(PACKAGE)]:
                self.loaded[known] = sys.modules.pop(known)
            self.shown = False

    def find_spec(self, name, path=None, target=None):
        if name == PACKAGE:
            return ModuleSpec(name, self, is_package=True)
        if not name.startswith(PACKAGE + "."):
            return None
        place = name.partition(".")[2].replace(".", "/")
        code = self.code(place)
        package = None if code else self.code(place + "/__init__")
        if not code and not package:
            return None
        return ModuleSpec(
            name, self, origin=place, loader_state=code or package, is_package=not code
        )

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__dict__["__builtins__"] = self.builtins
        # The package itself has no code.
        if module.__spec__.loader_state is not None:
            exec(module.__spec__.loader_state, module.__dict__)


def start(native, entered, codes, file):
    """Continues as a zygote. `file` is the descriptor of the memfd that `codes` comes from, or of an empty
    one to fill for later zygotes."""
    sources = Sources(native.source, codes)
    wire = sources.import_module(PACKAGE + ".wire", None, None, ("loads",))
    zygote = sources.import_module(PACKAGE + ".zygote", None, None, ("main",))
    entered = wire.loads(entered)
    zygote.load(native, entered["setup"])
    if file:
        # Now, because only the standard library has run so far: no package may write to the file.
        if not codes:
            keep(int(file), sources)
        native.keep("")
    zygote.main(native, entered)


def keep(number, sources):
    sources.code("sources")
    packed = marshal.dumps(sources.compiled)
    try:
        while packed:
            packed = packed[write(number, packed) :]
    except OSError:
        # Memory is used up. The supervisor does not keep an empty file.
        ftruncate(number, 0)
