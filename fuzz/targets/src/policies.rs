//! Policy files: no text makes the loader panic, an error points to an existing location, and a loaded
//! policy is printed as an equivalent file.

use std::io;
use std::path::{Path, PathBuf};

use sandfork::internals::plan::seccomp::{Arch, Surroundings, compile};
use sandfork::internals::policy::Located;
use sandfork::internals::policy::PolicySettings as _;
use sandfork::{Override, Policy, PolicyError, PolicySource};

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "policies",
    run,
    inputs: 4_000,
};

const DIRECTORY: &str = "/policies";

/// Loads the first file; the others are `n.toml`. Lines `#set key=value` of it are overrides.
fn run(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
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
            true
        }
        Err(error) => {
            check_place(&error, &files);
            let _ = error.to_string();
            false
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

/// The plan validates a policy's lists, and must do so for any text.
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
