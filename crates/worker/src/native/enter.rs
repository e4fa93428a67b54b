//! `enter`: turns an interpreter outside any jail into a jailed zygote, and keeps the state that later functions need.

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

/// The control socket, as descriptor 0 of the process that the supervisor starts.
const CONTROL: i32 = 0;

/// The state that `enter` leaves for `serve`. Thread-local, because the zygote has one thread.
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

/// Calls a function with the state that `enter` left.
pub fn in_jail<T>(act: impl FnOnce(&Entered) -> Result<T, String>) -> Result<T, String> {
    ENTERED.with_borrow(|entered| act(entered.as_ref().ok_or("not in the jail yet")?))
}

/// Takes the state that `enter` left.
pub fn take_entered() -> Result<Entered, String> {
    ENTERED.take().ok_or_else(|| "not in the jail yet".into())
}

/// Enters the jail. `facts` are the interpreter's facts.
pub fn enter(facts: &str) -> Result<String, String> {
    let control = take_streams().map_err(errno_text)?;
    send_message(
        control.as_fd(),
        &FromZygote::Facts {
            text: facts.to_owned(),
        },
        &[],
    )
    .map_err(errno_text)?;
    let Some((ToZygote::Enter { length, lent }, fds)) =
        recv_message(control.as_fd(), &mut vec![0; MAX_MESSAGE]).map_err(errno_text)?
    else {
        // The supervisor wanted only the facts, or rejected them.
        sys::process::exit_now(0);
    };
    let mut fds = fds.into_iter();
    let (Some(plan), Some(lifeline), Some(supervisor)) = (fds.next(), fds.next(), fds.next())
    else {
        return Err("the plan, the lifeline or the supervisor's pidfd is missing".into());
    };
    let ZygotePlan { jail, python } = read_plan(&plan, length)?;
    drop(plan);
    match zygote::enter(&jail, &python, [lifeline, supervisor]) {
        Ok(zygote) => {
            if python.lifetime == Lifetime::ManyRuns {
                // Before any module is preloaded: a worker uses too little of the libraries that packages load to
                // benefit.
                sys::memory::share_page_tables(zygote.proc.as_fd()).map_err(errno_text)?;
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
    let bytes = SealedBytes::map(file, length).map_err(errno_text)?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

/// Moves the control socket away from descriptor 0 and opens /dev/null as the interpreter's streams, so that output of
/// preloaded packages is discarded.
fn take_streams() -> Result<OwnedFd, Errno> {
    sys::descriptors::relocate_stdio(CONTROL)
}

/// Reports the failed step of the jail and exits.
pub fn end_with(control: &OwnedFd, failure: Failure) -> ! {
    let message = FromZygote::Failed {
        step: failure.step as u16,
        errno: failure.errno as i32,
    };
    // Without a supervisor to receive the message, exiting is all that is left.
    _ = send_message(control.as_fd(), &message, &[]);
    sys::process::exit_now(1)
}

/// The data that the bootstrap needs to continue in the jail.
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

/// Returns the message of an errno.
pub fn errno_text(errno: Errno) -> String {
    errno.to_string()
}
