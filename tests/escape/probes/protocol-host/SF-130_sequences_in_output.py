'''
id = "SF-130"
name = "sequences for the terminal in output"
attempt = """
Print sequences that set a terminal's title, fill its clipboard, clear it and rewrite a line, on both
streams."""
severity = "high"
proven_open = "user"
judge = "host"
host_check = "terminal-unmoved"

[[expect]]
text = ["written"]
'''

SEQUENCES = (
    b"\x1b]0;title\x07",
    b"\x1b]52;c;cm0gLXJm\x1b\\",
    b"\x1b[2J\x1b[H",
    "\u009b2J".encode(),
    b"\x9b2J",
    b"failed\rpassed\n",
)


def attempt():
    for stream in (1, 2):
        for sequence in SEQUENCES:
            os.write(stream, sequence)
    os.write(1, b"\n")
    contained("written")


run(attempt)
