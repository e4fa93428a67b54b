//! Serves a run natively, from its request to its result, without any Python code of Sandfork. Sessions use it to
//! compile their cells.
//!
//! The guest's `runner.py` defines the semantics of a run. This module implements them for the programs and values that
//! it recognises, and leaves everything else to Python before it has had an effect: the whole input, a run that was
//! received, or a run whose program has ended. A guest could tamper with this code only by code in the same process,
//! which could tamper with the result itself.

mod last_statement;
mod link;
mod program;
mod request;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{Pid, getpid};
use serde::Serialize;

pub use self::link::Link;
use self::program::{Parts, Program};
use self::request::{Last, Received, recognise};
use crate::native::allowance;
use crate::native::python::{Object, Plain, Raised, clear_exception};
use sandfork_jail::sys;

/// The objects that Python provides, in the order of `offer` in the guest's `worker.py`.
pub struct Offer {
    /// Reseeds the worker's random number generators; `None` if that is not needed.
    reseed: Object,
    /// The frame of the first message.
    ready: Object,
    /// The source of a rehearsal.
    rehearsed: Object,
    /// The module `builtins`.
    builtins: Object,
    /// An empty dictionary for the annotations of `__main__`; `None` if this Python version creates it itself.
    annotations: Object,
    /// The list of warning filters, followed by a filter that turns every warning into an error.
    filters: Object,
    as_error: Object,
    /// The cache of `linecache`, for tracebacks; `None` if no module needs it yet.
    lines: Object,
    /// Counts the registered exit functions.
    count_exit_functions: Object,
    /// Counts the guest's claims of refusals, which Python reports.
    count_claims: Object,
    /// Clears the variables of `__main__` and the program's own modules.
    end_program: Object,
    /// Frees the memory that is reserved for a report.
    release_reserve: Object,
}

impl Offer {
    /// Unpacks the tuple. The fields are in the tuple's order.
    pub fn of(tuple: &Object) -> Result<Self, Raised> {
        let mut items = tuple.items::<12>()?.into_iter();
        let mut next = || items.next().ok_or(Raised);
        Ok(Self {
            reseed: next()?,
            ready: next()?,
            rehearsed: next()?,
            builtins: next()?,
            annotations: next()?,
            filters: next()?,
            as_error: next()?,
            lines: next()?,
            count_exit_functions: next()?,
            count_claims: next()?,
            end_program: next()?,
            release_reserve: next()?,
        })
    }

    /// Greets the supervisor and serves its run. Exits the process with the run, or returns what is left to Python:
    /// `None` for the whole input, or a list for `take_over` in the guest's `worker.py`.
    pub fn serve(&self) -> Result<Object, Raised> {
        if !self.reseed.is_none() {
            self.reseed.call()?;
        }
        // An interrupt that arrives with the request waits until the program runs.
        mask_interrupts(SigmaskHow::SIG_BLOCK);
        let link = Link::inherited();
        link.send(self.ready.as_bytes()?);
        let mut start = [0; 4096];
        loop {
            match recognise(link.peek(&mut start)) {
                Received::Other => return Ok(Object::none()),
                Received::Rehearse(length) => {
                    link.take(length);
                    self.rehearse()?;
                }
                Received::Run(run) => {
                    allowance::begin();
                    let frames = link.take(run.source.end);
                    return self.run(&link, &run, &frames[run.source.clone()]);
                }
            }
        }
    }

    /// Does what most workers do first, in a process whose output is discarded.
    pub fn rehearse_worker(&self) -> Result<(), Raised> {
        // A policy may forbid the import.
        const PROGRAM: &[u8] = b"\
try:
    import math
except ImportError:
    pass

def f(x):
    return [x + 1]

print(f(1))
str(f(1))";
        if !self.reseed.is_none() {
            self.reseed.call()?;
        }
        self.rehearse_program(PROGRAM)
    }

    fn rehearse(&self) -> Result<(), Raised> {
        self.rehearse_program(self.rehearsed.as_bytes()?)
    }

    /// Runs a program, discards its result and drops its variables.
    fn rehearse_program(&self, source: &[u8]) -> Result<(), Raised> {
        const NAME: &str = "<warm>";
        if let Some(mut program) = Program::prepare(self, NAME, &[NAME], source, Last::Expression) {
            let streams = Streams::current();
            let executed = program.execute();
            let concluded =
                executed.and_then(|value| self.conclude(&mut program, &value, &streams, getpid()));
            if concluded.is_err() {
                clear_exception();
            }
            program.forget(self)?;
        }
        Ok(())
    }

    fn run(&self, link: &Link, run: &request::Run, source: &[u8]) -> Result<Object, Raised> {
        let (cell, worker) = (&run.cell, getpid());
        let arguments = cell.argv.iter().map(String::as_str);
        let argv: Vec<&str> = std::iter::once(cell.name()).chain(arguments).collect();
        let leave = |rest: [Object; 3]| {
            let process = usize::try_from(worker.as_raw()).unwrap_or(0);
            let sent = [
                Object::count(process)?,
                Object::bytes(run.header)?,
                Object::bytes(source)?,
            ];
            Object::list(sent.into_iter().chain(rest).collect())
        };
        let Some(mut program) = Program::prepare(self, cell.filename, &argv, source, cell.last)
        else {
            return leave([Object::none(), Object::none(), Object::none()]);
        };
        let streams = Streams::current();
        mask_interrupts(SigmaskHow::SIG_UNBLOCK);
        let ended = program.execute().and_then(|value| {
            let plain = self.conclude(&mut program, &value, &streams, worker)?;
            Ok((value, plain))
        });
        match ended {
            Ok((_, Some(plain))) => {
                link.send(&result_frame(cell.id, &plain));
                // The kernel often wakes the supervisor on this processor. Without the yield, the exit of the
                // interpreter would delay it for half a millisecond.
                std::thread::yield_now();
                sys::process::exit_now(0)
            }
            Ok((value, None)) => {
                self.release_reserve();
                leave([program.into_main(), value, Object::none()])
            }
            Err(Raised) => {
                let error = Object::exception();
                // First, so that a report of a lack of memory has memory.
                self.release_reserve();
                leave([program.into_main(), Object::none(), error])
            }
        }
    }

    /// Runs the steps after a program, if its value is plain and no step needs Python. Returns `None` if one does.
    /// Python may then repeat steps that already took effect.
    fn conclude(
        &self,
        program: &mut Program,
        value: &Object,
        streams: &Streams,
        worker: Pid,
    ) -> Result<Option<Plain>, Raised> {
        // A child that the guest forked returns here too.
        let Some(plain) = value.plain().filter(|_| getpid() == worker) else {
            return Ok(None);
        };
        let has_threads = match Object::system(c"modules").filter(Object::is_dict) {
            Some(modules) => modules.item(c"threading").is_some(),
            None => true,
        };
        if has_threads
            || self.count_exit_functions.call()?.int() != Some(0)
            || self.count_claims.call()?.int() != Some(0)
            || !streams.are_current()
        {
            return Ok(None);
        }
        // First flush what is already written: a variable's `__del__` may never return.
        if !streams.flush() {
            return Ok(None);
        }
        if program.has_variables() || program.has_imported() {
            program.release()?;
            self.end_program.call()?;
            if !streams.flush() {
                return Ok(None);
            }
        }
        // A finalizer may fork as well.
        Ok((getpid() == worker).then_some(plain))
    }

    /// Frees the reserve, which Sandfork's own Python code needs as well.
    fn release_reserve(&self) {
        if self.release_reserve.call().is_err() {
            clear_exception();
        }
    }
}

/// `run`: serves the run with [`Offer::serve`], after Python has prepared the worker.
pub fn run(offer: &Object) -> Result<Object, Raised> {
    Offer::of(offer)?.serve()
}

/// `rehearse`: does once, in a zygote, what each worker would otherwise do first.
pub fn rehearse(offer: &Object) -> Result<Object, Raised> {
    Offer::of(offer)?.rehearse()?;
    Ok(Object::none())
}

/// `compile`: returns the codes of a session's cell, like `compile_both` of the guest's `cell.py`, or `None` if that
/// needs a parser.
pub fn compile(argument: &Object) -> Result<Object, Raised> {
    let [source, filename, last, filters, as_error] = argument.items()?;
    let last = last.to_text()?;
    let wanted = match last.as_str() {
        "nothing" => Last::Nothing,
        _ => Last::Expression,
    };
    let parts = std::str::from_utf8(source.as_bytes()?)
        .ok()
        .and_then(|text| Parts::of(text, wanted))
        // The value of a last statement other than an expression requires changes to its syntax tree.
        .filter(|parts| last != "statement" || parts.has_last());
    let codes = match parts {
        Some(parts) => parts.compile(&filename.to_text()?, &filters, &as_error)?,
        None => None,
    };
    codes.map_or_else(
        || Ok(Object::none()),
        |codes| Object::tuple(codes.map(|code| code.unwrap_or_else(Object::none)).into()),
    )
}

/// The output streams at the start of a program.
struct Streams([Option<Object>; 2]);

impl Streams {
    fn current() -> Self {
        Self([c"stdout", c"stderr"].map(Object::system))
    }

    fn are_current(&self) -> bool {
        Self::current().0 == self.0
    }

    /// Flushes the streams. Returns whether that succeeded. If not, Python retries and reports the data that it cannot
    /// write.
    fn flush(&self) -> bool {
        let flushed = self.0.iter().flatten().try_for_each(|stream| {
            if !stream.attribute(c"closed")?.is_true()? {
                stream.attribute(c"flush")?.call()?;
            }
            Ok::<(), Raised>(())
        });
        if flushed.is_err() {
            clear_exception();
        }
        flushed.is_ok()
    }
}

fn mask_interrupts(how: SigmaskHow) {
    let mut interrupt = SigSet::empty();
    interrupt.add(Signal::SIGINT);
    // Cannot fail with these arguments.
    _ = sigprocmask(how, Some(&interrupt), None);
}

/// Encodes the frame of a result.
fn result_frame(id: u64, value: &Plain) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answer<'a> {
        kind: &'static str,
        id: u64,
        status: &'static str,
        value: &'a Plain,
    }
    let answer = Answer {
        kind: "result",
        id,
        status: "ok",
        value,
    };
    let mut frame = vec![0; 8];
    // Writing to memory cannot fail, and neither can encoding a plain value.
    _ = serde_json::to_writer(&mut frame, &answer);
    let length = u32::try_from(frame.len() - 8).unwrap_or(u32::MAX);
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame
}
