//! Policy files: no text makes the loader panic, an error points to an existing place, and a loaded
//! policy is printed as an equivalent file.

use std::io;
use std::path::{Path, PathBuf};

use sandfork::plan::seccomp::{Arch, Surroundings, compile};
use sandfork::policy::{Located, Override, Policy, PolicyError, PolicySource};

use crate::{Behaviour, Target};

pub(crate) const TARGET: Target = Target {
    name: "policies",
    about: "policy files, zero bytes between them: no panic; what loads is printed and loads as the same",
    run,
    words: &[
        "extends = \"strict\"\n",
        "extends = \"data-science\"\n",
        "extends = \"1.toml\"\n",
        "extends = \"policy.toml\"\n",
        "\0",
        "#set ",
        "[python]\n",
        "interpreter = \"",
        "preload = [\"numpy?\", \"json\"]\n",
        "path = [\"lib\"]\n",
        "fresh = true\n",
        "[imports]\n",
        "allow = [\"numpy.*\", \"*\"]\n",
        "[filesystem]\n",
        "system = \"minimal\"\n",
        "proc = false\n",
        "read = [\"/srv/a\", \"~/b\"]\n",
        "write = [\"/srv/w\"]\n",
        "work_size = \"64MiB\"\n",
        "work_inodes = 10\n",
        "tmp_size = ",
        "[network]\nmode = \"none\"\n",
        "[env]\n",
        "set = { A = \"b\" }\n",
        "pass = [\"HOME\"]\n",
        "[stdio]\nstdin = \"piped\"\n",
        "[limits]\n",
        "wall = \"2s\"\n",
        "cpu = \"1.5s\"\n",
        "memory = \"1GiB\"\n",
        "pids = 3\n",
        "open_files = 64\n",
        "file_size = \"1KiB\"\n",
        "output = \"1KB\"\n",
        "cores = 0.5\n",
        "[session]\n",
        "idle = \"never\"\n",
        "age = \"1h\"\n",
        "[syscalls]\n",
        "allow = [\"ptrace\"]\n",
        "deny = [\"execve\"]\n",
        "[assurance]\nrequire = \"full\"\n",
        "\"\"\"",
        "'''",
        "\\u0000",
        "inf",
        "nan",
        "1e400",
        "9223372036854775808",
        "0x7fffffffffffffff",
        "1979-05-27",
        "[[",
        "a.b.c = 1\n",
        "..",
        "//",
        "\u{202e}",
        "\u{1b}",
    ],
    inputs: 40_000,
};

const DIRECTORY: &str = "/policies";

/// Loads the first file; `n.toml` are the others. Its lines `#set key=value` are overrides.
fn run(bytes: &[u8]) -> Behaviour {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Behaviour::refused("not UTF-8");
    };
    let files = Files(text.split('\0').collect());
    let overrides: Result<Vec<Override>, PolicyError> = files.0[0]
        .lines()
        .filter_map(|line| line.strip_prefix("#set "))
        .map(str::parse)
        .collect();
    let name = format!("{DIRECTORY}/policy.toml");
    match overrides.and_then(|overrides| Policy::load(&name, &overrides, &files)) {
        Ok(policy) => {
            assert_same_again(&policy);
            compile_its_lists(&policy);
            Behaviour::taken(&shape(&policy))
        }
        Err(error) => {
            check_place(&error, &files);
            Behaviour::refused(&format!("{:?} {}", error.key(), error.problem()))
        }
    }
}

struct Files<'a>(Vec<&'a str>);

impl Files<'_> {
    fn find(&self, path: &Path) -> Option<&str> {
        let name = path.strip_prefix(DIRECTORY).ok()?.to_str()?;
        let number = match name.strip_suffix(".toml")? {
            "policy" => 0,
            number => number.parse().ok()?,
        };
        self.0.get::<usize>(number).copied()
    }
}

impl PolicySource for Files<'_> {
    fn read(&self, path: &Path) -> io::Result<String> {
        let found = self.find(path).map(str::to_owned);
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn current_dir(&self) -> io::Result<PathBuf> {
        Ok(DIRECTORY.into())
    }
}

fn assert_same_again(policy: &Policy) {
    let printed = policy.to_toml();
    let files = Files(vec![&printed]);
    let again = Policy::load(&format!("{DIRECTORY}/policy.toml"), &[], &files);
    let again =
        again.unwrap_or_else(|error| panic!("what it prints is refused: {error}\n{printed}"));
    assert_eq!(printed, again.to_toml());
    assert_eq!(policy.sha256(), again.sha256());
    assert_eq!(policy.limits(), again.limits());
    assert_eq!(policy.env(), again.env());
    assert_eq!(policy.require(), again.require());
}

/// The plan checks a policy's lists, and must do so for any text.
fn compile_its_lists(policy: &Policy) {
    let names = |list: &[Located<String>]| -> Vec<String> {
        list.iter().map(|name| name.value.clone()).collect()
    };
    let lists = policy.syscalls();
    let surroundings = Surroundings::Namespaces;
    let _ = compile(
        Arch::X86_64,
        surroundings,
        &names(&lists.allow),
        &names(&lists.deny),
    );
}

/// Checks that an error points into an existing file. (The display removes terminal control
/// characters.)
fn check_place(error: &PolicyError, files: &Files<'_>) {
    let origin = error.origin();
    if let (Some(line), Some(text)) = (origin.line, files.find(Path::new(&origin.file))) {
        // An error at the end of a text with a final newline is on the line after it.
        let lines = text.split('\n').count();
        assert!((1..=lines).contains(&(line as usize)), "{error}");
    }
}

fn shape(policy: &Policy) -> String {
    let (python, files) = (policy.python(), policy.filesystem());
    let lists = [
        !python.preload.is_empty(),
        !python.path.is_empty(),
        !files.read.is_empty(),
        !files.write.is_empty(),
        !policy.env().pass.is_empty(),
        policy.imports().allows_everything(),
        !policy.syscalls().allow.is_empty(),
        !policy.syscalls().deny.is_empty(),
    ];
    format!("{:?} {:?} {lists:?}", policy.require(), python.freshness)
}
