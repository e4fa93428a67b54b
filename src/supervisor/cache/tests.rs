#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::thread;
use std::time::Duration;

use super::*;

const KIND: Kind = Kind {
    prefix: "test-",
    most_bytes: 1000,
    most_files: 4,
};

/// A cache file in a temporary directory, which is removed when this is dropped.
struct TempCacheFile {
    home: tempfile::TempDir,
    file: CacheFile,
}

impl TempCacheFile {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let file = file(home.path(), "one");
        Self { home, file }
    }

    fn path(&self) -> PathBuf {
        self.file.directory.join(&self.file.name)
    }

    /// Returns the error of a load.
    fn refusal(&self) -> String {
        self.file.load().unwrap_err().to_string()
    }
}

fn file(caches: &Path, identity: &str) -> CacheFile {
    CacheFile::beneath(&caches.join("sandfork"), KIND, [OsStr::new(identity)])
}

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn stored_file_is_read_by_the_same_identity_only() {
    let own = TempCacheFile::new();
    assert!(own.file.load().unwrap_err().is_absence());
    for text in ["text", "more text", ""] {
        own.file.store(text.as_bytes()).unwrap();
        assert_eq!(own.file.load().unwrap(), text.as_bytes());
    }
    assert!(
        file(own.home.path(), "other")
            .load()
            .unwrap_err()
            .is_absence()
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(
        (mode(&own.file.directory), mode(&own.path())),
        (0o700, 0o600)
    );
    assert_eq!(fs::read_dir(&own.file.directory).unwrap().count(), 1);
}

#[test]
fn identities_with_the_same_text_differ() {
    let name = |parts: [&'static str; 2]| {
        CacheFile::beneath(Path::new("/"), KIND, parts.map(OsStr::new)).name
    };
    assert_ne!(name(["one", "two"]), name(["onet", "wo"]));
}

#[test]
fn file_that_others_can_open_is_not_read() {
    let own = TempCacheFile::new();
    own.file.store(b"text").unwrap();
    for more in [0o040, 0o020, 0o004, 0o002, 0o001] {
        set(&own.path(), 0o600 | more);
        assert!(own.refusal().contains("is not a regular file"), "{more:o}");
    }
    set(&own.path(), 0o600);
    own.file.load().unwrap();
}

#[test]
fn directories_that_others_can_write_to_are_not_used() {
    let own = TempCacheFile::new();
    own.file.store(b"text").unwrap();
    let cases = [
        (own.file.directory.clone(), 0o1777, false),
        (own.file.directory.clone(), 0o755, true),
        (own.home.path().to_owned(), 0o1777, true),
        (own.home.path().to_owned(), 0o755, true),
    ];
    for path in [own.file.directory.as_path(), own.home.path()] {
        for mode in [0o770, 0o707, 0o702] {
            set(path, mode);
            let remedy = format!("`chmod go-w {}`", path.display());
            assert!(own.refusal().contains(&remedy), "{}", own.refusal());
            own.file.store(b"other").unwrap_err();
        }
        set(path, 0o700);
    }
    for (path, mode, is_used) in cases {
        set(&path, mode);
        assert_eq!(own.file.load().is_ok(), is_used, "{mode:o}");
        assert_eq!(own.file.store(b"text").is_ok(), is_used, "{mode:o}");
        set(&path, 0o700);
    }
}

#[test]
fn links_are_not_followed() {
    let own = TempCacheFile::new();
    own.file.store(b"text").unwrap();
    let (path, elsewhere) = (own.path(), own.home.path().join("elsewhere"));
    fs::hard_link(&path, &elsewhere).unwrap();
    assert!(own.refusal().contains("is not a regular"));
    fs::remove_file(&path).unwrap();
    symlink(&elsewhere, &path).unwrap();
    own.refusal();
    // Storing replaces the link itself, not its target.
    own.file.store(b"again").unwrap();
    assert_eq!(own.file.load().unwrap(), b"again");
    assert_eq!(fs::read(&elsewhere).unwrap(), b"text");
    let moved = own.home.path().join("moved");
    fs::rename(&own.file.directory, &moved).unwrap();
    symlink(&moved, &own.file.directory).unwrap();
    own.refusal();
    own.file.store(b"other").unwrap_err();
}

#[test]
fn special_files_do_not_block() {
    let own = TempCacheFile::new();
    own.file.store(b"text").unwrap();
    fs::remove_file(own.path()).unwrap();
    nix::unistd::mkfifo(&own.path(), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    assert!(own.refusal().contains("is not a regular"));
    fs::remove_file(own.path()).unwrap();
    fs::create_dir(own.path()).unwrap();
    own.refusal();
    own.file.store(b"other").unwrap_err();
    assert_eq!(fs::read_dir(&own.file.directory).unwrap().count(), 1);
}

#[test]
fn another_users_files_and_directories_are_not_used() {
    if !geteuid().is_root() {
        return;
    }
    let own = TempCacheFile::new();
    own.file.store(b"text").unwrap();
    chown(own.path(), Some(1), None).unwrap();
    assert!(own.refusal().contains("is not a regular"));
    chown(own.path(), Some(0), None).unwrap();
    chown(&own.file.directory, Some(1), None).unwrap();
    assert!(own.refusal().contains("belongs to another user"));
    chown(&own.file.directory, Some(0), None).unwrap();
    let home = own.home.path();
    chown(home, Some(1), None).unwrap();
    assert!(own.refusal().contains("belongs to another user"));
    // With `sudo`, which may keep HOME, root must not leave a directory in a user's home.
    fs::remove_dir_all(&own.file.directory).unwrap();
    let error = own.file.store(b"other").unwrap_err().to_string();
    assert!(error.contains("belongs to another user"), "{error}");
    let error = file(&home.join("new"), "one").store(b"other").unwrap_err();
    assert!(matches!(error, Unused::Foreign(_)), "{error}");
    assert_eq!(fs::read_dir(home).unwrap().count(), 0);
}

#[test]
fn oversized_file_is_not_read() {
    let own = TempCacheFile::new();
    own.file.store(&[0; 1000]).unwrap();
    own.file.load().unwrap();
    own.file.store(&[0; 1001]).unwrap();
    assert!(own.refusal().contains("is too large"));
}

#[test]
fn oldest_files_of_the_kind_are_pruned() {
    let own = TempCacheFile::new();
    own.file.store(b"text").unwrap();
    fs::write(own.file.directory.join("other"), "").unwrap();
    for number in 0..10 {
        let other = file(own.home.path(), &number.to_string());
        other.store(b"text").unwrap();
    }
    let count = fs::read_dir(&own.file.directory).unwrap().count();
    assert_eq!(count, KIND.most_files + 1);
    assert!(own.file.directory.join("other").exists());
}

#[test]
fn leftovers_of_killed_processes_are_removed() {
    let own = TempCacheFile::new();
    own.file.store(b"text").unwrap();
    let half = |name: &str| {
        let path = own.file.directory.join(format!("test-{name}.0"));
        fs::write(&path, "half").unwrap();
        path
    };
    let (left, written) = (half("left"), half("written"));
    let long_ago = SystemTime::now() - Duration::from_secs(2 * 3600);
    let file = File::options().write(true).open(&left).unwrap();
    file.set_modified(long_ago).unwrap();
    own.file.store(b"other").unwrap();
    assert_eq!(own.file.load().unwrap(), b"other");
    // The other file may still be in the process of being written.
    assert!(!left.exists() && written.exists());
}

#[test]
fn concurrent_stores_do_not_interfere() {
    let kind = Kind {
        most_files: 1,
        ..KIND
    };
    for _ in 0..50 {
        let home = tempfile::tempdir().unwrap();
        let file = CacheFile::beneath(&home.path().join("sandfork"), kind, []);
        let first = |number: u8| (number, file.store_first(&[number]));
        let stored: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || first(n))).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let (first, others): (Vec<_>, Vec<_>) = stored.iter().partition(|(_, it)| it.is_ok());
        assert_eq!(file.load().unwrap(), [first[0].0]);
        assert_eq!(first.len(), 1);
        for (_, refused) in others {
            let refused = refused.as_ref().unwrap_err().to_string();
            assert!(refused.contains("File exists"), "{refused}");
        }
    }
}

#[test]
fn unusable_directory_caches_nothing() {
    let home = tempfile::tempdir().unwrap();
    let plain = home.path().join("plain");
    fs::write(&plain, "").unwrap();
    let own = file(&plain, "one");
    own.store(b"text").unwrap_err();
    own.load().unwrap_err();
}
