//! A server under half of its capacity, and under ten times its capacity: the latency of accepted
//! requests, and the memory of the server.
//!
//! `cargo bench --bench overload -- [--seconds N]` first measures the capacity: as many clients as
//! run at once each send a request as soon as the previous one is answered. Then requests arrive at
//! half that rate and at ten times that rate, independent of the answers.

use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sandfork::{Admission, ErrorKind, Request, Sandbox};

type Error = Box<dyn std::error::Error + Send + Sync>;

const CODE: &str = "sum(range(20_000))";

/// The ordinary load, as a share of the capacity.
const ORDINARY: f64 = 0.5;

/// The overload, as a multiple of the capacity.
const OVERLOAD: f64 = 10.0;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let after = |name: &str| arguments.iter().skip_while(move |it| *it != name).nth(1);
    let seconds = after("--seconds").map_or(Ok(60), |text| text.parse());
    let Ok(seconds) = seconds else {
        eprintln!("usage: cargo bench --bench overload -- [--seconds N]");
        return ExitCode::from(2);
    };
    match bench(Duration::from_secs(seconds)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("the benchmark ended: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The results of the requests of one phase.
#[derive(Default)]
struct Answers {
    /// The times from request to answer of the requests that were run.
    accepted: Vec<Duration>,
    refused: u64,
}

struct Server {
    sandbox: Sandbox,
    in_flight: usize,
    answers: Mutex<Answers>,
}

impl Server {
    fn new() -> Result<Self, Error> {
        let in_flight = thread::available_parallelism()?;
        let queue = in_flight.get();
        let admission = Admission::new(in_flight, queue);
        Ok(Self {
            sandbox: Sandbox::builder().admission(&admission).build()?,
            in_flight: in_flight.get(),
            answers: Mutex::default(),
        })
    }

    /// Answers a request that arrived at `asked`.
    fn answer(&self, asked: Instant, client: usize) -> Result<(), Error> {
        let request = Request::python(CODE).client(client.to_string());
        let ended = self.sandbox.run(request);
        let mut answers = self.answers.lock().map_err(|_| "a client panicked")?;
        match ended {
            Ok(outcome) if outcome.is_ok() => answers.accepted.push(asked.elapsed()),
            Ok(outcome) => return Err(format!("a guest ended with {}", outcome.status()).into()),
            Err(error) if error.kind() == ErrorKind::Busy => answers.refused += 1,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn take_answers(&self) -> Answers {
        self.answers
            .lock()
            .map(|mut answers| std::mem::take(&mut *answers))
            .unwrap_or_default()
    }
}

fn bench(time: Duration) -> Result<(), Error> {
    let server = Arc::new(Server::new()?);
    closed(&server, Duration::from_millis(500))?;
    server.take_answers();
    let nominal_time = time / 4;
    closed(&server, nominal_time)?;
    let nominal = summary(
        "as many as can be run",
        nominal_time,
        &server.take_answers(),
    );
    open(&server, nominal.rate * ORDINARY, nominal_time)?;
    let ordinary = summary("half as many", nominal_time, &server.take_answers());
    let before = resident();
    let half = time / 2;
    let rate = nominal.rate * OVERLOAD;
    open(&server, rate, half)?;
    let middle = resident();
    open(&server, rate, half)?;
    let after = resident();
    let overloaded = summary("ten times as many", half * 2, &server.take_answers());
    println!(
        "\nat half of the rate p99 is {:.2} of p50",
        ordinary.p99.as_secs_f64() / ordinary.p50.as_secs_f64()
    );
    println!(
        "at ten times the rate accepted p50 {:.2} of nominal, p99 {:.2}; memory {before} KiB, {middle} half way, {after} at the end",
        overloaded.p50.as_secs_f64() / nominal.p50.as_secs_f64(),
        overloaded.p99.as_secs_f64() / nominal.p99.as_secs_f64(),
    );
    Ok(())
}

/// As many clients as run at once. Each sends a request when the previous one is answered.
fn closed(server: &Arc<Server>, time: Duration) -> Result<(), Error> {
    let until = Instant::now() + time;
    let client = |client| -> Result<(), Error> {
        while Instant::now() < until {
            server.answer(Instant::now(), client)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..server.in_flight)
            .map(|number| scope.spawn(move || client(number)))
            .collect();
        for client in clients {
            client.join().map_err(|_| "a client panicked")??;
        }
        Ok(())
    })
}

/// Requests at `rate` per second, from as many clients as there are places.
fn open(server: &Arc<Server>, rate: f64, time: Duration) -> Result<(), Error> {
    let (come, requests) = mpsc::channel();
    let requests: Arc<Mutex<Receiver<(Instant, usize)>>> = Arc::new(Mutex::new(requests));
    // More than can wait and run, so that some request is always refused.
    let threads: Vec<_> = (0..2 * server.in_flight + 8)
        .map(|_| {
            let (server, requests) = (Arc::clone(server), Arc::clone(&requests));
            thread::spawn(move || -> Result<(), Error> {
                loop {
                    let next = requests.lock().map_err(|_| "a client panicked")?.recv();
                    let Ok((asked, client)) = next else {
                        return Ok(());
                    };
                    server.answer(asked, client)?;
                }
            })
        })
        .collect();
    let (begun, between) = (Instant::now(), Duration::from_secs_f64(1.0 / rate));
    let mut due = begun;
    for number in 0.. {
        due += between;
        if due > begun + time {
            break;
        }
        thread::sleep(due.saturating_duration_since(Instant::now()));
        come.send((Instant::now(), number % server.in_flight))?;
    }
    drop(come);
    for thread in threads {
        thread.join().map_err(|_| "a client panicked")??;
    }
    Ok(())
}

struct Summary {
    rate: f64,
    p50: Duration,
    p99: Duration,
}

fn summary(name: &str, time: Duration, answers: &Answers) -> Summary {
    let mut sorted = answers.accepted.clone();
    sorted.sort_unstable();
    let quantile = |percent: usize| {
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    };
    #[allow(clippy::cast_precision_loss)] // a count of requests
    let rate = sorted.len() as f64 / time.as_secs_f64();
    let (p50, p99) = (quantile(50), quantile(99));
    println!(
        "{name:22}  {rate:7.1} accepted/s, {} refused, p50 {:.2} ms, p99 {:.2} ms",
        answers.refused,
        p50.as_secs_f64() * 1e3,
        p99.as_secs_f64() * 1e3
    );
    Summary { rate, p50, p99 }
}

/// The memory of this process, KiB (proc_pid_status(5)).
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
