//! Each step of the jail is left out in turn, and told that it was done: what is then missing must be
//! seen, by the worker itself or by the supervisor, before any guest code runs.

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

/// How a call is left out, if it is one of the jail's steps.
pub fn left_out(call: &Call) -> Option<Act> {
    let returns = match call.name() {
        name if STEPS.contains(&name) => 0,
        // Id maps, cgroups: as if all had been written.
        "write" if !call.is_on_data() => call.arguments[2].cast_signed(),
        // But that of standard output, without which a guest can tell nothing: it has the zygote's, which is
        // /dev/null.
        "dup3" if call.arguments[1] != 1 => call.arguments[1].cast_signed(),
        _ => return None,
    };
    Some(Act::Pretend(returns))
}

/// What may come of it.
pub const LEFT_OUT: Allowed = Allowed {
    posture: holds_no_less,
    later: true,
};

/// Whether a guest that finds this is held as well as any: it may do less, or has lost a name.
fn holds_no_less(differing: &[String]) -> bool {
    const NO_LAYER: [&str; 8] = [
        // Its group has no number inside; outside it is the same one.
        "Gid",
        "gid_map",
        // It has no effect without a capability.
        "setgroups",
        // What an ordinary program shows of itself.
        "ids",
        "place",
        // It could not begin, or not go on.
        "exception",
        "exit",
        "signal",
    ];
    differing.iter().all(|line| {
        // It sees less of the host.
        if line.starts_with("no more: mount ") {
            return true;
        }
        let line = line.strip_prefix("no more: ").unwrap_or(line);
        NO_LAYER.contains(&line.split(' ').next().unwrap_or_default())
    })
}
