//! Reads process information from a procfs (proc(5)). Access is relative to a descriptor, so it does not matter where,
//! or whether, the procfs is mounted.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::signal::kill;
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::check;
use super::process::page_size;

/// Selected fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stat {
    /// The state of the process: `R`, `S`, `D`, `T`, `Z` and so on.
    pub state: char,
    /// The parent.
    pub parent: Pid,
    /// The process group.
    pub group: Pid,
    /// The `PF_*` flags of the kernel's include/linux/sched.h.
    flags: u64,
    /// CPU time of the process itself, in clock ticks.
    pub own_ticks: u64,
    /// CPU time of the children that it waited for, in clock ticks.
    pub waited_ticks: u64,
    /// The number of threads.
    pub threads: u64,
    /// The start time, in clock ticks after boot. It distinguishes processes with the same pid.
    pub started: u64,
}

/// Reads the `stat` file of a process.
pub fn stat(proc: BorrowedFd, pid: Pid) -> Result<Stat, Errno> {
    Stat::parse(&read(proc, &format!("{pid}/stat"))?).ok_or(Errno::EIO)
}

/// Returns the end address of the calling process's arguments: field 49 of its `stat` file.
pub fn arguments_end(proc: BorrowedFd) -> Result<usize, Errno> {
    let stat = read(proc, "self/stat")?;
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
    let end = fields.and_then(|fields| fields.split_ascii_whitespace().nth(49 - 3));
    end.and_then(|end| end.parse().ok()).ok_or(Errno::EIO)
}

/// `PF_EXITING`, unchanged since Linux 2.6.
const EXITING: u64 = 4;

impl Stat {
    /// Parses the file. Returns `None` if it is incomplete.
    pub fn parse(text: &str) -> Option<Self> {
        // The name, field 2, may contain spaces and parentheses; the last parenthesis ends it.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: Pid::from_raw(fields.get(1)?.parse().ok()?),
            group: Pid::from_raw(fields.get(2)?.parse().ok()?),
            flags: number(9)?,
            own_ticks: number(14)? + number(15)?,
            waited_ticks: number(16)? + number(17)?,
            threads: number(20)?,
            started: number(22)?,
        })
    }

    /// Returns whether the process is exiting.
    pub fn is_exiting(&self) -> bool {
        self.flags & EXITING != 0
    }
}

/// Returns the private writable memory of a process, resident or not, in bytes, from the `statm` file at this path.
pub fn data(proc: BorrowedFd, statm: &str) -> Result<u64, Errno> {
    let text = read(proc, statm)?;
    let pages = text.split_ascii_whitespace().nth(5);
    let pages = pages.and_then(|pages| pages.parse::<u64>().ok());
    pages.map(|pages| pages * page_size()).ok_or(Errno::EIO)
}

/// Returns the resident anonymous memory of a process plus its page tables, in bytes: `RssAnon` and `VmPTE` of the
/// `status` file at this path. Does not allocate.
pub fn private(proc: impl AsFd, status: &str) -> Result<u64, Errno> {
    sum_of_lines(proc, status, &[b"RssAnon:", PAGE_TABLES])
}

/// Returns the resident memory of a process plus its page tables, in bytes: `VmRSS` and `VmPTE` of the `status` file at
/// this path. Page tables matter: a process that only reads one page in each 2 MiB uses page tables and nothing else.
pub fn resident(proc: impl AsFd, status: &str) -> Result<u64, Errno> {
    sum_of_lines(proc, status, &[b"VmRSS:", PAGE_TABLES])
}

/// Returns the size of a process's page tables, in bytes: `VmPTE` of the `status` file at this path.
pub fn page_tables(proc: impl AsFd, status: &str) -> Result<u64, Errno> {
    sum_of_lines(proc, status, &[PAGE_TABLES])
}

const PAGE_TABLES: &[u8] = b"VmPTE:";

/// Returns the sum of the named lines of a `status` file, in bytes.
fn sum_of_lines(proc: impl AsFd, status: &str, names: &[&[u8]]) -> Result<u64, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let file = openat(proc, status, flags, Mode::empty())?;
    // The file is shorter than 2 KiB, and these lines are in its first half.
    let mut text = [0; 4096];
    let length = nix::unistd::read(&file, &mut text)?;
    sum_in(&text[..length], names).ok_or(Errno::EIO)
}

fn sum_in(status: &[u8], names: &[&[u8]]) -> Option<u64> {
    let lines = || status.split(|byte| *byte == b'\n');
    let kib = |name: &[u8]| {
        let value = lines().find_map(|line| line.strip_prefix(name))?;
        let value = std::str::from_utf8(value).ok()?;
        value.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let mut sum = 0;
    for name in names {
        sum += kib(name)?;
    }
    Some(sum << 10)
}

/// Returns the children of all threads of a process. The list may be incomplete while children come and go. It is empty
/// if the process is gone.
pub fn children(proc: BorrowedFd, pid: Pid) -> Vec<Pid> {
    match listed_children(proc, pid) {
        Err(_) if is_hidden(pid) || read(proc, "thread-self/children").is_err() => {
            found_children(proc, pid)
        }
        listed => listed.unwrap_or_default(),
    }
}

/// Returns whether a process without a directory exists: a procfs with `hidepid` hides processes that the user may not
/// trace.
fn is_hidden(pid: Pid) -> bool {
    matches!(kill(pid, None), Ok(()) | Err(Errno::EPERM))
}

/// Returns the pids in `/proc/PID/task/TID/children`, on kernels that have it (`CONFIG_PROC_CHILDREN`).
fn listed_children(proc: BorrowedFd, pid: Pid) -> Result<Vec<Pid>, Errno> {
    let mut children = Vec::new();
    let tasks = format!("{pid}/task");
    for task in numbers(proc, &tasks)? {
        let list = read(proc, &format!("{tasks}/{task}/children"))?;
        let listed = list
            .split_ascii_whitespace()
            .filter_map(|child| child.parse().ok());
        children.extend(listed.map(Pid::from_raw));
    }
    Ok(children)
}

/// Returns every process whose parent is this one.
fn found_children(proc: BorrowedFd, pid: Pid) -> Vec<Pid> {
    let all = numbers(proc, ".").unwrap_or_default();
    all.into_iter()
        .filter(|other| stat(proc, *other).is_ok_and(|stat| stat.parent == pid))
        .collect()
}

/// Returns the numeric entries of a directory.
pub(super) fn numbers(proc: BorrowedFd, path: &str) -> Result<Vec<Pid>, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let dir = openat(proc, path, flags, Mode::empty())?;
    Ok(numbers_in(dir.as_fd())?
        .into_iter()
        .map(Pid::from_raw)
        .collect())
}

/// Returns the numeric entries of an open directory. Bypasses opendir(3), which would make three more calls.
pub fn numbers_in(dir: BorrowedFd) -> Result<Vec<i32>, Errno> {
    let mut found = Vec::new();
    let mut buffer = [0_u8; 4096];
    loop {
        // SAFETY: `buffer` is live, and the kernel writes no more than its length.
        let length = check(unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                dir.as_raw_fd(),
                buffer.as_mut_ptr(),
                buffer.len(),
            )
        })?;
        let entries = usize::try_from(length).ok().and_then(|it| buffer.get(..it));
        let mut entries = entries.ok_or(Errno::EIO)?;
        if entries.is_empty() {
            return Ok(found);
        }
        while !entries.is_empty() {
            let (name, rest) = first_entry(entries).ok_or(Errno::EIO)?;
            found.extend(
                std::str::from_utf8(name)
                    .ok()
                    .and_then(|it| it.parse::<i32>().ok()),
            );
            entries = rest;
        }
    }
}

/// Splits off the first directory entry. Returns its name and the remaining entries.
fn first_entry(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    /// The offsets of an entry's length and of its NUL-terminated name (`linux_dirent64`).
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let length = entries.get(LENGTH..LENGTH + 2)?.try_into().ok()?;
    let (entry, rest) = entries.split_at_checked(u16::from_ne_bytes(length).into())?;
    let name = entry.get(NAME..)?.split(|byte| *byte == 0).next()?;
    Some((name, rest))
}

/// Returns the target of a symbolic link.
pub fn link(proc: BorrowedFd, path: &str) -> Result<String, Errno> {
    let target = readlinkat(proc, path)?;
    target.into_string().map_err(|_| Errno::EILSEQ)
}

/// Writes a whole file in one call.
pub fn write(proc: BorrowedFd, path: &str, text: &str) -> Result<(), Errno> {
    let file = openat(
        proc,
        path,
        OFlag::O_WRONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    match nix::unistd::write(&file, text.as_bytes())? {
        n if n == text.len() => Ok(()),
        _ => Err(Errno::EIO),
    }
}

/// Opens a file for reading.
pub fn open(proc: BorrowedFd, path: &str) -> Result<OwnedFd, Errno> {
    openat(
        proc,
        path,
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
}

/// Reads a file as text.
pub fn read(proc: BorrowedFd, path: &str) -> Result<String, Errno> {
    let file = open(proc, path)?;
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match nix::unistd::read(&file, &mut chunk) {
            Err(Errno::EINTR) => {}
            Ok(0) => return String::from_utf8(text).map_err(|_| Errno::EILSEQ),
            Ok(length) => text.extend_from_slice(&chunk[..length]),
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_may_contain_parentheses_and_fields() {
        let text = "7 (a) b (c) S 3 6 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 5 0 999 0 0";
        let stat = Stat::parse(text).expect("it is a stat");
        let wanted = Stat {
            state: 'S',
            parent: Pid::from_raw(3),
            group: Pid::from_raw(6),
            flags: 4_194_560,
            own_ticks: 30,
            waited_ticks: 70,
            threads: 5,
            started: 999,
        };
        assert_eq!(stat, wanted);
        assert!(!stat.is_exiting());
        assert_eq!(Stat::parse("7 (a"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn process_name_cannot_forge_the_flags() {
        let rest = "1 2 3 4 10 20 30 40 20 0 5 0 999 0 0";
        let is_exiting = |text: String| Stat::parse(&text).map(|stat| stat.is_exiting());
        let ends = format!("7 (a) R 1) Z 1 7 7 0 -1 4194316 {rest}");
        assert_eq!(is_exiting(ends), Some(true));
        let lives = format!("7 (a) 4 4 4) S 1 7 7 0 -1 4194560 {rest}");
        assert_eq!(is_exiting(lives), Some(false));
    }

    #[test]
    fn malformed_directory_entry_is_an_error() {
        let entry = |length: u16| {
            let mut bytes = vec![0; 16];
            bytes.extend(length.to_ne_bytes());
            bytes.extend(b"\x047\0\0\0\0");
            bytes
        };
        assert_eq!(first_entry(&entry(24)), Some((&b"7"[..], &b""[..])));
        for length in [0, 18, 25] {
            assert_eq!(first_entry(&entry(length)), None, "{length}");
        }
    }
}
