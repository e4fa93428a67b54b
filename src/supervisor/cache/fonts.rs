//! Caches the font list that matplotlib builds when it is imported, for later zygotes of the same environment and
//! policy.
//!
//! To build the list, matplotlib reads every font. The text is opaque here. A zygote writes it, in which no guest code
//! ever runs, and only zygotes of the same interpreter, environment and policy receive it, which load the same
//! packages. They check the files that the list depends on.

use std::ffi::OsStr;
use std::io;

use super::{CacheFile, Kind, LentFile, Unused};

/// The maximum size allows for a list of a few thousand fonts.
const FONTS: Kind = Kind {
    prefix: "fonts-1-",
    most_bytes: 4 << 20,
    most_files: 32,
};

/// The cached list of one environment and policy.
#[derive(Clone, Debug)]
pub struct FontCache(CacheFile);

impl FontCache {
    /// Returns the cache identified by these texts.
    pub fn of<'a>(identity: impl IntoIterator<Item = &'a OsStr>) -> Result<Self, Unused> {
        CacheFile::of(FONTS, identity).map(Self)
    }

    /// Returns a memory file with the cached list, for a zygote.
    pub(in crate::supervisor) fn lend(&self) -> io::Result<LentFile> {
        LentFile::new(self.0.load().unwrap_or_default())
    }

    /// Keeps the list that the zygote wrote to the file, if it is new.
    pub(in crate::supervisor) fn take_back(&self, lent: &LentFile) -> Result<(), Unused> {
        let text = lent.changed(FONTS);
        match text.map_err(|error| Unused::io("the list".as_ref(), error))? {
            Some(text) => self.0.store(&text),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn list_is_kept_if_new_and_not_oversized() {
        let home = tempfile::tempdir().unwrap();
        let file = CacheFile::beneath(&home.path().join("sandfork"), FONTS, []);
        let cache = FontCache(file);
        let lend = |expected: &str| {
            let lent = cache.lend().unwrap();
            assert_eq!(lent.before, expected.as_bytes());
            lent
        };
        // Writes like `_sandfork.fonts` in a zygote.
        let write = |lent: LentFile, text: &str| {
            lent.file.set_len(0).unwrap();
            lent.file.write_all_at(text.as_bytes(), 0).unwrap();
            cache.take_back(&lent).unwrap();
        };
        write(lend(""), "fonts");
        write(lend("fonts"), "more");
        let too_large = lend("more");
        too_large.file.set_len(FONTS.most_bytes + 1).unwrap();
        cache.take_back(&too_large).unwrap();
        write(lend("more"), "");
        lend("more");
    }
}
