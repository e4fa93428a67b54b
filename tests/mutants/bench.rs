//! A traced supervisor, and what guests find in a jail that lacks one part.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::edit::Edit;
use crate::filters;
use crate::fixture::{Fixture, LEAVING};
use crate::mutant::{Mutant, Mutation, Trouble};
use crate::off::Off;
use crate::parts;
use crate::step::{Recorder, Step};
use crate::subject::{self, Reply};
use crate::tracer::{Changes, Tracer};
use crate::verdict::{Verdict, judge};
use sandfork::Layer;

/// A guest program, and the policy settings that it needs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Guest {
    pub name: &'static str,
    settings: &'static str,
    /// Whether it tries to reach another worker.
    meets: bool,
}

const fn guest(name: &'static str) -> Guest {
    Guest {
        name,
        settings: "",
        meets: false,
    }
}

/// The guests whose findings are the same in every sound jail.
pub const POSTURE: [Guest; 3] = [
    guest("calls"),
    guest("files"),
    Guest {
        meets: true,
        ..guest("process")
    },
];

/// The guest that inspects a network of its own.
pub const NETWORK: Guest = Guest {
    settings: LOOPBACK,
    ..guest("network")
};

/// The guest that is inspected where hosts can be reached.
const HOSTS: Guest = Guest {
    settings: ALLOW,
    ..guest("process")
};

pub const LOOPBACK: &str = "network.mode=loopback";
const ALLOW: &str = "network.mode=allow";

/// The guests that run into a limit, which only run where a limit is missing.
const LIMITS: [Guest; 3] = [
    guest("memory"),
    guest("tasks"),
    Guest {
        settings: "limits.cores=0.1",
        ..guest("cores")
    },
];

/// Returns the guests that inspect what a mutant changes, the most thorough ones first.
pub fn guests(mutant: &Mutant) -> Vec<Guest> {
    match mutant.settings {
        LOOPBACK => return vec![NETWORK],
        ALLOW => return vec![HOSTS],
        _ => {}
    }
    let [calls, files, process] = POSTURE;
    match mutant.layer {
        Layer::Seccomp => vec![calls, process, files],
        Layer::Mounts | Layer::Landlock => vec![files, process, calls],
        Layer::Cgroup => [&LIMITS[..], &[process]].concat(),
        _ => vec![process, files, calls],
    }
}

/// Returns the layers that may stop the same attempts as this one, so that a mutant shows only without them.
fn overlapping(layer: Layer) -> &'static [Layer] {
    match layer {
        Layer::Mounts => &[Layer::Landlock],
        Layer::Landlock => &[Layer::Mounts, Layer::Seccomp],
        Layer::Capabilities | Layer::Namespaces => &[Layer::Seccomp, Layer::Landlock],
        Layer::Seccomp | Layer::Rlimits | Layer::Cgroup => &[],
    }
}

/// A mutation that may be used for several guests.
struct Change {
    /// The change's number if it also affects zygotes, so that it needs its own zygote.
    number: Option<u64>,
    mutation: Rc<RefCell<Mutation>>,
    trouble: Trouble,
    off: Option<Layer>,
}

pub struct Bench {
    tracer: Tracer,
    fixture: Fixture,
    settings: Vec<String>,
    /// The current sandbox: its policy settings, and the number of the change with which its zygote was
    /// made, if any.
    standing: Option<(&'static str, Option<u64>)>,
    /// Whether another worker listens in the sandbox.
    is_listening: bool,
    /// The number of changes so far.
    changes: u64,
    mutants: Vec<Mutant>,
    /// What each guest finds in a sound jail.
    sound: BTreeMap<(Guest, Option<Layer>), Reply>,
}

/// Limits that are small enough to be reached.
const SETTINGS: [&str; 8] = [
    "limits.memory=64MiB",
    "limits.pids=32",
    "limits.wall=60s",
    "limits.cpu=60s",
    "filesystem.work_size=16MiB",
    "filesystem.work_inodes=256",
    "filesystem.tmp_size=16MiB",
    "filesystem.tmp_inodes=256",
];

impl Bench {
    pub fn new() -> Self {
        let fixture = Fixture::new().expect("there is room for a few files");
        let mut settings: Vec<String> = SETTINGS.map(str::to_owned).into();
        let modules = fixture.modules().expect("the files are this process's");
        settings.push(format!("python.path={}", modules.display()));
        settings.push(format!("python.preload={LEAVING}"));
        for (key, path) in fixture.directories() {
            settings.push(format!("{key}={}", path.display()));
        }
        Self {
            tracer: start(&settings, &fixture),
            fixture,
            settings,
            standing: None,
            is_listening: false,
            changes: 0,
            mutants: Vec::new(),
            sound: BTreeMap::new(),
        }
    }

    /// Returns every mutant of the observed set-up of the jail.
    pub fn mutants(&mut self) -> Vec<Mutant> {
        if self.mutants.is_empty() {
            let mut all = parts::mutants(&self.record(""));
            for settings in [LOOPBACK, ALLOW] {
                let made = parts::mutants(&self.record(settings)).into_iter();
                let is_new = |mutant: &Mutant| all.iter().all(|known| known.name != mutant.name);
                let new: Vec<Mutant> = made.filter(is_new).collect();
                all.extend(new.into_iter().map(|mutant| mutant.with(settings)));
            }
            self.mutants = [all, filters::mutants()].concat();
        }
        self.mutants.clone()
    }

    /// Returns every step of the set-up of a sandbox with these settings and of a worker, in order.
    fn record(&mut self, settings: &str) -> Vec<Step> {
        let recorder = Recorder::default();
        let steps = recorder.steps.clone();
        self.tracer.changes = Some(Box::new(recorder));
        self.standing = None;
        let built = self.ask(&format!("build {settings}"));
        assert_eq!(built, Some(Reply::Done));
        let reply = self.ask("run tasks");
        assert!(matches!(reply, Some(Reply::Ran { .. })), "{reply:?}");
        self.tracer.changes = None;
        steps.take()
    }

    /// Returns what a guest finds in a sound jail, or in one without a layer.
    pub fn sound(&mut self, guest: Guest, off: Option<Layer>) -> Reply {
        if let Some(reply) = self.sound.get(&(guest, off)) {
            return reply.clone();
        }
        let change = self.change(Vec::new(), off);
        let reply = self.run(guest, &change);
        assert_eq!(change.trouble.take(), None, "without {off:?}");
        let reply = reply.expect("the supervisor continues");
        assert!(
            matches!(reply, Reply::Ran { .. }),
            "without {off:?}: {reply:?}"
        );
        self.sound.insert((guest, off), reply.clone());
        reply
    }

    /// Returns which check detects the mutant.
    pub fn judge(&mut self, mutant: &Mutant) -> Verdict {
        let found = self.compare(mutant, None);
        if found != Verdict::Survived {
            return found;
        }
        // What is specific to a network has no second layer.
        let overlapping = match mutant.settings {
            "" => overlapping(mutant.layer),
            _ => &[],
        };
        for off in overlapping {
            if let Verdict::Guest { difference, .. } = self.compare(mutant, Some(*off)) {
                return Verdict::Doubled {
                    by: *off,
                    difference,
                };
            }
        }
        Verdict::Survived
    }

    fn compare(&mut self, mutant: &Mutant, off: Option<Layer>) -> Verdict {
        let guests = guests(mutant);
        let sound: Vec<Reply> = guests.iter().map(|guest| self.sound(*guest, off)).collect();
        let change = self.change(mutant.edits.clone(), off);
        for (guest, sound) in guests.iter().zip(&sound) {
            let reply = self.run(*guest, &change);
            if let Some(trouble) = change.trouble.take() {
                return Verdict::Untried(trouble);
            }
            let verdict = judge(sound, reply.as_ref());
            if verdict != Verdict::Survived {
                return verdict.by(guest.name);
            }
        }
        Verdict::Survived
    }

    fn change(&mut self, edits: Vec<Edit>, off: Option<Layer>) -> Change {
        let mutant = Mutation::new(edits, off.map(Off::new));
        self.changes += 1;
        Change {
            number: (!mutant.is_of_workers_only()).then_some(self.changes),
            trouble: mutant.trouble(),
            mutation: Rc::new(RefCell::new(mutant)),
            off,
        }
    }

    /// Runs a guest in a jail that is set up with these changes; `None` if that ends the supervisor.
    fn run(&mut self, guest: Guest, change: &Change) -> Option<Reply> {
        self.fixture.reset().expect("the files are this process's");
        let reply = self.try_run(guest, change);
        self.tracer.changes = None;
        if reply.is_none() {
            self.tracer = start(&self.settings, &self.fixture);
        }
        if !matches!(reply, Some(Reply::Ran { .. })) {
            // The zygote was given up. Workers of the next one would have another network than the listener.
            self.standing = None;
        }
        Some(self.comparable(reply?, change.off))
    }

    fn try_run(&mut self, guest: Guest, change: &Change) -> Option<Reply> {
        let standing = Some((guest.settings, change.number));
        let changes =
            || -> Option<Box<dyn Changes>> { Some(Box::new(Rc::clone(&change.mutation))) };
        if self.standing != standing {
            self.standing = None;
            if change.number.is_some() {
                self.tracer.changes = changes();
            }
            let built = self.ask(&format!("build {}", guest.settings))?;
            if built != Reply::Done {
                return Some(built);
            }
            self.standing = standing;
            self.is_listening = false;
        }
        self.tracer.changes = changes();
        // A session has its own thread, whose calls are not traced, so that their results would not be changed.
        if guest.meets && change.off.is_none() && !self.is_listening {
            match self.ask("listen")? {
                Reply::Ran { status, .. } if status == "ok" => self.is_listening = true,
                other => return Some(other),
            }
        }
        self.ask(&format!("run {}", guest.name))
    }

    fn ask(&mut self, command: &str) -> Option<Reply> {
        let line = self.tracer.ask(command)?;
        Some(serde_json::from_str(&line).expect("a valid reply"))
    }

    /// Removes what differs between hosts or from run to run.
    fn comparable(&self, reply: Reply, off: Option<Layer>) -> Reply {
        let Reply::Ran {
            status,
            mut stdout,
            mut stderr,
        } = reply
        else {
            return reply;
        };
        let names = ["<read>", "<read in tmp>", "<written>", "<hidden>"];
        let paths = self.fixture.directories().map(|(_, path)| path);
        let hidden = self.fixture.hidden();
        for (path, name) in paths.iter().chain([&hidden]).zip(names) {
            for text in [&mut stdout, &mut stderr] {
                *text = text.replace(&path.display().to_string(), name);
            }
        }
        if off.is_some() {
            // Without the mount namespace, the jail contains the host's mounts, however many there are. The listener
            // depends on the previous guest, and without the filters the kernel reports the amount of free memory.
            let differs = |line: &str| {
                line.contains(": holds ")
                    || line.starts_with("meet ")
                    || line.starts_with("memory ")
            };
            let kept = stdout.lines().filter(|line| !differs(line));
            stdout = kept.collect::<Vec<_>>().join("\n");
        }
        Reply::Ran {
            status,
            stdout,
            stderr,
        }
    }
}

fn start(settings: &[String], fixture: &Fixture) -> Tracer {
    Tracer::start(&mut subject::command(settings, &fixture.header()))
}
