//! Tests of where `sandfork env` gets packages from, and who decides it. The index is that of `environments`.

use std::fs;
use std::path::Path;
use std::process::Command;

use libtest_mimic::Failed;

use super::environments::Scene;
use super::trials;

trials! {
    environment_belongs_to_its_index,
    policy_packages_use_the_callers_index,
    build_code_cannot_change_the_index,
    requirements_file_uses_packages_below_its_directory,
    requirements_file_cannot_name_private_hosts,
}

/// Evaluates an expression in an environment; its first name is the module to import.
fn value(scene: &Scene, name: &str, expression: &str) -> Result<String, Failed> {
    let module = expression.split('.').next().unwrap_or_default();
    let code = format!("import {module}; print({expression})");
    let set = format!("python.environment={name}");
    scene.printed(&["run", "--set", &set, "-c", &code])
}

/// Returns the stdout of a command that succeeds, or the stderr of one that fails.
fn text_of(command: &mut Command) -> Result<String, Failed> {
    let output = command.output()?;
    let text = if output.status.success() {
        output.stdout
    } else {
        output.stderr
    };
    Ok(String::from_utf8(text)?.trim_end().to_owned())
}

/// Downloads a file of the index into a directory.
fn fetch(scene: &Scene, name: &str, into: &Path) -> Result<(), Failed> {
    let code = "import sys, urllib.request; urllib.request.urlretrieve(sys.argv[1], sys.argv[2])";
    let url = format!("http://127.0.0.1:{}/files/{name}", scene.port());
    let mut command = Command::new("python3");
    command.args(["-c", code, &url]).arg(into.join(name));
    assert!(command.env("NO_PROXY", "*").status()?.success());
    Ok(())
}

fn environment_belongs_to_its_index() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let wheels = scene.wheels()?;
    let create = ["env", "create", "one", "shapes"];
    let from_directory = |arguments: &[&str]| {
        let mut command = scene.command(arguments);
        command.env("PIP_NO_INDEX", "1");
        command.env("PIP_FIND_LINKS", wheels.path());
        text_of(&mut command)
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
    // Neither the password nor another spelling of the URL makes it another index.
    let url = format!("http://me:p%40ss@127.0.0.1:{}/secret/simple", scene.port());
    scene.printed(&["env", "create", "three", "colours", "--index-url", &url])?;
    let again = url.replace("me:p%40ss@", "other:") + "/";
    let again = again.replace("other:", "other:one@");
    let found = scene.printed(&["env", "create", "three", "colours", "--index-url", &again])?;
    assert!(found.starts_with("three: exists already"), "{found}");
    // Hashes identify the files, and any index may provide them.
    let lock = scene.data_dir().join("pylock.toml").display().to_string();
    scene.printed(&["env", "export", "one", "-o", &lock])?;
    let locked = ["env", "create", "four", "--lock", &lock];
    scene.printed(&locked)?;
    let found = from_directory(&locked)?;
    assert!(found.starts_with("four: exists already"), "{found}");
    Ok(())
}

fn policy_packages_use_the_callers_index() -> Result<(), Failed> {
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
        text_of(&mut command)
    };
    assert_eq!(scene.printed(&run)?, "4");
    assert_eq!(from_directory(&run)?, "3");
    assert_eq!(scene.printed(&run)?, "4");
    // Without permission to install, the environment is not found for another index.
    let found = ["run", "--set", packages, "-c", code];
    assert_eq!(scene.printed(&found)?, "4");
    let mut elsewhere = scene.command(&found);
    elsewhere.env("PIP_INDEX_URL", "http://127.0.0.1:9/simple");
    let missing = text_of(&mut elsewhere)?;
    let expected = "sandfork: the packages shapes are not installed for /";
    assert!(missing.starts_with(expected), "{missing}");
    // An option of the command is not part of the environment's name, but it changes the index that is queried.
    let mut command = scene.command(&["env", "create", "--packages", "shapes"]);
    let unreachable = text_of(command.args(["--index-url", "http://127.0.0.1:9/simple"]))?;
    assert!(unreachable.contains("unreachable"), "{unreachable}");
    let index = format!("http://127.0.0.1:{}/simple/", scene.port());
    let mut command = scene.command(&["env", "create", "--packages", "colours"]);
    command.args(["--index-url", &index]);
    text_of(command.env("PIP_INDEX_URL", "http://127.0.0.1:9/simple"))?;
    let code = "import colours; print(colours.red)";
    let mut command = scene.command(&["run", "--set", "python.packages=[\"colours\"]", "-c", code]);
    command.env("PIP_INDEX_URL", "http://127.0.0.1:9/simple");
    assert_eq!(text_of(&mut command)?, "ff0000");
    Ok(())
}

fn build_code_cannot_change_the_index() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let url = format!("http://me:p%40ss@127.0.0.1:{}/secret/simple", scene.port());
    let create = ["env", "create", "built", "meddler", "--allow-build"];
    scene.printed(&[&create[..], &["--index-url", &url]].concat())?;
    assert_eq!(value(&scene, "built", "meddler.found")?, "['GET']");
    Ok(())
}

fn requirements_file_uses_packages_below_its_directory() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let project = scene.data_dir().join("the project");
    fs::create_dir_all(project.join("wheels"))?;
    for name in ["colours-1.5-py3-none-any.whl", "lister-1.0.tar.gz"] {
        fetch(&scene, name, &project.join("wheels"))?;
    }
    fs::write(project.join("wheels/key"), "a secret")?;
    let file = project.join("requirements.txt");
    let path = file.display().to_string();
    let create = |lines: &str, name: &str, more: &[&str]| -> Result<Command, Failed> {
        fs::write(&file, lines)?;
        let mut command = scene.command(&[&["env", "create", name, "-r", &path], more].concat());
        command.env("PIP_NO_INDEX", "1");
        Ok(command)
    };
    let lines = "--find-links ./wheels\ncolours\nlister\n";
    let made = text_of(&mut create(lines, "one", &["--allow-build"])?)?;
    assert!(made.starts_with("one: is ready"), "{made}");
    let seen = value(&scene, "one", "lister.found")?;
    assert_eq!(
        seen,
        "['colours-1.5-py3-none-any.whl', 'lister-1.0.tar.gz']"
    );
    // A host directory, which only the caller may name.
    let outside = scene.wheels()?;
    let outside = outside.path().display().to_string();
    let lines = format!("colours\n-f {outside}\n");
    let refused = text_of(&mut create(&lines, "two", &[])?)?;
    assert_eq!(
        refused,
        format!(
            "sandfork: {path}:2: `--find-links {outside}` is not beneath the directory of the file: if what is installed may \
             read all of it, name it in pip's configuration, such as with `PIP_FIND_LINKS={outside}`"
        )
    );
    let named = text_of(create(&lines, "two", &[])?.env("PIP_FIND_LINKS", &outside))?;
    assert!(named.starts_with("two: is ready"), "{named}");
    std::os::unix::fs::symlink(&outside, project.join("link"))?;
    let refused = text_of(&mut create("colours\n-f link\n", "three", &[])?)?;
    assert!(
        refused.contains("is not beneath the directory"),
        "{refused}"
    );
    // An included file of the project is confined to the directory of that file.
    fs::create_dir(project.join("part"))?;
    fs::write(
        project.join("part/requirements.txt"),
        "-r ../requirements.txt",
    )?;
    let part = project.join("part/requirements.txt").display().to_string();
    create("-f wheels\ncolours\n", "four", &[])?;
    let mut command = scene.command(&["env", "create", "four", "-r", &part]);
    let included = text_of(command.env("PIP_NO_INDEX", "1"))?;
    assert!(included.starts_with("four: is ready"), "{included}");
    Ok(())
}

fn requirements_file_cannot_name_private_hosts() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let file = scene.data_dir().join("requirements.txt");
    let path = file.display().to_string();
    let create = |host: &str, more: &[&str]| -> Result<String, Failed> {
        let port = scene.port();
        fs::write(&file, format!("-i http://{host}:{port}/simple\ncolours\n"))?;
        let mut command = scene.command(&[&["env", "create", "x", "-r", &path], more].concat());
        text_of(command.env_remove("PIP_INDEX_URL"))
    };
    for host in ["127.0.0.1", "localhost"] {
        let place = format!("{host}:{}", scene.port());
        let refused = create(host, &[])?;
        let expected = format!("`--allow-host {place}` lets the installation reach it");
        assert!(refused.contains(&expected), "{refused}");
        let made = create(host, &["--allow-host", &place])?;
        assert!(made.starts_with("x: is ready"), "{made}");
        scene.printed(&["env", "remove", "x"])?;
    }
    // The caller's own configuration names the host, which allows it.
    create("127.0.0.1", &[])?;
    let made = scene.printed(&["env", "create", "x", "-r", &path])?;
    assert!(made.starts_with("x: is ready"), "{made}");
    Ok(())
}
