//! What `--accept` lets a policy be widened by.

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use thiserror::Error;

use crate::policy::{ImportPattern, Override};

/// The kinds, and the keys that each stands for. A key that ends with a dot stands for its section.
const KINDS: [(&str, &[&str]); 9] = [
    ("read", &["filesystem.read"]),
    ("write", &["filesystem.write"]),
    ("import", &["imports.allow"]),
    ("net", &["network.mode"]),
    ("host", &["network.allow"]),
    ("program", &["filesystem.system", "filesystem.work_exec"]),
    ("proc", &["filesystem.proc"]),
    ("syscall", &["syscalls.allow"]),
    (
        "limit",
        &[
            "limits.",
            "network.connections",
            "network.bytes",
            "filesystem.work_size",
            "filesystem.work_inodes",
            "filesystem.tmp_size",
            "filesystem.tmp_inodes",
        ],
    ),
];

/// One kind of settings, and the values that are accepted of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Accept {
    keys: &'static [&'static str],
    only: Option<String>,
}

/// Why a text is no kind.
#[derive(Debug, Error)]
#[error("`{0}` is none of {names}; after `:` it may have a value, as in `read:/srv`", names = Names)]
pub struct UnknownKind(String);

struct Names;

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&KINDS.map(|(name, _)| name).join(", "))
    }
}

impl FromStr for Accept {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let (name, only) = match text.split_once(':') {
            Some((name, only)) if !only.is_empty() => (name, Some(only.to_owned())),
            Some(_) => return Err(UnknownKind(text.to_owned())),
            None => (text, None),
        };
        let known = KINDS.iter().find(|(kind, _)| *kind == name);
        let (_, keys) = known.ok_or_else(|| UnknownKind(text.to_owned()))?;
        Ok(Self { keys, only })
    }
}

impl Accept {
    /// Whether it covers a setting.
    pub fn covers(&self, key: &str, set: &Override) -> bool {
        let is_meant =
            |meant: &&str| meant.ends_with('.') && key.starts_with(*meant) || *meant == key;
        self.keys.iter().any(is_meant) && self.only.as_ref().is_none_or(|only| fits(key, set, only))
    }
}

/// Whether a value is what was named: a path beneath it, a module in it, a host, a limit of that name, the value itself.
fn fits(key: &str, set: &Override, only: &str) -> bool {
    let set = set.to_string();
    let value = set.split_once('=').map_or("", |(_, value)| value);
    match key {
        "filesystem.read" | "filesystem.write" => {
            Path::new(value).starts_with(only) && leads_within(value, only)
        }
        "imports.allow" => {
            let pattern = |text: &str| text.parse::<ImportPattern>();
            let (package, value) = (pattern(&format!("{only}.*")), pattern(value));
            package.is_ok_and(|package| value.is_ok_and(|value| package.covers(&value)))
        }
        "network.mode" | "syscalls.allow" => value == only,
        // What is learnt of a host with other ports is a table.
        "network.allow" => {
            let table = format!("{{ host = \"{only}\", ");
            value == only || value.starts_with(&table)
        }
        _ => key.rsplit_once('.').is_some_and(|(_, name)| name == only),
    }
}

/// Whether a path leads nowhere else by links: a policy shows what it leads to, and a guest may have made the link in a
/// directory that it could write to. One that does not exist leads nowhere.
fn leads_within(path: &str, directory: &str) -> bool {
    match (fs::canonicalize(path), fs::canonicalize(directory)) {
        (Ok(path), Ok(directory)) => path.starts_with(directory),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::symlink;

    use super::*;

    fn covers(accept: &str, set: &str) -> bool {
        let key = set.split_once('=').unwrap().0;
        let accept: Accept = accept.parse().unwrap();
        accept.covers(key, &set.parse().unwrap())
    }

    #[test]
    fn a_kind_covers_its_keys_and_a_value_narrows_it() {
        for (accept, set) in [
            ("read", "filesystem.read=/srv/x"),
            ("read:/srv", "filesystem.read=/srv/x"),
            ("write:/srv/x", "filesystem.write=/srv/x"),
            ("import:os", "imports.allow=os.path"),
            ("net:loopback", "network.mode=loopback"),
            ("host:a.b", "network.allow=a.b"),
            (
                "host:a.b",
                "network.allow={ host = \"a.b\", ports = [8443] }",
            ),
            ("limit:bytes", "network.bytes=200MiB"),
            ("limit:wall", "limits.wall=1m"),
            ("limit", "filesystem.work_size=1GiB"),
            ("program", "filesystem.work_exec=true"),
            ("proc", "filesystem.proc=true"),
            ("syscall:splice", "syscalls.allow=splice"),
        ] {
            assert!(covers(accept, set), "{accept} {set}");
        }
        for (accept, set) in [
            ("read", "filesystem.write=/srv/x"),
            ("read:/srv", "filesystem.read=/srvx"),
            ("read:/srv", "filesystem.read=/etc/shadow"),
            ("import:os", "imports.allow=osx"),
            ("host:a.b", "network.allow=c.a.b"),
            ("net", "network.allow=a.b"),
            ("net", "syscalls.allow=splice"),
            ("syscall:tee", "syscalls.allow=splice"),
            ("limit:wall", "limits.memory=1GiB"),
            ("limit", "filesystem.work_exec=true"),
        ] {
            assert!(!covers(accept, set), "{accept} {set}");
        }
    }

    #[test]
    fn a_link_that_leads_out_of_a_directory_is_not_in_it() {
        let (accepted, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (inside, outside) = (accepted.path().join("a"), other.path().join("b"));
        fs::write(&inside, "").unwrap();
        fs::write(&outside, "").unwrap();
        for (name, target, is_within) in [("in", &inside, true), ("out", &outside, false)] {
            let link = accepted.path().join(name);
            symlink(target, &link).unwrap();
            let accept = format!("read:{}", accepted.path().display());
            let set = format!("filesystem.read={}", link.display());
            assert_eq!(covers(&accept, &set), is_within, "{name}");
        }
    }

    #[test]
    fn other_words_are_refused_with_the_kinds() {
        for text in ["", "all", "read:", "reads", ":x"] {
            let refused = text.parse::<Accept>().unwrap_err().to_string();
            assert!(refused.contains("read, write, import"), "{refused}");
        }
    }
}
