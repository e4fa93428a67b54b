//! Skips each step of the jail in turn and reports success to the caller. The worker or the supervisor must
//! notice that the step is missing before any guest code runs.

use crate::family::Call;
use crate::fault::Act;
use crate::set_up::Allowed;

/// Calls that change something and return 0.
const STEPS: &[&str] = &[
    "capset",
    "chdir",
    "close_range",
    "fsconfig",
    "landlock_add_rule",
    "landlock_restrict_self",
    "mount",
    "mount_setattr",
    "move_mount",
    "pivot_root",
    "prctl",
    "prlimit64",
    "seccomp",
    "setgroups",
    "sethostname",
    "setns",
    "setresgid",
    "setresuid",
    "umount2",
    "unshare",
];

/// Returns how to skip a call, if it is a step of the jail.
pub fn skipped_step(call: &Call) -> Option<Act> {
    let returns = match call.name() {
        name if STEPS.contains(&name) => 0,
        // Id maps and cgroups: as if everything had been written.
        "write" if !call.is_on_data() => call.arguments[2].cast_signed(),
        // Not that of stdout, without which a guest cannot report anything: it would have the zygote's, which is
        // /dev/null.
        "dup3" if call.arguments[1] != 1 => call.arguments[1].cast_signed(),
        _ => return None,
    };
    Some(Act::Pretend(returns))
}

/// What may follow from a skipped step.
pub const LEFT_OUT: Allowed = Allowed {
    posture: holds_no_less,
    later: true,
};

/// Returns whether a guest with these differences is confined as well as any: it can do less, or lacks a name.
fn holds_no_less(differing: &[String]) -> bool {
    const NO_LAYER: [&str; 8] = [
        // The group has no name inside; outside it is the same one.
        "Gid",
        "gid_map",
        // It has no effect without a capability.
        "setgroups",
        // What an ordinary program shows of itself.
        "ids",
        "place",
        // The guest could not start or continue.
        "exception",
        "exit",
        "signal",
    ];
    differing.iter().all(|line| {
        // The guest sees less of the host.
        if line.starts_with("no more: mount ") {
            return true;
        }
        let line = line.strip_prefix("no more: ").unwrap_or(line);
        NO_LAYER.contains(&line.split(' ').next().unwrap_or_default())
    })
}
