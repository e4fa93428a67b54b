//! The key that authenticates this user's saved snapshots.

use super::{CacheFile, Kind, Unused};
use crate::supervisor::random::random;

/// The length of the key in bytes: that of the hash's output (RFC 2104, section 3).
const LENGTH: usize = 32;

const KIND: Kind = Kind {
    prefix: "key-1-",
    most_bytes: LENGTH as u64,
    most_files: 1,
};

/// Returns the key, and creates it on first use. If the key is lost, snapshots saved under it can no longer be used.
pub fn snapshot_key() -> Result<[u8; LENGTH], Unused> {
    let file = CacheFile::of(KIND, [])?;
    let found = key_of(&file);
    let is_absent = match &found {
        Err(error) if error.is_absence() => true,
        Err(Unused::NotPrivate(_) | Unused::TooLarge(_) | Unused::Torn(_)) => false,
        _ => return found,
    };
    let key: [u8; LENGTH] = random().map_err(|error| Unused::io("/dev/urandom".as_ref(), error))?;
    // Another process may have stored its key first.
    let stored = if is_absent {
        file.store_first(&key)
    } else {
        file.store(&key)
    };
    key_of(&file).or_else(|error| stored.and(Err(error)))
}

fn key_of(file: &CacheFile) -> Result<[u8; LENGTH], Unused> {
    let key = file.load()?;
    key.try_into()
        .map_err(|_| Unused::Torn(file.directory.join(&file.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_stored_key_wins() {
        let directory = tempfile::tempdir().expect("there is a directory");
        let file = CacheFile::beneath(directory.path(), KIND, []);
        assert!(key_of(&file).is_err_and(|error| error.is_absence()));
        file.store_first(&[1; LENGTH]).expect("it is the first");
        file.store_first(&[2; LENGTH]).expect_err("there is one");
        assert_eq!(key_of(&file).ok(), Some([1; LENGTH]));
        file.store(b"short").expect("it is replaced");
        key_of(&file).expect_err("it is torn");
    }
}
