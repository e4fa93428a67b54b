"""Tests of displays: objects with their own representations, figures, tables, pictures."""

import base64
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from harness import Worker

PNG = b"\x89PNG\r\n\x1a\n"
NEEDED = ("matplotlib", "numpy", "pandas", "PIL")


def needs(name):
    """Skips a test if the package is missing. The environments of `cargo xtask test` have all packages."""
    missing = importlib.util.find_spec(name) is None
    may_skip = not os.environ.get("SANDFORK_FORBID_SKIPS")
    return unittest.skipIf(missing and may_skip, f"{name} is not installed")


class Displays(unittest.TestCase):
    def setUp(self):
        self.worker = Worker()
        self.addCleanup(self.worker.close)

    def shown(self, source, status="ok", **options):
        outcome = self.worker.cell(source, **options)
        self.assertEqual(outcome.status, status, outcome)
        return outcome.displays

    def test_plain_values_are_not_displayed(self):
        for source in ("1", "'a'", "[1]", "{}", "None", "b''", "range(3)", "x = object()"):
            self.assertEqual(self.shown(source), [])

    def test_a_container_is_shown_if_its_value_has_another_text(self):
        self.worker.value("import enum, collections, decimal\nclass C(enum.Enum): RED = 1")
        for source, text in (
            ("[C.RED]", "[<C.RED: 1>]"),
            ("{'a': collections.Counter('b')}", "{'a': Counter({'b': 1})}"),
            ("(memoryview(b''), [C])[1:], C.RED", None),
        ):
            ((data, main),) = self.shown(source)
            self.assertTrue(main)
            self.assertEqual(data["text/plain"], text or "(([<enum 'C'>],), <C.RED: 1>)")
        for source in ("[C.RED];", "[decimal.Decimal(1), ..., object()]", "[C.RED] * 30_000"):
            self.assertEqual(self.shown(source), [])

    def test_values_with_representations_are_displayed(self):
        source = (
            "class Rich:\n"
            "    def __repr__(self): return 'plain'\n"
            "    def _repr_html_(self): return '<b>'\n"
            "    def _repr_png_(self): return b'\\x89PNG', {'width': 3}\n"
            "    def _repr_jpeg_(self): return b'jpeg'\n"
            "    def _repr_json_(self): return {'a': [1]}\n"
            "    def _repr_latex_(self): return None\n"
            "    def _repr_svg_(self): raise ValueError\n"
            "Rich()"
        )
        data = {"text/plain": "plain", "text/html": "<b>", "image/png": b"\x89PNG"}
        data["application/json"] = '{"a": [1]}'
        self.assertEqual(self.shown(source), [(data, True)])
        self.assertEqual(self.shown("y = Rich()\ny", last="statement"), [])
        self.assertEqual(self.shown("object"), [({"text/plain": "<class 'object'>"}, True)])

    def test_bundles(self):
        picture = base64.b64encode(PNG).decode()
        source = (
            "class Bundle:\n"
            "    def _repr_mimebundle_(self, include=None, exclude=None):\n"
            f"        return {{'image/png': {picture!r}, 'x/y': {{'k': 1}}, 'text/plain': 'own'}}, {{}}\n"
            "Bundle()"
        )
        data = {"text/plain": "own", "image/png": PNG, "x/y": '{"k": 1}'}
        self.assertEqual(self.shown(source), [(data, True)])

    def test_display(self):
        shown = self.shown("display(1, 'a')\nprint('b')\ndisplay({'text/html': '<i>'}, raw=True)\n2")
        data = [{"text/plain": "1"}, {"text/plain": "'a'"}, {"text/html": "<i>"}]
        self.assertEqual(shown, [(each, False) for each in data])
        shown = self.shown("from sandfork_host import display as show\nh = show(3, include=['text/plain'], display_id=True)")
        self.assertEqual(shown, [({"text/plain": "3"}, False)])
        self.assertEqual(self.shown("h.update(4)\nh.display(5)"), [({"text/plain": text}, False) for text in "45"])
        self.assertEqual(self.worker.value("display(1), display(1, display_id='a').display_id"), (None, "a"))
        self.assertEqual(self.shown("show(3, exclude=['text/plain'])"), [])
        module = "import sys, types\nm = types.ModuleType('m')\nexec('def f(): display(4)', vars(m))\nm.f()"
        self.assertEqual(self.shown(module), [({"text/plain": "4"}, False)])

    def test_a_value_over_the_file_limit_is_named(self):
        self.worker.value("import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))")
        found = self.worker.value("bytes(1 << 20)")
        self.assertEqual((found.name, found.repr), ("bytes", "<not passed: larger than `limits.file_size`>"))

    def test_a_cell_displays_a_bounded_amount(self):
        large = "class L:\n    def _repr_png_(self): return bytes(16 << 20)\n"
        outcome = self.worker.cell(large + "for _ in range(5):\n    display(L())")
        self.assertEqual((outcome.status, len(outcome.displays)), ("exception", 3))
        self.assertEqual(outcome.error["message"], "a cell may display 64 MiB: write the rest to files")
        # The limit applies to each cell.
        self.assertEqual(len(self.shown("display(L())")), 1)

    def test_objects_that_display_themselves(self):
        source = "class Own:\n    def _ipython_display_(self): display('by itself')\nOwn()"
        self.assertEqual(self.shown(source), [({"text/plain": "'by itself'"}, False)])

    def test_objects_that_have_every_attribute(self):
        source = (
            "class Any:\n"
            "    def __getattr__(self, name): return lambda *a, **k: 'anything'\n"
            "    def __repr__(self): return 'any'\n"
            "Any()"
        )
        self.assertEqual(self.shown(source), [({"text/plain": "any"}, True)])
        self.assertEqual(len(self.shown("from unittest.mock import MagicMock\nMagicMock()")[0][0]), 1)
        self.assertEqual(list(self.shown("class T:\n    _repr_html_ = 5\nT()")[0][0]), ["text/plain"])

    def test_a_semicolon_after_a_cell_shows_nothing(self):
        self.assertEqual(self.shown("x = [1]\n_ = None"), [])
        for end in (";", " ;", "; # a comment", ";\n\n", ";  "):
            self.assertEqual(self.shown("object" + end), [], end)
            self.assertEqual(self.shown("'a'" + end, last="notebook"), [], end)
        for source in ("object", "object # ;", "1; object", "(object\n # ;\n)", "'\u00e9;'; object"):
            self.assertEqual(len(self.shown(source)), 1, source)
        self.assertEqual(len(self.shown("';'", last="notebook")), 1)
        self.assertEqual(self.shown("'\u00e9\u00e9'; (object);"), [])
        self.assertEqual(self.worker.value("6 * 7;"), 42)

    def test_the_result_marks_a_value_that_is_not_shown(self):
        for source, quiet in (("1;", True), ("1", None), ("x = 3;", True), ("1; 2", None), ("%time 1;", None)):
            self.assertEqual(self.worker.cell(source).header.get("quiet"), quiet, source)

    def test_sizes_are_bounded(self):
        source = (
            "class Big:\n"
            "    def __repr__(self): return 'x' * 10**6\n"
            "    def _repr_html_(self): return 'y' * (17 << 20)\n"
            "    def _repr_png_(self): return b'z' * (1 << 20)\n"
            "Big()"
        )
        ((data, _),) = self.shown(source)
        self.assertLess(len(data["text/plain"]), 20_000)
        self.assertEqual(list(data), ["text/plain", "image/png"])
        reason = "\n<text/html of 17825792 bytes, more than the 16777216 that are shown>"
        self.assertEqual(data["text/plain"][-len(reason) - 1 :], "x" + reason)
        self.assertEqual(data["image/png"], b"z" * (1 << 20))

    def test_threads_and_children(self):
        shown = self.shown("import threading\nt = threading.Thread(target=display, args=(1,))\nt.start()\nt.join()")
        self.assertEqual(shown, [({"text/plain": "1"}, False)])
        source = (
            "import os\npid = os.fork()\n"
            "if not pid:\n    try: display(1)\n    except RuntimeError: os._exit(3)\n"
            "assert os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == 3"
        )
        self.assertEqual(self.shown(source), [])

    def test_ipython_clears_no_output(self):
        with tempfile.TemporaryDirectory() as directory, Worker() as worker:
            Path(directory, "IPython", "core").mkdir(parents=True)
            for name, text in (
                ("__init__.py", ""),
                ("core/__init__.py", ""),
                ("core/display_functions.py", "def clear_output(wait=False): print('\\33[2K')\n"),
                ("display.py", "from IPython.core.display_functions import *\n"),
            ):
                Path(directory, "IPython", name).write_text(text)
            path = f"import sys\nsys.path.append({directory!r})\n"
            worker.value(path + "from IPython.display import clear_output\nclear_output(wait=True)")
            self.assertEqual(worker.output(), ("", ""))

    def test_ipython_display_is_replaced(self):
        """Works with the module paths of new and of old versions of the package."""
        for place in ("display_functions", "display"):
            with tempfile.TemporaryDirectory() as directory, Worker() as worker:
                core = Path(directory, "IPython", "core")
                core.mkdir(parents=True)
                Path(directory, "IPython", "__init__.py").touch()
                (core / "__init__.py").touch()
                (core / f"{place}.py").write_text("def display(*objects): print(*objects)\n")
                Path(directory, "IPython", "display.py").write_text(f"from IPython.core.{place} import *\n")
                source = f"import sys\nsys.path.append({directory!r})\nfrom IPython.display import display as d\nd(5)"
                self.assertEqual(worker.cell(source).displays, [({"text/plain": "5"}, False)])


class Figures(unittest.TestCase):
    def setUp(self):
        self.worker = Worker()
        self.addCleanup(self.worker.close)

    def pictures(self, source, **options):
        outcome = self.worker.cell(source, **options)
        for data, _ in outcome.displays:
            self.assertTrue(data["image/png"].startswith(PNG))
        return [(data["text/plain"], main) for data, main in outcome.displays], outcome

    @needs("matplotlib")
    def test_open_figures_are_shown_at_the_end_of_a_cell(self):
        one = ("Figure(640x480)", False)
        self.assertEqual(self.pictures("import matplotlib.pyplot as plt\nplt.plot([1, 2]);\nNone")[0], [one])
        self.assertEqual(self.pictures("plt.get_fignums()")[0], [])
        self.assertEqual(self.pictures("plt.figure(); plt.plot([1])\nplt.figure(); plt.plot([2])\nNone")[0], [one] * 2)
        shown, outcome = self.pictures("plt.plot([1])\n1/0")
        self.assertEqual((shown, outcome.status), ([one], "exception"))
        self.assertEqual(self.pictures("plt.figure()\nNone")[0], [])
        self.assertEqual(self.pictures("plt.plot([1])", last="statement")[0], [one])

    @needs("matplotlib")
    def test_a_figure_of_an_interrupted_cell_is_not_shown_by_the_next_one(self):
        source = "import matplotlib.pyplot as plt\nplt.plot([1])\nprint('x', flush=True)\nimport time\ntime.sleep(60)"
        self.worker.begin(source)
        self.worker.wait_for_output("x")
        self.worker.interrupt()
        self.assertEqual(self.worker.outcome().error["name"], "KeyboardInterrupt")
        self.assertEqual(self.pictures("1")[0], [])

    @needs("matplotlib")
    def test_show(self):
        source = "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\nplt.plot([2])\nplt.show(block=True)\ndisplay(1)"
        outcome = self.worker.cell(source)
        self.assertEqual([sorted(data) for data, _ in outcome.displays], [["image/png", "text/plain"]] * 2 + [["text/plain"]])
        self.assertEqual(self.worker.output(), ("", ""))

    @needs("matplotlib")
    def test_a_figure_as_value_is_shown_once(self):
        shown, _ = self.pictures("import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1])\nfig")
        self.assertEqual(shown, [("Figure(640x480)", True)])

    @needs("matplotlib")
    def test_a_figure_that_cannot_be_drawn(self):
        source = "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.title('$\\\\nothing$')\nNone"
        ((data, _),) = self.worker.cell(source).displays
        self.assertIn("not drawn: ", data["text/plain"])
        self.assertEqual(self.worker.value("plt.get_fignums()"), [])

    @needs("matplotlib")
    def test_a_preloaded_pyplot(self):
        with Worker(preload=["matplotlib.pyplot"], warm=True) as worker:
            outcome = worker.cell("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\nplt.get_backend().lower()")
            self.assertEqual((len(outcome.displays), outcome.value), (1, "agg"))

    @needs("matplotlib")
    def test_drawing_in_a_subprocess(self):
        source = (
            "import subprocess, sys\n"
            "code = 'import matplotlib.pyplot as p; p.plot([1]); p.savefig(\"/dev/null\", format=\"png\"); print(p.get_backend())'\n"
            "subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout"
        )
        self.assertEqual(self.worker.value(source).lower(), "agg\n")

    def test_figures_import_nothing(self):
        names = "[m for m in ('matplotlib', 'IPython', 'numpy', 'PIL') if m in sys.modules]"
        self.assertEqual(self.worker.value(f"import sys\n{names}"), [])


class Libraries(unittest.TestCase):
    def setUp(self):
        self.worker = Worker()
        self.addCleanup(self.worker.close)

    def same(self, value, back):
        self.assertIs(type(back), type(value))

    @needs("numpy")
    def test_arrays(self):
        import numpy

        for value in (
            *(numpy.arange(6).reshape(2, 3), numpy.arange(10)[::3], numpy.zeros((0, 3)), numpy.array(3)),
            *(numpy.ones((2, 2), order="F"), numpy.array([True, False]), numpy.array(["a", "é"])),
            *(numpy.array([b"x"]), numpy.array([1], ">i4"), numpy.array([1 + 2j]), numpy.float16([1])),
            *(numpy.array(["2024-01-01", "NaT"], "M8[s]"), numpy.array([5], "m8[D]")),
            *(numpy.random.default_rng(1).random((300, 400)), numpy.empty(0, "U3")),
        ):
            with self.subTest(dtype=value.dtype, shape=value.shape):
                self.worker.set(x=value)
                found = self.worker.value("x")
                self.assertEqual((found.dtype, found.shape), (value.dtype, value.shape))
                numpy.testing.assert_array_equal(found, value)
        for scalar in (numpy.float64(1.5), numpy.int8(-3), numpy.bool_(True), numpy.datetime64(5, "ns")):
            self.worker.set(x=scalar)
            found = self.worker.value("x")
            self.assertEqual((type(found), found), (type(scalar), scalar))
        self.assertIn("dtype=object", self.worker.value("import numpy\nnumpy.array([object()])").repr)
        self.assertEqual(self.worker.value("type(x).__name__, numpy.nan != numpy.nan"), ("datetime64", True))

    @needs("numpy")
    def test_a_received_array_is_writable_and_not_copied(self):
        import numpy

        self.worker.set(x=numpy.zeros(1 << 17))
        self.assertEqual(self.worker.value("x.flags.owndata, x.flags.writeable"), (False, True))
        self.assertEqual(self.worker.value("x += 2\nfloat(x.sum())"), 2.0 * (1 << 17))
        # A small array is inside the message itself.
        self.worker.set(x=numpy.array([3.0, 1.0, 2.0]))
        self.assertEqual(self.worker.value("x.sort()\nx[0] = 9\nx.tolist()"), [9.0, 2.0, 3.0])
        self.worker.define(tool=lambda: numpy.zeros(3))
        self.assertEqual(self.worker.value("x = tool()\nx += 1\nx.tolist()"), [1.0, 1.0, 1.0])

    @needs("pandas")
    def test_a_small_received_table_is_writable(self):
        import pandas

        frame = pandas.DataFrame({"x": [1.0, 2.0], "d": pandas.to_datetime(["2024-01-01", "2024-01-02"])})
        frame["i"] = pandas.array([1, 2], dtype="Int64")
        frame["c"] = pandas.Categorical(["u", "v"])
        frame["b"] = [True, False]
        missing = {"x": "9.0", "d": "pandas.NaT", "i": "pandas.NA", "c": "'v'", "b": "False"}
        for label, value in missing.items():
            with self.subTest(column=label):
                self.worker.set(f=frame, s=frame[label])
                source = f"import pandas\nf.loc[0, '{label}'] = s[0] = {value}\nf['{label}'].equals(s)"
                self.assertTrue(self.worker.value(source))

    @needs("pandas")
    def test_tables(self):
        import pandas

        frame = pandas.DataFrame({"a": [1, 2], "b": ["x", None], "c": [0.5, None]}, index=["r", "s"])
        frame["d"] = pandas.Categorical(["u", "v"], ordered=True)
        frame["e"] = pandas.array([1, None], dtype="Int64")
        frame["f"] = pandas.array([True, None], dtype="boolean")
        frame["g"] = pandas.array(["x", None], dtype="string")
        frame["h"] = pandas.date_range("2024", periods=2, tz="Europe/Berlin")
        frame["i"] = pandas.to_timedelta([1, None], unit="s")
        frame["j"] = [[1], {"k": (2,)}]
        for value in (
            *(frame, frame.head(0), pandas.DataFrame(), pandas.DataFrame(index=range(3))),
            *(frame.set_index(["a", "b"]), frame.T, frame[["a", "a"]], frame[["a", "c"]].describe()),
            frame.set_index("h")[["c"]],
        ):
            self.worker.set(x=value)
            pandas.testing.assert_frame_equal(self.worker.value("x"), value, check_freq=False)
        for name in frame.columns:
            self.worker.set(x=frame[name])
            pandas.testing.assert_series_equal(self.worker.value("x"), frame[name], check_freq=False)
        ((data, main),) = self.worker.cell("import pandas\npandas.DataFrame({'col': [1]})").displays
        self.assertTrue(main)
        self.assertIn("<table", data["text/html"])
        self.assertIn("col", data["text/plain"])

    @needs("pandas")
    def test_moments(self):
        import datetime

        import pandas

        plain = pandas.Timestamp("2024-01-02 03:04:05.678901")
        self.worker.set(x=plain, y=pandas.Timestamp(1), z=pandas.NaT, s=pandas.Timedelta(1, "s"))
        x, y, z, s = self.worker.value("x, y, z, s")
        self.assertEqual((x, type(x)), (plain, datetime.datetime))
        self.assertEqual((y, s), (pandas.Timestamp(1).to_datetime64(), datetime.timedelta(seconds=1)))
        self.assertTrue(pandas.isna(z))

    @needs("PIL")
    def test_pictures(self):
        from PIL import Image

        for mode in ("1", "L", "LA", "RGB", "RGBA", "I", "F"):
            image = Image.linear_gradient("L").resize((9, 5)).convert(mode)
            self.worker.set(x=image)
            found = self.worker.value("x")
            self.assertEqual((found.mode, found.size, found.tobytes()), (mode, (9, 5), image.tobytes()))
        self.assertEqual(self.worker.value("from PIL import Image\nImage.new('P', (2, 2))").mode, "RGBA")
        self.assertEqual(self.worker.value("Image.new('CMYK', (2, 2))").mode, "RGB")
        self.assertEqual(self.worker.value("Image.new('L', (0, 0))").size, (0, 0))
        ((data, main),) = self.worker.cell("Image.new('RGB', (2, 2))").displays
        self.assertTrue(data["image/png"].startswith(PNG) and main and "image/jpeg" not in data)

    @needs("numpy")
    def test_missing_packages(self):
        import numpy

        encoded, here = "numpy.ndarray", "the caller's Python"
        script = (
            "import sys\nsys.path.insert(0, sys.argv[1])\n"
            "for name in ('numpy', 'pandas', 'PIL'): sys.modules[name] = None\n"
            "import values\n"
            "array = {'type': 'ndarray', 'dtype': '<i8', 'shape': [1], 'buffer': 0}\n"
            "found = values.decode(array, [memoryview(bytes(8))])\n"
            "print(found.name, found)\n"
            "index = {'type': 'range-index', 'start': 0, 'stop': 0, 'step': 1, 'name': None}\n"
            "print(values.decode({'type': 'dataframe', 'columns': index, 'index': index, 'data': []}))\n"
            "image = {'type': 'image', 'mode': 'L', 'size': [1, 1], 'buffer': 0}\n"
            "print(values.decode(image, [memoryview(b'x')]))\n"
            "print(values.decode({'type': 'numpy', 'dtype': '<f8', 'value': 1.5}))\n"
        )
        guest = Path(__file__).resolve().parents[2] / "crates" / "worker" / "guest"
        told = subprocess.run([sys.executable, "-c", script, str(guest)], capture_output=True, text=True)
        self.assertEqual(told.stderr, "")
        lines = told.stdout.splitlines()
        self.assertEqual(lines[0], f"{encoded} <array of shape (1,): numpy is not installed in {here}>")
        table = f"[0 rows x 0 columns; pandas is not installed in {here}, so this is a sandfork.Table]"
        image = f"<L image of 1 x 1: Pillow is not installed in {here}>"
        self.assertEqual(lines[1:], ["", table, image, "1.5"])
        self.assertEqual(numpy.ndarray.__name__, "ndarray")

    @needs("numpy")
    def test_hostile_arrays_are_rejected(self):
        import values

        array = {"type": "ndarray", "dtype": "<i8", "shape": [1], "buffer": 0}
        for change in (
            *({"dtype": "O"}, {"dtype": "|O8"}, {"dtype": "|V8"}, {"dtype": "<f16"}, {"dtype": "i8,i8"}),
            *({"dtype": "<i8[s]"}, {"dtype": "<M8[x]"}, {"dtype": "U999999999999"}, {"dtype": "b8"}),
            *({"shape": [2]}, {"shape": [-1]}, {"shape": [True]}, {"shape": [1] * 33}, {"shape": 1}),
            *({"shape": [2**62, 2**62]}, {"shape": [0, 2**63]}, {"shape": [1.0]}, {"buffer": 1}),
        ):
            with self.subTest(change=change), self.assertRaises(ValueError):
                values.decode({**array, **change}, [memoryview(bytes(8))])
        flags = {"type": "ndarray", "dtype": "|b1", "shape": [8], "buffer": 0}
        with self.assertRaises(ValueError):
            values.decode(flags, [memoryview(b"\x02" * 8)])

    @needs("pandas")
    def test_hostile_tables_are_rejected(self):
        import values

        def index(stop):
            return {"type": "range-index", "start": 0, "stop": stop, "step": 1, "name": None}

        def column(dtype="int64", kind="<i8", length=8, **more):
            data = {"type": "ndarray", "dtype": kind, "shape": [length // int(kind[2:])], "buffer": 0}
            return {"dtype": dtype, "values": data, **more}

        frame = {"type": "dataframe", "columns": index(1), "index": index(1), "data": [column()]}
        values.decode(frame, [memoryview(bytes(8))])
        for change in (
            *({"index": index(2)}, {"columns": index(2)}, {"data": []}, {"data": [column()] * 2}),
            *({"index": 1}, {"index": {**index(1), "step": 0}}, {"index": index(2**63 - 1)}),
            *({"index": {"type": "index", "names": [], "data": []}}, {"data": [{"dtype": "object"}]}),
            *({"data": [column("Int64")]}, {"data": [column("category")]}, {"data": [1]}),
            {"data": [column("category", categories={"dtype": "object", "values": []}, ordered=False)]},
        ):
            with self.subTest(change=change), self.assertRaises(ValueError):
                values.decode({**frame, **change}, [memoryview(bytes([9] * 8))])


if __name__ == "__main__":
    unittest.main()
