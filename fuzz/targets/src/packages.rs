//! What indexes, wheels, requirements files and configurations say about packages: nothing accepted points outside or
//! is ambiguous. The first byte selects the parser.

use std::path::{Component, Path};
use std::str;

use sandfork::internals::environments::{
    Access, Lock, LockedWheel, PipConfig, check_path, locked_lines, requirement,
};
use sandfork::internals::policy::{EnvironmentName, Requirement};

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "packages",
    run,
    inputs: 40_000,
};

fn run(bytes: &[u8]) -> bool {
    let Some((&reader, bytes)) = bytes.split_first() else {
        return false;
    };
    let Ok(text) = str::from_utf8(bytes) else {
        return false;
    };
    match reader % 6 {
        0 => package(text),
        1 => line(text),
        2 => pylock(text),
        3 => lock(text),
        4 => configuration(text),
        _ => path(text),
    }
}

/// A package has one form, without an option of pip. An environment's name is a single path component.
fn package(text: &str) -> bool {
    if let Ok(name) = text.parse::<EnvironmentName>() {
        let written = name.to_string();
        assert_eq!(written, text);
        let parts: Vec<Component> = Path::new(&written).components().collect();
        assert!(matches!(parts[..], [Component::Normal(_)]), "{written:?}");
    }
    let Ok(requirement) = text.parse::<Requirement>() else {
        return false;
    };
    let written = requirement.to_string();
    assert_eq!(written.parse(), Ok(requirement));
    assert_line(&written);
    assert!(!written.contains(" -"), "{written:?}");
    true
}

/// Checks that the text is one line of a requirements file and not an option.
fn assert_line(line: &str) {
    assert!(!line.contains(char::is_control), "{line:?}");
    assert!(
        line.starts_with(|c: char| c.is_ascii_alphanumeric()),
        "{line:?}"
    );
}

/// An accepted line of a requirements file has a package and hashes, and parses to itself.
fn line(text: &str) -> bool {
    let Ok(line) = requirement(text) else {
        return false;
    };
    assert_line(&line);
    assert_eq!(requirement(&line), Ok(line.clone()));
    let mut parts = line.split(" --");
    assert!(
        parts
            .next()
            .is_some_and(|package| package.parse::<Requirement>().is_ok())
    );
    assert!(
        parts.all(|option| option.starts_with("hash=sha")),
        "{line:?}"
    );
    true
}

/// A lock file of another installer becomes such lines.
fn pylock(text: &str) -> bool {
    let Ok(lines) = locked_lines(text) else {
        return false;
    };
    for line in &lines {
        assert_eq!(requirement(line).as_ref(), Ok(line));
        assert!(line.contains(" --hash=sha256:"), "{line:?}");
    }
    !lines.is_empty()
}

/// An index's metadata becomes a lock file that other installers can read, and each wheel is a file name.
fn lock(text: &str) -> bool {
    let Ok(wheels) = serde_json::from_str::<Vec<LockedWheel>>(text) else {
        return false;
    };
    let Ok(lock) = Lock::new(wheels) else {
        return false;
    };
    for wheel in lock.wheels() {
        let parts: Vec<Component> = Path::new(&wheel.file).components().collect();
        assert!(matches!(parts[..], [Component::Normal(_)]), "{wheel:?}");
        assert!(
            wheel.url.starts_with("http") || wheel.url.starts_with("file:///"),
            "{wheel:?}"
        );
    }
    let again = Lock::new(lock.wheels().to_vec());
    assert_eq!(again.as_ref(), Ok(&lock));
    // A package that was built has no wheel for others.
    if lock.wheels().iter().all(|wheel| wheel.source.is_none()) {
        let lines = locked_lines(&lock.to_pylock());
        assert_eq!(lines.map(|lines| lines.len()), Ok(lock.wheels().len()));
    }
    true
}

/// Passwords of URLs are not passed to pip or the policy.
fn configuration(text: &str) -> bool {
    let config = PipConfig::read([text], [text], |_| None);
    let Ok(access) = Access::new(&config, &config, |_| None, &[]) else {
        return false;
    };
    let mut options = access.options.iter();
    while let Some(option) = options.next() {
        assert!(option.starts_with("--"), "{option:?}");
        if matches!(
            &**option,
            "--index-url" | "--extra-index-url" | "--find-links"
        ) {
            let value = options.next().expect("a value");
            let authority = value.split("://").nth(1).map(|rest| rest.split('/').next());
            let authority = authority.flatten().unwrap_or_default();
            assert!(!authority.contains('@'), "{value:?}");
        } else if option == "--trusted-host" {
            options.next();
        }
    }
    for (name, value) in &access.variables {
        let is_secret = name.starts_with("SANDFORK_INDEX_SECRET_");
        let shown = access
            .overrides
            .iter()
            .any(|it| it.contains(value.as_str()));
        assert!(!is_secret || value.len() < 12 || !shown, "{access:?}");
    }
    true
}

/// An accepted path stays within the environment, and is not one of the environment's own files.
fn path(text: &str) -> bool {
    if check_path(text).is_err() {
        return false;
    }
    let path = Path::new("/environment").join(text);
    assert!(
        path.starts_with("/environment") && path != Path::new("/environment"),
        "{text:?}"
    );
    let normal = |part: Component| matches!(part, Component::Normal(_));
    assert!(Path::new(text).components().all(normal), "{text:?}");
    assert!(!text.contains(char::is_control), "{text:?}");
    assert!(!["pyvenv.cfg", "bin/python", "bin/python3"].contains(&text));
    true
}
