//! What a worker's connections did, for the outcome of its run.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::locked;
use crate::control::{Connection, MOST_REPORTED, Report};
use crate::host::Host;
use crate::refusal::Verdict;

/// The most characters of a request that are kept: as many entries as a report has fit into one message.
const MOST_REQUEST: usize = 160;

/// What happened since the last report.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    ended: Vec<Connection>,
    open: BTreeMap<u64, Arc<Entry>>,
    next: u64,
    /// Connections and refusals since the last report, those that were open before not counted.
    count: u64,
    sent: u64,
    received: u64,
}

/// A connection that is open.
#[derive(Debug)]
struct Entry {
    host: String,
    port: u16,
    address: Option<IpAddr>,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Ledger {
    /// Notes what did not take place. The same is noted once in a report, and counted each time.
    pub fn note(&self, host: &str, port: Option<u16>, request: Option<&str>, verdict: Verdict) {
        let mut entries = locked(&self.0);
        entries.count += 1;
        let request: Option<String> = request.map(|it| it.chars().take(MOST_REQUEST).collect());
        let same = entries.ended.iter_mut().find(|earlier| {
            let of_same = (earlier.verdict, earlier.port) == (verdict, port);
            of_same && earlier.host == host && earlier.request == request
        });
        if let Some(earlier) = same {
            earlier.count += 1;
        } else if entries.ended.len() < MOST_REPORTED {
            entries.ended.push(Connection {
                host: host.to_owned(),
                port,
                address: None,
                request,
                sent: 0,
                received: 0,
                verdict,
                open: false,
                count: 1,
            });
        }
    }

    /// Notes a connection, which is open until the value is dropped.
    pub fn open(self: &Arc<Self>, host: &Host, port: u16, address: Option<IpAddr>) -> Open {
        let entry = Arc::new(Entry {
            host: host.to_string(),
            port,
            address,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        });
        let mut entries = locked(&self.0);
        let number = entries.next;
        entries.next += 1;
        entries.count += 1;
        entries.open.insert(number, Arc::clone(&entry));
        Open {
            ledger: Arc::clone(self),
            number,
            entry,
        }
    }

    /// What happened since the last report.
    pub fn report(&self) -> Report {
        let mut entries = locked(&self.0);
        let mut connections = std::mem::take(&mut entries.ended);
        let open: Vec<Arc<Entry>> = entries.open.values().map(Arc::clone).collect();
        for entry in open {
            let connection = entries.since_last(&entry, true);
            if connections.len() < MOST_REPORTED {
                connections.push(connection);
            }
        }
        Report {
            connections,
            count: std::mem::take(&mut entries.count),
            sent: std::mem::take(&mut entries.sent),
            received: std::mem::take(&mut entries.received),
        }
    }
}

impl Entries {
    /// What the connection carried since the last report, which is added to the sums.
    fn since_last(&mut self, entry: &Entry, open: bool) -> Connection {
        let sent = entry.sent.swap(0, Ordering::Relaxed);
        let received = entry.received.swap(0, Ordering::Relaxed);
        self.sent += sent;
        self.received += received;
        Connection {
            host: entry.host.clone(),
            port: Some(entry.port),
            address: entry.address,
            request: None,
            sent,
            received,
            verdict: Verdict::Allowed,
            open,
            count: 1,
        }
    }
}

/// A connection to a host. Dropping it ends its entry.
#[derive(Debug)]
pub struct Open {
    ledger: Arc<Ledger>,
    number: u64,
    entry: Arc<Entry>,
}

impl Open {
    pub fn add_sent(&self, bytes: usize) {
        self.entry.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn add_received(&self, bytes: usize) {
        let received = &self.entry.received;
        received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut entries = locked(&self.ledger.0);
        entries.open.remove(&self.number);
        let connection = entries.since_last(&self.entry, false);
        if entries.ended.len() < MOST_REPORTED {
            entries.ended.push(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Refusal;

    fn host() -> Host {
        "a.example".parse().expect("a name")
    }

    #[test]
    fn bytes_are_reported_once() {
        let ledger = Arc::new(Ledger::default());
        let open = ledger.open(&host(), 443, None);
        open.add_sent(3);
        open.add_received(5);
        let first = ledger.report();
        assert_eq!((first.count, first.sent, first.received), (1, 3, 5));
        let [connection] = &first.connections[..] else {
            panic!("{first:?}");
        };
        assert!(connection.open);
        assert_eq!((connection.sent, connection.received), (3, 5));
        open.add_sent(1);
        drop(open);
        let second = ledger.report();
        assert_eq!((second.count, second.sent, second.received), (0, 1, 0));
        assert!(!second.connections[0].open);
        assert_eq!(ledger.report(), Report::default());
    }

    #[test]
    fn a_flood_is_counted_and_not_kept() {
        let ledger = Arc::new(Ledger::default());
        let refused = Verdict::Refused(Refusal::Host);
        for nth in 0..1000 {
            ledger.note(&format!("{nth}.example"), Some(443), None, refused);
        }
        for _ in 0..1000 {
            ledger.note("0.example", Some(443), None, refused);
            drop(ledger.open(&host(), 443, None));
        }
        let report = ledger.report();
        assert_eq!(report.count, 3000);
        assert_eq!(report.connections.len(), MOST_REPORTED);
        // It starts anew, with the same refusal once.
        ledger.note("0.example", Some(443), Some("GET /"), refused);
        ledger.note("0.example", Some(443), Some("GET /"), refused);
        let report = ledger.report();
        assert_eq!((report.count, report.connections.len()), (2, 1));
        assert_eq!(report.connections[0].count, 2);
    }
}
