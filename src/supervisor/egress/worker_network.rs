//! One worker's connection with the egress process.

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

/// How long a report may take: the process may be busy with the traffic of other workers.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The sockets of a worker, and the link on which the process that serves them reports. The process serves them until
/// this is dropped.
#[derive(Debug)]
pub(crate) struct WorkerNetwork {
    egress: Arc<Egress>,
    /// Kept for another process, if this one dies.
    sockets: Vec<OwnedFd>,
    link: OwnedFd,
    /// When the link was lost.
    restarts: Restarts,
    /// Reports that came too late for the one who asked.
    late: Traffic,
    /// The bytes that were reported, or counted from the start.
    bytes: u64,
}

/// What a worker has spent of its session's limits.
#[derive(Clone, Debug)]
pub(crate) struct Spent {
    bytes: u64,
    /// What has not been reported to the caller.
    unreported: Traffic,
}

impl WorkerNetwork {
    /// Asks the egress process to serve a worker's sockets.
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

    /// What was spent so far.
    pub(crate) fn spent(&mut self) -> Spent {
        let unreported = self.report();
        Spent {
            bytes: self.bytes,
            unreported,
        }
    }

    /// Counts what an earlier worker has spent against this one's limits.
    pub(crate) fn spend(&mut self, spent: Spent) {
        self.bytes = spent.bytes;
        self.late = spent.unreported;
        self.send(&ToNetwork::Spend(self.bytes));
    }

    /// Readable when the process has ended or asks something, or a report comes late.
    pub(crate) fn link(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    /// Keeps a late report, and returns a question. If the process has ended, has the sockets served by another one;
    /// connections of the one that died have ended with it.
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
        // A process without room for the sockets closes the link as well, and lives.
        if self.restarts.take_one(clock::now()) {
            Ok(None)
        } else {
            Err(SupervisorError::new(
                ErrorKind::System,
                "the process that connects guests to hosts cannot serve another one: it has no descriptors left; raise \
                 the hard limit of open files (`ulimit -Hn`), or lower `network.connections`",
            ))
        }
    }

    /// Passes a decision on.
    pub(crate) fn decide(&self, question: u64, allowed: Option<bool>) {
        self.send(&ToNetwork::Decided { question, allowed });
    }

    /// Tells the process what it does not answer. If it has died, the link says so; if it does not read, the link ends
    /// here, as it must not miss anything.
    fn send(&self, message: &ToNetwork) {
        if send_message(self.link.as_fd(), message, &[]).is_err() {
            _ = shutdown(self.link.as_raw_fd(), Shutdown::Both);
        }
    }

    /// What happened since the last report; nothing if the process has died meanwhile.
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
                // The cell for which this report is has ended.
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
