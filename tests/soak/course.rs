//! One soak: warms up, asks, rests now and then to see what is there, and gives everything back.

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

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Workers that guests are given.
    pub runs: usize,
    /// What decides the questions.
    pub seed: u64,
}

/// How many ask at once.
const LANES: usize = 6;

/// How many questions a thread asks before it ends and another comes.
const OF_ONE_THREAD: usize = 50;

/// One run in so many is warm-up.
const WARM_UP: usize = 10;

/// How often everything rests.
const RESTS: usize = 3;

/// How many questions there are for each zygote that is killed.
const QUESTIONS_PER_KILL: usize = 800;

/// How long what was given up may take to be gone, on a machine that does other things.
const SETTLED: Duration = Duration::from_secs(90);

/// How often it is looked at first.
const LOOKS: usize = 4;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(300);

type Error = Box<dyn std::error::Error>;

/// Does all of it. What is wrong is in the report.
pub fn run(settings: Settings) -> Result<Report, Error> {
    nix::sys::prctl::set_child_subreaper(true)?;
    let policy = library::policy("standard");
    let machine = host::probe("python3", &needs(&policy))?.machine;
    // What a process has for all its sandboxes it has from the first on.
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
    soak.ask_until(warm_up);
    let warm = soak.rest(&watched, None)?;
    let mut rests = vec![warm];
    for nth in 1..=RESTS {
        soak.ask_until(warm_up + (settings.runs - warm_up) * nth / RESTS);
        let rest = soak.rest(&watched, rests.first())?;
        eprintln!("{}", rest.in_words());
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
    /// Asks from all lanes until so many workers were had.
    fn ask_until(&self, runs: usize) {
        thread::scope(|scope| {
            for _ in 0..LANES {
                scope.spawn(move || {
                    while self.answers.runs() < runs {
                        let caller = scope.spawn(move || self.ask_some(runs));
                        if caller.join().is_err() {
                            self.answers.keep(Err("a caller panicked".to_owned()));
                        }
                    }
                });
            }
        });
    }

    fn ask_some(&self, runs: usize) {
        for _ in 0..OF_ONE_THREAD {
            if self.answers.runs() >= runs {
                break;
            }
            self.ask(self.next.fetch_add(1, Ordering::Relaxed));
        }
    }

    fn ask(&self, number: usize) {
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

    /// Takes a census while no request is active, and after the `first` time checks for growth.
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

/// What the zygote holds that holds the most, of all that this process and its server have.
fn largest_zygote() -> Memory {
    let family = family(std::process::id()).into_iter();
    let zygotes = family.filter(|process| process.role == Role::Zygote);
    // Others may have ended, and come.
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

/// What is there as soon as there is no more than there was; what there is more of, if it stays so.
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

/// What there is when several looks have been taken: of each thing the most, since a worker that stands
/// ready may be on its way just then.
fn most(watched: &Watched, calm: impl Fn() -> Result<(), Error>) -> Result<Census, Error> {
    let look = || -> Result<Census, Error> {
        calm()?;
        thread::sleep(PAUSE);
        Ok(Census::take(watched))
    };
    // What had to go has gone by then.
    for _ in 0..LOOKS {
        look()?;
    }
    let first = look()?;
    (1..LOOKS).try_fold(first, |most, _| Ok(most.or_more(look()?)))
}
