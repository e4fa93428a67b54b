//! Limits the shared memory of a worker where no cgroup counts it (mmap(2), `MAP_SHARED | MAP_ANONYMOUS`).
//!
//! The kernel keeps shared memory until its last mapping ends, but counts in a process's size only the pages that this
//! process uses. A guest that gives up the pages (`MADV_DONTNEED`), unmaps all but one, or leaves their use to a child
//! that exits, keeps memory that no measurement of its processes finds. So the whole size counts from the moment it is
//! mapped.
//!
//! Unmapped memory can be discovered only while the calling thread is the worker's only thread: other threads could
//! fork, or move a mapping, while the supervisor reads the mappings. Until then the memory counts.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};

use nix::errno::Errno;

use super::run::Watch;
use sandfork_jail::sys::seccomp::{Notification, Reply};

/// The most shared mappings of a worker. Each takes a kilobyte of kernel memory, however small it is.
const MAX_MAPPINGS: usize = 4096;

/// The most bytes that are read of `/proc/PID/maps`, to bound the supervisor's time.
const MAX_MAPS_BYTES: u64 = 1 << 20;

/// The names of shared mappings in `/proc/PID/maps`: the second is the prefix of a name that the guest chose.
const NAMES: [&str; 2] = [" /dev/zero (deleted)", " [anon_shmem:"];

/// The shared memory that a worker has mapped.
#[derive(Debug, Default)]
pub struct SharedMemory {
    /// The sizes of all mappings that may still exist, bytes.
    sizes: Vec<u64>,
}

impl SharedMemory {
    /// Replies to a system call that maps more. The total may be as large as the memory limit.
    pub fn reply(&mut self, call: Notification, watch: &Watch) -> Reply {
        let (size, most) = (call.arguments[1], watch.limits.memory());
        if !self.fits(size, most)
            && is_alone(call.thread, watch)
            && let Some(live) = count_live(call.thread)
        {
            self.keep(live);
        }
        if !self.fits(size, most) {
            return Reply::Error(Errno::ENOMEM);
        }
        self.sizes.push(size);
        Reply::Continue
    }

    fn fits(&self, size: u64, most: u64) -> bool {
        let add = |sum: u64, size: &u64| sum.saturating_add(*size);
        self.sizes.len() < MAX_MAPPINGS && self.sizes.iter().fold(size, add) <= most
    }

    /// Forgets all but `live` mappings. It keeps the largest ones, because `/proc/PID/maps` does not show how large a
    /// mapping was when it was created.
    fn keep(&mut self, live: usize) {
        self.sizes.sort_unstable_by(|one, other| other.cmp(one));
        self.sizes.truncate(live);
    }
}

/// Whether this thread, which waits in its system call, is the worker's only thread. The process tree is read twice,
/// because a process that exits during the first reading may leave a child that only the second one finds.
fn is_alone(thread: u32, watch: &Watch) -> bool {
    let is_it = || matches!(*watch.tree(), [main] if main.as_raw().cast_unsigned() == thread);
    let threads = || fs::read_dir(format!("/proc/{thread}/task")).map(Iterator::count);
    is_it() && is_it() && threads().is_ok_and(|count| count == 1)
}

/// Returns the number of a process's shared mappings, or `None` if it is unknown.
fn count_live(process: u32) -> Option<usize> {
    let maps = File::open(format!("/proc/{process}/maps")).ok()?;
    let mut text = BufReader::new(maps.take(MAX_MAPS_BYTES));
    let found = count(&mut text).ok()?;
    (text.get_ref().limit() > 0).then_some(found)
}

fn count(maps: &mut impl BufRead) -> io::Result<usize> {
    let mut found = BTreeSet::new();
    let mut line = Vec::new();
    while maps.read_until(b'\n', &mut line)? > 0 {
        // The name is the last field, and may contain any bytes.
        let text = String::from_utf8_lossy(&line);
        if NAMES.iter().any(|name| text.contains(name)) {
            let inode = text.split_ascii_whitespace().nth(4);
            found.insert(inode.unwrap_or_default().to_owned());
        }
        line.clear();
    }
    Ok(found.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_mapping_is_counted_once() {
        let maps = "\
7f10000-7f20000 rw-s 00000000 00:01 1026 /dev/zero (deleted)
7f20000-7f21000 r--s 00010000 00:01 1026 /dev/zero (deleted)
7f30000-7f40000 rw-s 00000000 00:01 1027 [anon_shmem:name]
7f40000-7f50000 rw-p 00000000 00:00 0
7f50000-7f60000 r--p 00000000 08:01 77 /usr/lib/libc.so.6
";
        assert_eq!(
            count(&mut maps.as_bytes()).expect("the text is readable"),
            2
        );
    }

    #[test]
    fn largest_sizes_are_kept() {
        let mut memory = SharedMemory {
            sizes: vec![1, 50, 20, 10],
        };
        assert!(memory.fits(19, 100) && !memory.fits(20, 100));
        assert!(!memory.fits(u64::MAX, 100));
        memory.keep(2);
        assert_eq!(memory.sizes, [50, 20]);
        assert!(memory.fits(30, 100));
        memory.keep(9);
        assert_eq!(memory.sizes.len(), 2);
    }

    #[test]
    fn number_of_mappings_is_limited() {
        let mut memory = SharedMemory::default();
        memory.sizes.resize(MAX_MAPPINGS - 1, 0);
        assert!(memory.fits(0, 100));
        memory.sizes.push(0);
        assert!(!memory.fits(0, 100));
    }
}
