//! Decides how the descriptors of a process are restored, from `/proc/PID/fd` and `/proc/PID/fdinfo` (proc(5)). Pure.

use super::refusal::SnapshotRefusal;
use crate::plan::harmless;
use sandfork_jail::DATA;
use sandfork_jail::restore::{Descriptor, Opened};

/// The maximum number of descriptors of a session.
pub const MAX_DESCRIPTORS: usize = 1024;

/// The character devices that every worker has at these paths, with major and minor numbers (null(4), random(4)).
const DEVICES: [(&str, (u64, u64)); 5] = [
    ("/dev/null", (1, 3)),
    ("/dev/zero", (1, 5)),
    ("/dev/full", (1, 7)),
    ("/dev/random", (1, 8)),
    ("/dev/urandom", (1, 9)),
];

/// The suffix that the kernel adds to the path of a removed file.
const REMOVED: &str = " (deleted)";

/// What the kernel reports about an open descriptor.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Found {
    /// Its number.
    pub number: i32,
    /// The target of its `/proc/PID/fd` link.
    pub link: Vec<u8>,
    /// The text of its `fdinfo` file.
    pub info: String,
    /// The type of the file.
    pub kind: Kind,
    /// The inode number.
    pub inode: u64,
    /// Whether the file still has a name (a link count above zero).
    pub is_named: bool,
}

/// The type of an open file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A character device. Holds its major and minor numbers.
    Device((u64, u64)),
    /// A pipe.
    Pipe,
    /// A socket.
    Socket,
    /// Anything else, such as an eventfd.
    Other,
}

/// The inodes of the channels that the supervisor gave to the worker.
#[derive(Clone, Copy, Debug)]
pub struct Outputs {
    /// The inode of standard output.
    pub stdout: u64,
    /// The inode of standard error.
    pub stderr: u64,
    /// The inode of the worker's end of the socket for the links of its starters, if it has one.
    pub starter_socket: Option<u64>,
}

/// The fields of `fdinfo` that are needed.
struct Info {
    position: u64,
    flags: i32,
    is_locked: bool,
}

impl Info {
    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            text.lines()
                .find_map(|line| Some(line.strip_prefix(name)?.trim()))
        };
        Some(Self {
            position: value("pos:")?.parse().ok()?,
            flags: i32::from_str_radix(value("flags:")?, 8).ok()?,
            is_locked: value("lock:").is_some(),
        })
    }
}

/// Whether a mapped file can have this path. The kernel appends ` (deleted)` to the path of a removed file, and escapes
/// a line feed as `\012`.
pub fn is_path(path: &str) -> bool {
    !path.ends_with(REMOVED) && !path.contains("\\012")
}

/// Returns how a worker restores the descriptor, or `None` if every worker has it already.
pub fn keep(found: &Found, outputs: Outputs) -> Result<Option<Descriptor>, SnapshotRefusal> {
    let number = found.number;
    let text = String::from_utf8_lossy(&found.link).into_owned();
    let refuse = |what: String| {
        let why = format!("descriptor {number} is {}; close it first", harmless(&what));
        Err(SnapshotRefusal::Other(why))
    };
    let Some(info) = Info::parse(&found.info) else {
        return refuse(format!("`{text}`, whose fdinfo cannot be parsed"));
    };
    let descriptor = |open| {
        Ok(Some(Descriptor {
            number,
            inherited: info.flags & libc::O_CLOEXEC == 0,
            open,
        }))
    };
    let file = |path: String| {
        descriptor(Opened::File {
            path,
            flags: info.flags & !libc::O_CLOEXEC,
            position: info.position,
        })
    };
    match found.kind {
        Kind::Socket if number == DATA || Some(found.inode) == outputs.starter_socket => Ok(None),
        Kind::Pipe if found.inode == outputs.stdout => descriptor(Opened::Same(1)),
        Kind::Pipe if found.inode == outputs.stderr => descriptor(Opened::Same(2)),
        Kind::Device(numbers) => {
            let device = DEVICES.iter().find(|(_, own)| *own == numbers);
            match device {
                // A copy has an empty standard input, like every ready worker.
                _ if number == 0 => descriptor(Opened::Same(0)),
                Some((path, _)) => file((*path).to_owned()),
                None => refuse(format!("the device `{text}`")),
            }
        }
        Kind::File | Kind::Directory => {
            // The name by which the file was opened may be gone while another hard link remains.
            if !text.starts_with('/') || !found.is_named || text.ends_with(REMOVED) {
                return refuse(format!("`{text}`, a file without a name"));
            }
            if info.is_locked {
                return refuse(format!("`{text}`, which it has locked"));
            }
            match String::from_utf8(found.link.clone()) {
                Ok(path) => file(path),
                Err(_) => refuse(format!("`{text}`, whose name is not UTF-8")),
            }
        }
        Kind::Pipe | Kind::Socket | Kind::Other if number == 0 => descriptor(Opened::Same(0)),
        Kind::Pipe => refuse("a pipe".into()),
        Kind::Socket => refuse("a socket".into()),
        Kind::Other => refuse(format!("`{text}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUTS: Outputs = Outputs {
        stdout: 11,
        stderr: 12,
        starter_socket: Some(13),
    };

    fn found(number: i32, link: &str, kind: Kind, inode: u64) -> Found {
        Found {
            number,
            link: link.into(),
            info: "pos:\t6\nflags:\t02100002\nmnt_id:\t30\nino:\t5\n".into(),
            kind,
            inode,
            is_named: true,
        }
    }

    fn kept(found: &Found) -> Option<Descriptor> {
        keep(found, OUTPUTS).expect("it is kept")
    }

    #[test]
    fn files_and_streams_are_kept() {
        let file = kept(&found(5, "/work/notes.txt", Kind::File, 9)).expect("it is made");
        assert!(!file.inherited);
        let Opened::File {
            path,
            flags,
            position,
        } = file.open
        else {
            panic!("{file:?}");
        };
        assert_eq!(
            (path.as_str(), flags, position),
            ("/work/notes.txt", 0o100_002, 6)
        );
        let copy = kept(&found(7, "pipe:[11]", Kind::Pipe, 11)).expect("it is made");
        assert_eq!(copy.open, Opened::Same(1));
        assert_eq!(kept(&found(DATA, "socket:[3]", Kind::Socket, 3)), None);
        assert_eq!(kept(&found(255, "socket:[13]", Kind::Socket, 13)), None);
        let null = Kind::Device((1, 3));
        let stdin = kept(&found(0, "/dev/null", null, 4)).expect("it is made");
        assert_eq!(stdin.open, Opened::Same(0));
    }

    #[test]
    fn unrestorable_descriptors_are_refused() {
        let refused = |found: Found| {
            keep(&found, OUTPUTS)
                .expect_err("it is refused")
                .to_string()
        };
        let pipe = refused(found(4, "pipe:[99]", Kind::Pipe, 99));
        assert_eq!(pipe, "descriptor 4 is a pipe; close it first");
        refused(found(4, "socket:[99]", Kind::Socket, 99));
        refused(found(4, "anon_inode:[eventpoll]", Kind::Other, 99));
        refused(found(4, "/dev/pts/0", Kind::Device((136, 0)), 99));
        for is_named in [false, true] {
            let gone = refused(Found {
                is_named,
                ..found(4, "/work/x (deleted)", Kind::File, 99)
            });
            assert!(gone.contains("a file without a name"), "{gone}");
        }
        let locked = refused(Found {
            info: "pos: 0\nflags: 02\nlock: 1: FLOCK  ADVISORY  WRITE 1 00:2a:9 0 EOF\n".into(),
            ..found(4, "/work/x", Kind::File, 99)
        });
        assert!(locked.contains("locked"), "{locked}");
        refused(Found {
            info: "pos: x\n".into(),
            ..found(4, "/work/x", Kind::File, 99)
        });
    }
}
