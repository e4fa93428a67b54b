//! Limits the number of sockets of a worker with a loopback interface.
//!
//! No process and no cgroup is charged for data in a connection that is not accepted yet, and one listening socket,
//! with one descriptor, may have thousands of such connections. cgroup v1 charges nothing for TCP and UDP sockets at
//! all. The kernel counts the sockets of a network namespace, including those without a descriptor. So their number is
//! limited here, by the memory that each may hold.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::proc_dir::{self, ProcDir};
use sandfork_jail::loopback::LARGEST_BUFFER;

/// The number of sockets that is always allowed: enough for a program with a server and its clients.
const ALWAYS_ALLOWED: u64 = 64;

/// The sockets of one worker's network namespace.
#[derive(Debug)]
pub struct Sockets {
    /// `/proc/PID/net/sockstat`. The open file refers to the namespace even after the process has ended.
    table: File,
    /// The most memory that a socket may hold, bytes.
    bytes_per_socket: u64,
    /// The most sockets of the egress process, which are not the guest's.
    served: u64,
}

impl Sockets {
    /// Opens the table of the network namespace of a process that has run no guest code yet. `served` is the most
    /// sockets of the egress process.
    pub fn of(process: &ProcDir, served: u64) -> io::Result<Self> {
        let table = process.open("net/sockstat")?;
        // TCP buffers are limited by the namespace's settings, and the filter does not let the guest set buffer sizes.
        let [receive, send] = ["rmem_default", "wmem_default"].map(|name| {
            let path = Path::new("/proc/sys/net/core").join(name);
            let default: Option<u64> = proc_dir::read(&path).ok()?.trim().parse().ok();
            default
        });
        let buffer = |default: Option<u64>| default.unwrap_or(0).max(LARGEST_BUFFER);
        Ok(Self {
            table,
            bytes_per_socket: buffer(receive) + buffer(send),
            served,
        })
    }

    /// Whether there are more sockets than may exist under this memory limit.
    pub fn exceed(&self, memory: u64) -> bool {
        let mut text = [0; 64];
        let length = self.table.read_at(&mut text, 0).unwrap_or(0);
        // If the kernel reports nothing, assume the worst.
        let most = (memory / self.bytes_per_socket).max(ALWAYS_ALLOWED) + self.served;
        number(&text[..length]).is_none_or(|held| held > most)
    }
}

/// Parses the number in the first line, `sockets: used 5`.
fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let line = text.lines().next()?.strip_prefix("sockets: used ")?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn socket_count_is_parsed_from_the_first_line() {
        let table = b"sockets: used 173\nTCP: inuse 5 orphan 0 tw 0 alloc 7 mem 1\n";
        assert_eq!(number(table), Some(173));
        assert_eq!(number(b"TCP: inuse 5\n"), None);
        assert_eq!(number(b""), None);
    }
}
