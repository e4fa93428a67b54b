#![allow(clippy::unwrap_used)]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::inotify::{InitFlags, Inotify};
use nix::sys::stat::Mode;
use tempfile::TempDir;

use super::tree::{Depth, Tree};
use crate::protocol::caller::FileEvent;
use crate::supervisor::files::{Act, FileError};
use crate::supervisor::programs::BesideRefusal;
use FileEvent::{Chmod, Create, Overflow, Remove, Rename, Write as Written};

#[test]
fn errors_name_the_cause_and_escape_the_path() {
    let failed = |path: &str, errno| {
        let (path, act) = (path.to_owned(), Act::Watch);
        FileError::Failed { path, act, errno }.to_string()
    };
    let full = failed("d", Errno::ENOSPC);
    assert!(full.ends_with("fs.inotify.max_user_watches"), "{full}");
    let named = failed("d/a\x1b]0;b\x07", Errno::EACCES);
    assert!(
        named.starts_with(r"`d/a\u{1b}]0;b\u{7}` cannot be watched"),
        "{named}"
    );
}

struct Scene {
    directory: TempDir,
    inotify: Inotify,
}

impl Scene {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            inotify: Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).unwrap(),
        }
    }

    fn path(&self, below: &str) -> std::path::PathBuf {
        self.directory.path().join(below)
    }

    fn tree(&self, below: &str, depth: Depth) -> Result<Tree, BesideRefusal> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let handle = open(&self.path(below), flags, Mode::empty()).unwrap();
        Tree::new(&self.inotify, handle, depth, below)
    }

    /// Reads all queued events.
    fn events(&self, tree: &mut Tree) -> Vec<FileEvent> {
        let mut events = Vec::new();
        while let Some(read) = tree.read(&self.inotify) {
            events.extend(read);
        }
        events
    }
}

fn at(event: fn(String) -> FileEvent, path: &str) -> FileEvent {
    event(path.to_owned())
}

fn append(path: impl AsRef<Path>) {
    let file = OpenOptions::new().append(true).open(path);
    file.unwrap().write_all(b"x").unwrap();
}

#[test]
fn every_change_of_an_entry_is_an_event() {
    let scene = Scene::new();
    fs::create_dir(scene.path("in")).unwrap();
    fs::create_dir(scene.path("in/below")).unwrap();
    let mut tree = scene.tree("in", Depth::Directory).unwrap();
    fs::write(scene.path("in/a"), "x").unwrap();
    append(scene.path("in/a"));
    append(scene.path("in/a"));
    fs::set_permissions(scene.path("in/a"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(scene.path("in/a"), scene.path("in/b")).unwrap();
    fs::rename(scene.path("in/b"), scene.path("out")).unwrap();
    fs::rename(scene.path("out"), scene.path("in/c")).unwrap();
    fs::remove_file(scene.path("in/c")).unwrap();
    // Neither is an entry of the watched directory.
    fs::write(scene.path("in/below/a"), "x").unwrap();
    fs::write(scene.path("beside"), "x").unwrap();
    let expected = [
        at(Create, "a"),
        at(Written, "a"),
        at(Chmod, "a"),
        at(Rename, "a"),
        at(Create, "b"),
        at(Rename, "b"),
        at(Create, "c"),
        at(Remove, "c"),
    ];
    assert_eq!(scene.events(&mut tree), expected);
    fs::remove_dir_all(scene.path("in")).unwrap();
    assert_eq!(scene.events(&mut tree), [at(Remove, "below")]);
    assert_eq!(tree.read(&scene.inotify), None);
}

#[test]
fn moved_directories_stay_watched() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("a/b")).unwrap();
    fs::create_dir(scene.path("outside")).unwrap();
    let mut tree = scene.tree("", Depth::Tree).unwrap();
    File::create(scene.path("a/b/1")).unwrap();
    assert_eq!(scene.events(&mut tree), [at(Create, "a/b/1")]);
    // Entries of a new directory are reported even if they were created before it was watched.
    fs::create_dir_all(scene.path("new/er")).unwrap();
    File::create(scene.path("new/er/2")).unwrap();
    let found = ["new", "new/er", "new/er/2"].map(|path| at(Create, path));
    assert_eq!(scene.events(&mut tree), found);
    fs::rename(scene.path("new"), scene.path("a/old")).unwrap();
    let moved = scene.events(&mut tree);
    assert_eq!(moved[..2], [at(Rename, "new"), at(Create, "a/old")]);
    File::create(scene.path("a/old/er/3")).unwrap();
    assert_eq!(scene.events(&mut tree), [at(Create, "a/old/er/3")]);
    let elsewhere = tempfile::tempdir().unwrap();
    let away = elsewhere.path().join("away");
    fs::rename(scene.path("a/old"), &away).unwrap();
    assert_eq!(scene.events(&mut tree), [at(Rename, "a/old")]);
    File::create(away.join("er/4")).unwrap();
    assert_eq!(scene.events(&mut tree), []);
    // A link is an entry of the tree, but its target is not.
    symlink(&away, scene.path("link")).unwrap();
    File::create(scene.path("link/er/5")).unwrap();
    assert_eq!(scene.events(&mut tree), [at(Create, "link")]);
}

#[test]
fn overflow_is_reported_and_the_tree_rescanned() {
    let scene = Scene::new();
    fs::create_dir(scene.path("a")).unwrap();
    let mut tree = scene.tree("", Depth::Tree).unwrap();
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let most: usize = most.trim().parse().unwrap();
    for _ in 0..most {
        fs::rename(scene.path("a"), scene.path("b")).unwrap();
        fs::rename(scene.path("b"), scene.path("a")).unwrap();
    }
    fs::rename(scene.path("a"), scene.path("last")).unwrap();
    let events = scene.events(&mut tree);
    assert!(events.contains(&Overflow));
    assert!(events.len() <= 4 * most, "{}", events.len());
    File::create(scene.path("last/file")).unwrap();
    assert_eq!(scene.events(&mut tree), [at(Create, "last/file")]);
}

#[test]
fn tree_moved_back_and_forth_yields_an_overflow() {
    let scene = Scene::new();
    for number in 0..500 {
        fs::create_dir_all(scene.path(&format!("a/{number}"))).unwrap();
    }
    let mut tree = scene.tree("", Depth::Tree).unwrap();
    for _ in 0..1_000 {
        fs::rename(scene.path("a"), scene.path("b")).unwrap();
        fs::rename(scene.path("b"), scene.path("a")).unwrap();
    }
    let read = tree.read(&scene.inotify).unwrap();
    assert_eq!(read.last(), Some(&Overflow));
    assert!(read.len() < 4_000, "{}", read.len());
    // Events queued after the overflow are dropped, because the tree is scanned again.
    assert_eq!(scene.events(&mut tree), []);
    File::create(scene.path("a/499/file")).unwrap();
    assert_eq!(scene.events(&mut tree), [at(Create, "a/499/file")]);
}

#[test]
fn number_of_directories_is_limited() {
    let scene = Scene::new();
    for number in 0..1_023 {
        fs::create_dir(scene.path(&number.to_string())).unwrap();
    }
    let mut tree = scene.tree("", Depth::Tree).unwrap();
    fs::create_dir(scene.path("more")).unwrap();
    assert_eq!(scene.events(&mut tree), [at(Create, "more"), Overflow]);
    let refused = scene.tree("", Depth::Tree).unwrap_err();
    let sentence = refused.to_string();
    assert!(
        sentence.contains("more than 1,024 directories"),
        "{sentence}"
    );
    scene.tree("", Depth::Directory).unwrap();
}
