'''
id = "SF-131"
name = "sequences for the terminal in an exception"
attempt = "End with an exception whose class, message and notes contain terminal escape sequences."
severity = "high"
proven_open = "user"
judge = "host"
host_check = "terminal-unmoved"

[[expect]]
status = ["exception"]
text = ["raised"]
'''

# The open control reads only one stream.
os.dup2(1, 2)
contained("raised")
Error = type("Error\x1b[2J", (Exception,), {"__module__": "m\x1b]0;title\x07"})
error = Error("message\x1b[2J\rnothing happened")
error.__notes__ = ["note\x9b2J\x1bc"]
raise error
