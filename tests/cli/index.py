"""A package index on loopback (PEP 503), with wheels that it builds itself. Prints its port."""

import base64
import hashlib
import http.server
import io
import json
import platform
import sys
import tarfile
import threading
import time
import zipfile


# Requests wait until the index serves. The packages below contain its port.
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
PORT = server.server_address[1]


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def wheel(name, version, files, requires=(), entry_points="", scripts=None, tag="py3-none-any"):
    """Returns the file name and the bytes of a wheel."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {other}\n" for other in requires)
    members = {path: data.encode() if isinstance(data, str) else data for path, data in files.items()}
    for path, data in (scripts or {}).items():
        members[f"{name}-{version}.data/scripts/{path}"] = data.encode()
    members[f"{info}/METADATA"] = metadata.encode()
    members[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n".encode()
    )
    if entry_points:
        members[f"{info}/entry_points.txt"] = entry_points.encode()
    lines = [f"{path},sha256={digest(data)},{len(data)}" for path, data in members.items()]
    members[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in members.items():
            archive.writestr(path, data)
    return f"{name}-{version}-{tag}.whl", buffer.getvalue()


def linked(name, version):
    """A wheel with a symbolic link to a file of the host, as some archives have them."""
    file, data = wheel(name, version, {f"{name}.py": "x = 1\n"})
    buffer = io.BytesIO(data)
    with zipfile.ZipFile(buffer, "a") as archive:
        link = zipfile.ZipInfo(f"{name}_link.py")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    return file, buffer.getvalue()


# An interpreter runs it at its start, before there is a guest, so it would affect every tenant's workers.
HOSTILE = """\
import os, socket, sys

found = []
store, own = os.path.split(sys.prefix)


def look(what, attempt):
    try:
        attempt()
        found.append(what)
    except (IndexError, OSError):
        pass


look("another environment", lambda: os.listdir(os.path.join(store, [it for it in os.listdir(store) if it != own][0])))
look("the names of all", lambda: os.listdir(os.path.join(store, "..", "names")))
look("a socket", lambda: socket.create_server(("127.0.0.1", 0)).close())
look("a change", lambda: open(os.path.join(os.path.dirname(__file__), "changed.py"), "x").close())
"""


def bomb(name, version, size):
    """A wheel with a file that is much larger than the wheel itself."""
    return wheel(name, version, {f"{name}.py": "x = 1\n", f"{name}.bin": bytes(size)})


BACKEND = """
import os, zipfile

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(directory, config_settings=None):
    info = os.path.join(directory, "NAME-VERSION.dist-info")
    os.mkdir(info)
    with open(os.path.join(info, "METADATA"), "w") as file:
        file.write(METADATA)
    with open(os.path.join(info, "WHEEL"), "w") as file:
        file.write(WHEEL)
    return "NAME-VERSION.dist-info"

def build_wheel(directory, config_settings=None, metadata_directory=None):
    CODE
    with zipfile.ZipFile(os.path.join(directory, FILE), "w") as archive:
        archive.writestr("NAME.py", f"found = {found!r}")
        archive.writestr("NAME-VERSION.dist-info/METADATA", METADATA)
        archive.writestr("NAME-VERSION.dist-info/WHEEL", WHEEL)
        archive.writestr("NAME-VERSION.dist-info/RECORD", "")
    return FILE
"""


PROJECT = "build-system = {requires = [], build-backend = 'backend', backend-path = ['.']}\n"


def sdist(name, version, code="found = None", file=None):
    """Returns a source distribution that runs this code when it is built."""
    file = file or f"{name}-{version}-py3-none-any.whl"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    backend = f"METADATA, WHEEL, FILE = {metadata!r}, {tags!r}, {file!r}\n{BACKEND}"
    backend = (
        backend.replace("NAME", name)
        .replace("VERSION", version)
        .replace("CODE", code.replace("\n", "\n    "))
    )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in {
            "backend.py": backend,
            "pyproject.toml": PROJECT,
            "PKG-INFO": metadata,
        }.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return f"{name}-{version}.tar.gz", buffer.getvalue()


# Records what a build can reach: the test's own file, other hosts, and the guest's work directory.
THIEF = """
found = []
for path in ("/tmp/sandfork-test-secret", "/etc/shadow"):
    if os.path.exists(path):
        found.append(path)
import socket
try:
    socket.create_connection(("192.0.2.1", 80), 2)
    found.append("network")
except OSError:
    pass
try:
    with open("/tmp/sandfork-test-built", "w") as file:
        file.write("built")
    found.append("wrote")
except OSError:
    pass
found += [name for name in os.environ if "SECRET" in name]
"""

# Records which requests of a build reach the index.
MEDDLER = f"""
found = []
from urllib.request import Request, urlopen
for method in ("GET", "POST", "DELETE"):
    try:
        urlopen(Request("http://127.0.0.1:{PORT}/secret/meddle", b"x" * (method == "POST"), method=method)).close()
        found.append(method)
    except OSError:
        pass
"""

# Records what a build sees of the host's package directories.
LISTER = """
found = sorted(file for _, _, files in os.walk("/var/tmp") for file in files)
"""

FILES = dict(
    [
        wheel(
            "shapes",
            "1.0",
            {"shapes/__init__.py": "from colours import red\nsides = 3\n", "shapes/data.txt": "a"},
            ["colours>=1"],
        ),
        wheel(
            "shapes", "2.0", {"shapes/__init__.py": "from colours import red\nsides = 4\n"}, ["colours>=1"]
        ),
        wheel(
            "colours",
            "1.5",
            {
                "colours.py": "red = 'ff0000'\ndef main():\n    print(red)\n",
                "colours_py2.py": "print 'another Python'\n",
                "colours-1.5.data/data/share/colours/list.txt": "red\n",
                "colours-1.5.data/headers/colours.h": "/* red */\n",
                "colours-1.5.data/platlib/colours_lib.py": "x = 1\n",
            },
            entry_points="[console_scripts]\ncolour = colours:main\n",
            scripts={"colour-script": "#!python\nimport colours\nprint(colours.red)\n"},
        ),
        wheel("several", "1.0", {"several.py": "x = 1\n"}),
        wheel(
            "several", "1.0", {"several.py": "x = 2\n"}, tag=f"py3-none-manylinux_2_17_{platform.machine()}"
        ),
        wheel("tampered", "1.0", {"tampered.py": "x = 1\n"}),
        wheel("late", "1.0", {"late.py": "x = 1\n"}),
        wheel("torn", "1.0", {"torn.py": "x = 1\n"}),
        wheel("halfway", "1.0", {"halfway.py": "x = 1\n"}),
        wheel("slow", "1.0", {"slow.py": "x = 1\n"}),
        wheel("climber", "1.0", {"climber.py": "x = 1\n", "../../../../../../tmp/climbed": "x"}),
        wheel("rooted", "1.0", {"rooted.py": "x = 1\n", "rooted-1.0.data/data//etc/rooted": "x"}),
        wheel(
            "usurper", "1.0", {"usurper.py": "x = 1\n", "usurper-1.0.data/data/pyvenv.cfg": "home = /tmp\n"}
        ),
        wheel("impostor", "1.0", {"impostor.py": "x = 1\n"}, scripts={"python": "#!/bin/sh\n"}),
        wheel("twofold", "1.0", {"twofold.py": "x = 1\n", "other-1.0.dist-info/METADATA": "Name: other\n"}),
        wheel("hostile", "1.0", {"hostile.pth": "import hostile\n", "hostile.py": HOSTILE}),
        wheel("hook", "1.0", {"hook.pth": "import os; os.environ['HOOKED'] = '1'\n", "hook.py": "x = 1\n"}),
        wheel(
            "pointer",
            "1.0",
            {"pointer.py": "x = 1\n"},
            entry_points="[console_scripts]\n../../pointer = pointer:main\n",
        ),
        linked("linked", "1.0"),
        bomb("bomb", "1.0", 300 << 20),
        wheel("elsewhere", "1.0", {"elsewhere.py": "x = 1\n"}),
        wheel("other_platform", "1.0", {"other.py": "x = 1\n"}, tag="cp311-cp311-win_amd64"),
        sdist("source", "1.0", THIEF),
        sdist("meddler", "1.0", MEDDLER),
        sdist("lister", "1.0", LISTER),
        sdist("failing", "1.0", "raise SystemExit('no compiler')"),
        sdist("renamed", "1.0", file="colours-1.5-py3-none-any.whl"),
    ]
)


def name_of(file):
    return file.split("-")[0].replace("_", "-")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.path.split("?")[0].strip("/")
        with lock:
            requests.append((self.path, self.headers.get("Authorization")))
        if path == "log":
            return self.reply(json.dumps(requests).encode())
        if path.startswith("secret/") and self.headers.get("Authorization") != SECRET:
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        path = path.removeprefix("secret/")
        if path == "meddle":
            return self.reply(b"")
        if path.startswith("nonsense/"):
            return self.reply(b"\x00\xff<a href=" * 1000)
        if path.startswith("halved/"):
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            self.wfile.write(b"<html><a href='")
            self.close_connection = True
            return None
        if path.startswith("simple/"):
            return self.project(path.removeprefix("simple/"))
        file = path.removeprefix("files/")
        if file not in FILES:
            return self.send_error(404)
        data = FILES[file]
        # The index distinguishes the installer from the resolver, and serves it another file.
        installs = not self.headers.get("User-Agent", "").startswith(("pip/", "uv/"))
        if file.startswith("tampered") or (file.startswith("late") and installs):
            data = data[:-1] + b"\x01"
        if file.startswith("torn") or (file.startswith("halfway") and installs):
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
            return None
        if file.startswith("slow") and installs:
            time.sleep(600)
        return self.reply(data)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.do_GET()

    def do_DELETE(self):
        self.do_GET()

    def do_HEAD(self):
        # uv first asks whether the server supports range requests.
        self.do_GET()

    def project(self, name):
        files = [file for file in FILES if name_of(file) == name]
        if not files:
            return self.send_error(404)
        prefix = "http://elsewhere.example/files" if name == "elsewhere" else "/files"
        links = "".join(
            f"<a href='{prefix}/{file}#sha256={hashlib.sha256(FILES[file]).hexdigest()}'>{file}</a>\n"
            for file in files
        )
        return self.reply(f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html")

    def reply(self, data, kind="application/octet-stream"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *_):
        pass


SECRET = "Basic " + base64.b64encode(b"me:p@ss").decode()
requests = []
lock = threading.Lock()
server.RequestHandlerClass = Handler
server.daemon_threads = True
print(PORT, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
