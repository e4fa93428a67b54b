"""Finds the newest of Debian's cloud kernels, downloads it unless it is there, and prints its version.

    kernel.py MIRROR SUITE DIRECTORY MODULE...

Afterwards `DIRECTORY/VERSION` has `vmlinuz`, and those of the modules that are not built in.
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


def newest(index):
    """The kernel that the package without a version depends on."""
    stanzas = (dict(line.split(": ", 1) for line in text.split("\n") if ": " in line) for text in index.split("\n\n"))
    by_name = {stanza.get("Package"): stanza for stanza in stanzas}
    return by_name[by_name["linux-image-cloud-amd64"]["Depends"].split()[0].rstrip(",")]


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


def main(mirror, suite, directory, *modules):
    index = download("%s/dists/%s/main/binary-amd64/Packages.xz" % (mirror, suite))
    kernel = newest(lzma.decompress(index).decode())
    place = os.path.join(directory, kernel["Version"])
    if not os.path.exists(place):
        print("fetching", kernel["Filename"], "(once)", file=sys.stderr)
        fetch("%s/%s" % (mirror, kernel["Filename"]), kernel["SHA256"], place + ".partial", modules)
        os.rename(place + ".partial", place)
    print(kernel["Version"])


main(*sys.argv[1:])
