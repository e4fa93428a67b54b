//! Reads the small text files in which the kernel describes processes (proc(5)) and cgroups.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlinkat};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::descriptors::with_buffer;
use sandfork_jail::sys;
use sandfork_jail::sys::procfs::Stat;

/// The most bytes to read: more than any of these files has.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Reads a whole file.
pub fn read(path: &Path) -> io::Result<String> {
    read_by(&File::open(path)?, Extent::Lines)
}

/// How the kernel produces the contents of a file (Documentation/filesystems/seq_file.rst).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Extent {
    /// Line by line: a read may return only some of the lines.
    Lines,
    /// At once: the first read returns as much as fits into the buffer.
    Whole,
}

/// Reads a file through a lent buffer. `fs::read_to_string` first queries the size, which these files do not have, and
/// then starts with 32 bytes, which takes three times as many system calls.
fn read_by(mut file: &File, extent: Extent) -> io::Result<String> {
    let bytes: io::Result<Vec<u8>> = with_buffer(|buffer| {
        let mut length = 0;
        loop {
            let read = match file.read(&mut buffer[length..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            length += read;
            let is_full = length == buffer.len();
            if !is_full && (read == 0 || extent == Extent::Whole) {
                return Ok(buffer[..length].to_vec());
            }
            if is_full {
                let mut bytes = buffer.to_vec();
                file.take(MAX_BYTES).read_to_end(&mut bytes)?;
                return Ok(bytes);
            }
        }
    });
    String::from_utf8(bytes?).map_err(io::Error::other)
}

/// The open directory of a process in `/proc`. It always refers to that process, even after the pid is reused.
#[derive(Debug)]
pub struct ProcDir {
    /// The process's pid in this pid namespace.
    pub pid: i32,
    /// The directory itself.
    pub dir: OwnedFd,
}

impl ProcDir {
    /// Opens the directory of the process behind a pidfd (pidfd_open(2)); fails with `ESRCH` if the process has been
    /// reaped.
    pub fn of(process: BorrowedFd) -> io::Result<Self> {
        let pid = number(process)?;
        let dir = open(
            format!("/proc/{pid}").as_str(),
            OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        // The process still exists, so the pid was still its own when the directory was opened.
        sys::pidfd::is_there(process)?;
        Ok(Self { pid, dir })
    }

    /// Reads one of the directory's files.
    pub fn read(&self, file: &str) -> io::Result<String> {
        read_by(&self.open(file)?, Extent::Lines)
    }

    /// Reads one of the directory's files that the kernel produces at once: `cgroup`, `limits`, `stat` and `status`
    /// (`ONE` of fs/proc/base.c).
    pub fn read_at_once(&self, file: &str) -> io::Result<String> {
        read_by(&self.open(file)?, Extent::Whole)
    }

    /// Opens one of the directory's files.
    pub fn open(&self, file: &str) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        Ok(openat(self.dir.as_fd(), file, flags, Mode::empty())?.into())
    }

    /// Whether the process is exiting or gone.
    pub fn is_ending(&self) -> bool {
        match self.read_at_once("stat") {
            Ok(stat) => Stat::parse(&stat).is_some_and(|stat| stat.is_exiting()),
            Err(error) => {
                let gone = [Errno::ESRCH, Errno::ENOENT].map(|errno| Some(errno as i32));
                gone.contains(&error.raw_os_error())
            }
        }
    }

    /// Whether the process is in an interruptible sleep.
    pub fn is_asleep(&self) -> bool {
        let stat = self.read_at_once("stat").ok();
        stat.and_then(|stat| Stat::parse(&stat))
            .is_some_and(|stat| stat.state == 'S')
    }

    /// Returns the target of one of the directory's links.
    pub fn link(&self, link: &str) -> io::Result<OsString> {
        Ok(readlinkat(self.dir.as_fd(), link)?)
    }

    /// Returns the numbers of the process's open descriptors.
    pub fn descriptors(&self) -> io::Result<Vec<i32>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let dir = openat(self.dir.as_fd(), "fd", flags, Mode::empty())?;
        Ok(sys::procfs::numbers_in(dir.as_fd())?)
    }
}

/// Returns the pid, in this pid namespace, of the process behind a pidfd. Before Linux 6.13 the kernel reports it only
/// as `Pid:` in the pidfd's fdinfo, which takes four system calls.
pub fn number(process: BorrowedFd) -> io::Result<i32> {
    match sys::pidfd::number(process) {
        Ok(number) => return Ok(number),
        Err(Errno::ESRCH) => return Err(Errno::ESRCH.into()),
        Err(_) => {}
    }
    let info = read(format!("/proc/self/fdinfo/{}", process.as_raw_fd()).as_ref())?;
    info.lines()
        .find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
        .filter(|pid| *pid > 0)
        .ok_or_else(|| Errno::ESRCH.into())
}

/// Returns `Pss` of `/proc/PID/smaps_rollup` without `Pss_File`, plus the page tables, bytes. File pages do not count,
/// because they belong to the host's page cache.
pub fn own_share(proc: BorrowedFd, pid: Pid) -> Option<u64> {
    let rollup = read(format!("/proc/{pid}/smaps_rollup").as_ref()).ok()?;
    let kib = |name| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    // Linux before 5.3 does not list the parts.
    let files = kib("Pss_File:").unwrap_or(0);
    let tables = sys::procfs::page_tables(proc, &format!("{pid}/status"));
    Some(kib("Pss:")?.saturating_sub(files) * 1024 + tables.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::supervisor::clock;
    use crate::supervisor::descriptors::CHUNK;
    use crate::supervisor::wait::wait_readable;

    #[test]
    fn directory_belongs_to_the_process() {
        let handle = sys::pidfd::open(nix::unistd::getpid()).expect("a pidfd of this process");
        let own = ProcDir::of(handle.as_fd()).expect("this process's directory opens");
        assert_eq!(own.pid.cast_unsigned(), std::process::id());
        assert_eq!(
            own.read("comm").expect("the process has a name"),
            fs::read_to_string("/proc/self/comm").expect("this process has a name")
        );
        let link = own.link("ns/pid").expect("the process has a pid namespace");
        assert!(link.to_string_lossy().starts_with("pid:["), "{link:?}");
        assert!(
            own.descriptors()
                .expect("the descriptors are listed")
                .contains(&0)
        );
    }

    #[test]
    fn exited_process_is_ending_until_and_after_it_is_reaped() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep(1) starts");
        let pid = Pid::from_raw(child.id().cast_signed());
        let handle = sys::pidfd::open(pid).expect("a pidfd of the child");
        let of_child = ProcDir::of(handle.as_fd()).expect("the child's directory opens");
        assert!(!of_child.is_ending());
        child.kill().expect("the child can be killed");
        // The pidfd becomes readable when the process ends; it is a zombie until it is reaped (pidfd_open(2)).
        let until = clock::now() + std::time::Duration::from_secs(60);
        assert_eq!(wait_readable(handle.as_fd(), until), Ok(true));
        assert!(of_child.is_ending());
        child.wait().expect("the child has exited");
        assert!(of_child.is_ending());
    }

    #[test]
    fn directory_with_many_numbers_is_listed_completely() {
        let found_in = |dir: &Path| {
            let dir = File::open(dir).expect("the directory opens");
            let found = sys::procfs::numbers_in(dir.as_fd());
            let mut found = found.expect("the directory is readable");
            found.sort_unstable();
            found
        };
        let dir = tempfile::tempdir().expect("a temporary directory");
        assert!(found_in(dir.path()).is_empty());
        // More entries than one getdents64(2) call returns.
        for name in (0..300)
            .map(|number| number.to_string())
            .chain(["name".into()])
        {
            fs::write(dir.path().join(name), "").expect("the directory is writable");
        }
        assert_eq!(found_in(dir.path()), (0..300).collect::<Vec<_>>());
    }

    #[test]
    fn file_longer_than_the_buffer_is_read_completely() {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        let text = "line\n".repeat(CHUNK);
        io::Write::write_all(&mut file, text.as_bytes()).expect("the file is writable");
        assert_eq!(read(file.path()).expect("the file is readable"), text);
    }
}
