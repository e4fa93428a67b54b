"""Resolves requirements to wheels and their hashes, by pip. Runs in a sandbox whose network is the index."""


def _resolve(options):
    import contextlib
    import glob
    import io
    import json
    import os
    import re
    import sys

    OLDEST = (22, 2)  # the first with `--report`

    def add_bundled_pip():
        places = []
        with contextlib.suppress(ImportError):
            import ensurepip

            places.append(os.path.join(os.path.dirname(ensurepip.__file__), "_bundled"))
        # Debian keeps them apart.
        places.append("/usr/share/python-wheels")
        for place in places:
            wheels = glob.glob(os.path.join(glob.escape(place), "pip-*.whl"))
            if wheels:
                sys.path.insert(0, max(wheels))
                return

    def version_of(pip):
        return tuple(int(number) for number in re.findall(r"\d+", pip.__version__)[:2])

    def passed_over():
        """Why pip passed over pages and files, in the order of what says most."""
        with open("pip.log", encoding="utf-8", errors="replace") as file:
            log = file.read()
        for pattern in (
            r"Could not fetch URL (.*?) - skipping",
            r"Skipping page (.*)",
            r"Skipping link: (No sources permitted for [^:]*)",
            r"Skipping link: (none of the wheel's tags|.*not compatible)",
        ):
            # That a page is not there is usual where there are several indexes.
            found = [text for text in re.findall(pattern, log) if " 404 " not in text and "/pip/" not in text]
            if found:
                return found[-1][:1000]
        return ""

    try:
        import pip
    except ImportError:
        add_bundled_pip()
        try:
            import pip
        except ImportError:
            return {"pip": ""}
    if version_of(pip) < OLDEST:
        return {"pip": pip.__version__}

    # The proxy leads to the host's loopback too, which these would leave out.
    for name in ("NO_PROXY", "no_proxy"):
        os.environ.pop(name, None)
    from pip._internal.cli.main import main

    arguments = [
        *("install", "--dry-run", "--ignore-installed", "--only-binary", ":all:"),
        *("--isolated", "--no-input", "--disable-pip-version-check", "--no-cache-dir"),
        *("--quiet", "--progress-bar", "off", "--no-color", "--report", "report.json", "--log", "pip.log"),
        *("--cert", os.environ["SSL_CERT_FILE"]),
        *options,
    ]
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        code = main(arguments)
    if code:
        # pip says the cause last, and some of it in its log alone.
        return {"pip": pip.__version__, "said": said.getvalue()[-4000:], "passed_over": passed_over()}
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
                "requested": bool(item.get("requested")),
            }
        )
    return {"pip": pip.__version__, "packages": packages}
