//! Lists the directory entries that the lookup of a path uses (path_resolution(7)). A process that can replace one of
//! them decides which file the path names.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::readlink;

/// The maximum number of links that the kernel follows.
const MAX_LINKS: usize = 40;

/// The result of a lookup.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Route {
    /// Every directory entry that the lookup uses, including links, as a path without links: those of the path and of
    /// each link's target, up to the first that does not exist.
    pub entries: Vec<PathBuf>,
    /// The resolved path, without links as far as it exists.
    pub end: PathBuf,
}

impl Route {
    /// Looks up an absolute path. `read_link` returns a link's target, or `EINVAL` for an entry that is not a link
    /// (readlink(2)).
    pub fn new(path: &Path, mut read_link: impl FnMut(&Path) -> Result<PathBuf, Errno>) -> Self {
        let mut route = Self {
            entries: Vec::new(),
            end: PathBuf::from("/"),
        };
        let mut ahead = reversed_components(path);
        let (mut links, mut exists) = (0, true);
        while let Some(part) = ahead.pop() {
            if part == ".." {
                route.end.pop();
                continue;
            }
            route.end.push(part);
            if !exists {
                continue;
            }
            route.entries.push(route.end.clone());
            match read_link(&route.end) {
                Ok(target) if links < MAX_LINKS => {
                    links += 1;
                    route.end.pop();
                    if target.is_absolute() {
                        route.end = PathBuf::from("/");
                    }
                    ahead.extend(reversed_components(&target));
                }
                Err(Errno::EINVAL) => {}
                Ok(_) | Err(_) => exists = false,
            }
        }
        route
    }

    /// Returns the last entry at or beneath a directory without links, if the lookup uses one.
    pub fn entry_in(&self, directory: &Path) -> Option<&Path> {
        let mut entries = self.entries.iter().rev();
        let found = entries.find(|entry| entry.starts_with(directory));
        found.map(PathBuf::as_path)
    }

    /// Returns whether the lookup uses an entry beneath a directory that is not part of the resolved path, such as a
    /// symbolic link there.
    pub fn turns_in(&self, directory: &Path) -> bool {
        let mut inside = self
            .entries
            .iter()
            .filter(|entry| *entry != directory && entry.starts_with(directory));
        inside.any(|entry| !self.end.starts_with(entry))
    }
}

/// Returns the components of a path in reverse order.
fn reversed_components(path: &Path) -> Vec<std::ffi::OsString> {
    let part = |part: Component| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

/// Caches the links of this host. Each entry is read once.
#[derive(Clone, Debug, Default)]
pub struct Links(BTreeMap<PathBuf, Result<PathBuf, Errno>>);

impl Links {
    /// Looks up an absolute path.
    pub fn route(&mut self, path: &Path) -> Route {
        Route::new(path, |entry| {
            if let Some(known) = self.0.get(entry) {
                return known.clone();
            }
            let read = readlink(entry).map(PathBuf::from);
            self.0.insert(entry.to_owned(), read.clone());
            read
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Looks up a path on a host with these links and targets. `-` marks an entry that is not a link.
    fn on_host(path: &str, host: &[(&str, &str)]) -> Route {
        Route::new(Path::new(path), |entry| {
            let found = host.iter().find(|(path, _)| entry == Path::new(path));
            match found {
                Some((_, "-")) => Err(Errno::EINVAL),
                Some((_, target)) => Ok(PathBuf::from(target)),
                None => Err(Errno::ENOENT),
            }
        })
    }

    fn route(path: &str, host: &[(&str, &str)]) -> (String, String) {
        let route = on_host(path, host);
        let entries: Vec<String> = route
            .entries
            .iter()
            .map(|entry| entry.display().to_string())
            .collect();
        (entries.join(" "), route.end.display().to_string())
    }

    #[test]
    fn every_entry_of_the_lookup_is_listed() {
        let host = [
            ("/opt", "-"),
            ("/opt/py", "../share/cur"),
            ("/share", "-"),
            ("/share/cur", "base"),
            ("/share/base", "-"),
            ("/share/base/python3", "/bin/python3"),
            ("/bin", "usr/bin"),
            ("/usr", "-"),
            ("/usr/bin", "-"),
            ("/usr/bin/python3", "python3.11"),
            ("/usr/bin/python3.11", "-"),
        ];
        let entries = "/opt /opt/py /share /share/cur /share/base /share/base/python3 /bin /usr /usr/bin \
                       /usr/bin/python3 /usr/bin/python3.11";
        let expected = (entries.to_owned(), "/usr/bin/python3.11".to_owned());
        assert_eq!(route("/opt/py/python3", &host), expected);
        assert_eq!(route("/", &host), (String::new(), "/".to_owned()));
    }

    #[test]
    fn lookup_stops_at_a_missing_entry() {
        let host = [("/a", "-"), ("/a/link", "gone/deep"), ("/a/b", "-")];
        let expected = |entries: &str, end: &str| (entries.to_owned(), end.to_owned());
        assert_eq!(
            route("/a/b/c/d", &host),
            expected("/a /a/b /a/b/c", "/a/b/c/d")
        );
        assert_eq!(
            route("/a/link/x", &host),
            expected("/a /a/link /a/gone", "/a/gone/deep/x")
        );
    }

    #[test]
    fn circular_links_end_the_lookup() {
        let (entries, end) = route("/loop/x", &[("/loop", "loop")]);
        assert_eq!(entries.split(' ').count(), MAX_LINKS + 1);
        assert_eq!(end, "/loop/x");
    }

    #[test]
    fn turns_in_finds_links_in_a_directory() {
        let host = [
            ("/w", "-"),
            ("/w/link", "/other"),
            ("/w/in", "here"),
            ("/w/here", "-"),
            ("/other", "-"),
            ("/by", "w/d/../../other"),
            ("/w/d", "-"),
        ];
        let turns =
            |path: &str, directory: &str| on_host(path, &host).turns_in(Path::new(directory));
        for path in ["/w/link", "/w/in", "/by"] {
            assert!(turns(path, "/w"), "{path}");
            assert!(!turns(path, "/other"), "{path}");
        }
        for path in ["/w", "/w/here", "/w/d/new", "/other"] {
            assert!(!turns(path, "/w"), "{path}");
        }
    }

    #[test]
    fn links_of_this_host_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("there", real.join("link")).unwrap();
        std::fs::create_dir(real.join("there")).unwrap();
        let mut links = Links::default();
        for _ in 0..2 {
            let route = links.route(&real.join("link/new/one"));
            assert_eq!(route.end, real.join("there/new/one"));
            assert_eq!(route.entry_in(&real), Some(&*real.join("there/new")));
            assert_eq!(route.entries.last(), Some(&real.join("there/new")));
        }
        assert_eq!(links.route(&real.join("there")).end, real.join("there"));
    }
}
