//! A table of guests that resist their end. Each prints a line once it is prepared.

use std::time::Duration;

use crate::guests::DAEMON;

/// A guest.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    pub name: &'static str,
    pub code: &'static str,
    pub held: Held,
    /// Its wall limit.
    pub limit: Duration,
    pub network: Network,
}

/// Whether it needs its own network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Network {
    None,
    Loopback,
}

/// The wall limit of a guest that needs no preparation.
const LIMIT: Duration = Duration::from_millis(200);

/// The wall limit of a guest that first allocates what must be released at its end.
const HOARDING: Duration = Duration::from_secs(1);

/// What the limit ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Held {
    /// A run: it is killed at its limit.
    Run,
    /// A cell of a session: it is interrupted at its limit, and killed a second later if the interrupt did not
    /// end it.
    Cell,
}

const fn run(name: &'static str, code: &'static str) -> Guest {
    Guest {
        name,
        code,
        held: Held::Run,
        limit: LIMIT,
        network: Network::None,
    }
}

/// A guest that holds the most of one kind of kernel object, in as many processes as it may have.
const fn hoards(name: &'static str, code: &'static str) -> Guest {
    Guest {
        limit: HOARDING,
        ..run(name, code)
    }
}

const fn cell(name: &'static str, code: &'static str) -> Guest {
    Guest {
        name,
        code,
        held: Held::Cell,
        limit: LIMIT,
        network: Network::None,
    }
}

pub const GUESTS: [Guest; 24] = [
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
    hoards("holds record locks", LOCKS),
    hoards("holds mappings", MAPPINGS),
    hoards("holds page tables", PAGE_TABLES),
    hoards("holds files and descriptors", MANY_FILES),
    hoards(
        "holds sockets with descriptors under way in a ring",
        SOCKETS,
    ),
    Guest {
        network: Network::Loopback,
        ..hoards("holds full connections that nothing accepts", CONNECTIONS)
    },
    hoards("holds full pipes", PIPES),
    hoards("holds timers", TIMERS),
    hoards("holds watches of epoll", WATCHES),
    hoards("holds blocked threads", THREADS),
    cell("as a cell: blocks every signal", DEAF),
    cell("as a cell: catches every interrupt", CATCHES),
    cell(
        "as a cell: ends when it is interrupted",
        "print('on', flush=True)\nwhile True: pass",
    ),
];

impl Guest {
    /// Returns its source.
    pub fn source(&self) -> String {
        if self.code == DAEMONS {
            return format!("{DAEMON}print('on', flush=True)\nwhile True: time.sleep(60)");
        }
        if self.limit == HOARDING {
            return format!("{IN_ALL}{}", self.code);
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

/// Starts as many processes as possible, and another for each that ends.
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

/// `PyDLL` does not release the GIL while the function runs.
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

/// A parent waits for its vfork child uninterruptibly (state D of proc(5)), and the child opens a FIFO
/// without a writer before it executes another program.
const VFORK: &str = "\
import os
os.mkfifo('/tmp/fifo')
print('on', flush=True)
opens = (os.POSIX_SPAWN_OPEN, 0, '/tmp/fifo', os.O_RDONLY, 0)
os.posix_spawn('/bin/true', ['true'], {}, file_actions=[opens])
";

/// Filled memory, which the kernel must free before the process is gone.
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

/// Makes processes hold kernel objects, each until it gets no more, and prints when all of them do. They start holding
/// once all exist, because what one takes may be what the next needs to start.
const IN_ALL: &str = "\
import ctypes, fcntl, os, resource, select, signal, socket, struct, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def in_all(processes, hold):
    done, report = os.pipe()
    gate, begin = os.pipe()
    for _ in range(processes):
        if os.fork() == 0:
            os.close(begin)
            os.read(gate, 1)
            os.close(done)
            try:
                kept = hold()
            except (OSError, MemoryError, RuntimeError):
                pass
            os.write(report, b'.')
            while True:
                time.sleep(60)
    os.close(begin)
    counted = 0
    while counted < processes:
        counted += len(os.read(done, processes))
    print('on', flush=True)
    while True:
        time.sleep(60)
";

const LOCKS: &str = "\
own = open('/tmp/locks', 'w')
def lock():
    fcntl.lockf(own, fcntl.LOCK_EX)
    try:
        for piece in range(1 << 16):
            cut = struct.pack('hhqqi4x', fcntl.F_UNLCK, os.SEEK_SET, 2 * piece + 1, 1, 0)
            fcntl.fcntl(own, fcntl.F_SETLK, cut)
    except OSError:
        pass
    os.nice(19)
def hold():
    while True:
        os.dup(own.fileno())
lock()
in_all(40, hold)
";

/// Every second page has another protection than its neighbours, and so is a separate mapping.
const MAPPINGS: &str = "\
def hold():
    libc.mmap.restype = ctypes.c_void_p
    begin = libc.mmap(None, ctypes.c_size_t(1 << 28), 0, 0x4022, -1, 0)
    for page in range(0, 1 << 16, 2):
        if libc.mprotect(ctypes.c_void_p(begin + page * 4096), ctypes.c_size_t(4096), 1):
            break
in_all(8, hold)
";

/// One page in each 2 MiB, so that each has its own page table.
const PAGE_TABLES: &str = "\
def hold():
    libc.mmap.restype = ctypes.c_void_p
    begin = libc.mmap(None, ctypes.c_size_t(1 << 34), 1, 0x4022, -1, 0)
    libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(1 << 34), 15)
    for place in range(0, 1 << 34, 1 << 21):
        ctypes.string_at(begin + place, 1)
in_all(4, hold)
";

const MANY_FILES: &str = "\
os.mkdir('/work/many')
try:
    for number in range(1 << 16):
        os.close(os.open('/work/many/%d' % number, os.O_CREAT | os.O_WRONLY))
except OSError:
    pass
names = os.listdir('/work/many')
def hold():
    for name in names:
        os.open('/work/many/' + name, os.O_RDONLY)
in_all(40, hold)
";

const SOCKETS: &str = "\
def hold():
    pairs = []
    try:
        while True:
            pairs.append(socket.socketpair())
    except OSError:
        pass
    for number, (own, _) in enumerate(pairs):
        socket.send_fds(own, [b'x'], [end.fileno() for end in pairs[(number + 1) % len(pairs)]])
    return pairs
in_all(40, hold)
";

/// Most connections have no descriptor. A guest with more than fit into its memory would end before its limit.
const CONNECTIONS: &str = "\
def hold():
    kept = []
    server = socket.create_server(('127.0.0.1', 0), backlog=64)
    for _ in range(30):
        client = socket.create_connection(server.getsockname())
        client.setblocking(False)
        kept.append(client)
        try:
            while True:
                client.send(bytes(1 << 16))
        except BlockingIOError:
            pass
    return server, kept
in_all(8, hold)
";

const PIPES: &str = "\
def hold():
    while True:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        os.write(writer, bytes(1 << 16))
in_all(16, hold)
";

const TIMERS: &str = "\
signal.signal(signal.SIGALRM, signal.SIG_IGN)
def hold():
    often = struct.pack('qqqq', 0, 1_000_000, 0, 1_000_000)
    for _ in range(24):
        timer = ctypes.c_int()
        libc.timer_create(1, None, ctypes.byref(timer))
        libc.timer_settime(timer, 0, often, None)
    while True:
        clock = libc.timerfd_create(1, 0)
        if clock < 0 or libc.timerfd_settime(clock, 0, often, None):
            break
in_all(40, hold)
";

/// A watch belongs to a file and a descriptor number, and stays when the number refers to another file.
const WATCHES: &str = "\
def hold():
    watchers = [select.epoll() for _ in range(8)]
    files = [os.eventfd(0) if hasattr(os, 'eventfd') else os.pipe()[0] for _ in range(60)]
    slots = [os.dup(files[0]) for _ in range(60)]
    for file in files:
        for slot in slots:
            os.dup2(file, slot)
            for watcher in watchers:
                watcher.register(slot, select.EPOLLIN)
    return watchers
in_all(8, hold)
";

const THREADS: &str = "\
def hold():
    gate = threading.Lock()
    gate.acquire()
    while True:
        threading.Thread(target=gate.acquire, daemon=True).start()
in_all(4, hold)
";

const CATCHES: &str = "\
print('on', flush=True)
while True:
    try:
        while True: pass
    except KeyboardInterrupt:
        pass
";
