//! Combines layers into the effective policy, and refuses a policy that cannot be enforced.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::effective::{
    EnvPolicy, FilesystemPolicy, Freshness, ImportPolicy, Policy, ProcVisibility, PythonPolicy,
    SyscallPolicy,
};
use super::error::{PolicyError, PolicyProblem};
use super::layer::Layer;
use super::located_limits::LocatedLimits;
use super::merge::{Merge, refuse_duplicates};
use super::module_name::{ImportPattern, Preload};
use super::origin::Located;
use super::paths::{HostPath, resolve, resolve_visible};
use super::render;
use super::session::SessionPolicy;
use crate::outcome::Level;

/// The effective policy of the layers, starting with the base of all others.
pub(super) fn assemble(name: &str, layers: Merge) -> Result<Policy, PolicyError> {
    let located_limits = LocatedLimits::new(layers)?;
    let python = python(layers)?;
    let filesystem = filesystem(layers, &python, &located_limits)?;
    let description = layers.scalar("description", |file| file.description.as_ref())?;
    let mut policy = Policy {
        name: name.to_owned(),
        description: description.value,
        sha256: String::new(),
        python,
        imports: imports(layers)?,
        filesystem,
        network: layers
            .scalar("network.mode", |file| file.network.mode.as_ref())?
            .value,
        env: env(layers)?,
        stdin: layers
            .scalar("stdio.stdin", |file| file.stdio.stdin.as_ref())?
            .value,
        limits: located_limits.limits(),
        located_limits,
        session: SessionPolicy::new(layers)?,
        syscalls: syscalls(layers)?,
        require: require(layers)?,
    };
    policy.sha256 = render::sha256(&policy);
    Ok(policy)
}

fn require(layers: Merge) -> Result<Located<Level>, PolicyError> {
    layers.scalar("assurance.require", |file| file.assurance.require.as_ref())
}

fn python(layers: Merge) -> Result<PythonPolicy, PolicyError> {
    const PRELOAD: &str = "python.preload";
    let preload = layers
        .items(|file| file.python.preload.as_ref())
        .unwrap_or_default();
    let preload: Vec<Located<Preload>> = preload.into_iter().map(|(_, item)| item).collect();
    // `numpy` and `numpy?` name one module, with different answers on whether it must exist.
    refuse_duplicates(PRELOAD, &preload, |preload| preload.module().to_owned())?;
    let fresh = layers.scalar("python.fresh", |file| file.python.fresh.as_ref())?;
    Ok(PythonPolicy {
        interpreter: interpreter(layers)?,
        preload,
        path: python_path(layers)?,
        freshness: if fresh.value {
            Freshness::Cold
        } else {
            Freshness::Forked
        },
    })
}

/// The interpreter: a bare name stays, a path becomes absolute.
fn interpreter(layers: Merge) -> Result<Located<String>, PolicyError> {
    const KEY: &str = "python.interpreter";
    let (layer, said) = layers.placed_scalar(KEY, |file| file.python.interpreter.as_ref())?;
    let text = &said.value;
    if text.trim().is_empty() {
        let problem = PolicyProblem::EmptyInterpreter;
        return Err(PolicyError::new(said.origin, KEY, problem));
    }
    if !text.contains(['/', '~', '\0']) {
        return Ok(said);
    }
    match resolve(text, layer.directory.as_deref()) {
        Ok(path) => Ok(said.map(|_| path.display().to_string())),
        Err(error) => Err(PolicyError::new(said.origin, KEY, error.into())),
    }
}

fn python_path(layers: Merge) -> Result<Vec<Located<PathBuf>>, PolicyError> {
    const KEY: &str = "python.path";
    let items = layers
        .items(|file| file.python.path.as_ref())
        .unwrap_or_default();
    let resolved = items.into_iter().map(|(layer, item)| {
        match resolve_visible(&item.value, layer.directory.as_deref()) {
            Ok(path) => Ok(Located::new(path, item.origin)),
            Err(error) => Err(PolicyError::new(item.origin, KEY, error.into())),
        }
    });
    let resolved: Vec<Located<PathBuf>> = resolved.collect::<Result<_, _>>()?;
    refuse_duplicates(KEY, &resolved, |path| path.display().to_string())?;
    Ok(resolved)
}

fn imports(layers: Merge) -> Result<ImportPolicy, PolicyError> {
    const KEY: &str = "imports.allow";
    if layers.items(|file| file.imports.allow.as_ref()).is_none() {
        let allow = vec![ImportPattern::Everything];
        return Ok(ImportPolicy { allow });
    }
    let allow = layers.list(KEY, |file| file.imports.allow.as_ref())?;
    let everything = |item: &&Located<ImportPattern>| item.value == ImportPattern::Everything;
    let other = allow.iter().find(|item| !everything(item));
    if let (Some(star), Some(other)) = (allow.iter().find(everything), other) {
        let problem = PolicyProblem::EverythingAndMore {
            other: other.value.to_string(),
            other_origin: other.origin.clone(),
        };
        return Err(PolicyError::new(star.origin.clone(), KEY, problem));
    }
    Ok(ImportPolicy {
        allow: allow.into_iter().map(|item| item.value).collect(),
    })
}

fn filesystem(
    layers: Merge,
    python: &PythonPolicy,
    limits: &LocatedLimits,
) -> Result<FilesystemPolicy, PolicyError> {
    const READ: &str = "filesystem.read";
    let paths = |items: Vec<Located<HostPath>>| {
        let paths = items.into_iter().map(|item| item.map(|path| path.0));
        paths.collect::<Vec<_>>()
    };
    let read = paths(layers.list(READ, |file| file.filesystem.read.as_ref())?);
    let write = paths(layers.list("filesystem.write", |file| file.filesystem.write.as_ref())?);
    refuse_read_inside_write(READ, &read, &write)?;
    // The zygote imports these modules: a guest that could write there would reach the next guest.
    refuse_read_inside_write("python.path", &python.path, &write)?;
    let system = layers.scalar("filesystem.system", |file| file.filesystem.system.as_ref())?;
    let proc = layers.scalar("filesystem.proc", |file| file.filesystem.proc.as_ref())?;
    Ok(FilesystemPolicy {
        system: system.value,
        proc: if proc.value {
            ProcVisibility::Own
        } else {
            ProcVisibility::Absent
        },
        read,
        write,
        work: limits.work(),
        tmp: limits.tmp(),
    })
}

/// A writable directory inside a readable one is intentional. A readable one inside a writable one
/// would be a promise that the sandbox breaks.
fn refuse_read_inside_write(
    key: &'static str,
    read: &[Located<PathBuf>],
    write: &[Located<PathBuf>],
) -> Result<(), PolicyError> {
    for read in read {
        let holder = write
            .iter()
            .find(|write| read.value.starts_with(&write.value));
        if let Some(holder) = holder {
            let problem = PolicyProblem::ReadInsideWrite {
                read: read.value.clone(),
                write: holder.value.clone(),
                write_origin: holder.origin.clone(),
            };
            return Err(PolicyError::new(read.origin.clone(), key, problem));
        }
    }
    Ok(())
}

/// The last layer that names a variable decides whether it is set or passed, so a policy can pass a
/// variable that its base sets. A single layer that does both is refused.
fn env(layers: Merge) -> Result<EnvPolicy, PolicyError> {
    const PASS: &str = "env.pass";
    layers.list(PASS, |file| file.env.pass.as_ref())?;
    let mut env = EnvPolicy {
        set: BTreeMap::new(),
        pass: Vec::new(),
    };
    for layer in layers.0 {
        let set = env_set(layer)?;
        let pass = Merge(std::slice::from_ref(layer)).list(PASS, |file| file.env.pass.as_ref())?;
        for name in pass {
            check_env_name(PASS, &name)?;
            if let Some(value) = set.get(&name.value) {
                let problem = PolicyProblem::EnvSetAndPassed {
                    name: name.value,
                    set_origin: value.origin.clone(),
                };
                return Err(PolicyError::new(name.origin, PASS, problem));
            }
            env.set.remove(&name.value);
            env.pass.push(name.value);
        }
        env.pass.retain(|name| !set.contains_key(name));
        env.set
            .extend(set.into_iter().map(|(name, value)| (name, value.value)));
    }
    Ok(env)
}

/// The variables that one layer sets.
fn env_set(layer: &Layer) -> Result<BTreeMap<String, Located<String>>, PolicyError> {
    let mut set = BTreeMap::new();
    for (name, value) in layer.contents.env.set.iter().flatten() {
        let origin = layer.origin(&value.span());
        check_env_name("env.set", &Located::new(name.clone(), origin.clone()))?;
        if value.value().contains('\0') {
            let key = format!("env.set.{name}");
            return Err(PolicyError::new(origin, key, PolicyProblem::EnvValue));
        }
        set.insert(name.clone(), Located::new(value.value().clone(), origin));
    }
    Ok(set)
}

/// Accepts POSIX's portable names (Base Definitions, 8.1), lower case included.
fn check_env_name(key: &'static str, name: &Located<String>) -> Result<(), PolicyError> {
    let mut chars = name.value.chars();
    let first = chars.next();
    let is_name = first.is_some_and(|c| c == '_' || c.is_ascii_alphabetic())
        && chars.all(|c| c == '_' || c.is_ascii_alphanumeric());
    if is_name {
        return Ok(());
    }
    let problem = PolicyProblem::EnvName {
        name: name.value.clone(),
    };
    Err(PolicyError::new(name.origin.clone(), key, problem))
}

fn syscalls(layers: Merge) -> Result<SyscallPolicy, PolicyError> {
    const ALLOW: &str = "syscalls.allow";
    let allow = layers.list(ALLOW, |file| file.syscalls.allow.as_ref())?;
    let deny = layers.list("syscalls.deny", |file| file.syscalls.deny.as_ref())?;
    for allowed in &allow {
        if let Some(denied) = deny.iter().find(|denied| denied.value == allowed.value) {
            let problem = PolicyProblem::AllowedAndDenied {
                syscall: allowed.value.clone(),
                deny_origin: denied.origin.clone(),
            };
            return Err(PolicyError::new(allowed.origin.clone(), ALLOW, problem));
        }
    }
    Ok(SyscallPolicy { allow, deny })
}
