//! A traced supervisor with a sandbox, what a sound run of it looks like, and whether it is still so.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use sandfork::host::{self, CgroupSupport, Host};
use sandfork::plan::needs;
use sandfork::policy::{BuiltInsOnly, Level, Policy};
use tempfile::TempDir;

use crate::call::{Call, Fault, Role};
use crate::subject::{self, Went};
use crate::tracer::{Answer, Tracer};

/// How long what has ended may take to be gone, on a host that is busy with other things.
const SETTLED: Duration = Duration::from_secs(5);

/// Cgroups that a supervisor keeps for workers to come, in each hierarchy: more than any keeps that has
/// one run at a time, and fewer than would be left by so many faults.
const MOST_SPARE: usize = 4;

pub struct Bench {
    pub tracer: Tracer,
    temporary: TempDir,
    host: Host,
    sound: Sound,
}

/// How it is with nothing wrong.
#[derive(Debug, Default)]
struct Sound {
    /// What a guest tells of its jail.
    posture: Option<Went>,
    family: Vec<Role>,
    descriptors: Vec<usize>,
    mounts: usize,
}

impl Bench {
    /// Starts a supervisor, and learns what is sound.
    pub fn new() -> Self {
        let policy = Policy::load("standard", &[], &BuiltInsOnly).expect("it is built in");
        let host = host::probe("python3", &needs(&policy)).expect("there is an interpreter");
        let temporary = tempfile::tempdir().expect("a directory can be made");
        let mut bench = Self {
            tracer: start(&temporary, &host),
            temporary,
            host,
            sound: Sound::default(),
        };
        bench.build();
        // What a process has for all its runs it has from the first on.
        bench.ask("run", None);
        let posture = bench.ask("run", None).went;
        assert!(
            matches!(&posture, Some(Went::Ran { status, .. }) if status == "ok"),
            "{posture:?}"
        );
        let family = [Role::Supervisor, Role::Launcher, Role::Init, Role::Zygote];
        let is_settled = |tracer: &Tracer| {
            tracer.family() == family && tracer.waits_in(Role::Zygote, "epoll_wait")
        };
        assert!(bench.tracer.until(SETTLED, is_settled).is_some());
        bench.sound = Sound {
            posture,
            family: bench.tracer.family(),
            descriptors: descriptors(&bench.tracer),
            mounts: mounts(),
        };
        bench
    }

    /// Another supervisor, when one has ended.
    pub fn restart(&mut self) {
        self.tracer.end();
        self.tracer = start(&self.temporary, &self.host);
        self.build();
        // What a process has for all its runs it has from the first on.
        self.ask("plain", None);
        let idle = |tracer: &Tracer| tracer.waits_in(Role::Zygote, "epoll_wait");
        let family = self.sound.family.clone();
        let is_settled = |tracer: &Tracer| tracer.family() == family && idle(tracer);
        assert!(self.tracer.until(SETTLED, is_settled).is_some());
        self.sound.descriptors = descriptors(&self.tracer);
    }

    /// A sandbox with nothing wrong.
    pub fn build(&mut self) {
        let went = self.ask("build", None).went;
        assert_eq!(went, Some(Went::Well));
    }

    /// Gives a command.
    pub fn ask(&mut self, command: &str, fault: Option<Fault>) -> Told {
        Told::from(self.tracer.ask(command, fault))
    }

    /// Has a sandbox there, should one have been refused or its zygote been given up.
    pub fn ready(&mut self) {
        self.build();
        let went = self.ask("plain", None).went;
        assert!(Went::is_plain(went.as_ref()), "{went:?}");
        self.settled();
    }

    /// Ends what a command would have to end first, so that its calls are the same each time.
    pub fn before(&mut self, command: &str) {
        if command == "build" {
            assert_eq!(self.ask("drop", None).went, Some(Went::Well));
        }
    }

    /// The calls that a command makes.
    pub fn record(&mut self, command: &str) -> Vec<Call> {
        self.before(command);
        self.ask(command, None).calls
    }

    /// Whether a run went as it should.
    pub fn is_sound(&self, went: Option<&Went>) -> bool {
        went == self.sound.posture.as_ref()
    }

    /// How a run differs from a sound one.
    pub fn difference(&self, went: &Went) -> Vec<String> {
        let Some((
            Went::Ran { stdout: sound, .. },
            Went::Ran {
                stdout,
                status,
                enforced,
            },
        )) = self.sound.posture.as_ref().map(|sound| (sound, went))
        else {
            return vec![format!("{went:?}")];
        };
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let (mut lost, new) = (lines(sound), lines(stdout));
        let mut differing = Vec::new();
        for line in new {
            match lost.iter().position(|known| *known == line) {
                Some(position) => _ = lost.remove(position),
                None => differing.push(line),
            }
        }
        if status == "ok" {
            // A line that is not there tells of as much as one that is another.
            differing.extend(lost.into_iter().map(|line| format!("no more: {line}")));
        } else {
            differing.push(status.clone());
        }
        differing.retain(|line| !line.is_empty());
        if differing.is_empty() {
            differing.push(enforced.clone());
        }
        differing
    }

    /// Waits until a run is over, with a session beside it.
    pub fn settled_besides_session(&mut self) {
        let is_settled = |tracer: &Tracer| {
            let workers = tracer
                .family()
                .into_iter()
                .filter(|role| *role == Role::Worker);
            workers.count() == 1 && tracer.waits_in(Role::Zygote, "epoll_wait")
        };
        assert!(self.tracer.until(SETTLED, is_settled).is_some());
    }

    /// Waits until what was done for a record is over.
    pub fn settled(&mut self) {
        assert_eq!(self.left_over(), None);
    }

    /// What is left when a sandbox is idle again that should not be: nothing, if all is well.
    ///
    /// A zygote may have been given up: the next run starts another.
    pub fn left_over(&mut self) -> Option<String> {
        let family = self.sound.family.clone();
        let alone = [Role::Supervisor];
        let is_settled = |tracer: &Tracer| {
            let found = tracer.family();
            // What has ended is reaped, and the next request found waiting.
            (found == family && tracer.waits_in(Role::Zygote, "epoll_wait")) || found == alone
        };
        if self.tracer.until(SETTLED, is_settled).is_none() {
            return Some(format!("processes: {:?}", self.tracer.family()));
        }
        let sound = &self.sound;
        let as_before = |tracer: &Tracer| {
            tracer.family() != sound.family || descriptors(tracer) == sound.descriptors
        };
        if self.tracer.until(SETTLED, as_before).is_none() {
            let found = descriptors(&self.tracer);
            let sound = std::mem::replace(&mut self.sound.descriptors, found.clone());
            return Some(format!(
                "descriptors: {found:?}, where there were {sound:?}"
            ));
        }
        if mounts() != self.sound.mounts {
            return Some("a mount of the host's".to_owned());
        }
        // Some are kept for the next worker, empty and few.
        let cgroups = self.worker_cgroups();
        if cgroups.len() > MOST_SPARE * self.cgroups().len() {
            return Some(format!("the cgroups {cgroups:?}"));
        }
        let mut files = fs::read_dir(self.temporary.path()).expect("it is there");
        files.next().map(|file| format!("the file {file:?}"))
    }

    /// Those of its workers.
    pub fn worker_cgroups(&self) -> Vec<PathBuf> {
        let of_supervisor = self.cgroups().into_iter();
        let workers = of_supervisor.flat_map(|dir| entries(&dir));
        workers.filter(|path| path.is_dir()).collect()
    }

    /// The supervisor's directories in every hierarchy.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let parents: Vec<PathBuf> = match &self.host.machine.cgroup {
            CgroupSupport::V1 { controllers } => controllers.values().cloned().collect(),
            CgroupSupport::V2 { dir, .. } => vec![dir.clone()],
            CgroupSupport::Nowhere { .. } => Vec::new(),
        };
        let pid = self.tracer.pid().to_string();
        let is_of_pid = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let mut parts = name.split('-');
            parts.next() == Some("sandfork") && parts.nth(1) == Some(&pid)
        };
        let all: BTreeSet<PathBuf> = parents.iter().flat_map(entries).filter(is_of_pid).collect();
        all.into_iter().collect()
    }
}

/// An answer, read.
#[derive(Debug)]
pub struct Told {
    /// `None` when the supervisor ended.
    pub went: Option<Went>,
    pub fired: Option<Call>,
    pub calls: Vec<Call>,
    pub took: Duration,
}

impl From<Answer> for Told {
    fn from(answer: Answer) -> Self {
        let read = |line: String| serde_json::from_str(&line).expect("it is an answer");
        Self {
            went: answer.line.map(read),
            fired: answer.fired,
            calls: answer.calls,
            took: answer.took,
        }
    }
}

fn start(temporary: &TempDir, host: &Host) -> Tracer {
    // A wrapper, such as a version manager's, would have children of its own.
    let interpreter = format!(
        "python.interpreter={}",
        host.interpreter.executable.display()
    );
    // All that this host can give, or nothing: a fault of the probe is no reason for less.
    let level = match host.machine.cgroup {
        CgroupSupport::Nowhere { .. } => Level::Standard,
        _ => Level::Full,
    };
    let require = format!("assurance.require={level}");
    Tracer::start(&mut subject::command(
        temporary.path(),
        &[&interpreter, &require],
    ))
}

fn descriptors(tracer: &Tracer) -> Vec<usize> {
    let roles = [Role::Supervisor, Role::Init, Role::Zygote];
    roles.map(|role| tracer.descriptors(role)).to_vec()
}

fn mounts() -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("it can be read");
    table.lines().count()
}

fn entries(directory: &PathBuf) -> Vec<PathBuf> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}
