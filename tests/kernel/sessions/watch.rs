//! Tests of watching directories of a session from outside.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use sandfork::ErrorKind;
use sandfork::session::{Contents, Depth, FileEvent, Parents, Watch};

use super::{open, run, session};
use crate::need::Need;
use crate::recipe::standard;
use crate::test::{Test, needing, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    let mut tests = needing(Need::HostWork, tests![shown_trees_are_not_watched]);
    tests.extend(tests![
        changes_by_cells_and_the_host_are_reported,
        a_watch_ends_with_its_worker,
        unwatchable_paths_are_rejected,
        endless_changes_overflow_only_their_watch,
    ]);
    tests
}

/// Waits until this event was reported.
#[track_caller]
fn await_event(watch: &Watch, expected: &FileEvent) {
    let until = Instant::now() + Duration::from_secs(60);
    let mut seen = Vec::new();
    while !seen.contains(expected) {
        let events = watch.next(Some(until)).expect("the watch continues");
        assert!(!events.is_empty(), "no {expected:?} after {seen:?}");
        seen.extend(events);
    }
}

fn changes_by_cells_and_the_host_are_reported(world: &World) {
    let mut session = open(world, standard());
    let watcher = session.watcher();
    session
        .make_dir("in", Parents::Made)
        .expect("the directory is created");
    let watch = watcher
        .watch("/work/in", Depth::Tree)
        .expect("the watch starts");
    assert_eq!(
        watch
            .next(Some(Instant::now()))
            .expect("the watch continues"),
        []
    );
    let reader = thread::spawn(move || {
        await_event(&watch, &FileEvent::Create("deep/made".into()));
        watch
    });
    // The cell ends only once its change was reported.
    let code = "import os, time\n\
                os.makedirs('in/deep')\n\
                with open('in/deep/made', 'w') as file: file.write('x')\n\
                while not os.path.exists('go'): time.sleep(0.001)";
    let host = thread::spawn({
        let other = watcher.clone();
        move || {
            let watch = reader.join().expect("it is reported");
            // Another watch starts while the cell runs.
            let root = other
                .watch(".", Depth::Directory)
                .expect("the watch starts");
            drop(watch);
            root
        }
    });
    let programs = session.programs();
    let ends = thread::spawn(move || {
        let root = host.join().expect("the watch starts");
        let go = sandfork::session::Program::shell("touch go");
        programs.start(go).expect("the command runs").wait();
        root
    });
    run(&mut session, code);
    let root = ends.join().expect("the watch continues");
    await_event(&root, &FileEvent::Create("go".into()));
    session
        .open_write("by the host", Contents::Replaced)
        .expect("the file opens");
    await_event(&root, &FileEvent::Create("by the host".into()));
}

fn shown_trees_are_not_watched(world: &World) {
    let shown = tempfile::tempdir_in("/work").expect("it can be made");
    let key = format!("filesystem.read=[\"{}\"]", shown.path().display());
    let mut session = open(world, standard().set(key));
    let watch = session.watcher().watch(".", Depth::Tree);
    let watch = watch.expect("the watch starts");
    run(&mut session, "open('made', 'w').close()");
    await_event(&watch, &FileEvent::Create("made".into()));
}

fn a_watch_ends_with_its_worker(world: &World) {
    let mut session = open(world, standard());
    let watcher = session.watcher();
    let watch = watcher.watch(".", Depth::Tree).expect("the watch starts");
    session.restart().expect("the session restarts");
    let ended = loop {
        match watch.next(None) {
            Ok(_) => {}
            Err(ended) => break ended,
        }
    };
    assert_eq!(ended.kind(), ErrorKind::SessionEnded);
    let again = watcher.watch(".", Depth::Tree).expect("the watch starts");
    again.close();
    let closed = again.next(None).expect_err("it was closed");
    assert!(closed.to_string().contains("it was closed"), "{closed}");
    drop(session);
    let ended = watcher
        .watch(".", Depth::Tree)
        .expect_err("the session has ended");
    assert_eq!(ended.kind(), ErrorKind::SessionEnded, "{ended}");
}

fn unwatchable_paths_are_rejected(world: &World) {
    let mut session = open(world, standard());
    run(
        &mut session,
        "import os\nopen('file', 'w')\nos.symlink('/etc', 'link')\nos.mkfifo('fifo')",
    );
    let watcher = session.watcher();
    for (path, errno) in [
        ("missing", Errno::ENOENT),
        ("file", Errno::ENOTDIR),
        ("fifo", Errno::ENOTDIR),
        ("link", Errno::ENOTDIR),
        ("link/ssl", Errno::ELOOP),
    ] {
        let refused = watcher.watch(path, Depth::Tree).expect_err(path);
        assert_eq!(refused.errno(), Some(errno as i32), "{path}: {refused}");
        assert!(
            refused.to_string().contains("cannot be watched"),
            "{refused}"
        );
    }
    let elsewhere = watcher.watch("/etc", Depth::Tree).expect_err("elsewhere");
    assert_eq!(elsewhere.kind(), ErrorKind::Request, "{elsewhere}");
    let watch = || watcher.watch(".", Depth::Directory);
    let eight: Vec<_> = (0..8).map(|_| watch().expect("the watch starts")).collect();
    let refused = watch().expect_err("there are 8");
    assert!(refused.to_string().contains("8 watches"), "{refused}");
    drop(eight);
    watch().expect("the watch starts");
}

fn endless_changes_overflow_only_their_watch(world: &World) {
    let sandbox = Arc::new(world.build(standard()));
    let (mut hostile, mut calm) = (session(&sandbox), session(&sandbox));
    let watched = |session: &super::Session| {
        let watch = session.watcher().watch(".", Depth::Tree);
        watch.expect("the watch starts")
    };
    let (flooded, other) = (watched(&hostile), watched(&calm));
    let interrupter = hostile.interrupter();
    let guest = thread::spawn(move || {
        let code = "import os\n\
                    os.mkdir('a')\n\
                    for n in range(200): os.mkdir(f'a/{n}')\n\
                    while True:\n\
                    \x20   os.rename('a', 'b'); os.rename('b', 'a')";
        run(&mut hostile, code);
        hostile
    });
    await_event(&flooded, &FileEvent::Overflow);
    // The flooded watch continues, and so does the watch of another session.
    run(&mut calm, "open('calm', 'w')");
    await_event(&other, &FileEvent::Create("calm".into()));
    await_event(&flooded, &FileEvent::Overflow);
    interrupter.interrupt();
    let mut hostile = guest.join().expect("the session is live");
    let more = || {
        flooded
            .next(Some(Instant::now()))
            .expect("the watch continues")
    };
    while !more().is_empty() {}
    run(&mut hostile, "open('last', 'w')");
    await_event(&flooded, &FileEvent::Create("last".into()));
}
