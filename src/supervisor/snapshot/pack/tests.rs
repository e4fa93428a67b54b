use super::*;

/// Packs a directory with three files of two pages each, as if the kernel had counted `inodes` and `bytes`.
fn packed(inodes: u64, bytes: u64) -> Result<(), SnapshotRefusal> {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["a", "b", "c"] {
        fs::write(directory.path().join(name), [1; 8192]).expect("it is written");
    }
    let opened = File::open(directory.path()).expect("it is there").into();
    let mut tree = Tree {
        root: Path::new("/work"),
        directory: &opened,
        lent: None,
        nodes: BTreeMap::new(),
        names: Vec::new(),
        inodes,
        mounts: BTreeSet::new(),
        unreadable: None,
        nearest: None,
    };
    tree.find()?;
    tree.write(&mut io::sink(), bytes)
}

#[test]
fn more_than_the_kernel_counted_is_not_packed() {
    assert_eq!(packed(4, 3 * 8192), Ok(()));
    assert_eq!(packed(2, 3 * 8192), Err(SnapshotRefusal::Changed));
    assert_eq!(packed(4, 3 * 8192 - 1), Err(SnapshotRefusal::Changed));
}
