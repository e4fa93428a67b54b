"""How the guest's side of a worker is imported: it is in no file that the interpreter could read."""

import sys

from _frozen_importlib import ModuleSpec

PACKAGE = "sandfork_guest"


class Sources:
    """Imports the guest's side as a package that guest code does not see: its modules stand among
    the others only while one of them imports another, when it is loaded or when it is first used."""

    def __init__(self, source):
        self.source = source
        self.loaded = {}
        self.shown = False
        # A guest may replace what it likes, `len` or `__import__`: not for these modules.
        self.builtins = {**__builtins__, "__import__": self.import_module}

    def add(self, name, namespace):
        """A module that is there already."""
        module = type(sys)("%s.%s" % (PACKAGE, name))
        module.__dict__.update(namespace, __name__=module.__name__)
        self.loaded[module.__name__] = module

    def import_module(self, name, globals=None, locals=None, fromlist=(), level=0):
        if self.shown or not (level or name.startswith(PACKAGE)):
            return __import__(name, globals, locals, fromlist, level)
        self.shown = True
        sys.modules.update(self.loaded)
        sys.meta_path.insert(0, self)
        try:
            return __import__(name, globals, locals, fromlist, level)
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
        # Nobody reads its docstrings there.
        code = compile(spec.loader_state, "<sandfork %s>" % spec.origin, "exec", 0, True, 2)
        exec(code, module.__dict__)
