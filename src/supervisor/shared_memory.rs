//! The memory that a worker's processes share, where no cgroup counts it (mmap(2), `MAP_SHARED | MAP_ANONYMOUS`).
//!
//! The kernel keeps it until its last mapping ends, and has it in a process's size only as far as that process uses it. A
//! guest that gives the pages up (`MADV_DONTNEED`), unmaps all but one, or leaves their use to a child that ends, keeps
//! memory that no look at its processes finds. So the whole size counts as soon as it is mapped.
//!
//! What is unmapped is found only while the thread that maps is all there is of the worker: others could fork, or move a
//! mapping, while the supervisor looks. Until then it counts.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};

use nix::errno::Errno;

use super::run::Watch;
use sandfork_jail::sys::seccomp::{Asked, Reply};

/// The most of them at a time. Each takes a kilobyte of the kernel's memory, however small it is.
const MOST: usize = 4096;

/// The most bytes of a list of mappings that are read: the supervisor has other things to do.
const MOST_TEXT: u64 = 1 << 20;

/// How the kernel names them in a list of mappings. A mapping of the guest's own may have a name, too.
const NAMES: [&str; 2] = [" /dev/zero (deleted)", " [anon_shmem:"];

/// What a worker has mapped.
#[derive(Debug, Default)]
pub struct SharedMemory {
    /// The sizes of all that it may still have.
    sizes: Vec<u64>,
}

impl SharedMemory {
    /// Answers a call that maps more. All together may be as large as the limit on memory.
    pub fn reply(&mut self, call: Asked, watch: &Watch) -> Reply {
        let (size, most) = (call.arguments[1], watch.limits.memory());
        if !self.fits(size, most)
            && is_alone(call.thread, watch)
            && let Some(live) = live(call.thread)
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
        self.sizes.len() < MOST && self.sizes.iter().fold(size, add) <= most
    }

    /// Forgets all but so many. No list of mappings tells how large they were made, so these may be the largest.
    fn keep(&mut self, live: usize) {
        self.sizes.sort_unstable_by(|one, other| other.cmp(one));
        self.sizes.truncate(live);
    }
}

/// Whether this thread, which waits, is all there is of the worker. A process that ends in the first look may have left
/// another one, which the second finds.
fn is_alone(thread: u32, watch: &Watch) -> bool {
    let is_it = || matches!(*watch.tree(), [main] if main.as_raw().cast_unsigned() == thread);
    let threads = || fs::read_dir(format!("/proc/{thread}/task")).map(Iterator::count);
    is_it() && is_it() && threads().is_ok_and(|count| count == 1)
}

/// How many a process has, or `None` if that cannot be told.
fn live(process: u32) -> Option<usize> {
    let maps = File::open(format!("/proc/{process}/maps")).ok()?;
    let mut text = BufReader::new(maps.take(MOST_TEXT));
    let found = count(&mut text).ok()?;
    (text.get_ref().limit() > 0).then_some(found)
}

fn count(maps: &mut impl BufRead) -> io::Result<usize> {
    let mut found = BTreeSet::new();
    let mut line = Vec::new();
    while maps.read_until(b'\n', &mut line)? > 0 {
        // A name is the last field, and may be any bytes.
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
    fn what_is_shared_is_counted_once() {
        let maps = "\
7f10000-7f20000 rw-s 00000000 00:01 1026 /dev/zero (deleted)
7f20000-7f21000 r--s 00010000 00:01 1026 /dev/zero (deleted)
7f30000-7f40000 rw-s 00000000 00:01 1027 [anon_shmem:name]
7f40000-7f50000 rw-p 00000000 00:00 0
7f50000-7f60000 r--p 00000000 08:01 77 /usr/lib/libc.so.6
";
        assert_eq!(count(&mut maps.as_bytes()).expect("it is text"), 2);
    }

    #[test]
    fn the_largest_may_be_those_that_are_left() {
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
    fn there_are_so_many_at_most() {
        let mut memory = SharedMemory::default();
        memory.sizes.resize(MOST - 1, 0);
        assert!(memory.fits(0, 100));
        memory.sizes.push(0);
        assert!(!memory.fits(0, 100));
    }
}
