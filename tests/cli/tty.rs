//! Tests of `-t` of `sandfork exec` and `run`: a program with its own terminal.

use std::fs;
use std::process::Command;

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;

use super::behaviour::{sandfork, signal};
use super::shell::Person;
use super::trials;

trials! {
    shell_has_job_control,
    guest_terminal_is_separate,
    guest_terminal_has_the_callers_size,
    script_reads_input_and_enters_the_debugger,
    exception_is_shown_after_the_terminal_is_restored,
    terminal_is_restored_at_every_exit,
    stopped_command_restores_the_terminal,
    terminal_modes_of_the_guest_are_reset,
    limits_hold_at_a_terminal,
    no_terminal_is_a_clear_error,
    code_can_open_pseudoterminals,
    refusals_are_shown_on_a_terminal,
}

const SHELL: [&str; 6] = ["exec", "-t", "--", "sh", "-i", "-m"];

fn modes(person: &Person) -> Result<Termios, Failed> {
    Ok(tcgetattr(&person.terminal)?)
}

fn shell_has_job_control() -> Result<(), Failed> {
    let mut person = Person::with(&SHELL)?;
    person.see("$ ")?;
    // The job is in the foreground once it prints. It starts no program: a shell that a signal stops between `vfork`
    // and `exec` of its child never becomes a stopped job.
    let job = "trap 'echo again-$((1+1))' CONT; echo on-$((1+1)); while :; do read -r line; done";
    person.types(&format!("sh -c \"{}\"\r", job.replace('$', "\\$")))?;
    person.see("on-2")?;
    person.types("\x1a")?;
    person.see("Stopped")?;
    person.see("$ ")?;
    person.types("fg\r")?;
    person.see("again-2")?;
    person.types("\x03")?;
    person.see("$ ")?;
    person.types("echo after=$((1+1))\r")?;
    person.see("after=2")?;
    person.types("exit 7\r")?;
    assert_eq!(person.code()?, Some(7));
    Ok(())
}

fn guest_terminal_is_separate() -> Result<(), Failed> {
    let mut person = Person::with(&SHELL)?;
    person.see("$ ")?;
    person.types("tty; echo $TERM\r")?;
    person.see("\r\n/dev/pts/0\r\nxterm\r\n")?;
    person.types("exit\r")?;
    assert_eq!(person.code()?, Some(0));
    Ok(())
}

fn guest_terminal_has_the_callers_size() -> Result<(), Failed> {
    let code = "while :; do stty size; sleep 0.1; done";
    let resize = |person: &Person, rows: &str, columns: &str| -> Result<(), Failed> {
        let mut stty = Command::new("stty");
        stty.args(["rows", rows, "cols", columns])
            .stdin(person.terminal.try_clone()?);
        assert!(stty.status()?.success());
        Ok(())
    };
    let mut person = Person::with(&["exec", "-t", "--", "sh", "-c", code])?;
    person.see("\r\n")?;
    resize(&person, "33", "101")?;
    person.see("33 101\r\n")?;
    // Also while the command is stopped.
    signal(&person.shell, Signal::SIGSTOP);
    resize(&person, "44", "99")?;
    signal(&person.shell, Signal::SIGCONT);
    person.see("44 99\r\n")?;
    signal(&person.shell, Signal::SIGTERM);
    assert_eq!(person.code()?, Some(130));
    Ok(())
}

const ASKS: &str = "import os
print(os.ttyname(0), input('name? '))
number = 6
breakpoint()
print(number)
";

fn script_reads_input_and_enters_the_debugger() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let script = directory.path().join("asks.py");
    fs::write(&script, ASKS)?;
    let mut person = Person::with(&["run", "-t", script.to_str().unwrap()])?;
    person.see("name? ")?;
    person.types("Ada\r")?;
    person.see("/dev/pts/0 Ada\r\n")?;
    person.see("(Pdb) ")?;
    person.types("number = 42\r")?;
    person.see("(Pdb) ")?;
    person.types("continue\r")?;
    person.see("42\r\n")?;
    assert_eq!(person.code()?, Some(0));
    Ok(())
}

fn exception_is_shown_after_the_terminal_is_restored() -> Result<(), Failed> {
    let code = "print('begun'); input(); raise ValueError('wrong')";
    let mut person = Person::with(&["run", "-t", "-c", code])?;
    let before = modes(&person)?;
    person.see("begun\r\n")?;
    person.types("\r")?;
    let seen = person.see("ValueError: wrong\r\n")?;
    assert!(
        seen.contains("\r\n  File \"<string>\", line 1, in <module>\r\n"),
        "{seen:?}"
    );
    assert_eq!(person.code()?, Some(1));
    assert!(modes(&person)? == before);
    let mut person = Person::with(&["run", "-t", "-c", "print('on'); input()"])?;
    person.see("on\r\n")?;
    person.types("\x03")?;
    person.see("KeyboardInterrupt")?;
    person.code()?;
    Ok(())
}

fn terminal_is_restored_at_every_exit() -> Result<(), Failed> {
    for (ended_by, code) in [
        (None, 137),
        (Some(Signal::SIGTERM), 130),
        (Some(Signal::SIGINT), 130),
        (Some(Signal::SIGHUP), 130),
        (Some(Signal::SIGQUIT), 130),
    ] {
        let mut person = Person::with(&SHELL)?;
        let slave = modes(&person)?;
        person.see("$ ")?;
        assert!(modes(&person)? != slave, "the terminal is raw");
        match ended_by {
            None => person.types("kill -9 $$\r")?,
            Some(ended_by) => signal(&person.shell, ended_by),
        }
        person.see("\x1b[0m")?;
        let left = person.shell.wait()?;
        assert_eq!(left.code(), Some(code), "{ended_by:?}");
        assert!(modes(&person)? == slave, "{ended_by:?}");
    }
    Ok(())
}

fn stopped_command_restores_the_terminal() -> Result<(), Failed> {
    // A shell with job control is the parent, because the kernel does not stop a command in an orphaned process group.
    let job = format!(
        "before=$(stty -g); {} {}; [ \"$before\" = \"$(stty -g)\" ] && echo same; fg",
        env!("CARGO_BIN_EXE_sandfork"),
        SHELL.join(" ")
    );
    let mut person = Person::runs(&["sh", "-mc", &job])?;
    person.see("$ ")?;
    let raw = modes(&person)?;
    let shell = person.shell.id();
    let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"))?;
    kill(Pid::from_raw(children.trim().parse()?), Signal::SIGTSTP)?;
    person.see("same\r\n")?;
    // The shell prints the job that it continues.
    person.see("sandfork")?;
    person.types("echo on=$((1+1))\r")?;
    person.see("on=2")?;
    assert!(modes(&person)? == raw);
    person.types("exit\r")?;
    assert_eq!(person.code()?, Some(0));
    Ok(())
}

fn terminal_modes_of_the_guest_are_reset() -> Result<(), Failed> {
    let code = r"printf 'a\033[?1000h\033]52;c;aGk=\007\033[6n\033]0;title\007z'";
    let mut person = Person::with(&["exec", "-t", "--", "sh", "-c", code])?;
    let seen = person.see("\x1b[0m")?;
    assert!(seen.starts_with("a\x1b[?1000hz\x18"), "{seen:?}");
    assert!(seen.contains("\x1b[?1000l"), "{seen:?}");
    assert_eq!(person.code()?, Some(0));
    Ok(())
}

fn limits_hold_at_a_terminal() -> Result<(), Failed> {
    let mut person = Person::with(&["exec", "-t", "--set", "limits.wall=1s", "--", "sleep", "60"])?;
    let before = modes(&person)?;
    person.see("limits.wall")?;
    assert!(modes(&person)? == before);
    assert_eq!(person.code()?, Some(124));
    let mut person = Person::with(&["exec", "-t", "--set", "limits.output=10KiB", "--", "yes"])?;
    person.see("limits.output")?;
    assert_eq!(person.code()?, Some(123));
    Ok(())
}

fn no_terminal_is_a_clear_error() -> Result<(), Failed> {
    let output = sandfork(&["exec", "-t", "--", "true"]).output()?;
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr)?;
    assert!(
        message.contains("`-t` needs a terminal on stdin, and stdin is not one"),
        "{message}"
    );
    let mut person = Person::with(&["exec", "-t", "-p", "strict", "--", "true"])?;
    person.see("the program cannot have a terminal")?;
    assert_eq!(person.code()?, Some(2));
    Ok(())
}

// As a program that starts others on pseudoterminals.
fn code_can_open_pseudoterminals() -> Result<(), Failed> {
    let code = "import os, pty\n\
        made = [os.openpty() for _ in range(15)]\n\
        print(os.ttyname(made[14][1]), pty.spawn(['sh', '-c', 'tty; stty rows 5; stty size']))\n";
    let output = sandfork(&["run", "-c", code]).output()?;
    let printed = String::from_utf8(output.stdout)?.replace('\r', "");
    assert_eq!(printed, "/dev/pts/15\n5 0\n/dev/pts/14 0\n");
    Ok(())
}

fn refusals_are_shown_on_a_terminal() -> Result<(), Failed> {
    let setting = "--set filesystem.read=/etc/shadow";
    let mut person = Person::with(&["run", "-c", "open('/etc/shadow')"])?;
    person.see(setting)?;
    assert_eq!(person.code()?, Some(1));
    // Escape sequences in a path of the guest do not reach the terminal.
    let code = "raise PermissionError(13, 'no', '/work/\\x1b[2J\\u202e')";
    let explained = sandfork(&["run", "--explain", "-c", code]).output()?;
    let message = String::from_utf8(explained.stderr)?;
    let message = message.lines().last().unwrap_or_default();
    assert!(
        message.contains("the guest says it was refused"),
        "{message}"
    );
    assert!(!message.contains(['\x1b', '\u{202e}']), "{message:?}");
    // A file receives only the guest's output.
    let unasked = sandfork(&["run", "-c", "open('/etc/shadow')"]).output()?;
    assert!(!String::from_utf8(unasked.stderr)?.contains("refused"));
    Ok(())
}
