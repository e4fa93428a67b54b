'''
id = "PH-011"
name = "upload through a planted symlink"
attempt = """
Replace ./data by a symlink to MARKER_DIR so that the next upload to data/x lands outside."""
severity = "critical"
refs = "CVE-2024-28189"
proven_open = "user"
judge = "host"
host_check = "upload-stays-inside"

[[expect]]
text = ["planted"]
'''

import shutil


def attempt():
    shutil.rmtree("data", ignore_errors=True)
    os.symlink(var("MARKER_DIR", "/tmp"), "data")
    contained("planted")


run(attempt)
