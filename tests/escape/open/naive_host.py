"""The open control for the probes against the caller: a host that trusts its guest's data.

Usage: naive_host.py (parse | decode | frame | collect | upload | terminal | log) CANARY MARKER_DIR COMMAND...
"""

import json
import os
import signal
import subprocess
import sys
import tempfile

PREFIX = "RESULT-JSON:"


class Fooled(Exception):
    pass


def parse(output):
    for line in output.decode(errors="replace").splitlines():
        if line.startswith(PREFIX):
            json.loads(line[len(PREFIX) :])


def frame(_):
    os.set_blocking(frames, False)
    length = int.from_bytes(os.read(frames, 4), "little")
    if length > 1 << 30:
        raise Fooled("the guest made it wait for %d bytes" % length)


def decode(output):
    output.decode()


def collect(_):
    with open(canary, "rb") as file:
        secret = file.read()
    for _ in range(5000):
        try:
            with open("race.txt", "rb") as artifact:
                if artifact.read() == secret:
                    raise Fooled("an artifact holds the canary")
        except FileNotFoundError:
            pass


def upload(_):
    with open("data/x", "w") as file:
        file.write("uploaded")
    outside = os.path.join(marker, "x")
    if os.path.exists(outside):
        os.unlink(outside)
        raise Fooled("the upload landed outside the work directory")


def terminal(output):
    """Shows the guest's output unchanged."""
    from terminal import obeyed

    if obeyed(output):
        raise Fooled("the terminal obeys %r" % obeyed(output))


def log(output):
    """Logs how the guest ended, with the guest's message."""
    logged = "sandfork: the guest ended with " + output.decode(errors="replace")
    forged = [line for line in logged.splitlines() if line.startswith("sandfork: forged")]
    if forged:
        raise Fooled("its log has the line %r" % forged[0])


CHECKS = {
    "parse": parse,
    "decode": decode,
    "frame": frame,
    "collect": collect,
    "upload": upload,
    "terminal": terminal,
    "log": log,
}

check, canary, marker, *command = sys.argv[1:]
frames, link = os.pipe()
with tempfile.TemporaryFile() as output:
    # The log contains the guest's last line.
    last_words = output if check == "log" else None
    guest = subprocess.Popen(
        command, stdout=output, stderr=last_words, pass_fds=[link], start_new_session=True
    )
    guest.wait()
    output.seek(0)
    try:
        CHECKS[check](output.read())
        print("CONTAINED the host was not fooled")
    except Exception as error:
        print("ESCAPED(host) %s: %s" % (type(error).__name__, str(error)[:120]))
    finally:
        try:
            os.killpg(guest.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
