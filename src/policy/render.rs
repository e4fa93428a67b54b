//! Writes an effective policy back as a file, and hashes it.

#![expect(
    clippy::unnecessary_wraps,
    reason = "every key of a policy file is optional"
)]

use sha2::{Digest, Sha256};

use super::effective::{Freshness, Policy, ProcVisibility};
use super::field::{Field, List};
use super::file::{
    AssuranceSection, EnvSection, FilesystemSection, ImportsSection, LimitsSection, NetworkSection,
    PolicyFile, PythonSection, SessionSection, StdioSection, SyscallsSection,
};
use super::origin::Located;
use super::paths::HostPath;

fn field<T>(value: T) -> Option<Field<T>> {
    Some(Field::unplaced(value))
}

fn list<T: Clone>(items: &[T]) -> Option<List<T>> {
    Some(List::unplaced(items.iter().cloned()))
}

fn values<T, U>(items: &[Located<T>], convert: impl Fn(&T) -> U) -> Option<List<U>> {
    Some(List::unplaced(
        items.iter().map(|item| convert(&item.value)),
    ))
}

impl PolicyFile {
    /// A complete file of the policy, which extends no other policy.
    pub(super) fn of(policy: &Policy) -> Self {
        Self {
            extends: None,
            description: field(policy.description.clone()),
            python: python(policy),
            imports: ImportsSection {
                allow: list(&policy.imports.allow),
            },
            filesystem: filesystem(policy),
            network: NetworkSection {
                mode: field(policy.network),
            },
            env: env(policy),
            stdio: StdioSection {
                stdin: field(policy.stdin),
            },
            limits: limits(policy),
            session: SessionSection {
                idle: field(policy.session.idle.into()),
                age: field(policy.session.age.into()),
            },
            syscalls: SyscallsSection {
                allow: values(&policy.syscalls.allow, Clone::clone),
                deny: values(&policy.syscalls.deny, Clone::clone),
            },
            assurance: AssuranceSection {
                require: field(policy.require.value),
            },
        }
    }
}

fn python(policy: &Policy) -> PythonSection {
    let python = &policy.python;
    PythonSection {
        interpreter: field(python.interpreter.value.clone()),
        preload: values(&python.preload, Clone::clone),
        path: values(&python.path, |path| path.display().to_string()),
        fresh: field(python.freshness == Freshness::Cold),
    }
}

fn filesystem(policy: &Policy) -> FilesystemSection {
    let (filesystem, limits) = (&policy.filesystem, &policy.located_limits);
    FilesystemSection {
        system: field(filesystem.system),
        proc: field(filesystem.proc == ProcVisibility::Own),
        read: values(&filesystem.read, |path| HostPath(path.clone())),
        write: values(&filesystem.write, |path| HostPath(path.clone())),
        work_size: field(limits.work_size.value),
        work_inodes: field(limits.work_inodes.value),
        tmp_size: field(limits.tmp_size.value),
        tmp_inodes: field(limits.tmp_inodes.value),
    }
}

fn env(policy: &Policy) -> EnvSection {
    let set = policy.env.set.iter();
    let set = set.map(|(name, value)| (name.clone(), Field::unplaced(value.clone())));
    EnvSection {
        set: Some(set.collect()),
        pass: list(&policy.env.pass),
    }
}

fn limits(policy: &Policy) -> LimitsSection {
    let limits = &policy.located_limits;
    LimitsSection {
        wall: field(limits.wall.value),
        cpu: field(limits.cpu.value),
        memory: field(limits.memory.value),
        pids: field(limits.pids.value),
        open_files: field(limits.open_files.value),
        file_size: field(limits.file_size.value),
        output: field(limits.output.value),
        cores: field(limits.cores.value),
    }
}

/// The policy as canonical JSON: sorted keys, no spaces, values in a policy file's notation.
fn canonical_json(policy: &Policy) -> String {
    let mut file = PolicyFile::of(policy);
    file.description = None;
    let mut json = serde_json::to_value(&file)
        .expect("strings, numbers, lists and tables with string keys are JSON");
    json.sort_all_objects();
    json.to_string()
}

/// The policy as a separate file.
pub(super) fn to_toml(policy: &Policy) -> String {
    toml::to_string_pretty(&PolicyFile::of(policy))
        .expect("strings, numbers, lists and tables with string keys are TOML")
}

/// The hash that every outcome reports.
pub(super) fn sha256(policy: &Policy) -> String {
    use std::fmt::Write as _;

    let digest = Sha256::digest(canonical_json(policy));
    let mut hex = String::with_capacity(64);
    for byte in digest {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}
