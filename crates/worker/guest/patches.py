"""Patches modules once they are loaded. Nothing is imported for it."""

import sys


class Patches:
    """A finder at the front of `sys.meta_path`. `changes` has a function for each module that it patches."""

    def __init__(self, changes):
        self.changes = changes

    def prepare(self):
        for name, change in self.changes.items():
            if name in sys.modules:
                change(sys.modules[name])
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        if name not in self.changes:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                run = getattr(spec.loader, "exec_module", None)
                if run is None:
                    # Python 3.9 loads the modules of a ZIP archive by a method that is deprecated since.
                    return spec

                def exec_module(module):
                    run(module)
                    # The loader of a ZIP archive is that of all modules in it.
                    if module.__name__ == name:
                        self.changes[name](module)

                spec.loader.exec_module = exec_module
                return spec
        return None
