//! What the start of an interpreter leaves to the next start of the same one: its facts, and the byte code of
//! the guest's side.
//!
//! The facts are a guess, by which the supervisor prepares while the interpreter starts. It compares them with
//! the interpreter's own before anything is done by them. The byte code is run by a zygote, in its jail, in
//! place of compiling the same sources. It is as trusted as the files of the interpreter that this user runs,
//! and nothing but such an interpreter and its own library has had a hand in it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::{CacheFile, Kind, LentFile, Unused, digest};
use crate::waiters::lock;
use sandfork_jail::control::Lifetime;
use sandfork_jail::sys::sealed;

/// Several times as large as the byte code of all sources.
const STARTS: Kind = Kind {
    prefix: "start-",
    most_bytes: 4 << 20,
    most_files: 32,
};

/// The sources that the byte code was compiled from.
const SOURCES: &str = env!("SANDFORK_SOURCES_SHA256");

/// What earlier starts of one interpreter left.
#[derive(Debug)]
pub struct StartCache {
    /// `None` if nothing can be kept on disk. Later zygotes of this process still profit.
    file: Option<CacheFile>,
    kept: Mutex<Option<Arc<Kept>>>,
}

#[derive(Debug, Eq, PartialEq)]
struct Kept {
    /// What the interpreter reported of itself. Other facts mean another interpreter, whose byte code
    /// differs.
    facts: String,
    codes: Vec<u8>,
}

impl StartCache {
    /// Reads what was kept of this interpreter, for zygotes of this lifetime: they import different sources.
    pub fn read(executable: &Path, lifetime: Lifetime) -> Self {
        let lifetime = match lifetime {
            Lifetime::OneRun => "one run",
            Lifetime::ManyRuns => "many runs",
        };
        let identity = [OsStr::new(SOURCES), lifetime.as_ref(), executable.as_ref()];
        match CacheFile::of(STARTS, identity) {
            Ok(file) => Self::of(file),
            Err(error) => {
                tracing::debug!(%error, "no byte code is kept");
                Self::in_memory()
            }
        }
    }

    /// Keeps nothing on disk.
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
                    tracing::debug!(%error, "the byte code that is kept is not used");
                }
            })
            .ok();
        Self {
            file: Some(file),
            kept: Mutex::new(kept.map(Arc::new)),
        }
    }

    /// The facts that the interpreter reported at an earlier start.
    pub fn facts(&self) -> Option<String> {
        Some(self.kept()?.facts.clone())
    }

    /// A file in memory for a zygote whose interpreter reported these facts: its byte code, or an empty file
    /// to fill.
    pub(in crate::supervisor) fn lend(&self, facts: &str) -> io::Result<LentFile> {
        let kept = self.kept().filter(|kept| kept.facts == facts);
        let codes = kept.as_ref().map(|kept| kept.codes.clone());
        let lent = LentFile::new(codes.unwrap_or_default())?;
        if kept.is_some() {
            sealed::seal(lent.file.as_fd())?;
            tracing::trace!("the byte code of an earlier start is used");
        }
        Ok(lent)
    }

    /// Keeps what the zygote has left in the file, if it was empty.
    pub(in crate::supervisor) fn take_back(
        &self,
        lent: &LentFile,
        facts: &str,
    ) -> Result<(), Unused> {
        // The zygote seals it before it imports any package.
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
    /// A digest, the length of the facts, the facts, the byte code.
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

    /// Also of the name, so that a file under another name is none of this one's.
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

    /// What a zygote is lent whose interpreter reports these facts.
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
    fn byte_code_goes_to_zygotes_of_the_same_facts() {
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
    fn without_a_file_later_zygotes_of_the_process_get_it() {
        let cache = StartCache::in_memory();
        fill(&cache, "facts", b"code");
        assert_eq!(lent(&cache, "facts"), b"code");
    }

    #[test]
    fn what_could_still_change_is_not_kept() {
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
    fn each_torn_or_changed_file_is_replaced() {
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
    fn a_file_under_another_name_is_not_believed() {
        let home = tempfile::tempdir().unwrap();
        let own = file(home.path());
        fill(&StartCache::of(own.clone()), "facts", b"code");
        let name = CacheFile::beneath(&own.directory, STARTS, ["other"].map(OsStr::new));
        name.store(&own.load().unwrap()).unwrap();
        assert_eq!(lent(&StartCache::of(name), "facts"), b"");
    }
}
