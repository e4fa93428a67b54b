"""The first script to run: `cargo run --release -- run examples/hello.py`."""

import os
import platform
import sys

print(f"Hello from CPython {platform.python_version()} in a sandbox.")
print(f"I am uid {os.getuid()}, process {os.getpid()}, in {os.getcwd()}.")

try:
    os.listdir("/home")
except OSError as error:
    print(f"Your files are out of reach: {error}")

try:
    import socket

    socket.create_connection(("127.0.0.1", 80), timeout=1)
except OSError as error:
    print(f"So is the network: {error}")

print("6 * 7 =", 6 * 7, file=sys.stdout)
