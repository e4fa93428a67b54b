//! Tests of copying sessions whose own directories contain shown trees of the host.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use sandfork::Sandbox;
use sandfork::session::Session;
use tempfile::TempDir;

use super::pauses::await_pause;
use super::saved::resume;
use super::snapshots::{copy, fork, ok};
use super::{open, session, value};
use crate::need::Need;
use crate::recipe::{Recipe, standard};
use crate::test::{Test, needing, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    let tests = tests![
        a_fork_leaves_the_files_of_the_host,
        a_rollback_leaves_the_files_of_the_host,
        a_pause_leaves_the_files_of_the_host,
        a_session_that_is_idle_leaves_the_files_of_the_host,
        a_pause_to_a_file_leaves_the_files_of_the_host,
        a_restart_leaves_the_files_of_the_host,
        a_full_directory_is_copied_beside_the_host,
        a_tree_whose_directory_was_moved_is_named,
        a_file_of_the_host_that_was_replaced_is_named
    ];
    needing(Need::Snapshots, tests)
}

/// A host directory at a path where each session has its own directory. A session gets the parent directories of what
/// its policy shows there.
struct Host(TempDir);

impl Host {
    const FILES: [&'static str; 5] = [
        "written/precious",
        "written/sub/deep",
        "between/deep/precious",
        "read/sub/kept",
        "single",
    ];

    /// Creates one in each such directory. A machine may lack `/work`.
    fn each() -> impl Iterator<Item = Self> {
        let made = ["/tmp", "/work"].map(tempfile::tempdir_in);
        assert!(made[0].is_ok(), "{:?}", made[0]);
        made.into_iter().flatten().map(Self::filled)
    }

    fn filled(directory: TempDir) -> Self {
        let host = Self(directory);
        for path in Self::FILES {
            let path = host.at(path);
            fs::create_dir_all(path.parent().expect("the path has a parent"))
                .expect("the directory is created");
            fs::write(path, "the host's").expect("the file is written");
        }
        for path in host.contents().keys() {
            // The guest may be another user.
            fs::set_permissions(path, Permissions::from_mode(0o777))
                .expect("the test owns the file");
        }
        host
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn key(&self, key: &str, paths: &[&str]) -> String {
        let paths = paths.iter().map(|path| self.at(path).display().to_string());
        format!("{key}={}", toml::Value::from(paths.collect::<Vec<_>>()))
    }

    /// Shows trees and a file read-only.
    fn read(&self) -> Recipe {
        let shown = ["written", "read", "between/deep", "single"];
        standard().set(self.key("filesystem.read", &shown))
    }

    /// Lets the guest write to two of the trees.
    fn written(&self) -> Recipe {
        let read = self.key("filesystem.read", &["read", "single"]);
        let write = self.key("filesystem.write", &["written", "between/deep"]);
        standard().set(read).set(write)
    }

    /// Returns every path with its mode, times and contents.
    fn contents(&self) -> BTreeMap<PathBuf, (u32, i64, i64, Option<String>)> {
        let mut found = BTreeMap::new();
        let mut left = vec![self.0.path().to_owned()];
        while let Some(path) = left.pop() {
            let about = fs::metadata(&path).expect("the file exists");
            if about.is_dir() {
                let entries = fs::read_dir(&path).expect("a directory");
                left.extend(entries.map(|entry| entry.expect("the file exists").path()));
            }
            let contents = fs::read_to_string(&path).ok();
            let about = (about.mode(), about.mtime(), about.mtime_nsec(), contents);
            found.insert(path, about);
        }
        found
    }

    /// Returns the source of a cell that changes to the directory first.
    fn cell(&self, source: &str) -> String {
        let path = self.0.path().display();
        format!("import os; os.chdir('{path}')\n{source}")
    }
}

/// Fills the session's own directories around the trees, and defines a function that shows everything.
const FILLS: &str = "os.mkdir('between/own')\n\
    for path in ('/work/mine', 'mine', 'between/own/file', '/dev/shm/mine'): open(path, 'w').write('first')\n\
    os.symlink('single', 'link'); os.link('mine', 'same'); os.utime('between', (1e9, 1e9)); os.chmod('between', 0o711)\n\
    f = open('mine', 'r+'); g = open('read/sub/kept')\n\
    def seen():\n\
    \x20   names = [os.path.join(where, name) for where, _, names in os.walk('.') for name in names]\n\
    \x20   own = [open(where + '/mine').read() for where in ('/work', '/dev/shm')]\n\
    \x20   between, same = os.stat('between'), os.stat('same')\n\
    \x20   return [sorted((name, open(name).read()) for name in names), own, os.readlink('link'), same.st_nlink,\n\
    \x20       between.st_mode, between.st_mtime, f.seek(0), f.read(), g.seek(0), g.read()]\n\
    def change():\n\
    \x20   for path in ('/work/mine', 'mine', 'between/later', '/dev/shm/mine'): open(path, 'w').write('second')\n\
    \x20   os.remove('link'); os.remove('between/own/file'); os.chmod('between', 0o700)";

/// Checks that a session continues with its files and the trees that its policy shows, and that the host's files are
/// unchanged. `copied` receives the session and returns the one that continues.
fn assert_host_files_are_unchanged(
    world: &World,
    set: &str,
    copied: impl Fn(&Arc<Sandbox>, Session) -> Session,
) {
    for host in Host::each() {
        for (recipe, is_written) in [(host.written(), true), (host.read(), false)] {
            let sandbox = Arc::new(world.build(recipe.set(set)));
            let before = host.contents();
            let mut first = session(&sandbox);
            ok(&mut first, &host.cell(FILLS));
            let wanted = value(&mut first, "seen()");
            let shown = wanted.matches("the host's").count();
            assert_eq!(shown, Host::FILES.len() + 2, "{wanted}");
            let mut session = copied(&sandbox, first);
            assert_eq!(value(&mut session, "seen()"), wanted);
            assert_eq!(host.contents(), before);
            if is_written {
                ok(
                    &mut session,
                    "open('between/deep/new', 'w').write('a guest')",
                );
                assert_eq!(
                    fs::read_to_string(host.at("between/deep/new")).expect("the file exists"),
                    "a guest"
                );
            }
        }
    }
}

fn a_fork_leaves_the_files_of_the_host(world: &World) {
    assert_host_files_are_unchanged(world, "session.snapshots=8", |_, mut session| {
        let mut forked = fork(&copy(&mut session));
        ok(&mut session, "change()");
        fork(&copy(&mut forked))
    });
}

fn a_rollback_leaves_the_files_of_the_host(world: &World) {
    assert_host_files_are_unchanged(world, "session.snapshots=8", |_, mut session| {
        let snapshot = copy(&mut session);
        for _ in 0..2 {
            ok(&mut session, "change()");
            let rolled = session.rollback(&snapshot);
            rolled.unwrap_or_else(|error| panic!("not rolled back: {error}"));
        }
        session
    });
}

fn a_pause_leaves_the_files_of_the_host(world: &World) {
    assert_host_files_are_unchanged(world, "session.snapshots=8", |_, mut session| {
        session.pause().unwrap_or_else(|error| panic!("{error}"));
        session
    });
}

fn a_session_that_is_idle_leaves_the_files_of_the_host(world: &World) {
    assert_host_files_are_unchanged(world, "session.pause_after=50ms", |_, session| {
        await_pause(&session);
        session
    });
}

fn a_pause_to_a_file_leaves_the_files_of_the_host(world: &World) {
    assert_host_files_are_unchanged(world, "session.snapshots=8", |sandbox, mut session| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("state");
        session
            .pause_to(&path)
            .unwrap_or_else(|error| panic!("{error}"));
        resume(sandbox, &path)
    });
}

fn a_restart_leaves_the_files_of_the_host(world: &World) {
    assert_host_files_are_unchanged(world, "session.snapshots=8", |_, mut session| {
        let snapshot = copy(&mut session);
        session.restart().expect("the session restarts");
        session
            .rollback(&snapshot)
            .expect("the snapshot belongs to the session");
        session
    });
}

fn a_full_directory_is_copied_beside_the_host(world: &World) {
    for host in Host::each() {
        let recipe = host.read().set("filesystem.work_inodes=64");
        let mut session = open(world, recipe.set("filesystem.tmp_inodes=64"));
        let top = host
            .0
            .path()
            .parent()
            .expect("the path has a parent")
            .display();
        ok(
            &mut session,
            &format!(
                "import os\nos.chdir('{top}')\n\
                 try:\n\
                 \x20   for number in range(100): open(str(number), 'w').close()\n\
                 except OSError: pass"
            ),
        );
        let wanted = value(&mut session, "sorted(os.listdir())");
        let mut forked = fork(&copy(&mut session));
        assert_eq!(value(&mut forked, "sorted(os.listdir())"), wanted);
        let snapshot = copy(&mut session);
        ok(&mut session, "os.remove('0')");
        session.rollback(&snapshot).expect("it has room");
        assert_eq!(value(&mut session, "sorted(os.listdir())"), wanted);
    }
}

fn a_tree_whose_directory_was_moved_is_named(world: &World) {
    for host in Host::each() {
        let before = host.contents();
        let mut session = open(world, host.written());
        let path = host.at("between/deep").display().to_string();
        let wanted = format!("`{path}`, which the policy shows, was moved; move it back first");
        ok(&mut session, &host.cell("1"));
        for (makes, removes) in [
            ("os.mkdir('between')", "os.rmdir('between')"),
            ("os.symlink('moved', 'between')", "os.remove('between')"),
            ("open('between', 'w').close()", "os.remove('between')"),
        ] {
            ok(
                &mut session,
                &format!("os.rename('between', 'moved'); {makes}"),
            );
            let refused = session.snapshot().expect_err("it was moved").to_string();
            assert!(refused.contains(&wanted), "{refused}");
            ok(
                &mut session,
                &format!("{removes}; os.rename('moved', 'between')"),
            );
        }
        let mut forked = fork(&copy(&mut session));
        let seen = value(&mut forked, "open('between/deep/precious').read()");
        assert_eq!(seen, "\"the host's\"");
        assert_eq!(host.contents(), before);
    }
}

/// Maps a file that the policy shows.
const MAPS: &str = "import ctypes\n\
    libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p\n\
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]\n\
    with open('read/sub/kept') as f: p = libc.mmap(None, 4096, 1, 2, f.fileno(), 0)\n\
    del f";

fn a_file_of_the_host_that_was_replaced_is_named(world: &World) {
    for host in Host::each() {
        let mut session = open(world, host.read());
        ok(&mut session, &host.cell(MAPS));
        let snapshot = copy(&mut session);
        let seen = "ctypes.string_at(p, 8).decode()";
        assert_eq!(value(&mut fork(&snapshot), seen), "'the host'");
        let path = host.at("read/sub/kept");
        fs::write(host.at("read/new"), "another").expect("the file is written");
        fs::rename(host.at("read/new"), &path).expect("it is replaced");
        let refused = snapshot.fork().expect_err("it was replaced").to_string();
        let wanted = format!("`{}` was replaced", path.display());
        assert!(refused.contains(&wanted), "{refused}");
        assert_eq!(value(&mut session, seen), "'the host'");
    }
}
