# Run as: python -I -S -c <this>. What only the interpreter knows of itself; facts.rs derives the rest from
# it. Nothing but builtin modules and os is imported, so that it costs little and a broken site cannot break
# it.
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
        # What byte code it runs: nothing is derived from it, but other byte code means other facts.
        getattr(loader, "MAGIC_NUMBER", b"").hex(),
    )
    # No path has this character.
    return "\0".join(facts)
