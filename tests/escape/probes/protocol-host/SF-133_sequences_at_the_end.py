'''
id = "SF-133"
name = "sequences for the terminal in the last words"
attempt = """
End by sys.exit() with text that contains terminal escape sequences, after a warning with some."""
severity = "high"
proven_open = "user"
judge = "host"
host_check = "terminal-unmoved"

[[expect]]
status = ["exit"]
text = ["said"]
'''

import warnings

os.dup2(1, 2)
contained("said")
warnings.warn("warned\x1b[2J")
sys.exit("last\x1b]0;title\x07\x1b[2J words")
