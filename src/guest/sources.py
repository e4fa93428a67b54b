"""How the guest's side of a worker is imported: it is in no file that the interpreter could read."""

import sys

from _frozen_importlib import ModuleSpec


class Sources:
    """Imports the guest's side as a package that is in no file, and that guest code does not see:
    its modules stand among the others only while some of them are loaded."""

    package = "sandfork_guest"

    def __init__(self, source):
        self.source = source
        self.loaded = {}

    def load(self, name):
        name = "%s.%s" % (self.package, name)
        if name not in self.loaded:
            self.load_new(name)
        return self.loaded[name]

    def load_new(self, name):
        sys.modules.update(self.loaded)
        sys.meta_path.insert(0, self)
        try:
            __import__(name)
        finally:
            sys.meta_path.remove(self)
            for known in [known for known in sys.modules if known.startswith(self.package)]:
                self.loaded[known] = sys.modules.pop(known)

    def add(self, name, namespace):
        """A module that is there already."""
        module = type(sys)("%s.%s" % (self.package, name))
        module.__dict__.update(namespace, __name__=module.__name__)
        self.loaded[module.__name__] = module

    def find_spec(self, name, path=None, target=None):
        if name == self.package:
            return ModuleSpec(name, self, is_package=True, loader_state="")
        place = name.partition(".")[2].replace(".", "/")
        if not name.startswith(self.package + "."):
            return None
        source = self.source(place)
        package = "" if source else self.source(place + "/__init__")
        if not source and not package:
            return None
        return ModuleSpec(
            name,
            self,
            origin=place,
            loader_state=source or package,
            is_package=not source,
        )

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        spec = module.__spec__
        module.__dict__["__builtins__"] = __builtins__
        code = compile(spec.loader_state, "<sandfork %s>" % spec.origin, "exec", dont_inherit=True)
        exec(code, module.__dict__)
