"""Encodes and decodes numpy's arrays and scalars and PIL's images. Encoding imports neither package. If one
is missing when a tree is decoded, the value is `Opaque`."""

from __future__ import annotations

import re
import sys

from .bounds import HERE, I64, NotSupported, Opaque, library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .decode import Decode, Decoder
    from .encode import Encoder
    from .kinds import Encode, Tree

UNIT = (
    r"\[[1-9][0-9]{0,8}?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]|\[(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]"
)
# Only dtypes whose bytes are numbers or text. Objects and records are excluded.
DTYPE = re.compile(
    rf"[<>|=]?(?P<kind>b|i|u|f|c|S|U|m|M)(?P<size>[1-9][0-9]{{0,8}})(?P<unit>{UNIT})?"
)
SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}
MAX_DIMENSIONS = 32
# Bytes per pixel; mode `1` has eight pixels in a byte.
MODES = {"1": 0, "L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "I": 4, "F": 4}
MAX_SIDE = 1 << 24
# The cost of showing an empty array, and the minimum cost of showing an element, in characters.
ARRAY, ELEMENT = 64, 8
# The number of pixels whose creation costs as much as one value of a tree.
PIXELS = 64


def item_size(dtype: str) -> tuple[str, int]:
    """Returns the kind of a dtype and the size of an element in bytes. Raises `ValueError` for an unsupported
    dtype."""
    found = DTYPE.fullmatch(dtype)
    if found is None:
        raise ValueError("an array is of a dtype that cannot be transferred")
    kind, size = found["kind"], int(found["size"])
    if kind in "mM":
        fits = size == 8
    else:
        fits = found["unit"] is None and size in SIZES.get(kind, (size,))
    if not fits:
        raise ValueError("an array is of a dtype that cannot be transferred")
    return kind, 4 * size if kind == "U" else size


def array_tree(encoder: Encoder, value: Any) -> Tree:
    """Returns the tree of an array. Its bytes are not copied if they are in C order."""
    numpy = sys.modules["numpy"]
    dtype = value.dtype.str
    item_size(dtype)
    if len(value.shape) > MAX_DIMENSIONS:
        raise ValueError("too many dimensions")
    encoder.room_for(value.nbytes)
    flat = numpy.ascontiguousarray(value).reshape(-1)
    # Viewed as bytes, because not every dtype supports the buffer protocol.
    data = memoryview(flat.view("u1")) if flat.size else b""
    shape = [int(length) for length in value.shape]
    encoder.count(10 + len(shape))
    return {"type": "ndarray", "dtype": dtype, "shape": shape, "buffer": encoder.buffer(data)}


def _ndarray(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    if value.dtype.kind == "O" and 0 < len(value.shape) <= MAX_DIMENSIONS:
        return _objects(encoder, value, depth)
    _require_dtype(value.dtype, "an array")
    return array_tree(encoder, value)


def _require_dtype(dtype: Any, whose: str) -> None:
    try:
        item_size(dtype.str)
    except ValueError:
        remedy = "convert it first, for example with astype() or tolist()"
        raise NotSupported(f"{whose} of dtype {dtype} cannot be transferred: {remedy}") from None


def _subclass(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    remedy = "send what numpy.asarray() makes of it, or its parts"
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    if isinstance(masked, type) and issubclass(type(value), masked):
        remedy = "send its .filled(), or its .data and its .mask"
    raise NotSupported(f"an array of the class {type(value).__name__} cannot be transferred: {remedy}")


def _objects(encoder: Encoder, value: Any, depth: int) -> Tree:
    """Returns the tree of an array of Python objects, such as datetimes, if all of them can be
    transferred."""
    items = encoder.items(value.reshape(-1).tolist(), depth + 3, False)
    if any(type(item) is dict and item["type"] == "opaque" and "parts" not in item for item in items):
        raise NotSupported("an array of objects that cannot be transferred: send them as a list")
    encoder.count(20)
    index = {"type": "range-index", "start": 0, "stop": len(items), "step": 1, "name": None}
    data = {"dtype": "object", "schema": [int(length) for length in value.shape], "values": items}
    return {"type": "series", "of": "numpy", "name": None, "index": index, "data": data}


def read_objects(decoder: Decoder, tree: Tree, depth: int) -> Any:
    column = decoder.field(tree, "data", dict)
    listed, shape = column.get("values"), column.get("schema")
    if type(listed) is not list or type(shape) is not list or not 0 < len(shape) <= MAX_DIMENSIONS:
        raise ValueError("an array of objects lacks its list of objects or its shape")
    count = 1
    for length in shape:
        if type(length) is not int or not 0 <= length <= max(len(listed), 1 << 16):
            raise ValueError("the shape of an array does not match its objects")
        count *= length
    if count != len(listed):
        raise ValueError("the shape of an array does not match its objects")
    values = [decoder.value(part, depth + 3) for part in listed]
    numpy = library("numpy")
    if numpy is None:
        return values
    array = numpy.empty(len(values), object)
    for place, value in enumerate(values):
        array[place] = value
    return array.reshape(shape)


def _scalar(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    _require_dtype(value.dtype, "a scalar")
    dtype = value.dtype.str
    kind, _ = item_size(dtype)
    plain = int(value.astype("i8")) if kind in "mM" else value.item()
    return {"type": "numpy", "dtype": dtype, "value": encoder.tree(plain, depth + 1, key)}


def _image(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    mode = value.mode
    if mode not in MODES:
        # Pillow would clamp the larger values of 16 bits to 255 when converting to colours.
        deep = "I" if mode.startswith("I;16") else "RGB"
        value = value.convert("RGBA" if mode in ("P", "PA", "La", "RGBa") else deep)
    width, height = value.size
    encoder.room_for(_row(value.mode, width) * height)
    data = value.tobytes() if width and height else b""
    where = encoder.buffer(data)
    return {"type": "image", "mode": value.mode, "size": [width, height], "buffer": where}


def _row(mode: str, width: int) -> int:
    """Returns the size of a row of pixels in bytes."""
    return width * MODES[mode] if MODES[mode] else (width + 7) // 8


ENCODERS: dict[str, Encode] = {"numpy.ndarray": _ndarray, "numpy.memmap": _ndarray}
UNHASHABLE: set[Encode] = {_ndarray, _image}


def encoder_of(kind: type) -> Encode | None:
    """Returns the encoder of types that have a class for each kind."""
    numpy = sys.modules.get("numpy")
    # The attribute is missing while numpy itself is being imported.
    generic = getattr(numpy, "generic", None)
    if isinstance(generic, type) and issubclass(kind, generic):
        return _scalar
    if getattr(numpy, "memmap", None) is kind:
        return _ndarray
    array = getattr(numpy, "ndarray", None)
    if isinstance(array, type) and issubclass(kind, array) and kind is not array:
        return _subclass
    image = getattr(sys.modules.get("PIL.Image"), "Image", None)
    if isinstance(image, type) and issubclass(kind, image):
        return _image
    return None


def _checked(decoder: Decoder, tree: Tree) -> tuple[str, str, list[int], memoryview]:
    """Returns the kind, dtype, shape and bytes of an array."""
    dtype, shape = decoder.field(tree, "dtype", str), decoder.field(tree, "shape", list)
    kind, size = item_size(dtype)
    if len(shape) > MAX_DIMENSIONS:
        raise ValueError("an array has too many dimensions")
    count = 1
    # Includes empty arrays: a size computed from their other dimensions must not overflow either.
    extent = size
    for length in shape:
        if type(length) is not int or not 0 <= length < I64:
            raise ValueError("the shape of an array contains an invalid length")
        count *= length
        extent *= max(length, 1)
        if extent >= I64:
            raise ValueError("an array is larger than any memory")
    data = decoder.buffer(tree)
    if count * size != data.nbytes:
        raise ValueError(f"an array of {count * size} bytes has a buffer of {data.nbytes}")
    return kind, dtype, shape, data


def flat(decoder: Decoder, tree: Tree, dtype: str) -> tuple[memoryview, int]:
    """Returns the bytes of a one-dimensional array of this dtype, and the number of its elements. Booleans
    are checked to be 0 or 1. Does not need numpy."""
    if type(tree) is not dict or tree.get("type") != "ndarray":
        raise ValueError("the column of a table is not an array")
    kind, found, shape, data = _checked(decoder, tree)
    if found != dtype or len(shape) != 1:
        raise ValueError("the column of a table is an array of another type")
    if kind == "b" and bytes(data).translate(None, b"\0\1"):
        raise ValueError("an array of booleans contains values other than 0 and 1")
    return data, shape[0]


def _read_ndarray(decoder: Decoder, tree: Tree, depth: int) -> Any:
    kind, dtype, shape, data = _checked(decoder, tree)
    count = data.nbytes
    numpy = library("numpy")
    if numpy is None:
        return Opaque("numpy.ndarray", f"<array of shape {tuple(shape)}: numpy is not installed in {HERE}>")
    _count_shown(decoder, numpy, kind, dtype, shape)
    if not count:
        return numpy.empty(shape, dtype)
    if kind == "b" and numpy.frombuffer(data, "u1").max() > 1:
        # numpy counts booleans by their sum, and trusts that count when it writes the elements that a mask
        # selects.
        raise ValueError("an array of booleans contains values other than 0 and 1")
    return numpy.frombuffer(data, dtype).reshape(shape)


def _count_shown(decoder: Decoder, numpy: Any, kind: str, dtype: str, shape: list[int]) -> None:
    """Adds the cost of showing an array. numpy omits elements above a threshold that the caller sets."""
    options, size = numpy.get_printoptions(), item_size(dtype)[1]
    elements = at_edges = 1
    for length in shape:
        elements *= length
        at_edges *= min(length, 2 * options["edgeitems"])
    if elements > options["threshold"]:
        elements = at_edges
    if kind in "SU":
        decoder.text_bytes += elements * size
    decoder.shown += ARRAY + elements * max(size, ELEMENT)


def _read_scalar(decoder: Decoder, tree: Tree, depth: int) -> Any:
    dtype = decoder.field(tree, "dtype", str)
    kind, _ = item_size(dtype)
    kinds = {"b": bool, "f": float, "c": complex, "S": bytes, "U": str}
    value: Any = decoder.inner(tree, "value", kinds.get(kind, int), depth)
    numpy = library("numpy")
    if numpy is None:
        if kind in "mM":
            return Opaque("numpy.datetime64", f"<{value} of {dtype}: numpy is not installed in {HERE}>")
        return value
    if kind in "SU":
        # Created with the text's own length: numpy would allocate the dtype's.
        return numpy.str_(value) if kind == "U" else numpy.bytes_(value)
    if kind in "mM":
        return numpy.array(value, "i8").view(numpy.dtype(dtype).newbyteorder("="))[()]
    return numpy.array(value, dtype)[()]


def _read_image(decoder: Decoder, tree: Tree, depth: int) -> Any:
    mode, size = decoder.field(tree, "mode", str), decoder.field(tree, "size", list)
    if mode not in MODES or len(size) != 2:
        raise ValueError("an image has an unknown mode")
    if not all(type(side) is int and 0 <= side <= MAX_SIDE for side in size):
        raise ValueError("the size of an image contains an invalid length")
    width, height = size
    data = decoder.buffer(tree)
    length = _row(mode, width) * height
    if length != data.nbytes:
        raise ValueError(f"an image of {length} bytes has a buffer of {data.nbytes}")
    # A black-and-white pixel takes eight times its encoded size.
    decoder.spend(width * height // PIXELS)
    images = library("PIL.Image")
    if images is None:
        return Opaque(
            "PIL.Image.Image", f"<{mode} image of {width} x {height}: Pillow is not installed in {HERE}>"
        )
    if not data.nbytes:
        return images.new(mode, (width, height))
    return images.frombytes(mode, (width, height), bytes(data))


DECODERS: dict[str, Decode] = {
    "ndarray": _read_ndarray,
    "numpy": _read_scalar,
    "image": _read_image,
}
