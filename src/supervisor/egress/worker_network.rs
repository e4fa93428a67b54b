//! One worker's link to the egress process.

use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};
use sandfork_egress::control::{Connection as Seen, FromNetwork, Question, Report, ToNetwork};
use sandfork_egress::refusal::Verdict;
use sandfork_jail::control::{MAX_MESSAGE, recv_message, send_message};

use super::Egress;
use super::restarts::Restarts;
use crate::error::ErrorKind;
use crate::outcome::{Connection, Traffic};
use crate::supervisor::clock;
use crate::supervisor::error::SupervisorError;
use crate::supervisor::wait::wait_readable;

/// The time to wait for a report: the process may be busy with the traffic of other workers.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// A worker's network sockets, and the link on which the egress process reports about them. The process serves the
/// sockets until this is dropped.
#[derive(Debug)]
pub(crate) struct WorkerNetwork {
    egress: Arc<Egress>,
    /// Kept so that they can be passed to another process if this one dies.
    sockets: Vec<OwnedFd>,
    link: OwnedFd,
    /// The times at which the link was lost.
    restarts: Restarts,
    /// Traffic for the next report: from reports that arrived after their timeout, and from an earlier worker.
    late: Traffic,
    /// The bytes that count against the limit: those reported, and those carried over from an earlier worker.
    bytes: u64,
}

/// The part of its session's limits that a worker has used.
#[derive(Clone, Debug)]
pub(crate) struct Spent {
    bytes: u64,
    /// Traffic that has not been reported to the caller yet.
    unreported: Traffic,
}

impl WorkerNetwork {
    /// Passes a worker's sockets to the egress process, which serves them.
    pub(crate) fn new(
        egress: &Arc<Egress>,
        sockets: Vec<OwnedFd>,
    ) -> Result<Self, SupervisorError> {
        Ok(Self {
            egress: Arc::clone(egress),
            link: egress.serve(&sockets)?,
            sockets,
            restarts: Restarts::default(),
            late: Traffic::default(),
            bytes: 0,
        })
    }

    /// Returns what the worker has used so far.
    pub(crate) fn spent(&mut self) -> Spent {
        let unreported = self.report();
        Spent {
            bytes: self.bytes,
            unreported,
        }
    }

    /// Counts the usage of an earlier worker against the limits of this one.
    pub(crate) fn spend(&mut self, spent: Spent) {
        self.bytes = spent.bytes;
        self.late = spent.unreported;
        self.send(&ToNetwork::Spend(self.bytes));
    }

    /// Returns the link. It becomes readable when the process exits, asks a question, or sends a late report.
    pub(crate) fn link(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    /// Handles a message: keeps a late report, and returns a question. If the process has exited, passes the sockets to
    /// a new one; connections of the old process have been closed.
    pub(crate) fn on_readable(&mut self) -> Result<Option<Question>, SupervisorError> {
        match self.receive() {
            Some(FromNetwork::Report(report)) => {
                let late = self.counted(report);
                self.late.add(late);
                return Ok(None);
            }
            Some(FromNetwork::Question(question)) => return Ok(Some(question)),
            None => {}
        }
        self.link = self.egress.serve(&self.sockets)?;
        self.send(&ToNetwork::Spend(self.bytes));
        // A process that has no descriptors left for the sockets also closes the link, without exiting.
        if self.restarts.take_one(clock::now()) {
            Ok(None)
        } else {
            Err(SupervisorError::new(
                ErrorKind::System,
                "the process that connects guests to hosts cannot serve another worker: it has no descriptors left; raise \
                 the hard limit of open files (`ulimit -Hn`), or lower `network.connections`",
            ))
        }
    }

    /// Forwards the caller's decision about a connection.
    pub(crate) fn decide(&self, question: u64, allowed: Option<bool>) {
        self.send(&ToNetwork::Decided { question, allowed });
    }

    /// Sends a message that has no reply. If the process does not read, shuts the link down, because it must not miss a
    /// message. If it has exited, the link reports that itself.
    fn send(&self, message: &ToNetwork) {
        if send_message(self.link.as_fd(), message, &[]).is_err() {
            _ = shutdown(self.link.as_raw_fd(), Shutdown::Both);
        }
    }

    /// Returns the traffic since the last report. Empty if the process has exited meanwhile.
    pub(crate) fn report(&mut self) -> Traffic {
        let mut all = mem::take(&mut self.late);
        if let Some(report) = self.ask() {
            all.add(self.counted(report));
        }
        all
    }

    fn counted(&mut self, report: Report) -> Traffic {
        let traffic = traffic(report);
        self.bytes += traffic.sent + traffic.received;
        traffic
    }

    fn ask(&self) -> Option<Report> {
        send_message(self.link.as_fd(), &ToNetwork::Report, &[]).ok()?;
        let until = clock::now() + REPORT_TIMEOUT;
        while wait_readable(self.link.as_fd(), until).ok()? {
            match self.receive()? {
                FromNetwork::Report(report) => return Some(report),
                // The cell that this report is for has ended, so no caller decides.
                FromNetwork::Question(question) => self.decide(question.question, None),
            }
        }
        None
    }

    fn receive(&self) -> Option<FromNetwork> {
        let link = self.link.as_fd();
        let mut buffer = vec![0; MAX_MESSAGE];
        let (message, _) = recv_message(link, &mut buffer).ok()??;
        Some(message)
    }
}

fn traffic(report: Report) -> Traffic {
    Traffic {
        connections: report.connections.into_iter().map(connection).collect(),
        count: report.count,
        sent: report.sent,
        received: report.received,
    }
}

fn connection(seen: Seen) -> Connection {
    let (verdict, reason) = match seen.verdict {
        Verdict::Allowed => ("allowed", None),
        Verdict::Refused(refusal) => ("refused", Some(refusal.as_str())),
        Verdict::Failed(failure) => ("failed", Some(failure.as_str())),
    };
    Connection {
        host: seen.host,
        port: seen.port,
        address: seen.address,
        request: seen.request,
        sent: seen.sent,
        received: seen.received,
        verdict,
        reason,
        open: seen.open,
        count: seen.count,
    }
}
