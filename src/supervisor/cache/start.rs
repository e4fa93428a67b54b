//! Caches what one start of an interpreter can pass to the next: the interpreter's facts, and the byte code of
//! Sandfork's guest modules.
//!
//! The cached facts are a guess that lets the supervisor prepare while the interpreter starts. It compares them with
//! the interpreter's own report before it acts on them. A zygote runs the cached byte code, in its jail, instead of
//! compiling the same sources. The byte code is as trusted as the files of this user's interpreter: only such an
//! interpreter and its own library produced it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::{CacheFile, Kind, LentFile, Unused, digest};
use crate::waiters::lock;
use sandfork_jail::control::Lifetime;
use sandfork_jail::sys::sealed;

/// The maximum size is several times that of the byte code of all sources.
const STARTS: Kind = Kind {
    prefix: "start-",
    most_bytes: 4 << 20,
    most_files: 32,
};

/// A digest of the sources from which the byte code was compiled.
const SOURCES: &str = env!("SANDFORK_SOURCES_SHA256");

/// The cached facts and byte code of one interpreter.
#[derive(Debug)]
pub struct StartCache {
    /// `None` if there is no usable cache directory. Later zygotes of this process still share the byte code.
    file: Option<CacheFile>,
    kept: Mutex<Option<Arc<Kept>>>,
}

#[derive(Debug, Eq, PartialEq)]
struct Kept {
    /// The facts that the interpreter reported. Different facts mean another interpreter, with other byte code.
    facts: String,
    codes: Vec<u8>,
}

impl StartCache {
    /// Loads the cache of this interpreter, for zygotes of this lifetime: the two lifetimes import different sources.
    pub fn read(executable: &Path, lifetime: Lifetime) -> Self {
        let lifetime = match lifetime {
            Lifetime::OneRun => "one run",
            Lifetime::ManyRuns => "many runs",
        };
        let identity = [OsStr::new(SOURCES), lifetime.as_ref(), executable.as_ref()];
        match CacheFile::of(STARTS, identity) {
            Ok(file) => Self::of(file),
            Err(error) => {
                tracing::debug!(%error, "byte code is not cached");
                Self::in_memory()
            }
        }
    }

    /// Returns a cache that keeps nothing on disk.
    pub fn in_memory() -> Self {
        let (file, kept) = (None, Mutex::default());
        Self { file, kept }
    }

    fn of(file: CacheFile) -> Self {
        let decoded = file.load().and_then(|bytes| {
            let torn = || Unused::Torn(file.directory.join(&file.name));
            Kept::decode(&bytes, &file).ok_or_else(torn)
        });
        let kept = decoded
            .inspect_err(|error| {
                if !error.is_absence() {
                    tracing::debug!(%error, "the cached byte code is not used");
                }
            })
            .ok();
        Self {
            file: Some(file),
            kept: Mutex::new(kept.map(Arc::new)),
        }
    }

    /// Returns the facts that the interpreter reported at an earlier start.
    pub fn facts(&self) -> Option<String> {
        Some(self.kept()?.facts.clone())
    }

    /// Returns a memory file for a zygote whose interpreter reported these facts: it holds the byte code, or is empty
    /// for the zygote to fill.
    pub(in crate::supervisor) fn lend(&self, facts: &str) -> io::Result<LentFile> {
        let kept = self.kept().filter(|kept| kept.facts == facts);
        let codes = kept.as_ref().map(|kept| kept.codes.clone());
        let lent = LentFile::new(codes.unwrap_or_default())?;
        if kept.is_some() {
            sealed::seal(lent.file.as_fd())?;
            tracing::trace!("using the cached byte code");
        }
        Ok(lent)
    }

    /// Keeps the byte code that the zygote wrote to the file, if the file was empty.
    pub(in crate::supervisor) fn take_back(
        &self,
        lent: &LentFile,
        facts: &str,
    ) -> Result<(), Unused> {
        // The zygote seals the file before it imports any package.
        if !lent.before.is_empty() || !sealed::is_unchanging(lent.file.as_fd()) {
            return Ok(());
        }
        let codes = lent.changed(STARTS);
        let codes = codes.map_err(|error| Unused::io("the byte code".as_ref(), error))?;
        let Some(codes) = codes else {
            return Ok(());
        };
        let facts = facts.to_owned();
        let kept = Arc::new(Kept { facts, codes });
        *lock(&self.kept) = Some(Arc::clone(&kept));
        match &self.file {
            Some(file) => file.store(&kept.encode(file)),
            None => Ok(()),
        }
    }

    fn kept(&self) -> Option<Arc<Kept>> {
        lock(&self.kept).clone()
    }
}

impl Kept {
    /// Encodes a digest, the length of the facts, the facts, and the byte code.
    fn encode(&self, file: &CacheFile) -> Vec<u8> {
        let length = u32::try_from(self.facts.len()).unwrap_or(u32::MAX);
        let body = [&length.to_le_bytes(), self.facts.as_bytes(), &self.codes].concat();
        [&Self::digest(file, &body)[..], &body].concat()
    }

    fn decode(bytes: &[u8], file: &CacheFile) -> Option<Self> {
        let (written, body) = bytes.split_first_chunk::<32>()?;
        if *written != Self::digest(file, body) {
            return None;
        }
        let (length, rest) = body.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (facts, codes) = rest.split_at_checked(length)?;
        Some(Self {
            facts: String::from_utf8(facts.to_vec()).ok()?,
            codes: codes.to_vec(),
        })
    }

    /// Includes the name, so that a file moved to another name does not match.
    fn digest(file: &CacheFile, body: &[u8]) -> [u8; 32] {
        digest([file.name.as_encoded_bytes(), body])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn file(home: &Path) -> CacheFile {
        CacheFile::beneath(&home.join("sandfork"), STARTS, ["python"].map(OsStr::new))
    }

    /// Returns the byte code lent to a zygote whose interpreter reports these facts.
    fn lent(cache: &StartCache, facts: &str) -> Vec<u8> {
        let lent = cache.lend(facts).unwrap();
        assert_eq!(
            lent.before.is_empty(),
            !sealed::is_unchanging(lent.file.as_fd())
        );
        lent.before
    }

    fn fill(cache: &StartCache, facts: &str, codes: &[u8]) {
        let lent = cache.lend(facts).unwrap();
        assert!(lent.before.is_empty());
        lent.file.write_all_at(codes, 0).unwrap();
        sealed::seal(lent.file.as_fd()).unwrap();
        cache.take_back(&lent, facts).unwrap();
    }

    #[test]
    fn byte_code_is_lent_for_matching_facts_only() {
        let home = tempfile::tempdir().unwrap();
        let first = StartCache::of(file(home.path()));
        fill(&first, "facts", b"code");
        for cache in [first, StartCache::of(file(home.path()))] {
            assert_eq!(lent(&cache, "facts"), b"code");
            assert_eq!(lent(&cache, "other"), b"");
        }
        let later = StartCache::of(file(home.path()));
        fill(&later, "other", b"other code");
        let last = StartCache::of(file(home.path()));
        assert_eq!(lent(&last, "facts"), b"");
        assert_eq!(lent(&last, "other"), b"other code");
    }

    #[test]
    fn memory_cache_serves_later_zygotes() {
        let cache = StartCache::in_memory();
        fill(&cache, "facts", b"code");
        assert_eq!(lent(&cache, "facts"), b"code");
    }

    #[test]
    fn unsealed_or_oversized_code_is_not_kept() {
        let cache = StartCache::in_memory();
        let unsealed = cache.lend("facts").unwrap();
        unsealed.file.write_all_at(b"code", 0).unwrap();
        cache.take_back(&unsealed, "facts").unwrap();
        assert_eq!(lent(&cache, "facts"), b"");
        let too_large = cache.lend("facts").unwrap();
        too_large.file.set_len(STARTS.most_bytes + 1).unwrap();
        sealed::seal(too_large.file.as_fd()).unwrap();
        cache.take_back(&too_large, "facts").unwrap();
        assert_eq!(lent(&cache, "facts"), b"");
    }

    #[test]
    fn truncated_or_changed_file_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        fill(&StartCache::of(file(home.path())), "facts", b"code");
        let own = file(home.path());
        let whole = own.load().unwrap();
        let torn = (0..whole.len()).map(|length| whole[..length].to_vec());
        let changed = (0..whole.len()).map(|place| {
            let mut bytes = whole.clone();
            bytes[place] ^= 1;
            bytes
        });
        for bytes in torn.chain(changed).chain([[&whole[..], b"x"].concat()]) {
            assert_eq!(Kept::decode(&bytes, &own), None);
        }
        own.store(&whole[..40]).unwrap();
        let cache = StartCache::of(file(home.path()));
        assert_eq!(lent(&cache, "facts"), b"");
        fill(&cache, "facts", b"new code");
        let cache = StartCache::of(file(home.path()));
        assert_eq!(lent(&cache, "facts"), b"new code");
    }

    #[test]
    fn renamed_file_is_rejected() {
        let home = tempfile::tempdir().unwrap();
        let own = file(home.path());
        fill(&StartCache::of(own.clone()), "facts", b"code");
        let name = CacheFile::beneath(&own.directory, STARTS, ["other"].map(OsStr::new));
        name.store(&own.load().unwrap()).unwrap();
        assert_eq!(lent(&StartCache::of(name), "facts"), b"");
    }
}
