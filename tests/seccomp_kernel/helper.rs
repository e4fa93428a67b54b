//! The single-threaded helper process that loads filters and makes calls.

#![allow(unsafe_code)]

use std::fmt;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, exit};
use std::time::Instant;

use sandfork::internals::plan::seccomp::{Filters, Surroundings, compile};
use sandfork_jail::filter::without_listener;
use sandfork_jail::program::BpfProgram;

/// The first argument of the helper.
pub const FLAG: &str = "--seccomp-helper";
/// Prints the nanoseconds that the last load took, and does nothing else.
pub const MEASURE: &str = "measure";
/// Loads the filters and executes the program that follows.
pub const EXEC: &str = "exec";
/// The input line for a call through the system call gate of another architecture.
pub const I386_GETPID: &str = "i386-getpid";

/// The filters to load.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    None,
    Zygote,
    Worker,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Zygote => "zygote",
            Self::Worker => "worker",
        })
    }
}

/// The result of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    Returned,
    Error(i32),
    Exited(i32),
    Killed(i32),
}

impl End {
    pub fn parse(line: &str) -> Self {
        let (word, number) = line.split_once(' ').expect("a word and a number");
        let number = number.parse().expect("a number");
        match word {
            "returned" => Self::Returned,
            "error" => Self::Error(number),
            "exited" => Self::Exited(number),
            _ => Self::Killed(number),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Returned => write!(f, "returned 0"),
            Self::Error(errno) => write!(f, "error {errno}"),
            Self::Exited(code) => write!(f, "exited {code}"),
            Self::Killed(signal) => write!(f, "killed {signal}"),
        }
    }
}

/// Formats a call as a line of the helper's input.
pub fn line(number: u32, arguments: [u64; 6]) -> String {
    let words: Vec<String> = arguments.iter().map(u64::to_string).collect();
    format!("{number} {}", words.join(" "))
}

pub fn surroundings_flag(surroundings: Surroundings) -> String {
    match surroundings {
        Surroundings::Namespaces => "namespaces".to_owned(),
        Surroundings::Loopback => "loopback".to_owned(),
        Surroundings::SharedHost { landlock_abi } => landlock_abi.to_string(),
    }
}

pub fn main(mut arguments: impl Iterator<Item = String>) -> ! {
    let stage = arguments.next().expect("a stage");
    let surroundings = match arguments.next().expect("surroundings").as_str() {
        "namespaces" => Surroundings::Namespaces,
        "loopback" => Surroundings::Loopback,
        abi => Surroundings::SharedHost {
            landlock_abi: abi.parse().expect("an ABI"),
        },
    };
    let mode = arguments.next();
    let mut input = String::new();
    if mode.is_none() {
        std::io::stdin().read_to_string(&mut input).expect("calls");
        become_nobody();
    }
    // A program has epoll watches unconditionally, like a worker with its own uid.
    let unasked: &[&str] = match mode.as_deref() {
        Some(EXEC) => &["epoll_ctl"],
        _ => &[],
    };
    let filters = compile(crate::arch(), surroundings, unasked, &[] as &[&str]);
    let Filters { zygote, worker } = filters.expect("the preset compiles");
    let programs = match stage.as_str() {
        "none" => vec![],
        "zygote" => zygote,
        // No supervisor handles the notifications.
        _ => zygote
            .into_iter()
            .chain(worker.iter().map(without_listener))
            .collect(),
    };
    no_new_privileges();
    let mut nanos = 0;
    for program in &programs {
        let start = Instant::now();
        load(program);
        nanos = start.elapsed().as_nanos();
    }
    match mode.as_deref() {
        Some(MEASURE) => println!("{nanos}"),
        Some(_) => {
            let program = arguments.next().expect("a program");
            panic!(
                "{program}: {}",
                Command::new(&program).args(arguments).exec()
            );
        }
        None => {
            for call in input.lines() {
                println!("{}", in_child(|| make(call)));
            }
        }
    }
    exit(0);
}

/// Drops root: the calls of the tests are harmless, but a mistake as root would be less so.
fn become_nobody() {
    const ORDINARY_UID: u32 = 65534;
    // SAFETY: these calls take integers only, and the process has one thread.
    unsafe {
        libc::setsid();
        if libc::geteuid() == 0 {
            assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
            assert_eq!(libc::setresgid(ORDINARY_UID, ORDINARY_UID, ORDINARY_UID), 0);
            assert_eq!(libc::setresuid(ORDINARY_UID, ORDINARY_UID, ORDINARY_UID), 0);
        }
    }
}

fn no_new_privileges() {
    // SAFETY: the option takes integers only.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(result, 0);
}

fn load(program: &BpfProgram) {
    let mut instructions: Vec<libc::sock_filter> = program
        .iter()
        .map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k })
        .collect();
    let program = libc::sock_fprog {
        len: instructions
            .len()
            .try_into()
            .expect("at most 4096 instructions"),
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: `program` and the instructions it points at outlive the call, which copies them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Makes `call` in a forked child and returns how it ended.
fn in_child(call: impl FnOnce() -> Result<(), i32>) -> End {
    std::io::stdout().flush().expect("the parent reads");
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the process has one thread, so the child may do all that the parent may.
    let child = unsafe { libc::fork() };
    assert_ne!(child, -1, "{}", std::io::Error::last_os_error());
    if child == 0 {
        let pid = std::process::id();
        limit_time();
        let result = call();
        // The call may have forked a child of its own, which must not report anything.
        if std::process::id() == pid {
            let errno = result.err().unwrap_or_default();
            let _ = writer.write_all(&errno.to_ne_bytes());
        }
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    drop(writer);
    let mut report = Vec::new();
    reader.read_to_end(&mut report).expect("the child's report");
    let status = wait(child);
    match <[u8; 4]>::try_from(report).map(i32::from_ne_bytes) {
        Ok(0) => End::Returned,
        Ok(errno) => End::Error(errno),
        Err(_) if libc::WIFSIGNALED(status) => End::Killed(libc::WTERMSIG(status)),
        Err(_) => End::Exited(libc::WEXITSTATUS(status)),
    }
}

/// Ends a call that waits, such as pause(2), with SIGALRM.
fn limit_time() {
    let timer = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: 0,
            tv_usec: 300_000,
        },
    };
    // SAFETY: `timer` lives through the call; the old value is not requested.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}

fn wait(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` lives through the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    status
}

fn make(call: &str) -> Result<(), i32> {
    if call == I386_GETPID {
        i386_getpid();
        return Ok(());
    }
    let words: Vec<u64> = call
        .split(' ')
        .map(|word| word.parse().expect("a number"))
        .collect();
    let (number, arguments) = words.split_first().expect("a number");
    let &[first, second, third, fourth, fifth, sixth] = arguments else {
        panic!("{call}")
    };
    // SAFETY: the calls of the tests pass no valid pointer but null and none that is written
    // through, and what they do to the process ends with it: it makes this call and reports.
    let result = unsafe {
        libc::syscall(
            number.cast_signed(),
            first,
            second,
            third,
            fourth,
            fifth,
            sixth,
        )
    };
    if result == -1 {
        return Err(std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or_default());
    }
    Ok(())
}

#[cfg(target_arch = "x86_64")]
fn i386_getpid() {
    // SAFETY: getpid touches no memory; the kernel clears r8 to r11 on the way back.
    unsafe {
        std::arch::asm!(
            "int 0x80",
            inout("eax") 20 => _,
            out("r8") _,
            out("r9") _,
            out("r10") _,
            out("r11") _,
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn i386_getpid() {}
