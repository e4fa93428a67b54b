'''
id = "SF-064"
name = "the launcher's environment left in memory"
attempt = """
Look for the bait secret of the launcher's environment in all memory that is reachable without
/proc."""
severity = "critical"
proven_open = "user"

[[expect]]
text = ["nowhere"]
'''


def attempt():
    found = count_pages_with(b"BAIT_", b"SECRET=")
    if found:
        escaped("in %d pages" % found)
    else:
        contained("nowhere")


run(attempt)
