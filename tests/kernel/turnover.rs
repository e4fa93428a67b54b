//! Tests of the replacement of a zygote while runs continue.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use sandfork::Sandbox;
use sandfork::internals::sandbox::{BuilderInternals as _, Term, Turnover};

use crate::check::fine;
use crate::leftovers::traces::wait_until;
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![
        runs_continue_while_a_successor_starts,
        zygote_keeps_serving_if_its_successor_fails,
        runs_wait_for_a_successor_at_the_limit,
        sandbox_ends_while_a_successor_starts,
    ]
}

/// A module whose import blocks until the test releases it.
struct Gate(tempfile::TempDir);

/// A blocked import.
struct Held(File);

impl Gate {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        let path = place.path();
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("the test owns the file");
        mkfifo(&path.join("gate"), Mode::from_bits_truncate(0o644)).expect("a pipe with a name");
        let code = format!(
            "with open('{}/gate') as gate: word = gate.readline().strip()\n\
             if word: raise ImportError(word)\n",
            path.display()
        );
        fs::write(path.join("gated.py"), code).expect("the file is written");
        Self(place)
    }

    /// Waits until an import blocks.
    fn hold(&self) -> Held {
        let pipe = Cell::new(None);
        // A FIFO can be opened for writing without blocking once it has a reader.
        let open = || {
            let mut options = OpenOptions::new();
            options.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
            pipe.set(options.open(self.0.path().join("gate")).ok());
            let opened = pipe.take();
            let is_open = opened.is_some();
            pipe.set(opened);
            is_open
        };
        assert!(wait_until(open), "nothing is imported");
        Held(pipe.take().expect("the file opens"))
    }

    /// Builds a sandbox that preloads the module.
    fn sandbox(&self, world: &World, turnover: Turnover) -> Sandbox {
        let recipe = standard().python(world.python());
        let path = self.0.path().display();
        let recipe = recipe.set(format!("python.path=[\"{path}\"]"));
        let policy = recipe.set("python.preload=[\"gated\"]").policy();
        let builder = Sandbox::builder()
            .policy(policy)
            .ready(0)
            .turnover(turnover);
        thread::scope(|scope| {
            let built = scope.spawn(|| builder.build());
            self.hold().succeed();
            let built = built.join().expect("the thread does not panic");
            built.unwrap_or_else(|error| panic!("no sandbox: {error}"))
        })
    }
}

impl Held {
    fn succeed(self) {
        self.go_on("");
    }

    fn fail(self, why: &str) {
        self.go_on(why);
    }

    fn go_on(mut self, word: &str) {
        writeln!(self.0, "{word}").expect("the peer reads");
        // So that the next reader is another import.
        self.await_end();
    }

    /// Waits until the import has closed the FIFO.
    fn await_end(&self) {
        let mut pipe = [PollFd::new(self.0.as_fd(), PollFlags::empty())];
        let ended = poll(&mut pipe, PollTimeout::from(60_000_u16));
        assert_eq!(ended, Ok(1), "it still reads");
    }
}

fn turnover(renewed_after: u64, most: u64, pause: Duration) -> Turnover {
    let term = |workers| Term {
        workers,
        age: Duration::from_secs(3600),
    };
    Turnover {
        renewed_after: term(renewed_after),
        most: term(most),
        pause,
    }
}

/// Returns a value that all workers of one zygote share, and no others.
fn seed(sandbox: &Sandbox) -> String {
    let outcome = run(sandbox, "print(hash('x'))");
    fine(&outcome);
    outcome.stdout().into_owned()
}

fn runs_continue_while_a_successor_starts(world: &World) {
    let gate = Gate::new();
    let sandbox = gate.sandbox(world, turnover(3, 1000, Duration::ZERO));
    let first = seed(&sandbox);
    let other = |_| seed(&sandbox) != first;
    assert!(!(0..2).any(other));
    let held = gate.hold();
    assert!(!(0..10).any(other));
    held.succeed();
    assert!(wait_until(|| other(0)), "it still serves");
}

fn zygote_keeps_serving_if_its_successor_fails(world: &World) {
    let gate = Gate::new();
    let sandbox = gate.sandbox(world, turnover(2, 1_000_000, Duration::ZERO));
    let first = seed(&sandbox);
    let other = |_| seed(&sandbox) != first;
    for _ in 0..2 {
        assert!(!other(0));
        thread::scope(|scope| {
            let held = scope.spawn(|| gate.hold());
            // The next attempt starts at the first run after the last attempt has failed.
            while !held.is_finished() {
                assert!(!other(0));
            }
            held.join()
                .expect("the thread does not panic")
                .fail("not today");
        });
    }
    thread::scope(|scope| {
        let held = scope.spawn(|| gate.hold().succeed());
        assert!(wait_until(|| other(0)), "it still serves");
        held.join().expect("the thread does not panic");
    });
}

fn runs_wait_for_a_successor_at_the_limit(world: &World) {
    let gate = Gate::new();
    let sandbox = gate.sandbox(world, turnover(2, 4, Duration::from_secs(3600)));
    let first = seed(&sandbox);
    assert_eq!(seed(&sandbox), first);
    gate.hold().fail("not today");
    assert_eq!([seed(&sandbox), seed(&sandbox)], [&*first, &*first]);
    thread::scope(|scope| {
        let refused = scope.spawn(|| sandbox.run("1"));
        gate.hold().fail("nor tomorrow");
        let refused = refused.join().expect("the thread does not panic");
        let error = refused.expect_err("no zygote may serve").to_string();
        assert!(error.contains("nor tomorrow"), "{error}");
    });
    thread::scope(|scope| {
        let next = scope.spawn(|| seed(&sandbox));
        gate.hold().succeed();
        assert_ne!(next.join().expect("the thread does not panic"), first);
    });
}

fn sandbox_ends_while_a_successor_starts(world: &World) {
    let gate = Gate::new();
    let sandbox = gate.sandbox(world, turnover(1, 1000, Duration::ZERO));
    seed(&sandbox);
    let held = gate.hold();
    let begun = Instant::now();
    drop(sandbox);
    // An import may take two minutes.
    assert!(begun.elapsed() < Duration::from_secs(60));
    held.await_end();
}
