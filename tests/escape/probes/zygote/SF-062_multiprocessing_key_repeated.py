'''
id = "SF-062"
name = "key of multiprocessing repeated"
attempt = """
Two runs have the same key for connections of multiprocessing, after it was preloaded."""
severity = "high"
proven_open = "user"
open_mode = "zygote-twins"
runs = 2
through = "one-sandbox"
needs = ["user-namespaces"]
set = ["python.path=[\"{MODULES}\"]", "python.preload=[\"drawn_before\"]"]

[[expect]]
text = ["differs or first run"]
'''

from multiprocessing.process import current_process


def attempt():
    compare_with_previous(bytes(current_process().authkey).hex())


run(attempt)
