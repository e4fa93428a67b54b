use super::*;

fn host_path(text: &str) -> Result<String, String> {
    super::host_path(text, Some(Path::new("/home/user"))).map(|path| path.display().to_string())
}

fn resolved(text: &str) -> Result<String, String> {
    let path = resolve_visible(text, Some(Path::new("/home/user/policies")))?;
    Ok(path.display().to_string())
}

fn assert_refused(read: Result<impl std::fmt::Debug, String>, why: &str) {
    let problem = read.expect_err("it is refused");
    assert!(problem.contains(why), "{problem}");
}

#[test]
fn host_paths_are_normalized() {
    assert_eq!(host_path("/srv/data"), Ok("/srv/data".to_owned()));
    assert_eq!(host_path("//srv/./data//"), Ok("/srv/data".to_owned()));
    assert_eq!(host_path("/srv/..data"), Ok("/srv/..data".to_owned()));
}

#[test]
fn host_paths_start_from_the_policy_file_or_the_root() {
    assert_eq!(host_path("data"), Ok("/home/user/data".to_owned()));
    assert_eq!(host_path("./data"), Ok("/home/user/data".to_owned()));
    assert_eq!(host_path("../data"), Ok("/home/data".to_owned()));
    assert_refused(
        host_path("../.."),
        "would expose the whole host to the guest",
    );
    assert_refused(host_path("~/data"), "starts with `~`");
    assert_refused(host_path("~"), "starts with `~`");
    assert_refused(host_path("/srv/../etc"), "contains `..`");
    assert_refused(host_path(""), "is not a path");
    assert_refused(host_path("/a\0b"), "is not a path");
}

#[test]
fn directories_of_the_sandbox_are_rejected() {
    for root in ["/", "//", "/."] {
        assert_refused(host_path(root), "would expose the whole host to the guest");
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
        assert_refused(refused, "is in the sandbox's own");
    }
    for path in ["/work", "/tmp/"] {
        assert_refused(host_path(path), "is the session's own directory");
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
fn relative_paths_are_checked_after_normalization() {
    assert_refused(
        resolved("../../.."),
        "would expose the whole host to the guest",
    );
    assert_refused(
        resolved("../../../../../.."),
        "would expose the whole host to the guest",
    );
    assert_refused(resolved("../../../proc/1"), "is in the sandbox's own");
    assert_refused(resolved("~/lib"), "starts with `~`");
    assert_refused(resolved(""), "is not a path");
}

#[test]
fn relative_path_needs_an_absolute_base() {
    let no_base = resolve("lib", None);
    assert_refused(no_base, "is a relative path");
    let relative_base = resolve("lib", Some(Path::new("policies")));
    assert_refused(relative_base, "is a relative path");
    assert_eq!(resolve("/opt/lib", None), Ok(PathBuf::from("/opt/lib")));
}

#[test]
fn path_that_is_not_utf8_is_rejected() {
    use std::os::unix::ffi::OsStrExt;

    let base = Path::new(std::ffi::OsStr::from_bytes(b"/home/\xff"));
    assert_refused(resolve("lib", Some(base)), "is not UTF-8");
}
