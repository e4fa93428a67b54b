# Run as: python -I -S -c <this>. Returns the facts that only the interpreter knows about itself; facts.rs
# derives the rest. Imports only builtin modules and os, which is fast and independent of a broken site.
def _sandfork_facts():
    import os
    import sys

    loader = sys.modules.get("_frozen_importlib_external")
    facts = (
        sys.executable,
        sys.implementation.name,
        "%d.%d.%d" % tuple(sys.version_info[:3]),
        getattr(sys, "abiflags", ""),
        sys.prefix,
        sys.base_prefix,
        sys.base_exec_prefix,
        os.path.dirname(os.__file__),
        # The bytecode format. Nothing is derived from it, but a different format invalidates cached facts.
        getattr(loader, "MAGIC_NUMBER", b"").hex(),
    )
    # A path cannot contain this character.
    return "\0".join(facts)
