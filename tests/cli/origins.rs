//! Where the packages of `sandfork env` come from, and who decides that. The index is that of `environments`.

use std::process::Command;

use libtest_mimic::Failed;

use super::environments::Scene;
use super::trials;

trials! {
    an_environment_is_of_its_index,
    a_policys_packages_are_of_its_callers_index,
    code_that_is_built_changes_no_index,
}

/// The value of a module that an environment has.
fn value(scene: &Scene, name: &str, expression: &str) -> Result<String, Failed> {
    let module = expression.split('.').next().unwrap_or_default();
    let code = format!("import {module}; print({expression})");
    let set = format!("python.environment={name}");
    scene.printed(&["run", "--set", &set, "-c", &code])
}

/// What a command says that succeeds, or that fails.
fn said(command: &mut Command) -> Result<String, Failed> {
    let output = command.output()?;
    let text = if output.status.success() {
        output.stdout
    } else {
        output.stderr
    };
    Ok(String::from_utf8(text)?.trim_end().to_owned())
}

fn an_environment_is_of_its_index() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let wheels = scene.wheels()?;
    let create = ["env", "create", "one", "shapes"];
    let from_directory = |arguments: &[&str]| {
        let mut command = scene.command(arguments);
        command.env("PIP_NO_INDEX", "1");
        command.env("PIP_FIND_LINKS", wheels.path());
        said(&mut command)
    };
    scene.printed(&create)?;
    let other = from_directory(&create)?;
    assert_eq!(
        other,
        "sandfork: the environment `one` has these packages from another index, or by other options of it, than are set \
         now: choose another name, or remove it with `sandfork env remove one`"
    );
    from_directory(&["env", "create", "two", "shapes"])?;
    assert_eq!(value(&scene, "one", "shapes.sides")?, "4");
    assert_eq!(value(&scene, "two", "shapes.sides")?, "3");
    // Another password, and another way of writing the URL, are the same index.
    let url = format!("http://me:p%40ss@127.0.0.1:{}/secret/simple", scene.port());
    scene.printed(&["env", "create", "three", "colours", "--index-url", &url])?;
    let again = url.replace("me:p%40ss@", "other:") + "/";
    let again = again.replace("other:", "other:one@");
    let found = scene.printed(&["env", "create", "three", "colours", "--index-url", &again])?;
    assert!(found.starts_with("three: is there already"), "{found}");
    // Hashes say which files they are, wherever they come from.
    let lock = scene.place().join("pylock.toml").display().to_string();
    scene.printed(&["env", "export", "one", "-o", &lock])?;
    let locked = ["env", "create", "four", "--lock", &lock];
    scene.printed(&locked)?;
    let found = from_directory(&locked)?;
    assert!(found.starts_with("four: is there already"), "{found}");
    Ok(())
}

fn a_policys_packages_are_of_its_callers_index() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let wheels = scene.wheels()?;
    let code = "import shapes; print(shapes.sides)";
    let packages = "python.packages=[\"shapes\"]";
    let create = "environments.create=true";
    let run = ["run", "--set", packages, "--set", create, "-c", code];
    let from_directory = |arguments: &[&str]| {
        let mut command = scene.command(arguments);
        command.env("PIP_NO_INDEX", "1");
        command.env("PIP_FIND_LINKS", wheels.path());
        said(&mut command)
    };
    assert_eq!(scene.printed(&run)?, "4");
    assert_eq!(from_directory(&run)?, "3");
    assert_eq!(scene.printed(&run)?, "4");
    // Without the permission to install, it is not there for another index.
    let found = ["run", "--set", packages, "-c", code];
    assert_eq!(scene.printed(&found)?, "4");
    let mut elsewhere = scene.command(&found);
    elsewhere.env("PIP_INDEX_URL", "http://127.0.0.1:9/simple");
    let missing = said(&mut elsewhere)?;
    let told = "sandfork: the packages shapes are not installed for /";
    assert!(missing.starts_with(told), "{missing}");
    // An option of the command is no part of the name: a policy has none. But another index is asked.
    let mut command = scene.command(&["env", "create", "--packages", "shapes"]);
    let unreachable = said(command.args(["--index-url", "http://127.0.0.1:9/simple"]))?;
    assert!(unreachable.contains("unreachable"), "{unreachable}");
    let index = format!("http://127.0.0.1:{}/simple/", scene.port());
    let mut command = scene.command(&["env", "create", "--packages", "colours"]);
    command.args(["--index-url", &index]);
    said(command.env("PIP_INDEX_URL", "http://127.0.0.1:9/simple"))?;
    let code = "import colours; print(colours.red)";
    let mut command = scene.command(&["run", "--set", "python.packages=[\"colours\"]", "-c", code]);
    command.env("PIP_INDEX_URL", "http://127.0.0.1:9/simple");
    assert_eq!(said(&mut command)?, "ff0000");
    Ok(())
}

fn code_that_is_built_changes_no_index() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let url = format!("http://me:p%40ss@127.0.0.1:{}/secret/simple", scene.port());
    let create = ["env", "create", "built", "meddler", "--allow-build"];
    scene.printed(&[&create[..], &["--index-url", &url]].concat())?;
    assert_eq!(value(&scene, "built", "meddler.found")?, "['GET']");
    Ok(())
}
