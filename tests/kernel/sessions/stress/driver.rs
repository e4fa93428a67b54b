//! Drives one session and tracks the state that its caller expects.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sandfork::session::{
    Cell, CellReport, NamedError, OutgoingValue, Session, SessionState, ToolArguments,
};
use sandfork::{ErrorKind, Outcome, Sandbox, Status, Value};

use super::kinds::{After, Kind};
use crate::check::shown;

/// A session that counts its cells, and a caller that keeps the same count.
pub struct Driver {
    session: Session,
    name: usize,
    count: i64,
    /// The number of requests so far, as the protocol numbers them.
    requests: u64,
    /// Whether the real result of a cell may still follow its forged result.
    forged: bool,
    /// The previous cell's kind, which a failure message names: its effect may come late.
    before: Option<Kind>,
}

impl Driver {
    pub fn open(sandbox: &Arc<Sandbox>, name: usize) -> Self {
        let session = sandbox.session();
        let session = session.unwrap_or_else(|error| panic!("no session: {error}"));
        let mut driver = Self {
            session,
            name,
            count: 0,
            requests: 0,
            forged: false,
            before: None,
        };
        let report = driver.session.tool("echo", echo);
        assert_eq!(report.unwrap().outcome().status(), Status::Ok);
        driver.requests += 1;
        driver.start_counting();
        driver
    }

    /// Runs one cell and checks that the reply belongs to it. Returns its status.
    pub fn run_cell(&mut self, kind: Kind, number: usize) -> Status {
        let who = format!("session {} cell {number}", self.name);
        if kind == Kind::SetVariable {
            self.set(&who);
        }
        let report = if let Some(report) = self.try_run_cell(kind, &who) {
            report
        } else {
            // The real result after a forged one came between two requests and ended the session.
            self.restart();
            self.try_run_cell(kind, &who).expect("the new session runs")
        };
        let outcome = report.outcome();
        if self.forged && outcome.status() == Status::ProtocolViolation {
            // The real result came while this request was in progress.
            self.forged = false;
            assert_eq!(report.session(), SessionState::Ended, "{}", shown(outcome));
            self.restart();
            return Status::ProtocolViolation;
        }
        self.forged = kind == Kind::EarlyResult;
        self.before = Some(kind);
        self.count += 1;
        self.check(kind, &who, &report);
        if report.session() == SessionState::Ended {
            self.assert_lost();
            self.restart();
        } else if kind.may_not_begin() {
            self.read_count();
        }
        outcome.status()
    }

    /// Reads the count after a cell that may have been interrupted before it counted.
    fn read_count(&mut self) {
        self.requests += 1;
        let report = self.session.run("count");
        let report = report.unwrap_or_else(|error| panic!("no cell: {error}"));
        let count = report.outcome().value().and_then(Value::as_i64);
        let possible = [self.count - 1, self.count];
        let count = count.filter(|count| possible.contains(count));
        self.count = count.unwrap_or_else(|| panic!("{}", shown(report.outcome())));
    }

    fn try_run_cell(&mut self, kind: Kind, who: &str) -> Option<CellReport> {
        self.requests += 1;
        let end = kind.code(self.requests, who);
        let source = format!("count += 1\nprint({who:?}, flush=True)\n{end}\n({who:?}, count)\n");
        let cell = Cell::new(source).wall(kind.wall());
        let result = match kind {
            Kind::Interrupted => self.interrupted(cell),
            _ => self.session.run(cell),
        };
        match result {
            Ok(report) => Some(report),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::SessionEnded, "{error}");
                assert!(self.forged, "{kind:?} after {:?}: {error}", self.before);
                self.forged = false;
                None
            }
        }
    }

    fn interrupted(&mut self, cell: Cell) -> Result<CellReport, sandfork::Error> {
        let interrupter = self.session.interrupter();
        // Interrupts repeatedly: an interrupt before the cell has begun has no effect.
        let (over, ended) = std::sync::mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while ended
                    .recv_timeout(Duration::from_millis(20))
                    .is_err_and(is_timeout)
                {
                    interrupter.interrupt();
                }
            });
            let report = self.session.run(cell);
            drop(over);
            report
        })
    }

    fn check(&self, kind: Kind, who: &str, report: &CellReport) {
        let outcome = report.outcome();
        let (status, after) = kind.outcome();
        let describe = || format!("{kind:?} {who}: {}", shown(outcome));
        // A process that an earlier cell left holds the link open, so only the cell's own end is noticed.
        let held_by_another = kind == Kind::Hangup && outcome.status() == Status::Exit;
        if !held_by_another {
            assert_eq!(outcome.status(), status, "{}", describe());
        }
        let line = format!("{who}\n");
        let whole = match kind {
            Kind::DeafLoop => line.clone() + "deaf\n",
            _ => line,
        };
        let stdout = outcome.stdout();
        if kind.may_not_begin() && stdout.len() < whole.len() {
            assert!(whole.starts_with(&*stdout), "{}", describe());
            return;
        }
        if kind == Kind::Output {
            assert!(stdout.starts_with(&whole), "{}", describe());
        } else {
            assert_eq!(stdout, whole, "{}", describe());
        }
        match after {
            After::Lives => assert_eq!(report.session(), SessionState::Live, "{}", describe()),
            After::Ends => assert_eq!(report.session(), SessionState::Ended, "{}", describe()),
            After::Either => {}
        }
        match (kind, outcome.status()) {
            (Kind::EarlyResult, _) => {
                assert_eq!(outcome.value(), Some(&"forged".into()), "{}", describe());
            }
            (_, Status::Ok) => self.check_value(who, outcome),
            (Kind::Exception, _) => {
                let message = outcome.error().map(|error| error.message.as_str());
                assert_eq!(message, Some(who), "{}", describe());
            }
            (Kind::Exit, _) => assert_eq!(outcome.exit_code(), 3, "{}", describe()),
            (Kind::HardExit, _) => assert_eq!(outcome.exit_code(), 4, "{}", describe()),
            _ => {}
        }
    }

    fn check_value(&self, who: &str, outcome: &Outcome) {
        let wanted = Value::tuple([who.into(), self.count.into()]);
        assert_eq!(outcome.value(), Some(&wanted), "{}", shown(outcome));
    }

    fn set(&mut self, who: &str) {
        self.requests += 1;
        match self.session.set("given", who) {
            Ok(report) if report.outcome().status() == Status::Ok => {}
            Ok(report) => {
                let outcome = shown(report.outcome());
                assert!(self.forged, "{outcome}");
                assert_eq!(report.session(), SessionState::Ended, "{outcome}");
                self.forged = false;
                self.restart();
            }
            Err(error) => {
                assert!(self.forged, "{error}");
                self.forged = false;
                self.restart();
            }
        }
    }

    /// Checks that an ended session reports its end for every request.
    fn assert_lost(&mut self) {
        self.requests += 1;
        let refused = self.session.run("count").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::SessionEnded, "{refused}");
    }

    fn restart(&mut self) {
        let restarted = self.session.restart();
        restarted.unwrap_or_else(|error| panic!("no other worker: {error}"));
        // One for the restart and one for the tools that are declared again.
        self.requests += 2;
        self.forged = false;
        self.start_counting();
    }

    fn start_counting(&mut self) {
        self.count = 0;
        self.requests += 1;
        let report = self
            .session
            .run("assert 'count' not in globals()\ncount = 0");
        let report = report.unwrap_or_else(|error| panic!("no cell: {error}"));
        let outcome = report.outcome();
        assert_eq!(outcome.status(), Status::Ok, "{}", shown(outcome));
    }
}

fn is_timeout(error: std::sync::mpsc::RecvTimeoutError) -> bool {
    error == std::sync::mpsc::RecvTimeoutError::Timeout
}

/// Returns the guest's arguments to it.
#[allow(clippy::needless_pass_by_value, clippy::unnecessary_wraps)] // as a tool is
fn echo(arguments: ToolArguments) -> Result<OutgoingValue, NamedError> {
    let mut values = arguments.args;
    values.extend(arguments.kwargs.into_values());
    Ok(Value::List(values).into())
}
