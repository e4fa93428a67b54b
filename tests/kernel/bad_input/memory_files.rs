//! Tests on a host that forbids executable memory files (`vm.memfd_noexec=2`), which is a setting of a pid namespace:
//! the test creates one.

use std::process::Command;

use crate::need::Need;
use crate::test::{Test, needing, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    needing(
        Need::MemoryFileSetting,
        tests![only_network_allow_needs_executable_memfds],
    )
}

fn only_network_allow_needs_executable_memfds(world: &World) {
    let run = |setting: &str| {
        let mut command = Command::new("unshare");
        let set = "echo 2 > /proc/sys/vm/memfd_noexec && exec \"$@\"";
        command.args(["--pid", "--fork", "--mount-proc", "sh", "-c", set, "sh"]);
        command.args([env!("CARGO_BIN_EXE_sandfork"), "run", "-c", "print(6 * 7)"]);
        let interpreter = format!("python.interpreter={}", world.program().display());
        command.args(["--set", &interpreter, "--set", setting]);
        let output = command.output().expect("the process starts");
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned())
    };
    assert_eq!(run("network.mode=loopback"), ["42\n", ""]);
    let [printed, said] = run("network.mode=allow");
    assert_eq!(printed, "");
    assert!(said.contains("sudo sysctl -w vm.memfd_noexec=1"), "{said}");
}
