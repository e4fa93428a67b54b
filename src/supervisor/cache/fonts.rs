//! The list of fonts that matplotlib makes at its import, kept for later zygotes of the same environment and
//! policy.
//!
//! To make it, matplotlib reads every font. The text is opaque here: a zygote writes it, in which no guest
//! ever runs, and only zygotes of the same interpreter, environment and policy get it back, which load the
//! same packages. They check what it depends on.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use super::{CacheFile, Kind, Unused, memory_file};

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
    pub(in crate::supervisor) fn lend(&self) -> io::Result<LentFonts> {
        let text = self.0.load().unwrap_or_default();
        let file = memory_file(&text)?;
        Ok(LentFonts { file, text })
    }

    /// Keeps what the zygote has left in the file, if it is new.
    pub(in crate::supervisor) fn take_back(&self, lent: &LentFonts) -> Result<(), Unused> {
        let read = || {
            let length = lent.file.metadata()?.len().min(FONTS.most_bytes + 1);
            let mut text = vec![0; usize::try_from(length).unwrap_or(0)];
            lent.file.read_exact_at(&mut text, 0)?;
            Ok(text)
        };
        let text: Vec<u8> = read().map_err(|error| Unused::io("the list".as_ref(), error))?;
        if text.is_empty() || text.len() as u64 > FONTS.most_bytes || text == lent.text {
            return Ok(());
        }
        self.0.store(&text)
    }
}

/// A file in memory that a zygote reads and writes.
#[derive(Debug)]
pub(in crate::supervisor) struct LentFonts {
    file: File,
    text: Vec<u8>,
}

impl AsFd for LentFonts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_kept_if_it_is_new_and_not_too_large() {
        let home = tempfile::tempdir().unwrap();
        let file = CacheFile::beneath(&home.path().join("sandfork"), FONTS, []);
        let cache = FontCache(file);
        let lend = |expected: &str| {
            let lent = cache.lend().unwrap();
            assert_eq!(lent.text, expected.as_bytes());
            lent
        };
        // What a zygote writes, as `_sandfork.fonts` does.
        let write = |lent: LentFonts, text: &str| {
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
