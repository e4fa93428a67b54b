//! A traced supervisor with a sandbox, the reference of a sound run, and the checks that it is sound again.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::Pid;
use sandfork::internals::host::{self, CgroupSupport, Host};
use sandfork::internals::plan::needs;
use sandfork::{FileSystem, Policy};
use tempfile::TempDir;

use crate::family::Shape;
use crate::family::{Call, Role};
use crate::fault::Fault;
use crate::setting::Setting;
use crate::sound::{Sound, beneath, children, descriptors, entries, mounts};
use crate::subject::{self, Reply};
use crate::tracer::{Answer, Tracer, Watch};

/// How long ended processes may take to be reaped on a busy host.
const SETTLED: Duration = Duration::from_secs(60);

/// The number of empty cgroups that a supervisor may keep for later workers, in each hierarchy: more than any
/// supervisor with one run at a time keeps, and fewer than so many faults would leave.
const MAX_SPARE: usize = 4;

pub struct Bench {
    pub tracer: Tracer,
    setting: Setting,
    temporary: TempDir,
    host: Host,
    sound: Sound,
}

impl Bench {
    /// Starts a supervisor and records the sound reference.
    pub fn new(setting: Setting) -> Self {
        let policy = Policy::load("standard", &[], &FileSystem).expect("a valid built-in policy");
        let host = host::probe(setting.interpreter(), &needs(&policy));
        let host = host.expect("there is an interpreter");
        let temporary = tempfile::tempdir().expect("the directory is created");
        setting.grant(temporary.path());
        let mut bench = Self {
            tracer: start(setting, &temporary, &host),
            setting,
            temporary,
            host,
            sound: Sound::default(),
        };
        bench.build();
        // The first run creates what a process keeps for all its runs.
        bench.ask("run");
        let posture = bench.ask("run").reply;
        let session = bench.ask("session").reply;
        // The posture guest reads files that exist only with namespaces.
        let has_posture = setting.shape() != Shape::Reapers;
        assert!(
            Reply::is_ok(posture.as_ref()) || !has_posture,
            "{posture:?}"
        );
        assert!(Reply::is_ok(session.as_ref()), "{session:?}");
        bench.rest();
        bench.sound = Sound {
            posture,
            session,
            descriptors: descriptors(&bench.tracer),
            zombies: 0,
            mounts: mounts(),
            files: beneath(bench.temporary.path()),
        };
        bench
    }

    /// Returns the setting of the supervisor.
    pub fn setting(&self) -> Setting {
        self.setting
    }

    /// Starts another supervisor after one has ended. Returns how long it took until its sandbox was ready, and what is
    /// then left of the previous supervisor.
    pub fn restart(&mut self) -> (Duration, Option<String>) {
        let before = self.tracer.pid();
        self.tracer.end();
        self.tracer = start(self.setting, &self.temporary, &self.host);
        let built = self.ask("build");
        assert_eq!(built.reply, Some(Reply::Done));
        let left = self.cgroups_of(before);
        // The first run creates what a process keeps for all its runs.
        self.ask("plain");
        self.rest();
        self.sound.descriptors = descriptors(&self.tracer);
        self.sound.zombies = 0;
        let left = (!left.is_empty()).then(|| format!("the cgroups {left:?}"));
        (built.took, left)
    }

    /// Builds a sandbox without a fault.
    pub fn build(&mut self) {
        let reply = self.ask("build").reply;
        assert_eq!(reply, Some(Reply::Done));
    }

    /// Executes a command.
    pub fn ask(&mut self, command: &str) -> CommandReport {
        CommandReport::from(self.tracer.ask(command, Watch::None))
    }

    /// Executes a command with a fault.
    pub fn ask_with(&mut self, command: &str, fault: Fault) -> CommandReport {
        CommandReport::from(self.tracer.ask(command, Watch::Until(fault)))
    }

    /// Builds a sandbox again after one was refused or its zygote was given up.
    pub fn ready(&mut self) {
        self.build();
        let reply = self.ask("plain").reply;
        assert!(Reply::is_plain(reply.as_ref()), "{reply:?}");
        self.settled();
    }

    /// Ends what a command would have to end first, so that its calls are reproducible.
    pub fn before(&mut self, command: &str) {
        if command == "build" {
            assert_eq!(self.ask("drop").reply, Some(Reply::Done));
        }
    }

    /// Records the calls that processes of a role make during a command.
    pub fn record(&mut self, command: &str, role: Role) -> Vec<Call> {
        self.before(command);
        CommandReport::from(self.tracer.ask(command, Watch::Calls(role))).calls
    }

    /// Returns the sound reference.
    pub fn sound(&self) -> &Sound {
        &self.sound
    }

    /// Waits until the sandbox is idle.
    fn rest(&mut self) {
        let family = self.setting.family();
        let is_idle = |tracer: &Tracer| tracer.family() == family && tracer.is_idle();
        assert!(
            self.tracer.until(SETTLED, is_idle).is_some(),
            "{:?} are left",
            self.tracer.family()
        );
    }

    /// Waits until a run has ended beside a live session.
    pub fn settled_besides_session(&mut self) {
        let is_settled = |tracer: &Tracer| {
            let family = tracer.family();
            let workers = family.iter().filter(|role| **role == Role::Worker);
            workers.count() == 1 && tracer.is_idle()
        };
        assert!(self.tracer.until(SETTLED, is_settled).is_some());
    }

    /// Waits until the effects of a recorded command are over.
    pub fn settled(&mut self) {
        assert_eq!(self.left_over(), None);
    }

    /// Returns what is left when the sandbox is idle again and should not be; `None` if nothing is left.
    ///
    /// The zygote may have been given up: the next run starts another.
    pub fn left_over(&mut self) -> Option<String> {
        let family = self.setting.family();
        let alone = [Role::Supervisor];
        let is_settled = |tracer: &Tracer| {
            let found = tracer.family();
            // Ended processes are reaped, and the next request would be accepted at once.
            (found == family && tracer.is_idle()) || found == alone
        };
        if self.tracer.until(SETTLED, is_settled).is_none() {
            return Some(format!("processes: {:?}", self.tracer.family()));
        }
        // All children except the launcher, if it exists.
        let zombies =
            |tracer: &Tracer| (children(tracer) + 1).saturating_sub(tracer.family().len().min(2));
        let known = self.sound.zombies;
        let are_reaped = |tracer: &Tracer| zombies(tracer) <= known;
        if self.tracer.until(SETTLED, are_reaped).is_none() {
            self.sound.zombies = zombies(&self.tracer);
            return Some(format!("{} zombies", self.sound.zombies));
        }
        let sound = &self.sound;
        let as_before =
            |tracer: &Tracer| tracer.family() != family || descriptors(tracer) == sound.descriptors;
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
        // A few empty cgroups are kept for the next worker.
        let cgroups = self.worker_cgroups();
        if cgroups.len() > MAX_SPARE * self.cgroups().len() {
            return Some(format!("the cgroups {cgroups:?}"));
        }
        let files = beneath(self.temporary.path());
        (files > self.sound.files).then(|| {
            let entries = entries(self.temporary.path());
            format!("{files} files: {entries:?}")
        })
    }

    /// Returns the cgroups of the supervisor's workers.
    pub fn worker_cgroups(&self) -> Vec<PathBuf> {
        let of_supervisor = self.cgroups().into_iter();
        let workers = of_supervisor.flat_map(|dir| entries(&dir));
        workers.filter(|path| path.is_dir()).collect()
    }

    /// Returns the supervisor's directories in every hierarchy.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        self.cgroups_of(self.tracer.pid())
    }

    fn cgroups_of(&self, supervisor: Pid) -> Vec<PathBuf> {
        let parents: Vec<PathBuf> = match &self.host.machine.cgroup {
            CgroupSupport::V1(controllers) => controllers.values().cloned().collect(),
            CgroupSupport::V2 { dir, .. } => vec![dir.clone()],
            CgroupSupport::Nowhere(_) => Vec::new(),
        };
        let pid = supervisor.to_string();
        let is_of_pid = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let mut parts = name.split('-');
            parts.next() == Some("sandfork") && parts.nth(1) == Some(&pid)
        };
        let entries = parents.iter().flat_map(|parent| entries(parent));
        let all: BTreeSet<PathBuf> = entries.filter(is_of_pid).collect();
        all.into_iter().collect()
    }
}

/// The parsed result of a command.
#[derive(Debug)]
pub struct CommandReport {
    /// `None` when the supervisor ended.
    pub reply: Option<Reply>,
    pub fired: Option<Call>,
    /// The killed process, if any.
    pub struck: Option<Pid>,
    pub calls: Vec<Call>,
    pub took: Duration,
}

impl From<Answer> for CommandReport {
    fn from(answer: Answer) -> Self {
        let read = |line: String| serde_json::from_str(&line).expect("a valid reply");
        Self {
            reply: answer.line.map(read),
            fired: answer.fired,
            struck: answer.struck,
            calls: answer.calls,
            took: answer.took,
        }
    }
}

fn start(setting: Setting, temporary: &TempDir, host: &Host) -> Tracer {
    // A wrapper, such as a version manager's, would have child processes.
    let interpreter = format!(
        "python.interpreter={}",
        host.interpreter.executable.display()
    );
    let require = format!("assurance.require={}", setting.level(host));
    let mut command = setting.command();
    subject::prepare(&mut command, temporary.path(), &[&interpreter, &require]);
    Tracer::start(&mut command, setting.shape())
}
