//! A table of guests: how often each runs, and how it must end.
//!
//! Every guest first prints its token, so that a reply to another request is
//! detected.

use sandfork::Status;

use crate::guests::{DAEMON, objects};

/// A guest.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    pub name: &'static str,
    /// Its frequency relative to the other shares. Slow guests, which wait for a limit or exhaust
    /// one, run rarely.
    pub share: u32,
    /// What it does after it has printed its token, which is in the variable `token`.
    pub code: &'static str,
    /// The statuses with which it may end.
    pub ends: &'static [Status],
    pub limit: Limit,
    pub fit: Fit,
}

/// A limit besides the policy's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Limit {
    None,
    /// A short wall limit, for a guest that would never end.
    Wall,
    /// A short CPU limit.
    Cpu,
    /// The run is cancelled once the guest has printed its token.
    CalledOff,
}

/// Where it can run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fit {
    /// As a run, and as a cell of a session.
    Anywhere,
    /// As a run only: a session has no such limit, or the cell would take more than a second.
    Run,
}

impl Guest {
    /// Returns its source.
    pub fn source(&self, token: &str) -> String {
        let code = match self.code {
            DAEMON_HERE => DAEMON.to_owned(),
            OBJECTS_HERE => objects(),
            code => code.to_owned(),
        };
        format!("import os\ntoken = {token:?}\nprint(token, flush=True)\n{code}")
    }

    /// Returns whether it may be ended before it has printed anything, on a slow machine.
    pub fn may_be_silent(&self) -> bool {
        matches!(self.limit, Limit::Wall | Limit::Cpu)
    }
}

/// Guests that other tests use too.
const DAEMON_HERE: &str = "daemon";
const OBJECTS_HERE: &str = "objects";

const fn guest(
    name: &'static str,
    share: u32,
    code: &'static str,
    ends: &'static [Status],
) -> Guest {
    Guest {
        name,
        share,
        code,
        ends,
        limit: Limit::None,
        fit: Fit::Anywhere,
    }
}

const fn limited(guest: Guest, limit: Limit) -> Guest {
    Guest {
        limit,
        fit: Fit::Run,
        ..guest
    }
}

const fn as_run(guest: Guest) -> Guest {
    Guest {
        fit: Fit::Run,
        ..guest
    }
}

/// Harmless guests.
const GOOD: [Guest; 4] = [
    guest("value", 520, "token", &[Status::Ok]),
    guest(
        "exception",
        120,
        "raise ValueError(token)",
        &[Status::Exception],
    ),
    guest("exit", 60, "import sys; sys.exit(3)", &[Status::Exit]),
    guest("hard exit", 40, "os._exit(4)", &[Status::Exit]),
];

/// Guests that reach a limit.
const LIMITED: [Guest; 10] = [
    limited(
        guest("endless", 8, "while True: pass", &[Status::Timeout]),
        Limit::Wall,
    ),
    limited(
        guest("busy", 8, "while True: pass", &[Status::CpuLimit]),
        Limit::Cpu,
    ),
    as_run(guest(
        "memory",
        8,
        "kept = []\nwhile True: kept.append(bytearray(1 << 20))",
        &[Status::MemoryLimit],
    )),
    as_run(guest(
        "forks",
        6,
        "while True: os.fork()",
        &[Status::PidsLimit],
    )),
    guest(
        "output",
        12,
        "while True: os.write(1, b'x' * 65536)",
        &[Status::OutputLimit],
    ),
    guest(
        "large file",
        10,
        "with open('large', 'wb') as file:\n    while True: file.write(bytes(1 << 20))",
        &[Status::FileLimit],
    ),
    guest(
        "full /work",
        8,
        "number = 0\nwhile True:\n    number += 1\n    open(f'/work/{number}', 'wb').write(bytes(1 << 20))",
        &[Status::FileLimit],
    ),
    guest(
        "full /tmp",
        8,
        "number = 0\nwhile True:\n    number += 1\n    open(f'/tmp/{number}', 'w').close()",
        &[Status::FileLimit],
    ),
    guest(
        "descriptors",
        10,
        "kept = []\nwhile True: kept.append(os.dup(1))",
        &[Status::FileLimit],
    ),
    limited(
        guest(
            "called off",
            20,
            "import time; time.sleep(600)",
            &[Status::Interrupted],
        ),
        Limit::CalledOff,
    ),
];

/// Hostile guests.
const HOSTILE: [Guest; 16] = [
    guest(
        "crash",
        16,
        "import ctypes; ctypes.string_at(0)",
        &[Status::Signal],
    ),
    guest("foreign call", 16, FOREIGN_CALL, &[Status::Denied]),
    guest("kills all", 20, "os.kill(0, 9)", &[Status::Signal]),
    guest(
        "refused call",
        20,
        "import ctypes; assert ctypes.CDLL(None).ptrace(0, 0, 0, 0) == -1",
        &[Status::Ok],
    ),
    guest(
        "junk",
        20,
        "os.write(1023, b'\\xff' * 99); input()\nimport time; time.sleep(600)",
        &[Status::ProtocolViolation],
    ),
    guest("forged frame", 20, FORGED, &[Status::ProtocolViolation]),
    // Once nothing holds the link open, its own end may come before that is noticed.
    guest(
        "closes all",
        12,
        "os.closerange(0, 4096)",
        &[Status::ProtocolViolation, Status::Exit, Status::Exception],
    ),
    guest("daemon", 12, DAEMON_HERE, &[Status::Ok]),
    guest("forks that stay", 16, FORKS_THAT_STAY, &[Status::Ok]),
    guest("stopped child", 10, STOPPED_CHILD, &[Status::Ok]),
    limited(guest("deaf", 5, DEAF, &[Status::Timeout]), Limit::Wall),
    limited(
        guest(
            "stopped",
            5,
            "import signal; os.kill(os.getpid(), signal.SIGSTOP)",
            &[Status::Timeout],
        ),
        Limit::Wall,
    ),
    guest("objects", 20, OBJECTS_HERE, &[Status::Exit]),
    guest("keys", 16, KEYS, &[Status::Ok]),
    guest(
        "passes descriptors",
        12,
        PASSES,
        &[Status::ProtocolViolation],
    ),
    guest("threads", 16, THREADS, &[Status::Exit]),
];

/// Makes a call through the 32-bit system call table, which kills it, on machines that have one.
const FOREIGN_CALL: &str = "\
import ctypes, mmap
if os.uname().machine != 'x86_64':
    os.kill(os.getpid(), 31)
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
";

const FORGED: &str = "\
import json, struct, time
claim = json.dumps({'kind': 'result', 'id': 999_999, 'status': 'ok', 'value': 'forged'})
os.write(1023, struct.pack('<II', len(claim), 0) + claim.encode())
time.sleep(600)
";

const FORKS_THAT_STAY: &str = "\
import time
for _ in range(3):
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
";

const STOPPED_CHILD: &str = "\
import signal
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(child, os.WUNTRACED)
";

const DEAF: &str = "\
import signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
while True:
    time.sleep(600)
";

/// The names are unique to the tests, so that an escaped key would be found.
const KEYS: &str = "\
import ctypes
add_key = {'x86_64': 248, 'aarch64': 217}[os.uname().machine]
key = ctypes.CDLL(None).syscall(add_key, b'user', b'leftover-of-a-guest', b'x', 1, -3)
assert key == -1
";

/// More descriptors than one message may carry.
const PASSES: &str = "\
import array, socket, time
link = socket.socket(fileno=os.dup(1023))
rights = array.array('i', [1] * 40)
link.sendmsg([b'\\xff' * 99], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
time.sleep(600)
";

const THREADS: &str = "\
import threading, time
for _ in range(4):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
os._exit(0)
";

/// Returns all guests.
pub fn guests() -> impl Iterator<Item = &'static Guest> + Clone {
    GOOD.iter().chain(&LIMITED).chain(&HOSTILE)
}
