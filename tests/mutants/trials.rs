//! The tests: the sound jail, the detected mutants, and the jail without a layer.

use std::cell::RefCell;
use std::env;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use sandfork::{Layer, Level};

use crate::bench::{Bench, NETWORK, POSTURE};
use crate::mutant::Mutant;
use crate::verdict::Verdict;
use crate::{common, equivalent, sample, sound, subject, without};

/// Runs the tests.
pub fn main() -> ExitCode {
    if let Some(settings) = subject::requested() {
        return subject::run(&settings);
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
    // Ends the remaining processes; `exit` would not run the destructors.
    drop(BENCH.take());
    conclusion.exit_code()
}

/// Makes a test that reuses the supervisor of the previous one, as long as that one passed.
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

/// Makes a test that changes the calls of processes, some of which have privileges that an ordinary user lacks.
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

/// Tries every mutant, or those with one of these words in their name, and prints one line for each: the
/// layer, the name, the detector and the finding.
fn try_all(words: &[String]) -> ExitCode {
    let mut bench = Bench::new();
    let is_selected =
        |mutant: &&Mutant| words.is_empty() || words.iter().any(|word| mutant.name.contains(word));
    let all = bench.mutants();
    let mut wrong = 0;
    for mutant in all.iter().filter(is_selected) {
        let verdict = match bench.judge(mutant) {
            Verdict::Survived => equivalent::verdict(&mutant.name),
            other => other,
        };
        wrong += usize::from(matches!(verdict, Verdict::Survived | Verdict::Untried(_)));
        let (by, what) = verdict.columns();
        println!("{}\t{}\t{by}\t{what}", mutant.layer, mutant.name);
    }
    ExitCode::from(u8::from(wrong > 0))
}
