import os
import signal
import subprocess
import sys

echo = subprocess.run(["echo", "hé"], capture_output=True, text=True, check=True)
assert echo.stdout == "hé\n"
piped = subprocess.run("printf 'b\\na\\n' | sort", shell=True, capture_output=True, text=True, check=True)
assert piped.stdout == "a\nb\n"
upper = subprocess.run(["tr", "a-z", "A-Z"], input="shout", capture_output=True, text=True, check=True)
assert upper.stdout == "SHOUT"
assert subprocess.run(["sh", "-c", "exit 4"]).returncode == 4
nested = subprocess.run(
    [sys.executable, "-c", "import sys; print(sys.version_info[:2] == %r)" % (sys.version_info[:2],)],
    capture_output=True, text=True, check=True,
)
assert nested.stdout == "True\n", nested
with subprocess.Popen(["sleep", "60"]) as sleeper:
    sleeper.terminate()
assert sleeper.returncode == -signal.SIGTERM
try:
    subprocess.run(["sleep", "60"], timeout=0.1)
except subprocess.TimeoutExpired:
    pass
else:
    raise AssertionError("no timeout")
assert subprocess.run(["true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode == 0
assert subprocess.run(["pwd"], cwd="/tmp", capture_output=True).stdout == b"/tmp\n"
assert os.popen("echo popen").read() == "popen\n"
assert os.system("exit 3") >> 8 == 3
# grep(1) tries to splice(2) the rest of its input into /dev/null.
assert os.system("seq 100000 | grep 5 > /dev/null") == 0
