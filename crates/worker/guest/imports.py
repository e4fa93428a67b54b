"""Refuses imports in the guest's own statements that the policy does not list.

It only provides a message: it is no security boundary, and the kernel's layers do not rely on it.
The message and the matching are those of smolagents, whose agents depend on them."""

import builtins

# What the policy lists; everything without a list.
ALLOWED = ["*"]
# The module with the session's tools, which the caller provides.
OURS = "sandfork_host"


def guard_imports(allowed):
    original = builtins.__import__
    ALLOWED[:] = allowed

    def guarded(name, globals=None, locals=None, fromlist=(), level=0):
        if globals is not None and globals.get("__name__") == "__main__" and level == 0:
            require(name)
        return original(name, globals, locals, fromlist, level)

    builtins.__import__ = guarded


def require(name):
    """Raises the error of a module that the policy does not list."""
    if "*" not in ALLOWED and not is_allowed(name, ALLOWED):
        raise ImportError(
            "Import of %s is not allowed. Authorized imports are: %s" % (name, sorted(ALLOWED)),
            name=name,
        )


def is_allowed(name, allowed):
    """Whether a list allows `name`. `a.b` allows itself and its parent `a`, which Python imports too;
    `a.*` allows `a` and everything in it."""
    if name == OURS:
        return True
    parts = name.split(".")
    stars = [".".join(parts[:i]) + ".*" for i in range(1, len(parts) + 1)]
    return any(entry == name or entry.startswith(name + ".") or entry in stars for entry in allowed)
