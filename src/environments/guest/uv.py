"""Resolves wheels with uv. Runs in a sandbox whose only network is the index."""


def _resolve(program, options):
    import os
    import subprocess
    import sys

    # The proxy also serves loopback addresses, which these variables would bypass.
    for name in ("NO_PROXY", "no_proxy"):
        os.environ.pop(name, None)
    command = [program, "pip", "compile", "--format", "pylock.toml", "--output-file", "pylock.toml"]
    command += ["--python", sys.executable, "--no-python-downloads", "--no-config", "--no-cache"]
    if "--extra-index-url" in options:
        # Choose the best version of any index, as pip does.
        command += ["--index-strategy", "unsafe-best-match"]
    command += ["--quiet", "--no-header", "--color", "never", *options, "requirements.txt"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        return {"message": f"it cannot be run in a sandbox: {error.strerror}"}
    if done.returncode:
        return {"message": done.stderr[-4000:]}
    with open("pylock.toml", encoding="utf-8") as file:
        return {"lock": file.read()}
