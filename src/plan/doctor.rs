//! The report of `sandfork doctor`: whether each layer is available here, why, and the remedy.

use std::fmt;

use serde::Serialize;

use super::assess::{Assessment, assess};
use super::layer_state::LayerState;
use super::obstacle::best_level;
use super::preload::{PreloadPlan, loaded};
use crate::error::Error;
use crate::host::{Interpreter, Machine};
use crate::policy::Level;

/// The assessment of a machine and an interpreter.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The kernel's release.
    pub kernel: String,
    /// The effective uid of the assessment.
    pub uid: u32,
    /// The best available level; `None` if nothing may run at all.
    pub level: Option<Level>,
    /// Every layer.
    pub layers: Vec<Assessment>,
    /// The interpreter.
    pub interpreter: Usability<InterpreterFound>,
    /// The directory in which a start finds what earlier ones left, where it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Usability<DirectoryFound>>,
    /// The directory of environments of packages, where it was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environments: Option<Usability<DirectoryFound>>,
    /// Whether live sessions can be copied at the best level, where it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<Usability<()>>,
    /// Whether a zygote's forks copy at once what workers write to, where it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forks: Option<Usability<CopiedPages>>,
    /// What the built-in policies preload, where it was tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preloads: Vec<PreloadDiagnosis>,
}

/// Whether something can be used.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Usability<T> {
    /// It can.
    Usable(T),
    /// It cannot.
    Unusable {
        /// The reason and the remedy.
        error: String,
    },
}

impl<T> Usability<T> {
    /// Whether a search found it.
    pub fn of<E: fmt::Display>(found: Result<T, E>) -> Self {
        match found {
            Ok(found) => Self::Usable(found),
            Err(error) => Self::Unusable {
                error: error.to_string(),
            },
        }
    }
}

/// Where something is kept for later runs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct DirectoryFound {
    /// The directory.
    pub directory: String,
}

/// What each fork copies at once.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct CopiedPages {
    /// The number of pages.
    pub pages: usize,
}

/// A suitable interpreter.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct InterpreterFound {
    /// The path to execute.
    pub executable: String,
    /// Its version.
    pub version: String,
}

/// What became of the preloads of a policy.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct PreloadDiagnosis {
    /// The policy.
    pub policy: String,
    /// Each module, if a zygote could be made.
    pub modules: Vec<PreloadPlan>,
    /// Why none could be made, with the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Assesses a machine, and the result of probing an interpreter.
pub fn diagnose(machine: &Machine, interpreter: Result<&Interpreter, &Error>) -> Diagnosis {
    Diagnosis {
        kernel: machine.kernel.release.clone(),
        uid: machine.user.uid,
        level: best_level(machine),
        layers: assess(machine),
        interpreter: Usability::of(interpreter.map(|found| {
            let (major, minor, patch) = found.version;
            InterpreterFound {
                executable: found.executable.display().to_string(),
                version: format!("{major}.{minor}.{patch}"),
            }
        })),
        cache: None,
        environments: None,
        snapshots: None,
        forks: None,
        preloads: Vec::new(),
    }
}

impl Diagnosis {
    /// Whether this interpreter allows sandboxes of some level.
    pub fn is_usable(&self) -> bool {
        self.level.is_some() && matches!(self.interpreter, Usability::Usable(_))
    }
}

impl LayerState {
    /// Whether the layer is available, in a word.
    fn answer(self) -> &'static str {
        match self {
            Self::Enforced => "yes",
            Self::Degraded => "degraded",
            Self::Absent => "no",
        }
    }
}

/// A line of the report: whether something is available, and what of it.
fn row(
    f: &mut fmt::Formatter<'_>,
    name: impl fmt::Display,
    answer: &str,
    what: impl fmt::Display,
) -> fmt::Result {
    writeln!(f, "  {name:<14}{answer:<10}{what}")
}

impl<T> Usability<T> {
    fn row(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        describe: fn(&T) -> String,
    ) -> fmt::Result {
        match self {
            Self::Usable(found) => row(f, name, "yes", describe(found)),
            Self::Unusable { error } => row(f, name, "no", error),
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Linux {}, uid {}", self.kernel, self.uid)?;
        for layer in &self.layers {
            row(f, layer.layer, layer.state.answer(), &layer.why)?;
            if let Some(remedy) = &layer.remedy {
                writeln!(f, "  {:<24}remedy: {remedy}", "")?;
            }
        }
        self.interpreter.row(f, "interpreter", |found| {
            format!("{}, CPython {}", found.executable, found.version)
        })?;
        if let Some(cache) = &self.cache {
            cache.row(f, "cache", |found| found.directory.clone())?;
        }
        if let Some(environments) = &self.environments {
            environments.row(f, "environments", |found| found.directory.clone())?;
        }
        if let Some(snapshots) = &self.snapshots {
            let what = |(): &()| "live sessions can be copied, rolled back and paused".to_owned();
            snapshots.row(f, "snapshots", what)?;
        }
        if let Some(forks) = &self.forks {
            forks.row(f, "forks", |found| {
                format!(
                    "each copies at once the {} pages that workers write to",
                    found.pages
                )
            })?;
        }
        for tried in &self.preloads {
            let answer = if tried.error.is_none() { "yes" } else { "no" };
            let loaded = || format!("preloads {}", loaded(&tried.modules));
            let what = tried.error.clone().unwrap_or_else(loaded);
            row(f, &tried.policy, answer, what)?;
            for note in tried.modules.iter().filter_map(PreloadPlan::note) {
                writeln!(f, "  {:<24}{note}", "")?;
            }
        }
        match self.level {
            Some(level) => writeln!(f, "best level: {level}"),
            None => writeln!(f, "best level: none, nothing will be run here"),
        }
    }
}
