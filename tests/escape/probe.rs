//! The probe files: a TOML header in the module's string, then the attempt.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::account::User;
use crate::need::Need;
use crate::verdict::Expectation;

/// A variable: tries all probes as programs of sessions. Without it that is one for each layer, because a program
/// inherits the layers of its worker.
const AS_PROGRAMS: &str = "SANDFORK_ESCAPE_AS_PROGRAMS";
const AS_A_PROGRAM: [&str; 7] = [
    "PR-001", "FS-022", "FS-001", "KS-001", "PV-001", "SF-126", "PR-018",
];

const PRELUDE: &str = include_str!("probes/prelude.py");
const QUOTES: &str = "'''";

/// One attempt to get out, with what its failure should look like.
pub struct Probe {
    pub header: Header,
    /// The directory that holds the file.
    pub class: String,
    /// The file's name without its ending.
    pub name: String,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub id: String,
    /// What is tried, in a few words.
    #[serde(rename = "name")]
    _name: String,
    /// What is tried, in a sentence.
    #[serde(rename = "attempt")]
    _attempt: String,
    #[serde(rename = "severity")]
    _severity: Severity,
    /// CVEs and kernel features behind the attempt.
    #[serde(default, rename = "refs")]
    _refs: String,
    pub proven_open: ProvenOpen,
    #[serde(default)]
    pub open_mode: OpenMode,
    #[serde(default)]
    pub judge: Judge,
    #[serde(default)]
    pub host_check: Option<HostCheck>,
    /// More than 1: each run is given what the one before printed after `VALUE `.
    #[serde(default = "one")]
    pub runs: usize,
    /// The oldest Linux on which the attempt succeeds in the open, such as `6.8`.
    #[serde(default)]
    pub since: Option<String>,
    /// Why SECURITY.md does not promise to stop it: then it must succeed, or the promise is due.
    #[serde(default)]
    pub not_promised: Option<String>,
    /// The user for whose guests SECURITY.md promises it nevertheless.
    #[serde(default)]
    pub promised_of: Option<User>,
    /// The policies that promise to stop the attempt.
    #[serde(default = "every_policy")]
    pub policies: Vec<String>,
    /// What the open machine must have for the attempt to succeed there.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Overrides of the test profile.
    #[serde(default)]
    pub set: Vec<String>,
    #[serde(default)]
    pub through: Through,
    /// Where the attempt means something.
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

/// The least privilege with which the attempt was seen to succeed without a sandbox.
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
    /// As a plain process.
    #[default]
    User,
    /// With a controlling terminal; the sandboxed run is launched from one as well.
    Pty,
    /// As the first process of a pid namespace.
    Pid1,
    /// As the root of a user and a mount namespace.
    NestedUserns,
    /// Forked from a warm interpreter that takes no care.
    Zygote,
    /// By `exec` in the interpreter that ran the one before.
    Inproc,
    /// With callbacks into the host.
    Tools,
    /// The same as `zygote`, with every child in a pid namespace of its own: they have the zygote's
    /// process number, by which libraries tell a fork.
    ZygoteTwins,
    /// In two processes of the same user at the same time.
    TwoTenants,
}

/// The party that detects a success of the attempt.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Judge {
    /// The attempt itself: any line that starts with `ESCAPED`.
    #[default]
    Snippet,
    /// The host: `host_check` names the condition that must hold, and the open control is a naive host.
    Host,
}

/// What must hold on the host after the run.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum HostCheck {
    NextRunServed,
    /// The host; the open control is a host that trusts the frames of its guest.
    FrameRefused,
    OutputDecoded,
    NoCanaryCollected,
    UploadStaysInside,
    NothingSurvives,
    /// On a terminal, without `--json`.
    TerminalUnmoved,
    /// With all logging of the host enabled.
    LogUnforged,
}

/// Which door of the product is tried.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Through {
    /// `sandfork run`, with a warm interpreter for each run.
    #[default]
    CommandLine,
    /// The library, with one for all.
    OneSandbox,
    /// The library: the first and the third run are cells of one session, and the second is another
    /// tenant's between them.
    TwoTenants,
}

/// Where an attempt means something.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Only {
    /// In every worker.
    #[default]
    Any,
    /// In the worker of a run: of a session's, the supervisor keeps the limit.
    Runs,
}

/// How both runs are launched.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Launch {
    #[default]
    Plain,
    /// Pinned to one processor.
    Pinned,
}

/// Whether other tests may run at the same time.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    #[default]
    Shared,
    /// The attempt measures the processors.
    Alone,
}

/// The limits on time in the sandbox.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// So much that a busy machine does not end the attempt.
    #[default]
    Plenty,
    /// What the attempt tries to outlast.
    Tight,
}

fn one() -> usize {
    1
}

fn every_policy() -> Vec<String> {
    crate::POLICIES.map(str::to_owned).to_vec()
}

impl Probe {
    /// Whether it is tried in copies of sessions too, under this policy. Those of the class `resources` take long, and
    /// meet the same limits in every worker.
    pub fn is_tried_in_copies(&self, policy: &str) -> bool {
        self.is_one_attempt(policy) && self.class != "resources"
    }

    /// Whether it is one attempt in the worker of any session.
    fn is_one_attempt(&self, policy: &str) -> bool {
        let header = &self.header;
        header.runs == 1
            && header.through == Through::CommandLine
            && header.host_check.is_none()
            && header.policies.iter().any(|own| own == policy)
            && header.only == Only::Any
    }

    /// Whether it is tried as a program of a session too, under this policy. What is about the interpreter that cells
    /// run in means nothing there.
    pub fn is_tried_as_program(&self, policy: &str) -> bool {
        let is_any_process = !matches!(
            self.header.open_mode,
            OpenMode::Zygote | OpenMode::ZygoteTwins | OpenMode::Inproc | OpenMode::Tools
        );
        // Nothing is preloaded in a program.
        let is_preloaded = self
            .header
            .set
            .iter()
            .any(|set| set.starts_with("python.preload="));
        let is_sample = AS_A_PROGRAM.contains(&self.header.id.as_str());
        // A program has no time of its own, and memory and processors are its session's.
        let is_asked_for = std::env::var_os(AS_PROGRAMS).is_some() && self.class != "resources";
        is_any_process
            && !is_preloaded
            && (is_asked_for || is_sample)
            && self.is_one_attempt(policy)
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

    /// The whole program: variables, helpers, attempt.
    pub fn program(&self, variables: &BTreeMap<String, String>) -> String {
        // An object of ASCII strings is a dictionary to Python too.
        let variables = serde_json::to_string(variables).expect("strings are JSON");
        format!("VARS = {variables}\n{PRELUDE}{}", self.source)
    }
}

/// All probes under `directory`, by class and id.
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
