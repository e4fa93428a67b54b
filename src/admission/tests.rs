#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::*;
use crate::error::ErrorKind;

fn admission(in_flight: usize, queue: usize) -> Admission {
    Admission::new(NonZeroUsize::new(in_flight).unwrap(), queue)
}

fn client(name: &str) -> Client {
    name.into()
}

/// Runs that end when their permit is dropped, and report when they begin.
struct Server {
    admission: Admission,
    permits: Receiver<(String, Permit)>,
    began: Sender<(String, Permit)>,
}

impl Server {
    fn new(in_flight: usize, queue: usize) -> Self {
        let (began, permits) = mpsc::channel();
        Self {
            admission: admission(in_flight, queue),
            permits,
            began,
        }
    }

    /// Requests a run. When this returns, the run was admitted, queued or rejected.
    fn request(&self, name: &str) -> JoinHandle<Result<(), Error>> {
        self.request_with(name, None)
    }

    fn request_with(&self, name: &str, cancel: Option<Cancel>) -> JoinHandle<Result<(), Error>> {
        let before = self.admission.load();
        let request = self.ask(name, cancel);
        until(|| self.admission.load() != before || request.is_finished());
        request
    }

    fn ask(&self, name: &str, cancel: Option<Cancel>) -> JoinHandle<Result<(), Error>> {
        let (admission, began) = (self.admission.clone(), self.began.clone());
        let name = name.to_owned();
        thread::spawn(move || {
            let permit = admission.enter(&client(&name), cancel.as_ref())?;
            began.send((name, permit)).unwrap();
            Ok(())
        })
    }

    /// Waits for the next run to begin. Returns its client and its permit.
    fn next(&self) -> (String, Permit) {
        self.permits.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    /// Returns the clients of the next runs, ending each run as soon as it has begun.
    fn turns(&self, count: usize) -> String {
        (0..count).map(|_| self.next().0).collect()
    }
}

fn until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(1));
    }
}

fn refusal(request: JoinHandle<Result<(), Error>>) -> String {
    let error = request.join().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    error.to_string()
}

#[test]
fn run_beyond_the_queue_is_rejected_at_once() {
    let server = Server::new(2, 3);
    let waiting: Vec<_> = (0..5).map(|_| server.request("a")).collect();
    let full = Load {
        running: 2,
        waiting: 3,
    };
    assert_eq!(server.admission.load(), full);
    let start = Instant::now();
    let refused = server.admission.enter(&client("a"), None).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!(refused.kind(), ErrorKind::Busy);
    assert_eq!(
        refused.to_string(),
        "busy: 2 runs are active and 3 are waiting, which is the limit: try again later"
    );
    assert_eq!(server.admission.load(), full);
    let running = [server.next(), server.next()];
    assert_eq!(server.admission.load(), full);
    drop(running);
    assert_eq!(server.turns(3), "aaa");
    for request in waiting {
        request.join().unwrap().unwrap();
    }
    assert_eq!(server.admission.load(), Load::default());
}

#[test]
fn zero_length_queue_rejects_at_once() {
    let admission = admission(1, 0);
    let permit = admission.enter(&client("a"), None).unwrap();
    let refused = admission.enter(&client("b"), None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    drop(permit);
    admission.enter(&client("b"), None).unwrap();
}

#[test]
fn clients_take_turns() {
    let server = Server::new(1, 100);
    let held = server.admission.enter(&client("x"), None).unwrap();
    for name in ["a", "a", "a", "a", "b", "b", "c", "a"] {
        server.request(name);
    }
    drop(held);
    assert_eq!(server.turns(8), "abcabaaa");
}

#[test]
fn runs_of_one_client_keep_their_order() {
    let admission = admission(1, 20);
    let held = admission.enter(&client("x"), None).unwrap();
    let (began, order) = mpsc::channel();
    let requests: Vec<_> = (0..10)
        .map(|number| {
            let (inner, began) = (admission.clone(), began.clone());
            let request = thread::spawn(move || {
                let permit = inner.enter(&client("a"), None).unwrap();
                began.send(number).unwrap();
                drop(permit);
            });
            until(|| admission.load().waiting == number + 1);
            request
        })
        .collect();
    drop(held);
    for request in requests {
        request.join().unwrap();
    }
    assert!(order.try_iter().eq(0..10));
}

#[test]
fn flooding_client_does_not_starve_others() {
    let server = Server::new(1, 4);
    let held = server.admission.enter(&client("x"), None).unwrap();
    let mut flood: Vec<_> = (0..4).map(|_| server.request("a")).collect();
    assert!(refusal(server.request("a")).starts_with("busy: 1 runs are active and 4 are waiting"));
    // b displaces a's latest run twice. Then each of them has two queued runs.
    let polite = [(); 2].map(|()| {
        let request = server.ask("b", None);
        let latest = flood.pop().unwrap();
        assert!(refusal(latest).contains("the most runs in it"));
        request
    });
    assert!(refusal(server.request("b")).starts_with("busy: 1 runs"));
    let newcomer = server.ask("c", None);
    let [first, second] = polite;
    assert!(refusal(second).contains("the most runs in it"));
    drop(held);
    assert_eq!(server.turns(4), "abca");
    for admitted in flood.into_iter().chain([first, newcomer]) {
        admitted.join().unwrap().unwrap();
    }
}

#[test]
fn newcomer_is_rejected_if_each_client_has_one_run() {
    let server = Server::new(1, 2);
    let held = server.admission.enter(&client("x"), None).unwrap();
    let waiting = [server.request("a"), server.request("b")];
    assert!(refusal(server.request("c")).starts_with("busy: 1 runs are active and 2 are waiting"));
    drop(held);
    assert_eq!(server.turns(2), "ab");
    for request in waiting {
        request.join().unwrap().unwrap();
    }
}

#[test]
fn cancelled_run_leaves_the_queue() {
    let server = Server::new(1, 2);
    let held = server.admission.enter(&client("x"), None).unwrap();
    let cancel = Cancel::new().unwrap();
    let first = server.request_with("a", Some(cancel.clone()));
    let second = server.request("a");
    cancel.cancel();
    assert!(refusal(first).starts_with("the run was cancelled"));
    assert_eq!(server.admission.load().waiting, 1);
    let third = server.request("b");
    drop(held);
    assert_eq!(server.turns(2), "ab");
    second.join().unwrap().unwrap();
    third.join().unwrap().unwrap();
    assert_eq!(server.admission.load(), Load::default());
}

/// A server whose runs all take equally long, on a clock of ticks.
struct Simulation {
    admission: Admission,
    now: usize,
    /// When each active run will end.
    ends: Vec<usize>,
    /// The queued runs: client, time of the request, and ticket.
    waiting: Vec<(&'static str, usize, Arc<Ticket>)>,
    /// Ticks from request to end of each admitted run.
    latencies: HashMap<&'static str, Vec<usize>>,
    refused: HashMap<&'static str, usize>,
}

const SERVICE: usize = 10;

impl Simulation {
    fn new(in_flight: usize, queue: usize) -> Self {
        Self {
            admission: admission(in_flight, queue),
            now: 0,
            ends: Vec::new(),
            waiting: Vec::new(),
            latencies: HashMap::new(),
            refused: HashMap::new(),
        }
    }

    fn request(&mut self, name: &'static str) {
        match self.admission.0.enqueue(&client(name)) {
            Ok(Entry::Admitted) => self.admitted(name, self.now),
            Ok(Entry::Queued(ticket)) => self.waiting.push((name, self.now, ticket)),
            Err(_) => *self.refused.entry(name).or_default() += 1,
        }
    }

    fn admitted(&mut self, name: &'static str, since: usize) {
        let end = self.now + SERVICE;
        self.ends.push(end);
        self.latencies.entry(name).or_default().push(end - since);
    }

    fn tick(&mut self) {
        self.now += 1;
        let over = self.ends.extract_if(.., |end| *end == self.now).count();
        (0..over).for_each(|_| self.admission.0.release());
        for (name, since, ticket) in std::mem::take(&mut self.waiting) {
            match ticket.fate() {
                Fate::Open => self.waiting.push((name, since, ticket)),
                Fate::Admitted => self.admitted(name, since),
                Fate::Displaced => *self.refused.entry(name).or_default() += 1,
            }
        }
        let load = Load {
            running: self.ends.len(),
            waiting: self.waiting.len(),
        };
        assert_eq!(self.admission.load(), load);
    }
}

#[test]
fn overload_at_most_doubles_the_latency_of_admitted_runs() {
    let mut server = Simulation::new(4, 4);
    for _ in 0..5000 {
        // Four concurrent runs of ten ticks each are a capacity of 0.4 runs per tick.
        (0..4).for_each(|_| server.request("a"));
        server.tick();
    }
    let latencies = &server.latencies["a"];
    // The server was busy all the time.
    assert!(latencies.len() >= 5000 * 4 / SERVICE, "{}", latencies.len());
    assert!(latencies.iter().all(|latency| *latency <= 2 * SERVICE));
    assert!(server.refused["a"] > 17_000);
}

#[test]
fn flood_of_one_client_costs_others_one_turn() {
    let mut server = Simulation::new(4, 4);
    for now in 0..5000 {
        (0..4).for_each(|_| server.request("crowd"));
        // A fifth of the server's capacity, evenly spaced.
        if now % 12 == 0 {
            server.request("polite");
        }
        server.tick();
    }
    assert_eq!(server.refused.get("polite"), None);
    let latencies = &server.latencies["polite"];
    assert!(latencies.len() > 410, "{}", latencies.len());
    assert!(latencies.iter().all(|latency| *latency <= 2 * SERVICE));
}

#[test]
fn threads_never_exceed_either_limit() {
    let admission = admission(2, 3);
    let running = AtomicUsize::new(0);
    let ask = || {
        let (mut accepted, mut refused) = (0, 0);
        while accepted < 20 {
            match admission.enter(&client("a"), None) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Busy);
                    refused += 1;
                    thread::yield_now();
                }
                Ok(permit) => {
                    assert!(running.fetch_add(1, Ordering::SeqCst) < 2);
                    assert!(admission.load().waiting <= 3);
                    accepted += 1;
                    thread::sleep(Duration::from_micros(200));
                    running.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            }
        }
        refused
    };
    let refused: usize = thread::scope(|scope| {
        let crowd: Vec<_> = (0..20).map(|_| scope.spawn(ask)).collect();
        crowd.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert!(refused > 0);
    assert_eq!(admission.load(), Load::default());
}
