"""Resolves wheels with pip, and builds them. Runs in a sandbox whose only network is the index."""


def _pip():
    """Returns pip's version and its command.

    The version is empty if there is no pip. The command is `None` if pip is missing or too old.
    """
    import contextlib
    import glob
    import os
    import re
    import sys

    OLDEST = (22, 2)  # the first with `--report`

    def add_bundled():
        places = []
        with contextlib.suppress(ImportError):
            import ensurepip

            places.append(os.path.join(os.path.dirname(ensurepip.__file__), "_bundled"))
        # Debian's directory of bundled wheels.
        places.append("/usr/share/python-wheels")
        for place in places:
            wheels = glob.glob(os.path.join(glob.escape(place), "pip-*.whl"))
            if wheels:
                sys.path.insert(0, max(wheels))
                return

    try:
        import pip
    except ImportError:
        add_bundled()
        try:
            import pip
        except ImportError:
            return "", None
    version = pip.__version__
    if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < OLDEST:
        return version, None
    # The proxy also serves loopback addresses, which these variables would bypass.
    for name in ("NO_PROXY", "no_proxy"):
        os.environ.pop(name, None)
    from pip._internal.cli.main import main

    def command(name, *arguments):
        import io

        common = (
            *("--isolated", "--no-input", "--disable-pip-version-check", "--no-cache-dir", "--quiet"),
            *("--progress-bar", "off", "--no-color", "--log", "pip.log"),
        )
        # Not set without a network, as with directories of wheels.
        trusted = os.environ.get("SSL_CERT_FILE")
        if trusted:
            common += ("--cert", trusted)
        output = io.StringIO()
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            code = main([name, *common, *arguments])
        if code:
            # pip prints the cause last, and parts of it only in its log.
            return {
                "pip": version,
                "message": output.getvalue()[-4000:],
                "skipped": skipped(),
                "build_output": build_output(),
            }
        return None

    def build_output():
        """Returns the last output lines of a failed build step, which only pip's log has."""
        lines = []
        with open("pip.log", encoding="utf-8", errors="replace") as file:
            for line in file:
                # Each line starts with a timestamp.
                line = line.rstrip().partition(" ")[2].strip()
                if re.match(r"ERROR: .* exited with -?\d+$", line):
                    return lines[-6:]
                if line.startswith("Running command "):
                    lines.clear()
                elif line:
                    lines.append(line[:300])
        return []

    def skipped():
        """Returns why pip skipped pages and files. The most informative messages come first."""
        with open("pip.log", encoding="utf-8", errors="replace") as file:
            log = file.read()
        for pattern in (
            r"Could not fetch URL (.*?) - skipping",
            r"Skipping page (.*)",
            r"Skipping link: (No sources permitted for [^:]*)",
            r"Skipping link: (none of the wheel's tags|.*not compatible)",
        ):
            # With several indexes, missing pages are normal.
            found = [text for text in re.findall(pattern, log) if " 404 " not in text and "/pip/" not in text]
            if found:
                return found[-1][:1000]
        return ""

    return version, command


def _resolve(options, is_added):
    import json

    version, command = _pip()
    if command is None:
        return {"pip": version}
    if is_added:
        # Modules that a session has imported cannot be replaced.
        from importlib import metadata

        there = {
            f"{one.metadata['Name']}=={one.version}"
            for one in metadata.distributions()
            if one.metadata["Name"]
        }
        with open("there.txt", "w", encoding="utf-8") as file:
            file.write("\n".join(sorted(there)))
        options = ["-c", "there.txt", *options]
    else:
        options = ["--ignore-installed", *options]
    failed = command("install", "--dry-run", "--report", "report.json", *options)
    if failed:
        return failed
    with open("report.json", encoding="utf-8") as file:
        report = json.load(file)
    packages = []
    for item in report["install"]:
        archive = item["download_info"].get("archive_info") or {}
        hashes = archive.get("hashes") or dict([(archive.get("hash") or "=").split("=", 1)])
        packages.append(
            {
                "name": item["metadata"]["name"],
                "version": item["metadata"]["version"],
                "url": item["download_info"]["url"],
                "sha256": hashes.get("sha256", ""),
            }
        )
    return {"pip": version, "packages": packages}


def _build(options, requirement):
    """Builds a wheel from a source distribution, whose code is untrusted."""
    import os

    version, command = _pip()
    if command is None:
        return {"pip": version}
    failed = command("wheel", "--no-deps", "--wheel-dir", "built", *options, requirement)
    if failed:
        return failed
    (name,) = os.listdir("built")
    os.rename(f"built/{name}", "built.whl")
    return {"pip": version, "built": name}
