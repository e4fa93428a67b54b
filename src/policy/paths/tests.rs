use super::*;

fn host_path(text: &str) -> Result<String, PathError> {
    super::host_path(text, Some(Path::new("/home/user"))).map(|path| path.display().to_string())
}

fn resolved(text: &str) -> Result<String, PathError> {
    let path = resolve_visible(text, Some(Path::new("/home/user/policies")))?;
    Ok(path.display().to_string())
}

#[test]
fn host_paths_are_normal() {
    assert_eq!(host_path("/srv/data"), Ok("/srv/data".to_owned()));
    assert_eq!(host_path("//srv/./data//"), Ok("/srv/data".to_owned()));
    assert_eq!(host_path("/srv/..data"), Ok("/srv/..data".to_owned()));
}

#[test]
fn host_paths_start_from_the_policy_file_or_the_root() {
    assert_eq!(host_path("data"), Ok("/home/user/data".to_owned()));
    assert_eq!(host_path("./data"), Ok("/home/user/data".to_owned()));
    assert_eq!(host_path("../data"), Ok("/home/data".to_owned()));
    assert_eq!(host_path("../.."), Err(PathError::Root));
    assert!(matches!(host_path("~/data"), Err(PathError::Home(_))));
    assert!(matches!(host_path("~"), Err(PathError::Home(_))));
    assert!(matches!(
        host_path("/srv/../etc"),
        Err(PathError::Parent(_))
    ));
    assert!(matches!(host_path(""), Err(PathError::NotAPath(_))));
    assert!(matches!(host_path("/a\0b"), Err(PathError::NotAPath(_))));
}

#[test]
fn places_of_the_sandbox_are_not_the_hosts() {
    for root in ["/", "//", "/."] {
        assert_eq!(host_path(root), Err(PathError::Root), "{root}");
    }
    for path in [
        "/proc",
        "/proc/self",
        "/sys/fs/cgroup",
        "/dev",
        "/dev/shm/",
        "/dev/null",
    ] {
        let refused = host_path(path);
        assert!(
            matches!(refused, Err(PathError::Synthetic { .. })),
            "{path}: {refused:?}"
        );
    }
    for path in ["/work", "/tmp/"] {
        assert!(
            matches!(host_path(path), Err(PathError::Session(_))),
            "{path}"
        );
    }
    for path in [
        "/process",
        "/device",
        "/tmp/data",
        "/work/data",
        "/srv/proc",
    ] {
        assert_eq!(host_path(path), Ok(path.to_owned()));
    }
}

#[test]
fn relative_paths_start_from_the_policy_file() {
    assert_eq!(resolved("lib"), Ok("/home/user/policies/lib".to_owned()));
    assert_eq!(
        resolved("./lib/."),
        Ok("/home/user/policies/lib".to_owned())
    );
    assert_eq!(resolved("../lib"), Ok("/home/user/lib".to_owned()));
    assert_eq!(resolved("/opt/lib/"), Ok("/opt/lib".to_owned()));
}

#[test]
fn relative_paths_do_not_climb_out_of_the_rules() {
    assert_eq!(resolved("../../.."), Err(PathError::Root));
    assert_eq!(resolved("../../../../../.."), Err(PathError::Root));
    assert!(matches!(
        resolved("../../../proc/1"),
        Err(PathError::Synthetic { .. })
    ));
    assert!(matches!(resolved("~/lib"), Err(PathError::Home(_))));
    assert!(matches!(resolved(""), Err(PathError::NotAPath(_))));
}

#[test]
fn a_relative_path_needs_a_directory() {
    let no_base = resolve("lib", None);
    assert!(matches!(no_base, Err(PathError::NoBase(_))), "{no_base:?}");
    let relative_base = resolve("lib", Some(Path::new("policies")));
    assert!(
        matches!(relative_base, Err(PathError::NoBase(_))),
        "{relative_base:?}"
    );
    assert_eq!(resolve("/opt/lib", None), Ok(PathBuf::from("/opt/lib")));
}

#[test]
fn a_path_that_toml_cannot_hold_is_refused() {
    use std::os::unix::ffi::OsStrExt;

    let base = Path::new(std::ffi::OsStr::from_bytes(b"/home/\xff"));
    assert!(matches!(
        resolve("lib", Some(base)),
        Err(PathError::NotUtf8(_))
    ));
}
