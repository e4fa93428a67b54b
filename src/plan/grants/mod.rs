//! Explains refused operations: which layer refused, and which policy key would allow the operation.
//!
//! Nothing here accesses the host: paths are compared lexically with those that the plan shows. The
//! explanations are for the caller, never for the guest.

mod network;

use std::path::{Path, PathBuf};

pub use network::of_connection;

use super::Plan;
use super::paths::{SHM, TMP, WORK, clash};
use super::seccomp::{Preset, Surroundings, may_be_allowed};
use crate::outcome::{Layer, LimitName, Limits};
use crate::policy::{
    ImportPattern, Level, ModeRule, NetworkMode, Override, Policy, SystemFiles, normalize,
};
use sandfork_jail::program::{Access, PathAccess, PathRule, ProcMount, RootEntry};

/// The key that denies system calls. Removing a call from it allows the call.
pub const DENIED_CALLS: &str = "syscalls.deny";

/// The system call by which guests run programs.
pub const RUNS_PROGRAMS: &str = "execve";

/// The maximum length of a guest's path: `PATH_MAX`.
const MAX_PATH: usize = 4096;

/// The operations that a sandbox grants its guests.
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

/// The access to a path that a guest tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Want {
    /// Read or list the path.
    Read,
    /// Write to or create the path.
    Write,
    /// Execute the path.
    Run,
}

/// The explanation of a refused operation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Explanation {
    /// The layer that refused the operation. `None` if it was not a layer.
    pub layer: Option<Layer>,
    /// The policy key that would allow the operation.
    pub key: Option<&'static str>,
    /// The value of the key.
    pub value: Option<String>,
}

/// The plan's verdict on access to a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PathVerdict {
    /// No rule of the sandbox refuses the access.
    Granted,
    /// The guest does not see the path, whether or not it exists on the host.
    Hidden(Explanation),
    /// The guest sees the path, but the access is refused.
    Refused(Explanation),
}

impl Explanation {
    fn by(layer: Layer) -> Self {
        Self {
            layer: Some(layer),
            ..Self::default()
        }
    }

    /// Adds the key that allows the operation, and its value unless a policy would reject the value or it is deceptive.
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

    /// Returns the argument of `--set` that allows the operation.
    pub fn set(&self) -> Option<String> {
        Some(format!("{}={}", self.key?, self.value.as_ref()?))
    }
}

impl Grants {
    /// Returns whether the guest sees the system's programs.
    pub fn shows_programs(&self) -> bool {
        self.system == SystemFiles::Programs
    }

    /// Creates the grants of a plan that was computed from this policy.
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

    /// Explains a refused import. Returns `None` if the policy allows all imports.
    pub fn of_import(&self, module: &str) -> Option<Explanation> {
        let is_listed = |pattern: &ImportPattern| *pattern == ImportPattern::Everything;
        let refused = !self.imports.iter().any(is_listed);
        refused.then(|| Explanation::default().allowed_by("imports.allow", module))
    }

    /// Explains a system call that the filter refused.
    pub fn of_call(&self, name: &str) -> Explanation {
        let refused = Explanation::by(Layer::Seccomp);
        let surroundings = match self.level {
            // The preset for the oldest kernel allows the least.
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
                // A program needs the whole family, so allowing only a part of it would not help.
                calls if !calls.iter().all(|call| may_be_allowed(surroundings, call)) => refused,
                [only] => refused.allowed_by("syscalls.allow", *only),
                calls => refused.allowed_by("syscalls.allow", format!("{calls:?}")),
            }
        }
    }

    /// Explains a program that could not run because the policy denies `execve`: the filter answers before the kernel
    /// looks up the program. Returns `None` if the guest's exception may come from another call.
    pub fn of_program(&self, path: &Path, want: Want) -> Option<Explanation> {
        let is_run = want == Want::Run || is_program(&normalize(path));
        let is_denied = self.denied.iter().any(|denied| denied == RUNS_PROGRAMS);
        (is_run && is_denied).then(|| self.of_call(RUNS_PROGRAMS))
    }

    /// Returns the verdict on a path that a guest named. `own` is the guest's directory on the host, if the guest has
    /// no private file system.
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

    /// Explains how to show the host's file at a path that does not exist in one of the guest's private directories,
    /// such as `/tmp`. Returns `None` for other paths.
    pub fn of_own_directory(&self, path: &Path, want: Want) -> Option<Explanation> {
        if self.level == Level::Landlock || path.as_os_str().len() > MAX_PATH {
            return None;
        }
        let path = normalize(path);
        let nearest = self.nearest(&self.through_links(&path))?;
        is_own_directory(nearest).then(|| self.hidden(&path, want))
    }

    /// Returns the layer that decides which paths the guest sees.
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

    /// Explains a refused write to a path that is shown read-only. Only paths that the policy shows can be made
    /// writable, not those of the system or the interpreter.
    fn unwritable(&self, path: &Path) -> Explanation {
        let refused = Explanation::by(self.view_layer());
        match self.read.iter().find(|read| path.starts_with(read)) {
            // The user has to move the path from one list to the other, so no single setting helps.
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

    /// Resolves the sandbox's symbolic links at the start of a path, such as `/lib` on a system with a merged `/usr`.
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

    /// Returns whether the nearest mount and the Landlock rules allow writes.
    fn is_writable(&self, path: &Path) -> bool {
        let is_mounted_writable = |entry: &RootEntry| match entry {
            RootEntry::Bind { access, .. } => *access == Access::ReadWrite,
            RootEntry::Device { .. } => true,
            entry => is_own_directory(entry),
        };
        let access = self.rule(path).map(|rule| rule.allow);
        (self.level == Level::Landlock || self.nearest(path).is_some_and(is_mounted_writable))
            && matches!(
                access,
                Some(
                    PathAccess::ReadWrite
                        | PathAccess::ReadWriteExecute
                        | PathAccess::ReadWriteFile
                )
            )
    }

    /// Returns the nearest entry of the root at or above a path.
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

    /// Returns the nearest Landlock rule at or above a path. Landlock grants the union of all rules above a path, and
    /// in a plan no rule grants less than a rule above it.
    fn rule(&self, path: &Path) -> Option<&PathRule> {
        let above = self
            .rules
            .iter()
            .filter(|rule| path.starts_with(&rule.path));
        above.max_by_key(|rule| rule.path.components().count())
    }
}

/// Returns whether the entry is a private, writable directory of each guest.
fn is_own_directory(entry: &RootEntry) -> bool {
    match entry {
        RootEntry::WorkerMountPoint { target } => {
            [WORK, TMP, SHM].iter().any(|own| target == Path::new(own))
        }
        _ => false,
    }
}

/// Returns whether this character can make a text look like a different text, or control a terminal. Guests choose
/// names that callers may copy.
pub(crate) fn is_deceptive(c: char) -> bool {
    let is_invisible = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    c.is_control() || is_invisible
}

/// Escapes the characters of a guest's text that could deceive a reader or control a terminal.
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

/// Returns whether a system path looks like that of a program.
fn is_program(path: &Path) -> bool {
    let of_system = ["/usr", "/bin", "/sbin"]
        .iter()
        .any(|system| path.starts_with(system));
    of_system && path.iter().any(|part| part == "bin" || part == "sbin")
}

/// Explains a limit that was reached.
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
