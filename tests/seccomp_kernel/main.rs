//! Tests of the seccomp filters in the kernel: real loads, real calls.
//!
//! The binary runs itself again for each group of calls. That process has one thread, loads the
//! filters and forks a child for each call, so a call may end its process. The same calls are also made
//! without filters: an allowed call must end as it does there, and a refused call must return exactly
//! the rule's error.

#[path = "../../src/plan/seccomp/tests/cases.rs"]
mod cases;
mod helper;
mod workload;

use std::io::Write as _;
use std::process::{Command, Stdio};

use libtest_mimic::{Arguments, Failed, Measurement, Trial};
use sandfork::internals::plan::seccomp::{Arch, Preset, Surroundings, Verdict, syscall_number};

use cases::{CASES, Where};
use helper::{End, Stage};

/// Arguments that are no valid pointer, descriptor, process, size or set of flags.
const NOTHING_VALID: [u64; 6] = [u64::MAX; 6];

/// Calls that a Rust function cannot make.
const NOT_CALLED: &[&str] = &[
    // The child would return on the stack that its suspended parent also returns on.
    "vfork",
];

const SURROUNDINGS: [Surroundings; 5] = [
    Surroundings::Namespaces,
    Surroundings::Loopback,
    Surroundings::SharedHost { landlock_abi: 1 },
    Surroundings::SharedHost { landlock_abi: 3 },
    Surroundings::SharedHost { landlock_abi: 6 },
];

/// One system call, and the error that the filters return; `None` if they allow it.
#[derive(Clone, Debug)]
struct Probe {
    name: String,
    number: u32,
    arguments: [u64; 6],
    errno: Option<i32>,
}

fn main() {
    let mut arguments = std::env::args();
    if arguments.nth(1).as_deref() == Some(helper::FLAG) {
        helper::main(arguments);
    }
    let arguments = Arguments::from_args();
    let mut trials: Vec<Trial> = SURROUNDINGS
        .into_iter()
        .flat_map(|surroundings| {
            [
                Trial::test(format!("guest_rules {surroundings:?}"), move || {
                    check(Stage::Worker, surroundings, guest_probes(surroundings))
                }),
                Trial::test(format!("jail_rules {surroundings:?}"), move || {
                    check(Stage::Zygote, surroundings, jail_probes(surroundings))
                }),
            ]
        })
        .collect();
    trials.extend([
        Trial::test("hand_written_cases", hand_written_cases),
        Trial::test("unknown_numbers", unknown_numbers),
        Trial::test(
            "another_architecture_is_killed",
            another_architecture_is_killed,
        )
        .with_ignored_flag(!cfg!(target_arch = "x86_64")),
        Trial::test("python_workload", workload::runs_under_both_filters),
        Trial::bench("load_zygote_filter", |once| {
            Ok(Some(load_cost(Stage::Zygote, once)))
        }),
        Trial::bench("load_worker_filter", |once| {
            Ok(Some(load_cost(Stage::Worker, once)))
        }),
    ]);
    libtest_mimic::run(&arguments, trials).exit();
}

fn arch() -> Arch {
    if cfg!(target_arch = "x86_64") {
        Arch::X86_64
    } else {
        Arch::Aarch64
    }
}

fn probe(name: &str, arguments: [u64; 6], errno: Option<i32>) -> Option<Probe> {
    let number = syscall_number(arch(), name)?;
    Some(Probe {
        name: name.to_owned(),
        number,
        arguments,
        errno,
    })
}

/// Returns each call of the guest's table that has one verdict for all arguments.
fn guest_probes(surroundings: Surroundings) -> Vec<Probe> {
    let guest = Preset::of(surroundings).guest;
    guest
        .into_iter()
        .filter(|(name, _)| !NOT_CALLED.contains(name))
        .filter_map(|(name, rule)| match rule.verdict {
            Verdict::Allow => probe(name, NOTHING_VALID, None),
            Verdict::Refuse { errno, .. } => probe(name, NOTHING_VALID, Some(errno as i32)),
            Verdict::AllowIf { .. } | Verdict::AskIf { .. } => None,
        })
        .collect()
}

/// Returns each call that only the jail may make.
fn jail_probes(surroundings: Surroundings) -> Vec<Probe> {
    let jail = Preset::of(surroundings).jail;
    jail.into_keys()
        .filter_map(|name| probe(name, NOTHING_VALID, None))
        .collect()
}

fn hand_written_cases() -> Result<(), Failed> {
    for surroundings in SURROUNDINGS {
        let here = |place: Where| match place {
            Where::Anywhere => true,
            Where::Namespaces => matches!(
                surroundings,
                Surroundings::Namespaces | Surroundings::Loopback
            ),
            Where::NoNetwork => surroundings == Surroundings::Namespaces,
            Where::Loopback => surroundings == Surroundings::Loopback,
            Where::SharedHost { landlock_abi } => {
                surroundings == Surroundings::SharedHost { landlock_abi }
            }
        };
        let probes = CASES
            .iter()
            .filter(|case| here(case.surroundings))
            .filter_map(|case| probe(case.syscall, case.arguments, case.errno));
        check(Stage::Worker, surroundings, probes.collect())?;
    }
    Ok(())
}

/// Numbers beyond the newest call, and x32's, which are those of the oldest calls with one more bit.
fn unknown_numbers() -> Result<(), Failed> {
    let numbers = (500..520).chain((0..20).map(|number| 0x4000_0000 + number));
    let probes = numbers.map(|number| Probe {
        name: format!("number {number:#x}"),
        number,
        arguments: [0; 6],
        errno: Some(libc::ENOSYS),
    });
    check(Stage::Worker, Surroundings::Namespaces, probes.collect())
}

/// `int 0x80`: getpid(2) by its number on i386.
fn another_architecture_is_killed() -> Result<(), Failed> {
    let call = [helper::I386_GETPID.to_owned()];
    let [unfiltered] = ends(Stage::None, Surroundings::Namespaces, &call)[..] else {
        return Err("no answer".into());
    };
    let [filtered] = ends(Stage::Worker, Surroundings::Namespaces, &call)[..] else {
        return Err("no answer".into());
    };
    let expected = match unfiltered {
        End::Returned => End::Killed(libc::SIGSYS),
        // A kernel without 32-bit calls raises SIGSEGV before any filter runs.
        other => other,
    };
    if filtered == expected && filtered != End::Returned {
        Ok(())
    } else {
        Err(format!("{filtered:?} with filters, {unfiltered:?} without").into())
    }
}

/// The number of retries of a call that waited in only one of the two processes.
const AGAIN: usize = 10;

fn check(stage: Stage, surroundings: Surroundings, probes: Vec<Probe>) -> Result<(), Failed> {
    let lines = |probes: &[Probe]| -> Vec<String> {
        probes
            .iter()
            .map(|probe| helper::line(probe.number, probe.arguments))
            .collect()
    };
    let (allowed, refused): (Vec<Probe>, Vec<Probe>) =
        probes.into_iter().partition(|probe| probe.errno.is_none());
    let mut unfiltered = ends(Stage::None, surroundings, &lines(&allowed));
    let mut filtered = ends(stage, surroundings, &lines(&allowed));
    for (number, probe) in allowed.iter().enumerate() {
        // On a stalled CPU, a call that does not wait may look like one that does.
        let waits = End::Killed(libc::SIGALRM);
        for _ in 0..AGAIN {
            let (with, without) = (filtered[number], unfiltered[number]);
            if with == without || ![with, without].contains(&waits) {
                break;
            }
            let line = lines(std::slice::from_ref(probe));
            filtered[number] = ends(stage, surroundings, &line)[0];
            unfiltered[number] = ends(Stage::None, surroundings, &line)[0];
        }
    }
    let answers = ends(stage, surroundings, &lines(&refused));
    let expected = refused.iter().map(|probe| match probe.errno {
        Some(0) | None => End::Returned,
        Some(errno) => End::Error(errno),
    });
    let wrong: Vec<String> = allowed
        .iter()
        .zip(filtered.iter().copied().zip(unfiltered.iter().copied()))
        .chain(refused.iter().zip(answers.iter().copied().zip(expected)))
        .filter(|(_, (got, wanted))| got != wanted)
        .map(|(probe, (got, wanted))| {
            format!(
                "{} {:x?}: {got:?}, not {wanted:?}",
                probe.name, probe.arguments
            )
        })
        .collect();
    if filtered.len() != allowed.len() || answers.len() != refused.len() {
        return Err("the helper did not answer every call".into());
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n").into())
    }
}

/// Makes the calls in a helper that has loaded the filters of `stage`.
fn ends(stage: Stage, surroundings: Surroundings, lines: &[String]) -> Vec<End> {
    let mut child = helper_command(stage, surroundings)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary runs itself");
    let mut stdin = child.stdin.take().expect("it was piped");
    stdin
        .write_all(lines.join("\n").as_bytes())
        .expect("the helper reads its input");
    drop(stdin);
    let output = child.wait_with_output().expect("the helper ends");
    assert!(output.status.success(), "helper: {}", output.status);
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(End::parse)
        .collect()
}

fn helper_command(stage: Stage, surroundings: Surroundings) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the binary has a path"));
    command
        .arg(helper::FLAG)
        .arg(stage.to_string())
        .arg(helper::surroundings_flag(surroundings));
    command
}

/// Measures the nanoseconds of one load: the median of many helpers, and the distance between the 10 and 90
/// percent quantiles. A test takes a single sample.
fn load_cost(stage: Stage, once: bool) -> Measurement {
    let samples = if once { 1 } else { 201 };
    let mut nanos: Vec<u64> = (0..samples)
        .map(|_| {
            let output = helper_command(stage, Surroundings::Namespaces)
                .arg(helper::MEASURE)
                .output()
                .expect("the test binary runs itself");
            String::from_utf8_lossy(&output.stdout)
                .trim()
                .parse()
                .expect("a number")
        })
        .collect();
    nanos.sort_unstable();
    let quantile = |tenths: usize| nanos[(nanos.len() - 1) * tenths / 10];
    Measurement {
        avg: quantile(5),
        variance: quantile(9) - quantile(1),
    }
}
