//! `enter`: from an interpreter outside any jail to a zygote in one, and what the later functions need of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use serde::Serialize;

use sandfork_jail::control::{
    FromZygote, Lent, Lifetime, MAX_MESSAGE, PythonSetup, ToZygote, ZygotePlan, recv_message,
    send_message,
};
use sandfork_jail::failure::Failure;
use sandfork_jail::program::{ProcessMemory, ZygoteJail};
use sandfork_jail::sys;
use sandfork_jail::sys::sealed::SealedBytes;
use sandfork_jail::zygote::{self, Zygote};

/// Descriptor 0 of the process, as the supervisor starts it, is the control socket.
const CONTROL: i32 = 0;

/// What `enter` leaves for `serve`. The zygote has one thread.
pub struct Entered {
    pub control: OwnedFd,
    pub jail: ZygoteJail,
    pub zygote: Zygote,
    pub lifetime: Lifetime,
    pub codes: Option<OwnedFd>,
    pub fonts: Option<File>,
}

thread_local! {
    static ENTERED: RefCell<Option<Entered>> = const { RefCell::new(None) };
}

/// Calls a function with what `enter` has left.
pub fn in_jail<T>(act: impl FnOnce(&Entered) -> Result<T, String>) -> Result<T, String> {
    ENTERED.with_borrow(|entered| act(entered.as_ref().ok_or("not in the jail yet")?))
}

/// Takes all of it.
pub fn leave() -> Result<Entered, String> {
    ENTERED.take().ok_or_else(|| "not in the jail yet".into())
}

/// Enters the jail. Its argument is the interpreter's facts.
pub fn enter(facts: &str) -> Result<String, String> {
    let control = take_streams().map_err(words)?;
    send_message(
        control.as_fd(),
        &FromZygote::Facts {
            text: facts.to_owned(),
        },
        &[],
    )
    .map_err(words)?;
    let Some((ToZygote::Enter { length, lent }, fds)) =
        recv_message(control.as_fd(), &mut vec![0; MAX_MESSAGE]).map_err(words)?
    else {
        // The supervisor wanted only the facts, or refused them.
        sys::process::exit_now(0);
    };
    let mut fds = fds.into_iter();
    let (Some(plan), Some(lifeline), Some(supervisor)) = (fds.next(), fds.next(), fds.next())
    else {
        return Err("a plan, or what ends with the supervisor, is missing".into());
    };
    let ZygotePlan { jail, python } = read_plan(&plan, length)?;
    drop(plan);
    match zygote::enter(&jail, &python, [lifeline, supervisor]) {
        Ok(zygote) => {
            if python.lifetime == Lifetime::ManyRuns {
                // Before any module is preloaded: a worker uses too little of the libraries that packages
                // load.
                sys::memory::share_page_tables(zygote.proc.as_fd()).map_err(words)?;
            }
            let setup = reply(&jail, &python)?;
            let mut lent: BTreeMap<Lent, OwnedFd> = lent.into_iter().zip(fds).collect();
            ENTERED.set(Some(Entered {
                control,
                jail,
                zygote,
                lifetime: python.lifetime,
                codes: lent.remove(&Lent::Codes),
                fonts: lent.remove(&Lent::Fonts).map(File::from),
            }));
            Ok(setup)
        }
        Err(failure) => end_with(&control, failure),
    }
}

fn read_plan(file: &OwnedFd, length: usize) -> Result<ZygotePlan, String> {
    let bytes = SealedBytes::map(file, length).map_err(words)?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

/// Moves the control socket off descriptor 0 and gives the interpreter harmless streams: output of a package
/// that is being preloaded is discarded.
fn take_streams() -> Result<OwnedFd, Errno> {
    sys::descriptors::relocate_stdio(CONTROL)
}

/// Reports why a step of the jail has failed, and ends the process.
pub fn end_with(control: &OwnedFd, failure: Failure) -> ! {
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
    /// The work directory, if it is the same for all workers.
    work: Option<&'a Path>,
    /// Whether workers limit what the interpreter allocates.
    limits_objects: bool,
}

fn reply(jail: &ZygoteJail, setup: &PythonSetup) -> Result<String, String> {
    let prepared = Prepared {
        env: &jail.env,
        setup,
        work: jail.namespaces.map(|_| jail.worker.cwd.as_path()),
        limits_objects: matches!(jail.worker.memory, ProcessMemory::Touched(_)),
    };
    serde_json::to_string(&prepared).map_err(|error| error.to_string())
}

/// The kernel's words for an error.
pub fn words(errno: Errno) -> String {
    errno.to_string()
}
