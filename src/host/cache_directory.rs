//! Where Sandfork keeps files for its next start.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Sandfork's directory in the cache directory that this process's environment names: `XDG_CACHE_HOME`, or
/// `.cache` in `HOME`. `None` if neither is an absolute path.
pub fn cache_directory() -> Option<PathBuf> {
    let set = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let caches = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    Some(caches?.join("sandfork"))
}

/// The path without symbolic links, as far as it exists.
pub(super) fn resolved(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|above| {
        let mut real = fs::canonicalize(above).ok()?;
        // Nothing would add a slash.
        real.extend(path.strip_prefix(above).ok()?);
        Some(real)
    });
    there.unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_exists_of_a_path_is_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("there", real.join("link")).unwrap();
        fs::create_dir(real.join("there")).unwrap();
        let new = resolved(&real.join("link/new/one"));
        assert_eq!(new, real.join("there/new/one"));
        assert_eq!(resolved(&real.join("there")), real.join("there"));
    }
}
