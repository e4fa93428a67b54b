//! The list of fonts that matplotlib makes at its import, kept for later zygotes of the same environment and
//! policy.
//!
//! To make it, matplotlib reads every font. The text is opaque here: a zygote writes it, in which no guest
//! ever runs, and only zygotes of the same interpreter, environment and policy get it back, which load the
//! same packages. They check what it depends on.

use std::ffi::OsStr;
use std::io;

use super::{CacheFile, Kind, LentFile, Unused};

/// As large as the list of some thousand fonts.
const FONTS: Kind = Kind {
    prefix: "fonts-1-",
    most_bytes: 4 << 20,
    most_files: 32,
};

/// Where the list of one environment and policy is kept.
#[derive(Clone, Debug)]
pub struct FontCache(CacheFile);

impl FontCache {
    /// The cache for what these texts identify.
    pub fn of<'a>(identity: impl IntoIterator<Item = &'a OsStr>) -> Result<Self, Unused> {
        CacheFile::of(FONTS, identity).map(Self)
    }

    /// A file in memory for a zygote, with what is kept.
    pub(in crate::supervisor) fn lend(&self) -> io::Result<LentFile> {
        LentFile::new(self.0.load().unwrap_or_default())
    }

    /// Keeps what the zygote has left in the file, if it is new.
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
    fn a_list_is_kept_if_it_is_new_and_not_too_large() {
        let home = tempfile::tempdir().unwrap();
        let file = CacheFile::beneath(&home.path().join("sandfork"), FONTS, []);
        let cache = FontCache(file);
        let lend = |expected: &str| {
            let lent = cache.lend().unwrap();
            assert_eq!(lent.before, expected.as_bytes());
            lent
        };
        // What a zygote writes, as `_sandfork.fonts` does.
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
