"""Downloads Debian's index of kernels, and the kernel of one package.

    kernel.py index URL                       prints the stanzas of the kernel's packages
    kernel.py fetch URL SHA256 DIR MODULE...  the kernel, and those of the modules that are not built in
"""

import hashlib
import io
import lzma
import os
import sys
import tarfile
import urllib.request


def download(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


def index(url):
    text = lzma.decompress(download(url)).decode()
    for stanza in text.split("\n\n"):
        if stanza.startswith("Package: linux-image-"):
            print(stanza.strip(), end="\n\n")


def members(archive):
    """The names and contents in an ar(5) archive."""
    at = 8
    while at + 60 <= len(archive):
        name, size = archive[at : at + 16].decode().strip(" /"), int(archive[at + 48 : at + 58])
        yield name, archive[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def fetch(url, sha256, directory, modules):
    package = download(url)
    found = hashlib.sha256(package).hexdigest()
    if found != sha256:
        sys.exit("%s has SHA-256 %s, and the index says %s" % (url, found, sha256))
    data = dict(members(package))["data.tar.xz"]
    os.makedirs(directory, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as tar:
        for entry in tar:
            name = os.path.basename(entry.name)
            module, _, ending = name.partition(".ko")
            if name.startswith("vmlinuz-"):
                keep(directory, "vmlinuz", tar.extractfile(entry).read())
            elif module in modules and ending in ("", ".xz") and entry.isfile():
                content = tar.extractfile(entry).read()
                keep(directory, module + ".ko", lzma.decompress(content) if ending else content)


def keep(directory, name, content):
    with open(os.path.join(directory, name), "wb") as file:
        file.write(content)


if sys.argv[1] == "index":
    index(sys.argv[2])
else:
    fetch(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
