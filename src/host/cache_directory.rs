//! Where Sandfork keeps files for its next start.

use std::env;
use std::path::PathBuf;

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
