//! Measures a server under half of its capacity and under ten times its capacity: the latency of accepted
//! requests, and the memory of the server.
//!
//! `cargo bench --bench overload -- [--seconds N]` first measures the capacity: as many clients as
//! can run at once each send a request as soon as they have the reply to the previous one. Then requests arrive at
//! half that rate and at ten times that rate, regardless of the replies.

use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use procfs::process::Process;
use sandfork::{Admission, ErrorKind, Request, Sandbox};
use sandfork_measure::{Samples, Summary};

const CODE: &str = "sum(range(20_000))";

/// The ordinary load, as a share of the capacity.
const ORDINARY: f64 = 0.5;

/// The overload, as a multiple of the capacity.
const OVERLOAD: f64 = 10.0;

/// The command line.
#[derive(Parser)]
struct Options {
    /// How long it measures each load
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Cargo adds this argument
    #[arg(long, hide = true)]
    bench: bool,
}

/// The results of the requests of one phase.
#[derive(Default)]
struct Answers {
    /// The times from request to reply of the accepted requests.
    accepted: Samples,
    refused: u64,
}

struct Server {
    sandbox: Sandbox,
    in_flight: usize,
    answers: Mutex<Answers>,
}

/// The results of a phase.
struct Phase {
    rate: f64,
    accepted: Summary,
}

fn main() -> Result<()> {
    let time = Duration::from_secs(Options::parse().seconds);
    let in_flight = thread::available_parallelism()?;
    let admission = Admission::new(in_flight, in_flight.get());
    let server = Server {
        sandbox: Sandbox::builder().admission(&admission).build()?,
        in_flight: in_flight.get(),
        answers: Mutex::default(),
    };
    server.closed(Duration::from_millis(500))?;
    server.take_answers();
    let (quarter, half) = (time / 4, time / 2);
    server.closed(quarter)?;
    let nominal = server.phase("as many as can be run", quarter)?;
    server.open(nominal.rate * ORDINARY, quarter)?;
    let ordinary = server.phase("half as many", quarter)?;
    let before = resident()?;
    server.open(nominal.rate * OVERLOAD, half)?;
    let middle = resident()?;
    server.open(nominal.rate * OVERLOAD, half)?;
    let after = resident()?;
    let overloaded = server.phase("ten times as many", half * 2)?;
    let ratio = |above: (&Phase, f64), below: (&Phase, f64)| {
        let [above, below] = [above, below].map(|(phase, q)| phase.accepted.quantile(q));
        above.as_secs_f64() / below.as_secs_f64()
    };
    let tail = ratio((&ordinary, 0.99), (&ordinary, 0.5));
    println!("\nat half of the rate p99 is {tail:.2} of p50");
    let [p50, p99] = [0.5, 0.99].map(|q| ratio((&overloaded, q), (&nominal, q)));
    println!(
        "at ten times the rate accepted p50 {p50:.2} of nominal, p99 {p99:.2}; memory {before} KiB, {middle} \
         half way, {after} at the end"
    );
    Ok(())
}

impl Server {
    /// Runs a request that arrived at `asked`.
    fn answer(&self, asked: Instant, client: usize) -> Result<()> {
        let request = Request::python(CODE).client(client.to_string());
        let ended = self.sandbox.run(request);
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        match ended {
            Ok(outcome) if outcome.is_ok() => answers.accepted.push(asked.elapsed()),
            Ok(outcome) => bail!("a guest ended with {}", outcome.status()),
            Err(error) if error.kind() == ErrorKind::Busy => answers.refused += 1,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn take_answers(&self) -> Answers {
        std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs as many clients as can run at once. Each sends a request when it has the reply to the previous one.
    fn closed(&self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        in_threads(self.in_flight, |client| {
            while Instant::now() < until {
                self.answer(Instant::now(), client)?;
            }
            Ok(())
        })
    }

    /// Sends `rate` requests per second, from as many clients as there are admission slots.
    fn open(&self, rate: f64, time: Duration) -> Result<()> {
        let (come, requests) = mpsc::channel();
        let requests = Mutex::new(requests);
        let next = || {
            requests
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .recv()
        };
        let arrive = move || -> Result<()> {
            let (begun, between) = (Instant::now(), Duration::from_secs_f64(1.0 / rate));
            let mut due = begun + between;
            for number in 0.. {
                if due > begun + time {
                    break;
                }
                thread::sleep(due.saturating_duration_since(Instant::now()));
                come.send((Instant::now(), number % self.in_flight))?;
                due += between;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let arriving = scope.spawn(arrive);
            // More than can wait and run, so that some request is always refused.
            in_threads(2 * self.in_flight + 8, |_| {
                while let Ok((asked, client)) = next() {
                    self.answer(asked, client)?;
                }
                Ok(())
            })?;
            arriving.join().map_err(|_| anyhow!("the requests ended"))?
        })
    }

    fn phase(&self, name: &str, time: Duration) -> Result<Phase> {
        let Answers { accepted, refused } = self.take_answers();
        let accepted = accepted.summary().context("no request was accepted")?;
        #[allow(clippy::cast_precision_loss)] // a count of requests
        let rate = accepted.count() as f64 / time.as_secs_f64();
        let [p50, p99] = [0.5, 0.99].map(|q| accepted.quantile(q).as_secs_f64() * 1e3);
        println!(
            "{name:22}  {rate:7.1} accepted/s, {refused} refused, p50 {p50:.2} ms, p99 {p99:.2} ms"
        );
        Ok(Phase { rate, accepted })
    }
}

fn in_threads(count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let work = &work;
        let clients: Vec<_> = (0..count)
            .map(|client| scope.spawn(move || work(client)))
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().map_err(|_| anyhow!("a client panicked"))?)
    })
}

/// Returns the resident set of this process in KiB.
fn resident() -> Result<u64> {
    Process::myself()?
        .status()?
        .vmrss
        .context("proc(5) has no memory")
}
