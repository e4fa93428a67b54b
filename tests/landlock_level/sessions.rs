//! Tests of a session whose files are a host directory.

use std::io::{Read as _, Write as _};
use std::process::exit;
use std::sync::Arc;

use libtest_mimic::Failed;
use sandfork::session::{Contents, Parents, Program, ProgramEnd, Removal, Session};
use sandfork::{FileSystem, Policy, Sandbox};

use crate::runs::{Host, PYTHON};
use crate::situation::Who;

/// The first argument of the helper.
pub const FLAG: &str = "--with-a-session";

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

pub fn files_are_reached_from_outside(who: Who) -> std::result::Result<(), Failed> {
    let host = Host::new(who);
    let output = host.this_test(FLAG).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(host.leftovers().is_empty(), "{:?}", host.leftovers());
    Ok(())
}

/// Moves files in and out of a session, and prints an error if something fails.
pub fn main() -> ! {
    match move_files() {
        Ok(()) => exit(0),
        Err(error) => {
            eprintln!("{error}");
            exit(1)
        }
    }
}

fn move_files() -> Result<()> {
    let sets = [
        "assurance.require=landlock".to_owned(),
        format!("python.interpreter={PYTHON}"),
    ];
    let sets: std::result::Result<Vec<_>, _> = sets.iter().map(|set| set.parse()).collect();
    let policy = Policy::load("standard", &sets?, &FileSystem)?;
    let sandbox = Arc::new(Sandbox::builder().policy(policy).build()?);
    let mut session = sandbox.session()?;
    session.make_dir("in/deep", Parents::Made)?;
    session
        .open_write("in/deep/data", Contents::Replaced)?
        .write_all(b"from outside")?;
    let code = "import os
assert os.stat('in/deep/data').st_uid == os.getuid()
assert open('in/deep/data').read() == 'from outside'
open('in/deep/data', 'a').write(', changed')
os.symlink('/etc/passwd', 'link'); os.mkfifo('fifo')
os.path.abspath('in/deep/data')";
    let path = value(&mut session, code)?;
    for path in ["in/deep/data", path.as_str()] {
        let mut text = String::new();
        session.open_read(path)?.0.read_to_string(&mut text)?;
        assert_eq!(text, "from outside, changed");
    }
    for path in ["link", "fifo", "/etc/passwd"] {
        assert!(session.open_read(path).is_err(), "{path}");
    }
    assert_eq!(session.list(".")?.len(), 3);
    session.remove("in", Removal::Tree)?;
    assert_eq!(session.list(".")?.len(), 2);
    run_programs(&session)
}

/// Runs programs in the session's directory, where a worker has no process group or terminal of its own.
fn run_programs(session: &Session) -> Result<()> {
    let programs = session.programs();
    let report = programs.start(Program::shell("ls; exit 3"))?.wait();
    assert_eq!(report.end, ProgramEnd::Exited(3));
    assert_eq!(report.stdout, b"fifo\nlink\n");
    let process = programs.start(Program::new(["sleep", "600"]))?;
    process.kill(libc::SIGKILL)?;
    assert_eq!(process.wait().end, ProgramEnd::Signal(libc::SIGKILL));
    let refused = programs.start(Program::new(["sh"]).terminal(24, 80));
    let error = refused.expect_err("there is no terminal");
    assert!(error.to_string().contains("terminal"), "{error}");
    Ok(())
}

fn value(session: &mut Session, code: &str) -> Result<String> {
    let report = session.run(code)?;
    let outcome = report.outcome();
    let value = outcome.value().and_then(|value| value.as_str());
    Ok(value.ok_or_else(|| format!("{outcome:?}"))?.to_owned())
}
