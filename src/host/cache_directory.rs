//! Locates Sandfork's cache directory.

use std::env;
use std::path::PathBuf;

/// Returns Sandfork's directory in `XDG_CACHE_HOME`, or else in `.cache` of `HOME`. `None` if neither is an absolute
/// path. A missing home directory is not created, because service accounts have homes such as `/nonexistent`.
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
