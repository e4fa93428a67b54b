//! Tests of `sandfork shell`, with a script on stdin and at a terminal.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::openpty;

use super::behaviour::sandfork;
use super::trials;

trials! {
    a_script_keeps_its_variables_and_prints_its_values,
    a_script_ends_at_the_first_failure_with_its_code,
    script_is_split_at_statement_ends,
    invalid_script_runs_nothing,
    a_script_of_many_lines_runs,
    a_script_passes_files,
    a_person_types_blocks_and_corrects_a_mistake,
    empty_line_ends_a_compound_statement,
    hostile_guest_cannot_block_the_prompt,
    ctrl_c_interrupts_the_cell_and_keeps_the_session,
    a_tab_completes_names_of_the_session,
    a_hostile_completion_only_completes_names,
    ended_session_is_replaced,
    the_history_is_kept_for_the_user_alone,
}

/// Runs a script. Returns its stdout, its stderr and the exit code.
fn script(text: &str, arguments: &[&str]) -> Result<(String, String, Option<i32>), Failed> {
    let mut command = sandfork(&[&["shell"], arguments].concat());
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    child.stdin.take().unwrap().write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    let [stdout, stderr] = [output.stdout, output.stderr].map(String::from_utf8);
    Ok((stdout?, stderr?, output.status.code()))
}

fn a_script_keeps_its_variables_and_prints_its_values() -> Result<(), Failed> {
    let text = "x = 6\nx * 7\ndef f(y):\n    z = y\n\n    return z\nf('a')\nNone\nb'x', 1j\n_[0]\n\
        for i in range(2):\n    print(i)\nelse:\n    print('end')\ndisplay([x])\n";
    let (stdout, stderr, code) = script(text, &[])?;
    assert_eq!(stdout, "42\n'a'\n(b'x', 1j)\nb'x'\n0\n1\nend\n[6]\n");
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    Ok(())
}

fn a_script_ends_at_the_first_failure_with_its_code() -> Result<(), Failed> {
    let (stdout, stderr, code) = script("1\n\n1 / 0\n2\n", &[])?;
    assert_eq!((stdout.as_str(), code), ("1\n", Some(1)));
    assert!(stderr.contains("File \"<stdin>\", line 3, in"), "{stderr}");
    assert_eq!(script("import sys\nsys.exit(7)\n", &[])?.2, Some(7));
    let wall = ["--set", "limits.wall=300ms"];
    let (_, stderr, code) = script("while True: pass\n1\n", &wall)?;
    assert_eq!(code, Some(124));
    assert!(stderr.contains("limits.wall=600ms"), "{stderr}");
    assert_eq!(script("import os\nos._exit(9)\n", &[])?.2, Some(9));
    assert_eq!(script("%get nothing\nprint('never')\n", &[])?.0, "");
    Ok(())
}

fn script_is_split_at_statement_ends() -> Result<(), Failed> {
    for (text, expected) in [
        ("if 0: y = 1\nelse: y = 2\ny\n", "2\n"),
        (
            "try: import nope\nexcept ImportError: y = 3\nfinally: z = 4\ny, z",
            "(3, 4)\n",
        ),
        ("x = 1; \\\ny = 2\nx + y # \\\n7", "3\n7\n"),
        ("x = '''\n% a'''\r\n%files\r\nx", "'\\n% a'\n"),
        (
            "5 \\\n  + 1\n(1,\n# )\n2)\n'''\nif x:\n''' ; 8",
            "6\n(1, 2)\n8\n",
        ),
        ("def f():\n    %cd .\n    return 9\nf()", "/work\n9\n"),
        (
            "async def f(): return 5\nawait f()\nif 1:\n  6\n\n  # a\n\n7",
            "5\n7\n",
        ),
        (
            "print('a %s'\n  % 'b'\n)\n%files\n@callable\n# c\ndef f(): 0\nf",
            "a b\nTrue\n",
        ),
        ("# why\nexit\n1", ""),
    ] {
        let (stdout, stderr, code) = script(text, &[])?;
        assert_eq!((stdout.as_str(), stderr.as_str()), (expected, ""), "{text}");
        assert_eq!(code, Some(0), "{text}");
    }
    Ok(())
}

fn invalid_script_runs_nothing() -> Result<(), Failed> {
    let (stdout, stderr, code) = script("%files\nprint(1)\n\nf(x y)\n", &[])?;
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    assert!(stderr.contains("File \"<stdin>\", line 4\n"), "{stderr}");
    assert!(stderr.contains("SyntaxError"), "{stderr}");
    // The parser itself fails, within the guest's limits.
    let nested = format!("print(1)\n{}1\n", "-".repeat(200_000));
    let (stdout, stderr, code) = script(&nested, &[])?;
    assert_eq!((stdout.as_str(), code), ("", Some(1)));
    assert!(stderr.contains("Error"), "{stderr}");
    Ok(())
}

fn a_script_of_many_lines_runs() -> Result<(), Failed> {
    let text = "if 0: x = 1\nelse: x = 2\n".repeat(1000) + "%files\nx\n";
    let (stdout, stderr, code) = script(&text, &[])?;
    assert_eq!((stdout.as_str(), stderr.as_str()), ("2\n", ""));
    assert_eq!(code, Some(0));
    Ok(())
}

fn a_script_passes_files() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let [from, to] = ["from here.csv", "to.csv"].map(|name| directory.path().join(name));
    fs::write(&from, "a,b\n1,2\n")?;
    let text = format!(
        "%put '{}' 'an in.csv'\nopen('out.csv', 'w').write(open('an in.csv').read() * 2)\n%files\n%rm 'an in.csv'\n\
         import os; os.listdir()\n%get out.csv {}\n",
        from.display(),
        to.display()
    );
    let (stdout, stderr, code) = script(&text, &[])?;
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    assert_eq!(
        stdout,
        "16\n           8  an in.csv\n          16  out.csv\n['out.csv']\n"
    );
    assert_eq!(fs::read_to_string(to)?, "a,b\n1,2\na,b\n1,2\n");
    let (_, stderr, code) = script("%get 'an in.csv\n", &[])?;
    assert_eq!(code, Some(2));
    assert_eq!(stderr, "sandfork: `%get` has an unclosed quote\n");
    // A symlink that the guest made is not followed.
    let (_, stderr, code) = script(
        "import os; os.symlink('/etc/passwd', 'l')\n%get l /dev/null\n",
        &[],
    )?;
    assert_eq!(code, Some(2));
    assert!(stderr.starts_with("sandfork: "), "{stderr}");
    Ok(())
}

/// A user at a terminal that runs the command.
pub struct Person {
    pub terminal: File,
    pub shell: Child,
    state: tempfile::TempDir,
    seen: String,
}

impl Drop for Person {
    fn drop(&mut self) {
        // The process still runs only if the test failed.
        _ = self.shell.kill();
        _ = self.shell.wait();
    }
}

impl Person {
    fn start(arguments: &[&str]) -> Result<Self, Failed> {
        let mut person = Self::with(&[&["shell"], arguments].concat())?;
        person.see(">>> ")?;
        Ok(person)
    }

    /// Starts `sandfork` with these arguments.
    pub fn with(arguments: &[&str]) -> Result<Self, Failed> {
        Self::runs(&[&[env!("CARGO_BIN_EXE_sandfork")], arguments].concat())
    }

    /// Starts any program.
    pub fn runs(argv: &[&str]) -> Result<Self, Failed> {
        let state = tempfile::tempdir()?;
        let terminal = openpty(None, None)?;
        let end = || -> Result<Stdio, Failed> { Ok(terminal.slave.try_clone()?.into()) };
        // `setsid --ctty` makes the terminal the controlling one, so that Ctrl-C becomes a signal.
        let shell = Command::new("setsid")
            .arg("--ctty")
            .args(argv)
            .env("XDG_STATE_HOME", state.path())
            .env("TERM", "xterm")
            .stdin(end()?)
            .stdout(end()?)
            .stderr(end()?)
            .spawn()?;
        Ok(Self {
            terminal: terminal.master.into(),
            shell,
            state,
            seen: String::new(),
        })
    }

    pub fn types(&mut self, keys: &str) -> Result<(), Failed> {
        self.terminal.write_all(keys.as_bytes())?;
        Ok(())
    }

    /// Types a line that does not complete the statement.
    fn begins(&mut self, line: &str) -> Result<(), Failed> {
        self.types(&format!("{line}\r"))?;
        self.see("\r\n")?;
        self.see("... ")?;
        Ok(())
    }

    /// Waits for a text. Returns the output up to and including it.
    pub fn see(&mut self, text: &str) -> Result<String, Failed> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return Ok(std::mem::replace(&mut self.seen, rest));
            }
            let mut fds = [PollFd::new(self.terminal.as_fd(), PollFlags::POLLIN)];
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {text:?} in {:?}", self.seen);
            if poll(&mut fds, PollTimeout::try_from(left)?)? == 0 {
                continue;
            }
            let mut bytes = [0; 4096];
            let length = self.terminal.read(&mut bytes).unwrap_or(0);
            assert!(length > 0, "the shell has left: {:?}", self.seen);
            self.seen += &String::from_utf8_lossy(&bytes[..length]);
        }
    }

    fn leaves(mut self) -> Result<Option<i32>, Failed> {
        self.see(">>> ")?;
        self.types("\x04")?;
        self.code()
    }

    /// Returns the exit code. Drains the terminal first, because its buffer holds only a few pages.
    pub fn code(&mut self) -> Result<Option<i32>, Failed> {
        let mut rest = Vec::new();
        // A terminal whose other end is closed returns EIO (pty(7)).
        _ = self.terminal.read_to_end(&mut rest);
        Ok(self.shell.wait()?.code())
    }
}

fn a_person_types_blocks_and_corrects_a_mistake() -> Result<(), Failed> {
    let mut person = Person::start(&[])?;
    person.types("def f(x):\r")?;
    person.see("... ")?;
    // The prompt has already indented the line.
    person.types("return x + 1\r")?;
    person.see("... ")?;
    person.types("\r")?;
    person.see(">>> ")?;
    person.types("f(41)\r")?;
    person.see("\r\n42\r\n")?;
    person.see(">>> ")?;
    person.types("f(\r")?;
    person.see("... ")?;
    person.types("\x03")?;
    person.see(">>> ")?;
    person.types("_ * 2\r")?;
    person.see("\r\n84\r\n")?;
    person.types("print('\\x1b]0;title\\x07')\r")?;
    person.see("\r\n\\x1b]0;title\\x07\r\n")?;
    assert_eq!(person.leaves()?, Some(0));
    Ok(())
}

fn empty_line_ends_a_compound_statement() -> Result<(), Failed> {
    let mut person = Person::start(&[])?;
    for line in ["if 0: y = 1", "else: y = 2"] {
        person.begins(line)?;
    }
    person.types("\r")?;
    person.see(">>> ")?;
    person.types("y + 40\r")?;
    person.see("\r\n42\r\n")?;
    person.see(">>> ")?;
    person.types("%pwd\r")?;
    person.see("\r\n'/work'\r\n")?;
    person.see(">>> ")?;
    // The shell's own completion request does not change `_`.
    person.types("lis\t([len(_),\r")?;
    person.see("... ")?;
    person.types("])\r")?;
    person.see("\r\n[5]\r\n")?;
    person.see(">>> ")?;
    for line in ["'''", ""] {
        person.begins(line)?;
    }
    person.types("'''\r")?;
    person.see("'\\n\\n'\r\n")?;
    assert_eq!(person.leaves()?, Some(0));
    Ok(())
}

fn hostile_guest_cannot_block_the_prompt() -> Result<(), Failed> {
    let mut person = Person::start(&[])?;
    for line in [
        "class Shell:",
        "def check_complete(self, code):",
        "return 'incomplete', '\\x1b[2J'",
    ] {
        person.begins(line)?;
    }
    person.types("\r")?;
    person.see(">>> ")?;
    person.types("get_ipython = Shell\r")?;
    person.see(">>> ")?;
    person.types("print(5)\r")?;
    person.see("... ")?;
    person.types("\x03")?;
    person.see(">>> ")?;
    person.types("%restart\r")?;
    person.see(">>> ")?;
    for line in ["def get_ipython():", "while True: pass"] {
        person.begins(line)?;
    }
    person.types("\r")?;
    person.see(">>> ")?;
    // The guest does not reply: the typed statement runs.
    person.types("print(6)\r")?;
    person.see("\r\n6\r\n")?;
    assert_eq!(person.leaves()?, Some(0));
    Ok(())
}

fn ctrl_c_interrupts_the_cell_and_keeps_the_session() -> Result<(), Failed> {
    let mut person = Person::start(&[])?;
    person.types("x = 5; print('u' + 'p')\r")?;
    person.see("\r\nup\r\n")?;
    for _ in 0..2 {
        person.see(">>> ")?;
        person.types("while True: pass\r")?;
        person.see("... ")?;
        person.types("\r")?;
        // The terminal modes change when the cell begins.
        let interrupted = loop {
            std::thread::sleep(Duration::from_millis(300));
            person.types("\x03")?;
            let seen = person.see(">>> ")?;
            if seen.contains("KeyboardInterrupt") {
                break seen;
            }
        };
        assert!(interrupted.contains("while True: pass"), "{interrupted:?}");
        person.seen.insert_str(0, ">>> ");
    }
    person.types("x * 11\r")?;
    person.see("\r\n55\r\n")?;
    assert_eq!(person.leaves()?, Some(0));
    Ok(())
}

fn a_tab_completes_names_of_the_session() -> Result<(), Failed> {
    let mut person = Person::start(&[])?;
    person.types("import math; elephant = 3\r")?;
    person.see(">>> ")?;
    person.types("print(eleph\t, math.copys\t)\r")?;
    person.see("print(elephant")?;
    person.see("math.copysign")?;
    person.see("\r\n3 <built-in function copysign>\r\n")?;
    person.types("%fil\t\r")?;
    person.see("%files")?;
    assert_eq!(person.leaves()?, Some(0));
    Ok(())
}

fn a_hostile_completion_only_completes_names() -> Result<(), Failed> {
    let mut person = Person::start(&[])?;
    person.types("sorted = lambda _: ['elle\\x1b[2J', 'elle; 1', 'elle' * 99, 5, 'ellen']\r")?;
    person.see("\r\n")?;
    person.see(">>> ")?;
    person.types("elle\t = 4\r")?;
    person.see(">>> ellen")?;
    person.see(" = 4")?;
    person.see("\r\n")?;
    person.see(">>> ")?;
    for line in ["class A:", "def __dir__(self):", "while True: pass"] {
        person.types(&format!("{line}\r"))?;
        person.see("... ")?;
    }
    person.types("\r")?;
    person.see("\r\n")?;
    person.see(">>> ")?;
    person.types("a = A()\r")?;
    person.see("\r\n")?;
    person.see(">>> ")?;
    person.types("a.x\t = 5\r")?;
    person.see("\r\n")?;
    person.see(">>> ")?;
    person.types("a.x, ellen\r")?;
    person.see("\r\n(5, 4)\r\n")?;
    assert_eq!(person.leaves()?, Some(0));
    Ok(())
}

fn ended_session_is_replaced() -> Result<(), Failed> {
    let mut person = Person::start(&[])?;
    person.types("y = 1; import os; os.kill(os.getpid(), 9)\r")?;
    person.see("a new session was started")?;
    person.see(">>> ")?;
    person.types("'y' in globals()\r")?;
    person.see("\r\nFalse\r\n")?;
    person.types("import sys; sys.exit(3)\r")?;
    assert_eq!(person.code()?, Some(3));
    Ok(())
}

fn the_history_is_kept_for_the_user_alone() -> Result<(), Failed> {
    let mut person = Person::start(&[])?;
    person.types("'remem' + 'bered'\r")?;
    person.see("'remembered'")?;
    person.see(">>> ")?;
    let file = person.state.path().join("sandfork/history");
    assert!(fs::read_to_string(&file)?.contains("'remem' + 'bered'"));
    assert_eq!(fs::metadata(&file)?.permissions().mode() & 0o777, 0o600);
    person.types("\x1b[A\r")?;
    person.see("'remembered'")?;
    assert_eq!(person.leaves()?, Some(0));
    let mut person = Person::start(&["--no-history"])?;
    person.types("1 + 1\r")?;
    person.see("\r\n2\r\n")?;
    assert!(!person.state.path().join("sandfork").exists());
    Ok(())
}
