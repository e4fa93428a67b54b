//! Where Sandfork keeps files for its next start.

use std::env;
use std::path::PathBuf;

/// Sandfork's directory in the cache directory that this process's environment names: `XDG_CACHE_HOME`, or
/// `.cache` in `HOME`. `None` if neither is an absolute path. A home that does not exist is not made: accounts of services
/// name one such as `/nonexistent`.
pub fn cache_directory() -> Option<PathBuf> {
    let set = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let home = || set("HOME").filter(|home| home.is_dir());
    let caches = set("XDG_CACHE_HOME").or_else(|| Some(home()?.join(".cache")));
    Some(caches?.join("sandfork"))
}
