//! Tests of programs in files: a single script, a directory, a module.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use libtest_mimic::Failed;

use super::behaviour::sandfork;
use super::trials;

trials! {
    a_directory_runs_its_main_with_its_files,
    single_script_sees_no_neighbouring_files,
    a_project_is_imported_and_its_files_are_found,
    project_script_imports_neighbouring_modules_first,
    module_runs_with_its_own_arguments,
    a_policy_names_a_project,
    spawned_processes_find_the_scripts_functions,
    python_tools_find_the_program,
    a_script_from_a_pipe_has_no_file,
    arguments_need_no_dashes,
}

/// Creates a directory with a program: a main module, a helper module, a package and a table.
fn program() -> Result<tempfile::TempDir, Failed> {
    let directory = tempfile::tempdir()?;
    let inside = |name: &str| directory.path().join(name);
    fs::create_dir_all(inside("package"))?;
    for (name, text) in [
        (
            "__main__.py",
            "import helper, sys\nprint(helper.ANSWER, sys.argv[1:], open('table.csv').read())\n",
        ),
        ("helper.py", "ANSWER = 42\n"),
        ("table.csv", "a,b"),
        ("package/__init__.py", ""),
        (
            "package/tool.py",
            "import sys\nprint(__name__, sys.argv[1:])\n",
        ),
        (
            "imports.py",
            "import helper\nprint(helper.ANSWER)\nopen('out.txt', 'w').write('x')\n",
        ),
        (
            "reads.py",
            "import os\nprint(os.listdir(os.path.dirname(__file__)))\nopen('table.csv')\n",
        ),
    ] {
        fs::write(inside(name), text)?;
    }
    // World-readable like a checkout: under root, the guest is another user.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(directory.path(), open)?;
    Ok(directory)
}

fn in_program(directory: &Path, arguments: &[&str]) -> Result<Output, Failed> {
    let mut command: Command = sandfork(&[&["run"][..], arguments].concat());
    Ok(command.current_dir(directory).output()?)
}

fn printed(output: &Output) -> String {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|s| String::from_utf8_lossy(s));
    format!("{stdout}{stderr}")
}

fn a_directory_runs_its_main_with_its_files() -> Result<(), Failed> {
    let program = program()?;
    let output = in_program(
        Path::new("/"),
        &[program.path().to_str().unwrap(), "a", "--json"],
    )?;
    assert_eq!(printed(&output), "42 ['a', '--json'] a,b\n");
    fs::remove_file(program.path().join("__main__.py"))?;
    let output = in_program(program.path(), &["."])?;
    assert_eq!(output.status.code(), Some(2));
    assert!(
        printed(&output).contains("without a `__main__.py`"),
        "{}",
        printed(&output)
    );
    Ok(())
}

fn single_script_sees_no_neighbouring_files() -> Result<(), Failed> {
    let program = program()?;
    let imports = in_program(program.path(), &["imports.py"])?;
    let hint = |name: &str| {
        let directory = program.path().display();
        format!("sandfork: `{name}` is in {directory}, which the guest does not see; ")
    };
    assert_eq!(imports.status.code(), Some(1));
    assert!(printed(&imports).contains("ModuleNotFoundError: No module named 'helper'"));
    assert!(
        printed(&imports).contains(&hint("helper.py")),
        "{}",
        printed(&imports)
    );
    let reads = in_program(program.path(), &["reads.py"])?;
    assert!(
        printed(&reads).starts_with("['reads.py']\n"),
        "{}",
        printed(&reads)
    );
    let hint = format!(
        "sandfork: `table.csv` is in {}, which the guest does not see; `--in table.csv` copies it, and \
         `--project` shows",
        program.path().display()
    );
    assert!(printed(&reads).contains(&hint), "{}", printed(&reads));
    // Paths outside the script's directory get no hint.
    let other = in_program(program.path(), &["-c", "open('../secret')"])?;
    assert!(
        !printed(&other).contains("sandfork:"),
        "{}",
        printed(&other)
    );
    Ok(())
}

fn a_project_is_imported_and_its_files_are_found() -> Result<(), Failed> {
    let program = program()?;
    let imports = in_program(program.path(), &["--project", "imports.py"])?;
    assert_eq!(printed(&imports), "42\n");
    assert!(!program.path().join("out.txt").exists());
    let elsewhere = format!("--project={}", program.path().display());
    let code = "import helper; print(helper.__file__); open(helper.__file__, 'a')";
    let refused = in_program(Path::new("/"), &[&elsewhere, "-c", code])?;
    // Refused by the mount, by Landlock, or because the file belongs to another user.
    let refusals = ["Read-only file system", "Permission denied"];
    let file = program.path().join("helper.py");
    assert!(printed(&refused).starts_with(&format!("{}\n", file.display())));
    assert!(
        refusals.iter().any(|why| printed(&refused).contains(why)),
        "{}",
        printed(&refused)
    );
    for none in ["missing", "imports.py"] {
        let option = format!("--project={none}");
        let refused = in_program(program.path(), &[&option, "-c", "1"])?;
        let why = format!("sandfork: --project: `{none}` is not a directory");
        assert!(printed(&refused).starts_with(&why), "{}", printed(&refused));
        assert_eq!(refused.status.code(), Some(2));
    }
    let whole = in_program(Path::new("/"), &["--project", "-c", "1"])?;
    assert_eq!(whole.status.code(), Some(2), "{}", printed(&whole));
    Ok(())
}

fn project_script_imports_neighbouring_modules_first() -> Result<(), Failed> {
    let program = program()?;
    let script = program.path().join("package/script.py");
    fs::write(
        script,
        "import tool, helper, sys\nprint(helper.ANSWER, tool.__name__)\n",
    )?;
    let output = in_program(program.path(), &["--project=.", "package/script.py"])?;
    assert_eq!(printed(&output), "tool []\n42 tool\n");
    Ok(())
}

fn module_runs_with_its_own_arguments() -> Result<(), Failed> {
    let program = program()?;
    let own = in_program(
        program.path(),
        &["--project", "-m", "package.tool", "-q", "--json"],
    )?;
    assert_eq!(printed(&own), "__main__ ['-q', '--json']\n");
    let installed = in_program(program.path(), &["-m", "json.tool", "--help"])?;
    assert!(
        printed(&installed).contains("json.tool"),
        "{}",
        printed(&installed)
    );
    let missing = in_program(program.path(), &["-m", "package.tool"])?;
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        printed(&missing).contains("`package` is in "),
        "{}",
        printed(&missing)
    );
    let listed = ["--set", "imports.allow=math", "-m", "json.tool"];
    let refused = in_program(program.path(), &listed)?;
    assert!(
        printed(&refused).contains("Import of json.tool is not allowed"),
        "{}",
        printed(&refused)
    );
    Ok(())
}

fn a_policy_names_a_project() -> Result<(), Failed> {
    let program = program()?;
    let policy = program.path().join("tenant.toml");
    fs::write(&policy, "[python]\nproject = '.'\n")?;
    let policy = policy.to_str().unwrap();
    let output = in_program(
        Path::new("/"),
        &[
            "--policy",
            policy,
            "-c",
            "import helper; print(helper.ANSWER)",
        ],
    )?;
    assert_eq!(printed(&output), "42\n");
    let plan = sandfork(&["plan", "--policy", policy]).output()?;
    let line = format!(
        "  program         {}, read-only\n",
        program.path().display()
    );
    assert!(printed(&plan).contains(&line), "{}", printed(&plan));
    Ok(())
}

// `spawn` and `forkserver` start an interpreter that finds the script by its `__file__`, as `inspect` does.
fn spawned_processes_find_the_scripts_functions() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let script = directory.path().join("script.py");
    fs::write(
        &script,
        "import inspect, multiprocessing, os\n\
         def double(x): return 2 * x\n\
         if __name__ == '__main__':\n\
         \x20   assert os.path.samefile(__file__, inspect.getsourcefile(double))\n\
         \x20   print(inspect.getsource(double), end='')\n\
         \x20   for method in 'spawn', 'forkserver':\n\
         \x20       with multiprocessing.get_context(method).Pool(1) as pool:\n\
         \x20           print(method, pool.map(double, [21]))\n",
    )?;
    let output = sandfork(&["run", script.to_str().unwrap()]).output()?;
    let expected = "def double(x): return 2 * x\nspawn [42]\nforkserver [42]\n";
    assert_eq!(printed(&output), expected);
    Ok(())
}

fn python_tools_find_the_program() -> Result<(), Failed> {
    let program = program()?;
    let code = "import importlib.resources as r; print(r.files('package').joinpath('tool.py').read_text()[:10])";
    let reads = in_program(program.path(), &["--project=.", "-c", code])?;
    assert_eq!(printed(&reads), "import sys\n");
    let debugger = ["-m", "pdb", "helper.py"];
    let quits = in_program(program.path(), &[&["--project=."][..], &debugger].concat())?;
    assert!(
        printed(&quits).contains("helper.py(1)"),
        "{}",
        printed(&quits)
    );
    let hint = "sandfork: `helper.py` is in the current directory, which the guest does not see; `--in helper.py`";
    let exits = "import sys; sys.exit('no such file: ' + sys.argv[1])";
    for lacks in [&debugger[..], &["-c", exits, "helper.py"]] {
        let lacks = in_program(program.path(), lacks)?;
        assert!(printed(&lacks).contains(hint), "{}", printed(&lacks));
    }
    let given = ["--in", "helper.py", "-c", exits, "helper.py"];
    let given = in_program(program.path(), &given)?;
    assert!(!printed(&given).contains(hint), "{}", printed(&given));
    let mut cat = sandfork(&["exec", "--", "cat", "helper.py"]);
    let cat = cat.current_dir(program.path()).output()?;
    assert!(printed(&cat).contains(hint), "{}", printed(&cat));
    Ok(())
}

fn a_script_from_a_pipe_has_no_file() -> Result<(), Failed> {
    let binary = env!("CARGO_BIN_EXE_sandfork");
    let shell = format!("{binary} run <(echo 'import os; print(os.path.exists(__file__))')");
    let output = Command::new("bash").args(["-c", &shell]).output()?;
    assert_eq!(printed(&output), "False\n");
    let none = sandfork(&["run", "-c", "print('__file__' in globals())"]).output()?;
    assert_eq!(printed(&none), "False\n");
    Ok(())
}

fn arguments_need_no_dashes() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let script = directory.path().join("script.py");
    fs::write(&script, "import sys\nprint(sys.argv[1:])\n")?;
    let script = script.to_str().unwrap();
    for (arguments, expected) in [
        (
            &[script, "a", "--json", "-c"][..],
            "['a', '--json', '-c']\n",
        ),
        (&[script, "--", "a"], "['a']\n"),
        (&[script, "a", "--", "b"], "['a', '--', 'b']\n"),
        (
            &["-c", "import sys; print(sys.argv[1:])", "a", "--json"],
            "['a', '--json']\n",
        ),
        (
            &["-c", "import sys; print(sys.argv[1:])", "--", "--json"],
            "['--json']\n",
        ),
    ] {
        let output = sandfork(&[&["run"][..], arguments].concat()).output()?;
        assert_eq!(printed(&output), expected, "{arguments:?}");
    }
    let strict = ["run", script, "--policy", "strict"];
    let output = sandfork(&strict).output()?;
    let note = "`--policy strict` comes after the script, so the script gets it as an argument";
    assert!(printed(&output).contains(note), "{}", printed(&output));
    for own in [
        ["--policy", "mine"],
        ["--set", "mine=1"],
        ["--", "--policy=strict"],
    ] {
        let output = sandfork(&[&["run", script][..], &own].concat()).output()?;
        assert!(
            !printed(&output).contains("sandfork:"),
            "{}",
            printed(&output)
        );
    }
    Ok(())
}
