//! Snapshots of sessions whose directories are closed to their owner, or nested deeply.

use super::snapshots::{copy, fork, ok};
use super::{open, value};
use crate::need::Need;
use crate::recipe::standard;
use crate::test::{Test, needing, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    let tests = tests![
        closed_current_directory_is_refused_by_name,
        nested_directories_are_restored
    ];
    needing(Need::Snapshots, tests)
}

fn closed_current_directory_is_refused_by_name(world: &World) {
    for (path, enter) in [("/work", ""), ("/work/d", "os.mkdir('d'); os.chdir('d')")] {
        let mut session = open(world, standard());
        ok(
            &mut session,
            &format!("import os\n{enter}\nos.chmod('.', 0)"),
        );
        let refused = session.snapshot().expect_err("it cannot be entered");
        let sentence = format!(
            "the current directory `{path}` cannot be entered again: Permission denied; change its mode first (chmod), or \
             leave it"
        );
        assert!(refused.to_string().ends_with(&sentence), "{refused}");
        ok(&mut session, &format!("os.chmod('{path}', 0o700)"));
        let mut forked = fork(&copy(&mut session));
        let is_there = format!("os.getcwd() == '{path}'");
        assert_eq!(value(&mut forked, &is_there), "True");
    }
}

/// Each level has a directory with a file beside the next level, so that restoring it goes up and down.
fn nested_directories_are_restored(world: &World) {
    let mut session = open(world, standard().patient());
    ok(
        &mut session,
        "import os\n\
         for level in range(200):\n\
         \x20   for beside in ('a', 'z'):\n\
         \x20       os.mkdir(beside); open(beside + '/file', 'w').close(); os.chmod(beside, 0o500)\n\
         \x20   os.mkdir('m', 0o711); os.chdir('m')\n\
         os.chdir('/work')\n\
         def found():\n\
         \x20   for directory, inner, files in os.walk('.'):\n\
         \x20       for name in (*inner, *files):\n\
         \x20           path = os.path.join(directory, name); stat = os.lstat(path)\n\
         \x20           yield path, stat.st_mode, stat.st_ino, stat.st_mtime_ns\n\
         before = sorted(found())",
    );
    let mut forked = fork(&copy(&mut session));
    let is_same = "sorted(found()) == before and len(before) == 1000";
    assert_eq!(value(&mut forked, is_same), "True");
}
