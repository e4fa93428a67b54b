//! The table of keys. Reading, `--set`, the JSON Schema, the hints and writing follow it.
//!
//! The limits have a table of their own, `outcome::limits`. Their rows come last in their sections here.

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;

use super::keyword::{NetworkMode, Stdin, SystemFiles};
use super::module_name::{ImportPattern, Preload};
use super::network::{Proxy, Resolver};
use super::packages::{EnvironmentName, Requirement};
use super::paths::{host_path, resolve_visible};
use crate::outcome::{Level, LimitName};

/// The description of a policy file.
pub(super) const ABOUT: &str = "A Sandfork policy: what untrusted Python may do. Every key is optional. The \
    extended policy provides the keys that a file leaves out. Lists append to the extended policy's lists, other \
    values replace its values.";

/// The sections and their descriptions, in the order in which a policy is written.
pub(super) const SECTIONS: [(&str, &str); 11] = [
    ("python", "The interpreter and its preloaded modules."),
    ("environments", "How environments of packages come about."),
    (
        "imports",
        "What guest code may import. An aid to good error messages, not a wall.",
    ),
    (
        "filesystem",
        "What the guest sees of the host's files, and the quotas of its own files.",
    ),
    ("network", "The network."),
    ("env", "Environment variables."),
    ("stdio", "Standard streams."),
    (
        "limits",
        "Limits on time, memory and every other resource that can run out.",
    ),
    ("session", "How long a session lives if it is not closed."),
    ("syscalls", "Changes to the list of allowed system calls."),
    ("assurance", "The level that must hold before a run starts."),
];

/// Declares the keys, in the order in which a policy is written. Their comments are their descriptions.
macro_rules! keys {
    ($($(#[doc = $about:literal])+ $name:literal: $kind:expr;)+) => {
        const KEYS: &[Key] = &[$(Key {
            name: $name,
            kind: $kind,
            about: concat!($($about),+).trim_ascii_start(),
        },)+];
    };
}

keys! {
    /// The policy that this file builds on: a built-in name, or a path relative to this file. Without it,
    /// `standard`.
    "extends": Kind::Text(ANY);

    /// The purpose of the policy, in a sentence.
    "description": Kind::Text(ANY);

    /// A name to look up in PATH, or the path of an interpreter or a virtual environment. A path may be relative to
    /// this file.
    "python.interpreter": Kind::Text(ANY);

    /// The environment of packages that the guest has, by its name (`sandfork env list`). It brings its interpreter.
    /// Empty for none.
    "python.environment": Kind::Text(ENVIRONMENT);

    /// Packages that the guest has, as in a requirements file: `"pandas==2.2.*"`. Appends.
    "python.packages": Kind::List(PACKAGE);

    /// Modules that the zygote imports once for all sessions. `"numpy?"` is preloaded if it is installed and
    /// skipped if not. Appends.
    "python.preload": Kind::List(MODULE);

    /// Directories added to `sys.path`, read-only. May be relative to this file. Appends.
    "python.path": Kind::List(DIRECTORY);

    /// The directory of a program of several files: shown read-only, imported from first, and its files linked in the
    /// work directory. May be relative to this file. Empty for none.
    "python.project": Kind::Text(OPTIONAL_DIRECTORY);

    /// true: a new interpreter for each session, with its own hash seed and address layout.
    "python.fresh": Kind::Flag;

    /// true: packages that are not installed yet are, in a sandbox, at the first use. false: that is an error, which
    /// names the command that installs them.
    "environments.create": Kind::Flag;

    /// true: packages can be added to running sessions, for which guests see all that were added under this user.
    /// false: sessions keep the packages with which they began.
    "environments.add": Kind::Flag;

    /// Modules that guest code may import: `"numpy"`, `"numpy.*"` or `"*"`. Without it, every module. Appends.
    "imports.allow": Kind::List(IMPORT);

    /// The host's system directories that the guest sees, read-only.
    "filesystem.system": Kind::Word(SystemFiles::WORDS);

    /// true: the guest has a `/proc` that shows its own processes. false: none.
    "filesystem.proc": Kind::Flag;

    /// true: programs and libraries that the guest makes in `/work` can be run and loaded. false: nothing that it can
    /// write to.
    "filesystem.work_exec": Kind::Flag;

    /// Host files and directories shown read-only at the same path. Appends.
    "filesystem.read": Kind::List(HOST_PATH);

    /// Host files and directories shown read-write at the same path. Appends.
    "filesystem.write": Kind::List(HOST_PATH);

    /// The network that the guest has. Not given, it is `"allow"` if `network.allow` has entries.
    "network.mode": Kind::Word(NetworkMode::WORDS);

    /// The hosts that the guest may connect to with mode `"allow"`: a name, an address, `"*.example.org"`, or a table
    /// with `host` and conditions. Appends.
    "network.allow": Kind::Rules;

    /// The proxy through which hosts that are not private are reached. Empty for none.
    "network.proxy": Kind::Text(PROXY);

    /// The address of the resolver that is asked for names. Empty for the host's own resolvers.
    "network.resolver": Kind::Text(RESOLVER);

    /// true: the caller's `on_connect` decides on each connection that `network.allow` lets through; without a decision
    /// there is none.
    "network.ask": Kind::Flag;

    /// Variables and their values.
    "env.set": Kind::Variables;

    /// Names of variables that are taken from the caller's environment. Appends.
    "env.pass": Kind::List(VARIABLE);

    /// What the guest reads on its standard input.
    "stdio.stdin": Kind::Word(Stdin::WORDS);

    /// Time without a cell after which the session is ended; "never": no such limit.
    "session.idle": Kind::Term;

    /// Time after which the session is ended, in a cell or not; "never": no such limit.
    "session.age": Kind::Term;

    /// Time without use after which the state of a session goes to a disk, and its process ends; the next use brings it
    /// back. "never": it stays in memory.
    "session.pause_after": Kind::Term;

    /// System calls allowed beyond the preset. Appends.
    "syscalls.allow": Kind::List(ANY);

    /// System calls removed from the preset. Appends.
    "syscalls.deny": Kind::List(ANY);

    /// The lowest level of protection at which a run may start.
    "assurance.require": Kind::Word(Level::WORDS);
}

/// A key of a policy file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// The dotted key.
    pub(super) name: &'static str,
    /// What it takes.
    pub(super) kind: Kind,
    /// Its description, in a sentence.
    pub(super) about: &'static str,
}

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A text.
    Text(Grammar),
    /// Texts.
    List(Grammar),
    /// Entries of `network.allow`: texts, or tables.
    Rules,
    /// The values of environment variables, by name.
    Variables,
    /// The amount of a limit.
    Limit(LimitName),
    /// A duration, or [`NEVER`].
    Term,
}

/// The word for no limit.
pub(super) const NEVER: &str = "never";

/// What a text must be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grammar {
    /// What to write, for a value of the wrong type.
    pub(super) expected: &'static str,
    /// A regular expression (ECMA 262) for the JSON Schema.
    pub(super) pattern: Option<&'static str>,
    /// The text in its canonical form, or why it is refused. A relative path starts from the directory.
    pub(super) read: fn(&str, Option<&Path>) -> Result<String, String>,
}

const ANY: Grammar = Grammar {
    expected: "a text in quotes",
    pattern: None,
    read: |text, _| Ok(text.to_owned()),
};

const DIRECTORY: Grammar = Grammar {
    read: |text, base| resolve_visible(text, base).map(|path| path_text(&path)),
    ..ANY
};

const OPTIONAL_DIRECTORY: Grammar = Grammar {
    expected: "the path of a directory in quotes, or \"\" for none",
    read: |text, base| match text {
        "" => Ok(String::new()),
        text => (DIRECTORY.read)(text, base),
    },
    ..ANY
};

const HOST_PATH: Grammar = Grammar {
    expected: "a path in quotes, such as \"/srv/data\"",
    read: |text, base| host_path(text, base).map(|path| path_text(&path)),
    ..ANY
};

const MODULE: Grammar = Grammar {
    expected: "a module name in quotes, such as \"numpy\"",
    pattern: Some(r"^[^\s.?*]+(\.[^\s.?*]+)*\??$"),
    read: canonical::<Preload>,
};

const ENVIRONMENT: Grammar = Grammar {
    expected: "the name of an environment in quotes, or \"\" for none",
    pattern: Some(r"^([a-z0-9][a-z0-9._-]{0,63})?$"),
    read: or_empty::<EnvironmentName>,
};

const PACKAGE: Grammar = Grammar {
    expected: "a package in quotes, such as \"pandas==2.2.*\"",
    read: canonical::<Requirement>,
    ..ANY
};

const IMPORT: Grammar = Grammar {
    expected: "an import pattern in quotes, such as \"numpy.*\"",
    pattern: Some(r"^(\*|[^\s.?*]+(\.[^\s.?*]+)*(\.\*)?)$"),
    read: canonical::<ImportPattern>,
};

const PROXY: Grammar = Grammar {
    expected: "a URL in quotes, such as \"http://proxy.example.org:3128\", or \"\" for none",
    pattern: Some(r"^(http://.+)?$"),
    read: or_empty::<Proxy>,
};

const RESOLVER: Grammar = Grammar {
    expected: "an address in quotes, such as \"10.0.0.53\", or \"\" for the host's own",
    read: or_empty::<Resolver>,
    ..ANY
};

/// POSIX's portable names (Base Definitions, 8.1), lower case included.
pub(super) const VARIABLE: Grammar = Grammar {
    read: |name, _| {
        let is_word = name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
        if is_word && name.starts_with(|c: char| !c.is_ascii_digit()) {
            return Ok(name.to_owned());
        }
        Err(format!(
            "\"{name}\" is not the name of a variable: use letters, digits and `_`, and no digit first"
        ))
    },
    ..ANY
};

/// The value of a variable.
pub(super) const VALUE: Grammar = Grammar {
    read: |value, _| {
        if value.contains('\0') {
            let refusal = "the value contains a NUL byte, which no environment can hold: remove it";
            return Err(refusal.to_owned());
        }
        Ok(value.to_owned())
    },
    ..ANY
};

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

fn or_empty<T: FromStr<Err: Display> + Display>(
    text: &str,
    base: Option<&Path>,
) -> Result<String, String> {
    match text {
        "" => Ok(String::new()),
        text => canonical::<T>(text, base),
    }
}

fn canonical<T: FromStr<Err: Display> + Display>(
    text: &str,
    _: Option<&Path>,
) -> Result<String, String> {
    match T::from_str(text) {
        Ok(value) => Ok(value.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

impl Key {
    fn of_limit(limit: LimitName) -> Self {
        let spec = limit.spec();
        Self {
            name: spec.key,
            kind: Kind::Limit(limit),
            about: spec.about,
        }
    }

    /// The section, empty for the top of the file, and the name in it.
    pub(super) fn parts(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or(("", self.name))
    }
}

/// The keys of a section, or those of the top of the file if it is empty.
pub(super) fn keys_of(section: &str) -> impl Iterator<Item = Key> {
    let limits = LimitName::ALL.map(Key::of_limit);
    let keys = KEYS.iter().copied().chain(limits);
    keys.filter(move |key| key.parts().0 == section)
}

/// The key of that name in a section.
pub(super) fn find(section: &str, name: &str) -> Option<Key> {
    keys_of(section).find(|key| key.parts().1 == name)
}

/// Whether a policy file has such a section.
pub(super) fn is_section(name: &str) -> bool {
    SECTIONS.iter().any(|(section, _)| *section == name)
}
