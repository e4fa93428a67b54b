//! Parses `--accept`, and decides which settings it covers.

use std::fs;
use std::io;
use std::path::{Component, Path};
use std::str::FromStr;

use crate::outcome::LimitName;
use crate::policy::{ImportPattern, Override};

/// The kinds, and the policy keys that each covers. A key that ends with a dot covers its section.
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

/// An accepted kind of settings, optionally narrowed to one value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Accept {
    keys: &'static [&'static str],
    only: Option<String>,
}

impl FromStr for Accept {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown_kind = || {
            let names = KINDS.map(|(name, _)| name).join(", ");
            format!("`{text}` is none of {names}; after `:` it may have a value, as in `read:/srv`")
        };
        let (name, only) = match text.split_once(':') {
            Some((name, only)) if !only.is_empty() => (name, Some(only.to_owned())),
            Some(_) => return Err(unknown_kind()),
            None => (text, None),
        };
        let known = KINDS.iter().find(|(kind, _)| *kind == name);
        let (_, keys) = known.ok_or_else(unknown_kind)?;
        let unresolved =
            |cause: io::Error| format!("`{text}`: where that is cannot be found: {cause}");
        let only = match only {
            Some(only) if matches!(name, "read" | "write") => {
                Some(absolute(Path::new(&only)).map_err(unresolved)?)
            }
            Some(only) if !may_fit(keys, &only) => {
                return Err(format!(
                    "`{text}` would accept nothing: no setting of this kind has such a value"
                ));
            }
            only => only,
        };
        Ok(Self { keys, only })
    }
}

impl Accept {
    /// Returns whether a setting is accepted.
    pub fn covers(&self, key: &str, set: &Override) -> bool {
        let is_covered =
            |meant: &&str| meant.ends_with('.') && key.starts_with(*meant) || *meant == key;
        self.keys.iter().any(is_covered)
            && self.only.as_ref().is_none_or(|only| fits(key, set, only))
    }
}

/// Makes a path absolute, as settings have it. A path with `..` needs the kernel, because `link/..` depends on the
/// link.
fn absolute(path: &Path) -> io::Result<String> {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    let absolute = if climbs {
        fs::canonicalize(path)?
    } else {
        std::path::absolute(path)?
    };
    Ok(absolute.display().to_string())
}

/// Returns whether any of these keys can have that value or name.
fn may_fit(keys: &[&str], only: &str) -> bool {
    let is_valid = |set: String| set.parse().is_ok_and(|set: Override| set.is_valid());
    let is_last = |key: &str| key.rsplit_once('.').is_some_and(|(_, name)| name == only);
    keys.iter().any(|key| match *key {
        "imports.allow" | "network.mode" | "syscalls.allow" | "network.allow" => {
            is_valid(format!("{key}={only}"))
        }
        "limits." => LimitName::ALL
            .into_iter()
            .any(|name| name.key().starts_with("limits.") && is_last(name.key())),
        key => is_last(key),
    })
}

/// Returns whether a value falls under `only`: a path beneath it, a module in it, that host, the limit of that name, or
/// that value.
fn fits(key: &str, set: &Override, only: &str) -> bool {
    let set = set.to_string();
    let value = set.split_once('=').map_or("", |(_, value)| value);
    match key {
        "filesystem.read" | "filesystem.write" => {
            Path::new(value).starts_with(only) && stays_within(value, only)
        }
        "imports.allow" => {
            let pattern = |text: &str| text.parse::<ImportPattern>();
            let (package, value) = (pattern(&format!("{only}.*")), pattern(value));
            package.is_ok_and(|package| value.is_ok_and(|value| package.covers(&value)))
        }
        "network.mode" => value == only,
        // System calls that depend on each other are learned as one list.
        "syscalls.allow" => value == only || value.contains(&format!("\"{only}\"")),
        // A host with non-default ports is learned as a table.
        "network.allow" => {
            let table = format!("{{ host = \"{only}\", ");
            value == only || value.starts_with(&table)
        }
        _ => key.rsplit_once('.').is_some_and(|(_, name)| name == only),
    }
}

/// Returns whether a path stays within a directory after links are resolved. A policy exposes the link's target, and a
/// guest may have created the link in a directory to which it could write. A path that does not exist counts as within.
fn stays_within(path: &str, directory: &str) -> bool {
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
    fn kind_covers_its_keys_and_a_value_narrows_it() {
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
            ("syscall:semop", "syscalls.allow=[\"semget\", \"semop\"]"),
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
            ("syscall:sem", "syscalls.allow=[\"semget\", \"semop\"]"),
            ("limit:wall", "limits.memory=1GiB"),
            ("limit", "filesystem.work_exec=true"),
        ] {
            assert!(!covers(accept, set), "{accept} {set}");
        }
    }

    #[test]
    fn relative_path_starts_at_the_current_directory() {
        let current = std::env::current_dir().unwrap();
        let set = format!("filesystem.read={}", current.join("src/lib.rs").display());
        for accept in ["read:src", "read:./src", "read:src/../src", "read:."] {
            assert!(covers(accept, &set), "{accept}");
        }
    }

    #[test]
    fn impossible_value_is_rejected() {
        for text in ["limit:nope", "net:x", "program:x", "proc:x"] {
            let refused = text.parse::<Accept>().unwrap_err();
            assert!(refused.contains("would accept nothing"), "{refused}");
        }
        for text in [
            "limit:wall",
            "limit:tmp_size",
            "net:allow",
            "host:*.b.de",
            "import:a.b",
        ] {
            assert!(text.parse::<Accept>().is_ok(), "{text}");
        }
    }

    #[test]
    fn link_out_of_a_directory_is_not_covered() {
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
    fn unknown_kind_is_rejected_with_the_list_of_kinds() {
        for text in ["", "all", "read:", "reads", ":x"] {
            let refused = text.parse::<Accept>().unwrap_err();
            assert!(refused.contains("read, write, import"), "{refused}");
        }
    }
}
