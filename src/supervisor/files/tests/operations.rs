//! Tests of single operations without a concurrent guest.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use nix::sys::stat::{Mode, umask};
use nix::unistd::mkfifo;

use super::*;

#[test]
fn written_contents_are_read_back() {
    let world = World::new();
    let write = |text: &str, contents| {
        let mut file = world.dir().open_write(&world.at("a"), contents).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    write("one", Contents::Replaced);
    write(" two", Contents::Kept);
    assert_eq!(world.read("/work/a").unwrap(), "one two");
    write("3", Contents::Replaced);
    let (_, size) = world.dir().open_read(&world.at("./a")).unwrap();
    assert_eq!(size, 1);
    assert_eq!(world.read("a").unwrap(), "3");
}

/// The umask is a property of the whole process: files that other tests create meanwhile lack permissions for others,
/// which none of those tests needs.
#[test]
fn modes_do_not_depend_on_the_umask() {
    let world = World::new();
    let before = umask(Mode::from_bits_truncate(0o077));
    let written = world
        .dir()
        .open_write(&world.at("file"), Contents::Replaced);
    let made = world.dir().make_dir(&world.at("dir"), Parents::Required);
    umask(before);
    written.unwrap();
    made.unwrap();
    let rights = |name| fs::metadata(world.path(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((rights("file"), rights("dir")), (0o644, 0o755));
}

#[test]
fn missing_entries_are_named_with_the_remedy() {
    let world = World::new();
    let message = |result: Result<(), FileError>| result.unwrap_err().to_string();
    let (dir, at) = (world.dir(), |path: &str| world.at(path));
    assert_eq!(
        message(dir.open_read(&at("a")).map(drop)),
        "`a` cannot be read: it does not exist"
    );
    assert_eq!(
        message(dir.open_write(&at("b/a"), Contents::Kept).map(drop)),
        "`b/a` cannot be written: its parent directory does not exist; create that first (`make_dir`)"
    );
    assert_eq!(
        message(dir.make_dir(&at("b/a"), Parents::Required)),
        "`b/a` cannot be made: its parent directory does not exist; create that first, or pass `parents`"
    );
    assert_eq!(
        message(dir.open_read(&at(".")).map(drop)),
        "`.` cannot be read: it is a directory, and only regular files can be"
    );
    assert_eq!(
        message(dir.path("../x").map(drop)),
        "`../x` is not in the session's work directory: name it relative to that, or beneath /work"
    );
    assert_eq!(
        message(dir.remove(&at("."), Removal::Tree)),
        "the work directory itself cannot be removed"
    );
    assert_eq!(errno(dir.list(&at("a"))), Errno::ENOENT);
    assert_eq!(errno(dir.stat(&at("a"))), Errno::ENOENT);
    assert_eq!(errno(dir.remove(&at("a"), Removal::Tree)), Errno::ENOENT);
}

#[test]
fn only_regular_files_are_opened() {
    let world = World::new();
    fs::create_dir(world.path("dir")).unwrap();
    symlink(world.outside().join("file"), world.path("link")).unwrap();
    symlink(world.outside().join("new"), world.path("dangling")).unwrap();
    symlink("/proc/self/root/etc/passwd", world.path("magic")).unwrap();
    symlink(world.outside(), world.path("dirlink")).unwrap();
    symlink(".", world.path("dir/here")).unwrap();
    mkfifo(&world.path("fifo"), Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.path("socket")).unwrap();
    for (path, expected) in [
        ("dir", Errno::EISDIR),
        ("link", Errno::ELOOP),
        ("dangling", Errno::ELOOP),
        ("magic", Errno::ELOOP),
        ("dirlink/file", Errno::ELOOP),
        ("dir/here/x", Errno::ELOOP),
        ("fifo", Errno::EINVAL),
        ("fifo/x", Errno::ENOTDIR),
        ("socket", Errno::EINVAL),
    ] {
        let at = world.at(path);
        assert_eq!(errno(world.dir().open_read(&at)), expected, "{path}");
        for contents in [Contents::Replaced, Contents::Kept] {
            assert_eq!(
                errno(world.dir().open_write(&at, contents)),
                expected,
                "{path}"
            );
        }
    }
    let entries = world.dir().list(&world.at("")).unwrap();
    let kinds: Vec<_> = entries
        .iter()
        .map(|entry| (entry.name.as_str(), entry.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            ("dangling", "symlink"),
            ("dir", "dir"),
            ("dirlink", "symlink"),
            ("fifo", "other"),
            ("link", "symlink"),
            ("magic", "symlink"),
            ("socket", "other"),
        ]
    );
    world.assert_outside_untouched();
}

#[test]
fn stat_and_list_describe_entries() {
    let world = World::new();
    fs::write(world.path("file"), "12345").unwrap();
    let long_ago = SystemTime::UNIX_EPOCH - Duration::from_millis(1500);
    let file = File::options()
        .write(true)
        .open(world.path("file"))
        .unwrap();
    file.set_modified(long_ago).unwrap();
    let entry = world.dir().stat(&world.at("file")).unwrap();
    assert_eq!((entry.kind, entry.size, entry.modified), ("file", 5, -1.5));
    assert_eq!(world.dir().list(&world.at(".")).unwrap(), [entry]);
    let root = world.dir().stat(&world.at("/work")).unwrap();
    assert_eq!(root.kind, "dir");
    assert_eq!(errno(world.dir().list(&world.at("file"))), Errno::ENOTDIR);
}

#[test]
fn missing_parents_are_created_on_request() {
    let world = World::new();
    let make = |path, parents| world.dir().make_dir(&world.at(path), parents);
    make("a/b/c", Parents::Made).unwrap();
    make("a/b/c", Parents::Made).unwrap();
    make("a/d", Parents::Required).unwrap();
    assert_eq!(errno(make("a/d", Parents::Required)), Errno::EEXIST);
    make(".", Parents::Made).unwrap();
    assert_eq!(errno(make(".", Parents::Required)), Errno::EEXIST);
    fs::write(world.path("file"), "").unwrap();
    assert_eq!(errno(make("file/x", Parents::Made)), Errno::ENOTDIR);
    assert_eq!(errno(make("file", Parents::Made)), Errno::ENOTDIR);
    symlink(world.outside(), world.path("link")).unwrap();
    assert!(make("link/x", Parents::Made).is_err());
    world.assert_outside_untouched();
}

#[test]
fn links_are_removed_and_not_their_targets() {
    let world = World::new();
    symlink(world.outside(), world.path("link")).unwrap();
    let remove = |path, removal| world.dir().remove(&world.at(path), removal);
    assert_eq!(errno(remove("link/file", Removal::Single)), Errno::ENOTDIR);
    remove("link", Removal::Tree).unwrap();
    assert!(!world.path("link").is_symlink());
    world.assert_outside_untouched();
}

#[test]
fn tree_is_removed_with_its_contents() {
    let world = World::new();
    fs::create_dir_all(world.path("tree/a/b")).unwrap();
    fs::create_dir_all(world.path("tree/c")).unwrap();
    fs::write(world.path("tree/a/file"), "").unwrap();
    symlink(world.outside(), world.path("tree/a/b/link")).unwrap();
    mkfifo(&world.path("tree/c/fifo"), Mode::S_IRWXU).unwrap();
    for number in 0..3000 {
        fs::write(world.path(&format!("tree/c/{number}")), "").unwrap();
    }
    for number in 0..1500 {
        fs::create_dir(world.path(&format!("tree/a/{number}"))).unwrap();
    }
    fs::write(world.path("beside"), "").unwrap();
    // Without permissions for its owner.
    fs::set_permissions(world.path("tree/c"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(world.path("tree"), fs::Permissions::from_mode(0o500)).unwrap();
    let remove = |path, removal| world.dir().remove(&world.at(path), removal);
    assert_eq!(errno(remove("tree", Removal::Single)), Errno::ENOTEMPTY);
    remove("tree", Removal::Tree).unwrap();
    assert!(!world.path("tree").exists() && world.path("beside").exists());
    remove("beside", Removal::Tree).unwrap();
    fs::create_dir(world.path("empty")).unwrap();
    remove("empty", Removal::Single).unwrap();
    world.assert_outside_untouched();
}

#[test]
fn deep_tree_is_removed_unless_its_path_is_too_long() {
    let world = World::new();
    let names = vec!["d"; 2000].join("/");
    world
        .dir()
        .make_dir(&world.at(&names), Parents::Made)
        .unwrap();
    world.dir().remove(&world.at("d"), Removal::Tree).unwrap();
    assert!(!world.path("d").exists());

    // Builds the path as a guest would, from one directory to the next.
    let mut at = world.work.try_clone().unwrap();
    let name = "x".repeat(200);
    for _ in 0..30 {
        nix::sys::stat::mkdirat(&at, name.as_str(), Mode::S_IRWXU).unwrap();
        at = nix::fcntl::openat(&at, name.as_str(), OFlag::O_PATH, Mode::empty()).unwrap();
    }
    let deep = world.at(&name);
    assert_eq!(
        errno(world.dir().remove(&deep, Removal::Tree)),
        Errno::ENAMETOOLONG
    );
}

#[test]
fn oversized_directory_is_not_listed() {
    let world = World::new();
    let count = 50_001;
    let directory = world.path("many");
    fs::create_dir(&directory).unwrap();
    let first = directory.join("first");
    fs::write(&first, "").unwrap();
    for number in 1..count {
        fs::hard_link(&first, directory.join(number.to_string())).unwrap();
    }
    let refused = world.dir().list(&world.at("many")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`many` cannot be listed: it holds more than 50000 entries; have the guest list it"
    );
    fs::remove_file(first).unwrap();
    assert_eq!(world.dir().list(&world.at("many")).unwrap().len(), 50_000);
    world
        .dir()
        .remove(&world.at("many"), Removal::Tree)
        .unwrap();
}
