"""Fetches wheels, and passes their files to the host. Runs in a sandbox whose only network is the index.

Wheels are untrusted, so nothing in them is run: they are read, and their Python is compiled. `put` is a host
tool.
"""


def _install(prefix, version, wheels, limit, put):
    import configparser
    import csv
    import hashlib
    import io
    import json
    import os
    import py_compile
    import ssl
    import urllib.request
    import warnings
    import zipfile
    from base64 import urlsafe_b64encode

    SITE = f"lib/python{version}/site-packages"
    PYTHON = f"{prefix}/bin/python"
    CHUNK = 1 << 20
    # Larger than any handwritten source. The compiler takes a hundred times the size in memory.
    LONGEST_SOURCE = 8 << 20
    ENOUGH = 64

    class Refused(Exception):
        pass

    class Outbox:
        """Collects small files, so that each call sends many."""

        def __init__(self):
            self.files = []
            self.size = 0
            self.record = []

        def add(self, path, data, executable=False):
            self.begin(path, executable)
            self.more(data)
            self.end()

        def begin(self, path, executable=False):
            self.path, self.executable = path, executable
            self.offset, self.digest = 0, hashlib.sha256()

        def more(self, data):
            self.files.append([self.path, self.executable, self.offset, data])
            self.offset += len(data)
            self.digest.update(data)
            self.size += len(data)
            if self.size >= CHUNK or len(self.files) >= ENOUGH:
                self.flush()

        def end(self):
            if self.offset == 0 and not (self.files and self.files[-1][0] == self.path):
                self.more(b"")
            digest = urlsafe_b64encode(self.digest.digest()).rstrip(b"=").decode()
            self.record.append((self.path, f"sha256={digest}", str(self.offset)))

        def flush(self):
            if self.files:
                pieces = [
                    [path, executable, offset, len(data)] for path, executable, offset, data in self.files
                ]
                put(json.dumps(pieces), b"".join(data for *_, data in self.files))
            self.files, self.size = [], 0

    def fetch(wheel):
        # The proxy also serves loopback addresses, which these variables would bypass.
        for name in ("NO_PROXY", "no_proxy"):
            os.environ.pop(name, None)
        digest, size = hashlib.sha256(), 0
        context = ssl.create_default_context()
        if wheel["unchecked"]:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        with (
            urllib.request.urlopen(wheel["url"], timeout=60, context=context) as reply,
            open("wheel.zip", "wb") as file,
        ):
            while data := reply.read(CHUNK):
                size += len(data)
                if size > limit:
                    raise Refused(f"is larger than {limit} bytes")
                digest.update(data)
                file.write(data)
        if digest.hexdigest() != wheel["sha256"]:
            raise Refused(
                f"does not have the locked hash: sha256 is {digest.hexdigest()}, not {wheel['sha256']}"
            )

    def place(name, info, data):
        """Returns the path of a member of the wheel (PEP 427), and whether it is a script."""
        head, _, rest = name.partition("/")
        if head != data:
            return f"{SITE}/{name}", False
        scheme, _, rest = rest.partition("/")
        if scheme in ("purelib", "platlib"):
            return f"{SITE}/{rest}", False
        if scheme == "scripts":
            return f"bin/{rest}", True
        if scheme == "headers":
            return f"include/site/python{version}/{info.split('-')[0]}/{rest}", False
        if scheme == "data":
            return rest, False
        raise Refused(f"has files of an unknown kind, `{name}`")

    def script(entry):
        module, _, attribute = entry.split("[")[0].strip().partition(":")
        module, attribute = module.strip(), attribute.strip()
        names = module.split(".") + attribute.split(".")
        if not all(name.isidentifier() for name in names):
            raise Refused(f"has an entry point that does not name a function, `{entry}`")
        first = attribute.split(".")[0]
        return (
            f"#!{PYTHON}\nimport sys\nfrom {module} import {first}\n\n"
            f"if __name__ == '__main__':\n    sys.exit({attribute}())\n"
        ).encode()

    def entry_points(archive, info):
        parser = configparser.RawConfigParser(delimiters=("=",), strict=False)
        parser.optionxform = str
        try:
            text = archive.read(f"{info}/entry_points.txt").decode()
        except KeyError:
            return {}
        parser.read_string(text)
        found = {}
        for section in ("console_scripts", "gui_scripts"):
            if parser.has_section(section):
                found.update(parser.items(section))
        return found

    def add_byte_code(out, path):
        directory, _, name = path.rpartition("/")
        try:
            # Unchecked, because neither the source nor the bytecode can change.
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(
                "source.py", "code.pyc", f"{prefix}/{path}", doraise=True, invalidation_mode=mode
            )
        except (py_compile.PyCompileError, SyntaxError, ValueError, RecursionError, MemoryError):
            return  # a template, or source for another version of Python
        import sys

        with open("code.pyc", "rb") as file:
            data = file.read()
        out.add(f"{directory}/__pycache__/{name[:-3]}.{sys.implementation.cache_tag}.pyc", data)

    def install(wheel):
        fetch(wheel)
        out = Outbox()
        with zipfile.ZipFile("wheel.zip") as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            infos = {member.filename.partition("/")[0] for member in members}
            infos = sorted(name for name in infos if name.endswith(".dist-info"))
            if len(infos) != 1:
                raise Refused(f"has {len(infos)} `.dist-info` directories instead of one")
            (info,) = infos
            data = f"{info[: -len('.dist-info')]}.data"
            ours = {
                f"{info}/{name}" for name in ("RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER", "REQUESTED")
            }
            for member in members:
                if member.filename in ours:
                    continue
                path, is_script = place(member.filename, info, data)
                executable = is_script or bool(member.external_attr >> 16 & 0o111)
                is_source = path.endswith(".py") and path.startswith(f"{SITE}/")
                is_source = is_source and member.file_size <= LONGEST_SOURCE
                out.begin(path, executable)
                with archive.open(member) as file, open("source.py", "wb") as source:
                    first = True
                    while chunk := file.read(CHUNK):
                        if first and is_script and chunk.startswith(b"#!python"):
                            _, end, rest = chunk.partition(b"\n")
                            chunk = f"#!{PYTHON}".encode() + end + rest
                        first = False
                        out.more(chunk)
                        if is_source:
                            source.write(chunk)
                out.end()
                if is_source:
                    add_byte_code(out, path)
            for name, entry in entry_points(archive, info).items():
                out.add(f"bin/{name}", script(entry), executable=True)
        out.add(f"{SITE}/{info}/INSTALLER", b"sandfork\n")
        record = io.StringIO()
        writer = csv.writer(record, lineterminator="\n")
        for path, digest, size in [*out.record, (f"{SITE}/{info}/RECORD", "", "")]:
            writer.writerow((os.path.relpath(path, SITE), digest, size))
        out.add(f"{SITE}/{info}/RECORD", record.getvalue().encode())
        out.flush()

    warnings.simplefilter("ignore")
    for wheel in wheels:
        try:
            install(wheel)
        except Refused as refused:
            return [wheel["file"], str(refused)]
        except Exception as error:  # a damaged or hostile archive can raise anything
            return [wheel["file"], f"cannot be read: {type(error).__name__}: {error}"]
    return None
