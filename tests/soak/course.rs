//! One soak: warms up, makes requests, pauses now and then to take a census, and releases everything.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sandfork::internals::host::{self, CgroupSupport};
use sandfork::internals::plan::needs;

use crate::answers::Answers;
use crate::census::memory::Memory;
use crate::census::processes::{Role, family};
use crate::census::{Census, Watched};
use crate::client::Server;
use crate::kills::Kills;
use crate::library::{self, Library};
use crate::mix::{Numbers, Question};
use crate::report::{Report, Rest};
use crate::served;

/// The settings of a soak.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The number of workers to use.
    pub runs: usize,
    /// The seed of the requests.
    pub seed: u64,
}

/// The number of concurrent clients.
const LANES: usize = 6;

/// The number of requests that a thread makes before another thread replaces it.
const OF_ONE_THREAD: usize = 50;

/// The warm-up is one in this many runs.
const WARM_UP: usize = 10;

/// The number of pauses.
const RESTS: usize = 3;

/// The number of requests per killed zygote.
const QUESTIONS_PER_KILL: usize = 800;

/// How long released resources may take to disappear on a busy machine.
const SETTLED: Duration = Duration::from_secs(90);

/// The number of censuses that count for the first pause, after as many that do not.
const LOOKS: usize = 4;

/// The wait before each census.
const PAUSE: Duration = Duration::from_millis(300);

type Error = Box<dyn std::error::Error>;

/// Runs the soak. The report contains what went wrong.
pub fn run(settings: Settings) -> Result<Report, Error> {
    nix::sys::prctl::set_child_subreaper(true)?;
    let policy = library::policy("standard");
    let machine = host::probe("python3", &needs(&policy))?.machine;
    // The first sandbox creates what a process keeps for all its sandboxes.
    drop(Library::build()?);
    let alone = watched(machine.cgroup.clone(), None);
    let before = Census::take(&alone);
    let server = Server::start(env!("CARGO_BIN_EXE_sandfork"))?;
    let watched = watched(machine.cgroup, Some(&server));
    let soak = Soak {
        settings,
        library: Library::build()?,
        server,
        answers: Answers::default(),
        kills: Kills::default(),
        next: AtomicUsize::new(0),
    };
    let began = Instant::now();
    let warm_up = settings.runs / WARM_UP;
    soak.request_until(warm_up);
    let warm = soak.rest(&watched, None)?;
    let mut rests = vec![warm];
    for nth in 1..=RESTS {
        soak.request_until(warm_up + (settings.runs - warm_up) * nth / RESTS);
        let rest = soak.rest(&watched, rests.first())?;
        eprintln!("{}", rest.summary());
        rests.push(rest);
    }
    let took = began.elapsed();
    let Soak {
        library,
        server,
        answers,
        kills,
        next,
        ..
    } = soak;
    drop(library);
    server.close()?;
    let (after, left) = settled(&alone, &before, || Ok(()))?;
    answers.keep(if left.is_empty() {
        Ok(())
    } else {
        Err(format!("left in the end: {}", left.join("; ")))
    });
    Ok(Report {
        seed: settings.seed,
        runs: answers.runs(),
        questions: next.into_inner(),
        zygotes_killed: kills.count(),
        seconds: took.as_secs_f64(),
        copies: answers.copies(),
        endings: answers.endings(),
        before,
        rests,
        after,
        wrong: answers.wrong(),
    })
}

struct Soak {
    settings: Settings,
    library: Library,
    server: Server,
    answers: Answers,
    kills: Kills,
    next: AtomicUsize,
}

impl Soak {
    /// Makes requests from all lanes until this many workers were used.
    fn request_until(&self, runs: usize) {
        thread::scope(|scope| {
            for _ in 0..LANES {
                scope.spawn(move || {
                    while self.answers.runs() < runs {
                        let caller = scope.spawn(move || self.make_requests(runs));
                        if caller.join().is_err() {
                            self.answers.keep(Err("a caller panicked".to_owned()));
                        }
                    }
                });
            }
        });
    }

    fn make_requests(&self, runs: usize) {
        for _ in 0..OF_ONE_THREAD {
            if self.answers.runs() >= runs {
                break;
            }
            self.make_request(self.next.fetch_add(1, Ordering::Relaxed));
        }
    }

    fn make_request(&self, number: usize) {
        let mut numbers = Numbers::of(self.settings.seed, number);
        if number % QUESTIONS_PER_KILL == QUESTIONS_PER_KILL - 1 {
            self.answers.keep(self.kills.strike(&mut numbers));
        }
        let token = format!("token {number} of {}", numbers.below(1 << 30));
        let Self {
            library,
            server,
            answers,
            kills,
            ..
        } = self;
        match Question::of(&mut numbers) {
            Question::Run(home) => library.run(home, &mut numbers, &token, answers, kills),
            Question::Sandbox => library::sandbox(&mut numbers, &token, answers, kills),
            Question::Session(end) => library.session(end, &mut numbers, &token, answers, kills),
            Question::Served(plot) => {
                served::play(server, plot, &mut numbers, &token, answers, kills);
            }
        }
    }

    /// Takes a census while no request is active, and checks for growth after the `first` pause.
    fn rest(&self, watched: &Watched, first: Option<&Rest>) -> Result<Rest, Error> {
        served::gather(&self.server)?;
        let calm = || {
            self.library.calm()?;
            served::calm(&self.server)
        };
        let census = match first {
            None => most(watched, calm)?,
            Some(first) => {
                let (census, more) = settled(watched, &first.census, calm)?;
                let runs = self.answers.runs();
                self.answers.keep(if more.is_empty() {
                    Ok(())
                } else {
                    Err(format!("after {runs} runs: {}", more.join("; ")))
                });
                census
            }
        };
        let of = |pid| Memory::of(pid).ok_or("a supervisor's memory cannot be read");
        Ok(Rest {
            runs: self.answers.runs(),
            census,
            library: of(std::process::id())?,
            served: of(self.server.pid())?,
            zygote: largest_zygote(),
        })
    }
}

/// Returns the memory of the largest zygote of this process and its server.
fn largest_zygote() -> Memory {
    let family = family(std::process::id()).into_iter();
    let zygotes = family.filter(|process| process.role == Role::Zygote);
    // Zygotes may start and end meanwhile.
    let held = zygotes.filter_map(|zygote| Memory::of(zygote.pid));
    held.max().unwrap_or_default()
}

fn watched(cgroups: CgroupSupport, server: Option<&Server>) -> Watched {
    let mut supervisors = vec![("library", std::process::id())];
    supervisors.extend(server.map(|server| ("serve", server.pid())));
    Watched {
        supervisors,
        cgroups,
        temporary: std::env::temp_dir(),
    }
}

/// Waits until nothing has grown and returns the census; the growth if it persists.
fn settled(
    watched: &Watched,
    before: &Census,
    calm: impl Fn() -> Result<(), Error>,
) -> Result<(Census, Vec<String>), Error> {
    let until = Instant::now() + SETTLED;
    loop {
        calm()?;
        thread::sleep(PAUSE);
        let census = Census::take(watched);
        let more = census.more_than(before);
        if more.is_empty() || Instant::now() > until {
            return Ok((census, more));
        }
    }
}

/// Returns the maximum of several censuses for each resource, because the pool may be replacing a worker during one.
fn most(watched: &Watched, calm: impl Fn() -> Result<(), Error>) -> Result<Census, Error> {
    let look = || -> Result<Census, Error> {
        calm()?;
        thread::sleep(PAUSE);
        Ok(Census::take(watched))
    };
    // Released resources disappear during these censuses, which do not count.
    for _ in 0..LOOKS {
        look()?;
    }
    let first = look()?;
    (1..LOOKS).try_fold(first, |most, _| Ok(most.or_more(look()?)))
}
