//! What goes wrong on the way: system calls that fail, steps that are left out, processes that are
//! killed. All of it is done from outside, to the program as it is.
//!
//! `cargo xtask faults` does everything. `SANDFORK_FAULTS=sample` does a part of each that is always the
//! same, and without it, as in CI, that part of what is left out and lost: which of two things is heard
//! first, the error that a call gave or the end of whoever was killed, is for the scheduler to say.

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

mod bench;
mod call;
mod kills;
mod losses;
mod sabotage;
mod set_up;
mod subject;
mod task;
mod tracer;

use std::cell::RefCell;
use std::env;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use sandfork::policy::Level;

use bench::Bench;
use kills::{Cost, KILLS, Kill, Patience};
use sabotage::LEFT_OUT;
use set_up::{BUILD, FAILED, Part, RUN, Tally};

fn main() -> ExitCode {
    if let Some(settings) = subject::requested() {
        return subject::play(&settings);
    }
    // One at a time, on the thread that traces.
    let arguments = Arguments {
        test_threads: Some(1),
        ..Arguments::from_args()
    };
    let scale = Scale::asked_for();
    let parts = BUILD.into_iter().chain(RUN);
    let fails = parts.clone().map(|part| {
        let name = format!("fails::{}::{}", part.command, part.role);
        trial(name, move |bench| fail_in_turn(bench, part, scale))
    });
    let left_out = parts
        .filter(|part| part.role != call::Role::Supervisor)
        .map(|part| {
            let name = format!("left_out::{}::{}", part.command, part.role);
            trial(name, move |bench| leave_out(bench, part, scale))
        });
    let killed = KILLS.map(|kill| {
        let name = format!(
            "killed::{}::{}_by_{}",
            kill.command, kill.victim, kill.clock
        );
        trial(name, move |bench| strike(bench, kill, scale))
    });
    let lost = losses::LOSSES.map(|(name, loss)| {
        let name = format!("lost::{name}");
        trial(name, move |bench| {
            loss(bench)?;
            bench.ask("close other", None);
            bench.settled();
            Ok(())
        })
    });
    let mut trials: Vec<Trial> = left_out.chain(lost).collect();
    if env::var_os("SANDFORK_FAULTS").is_some() {
        trials.extend(fails.chain(killed));
    }
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

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

/// How much is done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Scale {
    /// A part that is always the same.
    Sample,
    /// Everything.
    Full,
}

impl Scale {
    fn asked_for() -> Self {
        match env::var("SANDFORK_FAULTS").as_deref() {
            Ok("full") => Self::Full,
            _ => Self::Sample,
        }
    }

    /// As many of these as are done, spread evenly.
    fn of<T: Copy>(self, all: &[T], sample: usize) -> Vec<T> {
        let stride = match self {
            Self::Sample => all.len().div_ceil(sample).max(1),
            Self::Full => 1,
        };
        // Not the first, which would always be the same kind.
        all.iter()
            .skip(stride / 2)
            .step_by(stride)
            .copied()
            .collect()
    }
}

fn fail_in_turn(bench: &mut Bench, part: Part, scale: Scale) -> Result<(), Failed> {
    bench.ready();
    let calls = part.calls(&bench.record(part.command));
    let faults: Vec<_> = calls
        .iter()
        .flat_map(|call| set_up::acts(call).into_iter().map(move |act| (*call, act)))
        .collect();
    let mut tally = Tally::default();
    bench.settled();
    for (call, act) in scale.of(&faults, 7) {
        set_up::put(bench, part, &call, act, FAILED, &mut tally);
    }
    report(part, calls.len(), &tally)
}

fn leave_out(bench: &mut Bench, part: Part, scale: Scale) -> Result<(), Failed> {
    bench.ready();
    let calls = part.calls(&bench.record(part.command));
    let steps: Vec<_> = calls
        .iter()
        .filter_map(|call| Some((*call, sabotage::left_out(call)?)))
        .collect();
    let mut tally = Tally::default();
    bench.settled();
    for (call, act) in scale.of(&steps, 7) {
        set_up::put(bench, part, &call, act, LEFT_OUT, &mut tally);
    }
    report(part, calls.len(), &tally)
}

fn report(part: Part, calls: usize, tally: &Tally) -> Result<(), Failed> {
    let Tally {
        faults,
        sound,
        refused,
        ..
    } = tally;
    println!(
        "{}: {calls} calls, {faults} faults: {sound} sound, {refused} refused",
        part.name
    );
    for (says, times) in &tally.says {
        println!("  {times:4} {says}");
    }
    none_wrong(&tally.wrong)
}

fn strike(bench: &mut Bench, kill: Kill, scale: Scale) -> Result<(), Failed> {
    bench.ready();
    let calls = bench.record(kill.command);
    let of_clock = calls.iter().filter(|call| call.role == kill.clock);
    let points: Vec<usize> = (1..=of_clock.count().min(1000)).collect();
    bench.settled();
    // A machine that has other things to do takes longer.
    let patience = Patience(match scale {
        Scale::Sample => Duration::from_secs(20),
        Scale::Full => Duration::from_secs(1),
    });
    let mut cost = Cost::default();
    for nth in scale.of(&points, 3) {
        kills::strike(bench, kill, nth, patience, &mut cost);
    }
    let Cost {
        points, gone, next, ..
    } = cost;
    println!("{kill:?}: {points} points; gone in {gone:?} at most, the next run took {next:?}");
    none_wrong(&cost.wrong)
}

fn none_wrong(wrong: &[String]) -> Result<(), Failed> {
    match wrong {
        [] => Ok(()),
        _ => Err(wrong.join("\n").into()),
    }
}
