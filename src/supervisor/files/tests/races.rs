//! Tests with a guest that replaces entries while the host works on them. The host must not read or change anything
//! outside the work directory, and must never block.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::unistd::mkfifo;

use super::*;

/// The minimum number of host operations per test.
const ATTEMPTS: usize = 3000;

/// Whether a test has seen every result that it is about.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Met {
    All,
    NotAll,
}

impl Met {
    fn when(all: bool) -> Self {
        if all { Self::All } else { Self::NotAll }
    }
}

/// Exchanges the name `a` with each of `others` in turn, in a thread, while `host` runs repeatedly. Continues until
/// `host` has seen every result: on a busy machine either thread may stall for all attempts of the other.
fn while_exchanging(world: &World, a: &str, others: &[&str], mut host: impl FnMut() -> Met) {
    let over = AtomicBool::new(false);
    let swaps = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut others = others.iter().cycle();
            while !over.load(Ordering::Relaxed) {
                let (from, to) = (world.path(a), world.path(others.next().unwrap()));
                let flags = RenameFlags::RENAME_EXCHANGE;
                // The exchange fails for names that the host has removed.
                _ = renameat2(AT_FDCWD, &from, AT_FDCWD, &to, flags);
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        for _ in 0..ATTEMPTS {
            host();
        }
        while host() == Met::NotAll || swaps.load(Ordering::Relaxed) < ATTEMPTS {}
        over.store(true, Ordering::Relaxed);
    });
    world.assert_outside_untouched();
}

#[test]
fn directory_swapped_for_a_link_is_not_followed() {
    let world = World::new();
    fs::create_dir(world.path("dir")).unwrap();
    fs::write(world.path("dir/file"), "inside").unwrap();
    symlink(world.outside(), world.path("link")).unwrap();
    let (mut read, mut refused) = (0, 0);
    while_exchanging(&world, "dir", &["link"], || {
        match world.read("dir/file") {
            Ok(text) => {
                assert_eq!(text, "inside");
                read += 1;
            }
            Err(error) => {
                assert!(
                    matches!(error.errno(), Errno::ELOOP | Errno::ENOTDIR | Errno::ENOENT),
                    "{error}"
                );
                refused += 1;
            }
        }
        Met::when(read > 0 && refused > 0)
    });
}

#[test]
fn swapped_file_is_not_opened() {
    let world = World::new();
    fs::write(world.path("file"), "inside").unwrap();
    symlink(world.outside().join("file"), world.path("link")).unwrap();
    symlink("/etc/shadow", world.path("shadow")).unwrap();
    mkfifo(&world.path("fifo"), Mode::S_IRWXU).unwrap();
    fs::create_dir(world.path("dir")).unwrap();
    let others = ["link", "fifo", "shadow", "dir"];
    let (mut read, mut refused) = (0, 0);
    while_exchanging(&world, "file", &others, || {
        match world.read("file") {
            Ok(text) => {
                assert_eq!(text, "inside");
                read += 1;
            }
            Err(_) => refused += 1,
        }
        let written = world.dir().open_write(&world.at("file"), Contents::Kept);
        if let Ok(mut file) = written {
            file.write_all(b"").unwrap();
            assert!(file.metadata().unwrap().is_file());
        }
        Met::when(read > 0 && refused > 0)
    });
}

/// Opening a FIFO blocks until its other end is opened, which a guest may never do.
#[test]
fn fifo_is_never_opened() {
    let world = World::new();
    mkfifo(&world.path("fifo"), Mode::S_IRWXU).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let fifo = world.path("fifo");
            let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK;
            while !over.load(Ordering::Relaxed) {
                let refused = open(&fifo, flags, Mode::empty()).unwrap_err();
                assert_eq!(refused, Errno::ENXIO);
            }
        });
        for _ in 0..ATTEMPTS {
            let fifo = world.at("fifo");
            assert_eq!(errno(world.dir().open_read(&fifo)), Errno::EINVAL);
            assert_eq!(
                errno(world.dir().open_write(&fifo, Contents::Kept)),
                Errno::EINVAL
            );
            let kind = world.dir().stat(&fifo).unwrap().kind;
            assert_eq!(kind, "other");
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn tree_swapped_for_a_link_removes_nothing_outside() {
    let world = World::new();
    symlink(world.outside(), world.path("link")).unwrap();
    let tree = world.at("tree");
    let mut removed = 0;
    while_exchanging(&world, "tree/inner", &["link"], || {
        let (deep, file) = (
            world.at("tree/inner/deep"),
            world.at("tree/inner/deep/file"),
        );
        _ = world.dir().make_dir(&deep, Parents::Made);
        _ = world.dir().open_write(&file, Contents::Kept);
        if world.dir().remove(&tree, Removal::Tree).is_ok() {
            removed += 1;
        }
        if !world.path("link").is_symlink() {
            _ = fs::remove_dir_all(world.path("link"));
            _ = symlink(world.outside(), world.path("link"));
        }
        Met::when(removed > 0)
    });
}

#[test]
fn list_never_shows_entries_outside() {
    let world = World::new();
    fs::create_dir(world.path("dir")).unwrap();
    fs::write(world.path("dir/inside"), "").unwrap();
    symlink(world.outside(), world.path("link")).unwrap();
    let mut listed = 0;
    while_exchanging(&world, "dir", &["link"], || {
        if let Ok(entries) = world.dir().list(&world.at("dir")) {
            listed += 1;
            let names: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
            assert_eq!(names, ["inside"]);
        }
        Met::when(listed > 0)
    });
}

#[test]
fn directories_are_created_inside_only() {
    let world = World::new();
    fs::create_dir(world.path("dir")).unwrap();
    symlink(world.outside(), world.path("link")).unwrap();
    while_exchanging(&world, "dir", &["link"], || {
        _ = world
            .dir()
            .make_dir(&world.at("dir/new/deep"), Parents::Made);
        _ = world
            .dir()
            .open_write(&world.at("dir/new/deep/file"), Contents::Replaced);
        _ = world.dir().remove(&world.at("dir/new"), Removal::Tree);
        Met::All
    });
}

/// A guest that fills a tree during its removal must not keep the host busy forever.
#[test]
fn removal_of_a_growing_tree_ends() {
    let world = World::new();
    fs::create_dir(world.path("tree")).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                _ = fs::create_dir(world.path("tree"));
                _ = fs::write(world.path("tree/file"), "");
            }
        });
        for _ in 0..200 {
            // The removal may succeed or fail, but must return.
            _ = world.dir().remove(&world.at("tree"), Removal::Tree);
        }
        over.store(true, Ordering::Relaxed);
    });
}
