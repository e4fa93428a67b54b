//! Tests of access to a session's files from outside: the guest owns what the host writes, and
//! symlinks and special files of a guest are not followed or opened.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use sandfork::session::{Contents, FileEntry, Parents, Removal, Session, SessionState};
use sandfork::{Error, Status};

use super::{assert_ended, open, run, value};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    tests![
        guest_owns_files_written_by_the_host,
        files_of_the_guest_are_readable,
        only_regular_files_are_opened,
        a_full_work_directory_is_named,
        files_end_with_the_session,
        swapped_paths_do_not_escape,
    ]
}

fn write(session: &mut Session, path: &str, text: &str) {
    let file = session.open_write(path, Contents::Replaced);
    let mut file = file.unwrap_or_else(|error| panic!("{path}: {error}"));
    file.write_all(text.as_bytes())
        .expect("the file system has space");
}

fn read(session: &mut Session, path: &str) -> Result<String, Error> {
    let (mut file, size) = session.open_read(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text).expect("a regular file");
    assert!(size <= 1 << 20);
    Ok(text)
}

fn names(entries: &[FileEntry]) -> Vec<(&str, &str)> {
    entries
        .iter()
        .map(|entry| (entry.name.as_str(), entry.kind))
        .collect()
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(done: Result<T, Error>, errno: Errno) -> String {
    let refused = done.expect_err("it is refused");
    assert_eq!(refused.errno(), Some(errno as i32), "{refused}");
    refused.to_string()
}

fn guest_owns_files_written_by_the_host(world: &World) {
    let mut session = open(world, standard());
    session
        .make_dir("in/deep", Parents::Made)
        .expect("the directory is created");
    write(&mut session, "in/deep/data", "from outside");
    let code = "import os\n\
                def mine(path):\n\
                \x20   at = os.stat(path)\n\
                \x20   return (at.st_uid, at.st_gid) == (os.getuid(), os.getgid())\n\
                [mine('in'), mine('in/deep'), mine('in/deep/data'), open('in/deep/data').read()]";
    assert_eq!(
        value(&mut session, code),
        "[True, True, True, 'from outside']"
    );
    let code = "open('in/deep/data', 'a').write(' and inside')\n\
                open('in/own', 'w').close()\n\
                os.chmod('in/deep', 0o700)\n\
                [oct(os.stat(path).st_mode & 0o7777) for path in ('in', 'in/deep/data')]";
    assert_eq!(value(&mut session, code), "['0o755', '0o644']");
    let text = read(&mut session, "/work/in/deep/data").expect("the file exists");
    assert_eq!(text, "from outside and inside");
    let mut file = session
        .open_write("in/deep/data", Contents::Kept)
        .expect("the file opens");
    file.write_all(b"!").expect("the file system has space");
    assert_eq!(
        value(&mut session, "open('in/deep/data').read()[-1]"),
        "'!'"
    );
    session
        .remove("in", Removal::Tree)
        .expect("the file is removed");
    assert_eq!(value(&mut session, "os.listdir()"), "[]");
}

fn files_of_the_guest_are_readable(world: &World) {
    let mut session = open(world, standard());
    let code = "import os\n\
                os.makedirs('a/b')\n\
                open('a/file', 'w').write('x' * 100000)\n\
                open('closed', 'w').write('mine')\n\
                os.chmod('closed', 0o600)\n\
                os.symlink('/etc/passwd', 'a/link')\n\
                os.mkfifo('a/fifo')";
    assert_ended(&run(&mut session, code), Status::Ok, SessionState::Live);
    let entries = session.list("a").expect("a directory");
    assert_eq!(
        names(&entries),
        [
            ("b", "dir"),
            ("fifo", "other"),
            ("file", "file"),
            ("link", "symlink")
        ]
    );
    assert_eq!(entries[2].size, 100_000);
    assert!(entries[2].modified > 1.6e9);
    assert_eq!(
        session.stat("a/file").expect("the file exists"),
        entries[2].clone()
    );
    let text = read(&mut session, "a/file").expect("the file exists");
    assert_eq!(text.len(), 100_000);
    assert_eq!(
        read(&mut session, "closed").expect("it is the guest's own"),
        "mine"
    );
}

fn only_regular_files_are_opened(world: &World) {
    let mut session = open(world, standard());
    let code = "import os, socket\n\
                os.symlink('/etc/passwd', 'link')\n\
                os.symlink('/', 'root')\n\
                os.symlink('/dev/null', 'null')\n\
                os.symlink('/proc/self/root/etc/passwd', 'magic')\n\
                os.mkfifo('fifo')\n\
                server = socket.socket(socket.AF_UNIX); server.bind('socket')";
    assert_ended(&run(&mut session, code), Status::Ok, SessionState::Live);
    for (path, errno) in [
        ("link", Errno::ELOOP),
        ("root/etc/passwd", Errno::ELOOP),
        ("magic", Errno::ELOOP),
        ("fifo", Errno::EINVAL),
        ("socket", Errno::EINVAL),
        (".", Errno::EISDIR),
        ("../etc/passwd", Errno::EINVAL),
        ("/etc/passwd", Errno::EINVAL),
        ("nowhere", Errno::ENOENT),
    ] {
        assert_refused(session.open_read(path), errno);
    }
    // Opening one of these would be harmless, but is refused too.
    for path in ["null", "fifo", "root/tmp/sandfork-test"] {
        session
            .open_write(path, Contents::Replaced)
            .expect_err("it is not opened");
    }
    // The session is unaffected.
    assert_eq!(value(&mut session, "1 + 1"), "2");
}

fn a_full_work_directory_is_named(world: &World) {
    let small = standard()
        .set("filesystem.work_size=1MiB")
        .set("filesystem.work_inodes=20");
    let mut session = open(world, small);
    let mut file = session
        .open_write("large", Contents::Replaced)
        .expect("the file fits");
    let refused = file
        .write_all(&vec![1; 2 << 20])
        .expect_err("there is no room");
    assert_eq!(refused.raw_os_error(), Some(Errno::ENOSPC as i32));
    let more = (0..30).find_map(|number| {
        session
            .make_dir(&format!("dir{number}"), Parents::Required)
            .err()
    });
    let refused = more.expect("the limit is reached").to_string();
    assert!(
        refused.contains("the work directory is full")
            && refused.contains("filesystem.work_inodes"),
        "{refused}"
    );
    session
        .remove("large", Removal::Single)
        .expect("the file is removed");
    assert_eq!(value(&mut session, "1"), "1");
}

fn files_end_with_the_session(world: &World) {
    let mut session = open(world, standard());
    write(&mut session, "file", "text");
    session.restart().expect("the session restarts");
    assert_refused(session.open_read("file"), Errno::ENOENT);
    write(&mut session, "file", "text");
    run(&mut session, "import os; os._exit(1)");
    let refused = session.open_read("file").expect_err("it is gone");
    assert!(refused.to_string().contains("files are lost"), "{refused}");
}

// A thread of the guest continues after its cell has ended.
fn swapped_paths_do_not_escape(world: &World) {
    const SWAPPER: &str = "
import ctypes, os, threading
os.makedirs('dir'); open('dir/file', 'w').write('inside')
os.symlink('/etc', 'etc')
open('file', 'w').write('inside')
os.symlink('/etc/passwd', 'passwd'); os.mkfifo('fifo'); os.symlink('/proc/self/mem', 'mem')
libc = ctypes.CDLL(None)
def swap():
    while True:
        for a, b in ((b'dir', b'etc'), (b'file', b'passwd'), (b'file', b'fifo'), (b'file', b'mem')):
            libc.renameat2(-100, a, -100, b, 2)
for _ in range(2):
    threading.Thread(target=swap, daemon=True).start()
";
    const MAX: Duration = Duration::from_secs(60);
    // The thread must be able to run for as long as the test reads.
    let recipe = standard().set("limits.wall=60s").set("limits.cpu=1h");
    let mut session = open(world, recipe);
    assert_ended(&run(&mut session, SWAPPER), Status::Ok, SessionState::Live);
    let (mut rounds, mut inside, mut refused) = (0, 0, 0);
    let begun = Instant::now();
    // Concurrent tests may keep the swapping threads off the CPU for many rounds.
    while rounds < 1500 || (inside == 0 || refused == 0) && begun.elapsed() < MAX {
        rounds += 1;
        for path in ["dir/file", "file"] {
            match read(&mut session, path) {
                Ok(text) => {
                    assert_eq!(text, "inside");
                    inside += 1;
                }
                Err(error) => {
                    assert!(error.errno().is_some(), "{error}");
                    refused += 1;
                }
            }
        }
        if let Ok(entries) = session.list("dir") {
            let known = |entry: &FileEntry| matches!(entry.name.as_str(), "file" | "of the host");
            assert!(entries.iter().all(known), "{entries:?}");
        }
        _ = session.open_write("file", Contents::Kept);
        _ = session.open_write("dir/of the host", Contents::Kept);
        _ = session.remove("dir/of the host", Removal::Single);
    }
    assert!(
        inside > 0 && refused > 0,
        "{inside} inside, {refused} refused"
    );
    session.remove("dir", Removal::Tree).ok();
    assert_eq!(value(&mut session, "1 + 1"), "2");
}
