"""The codec of values: round trips, and hostile trees."""

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import json
import math
import os
import pathlib
import random
import sys
import unittest
import uuid
import zoneinfo

from harness import values

SEED = int(os.environ.get("SANDFORK_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
ROUNDS = 1000


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: object


Pair = collections.namedtuple("Pair", "left right")


class Text(str):
    def __len__(self):
        raise RuntimeError("none of a subclass's own code is run")

    encode = __str__ = __getitem__ = __len__


class Numbers(list):
    def __iter__(self):
        raise RuntimeError("none of a subclass's own code is run")


def views(buffers):
    """The buffers as a reader gets them: in one blob."""
    blob = bytearray(b"".join(bytes(piece) for piece in values.pieces(buffers)))
    return values.split(memoryview(blob), [len(buffer) for buffer in buffers])


def there_and_back(value):
    tree, buffers = values.encode(value)
    text = json.dumps(tree, ensure_ascii=False, allow_nan=False).encode("utf-8")
    assert len(text) < 2 << 20 and count_json(tree) < 60_000, "over the bounds of a header"
    return values.decode(json.loads(text), views(buffers))


def count_json(tree):
    if type(tree) is list:
        return 1 + sum(map(count_json, tree))
    if type(tree) is dict:
        return 1 + sum(1 + count_json(part) for part in tree.values())
    return 1


class Same(unittest.TestCase):
    def test_plain_values_come_back_as_they_were(self):
        zone = zoneinfo.ZoneInfo("UTC")
        offset = datetime.timezone(datetime.timedelta(hours=-5, minutes=-30), "here")
        for value in [
            *(None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 16**100_000),
            *(0.0, 1.5, -1e308, 5e-324, math.inf, -math.inf, 1j, complex(math.inf, -0.0)),
            *("", "x", "x" * 32768, "x" * 32769, '\0\x1f"\\', "\ud800", "é\U0010ffff" * 20000),
            *(b"", b"\0\xff", b"x" * 100_000, bytearray(b"abc")),
            *((), [], {}, set(), frozenset(), (1, (2,)), [[]], {1: {2: 3}}, {(1, "a"): [None]}),
            *({1, "a", None}, frozenset([frozenset(), b"x"]), range(0), range(9, -(2**70), -3)),
            *(list(range(256)), [1.5, math.inf] * 128, [2**63] * 256, [True] * 300, [1, 2.0] * 200),
            *(decimal.Decimal("-1.50E+7"), decimal.Decimal("Infinity"), decimal.Decimal("sNaN12")),
            *(fractions.Fraction(-1, 3), uuid.UUID(int=2**127)),
            *(datetime.date.min, datetime.date.max, datetime.time(1, 2, 3, 4, fold=1)),
            *(datetime.time(1, tzinfo=offset), datetime.datetime(2024, 2, 29, 23, 59, 59, 999999)),
            datetime.datetime(2024, 10, 27, 2, 30, tzinfo=zone, fold=1),
            datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc),
            *(datetime.timedelta(-3, 4, 5), datetime.timezone.utc, offset),
            pathlib.PurePosixPath("/a/é b"),
            values.Opaque("a.B", "<b>"),
        ]:
            with self.subTest(value=values.encode(value)[0]):
                back = there_and_back(value)
                self.assertIs(type(back), type(value))
                if type(value) is decimal.Decimal:
                    self.assertEqual(str(back), str(value))
                else:
                    self.assertEqual(back, value)
                if isinstance(value, (datetime.datetime, datetime.time)):
                    self.assertEqual((back.fold, back.utcoffset()), (value.fold, value.utcoffset()))
        self.assertTrue(math.isnan(there_and_back(math.nan)))
        self.assertEqual(math.copysign(1, there_and_back(-0.0)), -1)

    def test_kin_of_plain_values_come_back_as_those(self):
        for value, back in [
            (Text("abc"), "abc"),
            (Numbers([1, 2]), [1, 2]),
            (collections.Counter("aab"), {"a": 2, "b": 1}),
            (collections.defaultdict(list, {1: [2]}), {1: [2]}),
            (memoryview(b"abc"), b"abc"),
            (pathlib.Path("/x"), pathlib.PurePosixPath("/x")),
            (Color.RED, 1),
            (Level.HIGH, 3),
            (Point(1, (2,)), {"x": 1, "y": (2,)}),
            (Pair(1, [2]), (1, [2])),
            ({"a": 1}.keys(), ["a"]),
            ({"a": [1]}.values(), [[1]]),
            ({"a": 1}.items(), [("a", 1)]),
            (collections.deque([1, [2]], maxlen=2), [1, [2]]),
        ]:
            with self.subTest(value=repr(value)):
                found = there_and_back(value)
                self.assertEqual((type(found), found), (type(back), back))
        ordered = collections.OrderedDict([(1, 1), (2, 2)])
        ordered.move_to_end(1)
        self.assertEqual(list(there_and_back(ordered)), [2, 1])

    def test_no_key_is_lost(self):
        red, small = (enum.Enum(name, [(name, 1)])[name] for name in ("RED", "SMALL"))
        alike = [type("Alike", (), {"__repr__": lambda _: "alike"})() for _ in range(2)]
        for value in ({red: "a", small: "b", 1: "c"}, {red, small, 1}, frozenset({red, 1}), set(alike)):
            with self.subTest(value=value):
                found = there_and_back([value, 2])
                self.assertEqual((type(found[0]), found[1]), (values.Opaque, 2))
                self.assertEqual(found[0].name, type(value).__name__)
                left = len(value), "entries, of which 1 stay distinct as values: send it as a list"
                self.assertIn("of %d %s" % left, found[0].repr)
        self.assertEqual(there_and_back({red: "a", 2: "c"}), {1: "a", 2: "c"})

    def test_random_values_come_back_as_they_were(self):
        chance = random.Random(SEED)
        for round in range(ROUNDS):
            value = make(chance, 4)
            with self.subTest(seed=SEED, round=round):
                self.assertEqual(there_and_back(value), value)

    def test_several_values_share_the_buffers_of_a_message(self):
        encoder = values.Encoder()
        trees = [encoder.encode(value) for value in ([b"a"], b"b", "x" * 40_000)]
        decoder = values.Decoder(views(encoder.buffers))
        self.assertEqual([decoder.decode(tree) for tree in trees], [[b"a"], b"b", "x" * 40_000])

    def test_a_large_tree_goes_into_a_buffer(self):
        rows = [
            {
                "id": number,
                "text": "row %d, of many" % number,
                "b": b"%d" % number if number < 99 else None,
            }
            for number in range(20_000)
        ]
        tree, _ = values.encode(rows)
        self.assertEqual(tree["type"], "json")
        self.assertEqual(there_and_back(rows), rows)
        long = ["\x01" * 32_000] * 12
        self.assertEqual(there_and_back(long), long)


def make(chance, depth):
    """A value that equals its decoded copy."""
    if depth and chance.random() < 0.6:
        many = range(chance.choice([0, 1, 2, 5]))
        kind = chance.randrange(5)
        if kind == 0:
            return [make(chance, depth - 1) for _ in many]
        if kind == 1:
            return tuple(make(chance, depth - 1) for _ in many)
        if kind == 2:
            return {make_key(chance): make(chance, depth - 1) for _ in many}
        if kind == 3:
            return {make_key(chance) for _ in many}
        return frozenset(make_key(chance) for _ in many)
    return make_key(chance) if chance.random() < 0.9 else bytearray(chance.randbytes(9))


def make_key(chance):
    return chance.choice(
        [
            lambda: None,
            lambda: chance.random() < 0.5,
            lambda: chance.randrange(-(2**70), 2**70) >> chance.randrange(70),
            lambda: chance.uniform(-1, 1) * 10.0 ** chance.randrange(-300, 300),
            lambda: "".join(chr(chance.randrange(0x110000)) for _ in range(chance.randrange(9))),
            lambda: chance.randbytes(chance.randrange(80)),
            lambda: complex(chance.random(), chance.random()),
            lambda: decimal.Decimal(chance.randrange(10**9)).scaleb(chance.randrange(-9, 9)),
            lambda: fractions.Fraction(chance.randrange(-99, 99), chance.randrange(1, 99)),
            lambda: datetime.datetime.fromordinal(chance.randrange(1, 3_000_000)),
            lambda: datetime.timedelta(chance.randrange(-999, 999), chance.randrange(86400)),
            lambda: uuid.UUID(int=chance.getrandbits(128)),
            lambda: (chance.random(), "x"),
        ]
    )()


if not hasattr(random.Random, "randbytes"):
    sys.exit("Python 3.9 or later is needed")


class Shown(unittest.TestCase):
    """A part that cannot be transferred becomes its repr, and the rest of the value is transferred."""

    def shown(self, value):
        back = there_and_back(value)
        self.assertIs(type(back), values.Opaque)
        return back

    def test_what_has_no_notation(self):
        found = there_and_back([1, object, print, lambda: 0, ...])
        self.assertEqual(found[0], 1)
        self.assertEqual(
            found[2], values.Opaque("builtin_function_or_method", "<built-in function print>")
        )
        self.assertTrue(all(type(part) is values.Opaque for part in found[1:]))

    def test_an_iterator_says_what_to_pass_in_place_of_it(self):
        for value in (iter([1]), map(abs, []), (n for n in [])):
            back = self.shown(value)
            said = "%r\n<not passed as a value: an iterator: pass list(...) of it>" % value
            self.assertEqual(repr(back), said)
            with self.assertRaisesRegex(AttributeError, r"pass list\(\.\.\.\) of it"):
                back.gi_frame

    def test_cycles_end_where_they_close(self):
        cycle = [1]
        cycle.append({"back": cycle})
        self.assertEqual(there_and_back(cycle), [1, {"back": values.Opaque("list", "...")}])
        of_values = {}
        of_values[1] = of_values.values()
        self.assertEqual(there_and_back(of_values), {1: [values.Opaque("dict_values", "...")]})
        twice = [1]
        self.assertEqual(there_and_back([twice, twice]), [[1], [1]])

    def test_what_is_too_deep_or_too_much(self):
        deep = []
        for _ in range(1000):
            deep = [deep]
        there_and_back(deep)
        wide = [0]
        for _ in range(64):
            wide = [wide, wide]
        self.assertIn("too large", self.shown(wide).repr)
        self.assertIn("too large", self.shown([b""] * 20_000).repr)
        self.assertEqual(self.shown(1 << 5_000_000).repr, "<int of 5000001 bits>")
        self.assertLess(
            len(self.shown(type("T", (), {"__repr__": lambda _: "x" * 10**7})()).repr), 20_000
        )

    def test_images_of_16_bits(self):
        try:
            from PIL import Image
        except ImportError:
            self.skipTest("no Pillow")
        for mode in ("I;16", "I;16L", "I;16B"):
            image = Image.new(mode, (2, 1))
            image.putpixel((1, 0), 40_000)
            back = there_and_back(image)
            self.assertEqual((back.mode, back.getpixel((0, 0)), back.getpixel((1, 0))), ("I", 0, 40_000))

    def test_hostile_objects(self):
        def fail(*_):
            raise SystemExit("of the object")

        class Meta(type):
            __module__ = property(fail)
            __getattribute__ = fail

        class Hidden(metaclass=Meta):
            pass

        class Lies:
            __class__ = property(lambda _: dict)
            __repr__ = fail

            def __getattr__(self, name):
                raise KeyError(name)

        class BadEnum(enum.Enum):
            A = 1
            value = property(lambda _: 1 / 0)

        @dataclasses.dataclass
        class BadFields:
            x: int

            def __getattribute__(self, name):
                raise ValueError(name)

        self.assertIn("repr raises SystemExit", self.shown(Lies()).repr)
        for value in (Hidden(), BadEnum.A, BadFields(1), type.__call__(Meta, "N", (), {})):
            self.shown(value)
        self.assertEqual(
            there_and_back({"a": Lies()})["a"].name,
            f"{__name__}.{Shown.__name__}.test_hostile_objects.<locals>.Lies",
        )

    def test_a_repr_can_be_interrupted(self):
        class Interrupted:
            def __repr__(self):
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            values.encode([Interrupted()])

    def test_keys_stay_hashable(self):
        class Key(list):
            __hash__ = object.__hash__

        back = there_and_back({Point(1, 2): 1, Key(): 2, (Point(3, 4),): 3})
        self.assertEqual(sorted(back.values()), [1, 2, 3])


def refuse(test, tree, *buffers, work=values.MAX_VALUES):
    with test.subTest(tree=repr(tree)[:100]), test.assertRaises(ValueError) as refused:
        values.Decoder([memoryview(buffer) for buffer in buffers], work).decode(tree)
    return str(refused.exception)


class Refused(unittest.TestCase):
    refuse = refuse

    def test_malformed_trees(self):
        for tree in [
            *({}, {"type": 1}, {"type": "nothing"}, {"type": ["list"]}, 2**63, b"", (1,), object()),
            *({"type": "int"}, {"type": "int", "hex": "0x1"}, {"type": "int", "hex": "1_0"}),
            *({"type": "float", "text": "1"}, {"type": "complex", "real": 1, "imag": 1.0}),
            *({"type": "tuple", "items": 1}, {"type": "set", "items": [[]]}),
            *({"type": "dict", "items": [1]}, {"type": "dict", "items": [[1]]}),
            *(
                {"type": "dict", "items": [[[], 1]]},
                {"type": "dataclass", "name": "", "fields": [[1, 1]]},
            ),
            *({"type": "range", "start": 0, "stop": 1, "step": 0}, {"type": "opaque", "name": "x"}),
            *({"type": "decimal", "text": "1" * 5000}, {"type": "decimal", "text": " 1"}),
            {"type": "decimal", "text": "1E" + "9" * 19},
            *({"type": "fraction", "text": "1/0"}, {"type": "fraction", "text": "1e999999999"}),
            *({"type": "date", "text": "x"}, {"type": "uuid", "hex": "{" * 32}),
            {"type": "datetime", "text": "2024-01-01", "fold": 2},
            {"type": "datetime", "text": "2024-01-01", "fold": 0, "zone": "../../etc/passwd"},
            {"type": "timedelta", "days": 10**12, "seconds": 0, "microseconds": 0},
            *({"type": "timezone", "seconds": 10**9}, {"type": "path", "text": b"x"}),
            *({"type": "path", "text": "/a" * 20_000}, {"type": "int", "hex": "f" * 300_000}),
            {"type": "range", "start": 0, "stop": {"type": "int", "hex": "f" * 9999}, "step": 3},
        ]:
            self.refuse(tree)
        deep = 1
        for _ in range(100):
            deep = [deep]
        self.refuse(deep)

    def test_buffers(self):
        for index in (-1, 1, 2**70, True, "0", None):
            self.refuse({"type": "bytes", "buffer": index}, b"x")
        self.refuse([{"type": "bytes", "buffer": 0}] * 2, b"x")
        self.refuse({"type": "text", "buffer": 0}, b"\xff")
        self.refuse({"type": "packed", "format": "i8", "buffer": 0}, b"x" * 9)
        self.refuse({"type": "packed", "format": "O", "buffer": 0}, b"x" * 8)
        with self.assertRaises(ValueError):
            values.layout([-1])
        with self.assertRaises(ValueError):
            values.layout([True])
        for lengths in ([3], [1, 1], [2**62] * 2):
            with self.assertRaises(ValueError):
                values.split(memoryview(b"xx"), lengths)

    def test_json_in_a_buffer(self):
        for text in (
            *(b"", b"\xff", b"[", b"[1]x", b"NaN", b"1" * 5000, b'{"type": "json", "buffer": 0}'),
            *(b"[" * 100_000, b'{"a":' * 100_000, b"[" * 200 + b"]" * 200),
            b"[" + b"[]," * (2 << 20) + b"[]]",
        ):
            self.refuse({"type": "json", "buffer": 0}, text)
        self.refuse({"type": "json", "buffer": 0}, b'{"type": "json", "buffer": 1}', b"1")
        commas = json.dumps([",[{:" * 8000] * 200).encode()
        found = values.decode({"type": "json", "buffer": 0}, [memoryview(commas)])
        self.assertEqual(len(found), 200)

    def test_mutated_trees_cause_nothing_but_an_error(self):
        chance = random.Random(SEED)
        samples = [make(chance, 4) for _ in range(200)] + [Point(1, 2), Color.RED, list(range(300))]
        samples += library_values()
        for round in range(ROUNDS * 3):
            tree, buffers = values.encode(chance.choice(samples))
            tree = mutate(chance, json.loads(json.dumps(tree)))
            with self.subTest(seed=SEED, round=round):
                try:
                    values.decode(tree, views(buffers))
                except ValueError:
                    pass


class Work(unittest.TestCase):
    """The work of reading a message is bounded for all of its values together."""

    refuse = refuse

    def test_keys_that_were_made_to_collide(self):
        step = (1 << 61) - 1
        items = [{"type": "int", "hex": "%x" % (number * step)} for number in range(5000)]
        self.refuse({"type": "set", "items": items})
        self.refuse({"type": "dict", "items": [[item, 1] for item in items]})
        halves = [{"type": "set", "items": items[:1500]}, {"type": "set", "items": items[1500:3000]}]
        values.decode(halves[0])
        self.refuse(halves)

    def test_keys_that_take_long_to_compare(self):
        # Comparing a million bits with decimal digits takes seconds for each pair.
        step = (1 << 61) - 1
        large = {"type": "int", "hex": "%x" % ((1 << 999_990) // step * step + 5)}
        others = [{"type": "decimal", "text": str(5 + step * number)} for number in range(1, 400)]
        self.refuse({"type": "set", "items": [large, *others]})
        self.assertEqual(len(values.decode({"type": "set", "items": others})), 399)
        self.assertEqual(len(values.decode({"type": "set", "items": [large, *range(6, 16)]})), 11)

    def test_members_of_members_that_collide(self):
        # Equal sets with equal hashes: comparing two compares each pair of their members.
        step = (1 << 61) - 1

        def nested(depth, leaf):
            if not depth:
                return [{"type": "int", "hex": "%x" % (leaf + step * n)} for n in range(8)]
            inner = [
                {"type": "frozenset", "items": nested(depth - 1, n if depth > 1 else leaf + 8 * step * n)}
                for n in range(2)
            ]
            return [
                {"type": "tuple", "items": [part, sign]} for part in inner for sign in (-1, -2)
            ]

        twins = [{"type": "frozenset", "items": nested(5, 1)} for _ in range(2)]
        self.refuse({"type": "set", "items": twins})

    def test_keys_of_one_hash_that_honest_values_have(self):
        edge = range(-2, 3)
        grid = {(a, b, c, d) for a in edge for b in edge for c in edge for d in edge}
        for value in (
            *(grid, {frozenset(point): point for point in grid}, {2**n for n in range(1000)}),
            *({2.0**n: n for n in range(-900, 900)}, {fractions.Fraction(n, 7) for n in range(99)}),
        ):
            self.assertEqual(there_and_back(value), value)

    def test_a_table_that_takes_long_to_fill(self):
        # Keys can be made to collide in a table although their hashes differ. Only the time shows it.
        module, now = sys.modules["values.decode"], 0.0
        real = module.thread_time

        def clock():
            nonlocal now
            now += 0.01
            return now

        tree, buffers = values.encode(set(range(200_000)) | {None})
        self.assertEqual(len(values.decode(tree, views(buffers))), 200_001)
        module.thread_time = clock
        try:
            self.assertIn("collide", self.refuse(tree, *buffers))
        finally:
            module.thread_time = real
        self.assertLess(now, 5)

    def test_json_is_counted_in_one_pass(self):
        # An unterminated string with the maximum of escapes, after enough data to make the cost visible.
        self.refuse({"type": "json", "buffer": 0}, b"[" + b"," * (5 << 20) + b'"' + b'\\"' * (4 << 20))
        self.refuse({"type": "json", "buffer": 0}, b"[" + b'"' * (8 << 20))
        chance = random.Random(SEED)
        for _ in range(200):
            tree = values.encode(make(chance, 4))[0]
            texts = ['\\"', "\\\\", ",[{:", '"', "\n", "é"]
            tree = [tree, "".join(chance.choice(texts) for _ in range(9))]
            text = json.dumps(tree, ensure_ascii=chance.random() < 0.5).encode()
            with self.subTest(seed=SEED, text=text):
                bare = json.dumps(bare_json(tree)).encode()
                expected = sum(map(bare.count, (b",", b"[", b"{", b":")))
                self.assertEqual(values.check_json(text), expected)

    def test_json_is_counted_for_all_buffers_of_a_message(self):
        text = b"[" + b",".join([b'{"type":"set","items":[]}'] * 10_000) + b"]"
        parts = [{"type": "json", "buffer": number} for number in range(2)]
        values.Decoder([memoryview(text)], work=100_000).decode(parts[0])
        self.refuse(parts, text, text, work=100_000)
        self.refuse({"type": "json", "buffer": 0}, b"[" + b"0," * 100 + b"0]", work=99)
        encoder = values.Encoder()
        encoder.spend(values.MAX_VALUES - 80_000)
        found = [encoder.encode([None] * 30_000)["type"] for _ in range(4)]
        self.assertEqual(found, ["json", "json", "opaque", "opaque"])

    def test_each_kind_of_work_is_counted(self):
        digits = "7" * 4300
        for tree, *buffers in (
            ({"type": "fraction", "text": f"{digits}/{digits}1"[:-1]},),
            ({"type": "packed", "format": "i8", "buffer": 0}, bytes(1 << 20)),
            ({"type": "path", "text": "/a" * 16_000},),
            ({"type": "image", "mode": "1", "size": [2048, 2048], "buffer": 0}, bytes(1 << 19)),
            ({"type": "datetime", "text": "2024-01-01", "fold": 0, "zone": "No/Where"},),
        ):
            values.decode(tree, [memoryview(buffer) for buffer in buffers])
            self.assertIn("too much work", self.refuse(tree, *buffers, work=400))

    def test_zones_are_looked_for_once_and_nowhere_else(self):
        asked = []
        real = zoneinfo.ZoneInfo
        zoneinfo.ZoneInfo = lambda name: asked.append(name) or real(name)
        try:
            stamp = {"type": "datetime", "text": "2024-01-01", "fold": 0}
            self.assertEqual(
                len(values.decode([{**stamp, "zone": "No/Where"}, {**stamp, "zone": "UTC"}] * 50)), 100
            )
            self.assertEqual(asked, ["No/Where", "UTC"])
            for zone in ("/etc/passwd", "../x", "a//b", "__pycache__/x", "a/", "-a", "a/../b", "x" * 99):
                self.refuse({**stamp, "zone": zone})
            self.refuse([{**stamp, "zone": "No/N%d" % number} for number in range(10_000)])
            self.assertLess(len(asked), 6000)
        finally:
            zoneinfo.ZoneInfo = real

    def test_an_error_is_short(self):
        self.assertLess(len(self.refuse({"type": "date", "text": "x" * 100_000})), 300)


def bare_json(tree):
    """The same with empty strings."""
    if type(tree) is list:
        return [bare_json(part) for part in tree]
    if type(tree) is dict:
        return {name: bare_json(part) for name, part in tree.items()}
    return "" if type(tree) is str else tree


class Tables(unittest.TestCase):
    """Labels are sorted by comparison, because keys can be made to collide in pandas' hash tables."""

    refuse = refuse

    def setUp(self):
        try:
            import numpy
            import pandas
        except ImportError:
            self.skipTest("pandas is missing")
        self.numpy, self.pandas = numpy, pandas
        # Opened while a tree is decoded.
        self.opened = None
        sys.addaudithook(self.audit)

    def audit(self, event, arguments):
        if self.opened is not None and event in ("open", "os.open", "os.listdir", "os.scandir"):
            self.opened.append(str(arguments[0]))

    def colliding(self, count):
        """Numbers with the same hash in pandas' hash of integers."""
        keys = self.numpy.arange(1, count + 1, dtype="i8")
        low = keys ^ ((keys << 11) & 0xFFFFFFFF)
        low ^= (low << 22) & 0xFFFFFFFF
        return (keys << 33) | low

    def column(self, array):
        tree, (buffer,) = values.encode(array)
        return {"dtype": str(array.dtype), "values": {**tree, "buffer": None}}, bytes(buffer)

    def place(self, tree, buffers):
        """Numbers the buffers of a handwritten tree."""
        if type(tree) is dict:
            if "buffer" in tree:
                tree["buffer"] = next(buffers)
            for part in tree.values():
                self.place(part, buffers)
        elif type(tree) is list:
            for part in tree:
                self.place(part, buffers)
        return tree

    def series(self, data, *levels):
        index = {"type": "range-index", "start": 0, "stop": 1, "step": 1, "name": None}
        if levels:
            codes = json.dumps(self.column(self.numpy.zeros(data["values"]["shape"], "i1"))[0])
            parts = [{**json.loads(codes), "dtype": "level", "categories": level} for level in levels]
            index = {"type": "index", "names": [None] * len(levels), "data": parts}
        tree = {"type": "series", "name": None, "index": index, "data": data}
        return self.place(tree, iter(range(99)))

    def test_levels_and_categories_that_collide(self):
        keys = self.colliding(300_000)
        plain, content = self.column(keys)
        row, zero = self.column(self.numpy.zeros(1, "i8"))
        tree = self.series(row, plain, {"dtype": "object", "values": ["a"]})
        found = values.decode(tree, [memoryview(part) for part in (b"\0", content, b"\0", zero)])
        self.numpy.testing.assert_array_equal(found.index.levels[0], keys)
        one, code = self.column(self.numpy.zeros(1, "i4"))
        self.numpy.random.default_rng(SEED).shuffle(keys)
        for labels, good in ((self.numpy.sort(keys), True), (keys, False)):
            plain, content = self.column(labels)
            tree = self.series({**one, "dtype": "category", "categories": plain})
            if good:
                found = values.decode(tree, [memoryview(code), memoryview(content)])
                self.assertEqual(len(found.cat.categories), len(keys))
                self.assertIn("category", repr(found))
            else:
                self.assertIn("too much work", self.refuse(tree, code, content))

    def test_objects_that_collide(self):
        step = (1 << 61) - 1
        keys = [{"type": "int", "hex": "%x" % (number * step)} for number in range(10, 6000)]
        row, zero = self.column(self.numpy.zeros(1, "i8"))
        labels = {"dtype": "object", "values": keys}
        self.assertIn("too much work", self.refuse(self.series(row, labels), b"\0", zero))
        one, code = self.column(self.numpy.zeros(1, "i4"))
        tree = self.series({**one, "dtype": "category", "categories": labels})
        self.assertIn("too much work", self.refuse(tree, code))

    def test_objects_that_take_long_to_compare(self):
        step = (1 << 61) - 1
        large = {"type": "int", "hex": "%x" % ((1 << 999_990) // step * step + 5)}
        others = [{"type": "decimal", "text": str(5 + step * number)} for number in range(1, 400)]
        wrapped = [{"type": "tuple", "items": [key]} for key in (large, *others)]
        row, zero = self.column(self.numpy.zeros(1, "i8"))
        for keys in ([large, *others], [*others, large], wrapped):
            tree = self.series(row, {"dtype": "object", "values": keys})
            self.assertIn("too much work", self.refuse(tree, b"\0", zero))
        # Their hashes differ, and they cannot be sorted.
        digits = [{"type": "decimal", "text": str(number)} for number in range(6, 306)]
        keys = [{"type": "tuple", "items": [part]} for part in (large, *digits)]
        tree = self.series(row, {"dtype": "object", "values": keys})
        found = values.decode(tree, [memoryview(b"\0"), memoryview(zero)])
        self.assertEqual(len(found.index.levels[0]), 301)

    def test_codes_of_levels_that_have_no_label(self):
        row, zero = self.column(self.numpy.zeros(1, "i8"))
        tree = self.series(row, {"dtype": "object", "values": ["a"]})
        self.assertEqual(values.decode(tree, [memoryview(b"\xff"), memoryview(zero)]).index.codes[0][0], -1)
        for code in (b"\1", b"\xfe"):
            self.assertIn("out of range for its labels", self.refuse(json.loads(json.dumps(tree)), code, zero))
        tree["index"]["data"][0]["values"]["dtype"] = "|u1"
        self.assertIn("not integers", self.refuse(tree, b"\0", zero))
        tree["index"].update(names=[None] * 2, data=[{"dtype": "object", "values": ["a"]}] * 2)
        self.assertIn("not made of levels", self.refuse(tree, b"\0", zero))

    def test_columns_that_collide(self):
        # Showing a frame looks up its columns.
        labels, content = self.column(self.colliding(30_000))
        labels["values"]["buffer"] = 0
        tree = {
            "type": "dataframe",
            "columns": {"type": "index", "names": [None], "data": [labels]},
            "index": {"type": "range-index", "start": 0, "stop": 0, "step": 1, "name": None},
            "data": [{"dtype": "object", "values": []}] * 30_000,
        }
        self.assertIn("too much work", self.refuse(tree, content))

    def test_indexes_of_several_levels_come_back(self):
        pandas = self.pandas
        moments = pandas.date_range("2024", periods=4, tz="Europe/Vienna")
        dates = [datetime.date(2024, 1, day) for day in (3, 1, 3, 2)]
        for levels in (
            *(([3, 1, 3, 2], ["b", None, "a", "b"]), ([1.5, math.nan, -0.0, 0.0], [True, False] * 2)),
            *((moments, moments.tz_convert(None)), (dates, [(1, 2), (1,), (1, 2), "x"])),
            (pandas.array([1, None, 2, 1], dtype="Int64"), pandas.Categorical([*"bab", None])),
            (pandas.array(["x", None, "y", "x"], dtype="string"), [10**30, -1, -2, 1]),
            (pandas.to_timedelta([3, 1, 2, 1]), [decimal.Decimal(1), 1, None, "1"]),
        ):
            index = pandas.MultiIndex.from_arrays(levels, names=["a", "b"])
            for value in (pandas.Series(range(4), index), pandas.DataFrame([range(4)], columns=index)):
                found = there_and_back(value)
                same = {"Series": "series", "DataFrame": "frame"}[type(value).__name__]
                getattr(pandas.testing, f"assert_{same}_equal")(found, value)
                self.assertEqual(repr(found), repr(value))
                labels = found.index if value.ndim == 1 else found.columns
                for level, sent in zip(labels.levels, index.levels):
                    self.assertEqual(list(map(repr, level)), list(map(repr, sent)))

    def test_levels_keep_their_numbers_and_their_order(self):
        pandas = self.pandas
        large = pandas.MultiIndex.from_tuples([("a", 2**60 + 1), ("a", 2**60 + 2), ("b", None)])
        found = there_and_back(large)
        self.assertEqual(found.levels[1].tolist(), [2**60 + 1, 2**60 + 2])
        self.assertEqual((found[0], found[1]), (large[0], large[1]))
        sizes = pandas.DataFrame({"c": [*"xxx"], "size": [*"SML"], "n": [1, 2, 3]})
        grouped = sizes.groupby(["c", "size"], sort=False).n.sum()
        self.assertEqual(list(there_and_back(grouped).unstack()), [*"SML"])
        few = there_and_back(pandas.Series(range(1000), pandas.MultiIndex.from_product([range(1000), ["a"]]))[:3])
        self.assertEqual(few.index.levels[0].tolist(), [0, 1, 2])
        one = there_and_back(pandas.MultiIndex.from_arrays([[2, 1]], names=["x"]))
        self.assertEqual((one.nlevels, one.tolist(), one.names[0]), (1, [(2,), (1,)], "x"))
        both = [enum.Enum(name, [(name, 1)])[name] for name in ("RED", "BLUE")]
        self.assertEqual(there_and_back(pandas.MultiIndex.from_arrays([both])).tolist(), [(1,), (1,)])

    def test_zones_come_back(self):
        hour = datetime.timedelta(hours=1)
        for zone in ("UTC", "Europe/Vienna", "Etc/GMT+3", "America/Argentina/Buenos_Aires"):
            self.same_moments(zone)
        for offset in (5.5 * hour, -5 * hour, hour + datetime.timedelta(seconds=7)):
            self.same_moments(datetime.timezone(offset))

    def same_moments(self, zone):
        moments = self.pandas.date_range("2024-03-30", periods=4, freq="12h", tz=zone)
        for value in (self.pandas.Series(moments), self.pandas.Series(range(4), moments)):
            found = there_and_back(value)
            self.pandas.testing.assert_series_equal(found, value, check_freq=False)

    def test_zones_open_no_file_that_they_name(self):
        moment, content = self.column(self.numpy.zeros(1, "M8[ns]"))
        names = ["dateutil//proc/kmsg", "dateutil//etc/hostname", "/etc/hostname", "../etc/hostname"]
        names += ["dateutil/Europe/Vienna", "dateutil/hostname", "tzlocal", "No/Where", "UTC+99:00"]
        text, letters = values.encode(self.numpy.array(["2024-01-01"]))
        self.same_moments("Europe/Vienna")
        for name in names:
            tree = self.series({**moment, "dtype": f"datetime64[ns, {name}]"})
            self.opened = []
            try:
                values.decode(tree, [memoryview(content)])
            except ValueError:
                pass
            opened, self.opened = self.opened, None
            own = (*zoneinfo.TZPATH, *sys.path, sys.prefix, sys.base_prefix)
            self.assertEqual([path for path in opened if not path.startswith(own)], [], name)
        tree = self.series({"dtype": "datetime64[ns, UTC]", "values": text})
        self.refuse(tree, bytes(letters[0]))

    def test_columns_of_texts_do_not_come_as_arrays(self):
        # Each of their characters would become an object.
        for dtype in ("<U1", "|S1"):
            plain, content = self.column(self.numpy.array(["x"]).astype(dtype))
            self.refuse(self.series(plain), content)


def mutate(chance, tree):
    """Changes a random part of the tree."""
    if chance.random() < 0.15 or not isinstance(tree, (list, dict)) or not tree:
        return chance.choice(
            [
                *(None, -1, 0, 1, 7, 2**63, 1.5, "", "x", "O", "<f8", "|b1", "category", "Int64"),
                *([], {}, [[1, 2]], [2**40] * 4, {"type": "bytes", "buffer": 0}),
                *({"type": "tuple", "items": [1]}, {"type": "ndarray"}, "datetime64[ns, UTC]"),
            ]
        )
    if isinstance(tree, list):
        place = chance.randrange(len(tree))
        tree[place] = mutate(chance, tree[place])
    elif chance.random() < 0.1:
        tree.pop(chance.choice(list(tree)))
    else:
        name = chance.choice(list(tree))
        tree[name] = mutate(chance, tree[name])
    return tree


def library_values():
    """Values of the installed packages."""
    found = []
    try:
        import numpy

        found += [numpy.arange(6).reshape(2, 3), numpy.array([True, False]), numpy.float32(1)]
        found += [numpy.array(["a", "bc"]), numpy.datetime64("2024-01-01"), numpy.zeros((0, 3))]
        import pandas

        frame = pandas.DataFrame(
            {"a": [1, 2], "b": ["x", None], "c": pandas.Categorical(["u", "v"])}
        )
        frame["d"] = pandas.array([1, None], dtype="Int64")
        frame["e"] = pandas.date_range("2024", periods=2, tz="UTC")
        found += [frame, frame.set_index(["a", "b"]), frame["d"], frame["e"]]
        from PIL import Image

        found += [Image.new("RGB", (3, 2)), Image.new("1", (9, 2))]
    except ImportError:
        pass
    return found


if __name__ == "__main__":
    print("SANDFORK_TEST_SEED=%d" % SEED)
    unittest.main()
