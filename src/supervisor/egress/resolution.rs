//! How the host resolves names: its resolvers (resolv.conf(5)) and its own names (hosts(5)).

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;

use sandfork_egress::control::Resolution;
use sandfork_egress::host::Host;

use crate::waiters::lock;

const RESOLVERS: &str = "/etc/resolv.conf";
const NAMES: &str = "/etc/hosts";

/// The port of a resolver.
const DOMAIN: u16 = 53;

/// As many as the C library asks.
const MOST_RESOLVERS: usize = 3;

/// The most names of the host's own file.
const MOST_NAMES: usize = 256;

/// What tells one version of a file from the next: its file system, its number, its size and when it changed.
type Version = (u64, u64, u64, i64, i64);

/// The versions of the two files.
type Versions = [Option<Version>; 2];

/// The two files, and their versions when they were read last.
#[derive(Debug, Default)]
pub(super) struct HostFiles(Mutex<Option<Versions>>);

impl HostFiles {
    /// Reads the files.
    pub(super) fn read(&self) -> Resolution {
        // Before the contents: what changes in between is read again.
        *lock(&self.0) = Some(versions());
        Resolution {
            servers: resolvers(&text(RESOLVERS)),
            hosts: names(&text(NAMES)),
        }
    }

    /// Reads the files if one of them has changed: a host that moves to another network has other resolvers.
    pub(super) fn read_if_changed(&self) -> Option<Resolution> {
        let known = *lock(&self.0);
        (known != Some(versions())).then(|| self.read())
    }

    /// Has the files read again, as what they said did not arrive.
    pub(super) fn forget(&self) {
        *lock(&self.0) = None;
    }
}

/// What a file says, as far as it is text: a comment may be in another encoding.
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

/// The lines `nameserver ADDRESS`. Without any, the C library asks the machine itself.
fn resolvers(text: &str) -> Vec<SocketAddr> {
    let words = text.lines().map(str::split_ascii_whitespace);
    let addresses = words.filter_map(|mut words| match (words.next()?, words.next()?) {
        // A zone (`fe80::1%eth0`) has no form as an address.
        ("nameserver", address) => address.parse::<IpAddr>().ok(),
        _ => None,
    });
    let found: Vec<SocketAddr> = addresses
        .map(|address| SocketAddr::new(address, DOMAIN))
        .take(MOST_RESOLVERS)
        .collect();
    if found.is_empty() {
        vec![SocketAddr::from(([127, 0, 0, 1], DOMAIN))]
    } else {
        found
    }
}

/// The lines `ADDRESS NAME...`, without what follows a `#`.
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
    lines.flat_map(of_line).take(MOST_NAMES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_read_as_the_c_library_does() {
        let text = "# nameserver 9.9.9.9\nsearch example.org\nnameserver 10.0.0.53\n nameserver ::1 trailing\n\
                    nameserver fe80::1%eth0\nnameserver one\nnameserver 1.1.1.1\nnameserver 8.8.8.8\n";
        let shown: Vec<String> = resolvers(text).iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.53:53", "[::1]:53", "1.1.1.1:53"]);
        assert_eq!(resolvers(""), [SocketAddr::from(([127, 0, 0, 1], 53))]);
    }

    #[test]
    fn a_hosts_own_names_are_read() {
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
    fn files_that_have_not_changed_are_not_read_again() {
        let files = HostFiles::default();
        assert!(files.read_if_changed().is_some());
        assert!(files.read_if_changed().is_none());
        files.forget();
        assert!(files.read_if_changed().is_some());
    }

    #[test]
    fn a_byte_that_is_no_text_spoils_one_name() {
        let file = tempfile::NamedTempFile::new().expect("there is room");
        fs::write(&file, b"10.0.0.7 db # caf\xe9\n10.0.0.8 \xff web\n").expect("it is written");
        let names = names(&text(&file.path().to_string_lossy()));
        let shown: Vec<_> = names.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(shown, ["db", "web"]);
    }
}
