//! The report of `sandfork doctor`: whether each layer is available here, why, and the remedy.

use std::fmt;

use serde::Serialize;

use super::assess::{Assessment, assess};
use super::layer_state::LayerState;
use super::obstacle::best_level;
use super::preload::{PreloadPlan, loaded};
use crate::host::{Interpreter, InterpreterError, Machine};
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
    pub interpreter: InterpreterDiagnosis,
    /// Where starts are kept for later ones, where it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheDiagnosis>,
    /// What the built-in policies preload, where it was tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preloads: Vec<PreloadDiagnosis>,
}

/// Whether a start finds what earlier ones left.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum CacheDiagnosis {
    /// It does.
    Usable {
        /// The directory.
        directory: String,
    },
    /// It does not, and takes longer.
    Unusable {
        /// The reason and the remedy.
        error: String,
    },
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

/// Whether the interpreter is suitable.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum InterpreterDiagnosis {
    /// It is suitable.
    Usable {
        /// The path to execute.
        executable: String,
        /// Its version.
        version: String,
    },
    /// It is unsuitable.
    Unusable {
        /// The reason and the remedy.
        error: String,
    },
}

/// Assesses a machine, and the result of probing an interpreter.
pub fn diagnose(
    machine: &Machine,
    interpreter: Result<&Interpreter, &InterpreterError>,
) -> Diagnosis {
    Diagnosis {
        kernel: machine.kernel.release.clone(),
        uid: machine.user.uid,
        level: best_level(machine),
        layers: assess(machine),
        interpreter: match interpreter {
            Ok(found) => {
                let (major, minor, patch) = found.version;
                InterpreterDiagnosis::Usable {
                    executable: found.executable.display().to_string(),
                    version: format!("{major}.{minor}.{patch}"),
                }
            }
            Err(error) => InterpreterDiagnosis::Unusable {
                error: error.to_string(),
            },
        },
        cache: None,
        preloads: Vec::new(),
    }
}

impl Diagnosis {
    /// Whether this interpreter allows sandboxes of some level.
    pub fn is_usable(&self) -> bool {
        self.level.is_some() && matches!(self.interpreter, InterpreterDiagnosis::Usable { .. })
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

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Linux {}, uid {}", self.kernel, self.uid)?;
        for layer in &self.layers {
            writeln!(
                f,
                "  {:<14}{:<10}{}",
                layer.layer,
                layer.state.answer(),
                layer.why
            )?;
            if let Some(remedy) = &layer.remedy {
                writeln!(f, "  {:<24}remedy: {remedy}", "")?;
            }
        }
        match &self.interpreter {
            InterpreterDiagnosis::Usable {
                executable,
                version,
            } => {
                writeln!(
                    f,
                    "  {:<14}{:<10}{executable}, CPython {version}",
                    "interpreter", "yes"
                )?;
            }
            InterpreterDiagnosis::Unusable { error } => {
                writeln!(f, "  {:<14}{:<10}{error}", "interpreter", "no")?;
            }
        }
        match &self.cache {
            Some(CacheDiagnosis::Usable { directory }) => {
                writeln!(f, "  {:<14}{:<10}{directory}", "cache", "yes")?;
            }
            Some(CacheDiagnosis::Unusable { error }) => {
                writeln!(f, "  {:<14}{:<10}{error}", "cache", "no")?;
            }
            None => {}
        }
        for tried in &self.preloads {
            let answer = if tried.error.is_none() { "yes" } else { "no" };
            let loaded = || format!("preloads {}", loaded(&tried.modules));
            let what = tried.error.clone().unwrap_or_else(loaded);
            writeln!(f, "  {:<14}{answer:<10}{what}", tried.policy)?;
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
