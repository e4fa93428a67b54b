"""Refuses imports in the guest's own code that the policy does not list.

This only provides an error message. It is not a security boundary, and the kernel's layers do not rely on it.
The message and the matching are those of smolagents, whose agents depend on them."""

import builtins
import functools
import importlib
import sys

# Maximum characters of a name in a report.
MAX_NAME = 256
# The guard of the policy's list, if there is one.
GUARDS = []
# The module with the session's tools, which the caller provides, and the module of `__future__` statements.
ALWAYS = ("sandfork_host", "__future__")


def guard_imports(listed):
    """Guards `import`, `__import__` and `importlib.import_module`. Imports by modules are not checked."""
    GUARDS.append(Guard(listed))
    builtins.__import__ = guard_import(builtins.__import__, require)
    importlib.__import__ = guard_import(importlib.__import__, require)
    importlib.import_module = guard_import_module(importlib.import_module, require)


def require(name):
    """Raises `ImportError` for a module that the policy does not list."""
    for guard in GUARDS:
        guard.refuse_unlisted(name)


def guard_import(original, refuse):
    def guarded(name, globals=None, locals=None, fromlist=(), level=0):
        # The C function by which extension modules import calls this in the guest's frame.
        by_extension = globals is not None and globals is locals and fromlist == []
        if level == 0 and not by_extension and is_guest(sys._getframe(1)):
            refuse(name)
        return original(name, globals, locals, fromlist, level)

    return functools.update_wrapper(guarded, original)


def guard_import_module(original, refuse):
    def guarded(name, package=None):
        if is_guest(sys._getframe(1)):
            refuse(absolute(name, package))
        return original(name, package)

    return functools.update_wrapper(guarded, original)


def is_guest(frame):
    """Returns whether the frame runs code of `__main__`. Code that `exec` runs in a namespace without a name
    belongs to its caller."""
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if name is not None:
            return name == "__main__"
        frame = frame.f_back
    return False


def absolute(name, package):
    """Returns the full name of a module; `None` for invalid arguments, which the import itself reports."""
    if not isinstance(name, str) or not name.startswith("."):
        return name
    if not isinstance(package, str):
        return None
    relative = name.lstrip(".")
    parents = package.split(".")
    # Each dot after the first goes up by one package.
    parents = parents[: len(parents) + 1 - (len(name) - len(relative))]
    return ".".join([*parents, relative] if relative else parents)


class Guard:
    def __init__(self, listed):
        self.listed = listed
        self.installed = None

    def refuse_unlisted(self, name):
        if not isinstance(name, str) or is_allowed(name, self.listed):
            return
        if name.partition(".")[0] not in getattr(sys, "stdlib_module_names", ()):
            # Read on the first refusal only, because it takes longer than most cells.
            if self.installed is None:
                self.installed = [module for entry in self.listed for module in modules_of(entry)]
            if is_allowed(name, self.installed):
                return
        from .cell import clean
        from .claims import claim, place_of_frame

        claim("import", clean(name[:MAX_NAME]), place_of_frame(sys._getframe(1)))
        raise ImportError(
            "Import of %s is not allowed. Authorized imports are: %s" % (name, sorted(self.listed)),
            name=name,
        )


def is_allowed(name, allowed):
    """Returns whether a list allows `name`. The entry `a.b` allows itself and its parent `a`, which Python
    imports too; `a.*` allows `a` and everything in it."""
    if name in ALWAYS:
        return True
    parts = name.split(".")
    stars = [".".join(parts[:i]) + ".*" for i in range(1, len(parts) + 1)]
    return any(entry == name or entry.startswith(name + ".") or entry in stars for entry in allowed)


def modules_of(distribution):
    """Returns patterns for the modules that a distribution of this name installs. Leaves out a module of the
    same name, because the list already has it."""
    from importlib import metadata

    try:
        found = metadata.distribution(distribution)
        declared = found.read_text("top_level.txt")
        names = declared.split() if declared else map(top_level, found.files or ())
        return {name + ".*" for name in names if name.isidentifier() and name != distribution}
    except Exception:
        # The distribution is not installed, or its metadata cannot be read.
        return set()


def top_level(path):
    """Returns the top-level module of a distribution's file; empty for files that are not modules."""
    if path.suffix not in (".py", ".so"):
        return ""
    return path.parts[0] if len(path.parts) > 1 else path.name.partition(".")[0]
