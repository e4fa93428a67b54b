//! Implements `sandfork map`: runs many tasks from a file and writes their results to a file.

mod existing;
mod ids;
mod lines;
mod progress;
mod results;
mod resume;
mod source;
mod tasks;

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use crate::Sandbox;
use crate::batch::{Batch, CallOff, Done, FailureStreak, Mapped, Order};
use crate::capacity::Capacity;
use crate::outcome::exit_code;
use indicatif::ProgressDrawTarget;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sandfork_jail::limits::raise_open_files;

use self::ids::Ids;
use self::progress::{Counts, Progress};
use self::results::{Form, Results};
use self::source::Source;
pub use self::tasks::InputError;
use self::tasks::{Policies, Reach, Tasks};
use super::args::MapArguments;
use super::env::provide;
use super::failure::{Failure, say};
use super::interrupt::Interrupts;
use super::policy::chosen;

/// How long running tasks may continue after an interruption before they are cancelled.
const GRACE: Duration = Duration::from_secs(2);

/// Runs the tasks.
pub fn map(arguments: &MapArguments) -> Result<u8, Failure> {
    // If the host refuses, fewer tasks can run at once.
    _ = raise_open_files();
    let policy = chosen(&arguments.policy)?;
    provide(&policy)?;
    let interruption = Arc::new(Interruption::default());
    let interrupted = Arc::clone(&interruption);
    let interrupts = Interrupts::take(move || interrupted.begin()).map_err(Failure::Setup)?;
    let source = Source::open(&arguments.tasks)?;
    let sandbox = Sandbox::builder().policy(policy.clone()).build()?;
    let jobs = jobs(arguments, &sandbox);
    let (results, ids) = results(arguments)?;
    let progress = Progress::begin(source.watched.size(), draw_target(arguments, &results));
    let progress = Arc::new(progress);
    let reach = if arguments.code_only {
        Reach::CodeOnly
    } else {
        Reach::Host
    };
    let policies = Policies::new(policy, &arguments.policy, reach);
    let tasks = Tasks::new(source, policies, ids, Arc::clone(&progress));
    let order = if arguments.ordered {
        Order::AsGiven
    } else {
        Order::AsFinished
    };
    let batch = Batch::new(sandbox).jobs(jobs).order(order);
    let mapped = batch.try_map(tasks).map_err(Failure::Setup)?;
    _ = interruption.begun.set(RunningBatch {
        call_off: mapped.call_off(),
        reader: results.reader(),
    });
    interrupts.set_running();
    let ended = Collector {
        results,
        progress: &progress,
        streak: FailureStreak::default(),
    }
    .collect(mapped);
    let (counts, summary) = progress.end();
    say(&summary);
    ended?;
    if interruption.was_requested.load(Ordering::SeqCst) {
        let remedy = match arguments.output {
            Some(_) => ": `--resume` continues where it stopped",
            None => "",
        };
        return Err(Failure::Interrupted(format!("interrupted{remedy}")));
    }
    Ok(code(counts))
}

/// Returns where to draw the bar: nowhere if result lines may be printed between its updates. indicatif draws only on a
/// terminal.
fn draw_target(arguments: &MapArguments, results: &Results) -> ProgressDrawTarget {
    if arguments.no_progress || results.may_reach_a_terminal() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr_with_hz(5)
    }
}

fn code(counts: Counts) -> u8 {
    match (counts.infrastructure, counts.refused) {
        (0, 0) => exit_code::OK,
        (0, _) => exit_code::USAGE,
        _ => exit_code::SANDBOX_UNAVAILABLE,
    }
}

fn results(arguments: &MapArguments) -> Result<(Results, Ids), Failure> {
    let (results, ids) = match &arguments.output {
        None => (Results::on_stdout()?, Ids::default()),
        Some(path) if arguments.resume => Results::resume(path)?,
        Some(path) => (Results::create(path)?, Ids::default()),
    };
    let form = if arguments.compact {
        Form::Compact
    } else {
        Form::Full
    };
    Ok((results.form(form), ids))
}

/// Returns the requested number of jobs, by default the number of processors. If the host cannot hold that many, prints
/// a message and returns fewer.
fn jobs(arguments: &MapArguments, sandbox: &Sandbox) -> NonZeroUsize {
    let requested = arguments.jobs.map(usize::from).and_then(NonZeroUsize::new);
    let wanted =
        requested.unwrap_or_else(|| thread::available_parallelism().unwrap_or(NonZeroUsize::MIN));
    let capacity = Capacity::of(sandbox);
    if capacity.runs >= wanted {
        return wanted;
    }
    let runs = capacity.runs;
    say(&format!(
        "running {runs} at once instead of {wanted}: {capacity}"
    ));
    runs
}

/// Returns whether a write to the stream would not block.
fn is_writable(stream: &impl AsFd) -> bool {
    let mut awaited = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
    poll(&mut awaited, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Collects the results.
struct Collector<'a> {
    results: Results,
    progress: &'a Progress,
    streak: FailureStreak,
}

impl Collector<'_> {
    /// Writes every result, and stops starting tasks at the first error. Tasks started before an invalid line are
    /// finished. If a result cannot be written, the running tasks are cancelled.
    fn collect(mut self, mut mapped: Mapped<InputError>) -> Result<(), Failure> {
        let mut ended = Ok(());
        while let Some(result) = mapped.next() {
            let taken = match result {
                Ok(done) => self.take(&done),
                Err(error) => Err(error.into()),
            };
            match taken {
                Ok(()) => {}
                Err(error @ (Failure::Output(_) | Failure::NotWritten(_))) => return Err(error),
                Err(error) => {
                    mapped.call_off().begin_no_more();
                    ended = ended.and(Err(error));
                }
            }
        }
        self.results.finish()?;
        ended
    }

    fn take(&mut self, done: &Done) -> Result<(), Failure> {
        // A cancelled task runs again when the batch is resumed.
        if !done.is_finished() && done.outcome().is_some() {
            return Ok(());
        }
        self.results.write(done)?;
        self.progress.count(done);
        match self.streak.last_of_too_many(done) {
            Some(error) => Err(Failure::Lost(error.to_string())),
            None => Ok(()),
        }
    }
}

/// The state through which a signal ends a batch.
#[derive(Default)]
struct Interruption {
    was_requested: AtomicBool,
    begun: OnceLock<RunningBatch>,
}

/// A batch that a signal can end.
struct RunningBatch {
    call_off: CallOff<InputError>,
    /// Names the output that may block while nothing reads it, if it is not a file.
    reader: Option<String>,
}

impl Interruption {
    /// Stops starting tasks, and cancels those that do not end soon.
    fn begin(self: &Arc<Self>) {
        self.was_requested.store(true, Ordering::SeqCst);
        let Some(RunningBatch { call_off, .. }) = self.begun.get() else {
            return;
        };
        call_off.begin_no_more();
        let later = Arc::clone(self);
        let waiting =
            thread::Builder::new().spawn(move || later.begun.get().map(RunningBatch::end));
        if waiting.is_err() {
            call_off.now();
        }
    }
}

impl RunningBatch {
    /// Cancels the tasks that still run after the grace period. Then exits if the results still wait for a reader,
    /// because a write to an unread pipe never returns. A file for `--resume` has no reader.
    fn end(&self) {
        thread::sleep(GRACE);
        self.call_off.now();
        if let Some(reader) = &self.reader {
            thread::sleep(GRACE);
            // stderr may have the same reader.
            if is_writable(&io::stderr()) {
                say(&format!(
                    "interrupted: {reader} was not read to the end of the results"
                ));
            }
            process::exit(exit_code::INTERRUPTED.into());
        }
    }
}
