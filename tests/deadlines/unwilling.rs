//! Guests that do not want to end, as a table. Each prints that it is as far as it wanted to be.

use crate::guests::DAEMON;

/// A guest.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    pub name: &'static str,
    pub code: &'static str,
    pub held: Held,
}

/// What its time ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Held {
    /// A run: it is killed at its limit.
    Run,
    /// A cell of a session: it is interrupted at its limit, and killed a second later if it did not end by
    /// that.
    Cell,
}

const fn run(name: &'static str, code: &'static str) -> Guest {
    Guest {
        name,
        code,
        held: Held::Run,
    }
}

const fn cell(name: &'static str, code: &'static str) -> Guest {
    Guest {
        name,
        code,
        held: Held::Cell,
    }
}

pub const GUESTS: [Guest; 14] = [
    run("blocks every signal", DEAF),
    run(
        "is stopped",
        "import os, signal\nprint('on', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)",
    ),
    run("stops its children", STOPPED_CHILDREN),
    run("forks as fast as it may", FORKS),
    run("holds the interpreter's lock in C", HOLDS_LOCK),
    run("computes in C", "print('on', flush=True)\n10 ** 10 ** 8"),
    run("has busy threads", BUSY_THREADS),
    run("has daemons", DAEMONS),
    run("waits in vfork, where no signal is seen but a kill", VFORK),
    run("fills its memory", MEMORY),
    run("writes and syncs files", FILES),
    cell("as a cell: blocks every signal", DEAF),
    cell("as a cell: catches every interrupt", CATCHES),
    cell(
        "as a cell: ends when it is interrupted",
        "print('on', flush=True)\nwhile True: pass",
    ),
];

impl Guest {
    /// Its source.
    pub fn source(&self) -> String {
        if self.code == DAEMONS {
            return format!("{DAEMON}print('on', flush=True)\nwhile True: time.sleep(60)");
        }
        self.code.to_owned()
    }
}

const DAEMONS: &str = "daemons";

const DEAF: &str = "\
import signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
print('on', flush=True)
while True:
    time.sleep(60)
";

const STOPPED_CHILDREN: &str = "\
import os, signal, time
for _ in range(8):
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
print('on', flush=True)
os.kill(0, signal.SIGSTOP)
";

/// As many as there may be, and another for each that ends.
const FORKS: &str = "\
import os, time
print('on', flush=True)
while True:
    try:
        if os.fork() == 0:
            time.sleep(0.005)
            os._exit(0)
    except OSError:
        pass
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
";

/// `PyDLL` does not give the lock away while the function runs.
const HOLDS_LOCK: &str = "\
import ctypes
print('on', flush=True)
ctypes.PyDLL(None).sleep(600)
";

const BUSY_THREADS: &str = "\
import hashlib, threading
def compute():
    while True:
        hashlib.sha256(bytes(1 << 20)).digest()
for _ in range(6):
    threading.Thread(target=compute).start()
print('on', flush=True)
";

/// A parent waits for its vfork child uninterruptibly (state D of proc(5)), and the child opens a fifo
/// that nobody writes to before it becomes another program.
const VFORK: &str = "\
import os
os.mkfifo('/tmp/fifo')
print('on', flush=True)
opens = (os.POSIX_SPAWN_OPEN, 0, '/tmp/fifo', os.O_RDONLY, 0)
os.posix_spawn('/bin/true', ['true'], {}, file_actions=[opens])
";

/// What was filled has to be given back before it is gone.
const MEMORY: &str = "\
kept = []
while len(kept) < 192:
    kept.append(b'x' * (1 << 20))
print('on', flush=True)
while True:
    pass
";

const FILES: &str = "\
import os
print('on', flush=True)
while True:
    with open('/tmp/file', 'wb') as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
";

const CATCHES: &str = "\
print('on', flush=True)
while True:
    try:
        while True: pass
    except KeyboardInterrupt:
        pass
";
