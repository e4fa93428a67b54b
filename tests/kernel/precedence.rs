//! Tests that guests do not inherit the scheduling privileges of their caller.

use std::fs;
use std::process::Command;

use nix::unistd::geteuid;

use crate::apart::{self, Part};
use crate::check::fine;
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub const PARTS: [Part; 1] = [("of-a-favoured-caller", favoured)];

pub fn tests() -> Vec<Test> {
    tests![a_guest_is_not_preferred]
}

/// Gives the process a nice value and, as root, the other precedence that the scheduler knows. Executes the command.
const FAVOUR: &str = "
import os, resource, sys
root = os.geteuid() == 0
os.setpriority(os.PRIO_PROCESS, 0, -5 if root else 5)
if root:
    for limit in resource.RLIMIT_NICE, resource.RLIMIT_RTPRIO:
        try:
            resource.setrlimit(limit, (9, 9))
        except ValueError:
            pass  # a root without CAP_SYS_RESOURCE
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        pass  # a cgroup without a share of real time
os.execv(sys.argv[1], sys.argv[1:])
";

const LOOK: &str = "
import os, resource
print(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))
print(resource.getrlimit(resource.RLIMIT_NICE), resource.getrlimit(resource.RLIMIT_RTPRIO))
";

fn a_guest_is_not_preferred(world: &World) {
    let part = apart::command("of-a-favoured-caller");
    let mut favoured = Command::new(&world.host.interpreter.executable);
    favoured.args(["-I", "-c", FAVOUR]).arg(part.get_program());
    let set = |(name, value): (_, Option<_>)| Some((name, value?));
    favoured.envs(part.get_envs().filter_map(set));
    let output = favoured.output().expect("the process starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{stderr}", output.status);
}

/// Runs in the process that `FAVOUR` prepared.
fn favoured() {
    let own = fs::read_to_string("/proc/self/stat").expect("/proc is mounted");
    let own = own.rsplit_once(") ").expect("a name").1;
    // Field 19 of proc_pid_stat(5). The string begins with field 3.
    let nice: i32 = own
        .split(' ')
        .nth(16)
        .expect("a field")
        .parse()
        .expect("a number");
    assert_eq!(nice, if geteuid().is_root() { -5 } else { 5 });
    let world = World::probe().expect("the host can be probed");
    let outcome = run(&world.build(standard()), LOOK);
    fine(&outcome);
    // A positive nice value is kept.
    let expected = format!("{} 0\n(0, 0) (0, 0)\n", nice.max(0));
    assert_eq!(outcome.stdout(), expected);
}
