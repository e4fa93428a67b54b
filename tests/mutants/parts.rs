//! Derives mutants from the observed steps of a jail's set-up: each mutant lacks one part.
//!
//! What can be deleted is not listed here but observed: it is what the product does. The tables only
//! give names to bits, and a bit without a name is deleted all the same.

use sandfork::Layer;

use crate::edit::{Act, Edit, Site, Which};
use crate::family::{Call, Role};
use crate::mutant::Mutant;
use crate::step::{Detail, Step};

type Names = &'static [(u64, &'static str)];

const NAMESPACES: Names = &[
    (0x0000_0080, "time"),
    (0x0002_0000, "mount"),
    (0x0200_0000, "cgroup"),
    (0x0400_0000, "uts"),
    (0x0800_0000, "ipc"),
    (0x1000_0000, "user"),
    (0x2000_0000, "pid"),
    (0x4000_0000, "net"),
];

/// The restricting flags of mount(2), which are also attributes of mount_setattr(2).
const MOUNT: Names = &[(1, "ro"), (2, "nosuid"), (4, "nodev"), (8, "noexec")];
/// The attribute that maps the guest's ids to the owner of a writable path. It restricts nothing.
const IDMAP: u64 = 0x10_0000;

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 2;
const MAKE_REG: u64 = 0x100;

const FILES: Names = &[
    (EXECUTE, "execute"),
    (WRITE_FILE, "write_file"),
    (4, "read_file"),
    (8, "read_dir"),
    (0x10, "remove_dir"),
    (0x20, "remove_file"),
    (0x40, "make_char"),
    (0x80, "make_dir"),
    (MAKE_REG, "make_reg"),
    (0x200, "make_sock"),
    (0x400, "make_fifo"),
    (0x800, "make_block"),
    (0x1000, "make_sym"),
    (0x2000, "refer"),
    (0x4000, "truncate"),
    (0x8000, "ioctl_dev"),
];
const NET: Names = &[(1, "bind_tcp"), (2, "connect_tcp")];
const SCOPES: Names = &[(1, "abstract unix sockets"), (2, "signals")];

const RESOURCES: Names = &[
    (0, "cpu"),
    (1, "fsize"),
    (2, "data"),
    (3, "stack"),
    (4, "core"),
    (6, "nproc"),
    (7, "nofile"),
    (8, "memlock"),
    (11, "sigpending"),
    (12, "msgqueue"),
    (13, "nice"),
    (14, "rtprio"),
];

/// The options of prctl(2) that restrict the process.
const SETTINGS: Names = &[
    (1, "parent-death signal"),
    (4, "dumpable"),
    (24, "bounding set"),
    (38, "no_new_privs"),
    (47, "ambient set"),
];

/// Returns each set bit with its name.
fn bits(word: u64, names: Names) -> impl Iterator<Item = (u64, String)> {
    let set = (0..64).map(|bit| 1_u64 << bit);
    set.filter(move |bit| word & bit != 0).map(move |bit| {
        let name = names.iter().find(|(named, _)| *named == bit);
        let name = name.map_or_else(|| format!("bit {bit:#x}"), |(_, name)| (*name).to_owned());
        (bit, name)
    })
}

fn name_of(value: u64, names: Names) -> Option<&'static str> {
    let found = names.iter().find(|(named, _)| *named == value);
    found.map(|(_, name)| *name)
}

/// Returns every mutant of these steps, in their order.
pub fn mutants(steps: &[Step]) -> Vec<Mutant> {
    let mut all: Vec<Mutant> = Vec::new();
    // Once its filter is loaded, a worker only checks the jail.
    let is_filter = |step: &Step| step.call.role == Role::Worker && step.call.is(&["seccomp"]);
    let last = steps.iter().position(is_filter).unwrap_or(steps.len());
    let looks = |(index, step): &(usize, &Step)| *index > last && step.call.role == Role::Worker;
    let made = steps.iter().enumerate().filter(|step| !looks(step));
    for mutant in made.flat_map(|(_, step)| of(step, steps)) {
        let same = |known: &Mutant| {
            known.name == mutant.name || known.name.starts_with(&format!("{}, the ", mutant.name))
        };
        let before = all.iter().filter(|known| same(known)).count();
        match all.iter_mut().find(|known| known.name == mutant.name) {
            None => all.push(mutant),
            Some(known) if known.edits == mutant.edits => {}
            // One rule of the plan that applies to everything shown is deleted as a whole.
            Some(known) if matches!(known.layer, Layer::Mounts | Layer::Landlock) => {
                known.edits.extend(mutant.edits);
            }
            Some(_) => {
                let name = format!("{}, the {}th", mutant.name, before + 1);
                all.push(Mutant { name, ..mutant });
            }
        }
    }
    all
}

fn of(step: &Step, steps: &[Step]) -> Vec<Mutant> {
    let call = &step.call;
    let who = &maker(call, steps);
    let one = |layer, name: String, act| {
        let at = Site::of(call);
        Mutant::new(layer, format!("{layer}: {name}"), vec![Edit { at, act }])
    };
    let left_out = |layer, name: String| vec![one(layer, name, Act::LeaveOut(0))];
    match (call.name(), &step.detail) {
        // Of the jail, the supervisor only makes the cgroups.
        ("write", Detail::Setting { file, value }) => setting(step, who, file, value),
        _ if call.role == Role::Supervisor => Vec::new(),
        ("unshare", _) => bits(call.arguments[0], NAMESPACES)
            .map(|(bits, name)| {
                let act = Act::Without { argument: 0, bits };
                one(Layer::Namespaces, format!("{who} without {name}"), act)
            })
            .collect(),
        ("setns", _) if call.role == Role::Worker => {
            left_out(Layer::Namespaces, "worker without its network".to_owned())
        }
        ("sendto", _) if call.role == Role::Worker => {
            left_out(Layer::Namespaces, "loopback not brought up".to_owned())
        }
        // Calls of the process that connects to hosts.
        ("bind" | "listen", _) if call.role == Role::Worker => left_out(
            Layer::Namespaces,
            format!("socket for hosts without {}", call.name()),
        ),
        ("sethostname", _) => left_out(Layer::Namespaces, "host name".to_owned()),
        ("mount", Detail::Mount { .. }) => mounted(step, who),
        ("mount_setattr", Detail::Tree { attributes, .. }) if *attributes == IDMAP => Vec::new(),
        ("mount_setattr", Detail::Tree { path, attributes }) => bits(*attributes, MOUNT)
            .map(|(clear, name)| {
                let kind: Vec<String> = bits(*attributes, MOUNT).map(|(_, name)| name).collect();
                let act = Act::Word {
                    argument: 3,
                    offset: 0,
                    clear,
                    set: 0,
                };
                let kind = kind.join(", ");
                let within = if path.starts_with("/tmp") {
                    "in /tmp "
                } else {
                    ""
                };
                one(
                    Layer::Mounts,
                    format!("what is shown {within}{kind}, without {name}"),
                    act,
                )
            })
            .collect(),
        ("fsmount", Detail::FileSystem { kind }) => bits(call.arguments[2], MOUNT)
            .map(|(bits, name)| {
                let act = Act::Without { argument: 2, bits };
                one(Layer::Mounts, format!("{who}'s {kind} without {name}"), act)
            })
            .collect(),
        ("pivot_root" | "umount2", _) => left_out(Layer::Mounts, format!("no {}", call.name())),
        ("landlock_restrict_self", _) => left_out(Layer::Landlock, format!("{who} not enforced")),
        ("landlock_create_ruleset", Detail::Ruleset { files, net, scopes }) => {
            handled(step, [*files, *net, *scopes])
        }
        ("landlock_add_rule", Detail::Rule { rights }) => granted(step, *rights, steps),
        ("seccomp", _) => left_out(Layer::Seccomp, format!("{who}'s filter not loaded")),
        ("capset" | "close_range" | "setsid" | "setgroups" | "setresgid" | "setresuid", _) => {
            left_out(
                Layer::Capabilities,
                format!("{who} without {}", call.name()),
            )
        }
        ("prctl", _) => setting_of_the_process(call, who),
        // Without a new value, the call only reads the limit.
        ("prlimit64", _) if call.arguments[2] != 0 => {
            let resource = name_of(call.arguments[1], RESOURCES).unwrap_or("another");
            left_out(Layer::Rlimits, format!("{who} without {resource}"))
        }
        ("sched_setaffinity", _) => left_out(Layer::Rlimits, "not pinned".to_owned()),
        _ => Vec::new(),
    }
}

/// Returns who makes the step. The zygote builds the root before it enters a mount namespace to preload in.
fn maker(call: &Call, steps: &[Step]) -> String {
    let enters = |step: &Step| step.call.role == Role::Zygote && step.call.is(&["unshare"]);
    let before = |step: &Step| step.call.nth > call.nth;
    let is_of_mounts = call.is(&["mount", "fsmount"]);
    match call.role {
        Role::Zygote
            if is_of_mounts && steps.iter().find(|step| enters(step)).is_some_and(before) =>
        {
            "root".to_owned()
        }
        role => role.to_string(),
    }
}

/// Returns mutants of a mount: not made, and without each of its flags and options.
fn mounted(step: &Step, who: &str) -> Vec<Mutant> {
    let call = &step.call;
    let Detail::Mount {
        target,
        kind,
        options,
    } = &step.detail
    else {
        return Vec::new();
    };
    let one = |name: &str, act| {
        let at = format!("mounts: {who}, {kind} at {target}").replace(",  at", ", at");
        let edits = vec![Edit::new(Site::of(call), act)];
        Mutant::new(Layer::Mounts, format!("{at}{name}"), edits)
    };
    let flags = bits(call.arguments[3] & 0xf, MOUNT).map(|(bits, name)| {
        let act = Act::Without { argument: 3, bits };
        one(&format!(" without {name}"), act)
    });
    let options = options.split(',').filter(|option| !option.is_empty());
    let options = options.map(|option| {
        let (argument, without) = (4, option.to_owned());
        one(
            &format!(" without {option}"),
            Act::Option { argument, without },
        )
    });
    let all = [one(": not made", Act::LeaveOut(0))].into_iter();
    all.chain(flags).chain(options).collect()
}

/// Returns mutants of prctl(2) calls that restrict the process.
fn setting_of_the_process(call: &Call, who: &str) -> Vec<Mutant> {
    let [option, value, ..] = call.arguments;
    let Some(name) = name_of(option, SETTINGS) else {
        return Vec::new();
    };
    // The order in which the bounding set is emptied varies.
    let (name, with) = match name {
        "bounding set" => (
            format!("{who} keeps capability {value} in the bounding set"),
            vec![option, value],
        ),
        _ => (format!("{who} without {name}"), vec![option]),
    };
    let at = Site::every(call.role, "prctl").which(Which::With(with));
    let edits = vec![Edit::new(at, Act::LeaveOut(0))];
    let name = format!("capabilities: {name}");
    vec![Mutant::new(Layer::Capabilities, name, edits)]
}

/// Returns mutants of a ruleset. A right that it does not handle is granted to all, so no rule may name it either.
fn handled(step: &Step, words: [u64; 3]) -> Vec<Mutant> {
    let kinds = [(words[0], FILES), (words[1], NET), (words[2], SCOPES)];
    let mut all = Vec::new();
    for (place, (word, names)) in kinds.into_iter().enumerate() {
        for (clear, name) in bits(word, names) {
            let word = |argument, offset| Act::Word {
                argument,
                offset,
                clear,
                set: 0,
            };
            let mut edits = vec![Edit {
                at: Site::of(&step.call),
                act: word(0, place as u64 * 8),
            }];
            if place == 0 {
                edits.push(Edit {
                    at: Site::every(step.call.role, "landlock_add_rule"),
                    act: word(2, 0),
                });
            }
            let name = format!("landlock: {name} not handled");
            all.push(Mutant::new(Layer::Landlock, name, edits));
        }
    }
    all
}

/// Returns mutants of a rule that grant one more right.
fn granted(step: &Step, rights: u64, steps: &[Step]) -> Vec<Mutant> {
    let has = |right| rights & right != 0;
    let kind = match () {
        () if has(MAKE_REG) => "to what may be written",
        () if has(WRITE_FILE) => "to devices",
        () if has(EXECUTE) => "to what may be run",
        () => "to what may be read",
    };
    let handled = steps.iter().find_map(|step| match step.detail {
        Detail::Ruleset { files, .. } => Some(files),
        _ => None,
    });
    bits(handled.unwrap_or(0) & !rights, FILES)
        .map(|(set, name)| {
            let act = Act::Word {
                argument: 2,
                offset: 0,
                clear: 0,
                set,
            };
            let edit = Edit {
                at: Site::of(&step.call),
                act,
            };
            let name = format!("landlock: {name} granted {kind}");
            Mutant::new(Layer::Landlock, name, vec![edit])
        })
        .collect()
}

/// Returns the mutant of a write to a file of a cgroup or to an id map.
fn setting(step: &Step, who: &str, file: &str, value: &str) -> Vec<Mutant> {
    let layer = match file {
        "uid_map" | "gid_map" | "setgroups" | "tcp_rmem" | "tcp_wmem" | "timens_offsets" => {
            Layer::Namespaces
        }
        "tasks" | "cgroup.procs" => Layer::Cgroup,
        // The zygote also writes files of these names, which show a guest its limits. They limit nothing.
        _ if step.call.role == Role::Supervisor
            && ["memory.", "pids.", "cpu.", "cgroup."]
                .iter()
                .any(|kind| file.starts_with(kind)) =>
        {
            Layer::Cgroup
        }
        _ => return Vec::new(),
    };
    let call = &step.call;
    let at = match file {
        // One such file exists in each hierarchy, and a worker joins them in a fixed order.
        "tasks" | "cgroup.procs" => Site::of(call),
        // The number of earlier writes of the supervisor's threads depends on their timing.
        _ => Site::every(call.role, "write").which(Which::On(file.to_owned())),
    };
    let act = Act::Swallow;
    let value = value.trim().replace('\n', ", ");
    let name = match file {
        "tasks" | "cgroup.procs" => format!("{layer}: {who} does not join"),
        // The value contains the host's clocks.
        "timens_offsets" => format!("{layer}: {who} does not write to {file}"),
        _ => format!("{layer}: {who} does not write {value} to {file}"),
    };
    vec![Mutant::new(layer, name, vec![Edit { at, act }])]
}
