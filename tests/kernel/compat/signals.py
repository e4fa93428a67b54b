import faulthandler
import os
import signal
import time

seen = []
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM):
    signal.signal(number, lambda number, frame: seen.append(number))
os.kill(os.getpid(), signal.SIGUSR1)
signal.raise_signal(signal.SIGTERM)
signal.setitimer(signal.ITIMER_REAL, 0.01)
while signal.SIGALRM not in seen:
    time.sleep(0.01)
if os.fork() == 0:
    os._exit(9)
_, status = os.wait()
assert os.WEXITSTATUS(status) == 9
assert set(seen) == {signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM}, seen

# Handlers and blocked signals of the parent are not inherited.
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    pass
faulthandler.enable()

# An orphan is reaped by init, not by this process.
reader, writer = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(0.05)
        os.write(writer, b"%d" % os.getppid())
        os._exit(0)
    os._exit(0)
os.wait()
assert os.read(reader, 20) == b"1"
