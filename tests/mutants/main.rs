//! Jails with one thing missing, made from outside: the product's own calls are changed on their way to
//! the kernel, so that what is tested is what is shipped.
//!
//! Each of them must be seen: by the kernel, which then refuses the next step, by the worker or its
//! supervisor, who look whether it holds, or by a guest that finds something else than what is written
//! in `sound/`. `cargo xtask verify mutants` tries all; without it, as in CI, one of each kind is tried,
//! always the same.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test program"
)]
// What is changed of a system call are the registers of one architecture.
#![cfg(target_arch = "x86_64")]

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "what other tests share is there too")]
mod common;
#[path = "../common/family.rs"]
#[allow(dead_code, reason = "what other tracers tell apart is there too")]
mod family;
#[path = "../common/traced.rs"]
#[allow(dead_code, reason = "what other tracers do is there too")]
mod traced;

mod bench;
mod edit;
mod equivalent;
mod filters;
mod fixture;
mod memory;
mod mutant;
mod off;
mod parts;
mod sample;
mod sound;
mod step;
mod subject;
mod tracer;
mod verdict;
mod without;

use std::cell::RefCell;
use std::env;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use sandfork::{Layer, Level};

use bench::{Bench, NETWORK, POSTURE};
use mutant::Mutant;
use verdict::Verdict;

fn main() -> ExitCode {
    if let Some(settings) = subject::requested() {
        return subject::play(&settings);
    }
    let mut arguments = env::args().skip(1).peekable();
    if arguments.next_if_eq(without::OPTION).is_some() {
        return without::main(arguments);
    }
    if env::var_os("SANDFORK_MUTANTS").is_some_and(|scale| scale == "full") {
        return try_all(&arguments.collect::<Vec<_>>());
    }
    // One at a time, on the thread that traces.
    let arguments = Arguments {
        test_threads: Some(1),
        ..Arguments::from_args()
    };
    let guests = POSTURE.into_iter().chain([NETWORK]);
    let sound = guests.map(|guest| {
        trial(format!("sound::{}", guest.name), move |bench| {
            sound::compare(guest.name, &bench.sound(guest, None))
        })
    });
    let caught = sample::SAMPLE.iter().map(|one| {
        let name = one.name;
        trial_of_root(format!("caught::{name}"), move |bench| one.judge(bench))
    });
    let off = Layer::ALL.map(|layer| {
        let name = format!("off::{layer}");
        trial_of_root(name, move |bench| sound::without(layer, bench))
    });
    let trials = sound.into_iter().chain(caught).chain(off).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Ends what is left, which exiting would not.
    drop(BENCH.take());
    conclusion.exit_code()
}

/// A test that uses the supervisor of the one before, as long as there was nothing wrong with it.
fn trial(
    name: String,
    test: impl FnOnce(&mut Bench) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    common::trial(name, Level::Standard, move || {
        let mut bench = BENCH.take().unwrap_or_else(Bench::new);
        test(&mut bench)?;
        BENCH.set(Some(bench));
        Ok(())
    })
}

/// A test that changes what processes do, some of which have other rights than an ordinary user.
fn trial_of_root(
    name: String,
    test: impl FnOnce(&mut Bench) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    if nix::unistd::geteuid().is_root() {
        return trial(name, test);
    }
    let reason = "only root may change the calls of a process that no other may reach into";
    Trial::ignorable_test(name, move || Ok(Completion::ignored_with(reason)))
}

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

/// Tries every mutant, or those with one of these words in their name, and prints a line for each: the
/// layer, the name, who noticed, and what.
fn try_all(words: &[String]) -> ExitCode {
    let mut bench = Bench::new();
    let is_asked_for =
        |mutant: &&Mutant| words.is_empty() || words.iter().any(|word| mutant.name.contains(word));
    let all = bench.mutants();
    let mut wrong = 0;
    for mutant in all.iter().filter(is_asked_for) {
        let verdict = match bench.judge(mutant) {
            Verdict::Survived => equivalent::verdict(&mutant.name),
            other => other,
        };
        wrong += usize::from(matches!(verdict, Verdict::Survived | Verdict::Untried(_)));
        let (by, what) = verdict.told();
        println!("{}\t{}\t{by}\t{what}", mutant.layer, mutant.name);
    }
    ExitCode::from(u8::from(wrong > 0))
}
