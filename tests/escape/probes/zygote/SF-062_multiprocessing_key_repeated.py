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
    value = bytes(current_process().authkey).hex()
    print("VALUE " + value)
    if var("PREV") == value:
        escaped("same as the previous run")
    else:
        contained("differs or first run")


run(attempt)
