//! Reads how the host resolves names: its resolvers (resolv.conf(5)) and its static table (hosts(5)).

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;

use sandfork_egress::control::Resolution;
use sandfork_egress::host::Host;

use crate::waiters::lock;

const RESOLVERS: &str = "/etc/resolv.conf";
const NAMES: &str = "/etc/hosts";

/// The port of a DNS resolver.
const DOMAIN: u16 = 53;

/// The number of resolvers that the C library uses (`MAXNS`).
const MAX_RESOLVERS: usize = 3;

/// The maximum number of names from the static table.
const MAX_NAMES: usize = 256;

/// The identity of a file's version: device, inode, size and time of the last status change.
type Version = (u64, u64, u64, i64, i64);

/// The versions of both files.
type Versions = [Option<Version>; 2];

/// The two files, with their versions when they were last read.
#[derive(Debug, Default)]
pub(super) struct HostFiles(Mutex<Option<Versions>>);

impl HostFiles {
    /// Reads the files.
    pub(super) fn read(&self) -> Resolution {
        // Versions first: a change between the two steps is then read again.
        *lock(&self.0) = Some(versions());
        Resolution {
            servers: resolvers(&text(RESOLVERS)),
            hosts: names(&text(NAMES)),
        }
    }

    /// Reads the files if one of them has changed: a host that moves to another network gets other resolvers.
    pub(super) fn read_if_changed(&self) -> Option<Resolution> {
        let known = *lock(&self.0);
        (known != Some(versions())).then(|| self.read())
    }

    /// Makes the next call read the files again, because the last result was not delivered.
    pub(super) fn forget(&self) {
        *lock(&self.0) = None;
    }
}

/// Reads a file as text. Bytes that are not UTF-8 are replaced: a comment may use another encoding.
fn text(path: &str) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn versions() -> Versions {
    [RESOLVERS, NAMES].map(|path| {
        let found = fs::metadata(path).ok()?;
        let (size, seconds) = (found.len(), found.ctime());
        Some((found.dev(), found.ino(), size, seconds, found.ctime_nsec()))
    })
}

/// Parses the lines `nameserver ADDRESS`. Without any, the C library queries the local machine.
fn resolvers(text: &str) -> Vec<SocketAddr> {
    let words = text.lines().map(str::split_ascii_whitespace);
    let addresses = words.filter_map(|mut words| match (words.next()?, words.next()?) {
        // An address with a zone (`fe80::1%eth0`) cannot be represented as an `IpAddr`.
        ("nameserver", address) => address.parse::<IpAddr>().ok(),
        _ => None,
    });
    let found: Vec<SocketAddr> = addresses
        .map(|address| SocketAddr::new(address, DOMAIN))
        .take(MAX_RESOLVERS)
        .collect();
    if found.is_empty() {
        vec![SocketAddr::from(([127, 0, 0, 1], DOMAIN))]
    } else {
        found
    }
}

/// Parses the lines `ADDRESS NAME...`, without comments (`#`).
fn names(text: &str) -> Vec<(String, IpAddr)> {
    let lines = text.lines().filter_map(|line| line.split('#').next());
    let of_line = |line: &str| -> Vec<(String, IpAddr)> {
        let mut words = line.split_ascii_whitespace();
        let Some(address) = words.next().and_then(|it| it.parse().ok()) else {
            return Vec::new();
        };
        let names = words.filter_map(|name| match name.parse() {
            Ok(Host::Name(name)) => Some((name, address)),
            _ => None,
        });
        names.collect()
    };
    lines.flat_map(of_line).take(MAX_NAMES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_parsed_like_in_the_c_library() {
        let text = "# nameserver 9.9.9.9\nsearch example.org\nnameserver 10.0.0.53\n nameserver ::1 trailing\n\
                    nameserver fe80::1%eth0\nnameserver one\nnameserver 1.1.1.1\nnameserver 8.8.8.8\n";
        let shown: Vec<String> = resolvers(text).iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.53:53", "[::1]:53", "1.1.1.1:53"]);
        assert_eq!(resolvers(""), [SocketAddr::from(([127, 0, 0, 1], 53))]);
    }

    #[test]
    fn static_names_are_parsed() {
        let text = "127.0.0.1 localhost # this\n10.0.0.7\tDB.Internal db\n#10.0.0.8 other\nbroken x\n::1 a b$ c\n";
        let names = names(text);
        let shown: Vec<String> = names
            .iter()
            .map(|(name, at)| format!("{name} {at}"))
            .collect();
        let expected = [
            "localhost 127.0.0.1",
            "db.internal 10.0.0.7",
            "db 10.0.0.7",
            "a ::1",
            "c ::1",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn unchanged_files_are_not_read_again() {
        let files = HostFiles::default();
        assert!(files.read_if_changed().is_some());
        assert!(files.read_if_changed().is_none());
        files.forget();
        assert!(files.read_if_changed().is_some());
    }

    #[test]
    fn invalid_utf8_spoils_only_its_name() {
        let file = tempfile::NamedTempFile::new().expect("there is room");
        fs::write(&file, b"10.0.0.7 db # caf\xe9\n10.0.0.8 \xff web\n").expect("it is written");
        let names = names(&text(&file.path().to_string_lossy()));
        let shown: Vec<_> = names.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(shown, ["db", "web"]);
    }
}
