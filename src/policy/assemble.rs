//! Combines layers into the effective policy, and rejects a policy that cannot be enforced.

use std::collections::BTreeMap;
use std::mem;
use std::path::PathBuf;

use sandfork_egress::rules::Rules;

use super::effective::{
    AddedPackages, EnvPolicy, FilesystemPolicy, ImportPolicy, MissingPackages, Policy,
    ProcVisibility, PythonPolicy, SessionPolicy, Start, SyscallPolicy, WorkExec,
};
use super::error::{PolicyError, Refused};
use super::keyword::NetworkMode;
use super::layer::{Author, Layer};
use super::module_name::ImportPattern;
use super::network::{ModeRule, NetworkPolicy};
use super::origin::{Located, Origin};
use super::paths::resolve;
use super::render;
use super::secret::Reference;
use super::values::{ListChange, Value, Values, given};
use crate::outcome::{CpuRule, LimitName, Limits};

// Keys that several functions use.
const INTERPRETER: &str = "python.interpreter";
const ENVIRONMENT: &str = "python.environment";
const PACKAGES: &str = "python.packages";
const PATH: &str = "python.path";
const PROJECT: &str = "python.project";
const IMPORTS: &str = "imports.allow";
const WORK_EXEC: &str = "filesystem.work_exec";
const READ: &str = "filesystem.read";
const HOSTS: &str = "network.allow";
const MODE: &str = "network.mode";
const PROXY: &str = "network.proxy";
const SET: &str = "env.set";
const PASS: &str = "env.pass";
const ALLOW: &str = "syscalls.allow";

/// Combines the layers, of which the first is the base, into the effective policy. `unread` has the errors of texts
/// that could not be read and are therefore missing among the layers.
///
/// # Errors
/// If a text has errors, or if the combined values contradict each other. Returns all errors.
pub(super) fn assemble(
    name: &str,
    mut layers: Vec<Layer>,
    unread: Vec<PolicyError>,
) -> Result<Policy, Refused> {
    let is_whole = unread.is_empty();
    let topmost_first = layers.iter_mut().rev();
    let mut errors: Vec<_> = topmost_first
        .flat_map(|layer| mem::take(&mut layer.errors))
        .chain(unread)
        .collect();
    let mut values = Values::default();
    let mut ignored = Vec::new();
    for layer in &layers {
        // A missing text may have had the item that a later text removes.
        let errors = if is_whole { &mut errors } else { &mut ignored };
        values.merge(&layer.values, errors);
    }
    values.remove("extends");
    // Before the check for duplicates: a variable that layers pass, set and pass again must be in the list once.
    resolve_env(&mut values, &layers, &mut errors);
    values.check(&mut errors);
    errors.extend(resolve_interpreter(&mut values, &layers).err());
    errors.extend(resolve_imports(&mut values).err());
    let cpu_rule = cpu_rule(&layers);
    let limits = resolve_cpu(&mut values, cpu_rule, &layers);
    let mode_rule = mode_rule(&layers);
    resolve_mode(&mut values, mode_rule, &layers);
    let mut policy = typed(name, values, limits, cpu_rule, mode_rule);
    policy.files = layers.into_iter().filter_map(|layer| layer.file).collect();
    let filesystem = &policy.filesystem;
    refuse_read_inside_write(READ, &filesystem.read, &filesystem.write, &mut errors);
    // The zygote imports these modules: a guest that could write to them could attack later guests.
    refuse_read_inside_write(PATH, &policy.python.path, &filesystem.write, &mut errors);
    let project = policy.python.project.as_slice();
    refuse_read_inside_write(PROJECT, project, &filesystem.write, &mut errors);
    errors.extend(check_packages(&policy.python).err());
    check_syscalls(&policy.syscalls, &mut errors);
    check_network(&policy, &mut errors);
    if errors.is_empty() {
        return Ok(policy);
    }
    Err(Refused {
        errors,
        rest: is_whole.then(|| Box::new(policy)),
    })
}

/// Returns where the user, as opposed to a built-in policy, set a key.
fn set_by_user<'a>(layers: &'a [Layer], key: &str) -> Option<&'a Origin> {
    let user = layers.iter().filter(|layer| layer.author == Author::User);
    user.filter_map(|layer| layer.values.origin(key))
        .next_back()
}

fn mode_rule(layers: &[Layer]) -> ModeRule {
    match set_by_user(layers, MODE) {
        Some(_) => ModeRule::OfPolicy,
        None => ModeRule::FollowsHosts,
    }
}

/// Sets the network mode to `allow` if the user names hosts but does not set the mode.
fn resolve_mode(values: &mut Values, rule: ModeRule, layers: &[Layer]) {
    let has_hosts = !given(values.list::<String>(HOSTS)).is_empty();
    if let Some(origin) = set_by_user(layers, HOSTS)
        && rule == ModeRule::FollowsHosts
        && has_hosts
    {
        let mode = Value::Text(NetworkMode::Allow.as_str().to_owned());
        values.set(MODE, Located::new(mode, origin.clone()));
    }
}

fn cpu_rule(layers: &[Layer]) -> CpuRule {
    match set_by_user(layers, LimitName::Cpu.key()) {
        Some(_) => CpuRule::OfPolicy,
        None => CpuRule::FollowsWall,
    }
}

/// Returns the limits. The CPU limit rises with a wall time that the user sets, unless the user sets both limits.
fn resolve_cpu(values: &mut Values, rule: CpuRule, layers: &[Layer]) -> Limits {
    let limits = Limits::new(|limit| given(values.limit(limit)));
    let Some(origin) = set_by_user(layers, LimitName::Wall.key()) else {
        return limits;
    };
    let limits = limits.with_time(LimitName::Cpu, limits.cpu_within(limits.wall(), rule));
    if rule == CpuRule::FollowsWall {
        let cpu = Value::Limit(LimitName::Cpu, limits.amount(LimitName::Cpu));
        values.set(LimitName::Cpu.key(), Located::new(cpu, origin.clone()));
    }
    limits
}

/// Converts the values to a typed policy.
fn typed(
    name: &str,
    values: Values,
    limits: Limits,
    cpu_rule: CpuRule,
    mode_rule: ModeRule,
) -> Policy {
    let variables = given(values.variables(SET)).iter();
    Policy {
        name: name.to_owned(),
        description: given(values.text("description")).value,
        sha256: render::sha256(&values),
        python: PythonPolicy {
            interpreter: given(values.text(INTERPRETER)),
            environment: values.text(ENVIRONMENT),
            packages: given(values.list(PACKAGES)),
            missing_packages: of_flag(
                &values,
                "environments.create",
                [MissingPackages::Refused, MissingPackages::Installed],
            ),
            added_packages: of_flag(
                &values,
                "environments.add",
                [AddedPackages::Refused, AddedPackages::Shown],
            ),
            preload: given(values.list("python.preload")),
            path: given(values.list(PATH)),
            project: values
                .text::<PathBuf>(PROJECT)
                .filter(|project| project.value.is_absolute()),
            script: None,
            start: of_flag(&values, "python.fresh", [Start::Forked, Start::Cold]),
        },
        imports: ImportPolicy {
            allow: without_origins(given(values.list(IMPORTS))),
        },
        filesystem: FilesystemPolicy {
            system: given(values.text("filesystem.system")).value,
            proc: of_flag(
                &values,
                "filesystem.proc",
                [ProcVisibility::Absent, ProcVisibility::Own],
            ),
            work_exec: Located::new(
                of_flag(&values, WORK_EXEC, [WorkExec::Denied, WorkExec::Allowed]),
                given(values.origin(WORK_EXEC)).clone(),
            ),
            read: given(values.list(READ)),
            write: given(values.list("filesystem.write")),
        },
        network: NetworkPolicy {
            mode: given(values.text(MODE)),
            mode_rule,
            allow: given(values.list(HOSTS)),
            proxy: values.text(PROXY),
            resolver: values.text("network.resolver").map(|it| it.value),
            asks: of_flag(&values, "network.ask", [false, true]),
        },
        env: EnvPolicy {
            set: variables
                .map(|(name, value)| (name.clone(), value.value.clone()))
                .collect(),
            pass: without_origins(given(values.list(PASS))),
        },
        stdin: given(values.text("stdio.stdin")).value,
        limits,
        cpu_rule,
        session: session(&values),
        syscalls: SyscallPolicy {
            allow: given(values.list(ALLOW)),
            deny: given(values.list("syscalls.deny")),
        },
        require: given(values.text("assurance.require")),
        files: Vec::new(),
        values,
    }
}

fn session(values: &Values) -> SessionPolicy {
    SessionPolicy {
        idle: given(values.term("session.idle")),
        age: given(values.term("session.age")),
        pause_after: given(values.term("session.pause_after")),
    }
}

/// Returns the variant for a boolean key: the first if it is false, the second if it is true.
fn of_flag<T>(values: &Values, key: &str, [unset, set]: [T; 2]) -> T {
    if given(values.flag(key)) { set } else { unset }
}

fn without_origins<T>(items: Vec<Located<T>>) -> Vec<T> {
    items.into_iter().map(|item| item.value).collect()
}

/// Makes the path of the interpreter absolute. A bare name stays as it is.
fn resolve_interpreter(values: &mut Values, layers: &[Layer]) -> Result<(), PolicyError> {
    let mut topmost_first = layers.iter().rev();
    let found = topmost_first.find_map(|layer| {
        let text = layer.values.text::<String>(INTERPRETER)?;
        Some((text, layer.directory.as_deref()))
    });
    let (interpreter, directory) = given(found);
    let text = &interpreter.value;
    let refused = |problem: String| {
        let origin = interpreter.origin.clone();
        Err(PolicyError::new(origin, INTERPRETER, problem))
    };
    if text.trim().is_empty() {
        return refused(
            "the interpreter's name is empty: write \"python3\", or the path of an interpreter or a \
             virtual environment"
                .to_owned(),
        );
    }
    if text.contains(['/', '~', '\0']) {
        match resolve(text, directory) {
            Ok(path) => values.replace(INTERPRETER, Value::Text(path.display().to_string())),
            Err(problem) => return refused(problem),
        }
    }
    Ok(())
}

/// Resolves which variables are set and which are passed. The last layer that names a variable decides, so a
/// policy can pass a variable that its base sets. A single layer that does both is rejected.
fn resolve_env(values: &mut Values, layers: &[Layer], errors: &mut Vec<PolicyError>) {
    let mut set = BTreeMap::new();
    let mut pass: Vec<Located<String>> = Vec::new();
    for layer in layers {
        let own = layer.values.variables(SET).cloned().unwrap_or_default();
        let removed = layer.values.removed(PASS);
        pass.retain(|name| removed.iter().all(|item| item.value != name.value));
        for name in layer.values.list::<String>(PASS).unwrap_or_default() {
            if let Some(value) = own.get(&name.value) {
                let problem = format!(
                    "\"{}\" is taken from the caller here and set at {}: remove one of the two",
                    name.value, value.origin
                );
                errors.push(PolicyError::new(name.origin.clone(), PASS, problem));
            }
            set.remove(&name.value);
            pass.push(name);
        }
        pass.retain(|name| !own.contains_key(&name.value));
        set.extend(own);
    }
    values.replace(SET, Value::Variables(set));
    values.replace(PASS, Value::List(additions(pass)));
}

fn additions(add: Vec<Located<String>>) -> ListChange {
    let remove = Vec::new();
    ListChange { remove, add }
}

/// Allows all imports if no layer has a list, and rejects a list that has `*` and other patterns.
fn resolve_imports(values: &mut Values) -> Result<(), PolicyError> {
    let Some(allow) = values.list::<ImportPattern>(IMPORTS) else {
        let nowhere = Origin::of_file("policy");
        let everything = additions(vec![Located::new("*".to_owned(), nowhere.clone())]);
        values.set(IMPORTS, Located::new(Value::List(everything), nowhere));
        return Ok(());
    };
    let everything = |item: &&Located<ImportPattern>| item.value == ImportPattern::Everything;
    let other = allow.iter().find(|item| !everything(item));
    if let (Some(star), Some(other)) = (allow.iter().find(everything), other) {
        let problem = format!(
            "\"*\" allows every module and {} allows \"{}\": remove one of the two",
            other.origin, other.value
        );
        return Err(PolicyError::new(star.origin.clone(), IMPORTS, problem));
    }
    Ok(())
}

/// Rejects read-only paths inside writable ones: the sandbox could not keep them read-only. The reverse, a
/// writable path inside a read-only one, is allowed.
fn refuse_read_inside_write(
    key: &'static str,
    read: &[Located<PathBuf>],
    write: &[Located<PathBuf>],
    errors: &mut Vec<PolicyError>,
) {
    for read in read {
        let holder = write
            .iter()
            .find(|write| read.value.starts_with(&write.value));
        if let Some(holder) = holder {
            let problem = format!(
                "\"{}\" is to be read-only, but {} makes \"{}\" writable: remove one of the two",
                read.value.display(),
                holder.origin,
                holder.value.display()
            );
            errors.push(PolicyError::new(read.origin.clone(), key, problem));
        }
    }
}

/// Rejects packages beside a named environment, whose packages are fixed.
fn check_packages(python: &PythonPolicy) -> Result<(), PolicyError> {
    let (Some(environment), Some(package)) = (&python.environment, python.packages.first()) else {
        return Ok(());
    };
    let problem = format!(
        "\"{}\" is a package here, and {} names the environment \"{}\", which has packages of its own: remove one of \
         the two",
        package.value, environment.origin, environment.value
    );
    Err(PolicyError::new(package.origin.clone(), PACKAGES, problem))
}

fn check_syscalls(syscalls: &SyscallPolicy, errors: &mut Vec<PolicyError>) {
    for allowed in &syscalls.allow {
        let mut deny = syscalls.deny.iter();
        if let Some(denied) = deny.find(|denied| denied.value == allowed.value) {
            let problem = format!(
                "\"{}\" is allowed here and denied at {}: remove one, or extend a policy that does not \
                 deny it",
                allowed.value, denied.origin
            );
            errors.push(PolicyError::new(allowed.origin.clone(), ALLOW, problem));
        }
    }
}

/// Rejects entries that contradict each other, and secrets that `env.pass` would give to the guest.
fn check_network(policy: &Policy, errors: &mut Vec<PolicyError>) {
    let allow = &policy.network.allow;
    let rules = allow.iter().map(|rule| rule.value.clone()).collect();
    if let Err(found) = Rules::new(rules) {
        let problem = format!(
            "\"{}\" is allowed at {} too, with another `{key}` for the same port: write `{key}` in both or in none",
            allow[found.second].value.hosts(),
            allow[found.first].origin,
            key = found.key,
        );
        errors.push(PolicyError::new(
            allow[found.second].origin.clone(),
            HOSTS,
            problem,
        ));
    }
    for template in policy.network.templates() {
        for reference in template.value.references() {
            if let Reference::Variable(name) = reference
                && policy.env.pass.contains(name)
            {
                let problem = format!(
                    "${{{name}}} is a secret that only the egress process should have, and `env.pass` gives it to the \
                     guest: remove it from one of the two"
                );
                errors.push(PolicyError::new(template.origin.clone(), HOSTS, problem));
            }
        }
    }
}
