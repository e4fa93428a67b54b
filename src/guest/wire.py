"""Frames and the JSON in them: `u32` header length, `u32` payload length, header, payload.

JSON by the accelerators of the `json` package without the package itself, which imports `re`: that
would be a third of the start of an interpreter that runs a single cell."""

import os

DATA = 3


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
        # Another build, or a Python in which these internals have changed: slower, not different.
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


def send(header):
    data = dumps(header).encode("utf-8")
    view = memoryview(len(data).to_bytes(4, "little") + b"\0\0\0\0" + data)
    while view:
        view = view[os.write(DATA, view) :]


def receive():
    prefix = read_exactly(8)
    header = read_exactly(int.from_bytes(prefix[:4], "little"))
    payload = read_exactly(int.from_bytes(prefix[4:], "little"))
    return loads(header.decode("utf-8")), payload


def read_exactly(count):
    parts = []
    while count:
        part = os.read(DATA, min(count, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
