"""Encodes and decodes frames and their JSON: `u32` header length, `u32` payload length, header, payload.

This uses the accelerators of the `json` package without the package, which imports `re`. That import would
take a third of the startup time of an interpreter that runs a single cell."""

# Imported by name, here and elsewhere, because a guest may replace attributes of `os`.
from os import _exit
from os import read as read_descriptor
from os import write as write_descriptor

DATA = 1023
# The `blob` field of a message without buffers, its payload, and the descriptor that is passed with it.
NOTHING = None, b"", None


def make_codec():
    try:
        from _json import encode_basestring, make_encoder, make_scanner

        encode = make_encoder(None, None, encode_basestring, None, ":", ",", False, False, False)
        scan = make_scanner(ScannerOptions)
        if scan('{"a": [1, null, "\\n"]}', 0)[0] != {"a": [1, None, "\n"]}:
            raise ImportError("_json does not read JSON as it did")
        if "".join(encode({"a": [1, None, "\n"]}, 0)) != '{"a":[1,null,"\\n"]}':
            raise ImportError("_json does not write JSON as it did")
        return (lambda value: "".join(encode(value, 0))), (lambda text: scan(text, 0)[0])
    except Exception:
        # This Python has other internals. The public module is slower, with the same result.
        import json

        dumps = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return dumps, json.loads


class ScannerOptions:
    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = None
    memo = {}


dumps, loads = make_codec()


def encode(header, payload=b""):
    data = dumps(header).encode("utf-8")
    return (len(data) | len(payload) << 32).to_bytes(8, "little") + data + payload


def send(header, packed=NOTHING):
    blob, payload, _ = packed
    if blob is not None:
        header["blob"] = blob
    write(encode(header, payload))


def write(frame):
    while frame:
        frame = frame[write_descriptor(DATA, frame) :]


received = bytearray()


def receive():
    # Reads ahead, so that frames that were sent together are read together.
    return receive_frame(4096)


def receive_alone():
    """Reads one frame and nothing after it, because the next frame may carry a descriptor."""
    return receive_frame(0)


def receive_frame(ahead):
    fill(8, ahead)
    lengths = int.from_bytes(received[:8], "little")
    middle = 8 + (lengths & 0xFFFFFFFF)
    end = middle + (lengths >> 32)
    fill(end, ahead)
    header, payload = received[8:middle].decode("utf-8"), bytes(received[middle:end])
    del received[:end]
    return loads(header), payload


def fill(count, ahead):
    while len(received) < count:
        part = read_descriptor(DATA, max(count - len(received), ahead))
        if not part:
            _exit(0)
        received.extend(part)
