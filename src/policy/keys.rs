//! The table of policy keys, which drives parsing, `--set`, the JSON Schema, the hints and rendering.
//!
//! The limits are declared in a separate table, `outcome::limits`, and follow the other keys of their sections.

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
pub(super) const ABOUT: &str = "A Sandfork policy: the permissions and limits of untrusted Python code. Every key \
    is optional: a key that is left out keeps the value of the extended policy. Lists append to the lists of the \
    extended policy; other values replace its values.";

/// The sections and their descriptions, in the order of a policy file.
pub(super) const SECTIONS: [(&str, &str); 11] = [
    ("python", "The interpreter and its preloaded modules."),
    ("environments", "How package environments are created."),
    (
        "imports",
        "The modules that guest code may import. This makes good error messages; it is not a security boundary.",
    ),
    (
        "filesystem",
        "The host files that the guest sees, and the quotas of its own files.",
    ),
    ("network", "Network access."),
    ("env", "Environment variables."),
    ("stdio", "Standard streams."),
    ("limits", "Limits on time, memory and other resources."),
    (
        "session",
        "When an open session ends or is paused, and the limits of its snapshots.",
    ),
    ("syscalls", "Changes to the list of allowed system calls."),
    ("assurance", "The level of protection that a run requires."),
];

/// Declares the keys, in the order of a policy file. The comment of a key is its description.
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
    /// The policy that this file extends: a built-in name, or a path relative to this file. Default: `standard`.
    "extends": Kind::Text(ANY);

    /// The purpose of the policy, in one sentence. It has no effect.
    "description": Kind::Text(ANY);

    /// The interpreter: a name to look up in `PATH`, or the path of an interpreter or virtual environment, which may
    /// be relative to this file.
    "python.interpreter": Kind::Text(ANY);

    /// The name of the guest's package environment (see `sandfork env list`), which includes an interpreter. Empty:
    /// none.
    "python.environment": Kind::Text(ENVIRONMENT);

    /// Packages for the guest, as in a requirements file: `"pandas==2.2.*"`. Appends.
    "python.packages": Kind::List(PACKAGE);

    /// Modules that the zygote imports once for all sessions. `"numpy?"` is skipped if it is not installed. Appends.
    "python.preload": Kind::List(MODULE);

    /// Directories to add to `sys.path`, read-only. Paths may be relative to this file. Appends.
    "python.path": Kind::List(DIRECTORY);

    /// The directory of a program of several files: read-only, first in `sys.path`, and with its files linked into
    /// the work directory. The path may be relative to this file. Empty: none.
    "python.project": Kind::Text(OPTIONAL_DIRECTORY);

    /// true: each session starts a new interpreter, with a separate hash seed and address layout. false: sessions are
    /// forked from one zygote and share both.
    "python.fresh": Kind::Flag;

    /// true: `python.packages` that are not installed are installed at their first use, in a sandbox. false: they are
    /// an error, which names the command that installs them.
    "environments.create": Kind::Flag;

    /// true: packages can be added to running sessions, and guests see all packages that this user has added. false:
    /// sessions keep the packages with which they started.
    "environments.add": Kind::Flag;

    /// Modules that guest code may import: `"numpy"`, `"numpy.*"` or `"*"`. Default: all modules. Appends.
    "imports.allow": Kind::List(IMPORT);

    /// The system directories of the host that the guest sees, read-only.
    "filesystem.system": Kind::Word(SystemFiles::WORDS);

    /// true: the guest has a `/proc` that shows only its own processes. false: the guest has no `/proc`.
    "filesystem.proc": Kind::Flag;

    /// true: the guest can run programs and load libraries that it creates in `/work`. false: it can run nothing that
    /// it can write to.
    "filesystem.work_exec": Kind::Flag;

    /// Host files and directories that the guest can read at the same path. Appends.
    "filesystem.read": Kind::List(HOST_PATH);

    /// Host files and directories that the guest can read and write at the same path. Appends.
    "filesystem.write": Kind::List(HOST_PATH);

    /// The guest's network access. Default: `"allow"` if `network.allow` has entries, otherwise that of the extended
    /// policy.
    "network.mode": Kind::Word(NetworkMode::WORDS);

    /// The hosts to which the guest may connect in mode `"allow"`: a name, an address, `"*.example.org"`, or a table
    /// with `host` and conditions. Appends.
    "network.allow": Kind::Rules;

    /// The URL of the HTTP proxy for connections to public hosts. Empty: none.
    "network.proxy": Kind::Text(PROXY);

    /// The address of the DNS resolver. Empty: the resolvers of the host.
    "network.resolver": Kind::Text(RESOLVER);

    /// true: the caller's `on_connect` accepts or rejects each connection that `network.allow` permits; without a
    /// decision the connection is rejected.
    "network.ask": Kind::Flag;

    /// Environment variables and their values.
    "env.set": Kind::Variables;

    /// Names of environment variables to copy from the caller's environment. Appends.
    "env.pass": Kind::List(VARIABLE);

    /// The guest's standard input.
    "stdio.stdin": Kind::Word(Stdin::WORDS);

    /// Time without a cell after which the session ends. `"never"`: no limit.
    "session.idle": Kind::Term;

    /// Time after which the session ends, even during a cell. `"never"`: no limit.
    "session.age": Kind::Term;

    /// Time without use after which the session's state moves to disk and its process ends; the next use restores the
    /// session. `"never"`: the session stays in memory.
    "session.pause_after": Kind::Term;

    /// System calls to allow in addition to the preset. Appends.
    "syscalls.allow": Kind::List(ANY);

    /// System calls to remove from the preset. Appends.
    "syscalls.deny": Kind::List(ANY);

    /// The lowest level of protection at which a run may start.
    "assurance.require": Kind::Word(Level::WORDS);
}

/// A key of a policy file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// The dotted key.
    pub(super) name: &'static str,
    /// The kind of its value.
    pub(super) kind: Kind,
    /// A short description.
    pub(super) about: &'static str,
}

/// The kind of value that a key accepts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// `true` or `false`.
    Flag,
    /// One of these keywords.
    Word(&'static [&'static str]),
    /// A string.
    Text(Grammar),
    /// A list of strings.
    List(Grammar),
    /// Entries of `network.allow`: strings or tables.
    Rules,
    /// The values of environment variables, by name.
    Variables,
    /// The amount of a limit.
    Limit(LimitName),
    /// A duration, or [`NEVER`].
    Term,
}

/// The keyword for an unlimited duration.
pub(super) const NEVER: &str = "never";

/// The syntax of a string value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grammar {
    /// The remedy in the error for a value of the wrong type.
    pub(super) expected: &'static str,
    /// A regular expression (ECMA 262) for the JSON Schema.
    pub(super) pattern: Option<&'static str>,
    /// Returns the string in canonical form, or why it is rejected. A relative path is resolved against the directory.
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

/// The name of an environment variable, as POSIX defines portable names (Base Definitions, 8.1), plus lower case.
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

/// The value of an environment variable.
pub(super) const VALUE: Grammar = Grammar {
    read: |value, _| {
        if value.contains('\0') {
            let refusal = "the value contains a NUL byte, which an environment variable cannot hold: remove it";
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

    /// Returns the section, which is empty for a top-level key, and the name of the key in it.
    pub(super) fn parts(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or(("", self.name))
    }
}

/// Returns the keys of a section, or the top-level keys if `section` is empty.
pub(super) fn keys_of(section: &str) -> impl Iterator<Item = Key> {
    let limits = LimitName::ALL.map(Key::of_limit);
    let keys = KEYS.iter().copied().chain(limits);
    keys.filter(move |key| key.parts().0 == section)
}

/// Returns the key of that name in a section.
pub(super) fn find(section: &str, name: &str) -> Option<Key> {
    keys_of(section).find(|key| key.parts().1 == name)
}

/// Returns whether a policy file has a section of that name.
pub(super) fn is_section(name: &str) -> bool {
    SECTIONS.iter().any(|(section, _)| *section == name)
}
