//! How many sockets a worker with a loopback interface holds.
//!
//! No process and no cgroup is charged for what waits in a connection that was not accepted yet, and one
//! listening socket may have thousands of them, with one descriptor. cgroups of version 1 are charged for no
//! TCP or UDP socket at all. The kernel counts a namespace's sockets, with those that have no descriptor. So
//! their number is bounded here, by what each may hold.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::proc_dir::{self, ProcDir};
use sandfork_jail::loopback::LARGEST_BUFFER;

/// A program with a server and its clients has so many, whatever they may hold.
const ALWAYS: u64 = 64;

/// The sockets of one worker's network namespace.
#[derive(Debug)]
pub struct Sockets {
    /// `/proc/PID/net/sockstat`. It stays the namespace's when the process that it was opened through ends.
    table: File,
    /// The most memory that one may hold, bytes.
    each: u64,
    /// How many there may be besides the guest's own: those of the egress process.
    served: u64,
}

impl Sockets {
    /// Those of the namespace of a process, before it runs guest code. `served` is the most that are not the guest's.
    pub fn of(process: &ProcDir, served: u64) -> io::Result<Self> {
        let table = process.open("net/sockstat")?;
        // TCP's are bounded in the namespace, and the filter lets the guest set no size.
        let [receive, send] = ["rmem_default", "wmem_default"].map(|name| {
            let path = Path::new("/proc/sys/net/core").join(name);
            let usual: Option<u64> = proc_dir::read(&path).ok()?.trim().parse().ok();
            usual
        });
        let buffer = |usual: Option<u64>| usual.unwrap_or(0).max(LARGEST_BUFFER);
        Ok(Self {
            table,
            each: buffer(receive) + buffer(send),
            served,
        })
    }

    /// Whether there are more than fit into so much memory.
    pub fn exceed(&self, memory: u64) -> bool {
        let mut text = [0; 64];
        let length = self.table.read_at(&mut text, 0).unwrap_or(0);
        // If the kernel says nothing, there may be any number.
        let most = (memory / self.each).max(ALWAYS) + self.served;
        number(&text[..length]).is_none_or(|held| held > most)
    }
}

/// The number in the first line, `sockets: used 5`.
fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let line = text.lines().next()?.strip_prefix("sockets: used ")?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn the_first_line_is_the_number() {
        let table = b"sockets: used 173\nTCP: inuse 5 orphan 0 tw 0 alloc 7 mem 1\n";
        assert_eq!(number(table), Some(173));
        assert_eq!(number(b"TCP: inuse 5\n"), None);
        assert_eq!(number(b""), None);
    }
}
