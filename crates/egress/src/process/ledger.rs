//! Records the connections and refusals of a worker for the outcome of its run.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::locked;
use crate::control::{Connection, MAX_REPORTED, Report};
use crate::host::Host;
use crate::refusal::Verdict;

/// The maximum number of characters of a request that are kept, so that a full report fits into one message.
const MAX_REQUEST: usize = 160;

/// The network activity of a worker since its last report.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    ended: Vec<Connection>,
    open: BTreeMap<u64, Arc<Entry>>,
    next: u64,
    /// The connections and refusals since the last report, without connections that were already open then.
    count: u64,
    sent: u64,
    received: u64,
}

/// An open connection.
#[derive(Debug)]
struct Entry {
    host: String,
    port: u16,
    address: Option<IpAddr>,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Ledger {
    /// Records a refusal or failure. Identical entries are stored once per report, with a count.
    pub fn note(&self, host: &str, port: Option<u16>, request: Option<&str>, verdict: Verdict) {
        let mut entries = locked(&self.0);
        entries.count += 1;
        let request: Option<String> = request.map(|it| it.chars().take(MAX_REQUEST).collect());
        let same = entries.ended.iter_mut().find(|earlier| {
            let is_same = (earlier.verdict, earlier.port) == (verdict, port);
            is_same && earlier.host == host && earlier.request == request
        });
        if let Some(earlier) = same {
            earlier.count += 1;
        } else if entries.ended.len() < MAX_REPORTED {
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

    /// Records a connection, which is open until the returned value is dropped.
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

    /// Returns the activity since the last report, and resets it.
    pub fn report(&self) -> Report {
        let mut entries = locked(&self.0);
        let mut connections = std::mem::take(&mut entries.ended);
        let open: Vec<Arc<Entry>> = entries.open.values().map(Arc::clone).collect();
        for entry in open {
            let connection = entries.since_last(&entry, true);
            if connections.len() < MAX_REPORTED {
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
    /// Returns the transfer of a connection since the last report, and adds it to the totals.
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

/// An open connection to a host. Dropping it closes its entry.
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
        if entries.ended.len() < MAX_REPORTED {
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
    fn flood_of_entries_is_counted_but_not_stored() {
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
        assert_eq!(report.connections.len(), MAX_REPORTED);
        // The next report starts empty: two identical refusals make one entry.
        ledger.note("0.example", Some(443), Some("GET /"), refused);
        ledger.note("0.example", Some(443), Some("GET /"), refused);
        let report = ledger.report();
        assert_eq!((report.count, report.connections.len()), (2, 1));
        assert_eq!(report.connections[0].count, 2);
    }
}
