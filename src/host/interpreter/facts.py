# Run as: python -I -S -c <this>. Prints one line of JSON. Nothing but builtin modules and os is
# imported, so that it costs little and a broken site cannot break it.
def _sandfork_facts():
    import os
    import sys

    links, path = [], sys.executable
    while os.path.islink(path) and len(links) < 40:
        to = os.readlink(path)
        links.append({"path": path, "points_at": to})
        path = os.path.normpath(os.path.join(os.path.dirname(path), to))

    home = os.path.dirname(os.path.dirname(sys.executable))
    venv = home if os.path.isfile(os.path.join(home, "pyvenv.cfg")) else None
    stdlib = os.path.dirname(os.__file__)
    bases = [b for b in (sys.base_prefix, sys.base_exec_prefix, venv) if b]
    libraries = [stdlib] + [os.path.join(b, d) for b in bases for d in ("lib", "lib64")]
    # A conda environment keeps data all over its prefix. Any other prefix may be shared with what
    # is none of the guest's business, as ~/.local is.
    conda = os.path.isdir(os.path.join(sys.base_prefix, "conda-meta"))
    programs = [sys.base_prefix] if conda else [os.path.dirname(path)]
    return {
        "executable": sys.executable,
        "links": links,
        "binary": path,
        "implementation": sys.implementation.name,
        "version": list(sys.version_info[:3]),
        "prefix": venv or sys.prefix,
        "base_prefix": sys.base_prefix,
        "stdlib": stdlib,
        "programs": programs,
        "libraries": sorted({d for d in libraries if os.path.isdir(d)}),
        "free_threaded": "t" in getattr(sys, "abiflags", ""),
        "venv": venv,
    }
