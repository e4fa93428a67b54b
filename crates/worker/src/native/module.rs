//! The Python module `_sandfork`: functions of text, called in this order by the bootstrap.
//!
//! | function | argument | result |
//! |---|---|---|
//! | `enter` | the interpreter's facts | in the zygote, jailed: JSON of `Prepared` |
//! | `source` | a file of the guest's side, such as `values/encode` | its text, or an empty string if there is none |
//! | `codes` | | the number of a memory file with byte code of an earlier zygote, or of an empty one to write it to; an empty string if there is none |
//! | `keep` | | closes that file, and leaves what was written to later zygotes |
//! | `set_flags` | JSON list of the values of all fields of `sys.flags` | replaces `sys.flags` |
//! | `preloading` | the module that is imported next, or an empty string after the last one | |
//! | `unready` | JSON of `Unready` | |
//! | `threads` | | the number of threads of the process |
//! | `fonts` | an empty string, or the list of fonts to keep | the list that an earlier zygote made, or an empty string |
//! | `shares` | | `memory` if workers would share memory that they could write to, or an empty string |
//! | `settle` | | makes forks of the loaded memory cheaper; returns for how many bytes |
//! | `serve` | JSON list of the preloaded modules | in a worker, jailed: what it can read, `nothing` or `input`, and on a second line, if its environment differs from the zygote's, the differences as JSON. Never returns in the zygote |
//! | `trim` | | in a worker: gives the memory back to the kernel that the C library keeps for later |

use std::cell::RefCell;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use pyo3_ffi::PyObject;
use serde::Serialize;

use crate::native::python::{self, Flag, TextFunction, create_module, end_of_methods, method};
use crate::native::serve::{ForkHooks, Served, Server};
use crate::native::sources;
use sandfork_jail::control::{
    FromZygote, Lent, Lifetime, MAX_MESSAGE, NAMESPACES, PythonSetup, ToZygote, recv_message,
    send_message,
};
use sandfork_jail::failure::Failure;
use sandfork_jail::program::ZygoteJail;
use sandfork_jail::sys;
use sandfork_jail::zygote::{self, Zygote};

/// Descriptor 0 of the process, as the supervisor starts it, is the control socket.
const CONTROL: i32 = 0;

/// What `enter` leaves for `serve`. The zygote has one thread.
struct Entered {
    control: OwnedFd,
    jail: ZygoteJail,
    zygote: Zygote,
    codes: Option<OwnedFd>,
    fonts: Option<File>,
}

thread_local! {
    static ENTERED: RefCell<Option<Entered>> = const { RefCell::new(None) };
}

/// CPython's entry point into the module.
#[allow(unsafe_code)] // the name is what CPython looks for; nothing else exports it
#[unsafe(no_mangle)]
pub extern "C" fn PyInit__sandfork() -> *mut PyObject {
    create_module(
        c"_sandfork",
        vec![
            method::<Enter>(),
            method::<Source>(),
            method::<Codes>(),
            method::<Keep>(),
            method::<SetFlags>(),
            method::<TellPreloading>(),
            method::<TellUnready>(),
            method::<Threads>(),
            method::<Fonts>(),
            method::<Shares>(),
            method::<Settle>(),
            method::<Serve>(),
            method::<Trim>(),
            end_of_methods(),
        ],
    )
}

struct Enter;

impl TextFunction for Enter {
    const NAME: &'static CStr = c"enter";

    fn call(facts: &str) -> Result<String, String> {
        let control = take_streams().map_err(words)?;
        send_message(
            control.as_fd(),
            &FromZygote::Facts {
                text: facts.to_owned(),
            },
            &[],
        )
        .map_err(words)?;
        let Some((ToZygote::Enter { jail, python, lent }, fds)) =
            recv_message(control.as_fd(), &mut vec![0; MAX_MESSAGE]).map_err(words)?
        else {
            // The supervisor wanted only the facts, or refused them.
            sys::process::exit_now(0);
        };
        let mut fds = fds.into_iter();
        let Some(lifeline) = fds.next() else {
            return Err("the jail came without its lifeline".into());
        };
        match zygote::enter(&jail, lifeline) {
            Ok(zygote) => {
                if python.lifetime == Lifetime::ManyRuns {
                    // Before any module is preloaded: a worker uses too little of the libraries that packages
                    // load.
                    sys::memory::share_page_tables(zygote.proc.as_fd()).map_err(words)?;
                }
                let setup = reply(&jail.env, &python)?;
                let mut lent: Vec<(Lent, OwnedFd)> = lent.into_iter().zip(fds).collect();
                let mut take = |wanted: Lent| {
                    let place = lent.iter().position(|(kind, _)| *kind == wanted)?;
                    Some(lent.swap_remove(place).1)
                };
                ENTERED.set(Some(Entered {
                    control,
                    jail: *jail,
                    zygote,
                    codes: take(Lent::Codes),
                    fonts: take(Lent::Fonts).map(File::from),
                }));
                Ok(setup)
            }
            Err(failure) => end_with(&control, failure),
        }
    }
}

struct Source;

impl TextFunction for Source {
    const NAME: &'static CStr = c"source";

    fn call(wanted: &str) -> Result<String, String> {
        Ok(sources::find(wanted).unwrap_or_default().to_owned())
    }
}

struct Codes;

impl TextFunction for Codes {
    const NAME: &'static CStr = c"codes";

    fn call(_: &str) -> Result<String, String> {
        ENTERED.with_borrow(|entered| {
            let codes = entered.as_ref().and_then(|entered| entered.codes.as_ref());
            Ok(codes.map_or_else(String::new, |file| file.as_raw_fd().to_string()))
        })
    }
}

struct Keep;

impl TextFunction for Keep {
    const NAME: &'static CStr = c"keep";

    fn call(_: &str) -> Result<String, String> {
        let taken = ENTERED.with_borrow_mut(|entered| entered.as_mut()?.codes.take());
        if let Some(file) = taken {
            // The supervisor keeps only what can no longer change.
            _ = sys::sealed::seal(file.as_fd());
        }
        Ok(String::new())
    }
}

struct SetFlags;

impl TextFunction for SetFlags {
    const NAME: &'static CStr = c"set_flags";

    fn call(values: &str) -> Result<String, String> {
        let values: Vec<Flag> = serde_json::from_str(values).map_err(|error| error.to_string())?;
        python::set_flags(&values)?;
        Ok(String::new())
    }
}

struct TellPreloading;

impl TextFunction for TellPreloading {
    const NAME: &'static CStr = c"preloading";

    fn call(module: &str) -> Result<String, String> {
        tell(&FromZygote::Preloading {
            module: (!module.is_empty()).then(|| module.to_owned()),
        })?;
        Ok(String::new())
    }
}

struct TellUnready;

impl TextFunction for TellUnready {
    const NAME: &'static CStr = c"unready";

    fn call(why: &str) -> Result<String, String> {
        let why = serde_json::from_str(why).map_err(|error| error.to_string())?;
        tell(&FromZygote::Unready(why))?;
        sys::process::exit_now(1)
    }
}

/// Sends a message to the supervisor.
fn tell(message: &FromZygote) -> Result<(), String> {
    in_jail(|entered| send_message(entered.control.as_fd(), message, &[]).map_err(words))
}

fn in_jail<T>(act: impl FnOnce(&Entered) -> Result<T, String>) -> Result<T, String> {
    ENTERED.with_borrow(|entered| act(entered.as_ref().ok_or("not in the jail yet")?))
}

struct Threads;

impl TextFunction for Threads {
    const NAME: &'static CStr = c"threads";

    fn call(_: &str) -> Result<String, String> {
        in_jail(|entered| {
            let count = sys::process::count_threads(entered.zygote.proc.as_fd());
            count.map(|count| count.to_string()).map_err(words)
        })
    }
}

struct Fonts;

impl TextFunction for Fonts {
    const NAME: &'static CStr = c"fonts";

    fn call(new: &str) -> Result<String, String> {
        ENTERED.with_borrow(|entered| {
            let Some(file) = entered.as_ref().and_then(|entered| entered.fonts.as_ref()) else {
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
}

struct Shares;

impl TextFunction for Shares {
    const NAME: &'static CStr = c"shares";

    fn call(_: &str) -> Result<String, String> {
        in_jail(|entered| {
            let shares = sys::memory::shares(entered.zygote.proc.as_fd()).map_err(words)?;
            Ok(if shares { "memory" } else { "" }.into())
        })
    }
}

struct Settle;

impl TextFunction for Settle {
    const NAME: &'static CStr = c"settle";

    fn call(_: &str) -> Result<String, String> {
        in_jail(|entered| {
            let bytes = sys::memory::collapse(entered.zygote.proc.as_fd());
            bytes.map(|bytes| bytes.to_string()).map_err(words)
        })
    }
}

struct Serve;

impl TextFunction for Serve {
    const NAME: &'static CStr = c"serve";

    fn call(preloaded: &str) -> Result<String, String> {
        let preloaded = serde_json::from_str(preloaded).map_err(|error| error.to_string())?;
        let entered = ENTERED.take().ok_or("not in the jail yet")?;
        let Entered {
            control,
            jail,
            mut zygote,
            codes,
            fonts,
        } = entered;
        let reports = control.try_clone().map_err(|error| error.to_string())?;
        drop((codes, fonts));
        if let Err(failure) = zygote.leave_preload() {
            end_with(&reports, failure);
        }
        let namespaces = namespaces(zygote.proc.as_fd()).map_err(words)?;
        let server = match Server::new(control, jail, zygote) {
            Ok(server) => server,
            Err(failure) => end_with(&reports, failure),
        };
        let ready = FromZygote::Ready {
            preloaded,
            namespaces,
        };
        send_message(reports.as_fd(), &ready, &[]).map_err(words)?;
        drop(reports);
        match server.serve(&Interpreter).map_err(words)? {
            Served::Finished => sys::process::exit_now(0),
            Served::Failed => sys::process::exit_now(1),
            Served::Worker { env } => {
                // After the jail is complete: a hook of a preloaded package may start a thread, and a process
                // with threads cannot enter a user namespace.
                python::after_fork_in_child();
                let input = standard_input().map_err(words)?;
                if env.is_empty() {
                    return Ok(input.to_owned());
                }
                let env = serde_json::to_string(&env).map_err(|error| error.to_string())?;
                Ok(format!("{input}\n{env}"))
            }
        }
    }
}

struct Trim;

impl TextFunction for Trim {
    const NAME: &'static CStr = c"trim";

    fn call(_: &str) -> Result<String, String> {
        sys::memory::trim();
        Ok(String::new())
    }
}

/// The namespaces of this process, as reported to the supervisor.
fn namespaces(proc: BorrowedFd) -> Result<Vec<String>, Errno> {
    let link = |name| sys::procfs::link(proc, &format!("self/{name}"));
    NAMESPACES.into_iter().map(link).collect()
}

/// `nothing` if standard input is the null device (null(4): major number 1, minor number 3), else `input`.
fn standard_input() -> Result<&'static str, Errno> {
    let stdin = nix::sys::stat::fstat(std::io::stdin())?;
    let null = nix::sys::stat::makedev(1, 3);
    Ok(if stdin.st_rdev == null {
        "nothing"
    } else {
        "input"
    })
}

struct Interpreter;

impl ForkHooks for Interpreter {
    fn before(&self) {
        python::before_fork();
    }

    fn after_in_parent(&self) {
        python::after_fork_in_parent();
    }
}

/// Moves the control socket off descriptor 0 and gives the interpreter harmless streams: output of a package
/// that is being preloaded is discarded.
fn take_streams() -> Result<OwnedFd, Errno> {
    sys::descriptors::relocate_stdio(CONTROL)
}

fn end_with(control: &OwnedFd, failure: Failure) -> ! {
    let message = FromZygote::Failed {
        step: failure.step as u16,
        errno: failure.errno as i32,
    };
    // Without a supervisor to receive the message, the process can only end.
    _ = send_message(control.as_fd(), &message, &[]);
    sys::process::exit_now(1)
}

/// What the bootstrap needs to continue in the jail.
#[derive(Serialize)]
struct Prepared<'a> {
    env: &'a [(String, String)],
    setup: &'a PythonSetup,
}

fn reply(env: &[(String, String)], setup: &PythonSetup) -> Result<String, String> {
    serde_json::to_string(&Prepared { env, setup }).map_err(|error| error.to_string())
}

fn words(errno: Errno) -> String {
    errno.to_string()
}
