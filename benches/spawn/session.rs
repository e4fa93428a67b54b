//! Live sessions, from Rust and from Python.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sandfork::Sandbox;
use sandfork::session::Session;

use crate::common::{Conversation, policy};
use crate::contestant::{Contestant, UNTIL_READY, read_times};
use crate::subject::{Client, Subject};

/// The repetitions in one turn.
#[derive(Clone, Copy, Debug)]
pub struct Repeats {
    pub cells: usize,
    pub sessions: usize,
}

/// Sessions of a warm zygote.
pub struct RustSessions {
    sandbox: Arc<Sandbox>,
    live: Session,
    repeats: Repeats,
}

impl RustSessions {
    pub fn new(python: &Path, repeats: Repeats) -> Result<Self> {
        let policy = policy(python, &[])?;
        let sandbox = Arc::new(Sandbox::builder().policy(policy).build()?);
        let mut live = sandbox.session()?;
        let report = live.run("6 * 7")?;
        ensure!(
            report.outcome().value() == Some(&42.into()),
            "the session did not compute"
        );
        Ok(Self {
            sandbox,
            live,
            repeats,
        })
    }
}

impl Contestant for RustSessions {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<()> {
        for _ in 0..self.repeats.cells {
            let start = Instant::now();
            self.live.run("x = 1")?;
            record(Subject::Call(Client::Rust), start.elapsed());
        }
        for _ in 0..self.repeats.sessions {
            std::thread::sleep(UNTIL_READY);
            let start = Instant::now();
            let made = self.sandbox.session()?;
            record(Subject::Create(Client::Rust), start.elapsed());
            drop(made);
        }
        Ok(())
    }
}

/// The Python client in its own interpreter, which measures its own times.
pub struct PythonClient {
    probe: Conversation,
    repeats: Repeats,
}

impl PythonClient {
    pub fn new(python: &Path, repeats: Repeats) -> Result<Self> {
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/src");
        let mut command = Command::new(python);
        command
            .args(["-c", include_str!("client_probe.py")])
            .arg(python)
            .arg(UNTIL_READY.as_secs_f64().to_string())
            .env("PYTHONPATH", package)
            .env("SANDFORK_BINARY", env!("CARGO_BIN_EXE_sandfork"));
        let mut client = Self {
            probe: Conversation::start(command)?,
            repeats,
        };
        // The client may be unable to start.
        client.turn(&mut |_, _| ())?;
        Ok(client)
    }
}

impl Contestant for PythonClient {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<()> {
        let Repeats { cells, sessions } = self.repeats;
        self.probe.send(&format!("{cells} {sessions}"))?;
        for (subject, count) in [
            (Subject::Call(Client::Python), cells),
            (Subject::Create(Client::Python), sessions),
        ] {
            for time in read_times(&mut self.probe, count)? {
                record(subject, time);
            }
        }
        Ok(())
    }
}
