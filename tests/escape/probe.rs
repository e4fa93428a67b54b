//! Parses probe files: a TOML header in the module docstring, then the attempt.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::account::User;
use crate::need::Need;
use crate::verdict::Expectation;

/// The environment variable that runs every probe as a program of a session. Without it, one probe for each layer runs
/// so, because a program inherits the layers of its worker.
const AS_PROGRAMS: &str = "SANDFORK_ESCAPE_AS_PROGRAMS";
const AS_A_PROGRAM: [&str; 7] = [
    "PR-001", "FS-022", "FS-001", "KS-001", "PV-001", "SF-126", "PR-018",
];

const PRELUDE: &str = include_str!("probes/prelude.py");
const QUOTES: &str = "'''";

/// One escape attempt, and how it is expected to fail.
pub struct Probe {
    pub header: Header,
    /// The name of the directory that holds the file.
    pub class: String,
    /// The file name without its extension.
    pub name: String,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub id: String,
    /// The attempt in a few words.
    #[serde(rename = "name")]
    _name: String,
    /// The attempt in a sentence.
    #[serde(rename = "attempt")]
    _attempt: String,
    #[serde(rename = "severity")]
    _severity: Severity,
    /// The CVEs and kernel features that the attempt uses.
    #[serde(default, rename = "refs")]
    _refs: String,
    pub proven_open: ProvenOpen,
    #[serde(default)]
    pub open_mode: OpenMode,
    #[serde(default)]
    pub judge: Judge,
    #[serde(default)]
    pub host_check: Option<HostCheck>,
    /// The number of runs. If above 1, each run receives what the previous one printed after `VALUE `.
    #[serde(default = "one")]
    pub runs: usize,
    /// The oldest Linux version on which the attempt succeeds without a sandbox, such as `6.8`.
    #[serde(default)]
    pub since: Option<String>,
    /// Why SECURITY.md does not promise to stop the attempt. It must then succeed, or SECURITY.md must promise it.
    #[serde(default)]
    pub not_promised: Option<String>,
    /// The user for whose guests SECURITY.md promises to stop it nevertheless.
    #[serde(default)]
    pub promised_of: Option<User>,
    /// The policies that must stop the attempt.
    #[serde(default = "every_policy")]
    pub policies: Vec<String>,
    /// What the machine must provide for the attempt to succeed without a sandbox.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Overrides of the test profile.
    #[serde(default)]
    pub set: Vec<String>,
    #[serde(default)]
    pub through: Through,
    /// The kinds of worker in which the attempt is meaningful.
    #[serde(default)]
    pub only: Only,
    #[serde(default)]
    pub launch: Launch,
    #[serde(default)]
    pub schedule: Schedule,
    #[serde(default)]
    pub clock: Clock,
    pub expect: Vec<Expectation>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Low,
    Medium,
    High,
    Critical,
}

/// The least privilege with which the attempt has succeeded without a sandbox.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ProvenOpen {
    User,
    Root,
}

/// How the open control runs the attempt.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum OpenMode {
    /// As an ordinary process.
    #[default]
    User,
    /// With a controlling terminal. The sandboxed run is launched from a terminal as well.
    Pty,
    /// As the first process of a pid namespace.
    Pid1,
    /// As root of a new user and mount namespace.
    NestedUserns,
    /// Forked from a warm interpreter that does not isolate its children.
    Zygote,
    /// By `exec` in the interpreter that executed the previous run.
    Inproc,
    /// With callbacks into the host.
    Tools,
    /// Like `Zygote`, with every child in its own pid namespace, where it has the zygote's process id,
    /// by which libraries detect a fork.
    ZygoteTwins,
    /// In two processes of the same user at the same time.
    TwoTenants,
}

/// Who decides whether the attempt succeeded.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Judge {
    /// The attempt itself: any line that starts with `ESCAPED`.
    #[default]
    Snippet,
    /// The host: `host_check` names the condition that must hold. The open control is a naive host.
    Host,
}

/// A condition that must hold on the host after the run.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum HostCheck {
    NextRunServed,
    /// The host rejects the frame. The open control is a host that trusts the frames of its guest.
    FrameRefused,
    OutputDecoded,
    NoCanaryCollected,
    UploadStaysInside,
    NothingSurvives,
    /// The guest's output does not control the launcher's terminal. Runs on a terminal, without `--json`.
    TerminalUnmoved,
    /// The guest's output forges no log line. Runs with all logging of the host enabled.
    LogUnforged,
}

/// The interface of the product that the attempt uses.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Through {
    /// `sandfork run`, with a new warm interpreter for each run.
    #[default]
    CommandLine,
    /// The library, with one warm interpreter for all runs.
    OneSandbox,
    /// The library: the first and the third run are cells of one session, and the second is a run of
    /// another tenant between them.
    TwoTenants,
}

/// The kinds of worker in which an attempt is meaningful.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Only {
    /// In every worker.
    #[default]
    Any,
    /// In the worker of a run only: for a session, the supervisor enforces the limit.
    Runs,
}

/// How the open control and the sandboxed run are launched.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Launch {
    #[default]
    Plain,
    /// Pinned to one CPU.
    Pinned,
}

/// Whether other tests may run at the same time.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    #[default]
    Shared,
    /// The attempt measures the CPUs.
    Alone,
}

/// The wall and CPU time limits in the sandbox.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Long enough that a busy machine does not end the attempt.
    #[default]
    Plenty,
    /// Short: the attempt tries to exceed them.
    Tight,
}

fn one() -> usize {
    1
}

fn every_policy() -> Vec<String> {
    crate::POLICIES.map(str::to_owned).to_vec()
}

impl Probe {
    /// Returns whether the attempt also runs in copies of sessions under this policy. Attempts of the class `resources`
    /// do not: they take long and meet the same limits in every worker.
    pub fn runs_in_copies(&self, policy: &str) -> bool {
        self.is_one_attempt(policy) && self.class != "resources"
    }

    /// Returns whether the probe is a single attempt that runs in the worker of any session.
    fn is_one_attempt(&self, policy: &str) -> bool {
        let header = &self.header;
        header.runs == 1
            && header.through == Through::CommandLine
            && header.host_check.is_none()
            && header.policies.iter().any(|own| own == policy)
            && header.only == Only::Any
    }

    /// Returns whether the attempt also runs as a program of a session under this policy. Attempts on the cells'
    /// interpreter are meaningless in a program.
    pub fn runs_as_program(&self, policy: &str) -> bool {
        let is_any_process = !matches!(
            self.header.open_mode,
            OpenMode::Zygote | OpenMode::ZygoteTwins | OpenMode::Inproc | OpenMode::Tools
        );
        // A program does not preload modules.
        let is_preloaded = self
            .header
            .set
            .iter()
            .any(|set| set.starts_with("python.preload="));
        let is_sample = AS_A_PROGRAM.contains(&self.header.id.as_str());
        // A program has no CPU limit of its own, and it shares the memory and CPUs of its session.
        let is_selected = std::env::var_os(AS_PROGRAMS).is_some() && self.class != "resources";
        is_any_process && !is_preloaded && (is_selected || is_sample) && self.is_one_attempt(policy)
    }

    fn parse(class: &str, name: &str, source: String) -> Result<Self, String> {
        let header = source
            .strip_prefix(QUOTES)
            .and_then(|rest| rest.split_once(QUOTES))
            .ok_or("does not start with a header in a ''' string")?
            .0;
        let header: Header = toml::from_str(header).map_err(|error| error.to_string())?;
        if !name.starts_with(&format!("{}_", header.id)) {
            return Err(format!(
                "the file's name does not start with its id {}",
                header.id
            ));
        }
        if header.judge == Judge::Host && header.host_check.is_none() {
            return Err("judge = \"host\" without a host_check".to_owned());
        }
        if header.expect.is_empty() || !(1..=3).contains(&header.runs) {
            return Err("needs an expect, and one run to three".to_owned());
        }
        Ok(Self {
            header,
            class: class.to_owned(),
            name: name.to_owned(),
            source,
        })
    }

    /// Returns the complete program: variables, prelude, attempt.
    pub fn program(&self, variables: &BTreeMap<String, String>) -> String {
        // A JSON object of ASCII strings is also a Python dict literal.
        let variables = serde_json::to_string(variables).expect("strings are JSON");
        format!("VARS = {variables}\n{PRELUDE}{}", self.source)
    }
}

/// Loads all probes under `directory`, sorted by class and id.
pub fn load(directory: &Path) -> Result<Vec<Probe>, String> {
    let mut probes = Vec::new();
    for class in entries(directory)? {
        if !directory.join(&class).is_dir() {
            continue;
        }
        for file in entries(&directory.join(&class))? {
            let Some(name) = file.strip_suffix(".py") else {
                continue;
            };
            let path = directory.join(&class).join(&file);
            let source = fs::read_to_string(&path);
            let source = source.map_err(|error| format!("{}: {error}", path.display()))?;
            let probe = Probe::parse(&class, name, source);
            probes.push(probe.map_err(|error| format!("{}: {error}", path.display()))?);
        }
    }
    Ok(probes)
}

fn entries(directory: &Path) -> Result<Vec<String>, String> {
    let wrap = |error| format!("{}: {error}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(wrap)? {
        names.push(
            entry
                .map_err(wrap)?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    names.sort();
    Ok(names)
}
