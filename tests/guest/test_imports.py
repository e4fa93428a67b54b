"""Tests of a policy's import list, for guest code and the modules that it imports, and of missing packages."""

import os
import tempfile
import unittest
from pathlib import Path

from harness import Worker


def install(site, name, files, record=True):
    """Writes the files of a distribution into a directory, with its metadata."""
    about = f"{name}-1.0.dist-info/"
    metadata = {about + "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"}
    if "top_level.txt" in files:
        metadata[about + "top_level.txt"] = files.pop("top_level.txt")
    if record:
        metadata[about + "RECORD"] = "".join(f"{file},,\n" for file in files)
    for file, text in {**files, **metadata}.items():
        path = Path(site, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class Imports(unittest.TestCase):
    def test_listed_modules_can_be_imported(self):
        allowed = ["math", "json.*", "os.path", "collections.abc"]
        with Worker(imports=allowed) as worker:
            worker.define(add=lambda: 0)
            for source in (
                *("import math", "import json", "import json.decoder", "from json.decoder import *"),
                *("import os.path", "import os", "from os import path", "import collections.abc"),
                *("import sandfork_host", "from sandfork_host import add"),
                "from __future__ import annotations",
            ):
                self.assertEqual(worker.cell(source).status, "ok", source)
            listed = "Authorized imports are: ['collections.abc', 'json.*', 'math', 'os.path']"
            for name in ("subprocess", "math.x", "os.x", "collections.x", "jso"):
                error = worker.cell(f"import {name}").error
                self.assertEqual(error["message"], f"Import of {name} is not allowed. {listed}")
            error = worker.cell("from sys import path").error
            self.assertEqual(error["message"], f"Import of sys is not allowed. {listed}")

    def test_every_import_mechanism_of_guest_code_is_refused(self):
        ways = (
            "__import__('os')",
            "__import__('os.path', fromlist=['join'])",
            "__import__('os.path', globals(), globals(), ['join'], 0)",
            "__import__('os', {'__name__': 'other'})",
            "list(map(__import__, ['os']))",
            "importlib.import_module('os')",
            "importlib.import_module('.path', 'os')",
            "importlib.import_module('..path', 'os.x')",
            "importlib.__import__('os')",
            "exec('import os', {})",
            "eval('__import__(\"os\")', {})",
            "def f(load=importlib.import_module): return load('os')\nf()",
            "import threading\nt = threading.Thread(target=lambda: __import__('os'))\n"
            "threading.excepthook = lambda told: found.append(told.exc_value)\n"
            "found = []; t.start(); t.join(); raise found[0]",
        )
        with Worker(imports=["importlib", "threading"], serves="session") as worker:
            worker.cell("import importlib")
            for way in ways:
                error = worker.cell(way).error
                self.assertEqual(error.get("name"), "ImportError", way)
                self.assertRegex(error["message"], "Import of os(.path)? is not allowed", way)

    def test_guards_behave_like_the_functions_for_listed_modules(self):
        with Worker(imports=["importlib", "json.*", "xml.*"]) as worker:
            worker.cell("import importlib")
            for source, value in (
                ("__import__('json.decoder').__name__", "json"),
                ("__import__('json.decoder', fromlist=['x']).__name__", "json.decoder"),
                ("importlib.import_module('json.decoder').__name__", "json.decoder"),
                ("importlib.import_module('.decoder', 'json').__name__", "json.decoder"),
                ("importlib.import_module('..sax', 'xml.dom').__name__", "xml.sax"),
                ("__import__.__name__ + importlib.import_module.__name__", "__import__import_module"),
            ):
                self.assertEqual(worker.value(source), value, source)
            for source, name in (
                ("__import__(3)", "TypeError"),
                ("__import__()", "TypeError"),
                ("importlib.import_module('.x')", "TypeError"),
                ("importlib.import_module('.x', 3)", "TypeError"),
                ("importlib.import_module(None)", "AttributeError"),
                ("importlib.import_module('....x', 'json')", "ImportError"),
                ("importlib.import_module('json.nothing')", "ModuleNotFoundError"),
            ):
                self.assertEqual(worker.cell(source).error.get("name"), name, source)

    def test_modules_import_what_they_need(self):
        # C code of `datetime` imports `_strptime`, and `importlib` is called by a module.
        with Worker(imports=["datetime", "encodings", "dataclasses", "pkgutil"]) as worker:
            worker.cell("import datetime, dataclasses, pkgutil")
            for source in (
                "datetime.datetime.strptime('2020', '%Y').year",
                "dataclasses.make_dataclass('D', ['x'])(1).x",
                "pkgutil.resolve_name('string:digits') and 1",
                "'x'.encode('cp037') and 1",
                "exec('import os', {'__name__': 'a_module'})",
            ):
                self.assertEqual(worker.cell(source).error, {}, source)

    def test_a_distribution_allows_the_modules_that_it_installs(self):
        with tempfile.TemporaryDirectory() as site:
            declared = {"top_level.txt": "PIL\n", "PIL/__init__.py": "", "PIL/Image.py": ""}
            listed = {"sk/__init__.py": "", "sk/c/__init__.py": "", "single.py": "", "data/x.txt": ""}
            install(site, "pillow", declared, record=False)
            install(site, "Scikit_Learn", listed)
            install(site, "other", {"other.py": "", "another.py": ""})
            with Worker(imports=["pillow", "scikit-learn", "other", "absent-one"]) as worker:
                worker.define(path=lambda: site)
                worker.cell("exec('import sys; sys.path.append(found)', {'__name__': 'm', 'found': path()})")
                for name in ("PIL", "PIL.Image", "sk.c", "single", "other", "another"):
                    self.assertEqual(worker.cell(f"import {name}").error, {}, name)
                for name in ("data", "other.x", "os", "no_such_module"):
                    error = worker.cell(f"import {name}").error
                    told = "['absent-one', 'other', 'pillow', 'scikit-learn']"
                    self.assertIn(f"{name} is not allowed. Authorized imports are: {told}", error["message"])

    def test_a_star_allows_all(self):
        with Worker(imports=["math", "*"]) as worker:
            self.assertEqual(worker.cell("import sys, subprocess").status, "ok")

    def test_missing_packages(self):
        worker = Worker(warm=True)
        self.addCleanup(worker.close)

        def failed(source):
            return worker.cell(source).error

        error = failed("import no_such_package")
        self.assertIn("No module named 'no_such_package' (this sandbox has the packages of ", error["message"])
        self.assertIn(": name others as `packages` under [python] in the policy; nothing is ", error["message"])
        self.assertTrue(error["traceback"].endswith("nothing is installed while code runs)\n"))
        worker.value("import sys\nsys.modules['IPython'] = None")
        message = failed("import IPython")["message"]
        self.assertIn("(`display`, `get_ipython` and magics need no import here; ", message)
        with tempfile.TemporaryDirectory() as directory:
            lines = {"a.pth": "/no/other\n", "__editable__.o-urs-1.pth": f"import sys\n{directory}\n/no/ours\n"}
            for name, text in lines.items():
                with open(os.path.join(directory, name), "w") as file:
                    file.write(text)
            worker.value(f"sys.path.append({directory!r})")
            message = failed("import ours")["message"]
            self.assertIn(" lead to /no/ours, which this sandbox does not show: name that directory", message)
            worker.value("finder = type(sys)('__editable___its_finder')\nfinder.MAPPING = {'its': '/no/src/its'}")
            worker.value("sys.modules[finder.__name__] = finder")
            self.assertIn(" lead to /no/src, ", failed("import its")["message"])
            worker.value("sys.path.remove(%r)\nsys.modules['__editable__'] = 3" % directory)
        self.assertIn("(this sandbox has the packages of ", failed("import ours")["message"])
        self.assertEqual(failed("import os.none")["message"], "No module named 'os.none'; 'os' is not a package")
        self.assertEqual(failed("raise ModuleNotFoundError('x')")["message"], "x")


if __name__ == "__main__":
    unittest.main()
