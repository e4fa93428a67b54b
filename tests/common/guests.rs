//! Guests of every kind, each of which leaves as much behind as it can.

/// Part of the name of everything that the guests make.
pub const MARK: &str = "leftover-of-a-guest";

/// The key of the guests' SysV objects.
pub const IPC_KEY: i32 = 0x5a4d_f0bc;

/// The number of kinds.
pub const KINDS: usize = 14;

/// Returns the code of a guest of this kind.
pub fn code(kind: usize) -> String {
    match kind % KINDS {
        0 => "print(6 * 7)".into(),
        1 => "raise ValueError('as expected')".into(),
        2 => "import sys; sys.exit(3)".into(),
        3 => "import os; os._exit(4)".into(),
        4 => "import ctypes; ctypes.string_at(0)".into(),
        5 => "import os; os.kill(0, 9)".into(),
        6 => "import os; os.closerange(0, 200)".into(),
        7 => "import os; os.write(1023, b'\\xff' * 99); input()".into(),
        8 => "while True: pass".into(),
        9 => "import os\nwhile True: os.fork()".into(),
        10 => "kept = []\nwhile True: kept.append(bytearray(1 << 20))".into(),
        11 => DAEMON.into(),
        12 => objects(),
        _ => "import os\nwhile True: os.write(1, b'x' * 65536)".into(),
    }
}

/// Forks twice, ignores every signal that can be ignored, and stays.
pub const DAEMON: &str = "\
import os, signal, time
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    for number in range(1, 32):
        try:
            signal.signal(number, signal.SIG_IGN)
        except OSError:
            pass
    os.write(writer, b'.')
    while True:
        time.sleep(60)
os.wait()
os.read(reader, 1)
";

/// Makes files, shared memory, semaphores, queues, mappings, a FIFO and a socket, as far as they are allowed.
pub fn objects() -> String {
    format!("{OBJECTS}objects('{MARK}', {IPC_KEY})\nos._exit(0)\n")
}

const OBJECTS: &str = "\
import contextlib, ctypes, mmap, os, socket, tempfile
def objects(mark, key):
    libc = ctypes.CDLL(None, use_errno=True)
    for place in ('/work', '/tmp', '/dev/shm'):
        open(f'{place}/{mark}', 'w').write(mark)
        os.mkfifo(f'{place}/{mark}.fifo')
    tempfile.mkstemp(prefix=mark)
    tempfile.mkdtemp(prefix=mark)
    libc.shmget(key, 4096, 0o1666)
    libc.semget(key, 1, 0o1666)
    libc.msgget(key, 0o1666)
    libc.mq_open(f'/{mark}'.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
    MFD_NOEXEC_SEAL = 8
    for flags in (0, MFD_NOEXEC_SEAL):
        with contextlib.suppress(OSError):
            os.memfd_create(mark, flags)
    mmap.mmap(-1, 1 << 20)
    with contextlib.suppress(OSError):
        socket.socket(socket.AF_UNIX).bind(f'/work/{mark}.socket')
";
