//! Live sessions, from Rust and from Python.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandfork::policy::{BuiltInsOnly, Override, Policy};
use sandfork::{Sandbox, Session};

use crate::contestant::{Contestant, Error, UNTIL_READY};
use crate::subject::{Client, Subject};

/// How often in one turn.
const REPEATS: usize = 4;

/// Sessions of a warm zygote.
pub struct RustSessions {
    sandbox: Arc<Sandbox>,
    live: Session,
}

impl RustSessions {
    pub fn new(python: &Path) -> Result<Self, Error> {
        let interpreter: Override = format!("python.interpreter={}", python.display()).parse()?;
        let policy = Policy::load("standard", &[interpreter], &BuiltInsOnly)?;
        let sandbox = Arc::new(Sandbox::builder().policy(policy).build()?);
        let mut live = sandbox.session()?;
        if live.run("6 * 7")?.outcome().value() != Some(&42.into()) {
            return Err("the session did not compute".into());
        }
        Ok(Self { sandbox, live })
    }
}

impl Contestant for RustSessions {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<(), Error> {
        for _ in 0..REPEATS {
            let start = Instant::now();
            self.live.run("x = 1")?;
            record(Subject::Call(Client::Rust), start.elapsed());
        }
        for _ in 0..REPEATS {
            std::thread::sleep(UNTIL_READY);
            let start = Instant::now();
            let made = self.sandbox.session()?;
            record(Subject::Create(Client::Rust), start.elapsed());
            drop(made);
        }
        Ok(())
    }
}

/// The Python client in an interpreter of its own, which is its own clock.
pub struct PythonClient {
    child: Child,
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl PythonClient {
    pub fn new(python: &Path) -> Result<Self, Error> {
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/src");
        let mut child = Command::new(python)
            .args(["-c", include_str!("client_probe.py")])
            .arg(python)
            .arg(UNTIL_READY.as_secs_f64().to_string())
            .env("PYTHONPATH", package)
            .env("SANDFORK_BINARY", env!("CARGO_BIN_EXE_sandfork"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let ask = child.stdin.take();
        let answers = child.stdout.take().ok_or("the client has no output")?;
        Ok(Self {
            child,
            ask,
            answers: BufReader::new(answers),
        })
    }

    fn times(&mut self) -> Result<Vec<Duration>, Error> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let times: Result<Vec<u64>, _> = line.split_ascii_whitespace().map(str::parse).collect();
        let times: Vec<_> = times?.into_iter().map(Duration::from_nanos).collect();
        if times.len() == REPEATS {
            Ok(times)
        } else {
            Err("the Python client ended".into())
        }
    }
}

impl Contestant for PythonClient {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<(), Error> {
        let ask = self.ask.as_mut().ok_or("the client has no input")?;
        writeln!(ask, "{REPEATS}")?;
        for subject in [
            Subject::Call(Client::Python),
            Subject::Create(Client::Python),
        ] {
            for time in self.times()? {
                record(subject, time);
            }
        }
        Ok(())
    }
}

impl Drop for PythonClient {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.ask.take());
        _ = self.child.wait();
    }
}
