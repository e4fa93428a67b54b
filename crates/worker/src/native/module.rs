//! The Python module `_sandfork`. The bootstrap calls its functions in this order.
//!
//! | function | argument | effect and result |
//! |---|---|---|
//! | `enter` | the interpreter's facts | enters the zygote's jail; returns JSON of `Prepared` |
//! | `source` | the name of a guest file, such as `values/encode` | returns its text, or an empty string if there is none |
//! | `codes` | | returns the descriptor number of a memfd with byte code of an earlier zygote, or of an empty one to fill; an empty string if there is none |
//! | `keep` | | seals that memfd, which leaves the byte code to later zygotes |
//! | `set_flags` | JSON list of the values of all fields of `sys.flags` | replaces `sys.flags` |
//! | `preloading` | the module that is imported next, or an empty string after the last one | reports it to the supervisor |
//! | `unready` | JSON of `Unready` | reports it to the supervisor and exits |
//! | `threads` | | returns the number of threads of the process |
//! | `fonts` | an empty string, or the font list to keep | returns the font list of an earlier zygote, or an empty string |
//! | `shares` | | returns `memory` if workers would share memory that they could write to, or an empty string |
//! | `settle` | | makes forks of the loaded memory cheaper; returns for how many bytes |
//! | `limit_objects` | | in a worker that was checked: starts to limit the interpreter's allocations |
//! | `begin_report`, `end_report` | | grants the memory that is needed to describe a guest's exception, and returns whether the guest was refused memory; withdraws it |
//! | `include_arrays` | the module with numpy's function table | counts the data of numpy's arrays as objects |
//! | `rehearse` | the tuple that `run` takes | does once what each worker would otherwise do first |
//! | `serve` | JSON list of the preloaded modules, and the tuple that `run` takes or `None` | never returns in the zygote. Returns in a jailed worker: its standard input, `nothing` or `input`; the differences between its environment and the zygote's, as JSON; whether `run` was already called, and its result |
//! | `run` | the tuple `offer` of `worker.py` | in a worker: greets the supervisor and serves its run. Returns only the part that is left to Python |
//! | `compile` | a tuple: source, file name, the wanted value, the warning filters and a filter that turns every warning into an error | in a session: returns the code of everything but a trailing expression, and the code of that expression; `None` if they need a parser |
//! | `programs` | the path of the interpreter | in a session, before guest code: prepares the process that starts programs |
//! | `trim` | | in a worker: releases freed memory that the C library still holds |
//! | `stand` | the id of a request | in a session: suspends the worker while the supervisor copies its memory. Returns an empty string, or in a worker that was restored from the copy the id of its request |
//! | `restore` | the id of a request and, on the next line, the supervisor's order | in a worker: replaces its memory by another worker's. Returns only with an error |
#![allow(clippy::unnecessary_wraps)] // functions in the module's table share one signature

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use pyo3_ffi::PyObject;

use crate::native::enter::{self, Entered, end_with, errno_text, in_jail};
use crate::native::python::{
    self, Flag, Object, Raised, clear_exception, create_module, functions, raise,
};
use crate::native::run::{self, Offer};
use crate::native::serve::{Served, Server};
use crate::native::{allowance, eager_copy, programs, snapshot, sources};
use sandfork_jail::control::{FromZygote, Lifetime, NAMESPACES, send_message};
use sandfork_jail::sys;

/// CPython's entry point into the module.
#[allow(unsafe_code)] // CPython looks up this name; nothing else exports it
#[unsafe(no_mangle)]
pub extern "C" fn PyInit__sandfork() -> *mut PyObject {
    create_module(
        c"_sandfork",
        functions! {
            text c"enter" => enter::enter,
            text c"source" => source,
            text c"codes" => codes,
            text c"keep" => keep,
            text c"set_flags" => set_flags,
            text c"preloading" => report_preloading,
            text c"unready" => report_unready,
            text c"threads" => threads,
            text c"fonts" => fonts,
            text c"shares" => shares,
            object c"limit_objects" => allowance::limit_objects,
            object c"begin_report" => allowance::begin_report,
            object c"end_report" => allowance::end_report,
            object c"include_arrays" => allowance::include_arrays,
            object c"rehearse" => run::rehearse,
            text c"settle" => settle,
            object c"serve" => serve_workers,
            object c"run" => run::run,
            object c"compile" => run::compile,
            text c"trim" => trim,
            text c"programs" => programs::prepare_programs,
            text c"stand" => snapshot::suspend_for_copy,
            text c"restore" => snapshot::restore,
        },
    )
}

fn source(wanted: &str) -> Result<String, String> {
    Ok(sources::find(wanted).unwrap_or_default().to_owned())
}

fn codes(_: &str) -> Result<String, String> {
    in_jail(|entered| {
        let number = entered.codes.as_ref().map(AsRawFd::as_raw_fd);
        Ok(number.map_or_else(String::new, |number| number.to_string()))
    })
}

fn keep(_: &str) -> Result<String, String> {
    in_jail(|entered| {
        if let Some(file) = &entered.codes {
            // If this fails, the supervisor does not keep the byte code.
            _ = sys::sealed::seal(file.as_fd());
        }
        Ok(String::new())
    })
}

fn set_flags(values: &str) -> Result<String, String> {
    let values: Vec<Flag> = serde_json::from_str(values).map_err(|error| error.to_string())?;
    python::set_flags(&values)?;
    Ok(String::new())
}

fn report_preloading(module: &str) -> Result<String, String> {
    report(&FromZygote::Preloading {
        module: (!module.is_empty()).then(|| module.to_owned()),
    })?;
    Ok(String::new())
}

fn report_unready(why: &str) -> Result<String, String> {
    let why = serde_json::from_str(why).map_err(|error| error.to_string())?;
    report(&FromZygote::Unready(why))?;
    sys::process::exit_now(1)
}

/// Sends a message to the supervisor.
fn report(message: &FromZygote) -> Result<(), String> {
    in_jail(|entered| send_message(entered.control.as_fd(), message, &[]).map_err(errno_text))
}

fn threads(_: &str) -> Result<String, String> {
    in_jail(|entered| {
        let count = sys::process::count_threads(entered.zygote.proc.as_fd());
        count.map(|count| count.to_string()).map_err(errno_text)
    })
}

fn fonts(new: &str) -> Result<String, String> {
    in_jail(|entered| {
        let Some(file) = &entered.fonts else {
            return Ok(String::new());
        };
        let text = |error: std::io::Error| error.to_string();
        if new.is_empty() {
            let length = file.metadata().map_err(text)?.len();
            let mut kept = vec![0; usize::try_from(length).unwrap_or(0)];
            file.read_exact_at(&mut kept, 0).map_err(text)?;
            return Ok(String::from_utf8(kept).unwrap_or_default());
        }
        file.set_len(0).map_err(text)?;
        file.write_all_at(new.as_bytes(), 0).map_err(text)?;
        Ok(String::new())
    })
}

fn shares(_: &str) -> Result<String, String> {
    in_jail(|entered| {
        let shares = sys::memory::shares(entered.zygote.proc.as_fd()).map_err(errno_text)?;
        Ok(if shares { "memory" } else { "" }.into())
    })
}

fn settle(_: &str) -> Result<String, String> {
    in_jail(|entered| {
        // Each fork would copy the page-table entries of free memory, and each exit remove them.
        sys::memory::trim();
        let bytes = sys::memory::collapse(entered.zygote.proc.as_fd());
        bytes.map(|bytes| bytes.to_string()).map_err(errno_text)
    })
}

fn serve_workers(argument: &Object) -> Result<Object, Raised> {
    let [preloaded, offer] = argument.items()?;
    let preloaded = preloaded.to_text()?;
    let born = serve(&preloaded, &offer).map_err(|message| raise(&message))?;
    // With standard input or another environment, Python prepares the worker first.
    let is_ready = !offer.is_none() && born.input == "nothing" && born.env.is_empty();
    let left = if is_ready {
        Offer::of(&offer)?.serve()?
    } else {
        Object::none()
    };
    Object::list(vec![
        Object::text(born.input)?,
        Object::text(&born.env)?,
        Object::truth(is_ready)?,
        left,
    ])
}

/// A worker that was born and is in its jail.
struct Born {
    /// `nothing` or `input`: the kind of its standard input.
    input: &'static str,
    /// The environment variables that differ from the zygote's, as JSON; empty if there are none.
    env: String,
}

/// Does what each worker does first.
fn rehearse(offer: &Object) {
    // Without an offer, Python serves the runs, and workers copy its pages one by one.
    if !offer.is_none()
        && Offer::of(offer)
            .and_then(|offer| offer.rehearse_worker())
            .is_err()
    {
        clear_exception();
    }
}

/// Serves requests for workers. Returns in a worker.
fn serve(preloaded: &str, offer: &Object) -> Result<Born, String> {
    let preloaded = serde_json::from_str(preloaded).map_err(|error| error.to_string())?;
    let Entered {
        control,
        jail,
        mut zygote,
        lifetime,
        codes,
        fonts,
    } = enter::take_entered()?;
    let reports = control.try_clone().map_err(|error| error.to_string())?;
    drop((codes, fonts));
    if let Err(failure) = zygote.leave_preload() {
        end_with(&reports, failure);
    }
    let namespaces = namespaces(zygote.proc.as_fd()).map_err(errno_text)?;
    let copied = match lifetime {
        Lifetime::ManyRuns => Some(eager_copy::arrange(&mut zygote, || rehearse(offer))),
        Lifetime::OneRun => None,
    };
    let server = match Server::new(control, jail, zygote) {
        Ok(server) => server,
        Err(failure) => end_with(&reports, failure),
    };
    let ready = FromZygote::Ready {
        preloaded,
        namespaces,
        copied: copied.map(|pages| pages.map_err(|errno| errno as i32)),
    };
    send_message(reports.as_fd(), &ready, &[]).map_err(errno_text)?;
    drop(reports);
    match server.serve().map_err(errno_text)? {
        Served::Finished => sys::process::exit_now(0),
        Served::Failed => sys::process::exit_now(1),
        Served::Worker(env) => {
            // After the jail is complete: a fork hook of a preloaded package may start a thread, and a multithreaded
            // process cannot enter a user namespace.
            python::after_fork_in_child();
            let input = standard_input().map_err(errno_text)?;
            let env = if env.is_empty() {
                String::new()
            } else {
                serde_json::to_string(&env).map_err(|error| error.to_string())?
            };
            Ok(Born { input, env })
        }
    }
}

fn trim(_: &str) -> Result<String, String> {
    sys::memory::trim();
    Ok(String::new())
}

/// Returns the namespaces of this process, as reported to the supervisor.
fn namespaces(proc: BorrowedFd) -> Result<Vec<String>, Errno> {
    let link = |name| sys::procfs::link(proc, &format!("self/{name}"));
    NAMESPACES.into_iter().map(link).collect()
}

/// Returns `nothing` if standard input is the null device (null(4): major number 1, minor number 3), else `input`.
fn standard_input() -> Result<&'static str, Errno> {
    let stdin = nix::sys::stat::fstat(std::io::stdin())?;
    let null = nix::sys::stat::makedev(1, 3);
    Ok(if stdin.st_rdev == null {
        "nothing"
    } else {
        "input"
    })
}
