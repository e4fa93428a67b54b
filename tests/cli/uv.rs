//! Tests of `sandfork env create` with uv, which `cargo xtask test envs` installs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::environments::Scene;
use super::trials;

trials! {
    uv_and_pip_choose_the_same,
    uv_toml_applies_to_uv_and_pip,
    pip_handles_what_uv_cannot,
    a_directory_of_wheels_needs_no_network,
    a_hostile_or_broken_index_leaves_nothing,
}

/// Returns the tests. Without uv they are skipped and counted as such.
pub fn trials_with_uv() -> impl Iterator<Item = Trial> {
    let is_there = uv().is_some();
    trials().map(move |trial| {
        if is_there {
            return trial;
        }
        let reason = "no uv in the test environments: `cargo xtask test envs`";
        trial.with_kind(reason).with_ignored_flag(true)
    })
}

/// Returns the uv of the test environments for the host.
fn uv() -> Option<PathBuf> {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-envs");
    let environments = std::env::var_os("SANDFORK_TEST_ENVS").map_or_else(usual, PathBuf::from);
    let manifest = fs::read_to_string(environments.join("manifest.json")).ok()?;
    let manifest: Value = serde_json::from_str(&manifest).ok()?;
    let python = manifest["client"]["python"].as_str()?;
    Some(Path::new(python).with_file_name("uv")).filter(|uv| uv.exists())
}

/// Creates a scene whose commands use uv.
fn scene() -> Result<Scene, Failed> {
    let uv = uv().ok_or("no uv")?.display().to_string();
    Scene::new_with_uv(&uv)
}

/// Returns the path of the environment that a command created, and the resolver that chose its wheels.
fn made(command: &mut Command) -> Result<(String, String), Failed> {
    let output = command.output()?;
    assert!(output.status.success(), "{command:?}: {output:?}");
    let made: Value = serde_json::from_slice(&output.stdout)?;
    let text = |key: &str| made[key].as_str().unwrap_or_default().to_owned();
    Ok((text("path"), text("resolver")))
}

fn uv_and_pip_choose_the_same() -> Result<(), Failed> {
    let scene = scene()?;
    let apart = tempfile::tempdir_in("/var/tmp")?;
    let place = |name: &str| apart.path().join(name).display().to_string();
    // A wrapper script named uv is skipped.
    fs::create_dir(place("launcher"))?;
    fs::write(place("launcher/uv"), "#!/bin/sh\nexit 1\n")?;
    fs::create_dir(place("bin"))?;
    symlink(uv().ok_or("no uv")?, place("bin/uv"))?;
    let path = std::env::var("PATH")?;
    let path = format!("{}:{}:{path}", place("launcher"), place("bin"));
    fs::write(place("bounds.txt"), "shapes<2\n")?;
    fs::write(place("all.txt"), "-c bounds.txt\nshapes\n")?;
    let bound = place("all.txt");
    let port = scene.port();
    let secret = format!("http://me:p%40ss@127.0.0.1:{port}/secret/simple");
    for (number, arguments) in [
        &["shapes"][..],
        &["-r", &bound],
        &["colours", "--index-url", &secret],
        &["several"],
    ]
    .into_iter()
    .enumerate()
    {
        let create = |by: &str| {
            let name = format!("{by}-{number}");
            scene.command(&[&["env", "create", "--json", &name], arguments].concat())
        };
        let mut by_uv = create("uv");
        by_uv.env_remove("SANDFORK_UV").env("PATH", &path);
        let (of_uv, resolver) = made(by_uv.env("XDG_CACHE_HOME", place("cache")))?;
        assert!(resolver.starts_with("uv 0."), "{resolver}");
        let (of_pip, resolver) = made(create("pip").env("SANDFORK_UV", ""))?;
        assert_eq!(resolver, "pip");
        assert_eq!(of_uv, of_pip, "{arguments:?}");
    }
    // The cache of uv is in the sandbox and ends with it.
    assert!(!Path::new(&place("cache/uv")).exists());
    Ok(())
}

fn uv_toml_applies_to_uv_and_pip() -> Result<(), Failed> {
    let scene = scene()?;
    let config = tempfile::tempdir_in("/var/tmp")?;
    fs::create_dir(config.path().join("uv"))?;
    // The second index has what the first lacks.
    let server = format!("http://127.0.0.1:{}", scene.port());
    let text = format!(
        "[[index]]\nurl = \"{server}/none/simple\"\ndefault = true\n[[index]]\nurl = \"{server}/simple\"\n"
    );
    fs::write(config.path().join("uv/uv.toml"), text)?;
    let create = |name: &str| {
        let mut command = scene.command(&["env", "create", "--json", name, "shapes"]);
        command
            .env_remove("UV_NO_CONFIG")
            .env_remove("PIP_INDEX_URL");
        command.env("XDG_CONFIG_HOME", config.path());
        command
    };
    let (of_uv, resolver) = made(&mut create("uv"))?;
    assert!(resolver.starts_with("uv 0."), "{resolver}");
    let (of_pip, _) = made(create("pip").env("SANDFORK_UV", ""))?;
    assert_eq!(of_uv, of_pip);
    Ok(())
}

fn pip_handles_what_uv_cannot() -> Result<(), Failed> {
    let scene = scene()?;
    let (_, resolver) = made(&mut scene.command(&["env", "create", "--json", "one", "shapes"]))?;
    assert!(resolver.starts_with("uv 0."), "{resolver}");
    let lock = scene.data_dir().join("pylock.toml").display().to_string();
    scene.printed(&["env", "export", "one", "-o", &lock])?;
    for arguments in [
        &["two", "--lock", &lock][..],
        &["three", "source", "--allow-build"],
        &["--packages", "--add", "--python", "python3", "shapes"],
    ] {
        let (_, resolver) =
            made(&mut scene.command(&[&["env", "create", "--json"], arguments].concat()))?;
        assert_eq!(resolver, "pip", "{arguments:?}");
    }
    let mut named = scene.command(&["env", "create", "four", "shapes"]);
    let message = named.env("SANDFORK_UV", "/bin/true").output()?.stderr;
    let message = String::from_utf8(message)?;
    let expected = "sandfork: SANDFORK_UV names /bin/true, and it is not uv, and says ";
    assert!(message.starts_with(expected), "{message}");
    Ok(())
}

fn a_directory_of_wheels_needs_no_network() -> Result<(), Failed> {
    let scene = scene()?;
    let wheels = scene.wheels()?;
    let places = format!("/nowhere {}", wheels.path().display());
    let create = |name: &str, package: &str| {
        let mut command = scene.command(&["env", "create", "--json", name, package]);
        command
            .env("PIP_NO_INDEX", "1")
            .env("PIP_FIND_LINKS", &places);
        command
    };
    let (_, resolver) = made(&mut create("offline", "shapes"))?;
    assert!(resolver.starts_with("uv 0."), "{resolver}");
    let message = create("other", "shapes==2.0").output()?.stderr;
    let message = String::from_utf8(message)?;
    assert!(
        message.contains("uv says: Because there is no version of shapes==2.0"),
        "{message}"
    );
    Ok(())
}

fn a_hostile_or_broken_index_leaves_nothing() -> Result<(), Failed> {
    let scene = scene()?;
    for (package, expected) in [
        (
            "tampered",
            "tampered-1.0-py3-none-any.whl does not have the locked hash: sha256 is ",
        ),
        (
            "late",
            "late-1.0-py3-none-any.whl does not have the locked hash: sha256 is ",
        ),
        (
            "climber",
            "../../../../../../tmp/climbed`, which leads out of its environment",
        ),
        (
            "elsewhere",
            "`--allow-host elsewhere.example` lets it reach that host",
        ),
        (
            "other-platform",
            "uv says: Because other-platform==1.0 has no wheels with a matching platform tag",
        ),
        (
            "source",
            "; building a source distribution runs its code; `--allow-build` does so in a sandbox",
        ),
        (
            "absent",
            "uv says: Because absent was not found in the package registry",
        ),
        (
            "shapes==9",
            "uv says: Because there is no version of shapes==9",
        ),
    ] {
        let message = scene.refused(&["env", "create", "hostile", "colours", package])?;
        assert!(message.contains(expected), "{package}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert_eq!(scene.counts(), [0, 0, 0], "{package}");
    }
    for (path, expected) in [
        ("nonsense/simple", "uv says: Unsupported `Content-Type`"),
        ("secret/simple", "401 Unauthorized"),
    ] {
        let url = format!("http://127.0.0.1:{}/{path}", scene.port());
        let message = scene.refused(&["env", "create", "broken", "shapes", "--index-url", &url])?;
        assert!(message.contains(expected), "{path}: {message}");
    }
    assert_eq!(scene.counts(), [0, 0, 0]);
    Ok(())
}
