'''
id = "SF-132"
name = "sequences for the terminal in the names of a traceback"
attempt = "End with an exception in a function and a file whose names contain terminal escape sequences."
severity = "high"
proven_open = "user"
judge = "host"
host_check = "terminal-unmoved"

[[expect]]
status = ["exception"]
text = ["raised"]
'''

os.dup2(1, 2)
contained("raised")
code = compile("raise ValueError", "file\x1b[2J\x1b]0;title\x07.py", "exec")
if hasattr(code, "replace"):
    code = code.replace(co_name="function\x1b[1A")
exec(code)
