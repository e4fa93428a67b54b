//! What a plan grants, and the key of a policy that would grant what was refused.
//!
//! Nothing here asks the host: paths are compared as text with what the plan shows. The answers are for the
//! caller, never for the guest.

mod network;

use std::path::{Path, PathBuf};

pub use network::of_connection;

use super::Plan;
use super::places::{SHM, TMP, WORK, clash};
use super::seccomp::{Preset, Surroundings, may_be_allowed};
use crate::outcome::{Layer, LimitName, Limits};
use crate::policy::{
    ImportPattern, Level, ModeRule, NetworkMode, Override, Policy, SystemFiles, normalize,
};
use sandfork_jail::program::{Access, PathAccess, PathRule, ProcMount, RootEntry};

/// The key that refuses a system call in place of allowing it.
pub const DENIED_CALLS: &str = "syscalls.deny";

/// The system call by which guests run programs.
pub const RUNS_PROGRAMS: &str = "execve";

/// The longest path that a guest may name: `PATH_MAX`.
const MAX_PATH: usize = 4096;

/// What a sandbox grants its guests.
#[derive(Clone, Debug)]
pub struct Grants {
    level: Level,
    network: NetworkMode,
    mode_rule: ModeRule,
    /// Paths that the policy shows read-only.
    read: Vec<PathBuf>,
    system: SystemFiles,
    proc: ProcMount,
    imports: Vec<ImportPattern>,
    /// System calls that the policy denies.
    denied: Vec<String>,
    root: Vec<RootEntry>,
    rules: Vec<PathRule>,
}

/// What a guest wanted of a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Want {
    /// To read or list it.
    Read,
    /// To write to it or to make it.
    Write,
    /// To run it.
    Run,
}

/// What a policy says of a refused operation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Explanation {
    /// The layer that refused it, if one did.
    pub layer: Option<Layer>,
    /// The key that would allow it.
    pub key: Option<&'static str>,
    /// The value of the key.
    pub value: Option<String>,
}

/// What a plan says of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PathVerdict {
    /// No rule of the sandbox refuses what was wanted.
    Granted,
    /// The guest does not see the path. It may or may not be on the host.
    Hidden(Explanation),
    /// The guest sees the path, and may not do what it wanted.
    Refused(Explanation),
}

impl Explanation {
    fn by(layer: Layer) -> Self {
        Self {
            layer: Some(layer),
            ..Self::default()
        }
    }

    /// Names the key that allows it, and a value, which is left out if no policy could have it.
    fn allowed_by(self, key: &'static str, value: impl Into<String>) -> Self {
        let value = value.into();
        let set: Result<Override, _> = format!("{key}={value}").parse();
        let can_be_set = set.is_ok_and(|set| set.is_valid()) && !value.contains(is_deceptive);
        Self {
            key: Some(key),
            value: can_be_set.then_some(value),
            ..self
        }
    }

    /// The argument of `--set`.
    pub fn set(&self) -> Option<String> {
        Some(format!("{}={}", self.key?, self.value.as_ref()?))
    }
}

impl Grants {
    /// Whether there is anything that a guest can run.
    pub fn shows_programs(&self) -> bool {
        self.system == SystemFiles::Programs
    }

    /// The grants of a plan that was made from this policy.
    pub fn new(policy: &Policy, plan: &Plan) -> Self {
        let landlock = plan.jail.landlock.as_ref();
        Self {
            level: plan.level,
            network: policy.network.mode.value,
            mode_rule: policy.network.mode_rule,
            read: policy
                .filesystem
                .read
                .iter()
                .map(|path| path.value.clone())
                .collect(),
            system: policy.filesystem.system,
            proc: plan.jail.worker.proc,
            imports: policy.imports.allow.clone(),
            denied: policy
                .syscalls
                .deny
                .iter()
                .map(|name| name.value.clone())
                .collect(),
            root: plan.jail.root.clone(),
            rules: landlock
                .map(|rules| rules.paths.clone())
                .unwrap_or_default(),
        }
    }

    /// What would allow the import of a module, or `None` if the policy's list allows it.
    pub fn of_import(&self, module: &str) -> Option<Explanation> {
        let is_listed = |pattern: &ImportPattern| *pattern == ImportPattern::Everything;
        let refused = !self.imports.iter().any(is_listed);
        refused.then(|| Explanation::default().allowed_by("imports.allow", module))
    }

    /// What would allow a system call that the filter refuses with these arguments.
    pub fn of_call(&self, name: &str) -> Explanation {
        let refused = Explanation::by(Layer::Seccomp);
        let surroundings = match self.level {
            // For an older kernel: it allows the least.
            Level::Landlock => Surroundings::SharedHost { landlock_abi: 0 },
            Level::Standard | Level::Full => Surroundings::Namespaces,
        };
        if self.denied.iter().any(|denied| denied == name) {
            Explanation {
                key: Some(DENIED_CALLS),
                ..refused
            }
        } else {
            let family = Preset::family(name);
            match family.as_slice() {
                // Some of a family alone help no program.
                calls if !calls.iter().all(|call| may_be_allowed(surroundings, call)) => refused,
                [only] => refused.allowed_by("syscalls.allow", *only),
                calls => refused.allowed_by("syscalls.allow", format!("{calls:?}")),
            }
        }
    }

    /// What keeps a guest from running a program if the policy denies `execve`: the filter answers before the kernel
    /// looks for the program. `None` where the guest's exception can be of another call.
    pub fn of_program(&self, path: &Path, want: Want) -> Option<Explanation> {
        let is_run = want == Want::Run || is_program(&normalize(path));
        let is_denied = self.denied.iter().any(|denied| denied == RUNS_PROGRAMS);
        (is_run && is_denied).then(|| self.of_call(RUNS_PROGRAMS))
    }

    /// What the plan says of a path that a guest named. `own` is the guest's directory on the host, if it has no
    /// file system of its own.
    pub fn of_path(&self, path: &Path, want: Want, own: Option<&Path>) -> PathVerdict {
        let is_own = |own: &Path| path.starts_with(own);
        if !path.is_absolute() || path.as_os_str().len() > MAX_PATH || own.is_some_and(is_own) {
            return PathVerdict::Granted;
        }
        let path = normalize(path);
        let found = self.through_links(&path);
        match (self.shows(&found), want) {
            (false, _) => PathVerdict::Hidden(self.hidden(&path, want)),
            (true, Want::Read) => PathVerdict::Granted,
            (true, Want::Write) if self.is_writable(&found) => PathVerdict::Granted,
            (true, Want::Write) => PathVerdict::Refused(self.unwritable(&path)),
            (true, Want::Run) if self.is_runnable(&found) => PathVerdict::Granted,
            (true, Want::Run) => PathVerdict::Refused(self.not_runnable(&found)),
        }
    }

    /// What would show the host's file at a path that the guest lacks in a directory of its own, such as `/tmp`. `None`
    /// for other paths.
    pub fn of_own_directory(&self, path: &Path, want: Want) -> Option<Explanation> {
        if self.level == Level::Landlock || path.as_os_str().len() > MAX_PATH {
            return None;
        }
        let path = normalize(path);
        let nearest = self.nearest(&self.through_links(&path))?;
        is_own_directory(nearest).then(|| self.hidden(&path, want))
    }

    /// The layer that decides which paths there are.
    fn view_layer(&self) -> Layer {
        match self.level {
            Level::Landlock => Layer::Landlock,
            Level::Standard | Level::Full => Layer::Mounts,
        }
    }

    fn hidden(&self, path: &Path, want: Want) -> Explanation {
        let hidden = Explanation::by(self.view_layer());
        if path.starts_with("/proc") && self.level > Level::Landlock {
            return match self.proc {
                ProcMount::Absent => hidden.allowed_by("filesystem.proc", "true"),
                ProcMount::Own => hidden,
            };
        }
        if clash(path).is_some() {
            return hidden;
        }
        if self.system == SystemFiles::Libraries && is_program(path) && want != Want::Write {
            return hidden.allowed_by("filesystem.system", "programs");
        }
        let key = match want {
            Want::Write => "filesystem.write",
            Want::Read | Want::Run => "filesystem.read",
        };
        match path.to_str() {
            Some(text) => hidden.allowed_by(key, text),
            None => Explanation {
                key: Some(key),
                ..hidden
            },
        }
    }

    /// An existing path that is shown read-only can be made writable only if the policy shows it, and not the system or
    /// the interpreter.
    fn unwritable(&self, path: &Path) -> Explanation {
        let refused = Explanation::by(self.view_layer());
        match self.read.iter().find(|read| path.starts_with(read)) {
            // To be writable, it must not be in the other list.
            Some(read) if read == path => Explanation {
                key: Some("filesystem.write"),
                ..refused
            },
            Some(_) => refused.allowed_by("filesystem.write", path.to_string_lossy()),
            None => refused,
        }
    }

    fn not_runnable(&self, path: &Path) -> Explanation {
        let refused = Explanation::by(self.view_layer());
        if path.starts_with(WORK) && self.level > Level::Landlock {
            return refused.allowed_by("filesystem.work_exec", "true");
        }
        if self.system == SystemFiles::Libraries {
            return refused.allowed_by("filesystem.system", "programs");
        }
        refused
    }

    /// Resolves the sandbox's own links at the start of a path, such as `/lib` on a system with a merged `/usr`.
    fn through_links(&self, path: &Path) -> PathBuf {
        let resolved = self.root.iter().find_map(|entry| match entry {
            RootEntry::Symlink { target, points_at } => {
                let rest = path.strip_prefix(target).ok()?;
                let parent = target.parent().unwrap_or(Path::new("/"));
                Some(normalize(&parent.join(points_at).join(rest)))
            }
            _ => None,
        });
        resolved.unwrap_or_else(|| path.to_owned())
    }

    fn shows(&self, path: &Path) -> bool {
        if self.level == Level::Landlock {
            return self
                .rule(path)
                .is_some_and(|rule| rule.allow != PathAccess::List);
        }
        self.root.iter().any(|entry| match entry {
            RootEntry::Bind { target, .. } | RootEntry::WorkerMountPoint { target } => {
                path.starts_with(target) || target.starts_with(path)
            }
            RootEntry::Directory { .. }
            | RootEntry::File { .. }
            | RootEntry::Certificates { .. }
            | RootEntry::Symlink { .. }
            | RootEntry::Device { .. } => entry.target().starts_with(path),
        })
    }

    /// Whether the nearest mount and Landlock's rules let the guest write.
    fn is_writable(&self, path: &Path) -> bool {
        let is_mounted_so = |entry: &RootEntry| match entry {
            RootEntry::Bind { access, .. } => *access == Access::ReadWrite,
            RootEntry::Device { .. } => true,
            entry => is_own_directory(entry),
        };
        let access = self.rule(path).map(|rule| rule.allow);
        (self.level == Level::Landlock || self.nearest(path).is_some_and(is_mounted_so))
            && matches!(
                access,
                Some(
                    PathAccess::ReadWrite
                        | PathAccess::ReadWriteExecute
                        | PathAccess::ReadWriteFile
                )
            )
    }

    /// The entry of the root that a path is at or beneath.
    fn nearest(&self, path: &Path) -> Option<&RootEntry> {
        let above = self.root.iter();
        let above = above.filter(|entry| path.starts_with(entry.target()));
        above.max_by_key(|entry| entry.target().components().count())
    }

    fn is_runnable(&self, path: &Path) -> bool {
        let access = self.rule(path).map(|rule| rule.allow);
        matches!(
            access,
            Some(PathAccess::ReadExecute | PathAccess::ReadWriteExecute)
        )
    }

    /// The Landlock rule nearest to a path. Landlock adds up the rules above a path, and no plan has one that
    /// takes away.
    fn rule(&self, path: &Path) -> Option<&PathRule> {
        let above = self
            .rules
            .iter()
            .filter(|rule| path.starts_with(&rule.path));
        above.max_by_key(|rule| rule.path.components().count())
    }
}

/// Whether it is a directory that each guest has for itself and writes to.
fn is_own_directory(entry: &RootEntry) -> bool {
    match entry {
        RootEntry::WorkerMountPoint { target } => {
            [WORK, TMP, SHM].iter().any(|own| target == Path::new(own))
        }
        _ => false,
    }
}

/// Whether a text with this character may look like another one, or act on a terminal. A guest chooses names that
/// its caller is to copy.
pub(crate) fn is_deceptive(c: char) -> bool {
    let is_invisible = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    c.is_control() || is_invisible
}

/// A guest's text, in which no character acts on the terminal or makes it look like another one.
pub(crate) fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_deceptive(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Whether a path of the system looks like that of a program.
fn is_program(path: &Path) -> bool {
    let of_system = ["/usr", "/bin", "/sbin"]
        .iter()
        .any(|system| path.starts_with(system));
    of_system && path.iter().any(|part| part == "bin" || part == "sbin")
}

/// What would raise a limit.
pub fn of_limit(name: LimitName, limits: &Limits, layer: Option<Layer>) -> Explanation {
    let reached = Explanation {
        layer,
        key: Some(name.key()),
        value: None,
    };
    match limits.raised_text(name) {
        Some(raised) => reached.allowed_by(name.key(), raised),
        None => reached,
    }
}
