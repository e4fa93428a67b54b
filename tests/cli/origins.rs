//! Where the packages of `sandfork env` come from, and who decides that. The index is that of `environments`.

use libtest_mimic::Failed;

use super::environments::Scene;
use super::trials;

trials! {
    code_that_is_built_changes_no_index,
}

/// The value of a module that an environment has.
fn value(scene: &Scene, name: &str, expression: &str) -> Result<String, Failed> {
    let module = expression.split('.').next().unwrap_or_default();
    let code = format!("import {module}; print({expression})");
    let set = format!("python.environment={name}");
    scene.printed(&["run", "--set", &set, "-c", &code])
}

fn code_that_is_built_changes_no_index() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let url = format!("http://me:p%40ss@127.0.0.1:{}/secret/simple", scene.port());
    let create = ["env", "create", "built", "meddler", "--allow-build"];
    scene.printed(&[&create[..], &["--index-url", &url]].concat())?;
    assert_eq!(value(&scene, "built", "meddler.found")?, "['GET']");
    Ok(())
}
