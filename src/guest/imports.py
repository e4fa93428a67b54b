"""Refuses, in the guest's own statements, imports that the policy does not list.

For the message only: this is no wall, and the kernel's layers do not rely on it. The message and
what a list allows are those of smolagents, whose agents give advice by it."""

import builtins

# The tools of a session, which its caller gave it.
OURS = "sandfork_host"


def guard_imports(allowed):
    original = builtins.__import__

    def guarded(name, globals=None, locals=None, fromlist=(), level=0):
        if globals is not None and globals.get("__name__") == "__main__" and level == 0:
            if not is_allowed(name, allowed):
                raise ImportError(
                    "Import of %s is not allowed. Authorized imports are: %s"
                    % (name, sorted(allowed)),
                    name=name,
                )
        return original(name, globals, locals, fromlist, level)

    builtins.__import__ = guarded


def is_allowed(name, allowed):
    """`a.b` allows itself and, because Python has it so, `a`; `a.*` allows `a` and all in it."""
    if name == OURS:
        return True
    parts = name.split(".")
    stars = [".".join(parts[:i]) + ".*" for i in range(1, len(parts) + 1)]
    return any(entry == name or entry.startswith(name + ".") or entry in stars for entry in allowed)
