//! Compares runs over HTTP with the same runs through `sandfork map`: `cargo bench --package sandfork-server`.
//!
//! Both execute the same program equally often, alternately and with the same number of concurrent runs. An overload
//! test follows, with eight times as many clients as the queue holds. Prints the medians and their ratio, and the
//! latencies of the overload test. Fails if a response is missing or wrong.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a benchmark")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Runs per round.
const RUNS: u32 = 5_000;
const CLIENTS: u32 = 64;
const TURNS: usize = 5;
/// The length of the server's queue.
const QUEUE: u32 = 64;

fn main() {
    let server = Path::new(env!("CARGO_BIN_EXE_sandfork-server")).to_owned();
    let command = server.with_file_name("sandfork");
    assert!(
        command.is_file(),
        "the command is not built: `cargo build --release --workspace`"
    );
    let (server, port) = start(&server);
    let tasks = tasks();
    let (mut http, mut map) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        let begun = Instant::now();
        let responses = over_http(port, CLIENTS);
        assert_eq!(responses.rejected, 0, "the queue holds all clients");
        let times = (begun.elapsed(), through_map(&command, tasks.path()));
        // The first round is a warm-up.
        if turn > 0 {
            http.push(times.0);
            map.push(times.1);
        }
    }
    let mut overload = over_http(port, 8 * QUEUE);
    drop(server);
    let (http, map) = (median(http), median(map));
    let rate = |time: Duration| f64::from(RUNS) / time.as_secs_f64();
    println!("{RUNS} runs, medians of {TURNS} rounds, {CLIENTS} clients");
    println!("HTTP  {:8.0} runs a second", rate(http));
    println!("map   {:8.0} runs a second", rate(map));
    println!("ratio {:8.2}", rate(http) / rate(map));
    overload.times.sort_unstable();
    let answered = overload.times.len();
    let p99 = overload.times[answered * 99 / 100];
    let turns = f64::from(QUEUE) / rate(http);
    println!(
        "{} clients: {answered} succeeded, p99 {:.0} ms ({:.1} times the duration of {QUEUE} runs); {} rejected",
        8 * QUEUE,
        p99.as_secs_f64() * 1e3,
        p99.as_secs_f64() / turns,
        overload.rejected
    );
}

/// Kills the server when the benchmark ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn start(program: &Path) -> (Server, u16) {
    let mut server = Command::new(program)
        .args(["--listen", "127.0.0.1:0", "--queue", &QUEUE.to_string()])
        .env("SANDFORK_LOG", "off")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut line = String::new();
    let stdout = server.stdout.take().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let port = line.trim_end().rsplit(':').next().unwrap();
    (Server(server), port.parse().expect("a port"))
}

fn program(number: u32) -> String {
    format!("print({number} * 1000003)")
}

fn tasks() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    for number in 0..RUNS {
        let line = serde_json::json!({ "id": number, "code": program(number) });
        writeln!(file, "{line}").unwrap();
    }
    file
}

fn through_map(command: &PathBuf, tasks: &Path) -> Duration {
    let begun = Instant::now();
    let output = Command::new(command)
        .args(["map", "--no-progress"])
        .arg(tasks)
        .output()
        .expect("the command runs");
    let time = begun.elapsed();
    let count = output.stdout.split(|byte| *byte == b'\n').count() - 1;
    assert_eq!(
        count,
        RUNS as usize,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    time
}

/// The responses of a round.
#[derive(Default)]
struct Answers {
    /// The latency of each run.
    times: Vec<Duration>,
    rejected: u32,
}

/// Sends all runs, divided among the clients.
fn over_http(port: u16, clients: u32) -> Answers {
    let clients: Vec<_> = (0..clients)
        .map(|client| thread::spawn(move || send_share(port, client, clients)))
        .collect();
    clients
        .into_iter()
        .fold(Answers::default(), |mut all, share| {
            let share = share.join().expect("no answer is missing or wrong");
            all.times.extend(share.times);
            all.rejected += share.rejected;
            all
        })
}

/// Sends one client's share of the runs over one connection.
fn send_share(port: u16, client: u32, clients: u32) -> Answers {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server answers");
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut requests = stream;
    let mut answers = Answers::default();
    for number in (client..RUNS).step_by(clients as usize) {
        let body = serde_json::json!({ "code": program(number) }).to_string();
        let head = format!(
            "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let begun = Instant::now();
        requests.write_all((head + &body).as_bytes()).unwrap();
        let (status, answer) = read(&mut reader);
        if status == 429 {
            answers.rejected += 1;
            continue;
        }
        let expected = u64::from(number) * 1_000_003;
        let stdout = format!("\"stdout\":\"{expected}\\n\"");
        assert!(answer.contains(&stdout), "{status} {answer}");
        answers.times.push(begun.elapsed());
    }
    answers
}

/// Reads the status and the body of a response.
fn read(answers: &mut impl BufRead) -> (u16, String) {
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        if let Some(code) = line.strip_prefix("HTTP/1.1 ") {
            status = code[..3].parse().unwrap();
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim_end().parse().unwrap();
        }
        if line.trim_end().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    answers.read_exact(&mut body).unwrap();
    (status, String::from_utf8(body).unwrap())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
