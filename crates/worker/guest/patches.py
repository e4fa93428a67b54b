"""Patches modules once they are loaded, without importing them."""

import sys


class Patches:
    """A finder at the front of `sys.meta_path`. `changes` maps module names to the functions that patch
    them."""

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
                    # Python 3.9 loads modules of a ZIP archive by a method that was deprecated later.
                    return spec

                def exec_module(module):
                    run(module)
                    # All modules of a ZIP archive share one loader.
                    if module.__name__ == name:
                        self.changes[name](module)

                spec.loader.exec_module = exec_module
                return spec
        return None
