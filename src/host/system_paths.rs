//! Lists the directories that hold a Linux system's programs and libraries.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Programs and libraries (hier(7)), and the stores of NixOS and Guix, which hold the targets of their links to
/// interpreters and libraries.
const CANDIDATES: [&str; 20] = [
    "/bin",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/gnu/store",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/sbin",
    "/usr",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libx32",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/share/locale",
    "/usr/share/tcltk",
    "/usr/share/zoneinfo",
];

/// The prefix of the paths of Java's settings, to which Java's directories in `/usr` link: `/etc/java-17-openjdk` on
/// Debian, `/etc/java17-openjdk` on Arch, `/etc/java` on Fedora.
const JAVA: &str = "/etc/java";

/// A system directory that exists on this host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SystemPath {
    /// The path.
    pub path: PathBuf,
    /// The kind of path.
    pub kind: SystemPathKind,
}

/// The kind of a system path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SystemPathKind {
    /// A directory.
    Directory,
    /// A symbolic link, such as `/bin` with a merged `/usr`. Holds its target.
    Symlink(PathBuf),
    /// A regular file.
    File,
}

impl SystemPath {
    pub(super) fn probe_all() -> Vec<Self> {
        let settings = fs::read_dir("/etc").into_iter().flatten().flatten();
        let of_java = settings
            .map(|entry| entry.path())
            .filter(|path| Self::is_of_java(path));
        let all: BTreeSet<PathBuf> = CANDIDATES
            .iter()
            .map(PathBuf::from)
            .chain(of_java)
            .collect();
        all.iter().filter_map(|path| Self::probe(path)).collect()
    }

    /// Returns whether the path belongs to Java's settings.
    pub fn is_of_java(path: &Path) -> bool {
        let path = path.as_os_str().as_encoded_bytes();
        let rest = path.strip_prefix(JAVA.as_bytes());
        // Other packages, such as javascript-common, share the prefix.
        rest.is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_alphabetic))
    }

    fn probe(path: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok()?.file_type();
        let kind = if found.is_symlink() {
            SystemPathKind::Symlink(fs::read_link(path).ok()?)
        } else if found.is_dir() {
            SystemPathKind::Directory
        } else if found.is_file() {
            SystemPathKind::File
        } else {
            return None;
        };
        Some(Self {
            path: path.to_owned(),
            kind,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_java_settings_match() {
        for (path, expected) in [
            ("/etc/java", true),
            ("/etc/java-17-openjdk", true),
            ("/etc/java17-openjdk", true),
            ("/etc/javascript-common", false),
            ("/etc/jav", false),
        ] {
            assert_eq!(SystemPath::is_of_java(path.as_ref()), expected, "{path}");
        }
    }

    #[test]
    fn this_system_has_libraries() {
        let found = SystemPath::probe_all();
        assert!(
            found.iter().any(|s| s.path == Path::new("/usr")),
            "{found:?}"
        );
        assert!(
            found.iter().any(|s| s.path == Path::new("/lib")),
            "{found:?}"
        );
    }
}
