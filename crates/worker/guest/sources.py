"""Imports the guest side of a worker from memory: the interpreter has no file to read it from."""

import sys

from _frozen_importlib import ModuleSpec

PACKAGE = "sandfork_guest"


class Sources:
    """Imports the guest side as a package that is hidden from guest code. Its modules are in `sys.modules`
    only while one of them imports another, at load time or on first use."""

    def __init__(self, source):
        self.source = source
        self.loaded = {}
        self.shown = False
        # Copies, so that a guest that replaces `len` or `__import__` does not affect these modules, and a
        # policy's list of imports does not restrict them.
        self.original = __import__
        self.builtins = {**__builtins__, "__import__": self.import_module}

    def add(self, name, namespace):
        """Adds a module that is loaded already."""
        module = type(sys)("%s.%s" % (PACKAGE, name))
        module.__dict__.update(namespace, __name__=module.__name__)
        self.loaded[module.__name__] = module

    def import_module(self, name, globals=None, locals=None, fromlist=(), level=0):
        if self.shown or not (level or name.startswith(PACKAGE)):
            return self.original(name, globals, locals, fromlist, level)
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
            return ModuleSpec(name, self, is_package=True, loader_state="")
        if not name.startswith(PACKAGE + "."):
            return None
        place = name.partition(".")[2].replace(".", "/")
        source = self.source(place)
        package = "" if source else self.source(place + "/__init__")
        if not source and not package:
            return None
        state = source or package
        return ModuleSpec(name, self, origin=place, loader_state=state, is_package=not source)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        spec = module.__spec__
        module.__dict__["__builtins__"] = self.builtins
        # Optimization level 2 drops docstrings, which are not used in a worker.
        code = compile(spec.loader_state, "<sandfork %s>" % spec.origin, "exec", 0, True, 2)
        exec(code, module.__dict__)
